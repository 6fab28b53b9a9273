/* The built-in networks: one builder per family, zoo_NAME.c with zoo_NAME[], and an entry in ZOO of Makefile.am. A
 * builder adds its nodes and returns the output tensor, -1 on error. */
#ifndef MODEL_ZOO_H
#define MODEL_ZOO_H
#include "model/graph.h"
struct zoo_kind {
    const char *name, *text;
    int input_n; int64_t input[MAX_DIMS];                /* default, if model.input is not set */
    bool any_input;                                      /* model.input may have another number of dimensions */
    int64_t classes;                                     /* default */
    int (*build)(struct graph_builder *b, const struct zoo_kind *k, const struct conf *c, int input, int64_t classes);
    const void *own;                                     /* parameters of the network within its family */
};
extern const struct zoo_kind *const zoo_list[];          /* families; each, and the list, ends with NULL */

/* ---- for builders (zoo_build.c) -------------------------------------------------------------------------------- */

/* The prefix of all nodes that are added: "features.3.". */
struct zoo_at { struct graph_builder *b; char prefix[128]; };
void zoo_under(struct zoo_at *z, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Adds an operator with one input under this name, with the class of torch.nn as its layer; attributes in printf's
 * format. Returns its output. */
int zoo_add(const struct zoo_at *z, int in, const char *op, const char *name, const char *attrs, ...)
    __attribute__((format(printf, 5, 6)));
int zoo_add2(const struct zoo_at *z, const char *op, const char *name, int x, int y);
/* Sets the initial values of a node's parameter slot. */
void zoo_init(const struct zoo_at *z, const char *name, int slot, enum param_init init, double scale);
/* Sets the initial weights of a node (slot 0), and a bias of zero. */
void zoo_init_layer(const struct zoo_at *z, const char *name, enum param_init init, double scale);
/* Initialises the weights of the convolutions added so far like torch.nn: uniform in +-1 / sqrt(fan-in). The operator's
 * default is that of torchvision's ResNet, at least twice as large. */
void zoo_init_convs(struct graph_builder *b);
void zoo_name(const struct zoo_at *z, const char *name, int slot, const char *param);   /* graph_name, all prefixed */
/* Adds means over space and one dimension, "avgpool" and "flatten". Empties the prefix. */
int zoo_pooled(struct zoo_at *z, int in);
/* Ends a composite module whose name is the prefix. */
void zoo_container(const struct zoo_at *z, const char *layer, int out);
/* Fails (78) unless every spatial dimension of the input can be halved `times` times. */
int zoo_halves(struct graph_builder *b, int input, int times);
int64_t zoo_channels(const struct zoo_at *z, int tensor);                /* 0 after an error */
/* The nearest multiple of `by`, at least `by`, and at least nine tenths of v: torchvision's _make_divisible. */
int64_t zoo_divisible(double v, int64_t by);
#endif
