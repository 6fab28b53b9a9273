/* V-Nets (Milletari and others 2016), whose output is a map of `classes` values a point: MONAI's, with its names, and
 * that of Eisen 0.0.5, with its names, but with torch.nn.GroupNorm. Both start from torch.nn's own weights. */
#include <stdio.h>
#include <string.h>
#include "model/graph_int.h"
#include "model/zoo.h"

enum { LEVELS = 4, FIRST = 16 };

/* ---- MONAI's V-Net --------------------------------------------------------------------------- */

/* Convolution over five points, batch norm; the caller adds the activation. Under the prefix. */
static int conv5(const struct zoo_at *z, int in, int64_t channels)
{
    int t = zoo_add(z, in, "conv", "conv_block.conv", "channels=%lld kernel=5 padding=2 bias=no", (long long)channels);
    return zoo_add(z, t, "batch_norm", "conv_block.adn.N", " ");
}

static int convs(struct zoo_at *z, const char *part, int in, int n)
{
    int t = in;
    for (int i = 0; i < n; i++) {
        zoo_under(z, "%s.ops.%d.", part, i);
        t = zoo_add(z, conv5(z, t, zoo_channels(z, t)), "elu", "act_function", " ");
    }
    zoo_under(z, "%s.", part);
    return t;
}

static int dropped(const struct zoo_at *z, int in, const char *name)
{
    return zoo_add(z, in, "dropout", name, "p=0.5 channels=yes");
}

/* Adds the input's channels, repeated, to the features made from them. */
static int first(struct zoo_at *z, int in)
{
    int64_t channels = zoo_channels(z, in);
    zoo_under(z, "in_tr.");
    if (channels && FIRST % channels)
        return graph_fail(z->b, "the input's channels are repeated to 16, which their number does not divide");
    int t = conv5(z, in, FIRST);
    int same = zoo_add(z, in, "repeat", "repeat", "count=%lld", (long long)(channels ? FIRST / channels : 1));
    t = zoo_add(z, zoo_add2(z, "add", "add", t, same), "elu", "act_function", " ");
    zoo_container(z, "InputTransition", t);
    return t;
}

static int down(struct zoo_at *z, const char *part, int in, int n, bool drops)
{
    zoo_under(z, "%s.", part);
    int t = zoo_add(z, in, "conv", "down_conv", "channels=%lld kernel=2 stride=2 bias=no",
                    (long long)(2 * zoo_channels(z, in)));
    int half = zoo_add(z, zoo_add(z, t, "batch_norm", "bn1", " "), "elu", "act_function1", " ");
    t = convs(z, part, drops ? dropped(z, half, "dropout") : half, n);
    t = zoo_add(z, zoo_add2(z, "add", "add", t, half), "elu", "act_function2", " ");
    zoo_container(z, "DownTransition", t);
    return t;
}

/* Half of the channels come from the level below, half from the way down. */
static int up(struct zoo_at *z, const char *part, int in, int skip, int n, bool drops)
{
    zoo_under(z, "%s.", part);
    int t = drops ? dropped(z, in, "dropout") : in, beside = dropped(z, skip, "dropout2");
    t = zoo_add(z, t, "conv_transpose", "up_conv", "channels=%lld kernel=2 stride=2",
                (long long)zoo_channels(z, skip));
    t = zoo_add(z, zoo_add(z, t, "batch_norm", "bn1", " "), "elu", "act_function1", " ");
    int both = zoo_add2(z, "concat", "cat", t, beside);
    t = convs(z, part, both, n);
    t = zoo_add(z, zoo_add2(z, "add", "add", t, both), "elu", "act_function2", " ");
    zoo_container(z, "UpTransition", t);
    return t;
}

static int vnet_build(struct graph_builder *b, const struct zoo_kind *k, const struct conf *c, int input,
                      int64_t classes)
{
    static const struct {
        const char *down, *up;
        int down_convs, up_convs;
        bool down_drops, up_drops;
    } level[LEVELS] = {
        {"down_tr32", "up_tr32", 1, 1, false, false},
        {"down_tr64", "up_tr64", 2, 1, false, false},
        {"down_tr128", "up_tr128", 3, 2, true, true},
        {"down_tr256", "up_tr256", 2, 2, true, true},
    };
    struct zoo_at z = {b, ""};
    int at[LEVELS + 1];
    if (zoo_halves(b, input, LEVELS)) return -1;
    at[0] = first(&z, input);
    for (int i = 0; i < LEVELS; i++)
        at[i + 1] = down(&z, level[i].down, at[i], level[i].down_convs, level[i].down_drops);
    int t = at[LEVELS];
    for (int i = LEVELS - 1; i >= 0; i--) t = up(&z, level[i].up, t, at[i], level[i].up_convs, level[i].up_drops);
    zoo_under(&z, "out_tr.");
    t = zoo_add(&z, conv5(&z, t, classes), "elu", "act_function1", " ");
    t = zoo_add(&z, t, "conv", "conv2", "channels=%lld kernel=1", (long long)classes);
    zoo_init_convs(b);
    zoo_container(&z, "OutputTransition", t);
    return t;
}

