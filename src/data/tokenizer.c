/* See tokenizer.h. */
#include <stdlib.h>
#include <utf8proc.h>
#include "data/tokenizer.h"

enum { BYTES = 256 };
struct tokenizer { int size; };

bool tokenizer_known(const struct conf *c)
{
    return !c->model.folder && !c->model.config && c->model.vocab_size == BYTES;
}

int tokenizer_of(const struct conf *c, struct tokenizer **out, struct err *e)
{
    if (!tokenizer_known(c))
        return conf_error(c, "generate.prompt", e, "a text needs a vocabulary of bytes, model.vocab_size = 256; use "
                          "generate.prompts with input_ids");
    *out = mem_alloc(sizeof **out);
    (*out)->size = BYTES;
    return 0;
}

int tokenizer_encode(const struct tokenizer *t, const char *text, size_t n, bool whole, struct token_ids *ids,
                     struct err *e)
{
    for (size_t i = 0; i < n; i++) *vec_push(ids) = (unsigned char)text[i];
    return 0;
}

int tokenizer_decode(const struct tokenizer *t, const uint32_t *id, size_t n, struct text *out, struct err *e)
{
    unsigned char *bytes = mem_alloc(n + 1);
    for (size_t i = 0; i < n; i++) bytes[i] = (unsigned char)id[i];
    for (size_t i = 0; i < n;) {
        utf8proc_int32_t point;
        const utf8proc_ssize_t size = utf8proc_iterate(bytes + i, (utf8proc_ssize_t)(n - i), &point);
        if (size > 0) text_add_bytes(out, bytes + i, (size_t)size);
        else text_add_bytes(out, "\xef\xbf\xbd", 3);
        i += size > 0 ? (size_t)size : 1;
    }
    free(bytes);
    return 0;
}

void tokenizer_close(struct tokenizer *t) { free(t); }
