/* What backends in host memory have in common. Nobody else. */
#ifndef BACKEND_HOST_H
#define BACKEND_HOST_H
#include "backend/be.h"

void *host_alloc(struct be *b, size_t bytes, struct err *e);
void host_free(struct be *b, void *p, size_t bytes);
int host_copy(struct be *b, void *dst, const void *src, size_t bytes, struct err *e);
int host_done(struct be *b, struct err *e);              /* 1 */
int host_update(struct be *b, int optimizer, const struct be_weight *w, int n, const struct be_block *block,
                struct err *e);
int host_stats(const struct selection *s, const struct be_stats *k, int n, const char *mode, int n_mb,
               const void *const *extra, const int *ns);
size_t host_tensor_bytes(const struct graph *g, int tensor, int samples);

/* Kernels are kept in a list until close; each begins with its key. */
struct host_key { int group, samples; enum phase phase; bool train; };
bool host_key_is(const struct host_key *k, int group, enum phase ph, int samples, bool train);

#endif
