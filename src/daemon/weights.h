/* Weight files in and out of the stages. Thread: the executor's. */
#ifndef DAEMON_WEIGHTS_H
#define DAEMON_WEIGHTS_H
#include "exec/stage.h"
/* Every rank checks the whole file (so all find the same fault) and reads what it holds. 65 names the tensor, 66 the file. */
int weights_init(const char *path, const struct graph *g, struct stage *s, struct err *e);
/* Writes all persistent tensors, a tied one once; get delivers graph->param[i]. hash: XXH3-128 of the file, as xxh128sum prints it. */
int weights_save(const char *path, const struct graph *g, int (*get)(void *ctx, int i, void *buf, struct err *e), void *ctx, char hash[33],
                 struct err *e);
#endif
