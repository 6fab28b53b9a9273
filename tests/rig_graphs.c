#include "rig_graphs.h"
#include "devices.h"
#include "base/mem.h"

void rig_rows(const char *schedule, int n_stages, int n_ranks, const int *rank_of, int n_mb, int n, struct sched *out)
{
    const struct sched_kind *k = sched_find(schedule);
    struct arena *mem = arena_new();
    struct stage_map map;
    struct err e;
    stage_map_make(mem, n_stages, n_ranks, rank_of, &map, &e);
    *out = (struct sched){.n_ranks = n_ranks, .row = mem_alloc((size_t)n_ranks * sizeof *out->row)};
    k->build(&(struct sched_request){.map = &map, .n_mb = n_mb}, out, &e);
    for (int r = 0; r < n_ranks; r++) {
        int kept = 0;
        for (int i = 0; i < out->row[r].n; i++) {
            struct sched_act a = out->row[r].v[i];
            if (a.op == ACT_W && a.mb % n != n - 1 && a.mb != n_mb - 1) continue;
            if (a.op == ACT_W) a.n_mb = (uint16_t)(a.mb % n + 1);
            a.mb = (uint16_t)(a.mb - a.n_mb + 1);
            out->row[r].v[kept++] = a;
        }
        out->row[r].n = kept;
    }
    arena_free(mem);
}

struct placement *rig_place(const struct selection *s, int n_stages, const int *cut, int n_state, struct err *e)
{
    struct placement_request r = {
        .sel = s, .n_stages = n_stages, .mesh = {{n_stages}}, .first_group = cut, .buffers = rig_buffers(n_state)};
    return placement_make(&r, e);
}

const char *const rig_schedules[] = {"naive", "gpipe", "1f1b"};
const enum backward_mode rig_backwards[] = {BACKWARD_AUTO, BACKWARD_JOINED, BACKWARD_SPLIT};

const struct rig_map rig_maps[N_MAPS] = {
    {"round robin", 4, 2, {0, 1, 0, 1}}, {"V", 4, 2, {0, 1, 1, 0}}, {"neighbours", 4, 2, {0, 0, 1, 1}},
    {"three a rank", 6, 2, {0, 1, 0, 1, 0, 1}}, {"long V", 6, 3, {0, 1, 2, 2, 1, 0}},
    {"three neighbours", 6, 2, {0, 0, 0, 1, 1, 1}}, {"one rank", 3, 1, {0, 0, 0}}, {"uneven", 5, 2, {1, 0, 0, 1, 0}},
};

const char rig_mlp_dropout[] =
    "graph mlp\ninput input 6\nlabels labels class\n"
    "fc1 = linear(input) features=9 layer=Linear\nrelu1 = relu(fc1) layer=ReLU\ndrop1 = dropout(relu1) p=0.3 "
    "layer=Dropout\n"
    "fc2 = linear(drop1) features=7 layer=Linear\nrelu2 = relu(fc2) layer=ReLU\ndrop2 = dropout(relu2) p=0.5 "
    "layer=Dropout\n"
    "fc3 = linear(drop2) features=4 layer=Linear\nloss = softmax_cross_entropy(fc3, labels)\noutput fc3\nloss loss\n";

