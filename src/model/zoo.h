/* The networks that come with the program: one builder a family, zoo_NAME.c with zoo_NAME[], and its place in ZOO of
 * Makefile.am. A builder adds its nodes and returns the output tensor, -1 on error. */
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
extern const struct zoo_kind *const zoo_list[];          /* families; each, and the list, ends with NULL */

/* ---- for builders (zoo_build.c) -------------------------------------------------------------------------------- */

/* Nodes that are added get this before their names: "features.3.". */
struct zoo_at { struct graph_builder *b; char prefix[128]; };
void zoo_under(struct zoo_at *z, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* An operator of one input under this name, of torch.nn's class of that operator; attributes as printf makes them.
 * Returns its output. */
int zoo_add(const struct zoo_at *z, int in, const char *op, const char *name, const char *attrs, ...)
    __attribute__((format(printf, 5, 6)));
int zoo_add2(const struct zoo_at *z, const char *op, const char *name, int x, int y);
/* Initial values of a node's parameter slot. */
void zoo_init(const struct zoo_at *z, const char *name, int slot, enum param_init init, double scale);
/* Weights of the convolutions so far as torch.nn itself begins: uniform, by how many values an output reads. The
 * operator's own are those of torchvision's ResNet, of twice the size and more. */
void zoo_init_convs(struct graph_builder *b);
void zoo_name(const struct zoo_at *z, const char *name, int slot, const char *param);   /* graph_name, all prefixed */
/* The composite module that ends here has the prefix's name. */
void zoo_container(const struct zoo_at *z, const char *layer, int out);
/* An error, 78, unless every spatial dimension of the input can be halved so often. */
int zoo_halves(struct graph_builder *b, int input, int times);
int64_t zoo_channels(const struct zoo_at *z, int tensor);                /* 0 after an error */
/* The nearest multiple of `by`, at least that, and not below nine tenths of v: torchvision's _make_divisible. */
int64_t zoo_divisible(double v, int64_t by);
#endif
