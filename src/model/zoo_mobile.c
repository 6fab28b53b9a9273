/* The parts that MobileNets and EfficientNets share (zoo_mobile.h). */
#include <stdio.h>
#include "model/zoo_mobile.h"

static const char *part(char out[40], const char *at, const char *name)
{
    snprintf(out, 40, "%s.%s", at, name);
    return out;
}

int mobile_unit(const struct zoo_at *z, int in, const char *at, const struct mobile_unit *u)
{
    char name[40];
    int t = zoo_add(z, in, "conv", part(name, at, "0"),
                    "channels=%lld kernel=%lld stride=%lld padding=%lld groups=%lld bias=no", (long long)u->channels,
                    (long long)u->kernel, (long long)u->stride, (long long)u->kernel / 2, (long long)u->groups);
    t = zoo_add(z, t, "batch_norm", part(name, at, "1"), "%s", u->norm);
    return u->act ? zoo_add(z, t, u->act, part(name, at, "2"), " ") : t;
}

int mobile_squeeze(const struct zoo_at *z, int in, const char *at, const struct mobile_squeeze *s)
{
    char name[40];
    int t = zoo_add(z, in, "global_avg_pool", part(name, at, "avgpool"), " ");
    t = zoo_add(z, t, "conv", part(name, at, "fc1"), "channels=%lld", (long long)s->channels);
    zoo_init(z, name, 1, INIT_ZERO, 0);
    t = zoo_add(z, t, s->act, part(name, at, "activation"), " ");
    t = zoo_add(z, t, "conv", part(name, at, "fc2"), "channels=%lld", (long long)zoo_channels(z, in));
    zoo_init(z, name, 1, INIT_ZERO, 0);
    t = zoo_add(z, t, s->gate, part(name, at, "scale_activation"), " ");
    return zoo_add2(z, "multiply", part(name, at, "multiply"), in, t);
}
