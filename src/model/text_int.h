/* Reading graph text: shared by text.c (statements) and blocks.c (blocks and their uses). Nobody else. */
#ifndef MODEL_TEXT_INT_H
#define MODEL_TEXT_INT_H
#include "model/graph_int.h"

/* Hostile text must not take hours: blocks in blocks, and statements that uses of blocks come to in all. */
enum { MAX_BLOCK_PARAMS = 16, MAX_BLOCK_DEPTH = 16, MAX_BLOCK_STATEMENTS = 1 << 15, MAX_BLOCK_LINE = 1024 };

struct block_param { const char *name, *value; };        /* value: the default, NULL: a use says it */
struct block_line { char *text; int line; };
struct graph_block {
    const char *name;
    int n_in; const char *in[MAX_IN];                    /* what its statements call the tensors that it reads */
    int n_params; struct block_param param[MAX_BLOCK_PARAMS];
    VEC(struct block_line) body;
};

/* One use: what names mean in its statements. Blocks that were defined later are not seen. */
struct scope {
    const char *prefix;                                  /* "layer1.0." */
    int block, depth;
    const int *in;
    const char *value[MAX_BLOCK_PARAMS], *index;         /* index: the number of a range of uses, NULL: none */
    int first, output;                                   /* tensors: the first that is new; -1: not said */
};

struct alias { const char *name; int tensor; };          /* what a use is called: its output */
struct parse {
    struct graph_builder *b;
    int output, loss, read;                              /* read: what a loss that was left out reads */
    VEC(struct graph_block) block;
    VEC(struct alias) alias; struct name_table aliases;  /* by name: the tensor */
    bool defining;                                       /* lines go into the last block */
    struct scope *scope;                                 /* NULL: outside of all blocks */
    int statements;                                      /* of all uses so far */
};

/* A use of a block, "NAME = BLOCK(...) parameter=value": node.name may end in a range, 0..3. */
struct block_use { const char *name, *args, *layer; int block, n_in, in[MAX_IN]; };

/* text.c. They set the builder's error; line is taken apart. */
void statement_parse(struct parse *p, char *line);
bool name_ok(const char *s);

/* blocks.c */
void block_begin(struct parse *p, char *line);           /* "block NAME(x) width stride=1 {" */
void block_take(struct parse *p, char *line);            /* a line of the block that is being defined, or its end */
int block_find(const struct parse *p, const char *name); /* one that is seen here; -1 */
void block_expand(struct parse *p, const struct block_use *u);
void blocks_free(struct parse *p);
/* A name as the graph has it, in the arena; NULL: it is too long. */
const char *scope_name(struct parse *p, const char *name);
int scope_tensor(const struct parse *p, const char *name);   /* an input or the name of a use; -1: neither */
#endif
