/* VGG (Simonyan and Zisserman 2014), with torchvision's names, structure and initialisation. */
#include <stdio.h>
#include "model/zoo.h"

enum { STAGES = 5 };
struct vgg { int convs[STAGES]; bool norms; };           /* convolutions before each pooling */

static int vgg_build(struct graph_builder *b, const struct zoo_kind *k, const struct conf *c, int input,
                     int64_t classes)
{
    static const int channels[STAGES] = {64, 128, 256, 512, 512};
    const struct vgg *net = k->own;
    struct zoo_at z = {b, "features."};
    char name[16];
    int t = input, i = 0;
    for (int s = 0; s < STAGES; s++) {
        for (int n = 0; n < net->convs[s]; n++) {
            snprintf(name, sizeof name, "%d", i++);
            t = zoo_add(&z, t, "conv", name, "channels=%d kernel=3 padding=1", channels[s]);
            zoo_init(&z, name, 1, INIT_ZERO, 0);
            snprintf(name, sizeof name, "%d", i);
            if (net->norms) t = zoo_add(&z, t, "batch_norm", name, " ");
            i += net->norms;
            snprintf(name, sizeof name, "%d", i++);
            t = zoo_add(&z, t, "relu", name, " ");
        }
        snprintf(name, sizeof name, "%d", i++);
        t = zoo_add(&z, t, "max_pool", name, "kernel=2");
    }
    zoo_under(&z, "%s", "");
    t = zoo_add(&z, t, "adaptive_avg_pool", "avgpool", "size=7");
    t = zoo_add(&z, t, "flatten", "flatten", " ");
    zoo_under(&z, "classifier.");
    for (int n = 0; n < 9; n += 3) {
        snprintf(name, sizeof name, "%d", n);
        t = zoo_add(&z, t, "linear", name, "features=%lld", n < 6 ? 4096LL : (long long)classes);
        zoo_init_layer(&z, name, INIT_NORMAL, 0.01);
        if (n == 6) break;
        snprintf(name, sizeof name, "%d", n + 1);
        t = zoo_add(&z, t, "relu", name, " ");
        snprintf(name, sizeof name, "%d", n + 2);
        t = zoo_add(&z, t, "dropout", name, "p=0.5");
    }
    return t;
}

#define VGG(name, norms, ...) \
    {name, "VGG, torchvision's layout", 3, {3, 224, 224}, false, 1000, vgg_build, \
     &(const struct vgg){{__VA_ARGS__}, norms}}
const struct zoo_kind zoo_vgg[] = {
    VGG("vgg11", false, 1, 1, 2, 2, 2), VGG("vgg11_bn", true, 1, 1, 2, 2, 2),
    VGG("vgg13", false, 2, 2, 2, 2, 2), VGG("vgg13_bn", true, 2, 2, 2, 2, 2),
    VGG("vgg16", false, 2, 2, 3, 3, 3), VGG("vgg16_bn", true, 2, 2, 3, 3, 3),
    VGG("vgg19", false, 2, 2, 4, 4, 4), VGG("vgg19_bn", true, 2, 2, 4, 4, 4), {NULL},
};
