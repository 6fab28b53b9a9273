/* The builder's inside, shared by graph.c and text.c. Nobody else. */
#ifndef MODEL_GRAPH_INT_H
#define MODEL_GRAPH_INT_H
#include "model/graph.h"
#include "model/op.h"

struct graph_builder {
    struct arena *mem;                                   /* becomes the graph's */
    const char *name, *file;
    int line;                                            /* of graph text being read */
    int input, labels;
    VEC(struct node) node;
    VEC(struct tensor) tensor;
    VEC(struct param) param;
    VEC(struct container) container;
    VEC(const char *) frozen;
    struct err e;
};

/* Sets the builder's error once: 65 with FILE:LINE for graph text, otherwise 78. fmt takes two strings. Returns -1. */
int graph_fail(struct graph_builder *b, const char *fmt, const char *a, const char *c);
#endif
