/* tokenizer.json: a tokenizer that is taken makes tokens below its size of any text, and text of any tokens. */
#include "kept_file.h"
#include "base/mem.h"
#include "data/tokenizer.h"

static void use(const struct tokenizer *t)
{
    static const char *const text[] = {"", "Call me  Ishmael.\n", "<s> 12345 \xc3\xa9\xe2\x96\x81\xf0\x9f\x98\x80  x"};
    const int64_t size = tokenizer_size(t);
    for (int i = 0; i < 3; i++) {
        struct token_ids ids = {0};
        struct text back = {0};
        struct err e = {0};
        const int bad = tokenizer_encode(t, text[i], strlen(text[i]), i, &ids, &e);
        must(!bad || e.code == E_DATA);
        for (int k = 0; k < ids.n; k++) must(ids.v[k] < size);
        tokenizer_decode(t, ids.v, (size_t)ids.n, &back);
        text_free(&back);
        vec_free(&ids);
    }
    uint32_t all[40];
    struct text back = {0};
    for (uint32_t i = 0; i < 40; i++) all[i] = i;
    tokenizer_decode(t, all, 40, &back);
    text_free(&back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *path = kept_file(data, size);
    struct err e = {0};
    struct tokenizer *t;
    if (tokenizer_open(path, &t, &e)) {
        refused(&e, E_DATA, path);
        return 0;
    }
    use(t);
    tokenizer_close(t);
    return 0;
}
