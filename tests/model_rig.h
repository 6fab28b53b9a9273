/* What the suites of networks share. */
#ifndef TESTS_MODEL_RIG_H
#define TESTS_MODEL_RIG_H
#include "model/op.h"
#include "sure.h"

/* Of a whole configuration, t.conf; NULL with the error. Of sections without data and training; of that name. */
struct graph *built(const char *conf, struct err *e);
struct graph *model(const char *conf);
struct graph *network(const char *name);
struct graph *parse(const char *s);                      /* graph text, t.graph */
int tensor_find(const struct graph *g, const char *name);
int param_find(const struct graph *g, const char *name);
#endif