/* ---- Eisen's V-Net --------------------------------------------------------------------------- */

/* Norm and ReLU after the i-th convolution of a module. */
static int normed(const struct zoo_at *z, int t, int i)
{
    char name[32];
    snprintf(name, sizeof name, "conv.%d", 3 * i + 1);
    t = zoo_add(z, t, "group_norm", name, "groups=16");
    snprintf(name, sizeof name, "conv.%d", 3 * i + 2);
    return zoo_add(z, t, "relu", name, " ");
}

/* n units, whose input is added to their output; an image's single channel is added to all. */
static int block(struct zoo_at *z, const char *name, int in, int64_t channels, int n)
{
    int t = in, same = in;
    const int64_t has = zoo_channels(z, in);
    zoo_under(z, "block_%s.", name);
    for (int i = 0; i < n; i++) {
        char conv[32];
        snprintf(conv, sizeof conv, "conv.%d", 3 * i);
        t = normed(z, zoo_add(z, t, "conv", conv, "channels=%lld kernel=3 padding=1", (long long)channels), i);
    }
    if (has && has != channels && channels % has)
        return graph_fail(z->b, "the input's channels are repeated to 16, which their number does not divide");
    if (has && has != channels) same = zoo_add(z, in, "repeat", "repeat", "count=%lld", (long long)(channels / has));
    t = zoo_add2(z, "add", "add", t, same);
    zoo_container(z, "ConvBlock", t);
    return t;
}

/* Halves or doubles the number of points. */
static int resized(struct zoo_at *z, const char *name, const char *op, int in, int64_t channels)
{
    zoo_under(z, "block_%s.", name);
    int t = normed(z, zoo_add(z, in, op, "conv.0", "channels=%lld kernel=2 stride=2", (long long)channels), 0);
    zoo_container(z, strcmp(op, "conv") ? "UpsamplingDeconvBlock" : "DownsamplingConvBlock", t);
    return t;
}

static int eisen_build(struct graph_builder *b, const struct zoo_kind *k, const struct conf *c, int input,
                       int64_t classes)
{
    static const char *const way_down[] = {"one", "two", "three", "four", "five"},
                      *const dw[] = {"one_dw", "two_dw", "three_dw", "four_dw"},
                      *const up_to[] = {"eight_up", "seven_up", "six_up", "five_up"},
                      *const way_up[] = {"nine", "eight", "seven", "six"};
    static const int n_down[] = {1, 3, 3, 3, 3}, n_up[] = {1, 3, 3, 3};
    struct zoo_at z = {b, ""};
    int at[LEVELS + 1];
    if (zoo_halves(b, input, LEVELS)) return -1;
    at[0] = block(&z, way_down[0], input, FIRST, n_down[0]);
    for (int i = 1; i <= LEVELS; i++)
        at[i] = block(&z, way_down[i], resized(&z, dw[i - 1], "conv", at[i - 1], FIRST << i), FIRST << i, n_down[i]);
    int t = at[LEVELS];
    for (int i = LEVELS - 1; i >= 0; i--) {
        t = resized(&z, up_to[i], "conv_transpose", t, FIRST << i);
        t = block(&z, way_up[i], zoo_add2(&z, "add", "skip", t, at[i]), FIRST << i, n_up[i]);
    }
    zoo_under(&z, "%s", "");
    t = zoo_add(&z, t, "conv", "out_conv", "channels=%lld kernel=1", (long long)classes);
    zoo_init_convs(b);
    return t;
}

const struct zoo_kind zoo_vnet[] = {
    {"vnet", "V-Net, as MONAI has it", 4, {1, 64, 64, 64}, true, 2, vnet_build, NULL},
    {"vnet_eisen", "V-Net, as Eisen 0.0.5 has it, with group norm", 4, {1, 64, 64, 64}, true, 1, eisen_build, NULL},
    {NULL},
};
