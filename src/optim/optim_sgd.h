/* Stochastic gradient descent as torch.optim.SGD defines it (dampening 0), one element at a time; C and CUDA.
 *
 *   g <- clip g;  d = g + decay w;  m <- momentum m + d, from m = 0;  w <- w - lr (d + momentum m if nesterov, else m)
 *
 * Every product and sum is rounded to float in exactly this order; compile without contraction. */
#ifndef OPTIM_SGD_H
#define OPTIM_SGD_H
#include <stdbool.h>

#ifdef __CUDACC__
#define OPTIM_FN static inline __host__ __device__
#else
#define OPTIM_FN static inline
#endif

struct sgd_step { float clip, decay, momentum, lr; bool nesterov; };

/* Returns the next weight. m: the momentum buffer's element; not touched if momentum is 0. */
OPTIM_FN float sgd_element(const struct sgd_step *s, float w, float g, float *m)
{
    float d = s->clip * g;
    if (s->decay != 0) d = d + s->decay * w;
    if (s->momentum != 0) {
        *m = s->momentum * *m + d;
        d = s->nesterov ? d + s->momentum * *m : *m;
    }
    return w - s->lr * d;
}

#endif
