/* One group of a network under test: its values on the host as the reference kernels see them, the backend's memory of
 * them, and the worst errors so far. For the program operators alone; one thread. Errors of the backend other than a
 * missing kernel end the program with their text and code. */
#ifndef TESTS_GPU_GROUP_H
#define TESTS_GPU_GROUP_H
#include "backend/be.h"

struct piece { char *at; size_t bytes; };
struct net {
    const struct be_ops *ops;
    struct device dev;
    struct graph *g;
    struct selection *s;
    struct be *b;
    int n;                                               /* samples */
    struct be_block block, *block_at;
    int64_t sample[64], *sample_at;
    VEC(struct piece) piece;                             /* the backend's memory of the group under test */
    /* By tensor, parameter and node, row-major: what the reference sees. */
    void **value, **param, **saved;
    float **grad, **pgrad;
    /* The group and the backend's memory of it. */
    const struct group *k; int group; bool train;
    void *in[MAX_IN], *gin[MAX_IN], *outs[MAX_OUT], *gouts[MAX_OUT];
    void *p[MAX_PARAM], *pg[MAX_PARAM], *kept, *work, *packed;
    char op[40], text[200];
};

/* ---- results: the worst error by operator, phase and precision ------------------------------- */
extern double limit_given;                               /* instead of the precision's own, if above 0 */
void note_error(struct net *t, const char *phase, double error);
void note_same(struct net *t, const char *phase, bool same);             /* error 0 or 1, limit 0 */
bool results_print(void);                                /* true if one is beyond its limit */
void die(const char *what, const struct err *e);

/* ---- sizes: elements of a tensor of n samples, its bytes as stored, elements of a parameter ---- */
size_t count(const struct net *t, int tensor);
size_t bytes(const struct net *t, int tensor);
size_t pcount(const struct net *t, int param);

/* ---- the backend's memory: with a canary behind each piece, which memory_free checks --------- */
void *memory(struct net *t, size_t n);
void memory_free(struct net *t);
void wait_done(struct net *t);
void move(struct net *t, void *to, const void *from, size_t n);           /* any direction, done on return */
/* Row-major values to the backend's layout and type; what the type rounds is rounded in `plain` too. And back; free()
 * it. */
void put(struct net *t, int tensor, void *to, void *plain);
float *get(struct net *t, int tensor, const void *from);
/* Of x from want [+ plus], in L2 norm, relative; infinite where x is not finite. */
double distance(const float *x, const float *want, const float *plus, size_t n);

/* ---- running --------------------------------------------------------------------------------- */
/* random values, gradients and parameters, alike on both sides */
void group_open(struct net *t, int group);
void group_close(struct net *t);
void value_make(struct net *t, int tensor);
void ref_forward(struct net *t);
void ref_backward(struct net *t);
/* One kernel of the backend: adding to gradients, writing a gradient over the output's, recorded and replayed. 0, or
 * -1: it has none, noted. */
enum { ADD = 1, OVER = 2, RECORD = 4 };
int be_phase(struct net *t, enum phase ph, int how);
#endif
