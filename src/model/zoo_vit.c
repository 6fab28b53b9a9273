/* Vision transformers (Dosovitskiy and others 2020), with torchvision's names, structure and initialisation. Tokens are
 * the points of a sequence with channels first, so torch's permutations are not needed. The projections before and
 * after an attention are linear layers; their weights have the names of torch.nn.MultiheadAttention. */
#include <math.h>
#include <stdio.h>
#include "model/zoo.h"

struct vit { int patch, layers, heads, width, inner; };

static int linear(const struct zoo_at *z, int in, const char *name, int64_t features, double scale)
{
    int t = zoo_add(z, in, "linear", name, "features=%lld points=yes", (long long)features);
    zoo_init_layer(z, name, INIT_UNIFORM, scale);
    return t;
}

/* torch.nn.init.xavier_uniform_. */
static double xavier(int64_t in, int64_t out) { return sqrt(6 / (double)(in + out)); }

static int attention(const struct zoo_at *z, int in, const struct vit *net)
{
    int t = linear(z, in, "self_attention.in_proj", 3 * net->width, xavier(net->width, 3 * net->width));
    zoo_name(z, "self_attention.in_proj", 0, "self_attention.in_proj_weight");
    zoo_name(z, "self_attention.in_proj", 1, "self_attention.in_proj_bias");
    t = zoo_add(z, t, "attention", "self_attention", "heads=%d", net->heads);
    return linear(z, t, "self_attention.out_proj", net->width, 1 / sqrt(net->width));
}

static int perceptron(const struct zoo_at *z, int in, const struct vit *net)
{
    double scale = xavier(net->width, net->inner);
    int t = zoo_add(z, linear(z, in, "mlp.0", net->inner, scale), "gelu", "mlp.1", " ");
    t = linear(z, t, "mlp.3", net->width, scale);
    zoo_init(z, "mlp.0", 1, INIT_NORMAL, 1e-6);
    zoo_init(z, "mlp.3", 1, INIT_NORMAL, 1e-6);
    return t;
}

static int layer(const struct zoo_at *z, int in, const struct vit *net)
{
    int t = attention(z, zoo_add(z, in, "layer_norm", "ln_1", "eps=1e-6"), net);
    t = zoo_add2(z, "add", "add.1", t, in);
    t = zoo_add2(z, "add", "add.2", t, perceptron(z, zoo_add(z, t, "layer_norm", "ln_2", "eps=1e-6"), net));
    zoo_container(z, "EncoderBlock", t);
    return t;
}

/* Patches as a sequence, after the class token. */
static int tokens(const struct zoo_at *z, int input, const struct vit *net)
{
    const double inputs = (double)zoo_channels(z, input) * net->patch * net->patch;
    int t = zoo_add(z, input, "conv", "conv_proj", "channels=%d kernel=%d stride=%d", net->width, net->patch,
                    net->patch);
    zoo_init_layer(z, "conv_proj", INIT_NORMAL, 1 / sqrt(inputs));
    t = zoo_add(z, zoo_add(z, t, "flatten", "tokens", "first=1"), "prepend", "class", " ");
    zoo_name(z, "class", 0, "class_token");
    t = zoo_add(z, t, "positions", "encoder.positions", " ");
    zoo_name(z, "encoder.positions", 0, "encoder.pos_embedding");
    return t;
}

static int vit_build(struct graph_builder *b, const struct zoo_kind *k, const struct conf *c, int input,
                     int64_t classes)
{
    const struct vit *net = k->own;
    struct zoo_at z = {b, ""};
    int t = tokens(&z, input, net);
    for (int i = 0; i < net->layers; i++) {
        zoo_under(&z, "encoder.layers.encoder_layer_%d.", i);
        t = layer(&z, t, net);
    }
    zoo_under(&z, "%s", "");
    t = zoo_add(&z, zoo_add(&z, t, "layer_norm", "encoder.ln", "eps=1e-6"), "slice", "class_out", "dim=1 count=1");
    t = zoo_add(&z, zoo_add(&z, t, "flatten", "flatten", " "), "linear", "heads.head", "features=%lld",
                (long long)classes);
    zoo_init_layer(&z, "heads.head", INIT_ZERO, 0);
    return t;
}

#define VIT(name, ...) \
    {name, "ViT, torchvision's layout", 3, {3, 224, 224}, false, 1000, vit_build, &(const struct vit){__VA_ARGS__}}
const struct zoo_kind zoo_vit[] = {
    VIT("vit_b_16", 16, 12, 12, 768, 3072), VIT("vit_b_32", 32, 12, 12, 768, 3072),
    VIT("vit_l_16", 16, 24, 16, 1024, 4096), {NULL},
};
