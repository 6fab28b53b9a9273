/* Plans: memory, outputs, errors, fused operators, printed plans. */
#include <stdio.h>
#include <string.h>
#include "plan/render.h"
#include "plan_rig.h"
#include "rig_graphs.h"
#include "sure.h"

/* ---- memory ---------------------------------------------------------------------------------- */

START_TEST(slots_do_not_overlap)
{
    struct made m = made_make(rig_graph(rig_skip), &rig_plain, 3, NULL, rig_request("gpipe", 7, 2, BACKWARD_SPLIT));
    ck_assert(m.p != NULL);
    for (int r = 0; r < 3; r++) {
        size_t sum = 0;
        for (int i = 0; i < m.p->n_cls; i++) {
            const struct slot_class *c = &m.p->cls[i];
            if (m.p->stage[c->stage].rank != r) continue;
            ck_assert(c->n_slots >= 1 && c->bytes > 0 && c->base == sum);
            sum += c->bytes * (size_t)c->n_slots;
        }
        ck_assert_uint_eq(sum, m.p->slot_bytes[r]);
    }
    made_free(&m);
}
END_TEST

/* 1f1b holds activations of min(m, p - r) micro-batches, gpipe of all (pipelining formulas), and recompute-free memory
 * of the first stage shows it. */
START_TEST(memory_follows_the_schedule)
{
    struct made g = made_make(rig_chain(8), &rig_plain, 4, NULL, rig_request("gpipe", 16, 1, BACKWARD_JOINED)),
                f = made_make(rig_chain(8), &rig_plain, 4, NULL, rig_request("1f1b", 16, 1, BACKWARD_JOINED));
    ck_assert(g.p && f.p);
    for (int i = 0; i < f.p->n_cls; i++) {
        const struct slot_class *c = &f.p->cls[i];
        int want = 4 - c->stage;
        if (c->writer == W_F && c->last == L_B) ck_assert_int_eq(c->n_slots, want);
    }
    for (int i = 0; i < g.p->n_cls; i++)
        if (g.p->cls[i].writer == W_F && g.p->cls[i].last == L_B) ck_assert_int_eq(g.p->cls[i].n_slots, 16);
    ck_assert(f.p->slot_bytes[0] < g.p->slot_bytes[0]);
    made_free(&g); made_free(&f);
}
END_TEST

static bool overlap(const struct place *a, const struct place *b)
{
    return a->space == b->space && a->off < b->off + b->bytes && b->off < a->off + a->bytes;
}

/* Whether the gradient that call `at` reads is what was written last where it lies: the last call before that touches
 * the memory wrote this tensor. */
static bool gradient_lives(const struct selection *s, const struct prog *g, int at)
{
    const struct kop *k = &g->k[at];
    int t = s->group[k->group].out;
    for (int i = at - 1; i >= 0; i--) {
        const struct group *w = &s->group[g->k[i].group];
        for (int j = w->n_in - 1; g->k[i].phase == PH_BWD_DATA && j >= 0; j--)
            if (overlap(&g->k[i].gin[j], &k->gouts[0])) return w->in[j] == t && g->k[i].gin[j].off == k->gouts[0].off;
    }
    return false;
}

/* Gradients within the backward program: where batch norm is one kernel it writes over the gradient that it reads for
 * the last time, else nothing does. */
static int gradients_in_place(const struct device *d)
{
    struct text t = {0};
    text_add(&t, "%slabels labels class\nloss = softmax_cross_entropy(fc, labels)\nloss loss\n", rig_small_resnet);
    struct made m = made_make(rig_graph(t.s), d, 1, NULL, rig_request("gpipe", 8, 4, BACKWARD_JOINED));
    text_free(&t);
    ck_assert_msg(m.p != NULL, "%s", m.e.text);
    const struct prog *g = &m.p->stage[0].prog[PROG_D];
    int n = 0, read = 0;
    for (int i = 0; i < g->n; i++) {
        const struct kop *k = &g->k[i];
        const struct group *w = &m.s->group[k->group];
        if (k->gouts[0].space != SP_TMP) continue;
        read++;
        ck_assert_msg(gradient_lives(m.s, g, i), "call %d reads a gradient that is gone", i);
        for (int j = 0; k->phase == PH_BWD_DATA && j < w->n_in; j++) {
            if (k->gin[j].space != SP_TMP || !overlap(&k->gin[j], &k->gouts[0])) continue;
            ck_assert_int_eq(j, w->grad_over);
            ck_assert(k->gin[j].off == k->gouts[0].off && k->gin[j].bytes == k->gouts[0].bytes);
            ck_assert(!(k->gin_acc >> j & 1));
            n++;
        }
    }
    ck_assert_int_gt(read, 10);
    made_free(&m);
    return n;
}

