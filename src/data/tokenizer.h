/* Text to tokens and back, as Hugging Face's tokenizers do: byte-pair encoding from a tokenizer.json, or bytes. Any
 * thread; a tokenizer does not change after it was opened. */
#ifndef DATA_TOKENIZER_H
#define DATA_TOKENIZER_H
#include "conf/conf.h"

struct tokenizer;
struct token_ids { uint32_t *v; int n, cap; };
/* path: a tokenizer.json, a folder that has one, or "bytes". 66; 65: "FILE: ...", what is wrong or not supported. */
int tokenizer_open(const char *path, struct tokenizer **out, struct err *e);
/* data.tokenizer, or that of the network that the configuration names. 78: there is none. */
int tokenizer_of(const struct conf *c, struct tokenizer **out, struct err *e);
bool tokenizer_known(const struct conf *c);              /* is there one? */
bool tokenizer_bytes(const struct conf *c);              /* is it "bytes"? */
int64_t tokenizer_size(const struct tokenizer *t);       /* tokens are 0 to size - 1 */
/* Appends the tokens of n bytes; the caller frees ids->v. whole: as the beginning of a text, with the token that the
 * tokenizer puts there. 65: it is no text, or an expression takes too long. */
int tokenizer_encode(const struct tokenizer *t, const char *text, size_t n, bool whole, struct token_ids *ids,
                     struct err *e);
/* The next n bytes of a rendered text. plain: special tokens have no meaning in them. counts: their tokens are
 * trained. */
struct text_span { size_t n; bool plain, counts; };
/* The tokens of a text that begins with `text` and consists of spans. Tokens may lie over the borders of spans, as they
 * do in the whole text. counts: gets 1 for each token with a character that counts, otherwise 0. No token is put in
 * front. The caller frees both. */
int tokenizer_encode_parts(const struct tokenizer *t, const char *text, const struct text_span *span, int n_spans,
                           struct token_ids *ids, struct token_ids *counts, struct err *e);
/* Where the first added token of a text ends; 0: there is none. id: gets it; may be NULL. */
size_t tokenizer_added_end(const struct tokenizer *t, const char *s, size_t n, uint32_t *id);
/* Appends the text of n tokens without special ones; what is no UTF-8 becomes U+FFFD. */
void tokenizer_decode(const struct tokenizer *t, const uint32_t *id, size_t n, struct text *out);
/* The same with special tokens as they are written. */
void tokenizer_show(const struct tokenizer *t, const uint32_t *id, size_t n, struct text *out);
/* The byte of `all`, which is what tokenizer_show gives for all tokens, where token i begins. */
size_t tokenizer_shown(const struct tokenizer *t, const uint32_t *id, size_t i, const struct text *all);
void tokenizer_close(struct tokenizer *t);               /* t may be NULL */
#endif