/* Blocks with batch norm, with and without a convolution beside them. The narrow one is for slow kernels. */
#define RESNET(NARROW, WIDE) \
    "graph small\ninput input 3x8x8\n" \
    "conv1 = conv(input) channels=" NARROW " kernel=3 padding=1 bias=no layer=Conv2d\nbn1 = batch_norm(conv1) " \
                                           "layer=BatchNorm2d\nrelu = relu(bn1) layer=ReLU\n" \
    "pool = max_pool(relu) kernel=3 stride=2 padding=1 layer=MaxPool2d\n" \
    "a.conv1 = conv(pool) channels=" NARROW " kernel=3 padding=1 bias=no layer=Conv2d\na.bn1 = batch_norm(a.conv1) " \
                                            "layer=BatchNorm2d\na.relu = relu(a.bn1) layer=ReLU\n" \
    "a.conv2 = conv(a.relu) channels=" NARROW \
    " kernel=3 padding=1 bias=no layer=Conv2d\na.bn2 = batch_norm(a.conv2) layer=BatchNorm2d\n" \
    "a.add = add(a.bn2, pool)\na.relu2 = relu(a.add) layer=ReLU\n" \
    "b.conv1 = conv(a.relu2) channels=" WIDE \
    " kernel=3 stride=2 padding=1 bias=no layer=Conv2d\nb.bn1 = batch_norm(b.conv1) layer=BatchNorm2d\n" \
    "b.down = conv(a.relu2) channels=" WIDE \
    " kernel=1 stride=2 bias=no layer=Conv2d\nb.bnd = batch_norm(b.down) layer=BatchNorm2d\n" \
    "b.add = add(b.bn1, b.bnd)\nb.relu = relu(b.add) layer=ReLU\n" \
    "avgpool = global_avg_pool(b.relu) layer=AdaptiveAvgPool2d\nflatten = flatten(avgpool)\nfc = linear(flatten) " \
    "features=5 layer=Linear\noutput fc\n"

const char rig_small_resnet[] = RESNET("16", "32"), rig_narrow_resnet[] = RESNET("4", "6");

/* Norms that compute as in evaluation: below all that is trained, in a block with the sum and without, between trained
 * layers. */
#define FROZEN "freeze conv1\nfreeze bn1\nfreeze a.bn1\nfreeze a.bn2\nfreeze a.conv2\nfreeze b.bnd\n"
const char rig_frozen_resnet[] = RESNET("16", "32") FROZEN, rig_narrow_frozen[] = RESNET("4", "6") FROZEN;

/* `a` is read at once and again three layers later: with four stages it skips two borders. */
const char rig_skip[] = "graph skip\ninput input 6\nlabels labels class\n"
                        "a = linear(input) features=8 layer=Linear\nb = linear(a) features=8 layer=Linear\nc = relu(b) "
                        "layer=ReLU\nd = linear(c) features=8 layer=Linear\n"
                        "e = relu(d) layer=ReLU\nf = linear(e) features=8 layer=Linear\ng = add(f, a)\nh = concat(g, "
                        "b)\nfc = linear(h) features=4 layer=Linear\n"
                        "loss = softmax_cross_entropy(fc, labels)\noutput fc\nloss loss\n";

const char rig_tied[] =
    "graph tied\ninput input 6\nlabels labels class\n"
    "first = linear(input) features=6 layer=Linear\nr1 = relu(first) layer=ReLU\nmiddle = linear(r1) features=6 "
    "bias=no layer=Linear\n"
    "tie middle.weight first.weight\nr2 = relu(middle) layer=ReLU\nother = linear(r2) features=6 layer=Linear\nlast = "
    "linear(other) features=6 layer=Linear\n"
    "tie last.weight first.weight\nloss = softmax_cross_entropy(last, labels)\noutput last\nloss loss\n";

/* Whole numbers as input, of which some come twice in a sample; the table's last use is a layer's weights. */
const char rig_words[] =
    "graph words\ninput ids 3x4 I32\nlabels labels class\n"
    "emb = embedding(ids) count=9 features=8 layer=Embedding\nmean = global_avg_pool(emb) "
    "layer=AdaptiveAvgPool2d\nflat = flatten(mean) layer=Flatten\n"
    "fc1 = linear(flat) features=8 layer=Linear\nrelu = relu(fc1) layer=ReLU\nout = linear(relu) features=9 "
    "layer=Linear\n"
    "tie out.weight emb.weight\nmae = mean_absolute_error(out, labels)\nloss = softmax_cross_entropy(out, "
    "labels)\noutput out\nloss loss\n";

const char rig_three_readers[] = "graph three\ninput input 6\nlabels labels class\n"
                                 "x = linear(input) features=8 layer=Linear\np = linear(x) features=8 layer=Linear\nq "
                                 "= relu(p) layer=ReLU\nr = add(q, x)\ns = linear(r) features=8 layer=Linear\n"
                                 "t = add(s, x)\nu = relu(t) layer=ReLU\nfc = linear(u) features=4 layer=Linear\nloss "
                                 "= softmax_cross_entropy(fc, labels)\noutput fc\nloss loss\n";
