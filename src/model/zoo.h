/* The networks that come with the program: one builder a family (zoo_*.c). Each adds its nodes and returns the output
 * tensor, -1 on error. */
#ifndef MODEL_ZOO_H
#define MODEL_ZOO_H
#include "model/graph.h"
struct zoo_kind {
    const char *name, *text;
    int input_n; int64_t input[MAX_DIMS];                /* default input, used when model.input is not set */
    bool any_input;                                      /* model.input may have another number of dimensions */
    int64_t classes;                                     /* default */
    int (*build)(struct graph_builder *b, const struct zoo_kind *k, const struct conf *c, int input, int64_t classes);
    const void *own;                                     /* its family's: what tells its networks apart */
};
extern const struct zoo_kind zoo_mlp[], zoo_resnet[];    /* end with name NULL */
#endif
