/* The builder's inside, shared by graph.c and text.c. Nobody else. */
#ifndef MODEL_GRAPH_INT_H
#define MODEL_GRAPH_INT_H
#include "model/graph.h"
#include "model/op.h"

/* names are found by search: hostile text must not take hours */
enum { MAX_NODES = 1 << 13 };

struct graph_builder {
    struct arena *mem;                                   /* becomes the graph's */
    const char *name, *file;
    int line;                                            /* of graph text being read */
    VEC(struct input) input;
    VEC(struct node) node;
    VEC(struct tensor) tensor;
    VEC(struct param) param;
    VEC(struct container) container;
    struct err e;
};

/* Sets the builder's error once: 65 with FILE:LINE for graph text, otherwise 78. fmt takes two strings. Returns -1. */
int graph_fail(struct graph_builder *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* graph_check.c: the last step of graph_finish. Returns -1 with the builder's error set. */
int graph_check(struct graph_builder *b, const struct graph *g);

/* Tensor of the first input with this role; -1: there is none yet. */
int builder_first(const struct graph_builder *b, enum role role);

/* What the configuration says of a network's end: operators; the attributes of the loss. */
struct graph_ends { const char *loss, *attrs; bool labels_class; const struct conf_texts *scores; };

/* Adds "loss", which reads the output and the first target; one that is not there yet is "labels": a class, or a vector
 * like the output. Before it the scores that are not there yet, under their operators' names, which read the same.
 * Returns the loss tensor, -1 on error. */
int graph_loss(struct graph_builder *b, const struct graph_ends *ends, int output);

/* graph_parse, but a text without a loss gets these ends. NULL: none. 78 without a place if they do not fit. */
struct graph *graph_parse_ends(const char *file, const char *s, size_t n, const struct graph_ends *ends,
                               struct err *e);
#endif
