/* MONAI's U-Net of residual units, with its names: channels 16 to 256, two convolutions a unit, batch norm, one learned
 * slope per PReLU; the network of the spleen bundle. Its output is a map: `classes` values a point. */
#include <stdio.h>
#include "model/zoo.h"

enum { LEVELS = 4, FIRST = 16 };

/* Batch norm and PReLU after the convolution NAME.conv. */
static int adn(const struct zoo_at *z, int in, const char *name)
{
    char n[48], a[48];
    snprintf(n, sizeof n, "%s.adn.N", name);
    snprintf(a, sizeof a, "%s.adn.A", name);
    return zoo_add(z, zoo_add(z, in, "batch_norm", n, " "), "prelu", a, "shared=yes");
}

/* Properties of all convolutions of a unit. plain: the last one has no norm or activation. */
struct unet_unit { int64_t channels; int stride, n; bool plain; };

/* Convolutions with a shortcut, which is a convolution if sizes or channels change. Under the prefix. */
static int residual(const struct zoo_at *z, int in, struct unet_unit u)
{
    int t = in, same = in;
    const bool other = zoo_channels(z, in) != u.channels;
    for (int i = 0; i < u.n; i++) {
        char unit[32], conv[48];
        snprintf(unit, sizeof unit, "conv.unit%d", i);
        snprintf(conv, sizeof conv, "%s.conv", unit);
        t = zoo_add(z, t, "conv", conv, "channels=%lld kernel=3 stride=%d padding=1", (long long)u.channels,
                    i ? 1 : u.stride);
        if (i < u.n - 1 || !u.plain) t = adn(z, t, unit);
    }
    if (u.stride > 1)
        same = zoo_add(z, in, "conv", "residual", "channels=%lld kernel=3 stride=%d padding=1", (long long)u.channels,
                       u.stride);
    else if (other) same = zoo_add(z, in, "conv", "residual", "channels=%lld kernel=1", (long long)u.channels);
    t = zoo_add2(z, "add", "add", t, same);
    zoo_container(z, "ResidualUnit", t);
    return t;
}

/* A level and all below it, with `out` output channels. path: its modules' prefix. */
static int level(struct zoo_at *z, const char *path, int depth, int in, int64_t out)
{
    char below[128];
    const int64_t channels = FIRST << depth;
    zoo_under(z, "%s%s", path, depth < LEVELS ? "0." : "");
    if (depth == LEVELS) return residual(z, in, (struct unet_unit){channels, 1, 2, false});
    int down = residual(z, in, (struct unet_unit){channels, 2, 2, false});
    snprintf(below, sizeof below, "%s1.submodule.", path);
    int t = level(z, below, depth + 1, down, channels);
    zoo_under(z, "%s", path);
    t = zoo_add2(z, "concat", "1.cat", down, t);
    zoo_under(z, "%s2.", path);
    t = zoo_add(z, t, "conv_transpose", "0.conv", "channels=%lld kernel=3 stride=2 padding=1 output_padding=1",
                (long long)out);
    t = adn(z, t, "0");
    zoo_under(z, "%s2.1.", path);
    return residual(z, t, (struct unet_unit){out, 1, 1, depth == 0});
}

static int unet3d_build(struct graph_builder *b, const struct zoo_kind *k, const struct conf *c, int input,
                        int64_t classes)
{
    struct zoo_at z = {b, ""};
    if (zoo_halves(b, input, LEVELS)) return -1;
    int t = level(&z, "model.", 0, input, classes);
    zoo_init_convs(b);
    return t;
}

const struct zoo_kind zoo_unet3d[] = {
    {"unet3d", "U-Net of residual units, as MONAI has it", 4, {1, 96, 96, 96}, true, 2, unet3d_build, NULL}, {NULL},
};