START_TEST(batch_norm_gradients_in_place)
{
    /* bn1, a.bn1; a.bn2 and b.bn1 those of what is added; b.bnd */
    ck_assert_int_eq(gradients_in_place(&rig_blocked), 5);
    ck_assert_int_eq(gradients_in_place(&rig_plain), 0);
}
END_TEST

/* ---- identity -------------------------------------------------------------------------------- */

START_TEST(plans_are_pure)
{
    char a[33], b[33], c[33];
    struct made x = made_make(rig_graph(rig_tied), &rig_plain, 3, NULL, rig_request("1f1b", 7, 3, BACKWARD_AUTO)),
                y = made_make(rig_graph(rig_tied), &rig_plain, 3, NULL, rig_request("1f1b", 7, 3, BACKWARD_AUTO));
    struct made z = made_make(rig_graph(rig_tied), &rig_plain, 3, NULL, rig_request("1f1b", 7, 2, BACKWARD_AUTO));
    plan_hash(x.p, a);
    plan_hash(y.p, b);
    plan_hash(z.p, c);
    ck_assert_str_eq(a, b);
    ck_assert_str_ne(a, c);
    made_free(&x); made_free(&y); made_free(&z);
}
END_TEST

/* They lie with whoever makes them until the step is over; the loss always is one, and the first. */
START_TEST(outputs_have_places)
{
    struct graph *g = rig_graph(rig_skip);
    int asked[] = {g->node[graph_node_find(g, "c")].out, g->loss, g->output};
    struct plan_request r = rig_request("1f1b", 8, 1, BACKWARD_SPLIT);
    struct text t = {0};
    r.output = asked;
    r.n_outputs = 3;
    struct made m = made_make(g, &rig_plain, 3, NULL, r);
    ck_assert_msg(m.p && m.p->n_outputs == 3, "%s", m.e.text);
    ck_assert(m.p->output[0].tensor == g->loss && m.p->output[1].tensor == asked[0] && m.p->output[2].stage == 2);
    for (int i = 0; i < 3; i++) ck_assert_int_eq(m.p->cls[m.p->output[i].at.cls].n_slots, 8);
    plan_print(m.p, &t);
    ck_assert(strstr(t.s, "output c rank 0 at slot/") && strstr(t.s, "output fc rank 2 at slot/"));
    text_free(&t);
    struct output *o = &m.p->output[1], was = *o;
    struct err e = {0};
    int other = 0;                                        /* slots that serve one micro-batch after another */
    while (m.p->cls[other].stage != was.stage || m.p->cls[other].n_slots == 8) other++;
    o->at.cls = (int16_t)other;
    ck_assert(plan_check(m.p, &e) && e.code == 70 && says(e.text, "output \"c\": micro-batch 0"));
    *o = was;
    o->rank = 2;
    e = (struct err){0};
    ck_assert(plan_check(m.p, &e) && says(e.text, "output \"c\""));
    *o = was;
    ck_assert(!plan_check(m.p, NULL));
    made_free(&m);
}
END_TEST

static void output_refused(const char *text, enum plan_mode mode, int node, const char *why)
{
    struct graph *g = rig_graph(text);
    struct plan_request r = rig_request(mode == PLAN_TRAIN ? "1f1b" : "forward", 4, 2, BACKWARD_AUTO);
    int asked = node >= 0 ? g->node[node].out : graph_input_first(g, ROLE_SAMPLE);
    r.mode = mode;
    r.output = &asked;
    r.n_outputs = node >= -1;
    struct made m = made_make(g, &rig_blocked, 1, NULL, r);
    ck_assert_msg(!m.p && m.e.code == 78 && says(m.e.text, why), "want \"%s\", got %d \"%s\"", why, m.e.code,
                  m.e.text);
    made_free(&m);
}

