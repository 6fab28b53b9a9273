/* Parsing of graph text, only for text.c (statements) and blocks.c (blocks and their uses). */
#ifndef MODEL_TEXT_INT_H
#define MODEL_TEXT_INT_H
#include "model/graph_int.h"

/* Limits the time for hostile text: nesting of blocks, and total statements of all uses of blocks. */
enum { MAX_BLOCK_PARAMS = 16, MAX_BLOCK_DEPTH = 16, MAX_BLOCK_STATEMENTS = 1 << 15, MAX_BLOCK_LINE = 1024 };

struct block_param { const char *name, *value; };        /* value: the default; NULL: a use must set it */
struct block_line { char *text; int line; };
struct graph_block {
    const char *name;
    int n_in; const char *in[MAX_IN];                    /* names of the inputs in its statements */
    int n_params; struct block_param param[MAX_BLOCK_PARAMS];
    VEC(struct block_line) body;
};

/* One use of a block: the meaning of names in its statements. Blocks defined later are not visible. */
struct scope {
    const char *prefix;                                  /* "layer1.0." */
    int block, depth;
    const int *in;
    const char *value[MAX_BLOCK_PARAMS], *index;         /* index: number within a range of uses, NULL: none */
    int first, output;                                   /* tensors: the first new one; -1: not set */
};

struct alias { const char *name; int tensor; };          /* name of a use: its output */
struct parse {
    struct graph_builder *b;
    int output, loss, read;                              /* read: input of a loss that was left out */
    VEC(struct graph_block) block;
    VEC(struct alias) alias; struct name_table aliases;  /* maps alias names to tensors */
    bool defining;                                       /* lines belong to the last block */
    struct scope *scope;                                 /* NULL: outside all blocks */
    int statements;                                      /* of all uses so far */
};

/* A use of a block, "NAME = BLOCK(...) parameter=value": node.name may end in a range, 0..3. */
struct block_use { const char *name, *args, *layer; int block, n_in, in[MAX_IN]; };

/* text.c. These set the builder's error and modify line. */
void statement_parse(struct parse *p, char *line);
bool name_ok(const char *s);

/* blocks.c */
void block_begin(struct parse *p, char *line);           /* "block NAME(x) width stride=1 {" */
void block_take(struct parse *p, char *line);            /* a line of the current block definition, or its end */
int block_find(const struct parse *p, const char *name); /* a block visible here; -1 */
void block_expand(struct parse *p, const struct block_use *u);
void blocks_free(struct parse *p);
/* The full name in the graph, in the arena; NULL: too long. */
const char *scope_name(struct parse *p, const char *name);
int scope_tensor(const struct parse *p, const char *name);   /* an input or a use's name; -1: neither */
#endif
