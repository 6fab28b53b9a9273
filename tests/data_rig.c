#include <string.h>
#include "data_rig.h"

struct conf *conf_make(const char *data)
{
    struct err e = {0};
    struct text t = {0};
    text_add(&t, "run { seed = 7 }\nmodel { network = \"toy\" }\ndata { %s }\n", data);
    struct conf *c = conf_parse("t.conf", t.s, t.n, &e);
    ck_assert_msg(c != NULL, "%s", e.text);
    text_free(&t);
    return c;
}

struct ds *open_part(const char *data, enum ds_part part, struct ds_pair want, struct err *e)
{
    struct conf *c = conf_make(data);
    struct ds *d = (void *)1;
    const struct ds_want both = {.n = 2, .field = {
                                 {"x", ROLE_SAMPLE, want.input_type, want.input, want.range},
                                 {"t", ROLE_TARGET, want.target_type, want.target, want.classes}}};
    int bad = ds_kind_of(c)->open(c, part, &both, &d, e);
    ck_assert_int_eq(bad, e->code ? -1 : 0);
    ck_assert(!bad || !d);
    conf_free(c);
    return d;
}

struct ds *open_good(const char *data, struct ds_pair want)
{
    struct err e = {0};
    struct ds *d = open_part(data, DS_TRAIN, want, &e);
    ck_assert_msg(!e.code, "%s", e.text);
    ck_assert_ptr_nonnull(d);
    return d;
}

void open_bad(const char *data, struct ds_pair want, int code, const char *part)
{
    struct err e = {0};
    ck_assert_ptr_null(open_part(data, DS_TRAIN, want, &e));
    expect(&e, code, part);
}

void get(struct ds *d, uint64_t i, float *x, void *y)
{
    struct err e = {0};
    ck_assert_msg(!x || !d->kind->read(d, i, 0, PAIR_INPUT, x, &e), "%s", e.text);
    ck_assert_msg(!y || !d->kind->read(d, i, 0, PAIR_TARGET, y, &e), "%s", e.text);
}
