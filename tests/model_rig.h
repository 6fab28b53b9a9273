/* Shared by the suites of networks. */
#ifndef TESTS_MODEL_RIG_H
#define TESTS_MODEL_RIG_H
#include "model/op.h"
#include "sure.h"

/* built: from a whole configuration, t.conf; NULL: e. model: from sections without data and training. network: by
 * name. */
struct graph *built(const char *conf, struct err *e);
struct graph *model(const char *conf);
struct graph *network(const char *name);
struct graph *parse(const char *s);                      /* graph text, t.graph */
int tensor_find(const struct graph *g, const char *name);
int param_find(const struct graph *g, const char *name);
#endif
