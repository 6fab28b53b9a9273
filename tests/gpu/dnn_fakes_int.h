/* The inside of the fakes of cuDNN: descriptors as lists of attributes, and numbers by type. */
#ifndef TESTS_GPU_DNN_FAKES_INT_H
#define TESTS_GPU_DNN_FAKES_INT_H
#include <cudnn.h>
#include "base/mem.h"
#include "kernels/kernels.h"

struct fake_attr { cudnnBackendAttributeName_t name; cudnnBackendAttributeType_t type; int64_t n; void *v; };
struct fake {
    cudnnBackendDescriptorType_t kind;
    bool finished;
    VEC(struct fake_attr) a;
    struct fake *graph;                                  /* of what the heuristics named */
    int engine;                                          /* index into fake_engine */
};

const struct fake_attr *fake_attr_of(const struct fake *f, cudnnBackendAttributeName_t name);
const void *fake_value(const struct fake *f, cudnnBackendAttributeName_t name);                /* NULL: not set */
struct fake *fake_child(const struct fake *f, cudnnBackendAttributeName_t name);
float fake_get(enum ktype t, const void *p, size_t i);
void fake_put(enum ktype t, void *p, size_t i, float v);
/* Runs a graph of products, steps, sums of rows and transposed tensors, one operation after the other. */
void fake_graph_run(const struct fake_attr *ops, const struct fake *pack);
#endif
