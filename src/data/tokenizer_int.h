/* The inside of a tokenizer, shared by tokenizer*.c only. Formulas and names are those of Hugging Face's tokenizers. */
#ifndef DATA_TOKENIZER_INT_H
#define DATA_TOKENIZER_INT_H
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include "data/tokenizer.h"

struct text_chars { const char *s; size_t n; };
/* Steps of a normalizer, a pre-tokenizer or a decoder. */
enum step_type { STEP_NFC, STEP_PREPEND, STEP_REPLACE, STEP_SPLIT, STEP_BYTES, STEP_DIGITS, STEP_METASPACE,
                 STEP_BYTE_FALLBACK, STEP_FUSE, STEP_STRIP };
enum split_how { SPLIT_REMOVED, SPLIT_ISOLATED, SPLIT_WITH_PREVIOUS, SPLIT_WITH_NEXT, SPLIT_CONTIGUOUS };
enum prepend_when { PREPEND_NEVER, PREPEND_FIRST, PREPEND_ALWAYS };
/* a, b: texts of PREPEND (a), REPLACE, METASPACE (a: the replacement), STRIP (a). regex: of SPLIT, and of BYTES if it
 * splits. yes: SPLIT inverts; BYTES puts a space in front; DIGITS are apart; METASPACE splits. begin, end: STRIP. */
struct token_step {
    enum step_type type; struct text_chars a, b; pcre2_code *regex; enum split_how how; enum prepend_when prepend;
    bool yes; int begin, end;
};
struct token_steps { struct token_step *v; int n, cap; };
struct added_token { struct text_chars s; uint32_t id; bool special, normalized, lstrip, rstrip, single_word; };
struct token_merge { uint32_t rank, id; };
struct id_entry { uint64_t key; uint32_t at; };              /* at: 1 + index; 0: empty */
struct id_table { struct id_entry *v; size_t size, n; };

struct tokenizer {
    struct arena *mem;
    bool bytes;                                          /* a token is a byte, and there is nothing else */
    struct text_chars *piece; uint32_t size;                  /* by id; s NULL: none */
    struct id_table by_text, by_pair; struct token_merge *merge;  /* of pieces; of pairs of ids, index: the rank */
    struct id_table seams;                               /* pairs of characters between which some merge joins */
    struct { struct added_token *v; int n, cap; } added;
    struct token_steps normalizer, pre, decoder; bool decodes;
    bool byte_fallback, ignore_merges, fuse_unk;
    int64_t unknown, first;                              /* ids; -1: none. first: in front of a text */
    int64_t byte_id[256];                                /* of <0xNN>; -1: none */
    struct text_chars letter[256]; int16_t byte_of[512]; /* ByteLevel's letters; byte of a letter's code point, -1 */
};

/* tokenizer_read.c: from the text of a tokenizer.json. 65: file, what is not supported. */
int tokenizer_parse(struct tokenizer *t, const char *file, const char *s, size_t n, struct err *e);
/* tokenizer.c: the steps of the normalizer. 65: the text becomes too long. */
int tokenizer_normalize(const struct tokenizer *t, struct text *s, struct err *e);
/* tokenizer_bpe.c */
void id_table_put(struct id_table *t, uint64_t key, uint32_t at);
int64_t id_table_find(const struct id_table *t, uint64_t key, bool (*same)(const void *ctx, uint32_t at),
                      const void *ctx);
uint64_t pair_key(uint32_t a, uint32_t b);
const struct token_merge *merge_find(const struct tokenizer *t, uint32_t a, uint32_t b);   /* NULL: none */
int64_t piece_find(const struct tokenizer *t, const char *s, size_t n);   /* its id; -1 */
void seam_add(struct tokenizer *t, const char *left, size_t left_n, const char *right, size_t right_n);
/* Appends the tokens of a word. */
void bpe_word(const struct tokenizer *t, const char *s, size_t n, struct token_ids *ids);
#endif
