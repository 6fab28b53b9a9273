/* Shared by the backends in host memory only. */
#ifndef BACKEND_HOST_H
#define BACKEND_HOST_H
#include "backend/be.h"
#include "base/mem.h"

void *host_alloc(struct be *b, size_t bytes, struct err *e);
void host_free(struct be *b, void *p, size_t bytes);
int host_copy(struct be *b, void *dst, const void *src, size_t bytes, struct err *e);
int host_done(struct be *b, struct err *e);              /* 1 */
int host_update(struct be *b, int optimizer, const struct be_weight *w, int n, const struct be_block *block,
                struct err *e);
int host_stats(const struct selection *sel, const struct be_stats *s);
/* Between the graph's type and the stored one, in the same order. import: 65 if a value is too large for the type. */
int host_param_import(const struct selection *s, int param, void *storage, const void *values, struct err *e);
void host_param_export(const struct selection *s, int param, void *values, const void *storage);
size_t host_tensor_bytes(const struct graph *g, int tensor, int samples);
/* An operator's reference kernel of a phase; NULL: there is none. */
typedef void host_loop(const struct op_call *c);
host_loop *host_pass(const struct op_kind *op, enum phase ph);

/* Hands out pieces of scratch memory; with at == NULL it only counts. */
struct carve { char *at; size_t used; };
void *carve(struct carve *w, size_t bytes);

/* Backends with plain tensors: their struct be begins with this. */
struct host { const struct selection *s; const struct graph *g; VEC(struct be_kernel *) kernel; };
void host_describe(struct device *d, const char *name, const char *library);
void host_open(struct host *h, const struct selection *s);
int host_tensor_copy(struct be *b, int tensor, int n, void *dst, const void *src, struct err *e);

#endif
