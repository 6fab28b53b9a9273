/* Bundles: micro-batches that go through the pipeline together. Tests their plans, their notation, and that kernels
 * take several micro-batches at once only if the bits equal those of one after the other. t_exec tests the bits of
 * whole runs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "backend/be.h"
#include "base/rng.h"
#include "plan_rig.h"
#include "rig_graphs.h"
#include "sure.h"

/* Seven samples in micro-batches of 2, 2, 2 and 1, two of them in a bundle. */
static struct plan_request bundled(const char *schedule)
{
    struct plan_request r = rig_request(schedule, 7, 2, BACKWARD_SPLIT);
    r.bundle = 2;
    return r;
}

/* A bundle goes through the pipeline like a micro-batch of its size; the micro-batches in it stay what they are. */
START_TEST(bundles_are_exact)
{
    for (int n = 1; n <= 24; n++)
        for (int k = 1; k <= n; k++)
            for (int bundle = 1; bundle <= 6; bundle++) {
                struct plan_request r = rig_request("1f1b", n, k, BACKWARD_AUTO);
                r.bundle = bundle;
                int many = k * bundle < n ? k * bundle : n;
                struct made m = made_make(rig_chain(2), &rig_plain, 2, (int[]){0, 1, 3}, r),
                            like = made_make(rig_chain(2), &rig_plain, 2, (int[]){0, 1, 3},
                                             rig_request("1f1b", n, many, BACKWARD_AUTO));
                sure(m.p && like.p, "%s%s", m.e.text, like.e.text);
                sure(m.p->n_micro == (n - 1) / k + 1, "%d micro-batches of %d of %d samples", m.p->n_micro, k, n);
                sure(m.p->n_mb == like.p->n_mb, "%d bundles, not %d", m.p->n_mb, like.p->n_mb);
                for (int i = 0; i < m.p->n_mb; i++)
                    sure(m.p->mb_n[i] == like.p->mb_n[i] && m.p->mb_first[i] == like.p->mb_first[i],
                         "bundle %d of %d samples", i, n);
                for (int i = 0; i < m.p->n_micro; i++)
                    sure(m.p->micro_n[i] == (i < m.p->n_micro - 1 ? k : n - i * k), "micro-batch %d of %d samples", i,
                         n);
                for (int q = 0; q < 2; q++) {
                    sure(m.p->row_n[q] == like.p->row_n[q] && m.p->slot_bytes[q] == like.p->slot_bytes[q] &&
                             m.p->tmp_bytes[q] == like.p->tmp_bytes[q],
                         "rank %d", q);
                    for (int i = 0; i < m.p->row_n[q]; i++)
                        sure(m.p->row[q][i].op == like.p->row[q][i].op && m.p->row[q][i].mb == like.p->row[q][i].mb,
                             "rank %d, action %d", q, i);
                }
                made_free(&m); made_free(&like);
            }
}
END_TEST

/* What a batch norm keeps for its statistics is kept of every micro-batch. */
START_TEST(bundles_keep_all_statistics)
{
    struct text t = {0};
    text_add(&t, "%slabels labels class\nloss = softmax_cross_entropy(fc, labels)\nloss loss\n", rig_small_resnet);
    struct plan_request r = rig_request("gpipe", 30, 3, BACKWARD_JOINED);
    r.bundle = 4;
    struct made m = made_make(rig_graph(t.s), &rig_blocked, 1, NULL, r);
    text_free(&t);
    ck_assert_msg(m.p != NULL, "%s", m.e.text);
    int seen = 0;
    for (int g = 0; g < m.s->n_groups; g++) {
        if (!m.s->group[g].has_stats) continue;
        struct place *x = &m.p->stage[0].saved_place[g];
        size_t one = plan_part_saved(m.p, &m.s->group[g]), bytes = x->bytes;
        ck_assert(x->space == SP_SLOT && one > 0 && bytes == 4 * one && m.p->cls[x->cls].n_slots == 3);
        x->bytes = bytes - 64;
        ck_assert(plan_check(m.p, NULL));
        x->bytes = bytes;
        seen++;
    }
    ck_assert_int_eq(seen, 5);
    ck_assert(!plan_check(m.p, NULL));
    made_free(&m);
}
END_TEST

