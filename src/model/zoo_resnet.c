/* ResNets with torchvision's names and structure (He et al. 2015; version 1.5: a bottleneck's stride is on its 3x3
 * convolution). */
#include <stdio.h>
#include "model/zoo.h"

struct res { struct graph_builder *b; char prefix[24]; bool zero; };

static int conv(struct res *r, const char *name, int in, int64_t channels, int kernel, int64_t stride)
{
    char full[64], attrs[96];
    snprintf(full, sizeof full, "%s%s", r->prefix, name);
    snprintf(attrs, sizeof attrs, "channels=%lld kernel=%d stride=%lld padding=%d bias=no", (long long)channels, kernel,
             (long long)stride, kernel / 2);
    return graph_add1(r->b, "conv", full, "Conv2d", attrs, in);
}

static int unit(struct res *r, const char *op, const char *name, const char *layer, int in)
{
    char full[64];
    snprintf(full, sizeof full, "%s%s", r->prefix, name);
    return graph_add1(r->b, op, full, layer, "", in);
}

static void zero_init(struct res *r, const char *name)
{
    char full[64];
    if (!r->zero) return;
    snprintf(full, sizeof full, "%s%s", r->prefix, name);
    graph_init(r->b, full, 0, INIT_ZERO, 0);
}

static int join(struct res *r, int main_path, int other, const char *relu)
{
    char full[64];
    snprintf(full, sizeof full, "%sadd", r->prefix);
    return unit(r, "relu", relu, "ReLU", graph_add2(r->b, "add", full, main_path, other));
}

static int shortcut(struct res *r, int x, int64_t channels, int64_t stride)
{
    const struct shape *s = graph_shape(r->b, x);
    if (!s || (s->d[0] == channels && stride == 1)) return x;
    return unit(r, "batch_norm", "downsample.1", "BatchNorm2d", conv(r, "downsample.0", x, channels, 1, stride));
}

static int basic(struct res *r, int x, int64_t width, int64_t stride)
{
    int t = unit(r, "batch_norm", "bn1", "BatchNorm2d", conv(r, "conv1", x, width, 3, stride));
    t = unit(r, "relu", "relu", "ReLU", t);
    t = unit(r, "batch_norm", "bn2", "BatchNorm2d", conv(r, "conv2", t, width, 3, 1));
    zero_init(r, "bn2");
    return join(r, t, shortcut(r, x, width, stride), "relu.2");
}

static int bottleneck(struct res *r, int x, int64_t width, int64_t stride)
{
    int t = unit(r, "batch_norm", "bn1", "BatchNorm2d", conv(r, "conv1", x, width, 1, 1));
    t = unit(r, "relu", "relu", "ReLU", t);
    t = unit(r, "batch_norm", "bn2", "BatchNorm2d", conv(r, "conv2", t, width, 3, stride));
    t = unit(r, "relu", "relu.2", "ReLU", t);
    t = unit(r, "batch_norm", "bn3", "BatchNorm2d", conv(r, "conv3", t, 4 * width, 1, 1));
    zero_init(r, "bn3");
    return join(r, t, shortcut(r, x, 4 * width, stride), "relu.3");
}

struct resnet { int depth[4]; bool bottleneck; };        /* blocks per layer; their kind */

static int resnet_build(struct graph_builder *b, const struct zoo_kind *k, const struct conf *c, int input,
                        int64_t classes)
{
    const struct resnet *net = k->own;
    struct res r = {.b = b, .zero = c->model.zero_init_residual};
    char attrs[64], name[24];
    bool small = c->model.small_stem;
    int t = conv(&r, "conv1", input, 64, small ? 3 : 7, small ? 1 : 2);
    t = unit(&r, "relu", "relu", "ReLU", unit(&r, "batch_norm", "bn1", "BatchNorm2d", t));
    if (!small) t = graph_add1(b, "max_pool", "maxpool", "MaxPool2d", "kernel=3 stride=2 padding=1", t);
    for (int layer = 0; layer < 4; layer++)
        for (int i = 0; i < net->depth[layer]; i++) {
            int64_t width = 64 << layer, stride = layer && !i ? 2 : 1;
            snprintf(r.prefix, sizeof r.prefix, "layer%d.%d.", layer + 1, i);
            t = net->bottleneck ? bottleneck(&r, t, width, stride) : basic(&r, t, width, stride);
            snprintf(name, sizeof name, "layer%d.%d", layer + 1, i);
            graph_container(b, name, net->bottleneck ? "Bottleneck" : "BasicBlock", t);
        }
    t = graph_add1(b, "global_avg_pool", "avgpool", "AdaptiveAvgPool2d", "", t);
    t = graph_add1(b, "flatten", "flatten", NULL, "", t);
    snprintf(attrs, sizeof attrs, "features=%lld", (long long)classes);
    return graph_add1(b, "linear", "fc", "Linear", attrs, t);
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
