/* Products with frozen weights in the type that they are stored in: a panel of them at a time is widened into the
 * workspace, where it stays in the cache for all rows. The sums are those of the widened weights, bit by bit. */
#ifndef BACKEND_CPU_CPU_STORED_H
#define BACKEND_CPU_CPU_STORED_H
#include "backend/cpu/cpu_int.h"

/* A parameter of two dimensions, [out][in], row-major. */
struct stored_weights { const struct format *f; const struct shape *shape; const void *at; };
struct stored_weights stored_param(const struct be *b, int param, const void *at);
size_t stored_work(int64_t out, int64_t in);               /* bytes of a panel */
/* y[rows][out] = or += (acc) x[rows][in] w^T; panel: stored_work bytes. */
int stored_forward(struct be *b, const struct stored_weights *w, int64_t rows, const float *x, bool acc, float *y,
                   float *panel, struct err *e);
/* gx[rows][in] = or += (acc) gy[rows][out] w */
int stored_back(struct be *b, const struct stored_weights *w, int64_t rows, const float *gy, bool acc, float *gx,
                float *panel, struct err *e);

#endif
