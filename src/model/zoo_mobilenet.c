/* MobileNet v2 (Sandler and others 2018) and v3 (Howard and others 2019), with torchvision's names, structure and
 * initialisation. */
#include <stdio.h>
#include "model/zoo_mobile.h"

/* ---- version 2 --------------------------------------------------------------------------------------------------- */

static int v2_block(const struct zoo_at *z, int in, int expand, int64_t channels, int stride)
{
    int64_t from = zoo_channels(z, in), wide = from * expand;
    char name[16];
    int t = in, i = 0;
    if (expand > 1)
        t = mobile_unit(z, t, "conv.0", &(struct mobile_unit){wide, 1, 1, 1, "relu6", " "}), i++;
    snprintf(name, sizeof name, "conv.%d", i++);
    t = mobile_unit(z, t, name, &(struct mobile_unit){wide, 3, stride, wide, "relu6", " "});
    snprintf(name, sizeof name, "conv.%d", i++);
    t = zoo_add(z, t, "conv", name, "channels=%lld bias=no", (long long)channels);
    snprintf(name, sizeof name, "conv.%d", i);
    t = zoo_add(z, t, "batch_norm", name, " ");
    if (stride == 1 && from == channels) t = zoo_add2(z, "add", "add", t, in);
    zoo_container(z, "InvertedResidual", t);
    return t;
}

static int v2_build(struct graph_builder *b, const struct zoo_kind *k, const struct conf *c, int input,
                    int64_t classes)
{
    static const struct { int expand, channels, n, stride; } stage[] = {
        {1, 16, 1, 1}, {6, 24, 2, 2}, {6, 32, 3, 2}, {6, 64, 4, 2}, {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
    struct zoo_at z = {b, "features."};
    int t = mobile_unit(&z, input, "0", &(struct mobile_unit){32, 3, 2, 1, "relu6", " "}), at = 1;
    for (size_t s = 0; s < sizeof stage / sizeof *stage; s++)
        for (int i = 0; i < stage[s].n; i++) {
            zoo_under(&z, "features.%d.", at++);
            t = v2_block(&z, t, stage[s].expand, stage[s].channels, i ? 1 : stage[s].stride);
        }
    zoo_under(&z, "features.");
    t = mobile_unit(&z, t, "18", &(struct mobile_unit){1280, 1, 1, 1, "relu6", " "});
    t = zoo_pooled(&z, t);
    zoo_under(&z, "classifier.");
    t = zoo_add(&z, zoo_add(&z, t, "dropout", "0", "p=0.2"), "linear", "1", "features=%lld", (long long)classes);
    zoo_init_layer(&z, "1", INIT_NORMAL, 0.01);
    return t;
}

/* ---- version 3 --------------------------------------------------------------------------------------------------- */

static const char v3_norm[] = "eps=0.001 momentum=0.01";

struct v3_block { int kernel, wide, channels; bool squeeze, swish; int stride; };
struct v3 { int n; const struct v3_block *block; int last; };

static int v3_block(const struct zoo_at *z, int in, const struct v3_block *k)
{
    const char *act = k->swish ? "hardswish" : "relu";
    char name[16];
    int64_t from = zoo_channels(z, in);
    int t = in, i = 0;
    if (k->wide != from)
        t = mobile_unit(z, t, "block.0", &(struct mobile_unit){k->wide, 1, 1, 1, act, v3_norm}), i++;
    snprintf(name, sizeof name, "block.%d", i++);
    t = mobile_unit(z, t, name, &(struct mobile_unit){k->wide, k->kernel, k->stride, k->wide, act, v3_norm});
    if (k->squeeze) {
        snprintf(name, sizeof name, "block.%d", i++);
        t = mobile_squeeze(z, t, name, &(struct mobile_squeeze){zoo_divisible(k->wide / 4, 8), "relu", "hardsigmoid"});
    }
    snprintf(name, sizeof name, "block.%d", i);
    t = mobile_unit(z, t, name, &(struct mobile_unit){k->channels, 1, 1, 1, NULL, v3_norm});
    if (k->stride == 1 && from == k->channels) t = zoo_add2(z, "add", "add", t, in);
    zoo_container(z, "InvertedResidual", t);
    return t;
}

static int v3_build(struct graph_builder *b, const struct zoo_kind *k, const struct conf *c, int input,
                    int64_t classes)
{
    const struct v3 *net = k->own;
    struct zoo_at z = {b, "features."};
    char name[16];
    int t = mobile_unit(&z, input, "0", &(struct mobile_unit){16, 3, 2, 1, "hardswish", v3_norm});
    for (int i = 0; i < net->n; i++) {
        zoo_under(&z, "features.%d.", i + 1);
        t = v3_block(&z, t, &net->block[i]);
    }
    zoo_under(&z, "features.");
    snprintf(name, sizeof name, "%d", net->n + 1);
    t = mobile_unit(&z, t, name, &(struct mobile_unit){6 * zoo_channels(&z, t), 1, 1, 1, "hardswish", v3_norm});
    t = zoo_pooled(&z, t);
    zoo_under(&z, "classifier.");
    t = zoo_add(&z, t, "linear", "0", "features=%d", net->last);
    t = zoo_add(&z, zoo_add(&z, t, "hardswish", "1", " "), "dropout", "2", "p=0.2");
    t = zoo_add(&z, t, "linear", "3", "features=%lld", (long long)classes);
    zoo_init_layer(&z, "0", INIT_NORMAL, 0.01);
    zoo_init_layer(&z, "3", INIT_NORMAL, 0.01);
    return t;
}

static const struct v3_block v3_small[] = {
    {3, 16, 16, true, false, 2}, {3, 72, 24, false, false, 2}, {3, 88, 24, false, false, 1}, {5, 96, 40, true, true, 2},
    {5, 240, 40, true, true, 1}, {5, 240, 40, true, true, 1}, {5, 120, 48, true, true, 1}, {5, 144, 48, true, true, 1},
    {5, 288, 96, true, true, 2}, {5, 576, 96, true, true, 1}, {5, 576, 96, true, true, 1}};
static const struct v3_block v3_large[] = {
    {3, 16, 16, false, false, 1}, {3, 64, 24, false, false, 2}, {3, 72, 24, false, false, 1},
    {5, 72, 40, true, false, 2}, {5, 120, 40, true, false, 1}, {5, 120, 40, true, false, 1},
    {3, 240, 80, false, true, 2}, {3, 200, 80, false, true, 1}, {3, 184, 80, false, true, 1},
    {3, 184, 80, false, true, 1}, {3, 480, 112, true, true, 1}, {3, 672, 112, true, true, 1},
    {5, 672, 160, true, true, 2}, {5, 960, 160, true, true, 1}, {5, 960, 160, true, true, 1}};

#define MOBILE(name, build, ...) \
    {name, "inverted residuals, torchvision's layout", 3, {3, 224, 224}, false, 1000, build, __VA_ARGS__}
const struct zoo_kind zoo_mobilenet[] = {
    MOBILE("mobilenet_v2", v2_build, NULL),
    MOBILE("mobilenet_v3_small", v3_build, &(const struct v3){11, v3_small, 1024}),
    MOBILE("mobilenet_v3_large", v3_build, &(const struct v3){15, v3_large, 1280}), {NULL},
};
