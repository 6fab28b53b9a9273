/* U-Net (Ronneberger and others 2015) in its common form today: convolutions that preserve the size, batch norm, and
 * names, structure and initialisation of milesial's Pytorch-UNet. Its output is a map: `classes` values a point. */
#include "model/zoo.h"

struct unet { bool linear; };

enum { LEVELS = 4, FIRST = 64 };

/* Twice convolution, batch norm and ReLU, under the prefix. */
static int double_conv(struct zoo_at *z, int in, int64_t middle, int64_t channels)
{
    static const char *const name[2][3] = {{"double_conv.0", "double_conv.1", "double_conv.2"},
                                           {"double_conv.3", "double_conv.4", "double_conv.5"}};
    int t = in;
    for (int i = 0; i < 2; i++) {
        t = zoo_add(z, t, "conv", name[i][0], "channels=%lld kernel=3 padding=1 bias=no",
                    (long long)(i ? channels : middle));
        t = zoo_add(z, zoo_add(z, t, "batch_norm", name[i][1], " "), "relu", name[i][2], " ");
    }
    zoo_container(z, "DoubleConv", t);
    return t;
}

/* Doubles the number of points and appends them to the features of the same level on the way down. */
static int up(struct zoo_at *z, const struct unet *net, int level, int in, int skip)
{
    int64_t channels = zoo_channels(z, in), out = (FIRST << (LEVELS - level)) / (net->linear && level < LEVELS ? 2 : 1);
    zoo_under(z, "up%d.", level);
    int t = net->linear ? zoo_add(z, in, "upsample", "up", "linear=yes align_corners=yes")
                        : zoo_add(z, in, "conv_transpose", "up", "channels=%lld kernel=2 stride=2",
                                  (long long)(channels / 2));
    t = zoo_add2(z, "concat", "cat", skip, t);
    zoo_under(z, "up%d.conv.", level);
    return double_conv(z, t, net->linear ? zoo_channels(z, t) / 2 : out, out);
}

static int unet_build(struct graph_builder *b, const struct zoo_kind *k, const struct conf *c, int input,
                      int64_t classes)
{
    const struct unet *net = k->own;
    struct zoo_at z = {b, "inc."};
    int at[LEVELS + 1];
    at[0] = double_conv(&z, input, FIRST, FIRST);
    for (int i = 1; i <= LEVELS; i++) {
        int64_t channels = (FIRST << i) / (net->linear && i == LEVELS ? 2 : 1);
        zoo_under(&z, "down%d.", i);
        int t = zoo_add(&z, at[i - 1], "max_pool", "maxpool_conv.0", "kernel=2");
        zoo_under(&z, "down%d.maxpool_conv.1.", i);
        at[i] = double_conv(&z, t, channels, channels);
    }
    int t = at[LEVELS];
    for (int i = 1; i <= LEVELS; i++) t = up(&z, net, i, t, at[LEVELS - i]);
    zoo_under(&z, "%s", "");
    t = zoo_add(&z, t, "conv", "outc.conv", "channels=%lld kernel=1", (long long)classes);
    zoo_init_convs(b);
    return t;
}

const struct zoo_kind zoo_unet[] = {
    {"unet", "U-Net, with transposed convolutions", 3, {3, 256, 256}, true, 2, unet_build, &(const struct unet){false}},
    {"unet_bilinear", "U-Net, with linear upsampling", 3, {3, 256, 256}, true, 2, unet_build,
     &(const struct unet){true}}, {NULL},
};
