/* Code shared by builders of networks. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "model/graph_int.h"
#include "model/zoo.h"

/* torchsummary's name of a layer: the class in torch.nn. */
static const char *layer_of(const char *op)
{
    static const struct { const char *op, *layer; } of[] = {
        {"conv", "Conv2d"}, {"batch_norm", "BatchNorm2d"}, {"linear", "Linear"}, {"relu", "ReLU"}, {"relu6", "ReLU6"},
        {"silu", "SiLU"}, {"gelu", "GELU"}, {"hardswish", "Hardswish"}, {"hardsigmoid", "Hardsigmoid"},
        {"sigmoid", "Sigmoid"}, {"dropout", "Dropout"}, {"stochastic_depth", "StochasticDepth"},
        {"max_pool", "MaxPool2d"}, {"avg_pool", "AvgPool2d"}, {"global_avg_pool", "AdaptiveAvgPool2d"},
        {"adaptive_avg_pool", "AdaptiveAvgPool2d"}, {"layer_norm", "LayerNorm"},
        {"conv_transpose", "ConvTranspose2d"}, {"upsample", "Upsample"}, {"group_norm", "GroupNorm"},
        {"instance_norm", "InstanceNorm2d"}, {"elu", "ELU"}, {"leaky_relu", "LeakyReLU"}, {"prelu", "PReLU"},
        {"softmax", "Softmax"}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) if (!strcmp(of[i].op, op)) return of[i].layer;
    return NULL;
}

/* Replaces Conv2d by Conv3d if the input has three spatial dimensions, and so on. */
static const char *layer_in(const char *layer, const struct shape *in, char buf[32])
{
    const size_t n = layer ? strlen(layer) : 0;
    if (n < 2 || n >= 32 || strcmp(layer + n - 2, "2d") || !in || in->n < 2 || in->n > 4) return layer;
    snprintf(buf, 32, "%.*s%dd", (int)n - 2, layer, in->n - 1);
    return buf;
}

void zoo_under(struct zoo_at *z, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    vsnprintf(z->prefix, sizeof z->prefix, format, ap);
    va_end(ap);
}

static const char *full(const struct zoo_at *z, const char *name, char out[256])
{
    snprintf(out, 256, "%s%s", z->prefix, name);
    return out;
}

int zoo_add(const struct zoo_at *z, int in, const char *op, const char *name, const char *attrs, ...)
{
    char text[160], buf[256], layer[32];
    va_list ap;
    va_start(ap, attrs);
    vsnprintf(text, sizeof text, attrs, ap);
    va_end(ap);
    return graph_add1(z->b, op, full(z, name, buf), layer_in(layer_of(op), graph_shape(z->b, in), layer), text, in);
}

int zoo_add2(const struct zoo_at *z, const char *op, const char *name, int x, int y)
{
    char buf[256];
    return graph_add2(z->b, op, full(z, name, buf), x, y);
}

void zoo_init(const struct zoo_at *z, const char *name, int slot, enum param_init init, double scale)
{
    char buf[256];
    graph_init(z->b, full(z, name, buf), slot, init, scale);
}

void zoo_init_layer(const struct zoo_at *z, const char *name, enum param_init init, double scale)
{
    zoo_init(z, name, 0, init, scale);
    zoo_init(z, name, 1, INIT_ZERO, 0);
}

void zoo_init_convs(struct graph_builder *b)
{
    for (int i = 0; i < b->node.n && !b->e.code; i++) {
        const struct node *n = &b->node.v[i];
        if (strcmp(n->op->name, "conv")) continue;
        struct param *p = &b->param.v[n->param[0]];
        p->init = INIT_UNIFORM;
        p->scale = 1 / sqrt((double)(shape_count(&p->shape) / p->shape.d[0]));
    }
}

void zoo_name(const struct zoo_at *z, const char *name, int slot, const char *param)
{
    char buf[256], to[256];
    graph_name(z->b, full(z, name, buf), slot, full(z, param, to));
}

int zoo_pooled(struct zoo_at *z, int in)
{
    zoo_under(z, "%s", "");
    return zoo_add(z, zoo_add(z, in, "global_avg_pool", "avgpool", " "), "flatten", "flatten", " ");
}

void zoo_container(const struct zoo_at *z, const char *layer, int out)
{
    char buf[256];
    size_t n = strlen(full(z, "", buf));
    if (n && buf[n - 1] == '.') buf[n - 1] = 0;
    graph_container(z->b, buf, layer, out);
}

int zoo_halves(struct graph_builder *b, int input, int times)
{
    char s[96];
    const struct shape *in = graph_shape(b, input);
    for (int i = 1; in && i < in->n; i++)
        if (in->d[i] % (1 << times)) {
            char what[200];
            snprintf(what, sizeof what, "%lld points along axis %d of the input %s cannot be halved %d times: use a "
                                        "multiple of %d", (long long)in->d[i], i, shape_text(in, s), times, 1 << times);
            return graph_fail(b, "%s", what);
        }
    return in ? 0 : -1;
}

int64_t zoo_channels(const struct zoo_at *z, int tensor)
{
    const struct shape *s = graph_shape(z->b, tensor);
    return s && s->n ? s->d[0] : 0;
}

int64_t zoo_divisible(double v, int64_t by)
{
    int64_t near = (int64_t)(v + (double)by / 2) / by * by;
    if (near < by) near = by;
    return (double)near < 0.9 * v ? near + by : near;
}
