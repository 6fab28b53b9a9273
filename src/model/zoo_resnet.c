/* ResNets with torchvision's names and structure (He et al. 2015; version 1.5: a bottleneck's stride is on its 3x3
 * convolution). */
#include "model/zoo.h"

/* Convolution and batch norm. */
struct conv_norm { const char *conv, *norm; int64_t channels; int kernel, stride; };
static int conv_norm(const struct zoo_at *z, int in, const struct conv_norm *u)
{
    int t = zoo_add(z, in, "conv", u->conv, "channels=%lld kernel=%d stride=%d padding=%d bias=no",
                    (long long)u->channels, u->kernel, u->stride, u->kernel / 2);
    return zoo_add(z, t, "batch_norm", u->norm, " ");
}

static int shortcut(const struct zoo_at *z, int in, int64_t channels, int stride)
{
    if (zoo_channels(z, in) == channels && stride == 1) return in;
    return conv_norm(z, in, &(struct conv_norm){"downsample.0", "downsample.1", channels, 1, stride});
}

static int basic(const struct zoo_at *z, int in, int64_t width, int stride, bool zero)
{
    int t = conv_norm(z, in, &(struct conv_norm){"conv1", "bn1", width, 3, stride});
    t = zoo_add(z, t, "relu", "relu", " ");
    t = conv_norm(z, t, &(struct conv_norm){"conv2", "bn2", width, 3, 1});
    if (zero) zoo_init(z, "bn2", 0, INIT_ZERO, 0);
    return zoo_add(z, zoo_add2(z, "add", "add", t, shortcut(z, in, width, stride)), "relu", "relu.2", " ");
}

static int bottleneck(const struct zoo_at *z, int in, int64_t width, int stride, bool zero)
{
    int t = conv_norm(z, in, &(struct conv_norm){"conv1", "bn1", width, 1, 1});
    t = zoo_add(z, t, "relu", "relu", " ");
    t = conv_norm(z, t, &(struct conv_norm){"conv2", "bn2", width, 3, stride});
    t = zoo_add(z, t, "relu", "relu.2", " ");
    t = conv_norm(z, t, &(struct conv_norm){"conv3", "bn3", 4 * width, 1, 1});
    if (zero) zoo_init(z, "bn3", 0, INIT_ZERO, 0);
    return zoo_add(z, zoo_add2(z, "add", "add", t, shortcut(z, in, 4 * width, stride)), "relu", "relu.3", " ");
}

struct resnet { int depth[4]; bool bottleneck; };        /* blocks of each layer, and of which kind */

static int resnet_build(struct graph_builder *b, const struct zoo_kind *k, const struct conf *c, int input,
                        int64_t classes)
{
    const struct resnet *net = k->own;
    const bool small = c->model.small_stem;
    struct zoo_at z = {b, ""};
    int t = conv_norm(&z, input, &(struct conv_norm){"conv1", "bn1", 64, small ? 3 : 7, small ? 1 : 2});
    t = zoo_add(&z, t, "relu", "relu", " ");
    if (!small) t = zoo_add(&z, t, "max_pool", "maxpool", "kernel=3 stride=2 padding=1");
    for (int layer = 0; layer < 4; layer++)
        for (int i = 0; i < net->depth[layer]; i++) {
            zoo_under(&z, "layer%d.%d.", layer + 1, i);
            t = (net->bottleneck ? bottleneck : basic)(&z, t, 64 << layer, layer && !i ? 2 : 1,
                                                       c->model.zero_init_residual);
            zoo_container(&z, net->bottleneck ? "Bottleneck" : "BasicBlock", t);
        }
    return zoo_add(&z, zoo_pooled(&z, t), "linear", "fc", "features=%lld", (long long)classes);
}

#define RESNET(name, deep, ...) \
    { \
        name, "residual network, torchvision's layout", 3, {3, 224, 224}, false, 1000, resnet_build, \
            &(const struct resnet){{__VA_ARGS__}, deep} \
    }
const struct zoo_kind zoo_resnet[] = {
    RESNET("resnet18", false, 2, 2, 2, 2), RESNET("resnet34", false, 3, 4, 6, 3), RESNET("resnet50", true, 3, 4, 6, 3),
    RESNET("resnet101", true, 3, 4, 23, 3), RESNET("resnet152", true, 3, 8, 36, 3), {NULL},
};
