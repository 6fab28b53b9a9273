/* Weight files in and out of the stages. Thread: the executor's. */
#ifndef DAEMON_RUN_WEIGHTS_H
#define DAEMON_RUN_WEIGHTS_H
#include "base/out.h"
#include "exec/exec.h"
/* Every rank checks the whole file (so all find the same fault) and reads what it holds. 65 names the tensor, 66 the
 * file. s NULL: only checks. */
int weights_init(const char *path, const struct graph *g, struct exec *s, struct err *e);
/* What a file holds: all persistent tensors (a tied one once), or the gradients of those that are trained. */
enum weights_what { WEIGHTS_ALL, WEIGHTS_GRADIENTS };
struct weights_file { const struct out_place *at; enum weights_what what; const atomic_int *stop; };
/* get delivers it for row i of the registry. hash: XXH3-128 of the file, as xxh128sum prints it. 73, 74, 75 when the word
 * `stop` is set: the file is whole or it is not there. */
int weights_save(const struct weights_file *f, const struct placement *pl,
                 int (*get)(void *ctx, int i, void *buf, struct err *e), void *ctx, char hash[33], struct err *e);
/* One of them on the rank that owns it. */
int weights_get(struct exec *s, enum weights_what what, int row, void *plain, struct err *e);
#endif
