/* Shared by the suites of the configuration: small texts, parsed and completed. */
#ifndef TESTS_CONF_RIG_H
#define TESTS_CONF_RIG_H
#include <check.h>
#include <string.h>
#include "conf/conf.h"
#include "sure.h"

#define OK "model { network = toy }  data { source = synthetic }  train { steps = 1 }\n"
#define FILES "model { network = toy }  data { source = idx train = a train_labels = b }  train { steps = 1 }\n"
#define GRAPH "model { graph = g }  data { source = synthetic }  train { steps = 1 }\n"

static inline struct conf *parse(const char *s)
{
    struct err e = {0};
    struct conf *c = conf_parse("f.conf", s, strlen(s), &e);
    ck_assert_msg(c != NULL, "%s", e.text);
    return c;
}

static inline struct conf *finished(const char *s)
{
    struct err e = {0};
    struct conf *c = parse(s);
    ck_assert_msg(!conf_finish(c, &e), "%s", e.text);
    return c;
}
#endif