/* Any number of any bundle, changed: the micro-batches are no longer the batch. */
START_TEST(checker_wants_whole_bundles)
{
    struct made m = made_make(rig_graph(rig_skip), &rig_plain, 3, NULL, bundled("gpipe"));
    ck_assert_msg(m.p != NULL, "%s", m.e.text);
    ck_assert(m.p->n_mb == 2 && m.p->n_micro == 4);
    int *all[] = {&m.p->mb_n[0],    &m.p->mb_n[1],    &m.p->mb_first[0], &m.p->mb_first[1],
                  &m.p->micro_n[0], &m.p->micro_n[1], &m.p->micro_n[2],  &m.p->micro_n[3],
                  &m.p->n_mb,       &m.p->n_micro,    &m.p->req.bundle,  &m.p->req.batch};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct err e = {0};
        --*all[i];
        ck_assert_msg(plan_check(m.p, &e) && e.code == 70, "%zu: one less passes", i);
        ++*all[i];
    }
    ck_assert(!plan_check(m.p, NULL));
    made_free(&m);
}
END_TEST

START_TEST(bundles_have_a_notation)
{
    struct plan_request r = bundled("rows");
    r.rows = "rank 0: 0F0-1 0F2-3 0B0-1 0W0-1 0B2-3 0W2-3\nrank 1: 1F0-1 1B0-1 1W0-1 1F2-3 1B2-3 1W2-3\n";
    struct made m = made_make(rig_chain(2), &rig_plain, 2, (int[]){0, 1, 3}, r),
                same = made_make(rig_chain(2), &rig_plain, 2, (int[]){0, 1, 3}, bundled("1f1b"));
    struct text a = {0}, b = {0};
    ck_assert_msg(m.p != NULL, "%s", m.e.text);
    plan_print_rows(m.p, &a);
    plan_print_rows(same.p, &b);
    ck_assert_str_eq(a.s, b.s);
    ck_assert(strstr(a.s, " 1F2-3 ") && strstr(a.s, " 0SF0-1 "));
    text_free(&a); text_free(&b);
    made_free(&m); made_free(&same);
    r.batch = 5;                                         /* 2, 2 and 1: the last bundle is a single one */
    r.rows = "rank 0: 0F0-1 0F2 0B0-1 0W0-1 0B2 0W2\nrank 1: 1F0-1 1B0-1 1W0-1 1F2 1B2 1W2\n";
    m = made_make(rig_chain(2), &rig_plain, 2, (int[]){0, 1, 3}, r);
    ck_assert_msg(m.p != NULL, "%s", m.e.text);
    made_free(&m);
    static const struct { const char *rows, *why;
    } wrong[] = {
        {"rank 0: 0F0\nrank 1:\n", "rows:1: 0F0:|0-1 (pipeline.bundle)"},
        {"rank 0: 0F1-2\nrank 1:\n", "rows:1: 0F1:|0-1"},
        {"rank 0: 0F2-3\nrank 1:\n", "rows:1: 0F2:|2"},
        {"rank 0: 0F3\nrank 1:\n", "rows:1: 0F3:"},
        {"rank 0: 0F0-\nrank 1:\n", "\"0F0-\" is not an F, B or W action"},
        {"rank 0: 0F0-1-2\nrank 1:\n", "\"0F0-1-2\" is no"},
        {"rank 0: 0F0-1 0F2\nrank 1: 1F0-1 1F2\n", "rows:1: 0B0-1 is missing; a batch has 3 micro-batches"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        r.rows = wrong[i].rows;
        m = made_make(rig_chain(2), &rig_plain, 2, (int[]){0, 1, 3}, r);
        ck_assert_msg(!m.p && m.e.code == 65 && says(m.e.text, wrong[i].why), "want \"%s\", got %d \"%s\"",
                      wrong[i].why, m.e.code, m.e.text);
        made_free(&m);
    }
}
END_TEST

/* Rows of a batch with bundles serve its short ones. */
START_TEST(bundled_rows_serve_short_batches)
{
    static const struct { int batch; const char *rows; } shorter[] = {     /* of bundles 0-1, 2-3 and 4 */
        {9, " 1F4 1B4"}, {8, " 1F2-3 1B2-3 1W0-1 1W2-3"}, {5, " 1F2 1B2 1W0-1 1W2"},
        {3, "1F0-1 1B0-1 1W0-1 "}, {1, "1F0 1B0 1W0 "},
    };
    struct plan_request r = bundled("rows");
    r.rows = "rank 0: 0F0-1 0F2-3 0F4 0B0-1 0W0-1 0B2-3 0W2-3 0B4 0W4\n"
             "rank 1: 1F0-1 1B0-1 1F2-3 1B2-3 1F4 1B4 1W0-1 1W2-3 1W4\n";
    r.rows_micro = 5;
    for (size_t i = 0; i < sizeof shorter / sizeof *shorter; i++) {
        struct text t = {0};
        r.batch = shorter[i].batch;
        struct made m = made_make(rig_chain(2), &rig_plain, 2, (int[]){0, 1, 3}, r);
        ck_assert_msg(m.p != NULL, "batch of %d: %s", r.batch, m.e.text);
        for (int k = 0; k < m.p->row_n[1]; k++) {
            char one[32];
            const struct act *a = &m.p->row[1][k];
            if (a->op == ACT_F || a->op == ACT_B || a->op == ACT_W) text_add(&t, " %s", act_text(m.p, a, one));
        }
        text_add(&t, " ");
        ck_assert_msg(strstr(t.s, shorter[i].rows), "batch of %d: %s", r.batch, t.s);
        text_free(&t);
        made_free(&m);
    }
}
END_TEST

/* ---- kernels --------------------------------------------------------------------------------- */

static const char convolutions[] = "graph kernels\ninput input 16x9x9\nlabels labels class\n"
                                   "a = conv(input) channels=32 kernel=3 padding=1 layer=Conv2d\n"
                                   "b = conv(a) channels=64 kernel=1 layer=Conv2d\n"
                                   "c = conv(b) channels=32 kernel=3 padding=1 stride=2 bias=no layer=Conv2d\n"
                                   "d = conv(c) channels=32 kernel=1 stride=2 bias=no layer=Conv2d\n"
                                   "e = conv(c) channels=32 kernel=3 padding=1 stride=2 bias=yes layer=Conv2d\n"
                                   "f = conv(d) channels=32 kernel=3 padding=1 groups=4 layer=Conv2d\n"
                                   "g = add(e, f) layer=Add\nh = flatten(g)\ni = linear(h) features=40 layer=Linear\nj "
                                   "= linear(i) features=5 layer=Linear\n"
                                   "loss = mse(j, labels)\nloss loss\noutput j\n";

/* fill: which random values */
struct kernels {
    struct graph *g;
    struct selection *s;
    const struct be_ops *ops;
    struct be *b;
    struct err e;
    uint32_t fill;
};

/* One call's memory; what is written has the same values before. */
struct call_memory { float *in, *out, *gout, *gin, *param[MAX_PARAM], *pgrad[MAX_PARAM]; void *packed, *work; };

static size_t floats_of(const struct kernels *k, int tensor)
{
    return (size_t)shape_count(&k->g->tensor[tensor].shape);
}
static size_t weights_of(const struct kernels *k, int param) { return (size_t)shape_count(&k->g->param[param].shape); }

static float *random_floats(struct kernels *k, size_t n, uint32_t key)
{
    float *x = k->ops->alloc(k->b, n * sizeof *x, &k->e);
    ck_assert_msg(x != NULL, "%s", k->e.text);
    rng_fill_normal((struct rng_at){7, RNG_TEST, key, k->fill}, x, n);
    return x;
}

static struct call_memory memory_take(struct kernels *k, const struct group *g, int n)
{
    struct call_memory m = {.in = random_floats(k, (size_t)n * floats_of(k, g->in[0]), 1),
                            .out = random_floats(k, (size_t)n * floats_of(k, g->out), 2),
                            .gout = random_floats(k, (size_t)n * floats_of(k, g->out), 3),
                            .gin = random_floats(k, (size_t)n * floats_of(k, g->in[0]), 4)};
    for (int i = 0; i < g->n_param; i++) {
        m.param[i] = random_floats(k, weights_of(k, g->param[i]), 5);
        m.pgrad[i] = random_floats(k, weights_of(k, g->param[i]), 6);
    }
    if (g->packed_bytes) {
        m.packed = k->ops->alloc(k->b, g->packed_bytes, &k->e);
        ck_assert(!k->ops->pack(k->b, k->s->group_of[g->node[0]], (void *const *)m.param, m.packed, &k->e));
    }
    m.work = k->ops->alloc(k->b, group_workspace(g, n), &k->e);
    return m;
}

static void memory_give(struct kernels *k, const struct group *g, struct call_memory *m, int n)
{
    k->ops->free(k->b, m->in, (size_t)n * floats_of(k, g->in[0]) * sizeof(float));
    k->ops->free(k->b, m->gin, (size_t)n * floats_of(k, g->in[0]) * sizeof(float));
    k->ops->free(k->b, m->out, (size_t)n * floats_of(k, g->out) * sizeof(float));
    k->ops->free(k->b, m->gout, (size_t)n * floats_of(k, g->out) * sizeof(float));
    for (int i = 0; i < g->n_param; i++) {
        k->ops->free(k->b, m->param[i], weights_of(k, g->param[i]) * sizeof(float));
        k->ops->free(k->b, m->pgrad[i], weights_of(k, g->param[i]) * sizeof(float));
    }
    k->ops->free(k->b, m->packed, g->packed_bytes);
    k->ops->free(k->b, m->work, group_workspace(g, n));
}

/* `each` samples a call. add: to what is in the gradients. */
static void calls(struct kernels *k, int group, enum phase ph, int n, int each, bool add, struct call_memory *m)
{
    const struct group *g = &k->s->group[group];
    size_t in = floats_of(k, g->in[0]), out = floats_of(k, g->out);
    for (int at = 0; at < n; at += each) {
        struct be_kernel *kernel;
        struct be_call c = {.n = n - at < each ? n - at : each, .packed = m->packed, .work = m->work, .gin_acc = add,
                            .pgrad_acc = add || at > 0};
        c.in[0] = m->in + (size_t)at * in;
        if (ph == PH_FWD) c.out = m->out + (size_t)at * out;
        else c.gout = m->gout + (size_t)at * out;
        if (ph == PH_BWD_DATA) c.gin[0] = m->gin + (size_t)at * in;
        for (int i = 0; i < g->n_param; i++) {
            c.param[i] = m->param[i];
            if (ph == PH_BWD_WEIGHTS) c.pgrad[i] = m->pgrad[i];
        }
        ck_assert_msg(!k->ops->prepare(k->b, &(struct be_key){group, ph, c.n, true}, &kernel, &k->e) &&
                          !k->ops->run(k->b, kernel, &c, &k->e),
                      "%s", k->e.text);
    }
}

/* NULL, or what differs. */
static const char *joined_differs(struct kernels *k, int group, enum phase ph, int part, int n, bool add)
{
    const struct group *g = &k->s->group[group];
    const char *what = NULL;
    struct call_memory a = memory_take(k, g, n), b = memory_take(k, g, n);
    calls(k, group, ph, n, part, add, &a);
    calls(k, group, ph, n, n, add, &b);
    if (memcmp(a.out, b.out, (size_t)n * floats_of(k, g->out) * sizeof(float))) what = "values";
    if (memcmp(a.gin, b.gin, (size_t)n * floats_of(k, g->in[0]) * sizeof(float))) what = "input gradients";
    for (int i = 0; i < g->n_param; i++)
        if (memcmp(a.pgrad[i], b.pgrad[i], weights_of(k, g->param[i]) * sizeof(float))) what = "weight gradients";
    memory_give(k, g, &a, n);
    memory_give(k, g, &b, n);
    return what;
}

static void joined_is_the_same(struct kernels *k, int group, enum phase ph, int part, int n, bool add)
{
    const char *what = joined_differs(k, group, ph, part, n, add);
    ck_assert_msg(!what, "%s: other %s", k->g->node[k->s->group[group].node[0]].name, what);
}

static struct kernels kernels_open(const char *text, struct device *d)
{
    struct kernels k = {.g = rig_graph(text), .ops = be_find("onednn")};
    ck_assert(!k.ops->describe(0, d, &k.e));
    d->threads = 1;
    k.s = select_make(k.g, d, 20, &k.e);
    ck_assert_msg(k.s && !k.ops->open(k.s, 1, 0, &k.b, &k.e), "%s", k.e.text);
    return k;
}

static void kernels_close(struct kernels *k)
{
    k->ops->close(k->b);
    select_free(k->s);
    graph_free(k->g);
}

START_TEST(joined_kernels)
{
    static const int sizes[][2] = {{2, 6}, {3, 7}, {1, 4}, {4, 20}};
    struct device d = {0};
    struct kernels k = kernels_open(convolutions, &d);
    int n[PH_COUNT] = {0};
    for (int group = 0; group < k.s->n_groups; group++)
        for (int ph = 0; ph < PH_COUNT; ph++)
            for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
                const struct group *g = &k.s->group[group];
                if ((ph == PH_BWD_DATA && !g->grad_in) || (ph == PH_BWD_WEIGHTS && !g->pgrad_in_w)) continue;
                const struct be_key key = {group, (enum phase)ph, sizes[i][1], true};
                if (!k.ops->may_batch(k.b, &key, sizes[i][0])) continue;
                ck_assert(k.ops->may_batch(k.b, &key, sizes[i][0]));
                n[ph]++;
                joined_is_the_same(&k, group, (enum phase)ph, sizes[i][0], sizes[i][1], false);
                /* others never add */
                bool adds = ph == PH_BWD_WEIGHTS || (ph == PH_BWD_DATA && k.g->tensor[g->in[0]].n_readers > 1);
                if (adds) joined_is_the_same(&k, group, (enum phase)ph, sizes[i][0], sizes[i][1], true);
            }
    if (d.block == 16)                                   /* or bundles gain nothing */
        ck_assert_msg(n[PH_FWD] && n[PH_BWD_DATA] && n[PH_BWD_WEIGHTS], "%d, %d, %d kernels join", n[PH_FWD],
                      n[PH_BWD_DATA], n[PH_BWD_WEIGHTS]);
    kernels_close(&k);
}
END_TEST