START_TEST(outputs_that_nobody_has_are_refused)
{
    static const char bare[] = "graph bare\ninput input 4\nfc = linear(input) features=3\noutput fc\n";
    output_refused(rig_skip, PLAN_TRAIN, -1, "\"input\" is an input of the network, not an output");
    output_refused(rig_small_resnet, PLAN_EVAL, 1, "\"bn1\"");
    output_refused(bare, PLAN_TRAIN, 0, "\"bare\"");
    output_refused(bare, PLAN_EVAL, -2, "\"bare\"");
}
END_TEST

START_TEST(too_many_micro_batches_are_refused)
{
    struct made m = made_make(rig_chain(1), &rig_plain, 1, NULL, rig_request("gpipe", 65536, 1, BACKWARD_AUTO));
    ck_assert(m.p == NULL && m.e.code == 78 && says(m.e.text, "more than 65535 micro-batches"));
    made_free(&m);
}
END_TEST

/* bn(t) + t: the gradients of both inputs are one tensor, which a fused kernel would write over. */
START_TEST(one_tensor_twice_is_not_fused)
{
    static const char form[] =
        "graph b\ninput input 4x8x8\nlabels labels class\nc = conv(input) channels=16 kernel=3 layer=Conv2d\n"
        "bn = batch_norm(c) layer=BatchNorm2d\nsum = add(bn, %s) layer=Add\nr = relu(sum) layer=ReLU\nfl = flatten(r)\n"
        "fc = linear(fl) features=3 layer=Linear\nloss = mse(fc, labels)\nloss loss\noutput fc\n";
    char text[600];
    snprintf(text, sizeof text, form, "c");
    struct made m = made_make(rig_graph(text), &rig_blocked, 1, NULL, rig_request("gpipe", 4, 2, BACKWARD_AUTO));
    ck_assert_msg(m.p != NULL, "%s", m.e.text);
    for (int i = 0; i < m.s->n_groups; i++) ck_assert_ptr_ne(m.s->group[i].pattern, &pattern_bn_add_relu);
    made_free(&m);
}
END_TEST

/* A rest of one sample, or a batch of one: only for the former another split helps. */
START_TEST(one_value_batch_norm_is_refused)
{
    static const char graph[] =
        "graph b\ninput input 4\nlabels labels class\nbn = batch_norm(input) layer=BatchNorm1d\n"
        "fc = linear(bn) features=3 layer=Linear\nloss = mse(fc, labels)\nloss loss\noutput fc\n";
    static const struct {
        int batch, split;
        const char *advice;
    } all[] = {{5, 2, "train.split_size"}, {1, 1, "train.batch_size"}};
    for (int i = 0; i < 2; i++) {
        struct made m =
            made_make(rig_graph(graph), &rig_plain, 1, NULL,
                      rig_request("gpipe", all[i].batch, all[i].split, BACKWARD_AUTO));
        ck_assert(m.p == NULL && m.e.code == 78 && says(m.e.text, "\"bn\"") && says(m.e.text, all[i].advice));
        made_free(&m);
    }
}
END_TEST

/* Frozen, it computes as in evaluation; with a weight that is trained it does not. */
START_TEST(frozen_batch_norm_sees_one_value)
{
    static const char graph[] = "graph b\ninput input 4\nlabels labels class\nfc = linear(input) features=3\n"
                                "bn = batch_norm(fc)\nloss = mse(bn, labels)\nfreeze bn.weight\n";
    char whole[sizeof graph + 32];
    for (int i = 0; i < 2; i++) {
        snprintf(whole, sizeof whole, "%s%s", graph, i ? "freeze bn.bias\n" : "");
        struct graph *g = rig_graph(whole);
        ck_assert(i == !plan_norm_of_one(g));
        struct made m = made_make(g, &rig_plain, 1, NULL, rig_request("gpipe", 5, i ? 1 : 2, BACKWARD_AUTO));
        ck_assert_msg(i == (m.p != NULL), "%s", m.e.text);
        made_free(&m);
    }
}
END_TEST

