/* Files of token ids: raw numbers (nanoGPT), llm.c's with a header, Megatron's pair of .idx and .bin. Hostile: sizes
 * are compared with the file's. Any thread may read; a handle does not change after token_file_open. */
#ifndef DATA_TOKEN_FILE_H
#define DATA_TOKEN_FILE_H
#include "data/tokenizer.h"

enum { TOKEN_BYTES_MOST = 4 };
/* path: of the numbers, the caller's or the handle's. bytes: of a number, 1, 2 or 4. begin: where the first lies. end:
 * of Megatron's documents, the index behind the last token of each; NULL: not known. */
struct token_file { const char *path; int fd; int bytes; uint64_t begin, n; uint64_t n_ends, *end; char *own; };

/* bytes: of a number in a raw file; 0: 2 if vocabulary fits, otherwise 4. 66: missing; 65 "PATH: ...". */
int token_file_open(const char *path, int bytes, int64_t vocabulary, struct token_file *f, struct err *e);
/* The tokens of texts (documents.h), which are kept in memory as one file. end: a token behind each document; -1: none.
 * bytes: gets the bytes of the texts, which must live as long as f. 66; 65 "PATH: ...". */
int token_file_text(const struct conf_texts *texts, const struct tokenizer *t, int64_t end, struct token_file *f,
                    uint64_t *bytes, struct err *e);
/* Reads up to 1 M ids, of a larger file 64 pieces at even distances: a vocabulary or type that does not belong to the
 * file is found before a run begins. 65. */
int token_file_probe(const struct token_file *f, int64_t vocabulary, struct err *e);
/* Ids [first, first + n) into out. 65 if one is not below vocabulary, or the file has become shorter. */
int token_file_read(const struct token_file *f, uint64_t first, uint64_t n, int64_t vocabulary, int64_t *out,
                    struct err *e);
void token_file_close(struct token_file *f);

#endif
