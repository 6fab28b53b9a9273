/* A network under test: every tensor and gradient gets its own random values, so that each group of a backend, here
 * onednn, is tested alone against the reference operators. */
#ifndef TESTS_NET_RIG_H
#define TESTS_NET_RIG_H
#include "backend/be.h"

enum { MAX_T = 32, CANARY = 4096 };
struct net {
    struct graph *g;
    struct selection *s;
    struct device dev;
    const struct be_ops *ops;
    struct be *b;
    int n;
    bool train;
    void *plain[MAX_T], *store[MAX_T];                   /* values of each tensor: row-major; in the backend's layout */
    float *gplain[MAX_T], *gstore[MAX_T];                /* gradients */
    void *param[MAX_T], *pstore[MAX_T];
    float *pgrad[MAX_T], *pgstore[MAX_T];
    void *saved[MAX_T];                                  /* of each node, for the reference */
    void *bextra, *work, *packed;
    struct be_block *block;
    int64_t sample[300];
};

void net_open(struct net *t, struct graph *g, int n);    /* n samples; takes the graph */
void net_open_half(struct net *t, struct graph *g, int n);           /* in bf16, with values that it can hold */
void net_open_threads(struct net *t, struct graph *g, int n);       /* three */
void net_open_half_threads(struct net *t, struct graph *g, int n);
/* In bf16, with frozen matrices of weights, stored as F32, BF16, F16 or I8. */
void net_open_frozen(struct net *t, struct graph *g, int n, enum dtype stored, int threads);
void net_close(struct net *t);                           /* also checks all canaries */
void ok(int bad, const struct err *e);
/* Backend memory followed by a canary of CANARY bytes. */
void *memory(struct net *t, size_t bytes);
void canary_check(const void *p, size_t bytes);
size_t tensor_size(const struct net *t, int i);          /* bytes, and values, of all samples */
size_t tensor_floats(const struct net *t, int i);
size_t param_floats(const struct net *t, int i);
/* The reference: a node's call, and the group's nodes one by one. */
struct op_call ref_call(struct net *t, int node);
void ref_forward(struct net *t, const struct group *k);
void ref_backward(struct net *t, const struct group *k);
/* The backend: allocates or frees saved, work and packed memory of a group; runs one pass. acc: adds to gradients. */
void group_memory(struct net *t, const struct group *k, bool get);
void be_phase(struct net *t, int group, enum phase ph, bool acc);
/* Checks that x equals y within rounding; each value is a sum of `terms` terms. */
void close_enough(const char *what, const struct net *t, const float *x, const float *y, size_t n, double terms);
/* Compares the group's passes, overwriting and adding, with the reference. */
void group_compare(struct net *t, int group);
#endif
