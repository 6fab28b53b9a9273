/* Evaluates a whole graph with the reference kernels, one node after the other, with all values kept. This plainest way
 * is an oracle for code that runs the network in another order. Fill the inputs' values, parameters and sample ids,
 * then call forward and backward. */
#ifndef TESTS_GRAPH_EVAL_H
#define TESTS_GRAPH_EVAL_H
#include "model/op.h"

struct graph_eval {
    const struct graph *g;
    int n;                                               /* samples */
    bool train;
    struct be_block block;                               /* inv_weight = 1 / n initially */
    int64_t *sample;                                     /* 0 .. n-1 initially */
    void **value;                                        /* of each tensor: [n][shape] */
    float **grad;                                        /* NULL if no gradient is needed */
    void **param;                                        /* of each persistent tensor */
    float **pgrad;                                       /* of each weight, summed over its uses */
    void **saved;                                        /* of each node */
};

struct graph_eval *graph_eval_new(const struct graph *g, int n, bool train);
/* Initial values as the graph requires, from the seed; order and generator are this file's own. */
void graph_eval_init(struct graph_eval *v, uint64_t seed);
void graph_eval_forward(struct graph_eval *v);
/* From the loss, or, without one, from grad[g->output], which the caller filled. Gradients of a tensor with several
 * readers are added from the last reader to the first, those of a tied parameter in order of use. */
void graph_eval_backward(struct graph_eval *v);
double graph_eval_loss(const struct graph_eval *v);      /* sum over samples */
void graph_eval_free(struct graph_eval *v);
#endif