/* A cut must not change what is selected: groups, layouts and sizes come from the whole graph. */
START_TEST(fusion_patterns)
{
    struct graph *g = rig_graph(rig_small_resnet);
    struct selection *s = select_make(g, &rig_blocked, 4, NULL);
    int n[MAX_GROUP + 1] = {0}, nodes = 0;
    for (int i = 0; i < s->n_groups; i++) { n[s->group[i].n_nodes]++; nodes += s->group[i].n_nodes; }
    ck_assert_int_eq(n[2], 2);               /* bn1, a.bn1 */
    ck_assert_int_eq(n[3], 2);           /* a.bn2 + pool, b.bn1 + b.bnd */
    ck_assert_int_eq(nodes, g->n_nodes);
    select_free(s);
    graph_free(g);
}
END_TEST

/* ---- golden plans: MPSTAGED_GOLDEN=write makes them anew ------------------------------------- */

struct golden {
    const char *name, *graph; const struct device *dev; int stages;
    const char *schedule; enum backward_mode backward;
    const char *rows;
};
static const struct golden golden[] = {
    {"skip-4-gpipe", rig_skip, &rig_plain, 4, "gpipe", BACKWARD_AUTO},
    {"tied-3-1f1b", rig_tied, &rig_plain, 3, "1f1b", BACKWARD_AUTO},
    {"three-readers-2-naive", rig_three_readers, &rig_plain, 2, "naive", BACKWARD_SPLIT},
    {"mlp-1-1f1b", rig_mlp_dropout, &rig_plain, 1, "1f1b", BACKWARD_AUTO},
    {"skip-2-rows-short", rig_skip, &rig_plain, 2, "rows", BACKWARD_AUTO, /* three of five micro-batches */
     "rank 0: 0F0 0F1 0F2 0B0 0F3 0W0 0B1 0F4 0W1 0B2 0W2 0B3 0W3 0B4 0W4\n"
     "rank 1: 1F0 1B0 1F1 1B1 1W0 1F2 1B2 1W1 1F3 1B3 1W2 1F4 1B4 1W3 1W4\n"},
};

START_TEST(golden_plans)
{
    const struct golden *q = &golden[_i];
    const char *dir = getenv("srcdir");
    char path[512];
    struct text now = {0}, was = {0};
    struct err e = {0};
    struct plan_request want = rig_request(q->schedule, 7, 3, q->backward);
    want.rows = q->rows;
    want.rows_micro = q->rows ? 5 : 0;
    struct made m = made_make(rig_graph(q->graph), q->dev, q->stages, NULL, want);
    ck_assert_msg(m.p != NULL, "%s", m.e.text);
    plan_print(m.p, &now);
    snprintf(path, sizeof path, "%s/tests/golden/%s.plan", dir ? dir : ".", q->name);
    if (getenv("MPSTAGED_GOLDEN")) {
        FILE *f = fopen(path, "w");
        ck_assert(f && fwrite(now.s, 1, now.n, f) == now.n && !fclose(f));
    }
    ck_assert_msg(!text_read_file(&was, path, 1 << 20, &e), "%s", e.text);
    ck_assert_msg(!strcmp(now.s, was.s), "%s: the plan changed; it is now:\n%s", path, now.s);
    text_free(&now); text_free(&was);
    made_free(&m);
}
END_TEST

int main(void)
{
    TCase *t = suite_case("plan", 120);
    tcase_add_test(t, slots_do_not_overlap);
    tcase_add_test(t, memory_follows_the_schedule);
    tcase_add_test(t, batch_norm_gradients_in_place);
    tcase_add_test(t, plans_are_pure);
    tcase_add_test(t, outputs_have_places);
    tcase_add_test(t, outputs_that_nobody_has_are_refused);
    tcase_add_test(t, too_many_micro_batches_are_refused);
    tcase_add_test(t, one_value_batch_norm_is_refused);
    tcase_add_test(t, frozen_batch_norm_sees_one_value);
    tcase_add_test(t, one_tensor_twice_is_not_fused);
    tcase_add_test(t, fusion_patterns);
    tcase_add_loop_test(t, golden_plans, 0, sizeof golden / sizeof *golden);
    return suite_run("plan", CK_FORK, t);
}