/* ---- any small layer ------------------------------------------------------------------------- */

static unsigned drawn(uint64_t *seed, unsigned lo, unsigned hi)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return lo + (unsigned)(*seed >> 33) % (hi - lo + 1);
}

/* Two layers, so that the second one has an input gradient: products, or convolutions over planes. */
static void layers_draw(uint64_t *seed, struct text *t)
{
    static const unsigned channels[] = {1, 2, 3, 4, 5, 8, 16, 24, 32};
    t->n = 0;
    if (drawn(seed, 0, 1)) {
        text_add(t, "graph g\ninput input %u\nlabels labels class\na = linear(input) features=%u\n", drawn(seed, 1, 40),
                 drawn(seed, 1, 40));
        text_add(t, "b = linear(a) features=%u bias=%s\n", drawn(seed, 1, 40), drawn(seed, 0, 1) ? "yes" : "no");
    } else {
        unsigned side = drawn(seed, 3, 9);
        text_add(t, "graph g\ninput input %ux%ux%u\nlabels labels class\n", channels[drawn(seed, 0, 8)], side, side);
        text_add(t, "a = conv(input) channels=%u kernel=3 padding=1\n", channels[drawn(seed, 0, 8)]);
        unsigned kernel = drawn(seed, 1, 3);
        text_add(t, "c = conv(a) channels=%u kernel=%u padding=%u stride=%u bias=%s\nb = flatten(c)\n",
                 channels[drawn(seed, 0, 8)], kernel, drawn(seed, 0, kernel / 2), drawn(seed, 1, 2),
                 drawn(seed, 0, 1) ? "yes" : "no");
    }
    text_add(t, "y = linear(b) features=2\nloss = mse(y, labels)\nloss loss\n");
}

