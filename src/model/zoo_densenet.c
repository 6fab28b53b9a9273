/* DenseNet (Huang and others 2016), with torchvision's names, structure and initialisation. Each layer's features are
 * appended to those of all earlier layers. */
#include <math.h>
#include <stdio.h>
#include "model/zoo.h"

struct densenet { int layers[4], growth, first; };

/* Kaiming initialisation by fan-in. */
static int conv(const struct zoo_at *z, int in, const char *name, int64_t channels, int kernel, int stride)
{
    double fan_in = (double)zoo_channels(z, in) * kernel * kernel;
    int t = zoo_add(z, in, "conv", name, "channels=%lld kernel=%d stride=%d padding=%d bias=no", (long long)channels,
                    kernel, stride, kernel / 2);
    zoo_init(z, name, 0, INIT_NORMAL, sqrt(2 / (fan_in > 0 ? fan_in : 1)));
    return t;
}

static int norm_relu(const struct zoo_at *z, int in, const char *norm, const char *relu)
{
    return zoo_add(z, zoo_add(z, in, "batch_norm", norm, " "), "relu", relu, " ");
}

static int dense_layer(const struct zoo_at *z, int in, int growth)
{
    int t = conv(z, norm_relu(z, in, "norm1", "relu1"), "conv1", 4 * growth, 1, 1);
    t = conv(z, norm_relu(z, t, "norm2", "relu2"), "conv2", growth, 3, 1);
    zoo_container(z, "_DenseLayer", t);
    return zoo_add2(z, "concat", "concat", in, t);
}

static int densenet_build(struct graph_builder *b, const struct zoo_kind *k, const struct conf *c, int input,
                          int64_t classes)
{
    const struct densenet *net = k->own;
    struct zoo_at z = {b, "features."};
    int t = conv(&z, input, "conv0", net->first, 7, 2);
    t = zoo_add(&z, norm_relu(&z, t, "norm0", "relu0"), "max_pool", "pool0", "kernel=3 stride=2 padding=1");
    for (int block = 0; block < 4; block++) {
        for (int i = 0; i < net->layers[block]; i++) {
            zoo_under(&z, "features.denseblock%d.denselayer%d.", block + 1, i + 1);
            t = dense_layer(&z, t, net->growth);
        }
        if (block == 3) break;
        zoo_under(&z, "features.transition%d.", block + 1);
        t = conv(&z, norm_relu(&z, t, "norm", "relu"), "conv", zoo_channels(&z, t) / 2, 1, 1);
        t = zoo_add(&z, t, "avg_pool", "pool", "kernel=2");
    }
    zoo_under(&z, "features.");
    t = zoo_add(&z, t, "batch_norm", "norm5", " ");
    zoo_under(&z, "%s", "");
    t = zoo_pooled(&z, zoo_add(&z, t, "relu", "relu", " "));
    t = zoo_add(&z, t, "linear", "classifier", "features=%lld", (long long)classes);
    zoo_init(&z, "classifier", 1, INIT_ZERO, 0);
    return t;
}

#define DENSENET(name, growth, first, ...) \
    {name, "densely connected network, torchvision's layout", 3, {3, 224, 224}, false, 1000, densenet_build, \
     &(const struct densenet){{__VA_ARGS__}, growth, first}}
const struct zoo_kind zoo_densenet[] = {
    DENSENET("densenet121", 32, 64, 6, 12, 24, 16), DENSENET("densenet169", 32, 64, 6, 12, 32, 32),
    DENSENET("densenet201", 32, 64, 6, 12, 48, 32), DENSENET("densenet161", 48, 96, 6, 12, 36, 24), {NULL},
};
