/* The builder's inside, shared by graph.c and text.c. Nobody else. */
#ifndef MODEL_GRAPH_INT_H
#define MODEL_GRAPH_INT_H
#include "base/name_table.h"
#include "base/suggest.h"
#include "model/graph.h"
#include "model/op.h"

/* hostile text must not take hours: parameters are found by search */
enum { MAX_NODES = 1 << 13 };

struct graph_builder {
    struct arena *mem;                                   /* becomes the graph's */
    const char *name, *file;
    int line;                                            /* of graph text being read */
    VEC(struct input) input;
    VEC(struct node) node;
    VEC(struct tensor) tensor;
    struct name_table named;                             /* tensors by name */
    VEC(struct param) param;
    VEC(struct container) container;
    /* losses, scores and targets are left out, and so some tensors may have no reader; loss_op: the loss left out */
    bool predicts; const struct op_kind *loss_op;
    struct err e;
};

/* Sets the builder's error once: 65 with FILE:LINE for graph text, otherwise 78. fmt takes two strings. Returns -1. */
int graph_fail(struct graph_builder *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* graph_check.c: the last step of graph_finish. Returns -1 with the builder's error set. */
int graph_check(struct graph_builder *b, const struct graph *g);

/* Tensor of this name so far; -1: there is none. */
int builder_tensor(const struct graph_builder *b, const char *name);
/* Tensor of the first input with this role; -1: there is none yet. */
int builder_first(const struct graph_builder *b, enum role role);

/* What the configuration says of a network's end: operators; the attributes of the loss. */
struct graph_ends { const char *loss, *attrs; bool labels_class, labels_map; const struct conf_texts *scores; };

/* What train.freeze and the lists of factors say, of the weights so far. 78 where a pattern matches none. */
int groups_apply(struct graph_builder *b, const struct conf *c, struct err *e);
/* Calls f with every weight that a pattern matches: by its name or the first components of it, by the class or the
 * operator of its layer; * and ? as in file names. Returns how many. */
int builder_each(struct graph_builder *b, const char *pattern, void (*f)(struct param *p, double value), double value);
void param_freeze(struct param *p, double value);       /* an f */
/* " (did you mean ...?)" of weights and layers, or "" */
const char *builder_nearest(const struct graph_builder *b, const char *pattern, char hint[SUGGEST_TELL]);

/* Adds "loss", which reads the output and the first target; one that is not there yet is "labels": a class, one
 * at each point of the output, or a vector like the output. Before it the scores that are not there yet, under their
 * operators' names, which read the same.
 * Returns the loss tensor, -1 on error. */
int graph_loss(struct graph_builder *b, const struct graph_ends *ends, int output);
/* The same, or of a network that only predicts: remembers which loss it would be and returns -1. */
int graph_end(struct graph_builder *b, const struct graph_ends *ends, int output);

/* graph_parse, but a text without a loss gets these ends, and the groups of a configuration are applied. NULL: none.
 * 78 without a place if the ends do not fit, 78 with one in `groups` if the groups do not. */
struct graph_given { const char *file, *s; size_t n; const struct graph_ends *ends; const struct conf *conf; };
struct graph *graph_parse_given(const struct graph_given *q, struct err *groups, struct err *e);
#endif