/* Bundles of two and of three, the last micro-batch shorter or not; fresh values until a thousand results were
 * compared. Returns how many joined ones differ. */
static int layer_differs(struct kernels *k, int group, enum phase ph, int part, const char *text)
{
    enum { ENOUGH = 1000 };
    const struct group *g = &k->s->group[group];
    int bad = 0;
    for (int i = 0; i < 3; i++) {
        const int n = i < 2 ? (2 + i) * part : part + 1;
        size_t results = (size_t)n * floats_of(k, ph == PH_FWD ? g->out : g->in[0]);
        const char *what = NULL;
        if (!k->ops->may_batch(k->b, &(struct be_key){group, ph, n, true}, part)) continue;
        for (size_t seen = 0; seen < ENOUGH && !what; seen += results, k->fill++)
            what = joined_differs(k, group, ph, part, n, false);
        if (what) printf("# %d samples by %d: other %s of %s in\n%s", n, part, what, k->g->node[g->node[0]].name, text);
        bad += what != NULL;
    }
    return bad;
}

static const char *const isas[] = {"AVX512_CORE", "AVX2", "SSE41"};

/* Each test is a process, and the limit is read when the library computes first. BUNDLE_LAYERS in the environment: how
 * many layers. */
START_TEST(any_small_layer)
{
    const char *many = getenv("BUNDLE_LAYERS");
    int want = many ? atoi(many) : IS_SANITIZED ? 40 : cases_of(5, 40, 100), layers = 0, bad = 0;
    uint64_t seed = 12;
    struct text t = {0};
    setenv("ONEDNN_MAX_CPU_ISA", isas[_i], 1);
    while (layers < want) {
        struct device d = {0};
        layers_draw(&seed, &t);
        struct kernels k = kernels_open(t.s, &d);
        for (int group = 0; group < k.s->n_groups; group++) {
            const struct group *g = &k.s->group[group];
            if (!g->n_param || g->n_nodes > 1) continue;
            layers++;
            int part = (int)drawn(&seed, 1, 4);
            for (int ph = 0; ph < PH_COUNT; ph++)
                if ((ph != PH_BWD_DATA || g->grad_in) && (ph != PH_BWD_WEIGHTS || g->pgrad_in_w))
                    bad += layer_differs(&k, group, (enum phase)ph, part, t.s);
        }
        kernels_close(&k);
    }
    text_free(&t);
    ck_assert_msg(!bad, "%s: %d joined calls of %d layers give other bits", isas[_i], bad, layers);
}
END_TEST

int main(void)
{
    TCase *t = suite_case("bundles", 600);
    tcase_add_test(t, bundles_are_exact);
    tcase_add_test(t, bundles_keep_all_statistics);
    tcase_add_test(t, checker_wants_whole_bundles);
    tcase_add_test(t, bundles_have_a_notation);
    tcase_add_test(t, bundled_rows_serve_short_batches);
    tcase_add_test(t, joined_kernels);
    tcase_add_loop_test(t, any_small_layer, 0, (int)(sizeof isas / sizeof *isas));
    return suite_run("bundles", CK_FORK, t);
}
