/* ConvNeXt (Liu and others 2022), with torchvision's names, structure and initialisation. torchvision's linear layers
 * and layer norms on channels-last data are applied to the channels of each point here. */
#include <stdio.h>
#include "model/zoo.h"

enum { STAGES = 4 };
struct convnext { int channels[STAGES], blocks[STAGES]; double drop; };

static int conv(const struct zoo_at *z, int in, const char *name, int channels, int size)
{
    int t = zoo_add(z, in, "conv", name, "channels=%d kernel=%d stride=%d", channels, size, size);
    zoo_init_layer(z, name, INIT_NORMAL, 0.02);
    return t;
}

static int pointwise(const struct zoo_at *z, int in, const char *name, int64_t features)
{
    int t = zoo_add(z, in, "linear", name, "features=%lld points=yes", (long long)features);
    zoo_init_layer(z, name, INIT_NORMAL, 0.02);
    return t;
}

/* drop: probability per sample of skipping the block. */
static int block(const struct zoo_at *z, int in, double drop)
{
    int64_t c = zoo_channels(z, in);
    int t = zoo_add(z, in, "conv", "block.0", "channels=%lld kernel=7 padding=3 groups=%lld", (long long)c,
                    (long long)c);
    zoo_init_layer(z, "block.0", INIT_NORMAL, 0.02);
    t = pointwise(z, zoo_add(z, t, "layer_norm", "block.2", "eps=1e-6"), "block.3", 4 * c);
    t = pointwise(z, zoo_add(z, t, "gelu", "block.4", " "), "block.5", c);
    t = zoo_add(z, t, "scale", "scale", "value=1e-6");
    zoo_name(z, "scale", 0, "layer_scale");
    t = zoo_add2(z, "add", "add", zoo_add(z, t, "stochastic_depth", "stochastic_depth", "p=%.17g", drop), in);
    zoo_container(z, "CNBlock", t);
    return t;
}

static int convnext_build(struct graph_builder *b, const struct zoo_kind *k, const struct conf *c, int input,
                          int64_t classes)
{
    const struct convnext *net = k->own;
    struct zoo_at z = {b, "features.0."};
    int t = zoo_add(&z, conv(&z, input, "0", net->channels[0], 4), "layer_norm", "1", "eps=1e-6"), at = 0, last = -1;
    for (int s = 0; s < STAGES; s++) last += net->blocks[s];
    for (int s = 0; s < STAGES; s++) {
        zoo_under(&z, "features.%d.", 2 * s);
        if (s) t = conv(&z, zoo_add(&z, t, "layer_norm", "0", "eps=1e-6"), "1", net->channels[s], 2);
        for (int i = 0; i < net->blocks[s]; i++) {
            zoo_under(&z, "features.%d.%d.", 2 * s + 1, i);
            t = block(&z, t, net->drop * at++ / last);
        }
    }
    zoo_under(&z, "%s", "");
    t = zoo_add(&z, t, "global_avg_pool", "avgpool", " ");
    t = zoo_add(&z, zoo_add(&z, t, "layer_norm", "classifier.0", "eps=1e-6"), "flatten", "classifier.1", " ");
    t = zoo_add(&z, t, "linear", "classifier.2", "features=%lld", (long long)classes);
    zoo_init_layer(&z, "classifier.2", INIT_NORMAL, 0.02);
    return t;
}

#define CONVNEXT(name, drop, ...) \
    {name, "ConvNeXt, torchvision's layout", 3, {3, 224, 224}, false, 1000, convnext_build, \
     &(const struct convnext){__VA_ARGS__, drop}}
const struct zoo_kind zoo_convnext[] = {
    CONVNEXT("convnext_tiny", 0.1, {96, 192, 384, 768}, {3, 3, 9, 3}),
    CONVNEXT("convnext_small", 0.4, {96, 192, 384, 768}, {3, 3, 27, 3}),
    CONVNEXT("convnext_base", 0.5, {128, 256, 512, 1024}, {3, 3, 27, 3}), {NULL},
};
