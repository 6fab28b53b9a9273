/* EfficientNet-B0 (Tan and Le 2019), with torchvision's names, structure and initialisation. */
#include <math.h>
#include <stdio.h>
#include "model/zoo_mobile.h"

struct stage { int expand, kernel, stride, channels, n; };
static const struct stage stages[] = {
    {1, 3, 1, 16, 1}, {6, 3, 2, 24, 2}, {6, 5, 2, 40, 2}, {6, 3, 2, 80, 3}, {6, 5, 1, 112, 3}, {6, 5, 2, 192, 4},
    {6, 3, 1, 320, 1}};
enum { STAGES = sizeof stages / sizeof *stages, BLOCKS = 16 };

/* drop: probability per sample of skipping the block. */
static int block(const struct zoo_at *z, int in, const struct stage *s, int stride, double drop)
{
    int64_t from = zoo_channels(z, in), wide = from * s->expand, squeeze = from / 4 > 1 ? from / 4 : 1;
    char name[16];
    int t = in, i = 0;
    if (s->expand > 1) t = mobile_unit(z, t, "block.0", &(struct mobile_unit){wide, 1, 1, 1, "silu", " "}), i++;
    snprintf(name, sizeof name, "block.%d", i++);
    t = mobile_unit(z, t, name, &(struct mobile_unit){wide, s->kernel, stride, wide, "silu", " "});
    snprintf(name, sizeof name, "block.%d", i++);
    t = mobile_squeeze(z, t, name, &(struct mobile_squeeze){squeeze, "silu", "sigmoid"});
    snprintf(name, sizeof name, "block.%d", i);
    t = mobile_unit(z, t, name, &(struct mobile_unit){s->channels, 1, 1, 1, NULL, " "});
    if (stride == 1 && from == s->channels) {
        t = zoo_add(z, t, "stochastic_depth", "stochastic_depth", "p=%.17g", drop);
        t = zoo_add2(z, "add", "add", t, in);
    }
    zoo_container(z, "MBConv", t);
    return t;
}

static int efficientnet_build(struct graph_builder *b, const struct zoo_kind *k, const struct conf *c, int input,
                              int64_t classes)
{
    struct zoo_at z = {b, "features."};
    int t = mobile_unit(&z, input, "0", &(struct mobile_unit){32, 3, 2, 1, "silu", " "}), at = 0;
    for (int s = 0; s < STAGES; s++)
        for (int i = 0; i < stages[s].n; i++) {
            zoo_under(&z, "features.%d.%d.", s + 1, i);
            t = block(&z, t, &stages[s], i ? 1 : stages[s].stride, 0.2 * at++ / BLOCKS);
        }
    zoo_under(&z, "features.");
    t = mobile_unit(&z, t, "8", &(struct mobile_unit){1280, 1, 1, 1, "silu", " "});
    t = zoo_pooled(&z, t);
    zoo_under(&z, "classifier.");
    t = zoo_add(&z, zoo_add(&z, t, "dropout", "0", "p=0.2"), "linear", "1", "features=%lld", (long long)classes);
    zoo_init_layer(&z, "1", INIT_UNIFORM, 1 / sqrt((double)classes));
    return t;
}

const struct zoo_kind zoo_efficientnet[] = {
    {"efficientnet_b0", "EfficientNet, torchvision's layout", 3, {3, 224, 224}, false, 1000, efficientnet_build},
    {NULL},
};
