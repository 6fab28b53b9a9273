/* Geometry and loops of the operator upsample, in C and CUDA, for the operator, backends and kernels/pool.cu. Pure. */
#ifndef OPS_UPSAMPLE_H
#define OPS_UPSAMPLE_H
#include <stdbool.h>
#include <stdint.h>

#ifdef __CUDACC__
#define UPSAMPLE_FN static inline __host__ __device__
#else
#define UPSAMPLE_FN static inline
#endif

/* `lanes` channels are adjacent in memory, in n planes of points; missing dimensions come first and have size 1.
 * linear: interpolates between two neighbours in each dimension; otherwise takes the one below. corners: the outermost
 * points of input and output coincide; otherwise their outer edges do. */
struct upsample { int64_t planes, in[3], out[3]; int lanes; bool linear, corners; };
/* An output value in one dimension: (1 - part) x[at] + part x[next]. */
struct upsample_tap { int64_t at, next; float part; };

/* PyTorch's: floor(o in / out); max(0, (o + 1/2) in / out - 1/2); o (in - 1) / (out - 1). */
UPSAMPLE_FN struct upsample_tap upsample_tap(const struct upsample *u, int dim, int64_t o)
{
    const int64_t in = u->in[dim], out = u->out[dim];
    struct upsample_tap t = {o * in / out, 0, 0};
    if (u->linear) {
        double x = u->corners ? (out > 1 ? (double)(o * (in - 1)) / (double)(out - 1) : 0)
                              : ((double)o + 0.5) * (double)in / (double)out - 0.5;
        if (x < 0) x = 0;
        t.at = (int64_t)x;
        if (t.at > in - 1) t.at = in - 1;
        t.part = t.at + 1 < in ? (float)(x - (double)t.at) : 0;
    }
    t.next = t.part > 0 ? t.at + 1 : t.at;
    return t;
}

/* The weight of input x in output o, in one dimension. */
UPSAMPLE_FN float upsample_share(const struct upsample *u, int dim, int64_t o, int64_t x)
{
    const struct upsample_tap t = upsample_tap(u, dim, o);
    return (t.at == x ? 1 - t.part : 0) + (t.next == x && t.part > 0 ? t.part : 0);
}

/* Only outputs from *from to *to can read input x in one dimension; not all of these must read it. */
UPSAMPLE_FN void upsample_readers(const struct upsample *u, int dim, int64_t x, int64_t *from, int64_t *to)
{
    const int64_t in = u->in[dim], out = u->out[dim];
    const double step = u->linear && u->corners ? (in > 1 ? (double)(out - 1) / (double)(in - 1) : (double)out)
                                                : (double)out / (double)in;
    const double first = ((double)x - 1) * step - 1, last = ((double)x + 2) * step + 1;
    *from = first < 0 ? 0 : (int64_t)first;
    *to = last > (double)(out - 1) ? out - 1 : (int64_t)last;
}

#ifndef __cplusplus
struct graph; struct node;
/* For n samples of a node, with `lanes` adjacent channels. */
struct upsample upsample_of(const struct graph *g, const struct node *node, int n, int lanes);
/* y = x with more (or fewer) points; gx = or += the gradient of x, in the order of outputs. */
void upsample_forward(const struct upsample *u, const float *x, float *y);
void upsample_backward(const struct upsample *u, const float *gy, float *gx, bool acc);
#endif
#endif
