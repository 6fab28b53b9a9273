/* The executor: the same bits from every cut, schedule and transport timing; what must change the bits does; steps
 * allocate nothing. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "plan/cost.h"
#include "rig.h"
#include "sure.h"

enum { STAGES_STEP = IS_SANITIZED ? 2 : 1 };
static const char *const schedules[] = {"naive", "gpipe", "1f1b"};
static const char *const backwards[] = {"auto", "joined", "split"};

/* Seven samples of synthetic data in micro-batches of 3, 3 and 1... batch norm needs more than one value a channel,
 * images give them. */
#define TRAIN \
    "train { batch_size = 7 split_size = 3 steps = 3 loss = \"%s\" learning_rate = 0.05 weight_decay = 0.01 %s %s }\n"
#define DATA "data { source = \"synthetic\" labels = \"%s\" samples = 50 test_samples = 5 }\n"

/* narrow: the graph for the reference kernels, which are slow; NULL: the same. optimizer: NULL: sgd with momentum. */
struct model_case { const char *name, *input, *graph, *labels, *loss, *more, *narrow, *optimizer; };
static const struct model_case models[] = {
    {"mlp with dropout", "input = {6} classes = 4", rig_mlp_dropout, "class", "cross_entropy", ""},
    {"small resnet with batch norm", "input = {3, 8, 8} classes = 5", rig_small_resnet, "onehot", "mse", "",
     rig_narrow_resnet},
    {"skip over two stages", "input = {6} classes = 4", rig_skip, "class", "cross_entropy", ""},
    {"tied weight", "input = {6} classes = 6", rig_tied, "class", "cross_entropy", ""},
    {"tensor with three readers", "input = {6} classes = 4", rig_three_readers, "class", "cross_entropy", ""},
    {"tied weight, clipped", "input = {6} classes = 6", rig_tied, "class", "cross_entropy", "clip_norm = 0.05"},
    {"small resnet, deferred statistics", "input = {3, 8, 8} classes = 5", rig_small_resnet, "class", "cross_entropy",
     "batch_norm = \"deferred\"", rig_narrow_resnet},
    {"tied weight, adamw", "input = {6} classes = 6", rig_tied, "class", "cross_entropy", "clip_norm = 0.05", NULL,
     "optimizer = adamw"},
    {"embedding, tied", "input = {3, 4} classes = 9", rig_words, "class", "cross_entropy", ""},
};
static const char *graph_for(const struct model_case *m, const char *backend)
{
    return m->narrow && !strcmp(backend, "reference") ? m->narrow : m->graph;
}

enum { N_MODELS = sizeof models / sizeof *models };

static char *conf_text(const struct model_case *m, int seed)
{
    static char s[2048];
    int n = snprintf(s, sizeof s, "run { name = \"t\" seed = %d }\nmodel { %s }\n", seed, m->input);
    n += snprintf(s + n, sizeof s - (size_t)n, DATA, m->labels);
    snprintf(s + n, sizeof s - (size_t)n, TRAIN, m->loss,
             m->optimizer ? m->optimizer : "momentum = 0.9", m->more);
    return s;
}

static void run_ok(const struct rig *q, struct rig_result *r)
{
    ck_assert_msg(!rig_run(q, r), "%s, %d stages: %s", q->schedule, q->n_stages, r->e.text);
}

/* An uneven cut: the first stage gets one group, the rest is spread. */
static void cut_uneven(int n_groups, int n_stages, int *cut)
{
    for (int i = 0; i <= n_stages; i++)
        cut[i] = i == 0 ? 0 : i == n_stages ? n_groups : 1 + (i - 1) * (n_groups - 1) / (n_stages - 1);
}

static void bits_on(const struct model_case *m, const char *backend)
{
    struct rig q = {.conf = conf_text(m, 1),
                    .graph = graph_for(m, backend),
                    .backend = backend,
                    .n_stages = 1,
                    .schedule = "naive",
                    .steps = 3,
                    .evaluate = true};
    struct rig_result one, r;
    run_ok(&q, &one);
    ck_assert(isfinite(one.loss[2]) && one.loss[2] != one.loss[0]);
    for (int p = 1; p <= 4; p += STAGES_STEP)
        for (int k = 0; k < 3; k++)
            for (int uneven = 0; uneven < (p > 1 ? 2 : 1); uneven++) {
                int cut[5];
                cut_uneven(one.n_groups, p, cut);
                q.n_stages = p;
                q.first_group = uneven ? cut : NULL;
                q.schedule = schedules[k];
                q.backward = backwards[(k + p + uneven) % 3];
                run_ok(&q, &r);
                ck_assert_msg(!strcmp(r.hash, one.hash), "%s on %s: %d stages%s, %s, %s: other weights", m->name,
                              backend, p, uneven ? " (uneven)" : "", q.schedule, q.backward);
                for (int i = 0; i < 3; i++) ck_assert(r.loss[i] == one.loss[i]);
                ck_assert(r.eval_loss == one.eval_loss && r.eval_top1 == one.eval_top1 && r.eval_samples == 5);
                ck_assert(r.grad_norm == one.grad_norm);
            }
}

START_TEST(bits_reference) { bits_on(&models[_i], "reference"); }
END_TEST
START_TEST(bits_onednn) { bits_on(&models[_i], "onednn"); }
END_TEST

/* Recomputed or kept: all groups, and parts of blocks in three patterns. */
static void recompute_on(const struct model_case *m, const char *backend)
{
    static const unsigned patterns[] = {0xff, 0x55, 0x3c, 0xe1};
    struct rig q = {.conf = conf_text(m, 1),
                    .graph = graph_for(m, backend),
                    .backend = backend,
                    .n_stages = 1,
                    .schedule = "gpipe",
                    .steps = 3,
                    .evaluate = true};
    struct rig_result one, r;
    int recomputed = 0;
    run_ok(&q, &one);
    for (int p = 1; p <= 4; p += STAGES_STEP)
        for (int k = 0; k < 3; k++)
            for (int i = 0; i < 4; i++) {
                q.n_stages = p;
                q.schedule = schedules[k];
                q.backward = backwards[(k + p + i) % 3];
                q.recompute = patterns[i];
                run_ok(&q, &r);
                recomputed += r.recomputed;
                ck_assert_msg(!strcmp(r.hash, one.hash), "%s on %s: %d stages, %s, %s, recomputing %x: other weights",
                              m->name, backend, p, q.schedule, q.backward, q.recompute);
                ck_assert(r.loss[2] == one.loss[2] && r.eval_loss == one.eval_loss && r.grad_norm == one.grad_norm);
            }
    ck_assert_int_gt(recomputed, 0);
}

START_TEST(recompute_reference) { recompute_on(&models[_i], "reference"); }
END_TEST
START_TEST(recompute_onednn) { recompute_on(&models[_i], "onednn"); }
END_TEST

/* Micro-batches that go through the pipeline two, three, or all together; the last bundle is smaller, and so is its
 * last micro-batch. */
static void bundles_on(const struct model_case *m, const char *backend)
{
    static const int bundles[] = {2, 3, 4, 7, 9};
    char whole[2048];
    snprintf(whole, sizeof whole, "%s", conf_text(m, 1));
    char *at = strstr(whole, "batch_size = 7");
    ck_assert(at != NULL);
    memcpy(at, "batch_size =20", strlen("batch_size = 7"));   /* micro-batches of 3, the last of 2 */
    struct rig q = {.conf = whole,
                    .graph = graph_for(m, backend),
                    .backend = backend,
                    .n_stages = 1,
                    .schedule = "naive",
                    .steps = 3,
                    .evaluate = true};
    struct rig_result one, r;
    run_ok(&q, &one);
    for (int p = 1; p <= 3; p += STAGES_STEP)
        for (int i = 0; i < 5; i++) {
            q.n_stages = p;
            q.bundle = bundles[i];
            q.schedule = schedules[(p + i) % 3];
            q.backward = backwards[(p + i / 2) % 3];
            q.recompute = i == 3 ? 0x55 : 0;
            run_ok(&q, &r);
            ck_assert_msg(!strcmp(r.hash, one.hash), "%s on %s: %d stages, %s, %s, bundles of %d: other weights",
                          m->name, backend, p, q.schedule, q.backward, q.bundle);
            ck_assert(r.loss[0] == one.loss[0] && r.loss[2] == one.loss[2] && r.eval_loss == one.eval_loss &&
                      r.grad_norm == one.grad_norm);
        }
}

START_TEST(bundles_reference) { bundles_on(&models[_i], "reference"); }
END_TEST
START_TEST(bundles_onednn) { bundles_on(&models[_i], "onednn"); }
END_TEST

/* W of several micro-batches: the gradients have the bits of single ones, on every stage. */
static void many_on(const struct model_case *m, const char *backend)
{
    char whole[2048];
    snprintf(whole, sizeof whole, "%s", conf_text(m, 1));
    char *at = strstr(whole, "batch_size = 7");
    ck_assert(at != NULL);
    memcpy(at, "batch_size =20", strlen("batch_size = 7"));   /* micro-batches of 3, the last of 2 */
    struct rig q = {.conf = whole,
                    .graph = graph_for(m, backend),
                    .backend = backend,
                    .n_stages = 1,
                    .schedule = "naive",
                    .steps = 3};
    struct rig_result one, r;
    run_ok(&q, &one);
    for (int i = 0; i < 8; i++) {
        enum { MICRO = 7 };
        struct sched rows;
        int n = i % 4 + 2;
        q.n_stages = 1 + i % 3;
        q.schedule = schedules[i / 2 % 3];
        q.backward = backwards[i % 3];
        q.recompute = i == 3 || i == 6 ? 0x55 : 0;
        q.bundle = 1 + (i == 5);
        rig_rows_many(q.schedule, q.n_stages, q.bundle > 1 ? (MICRO + 1) / 2 : MICRO, n, &rows);
        q.rows = &rows;
        run_ok(&q, &r);
        ck_assert_msg(!strcmp(r.hash, one.hash), "%s on %s: %d stages, %s, W of %d: other weights", m->name, backend,
                      q.n_stages, q.schedule, n);
        ck_assert(r.loss[2] == one.loss[2] && r.grad_norm == one.grad_norm);
        sched_free(&rows);
    }
}

START_TEST(many_reference) { many_on(&models[_i], "reference"); }
END_TEST
START_TEST(many_onednn) { many_on(&models[_i], "onednn"); }
END_TEST

/* Several stages a rank: as one stage, also what is recomputed, bundled or evaluated, and with W of several. */
static void maps_on(const struct model_case *m, const char *backend)
{
    static const struct { int stages, ranks, rank_of[6]; } maps[] = {
        {4, 2, {0, 1, 0, 1}}, {4, 2, {0, 1, 1, 0}}, {4, 2, {0, 0, 1, 1}}, {6, 2, {0, 1, 0, 1, 0, 1}},
        {6, 3, {0, 1, 2, 2, 1, 0}}, {6, 2, {0, 0, 0, 1, 1, 1}}, {3, 1, {0, 0, 0}}, {5, 2, {1, 0, 0, 1, 0}},
    };
    enum { MAPS = sizeof maps / sizeof *maps };
    char whole[2048];
    snprintf(whole, sizeof whole, "%s", conf_text(m, 1));
    char *at = strstr(whole, "batch_size = 7");
    ck_assert(at != NULL);
    memcpy(at, "batch_size =20", strlen("batch_size = 7"));   /* micro-batches of 3, the last of 2 */
    struct rig q = {.conf = whole,
                    .graph = graph_for(m, backend),
                    .backend = backend,
                    .n_stages = 1,
                    .schedule = "naive",
                    .steps = 3,
                    .evaluate = true};
    struct rig_result one, r;
    run_ok(&q, &one);
    for (int i = 0; i < 2 * MAPS; i++) {
        struct sched rows;
        q.n_stages = maps[i % MAPS].stages;
        q.n_ranks = maps[i % MAPS].ranks;
        q.rank_of = maps[i % MAPS].rank_of;
        q.schedule = schedules[i / MAPS ^ (i & 1)];
        q.backward = backwards[i % 3];
        q.recompute = i % 4 == 1 ? 0x55 : i % 4 == 2 ? 0xff : 0;
        q.bundle = i % 5 == 4 ? 2 : 1;
        q.delay_us = i % 3 ? 0 : 100;
        q.rows = NULL;
        if (i % 4 == 3) rig_rows_of(&q, q.bundle > 1 ? 4 : 7, 2 + i % 3, &rows);   /* W of several */
        if (i % 4 == 3) q.rows = &rows;
        run_ok(&q, &r);
        if (q.rows) sched_free(&rows);
        ck_assert_msg(!strcmp(r.hash, one.hash), "%s on %s: map %d, %s, %s: other weights", m->name, backend,
                      i % MAPS, q.schedule, q.backward);
        ck_assert(r.loss[0] == one.loss[0] && r.loss[2] == one.loss[2] && r.grad_norm == one.grad_norm);
        ck_assert(r.eval_loss == one.eval_loss && r.eval_top1 == one.eval_top1 && r.eval_samples == 5);
    }
}

START_TEST(maps_reference) { maps_on(&models[_i], "reference"); }
END_TEST
START_TEST(maps_onednn) { maps_on(&models[_i], "onednn"); }
END_TEST

/* The plan's ranks on other ranks of the transport: in another order with one left over, and two runs of one plan side
 * by side. Models without clipping: norms are summed over all ranks that the transport has. */
START_TEST(ranks_are_mapped)
{
    static const struct { int copies, n_tp, seat[4]; } all[] = {
        {1, 3, {2, 0}}, {2, 4, {0, 1, 2, 3}}, {2, 4, {3, 1, 0, 2}}, {2, 5, {4, 0, 3, 2}}};
    const struct model_case *m = &models[_i];
    struct rig q = {.conf = conf_text(m, 1),
                    .graph = graph_for(m, "reference"),
                    .backend = "reference",
                    .n_stages = 1,
                    .schedule = "naive",
                    .steps = 3};
    struct rig_result one, r;
    run_ok(&q, &one);
    for (int i = 0; i < 4; i++) {
        q.n_stages = 2;
        q.schedule = schedules[i % 3];
        q.copies = all[i].copies;
        q.n_tp = all[i].n_tp;
        q.seat = all[i].seat;
        run_ok(&q, &r);
        for (int k = 0; k < q.copies; k++) ck_assert_str_eq(r.copy_hash[k], one.hash);
        ck_assert(r.loss[2] == one.loss[2]);
    }
}
END_TEST

/* A partition may leave ranks without layers, at either end and between. */
START_TEST(ranks_without_layers)
{
    const struct model_case *m = &models[2];
    struct rig q = {.conf = conf_text(m, 1),
                    .graph = m->graph,
                    .backend = "reference",
                    .n_stages = 1,
                    .schedule = "naive",
                    .steps = 3,
                    .evaluate = true};
    struct rig_result one, r;
    run_ok(&q, &one);
    int n = one.n_groups, cuts[][5] = {{0, n, n, n, n}, {0, 0, 0, 0, n}, {0, 0, n / 2, n / 2, n}};
    for (int i = 0; i < 9; i++) {
        q.n_stages = 4;
        q.first_group = cuts[i / 3];
        q.schedule = schedules[i % 3];
        run_ok(&q, &r);
        ck_assert_str_eq(r.hash, one.hash);
        ck_assert(r.loss[2] == one.loss[2] && r.eval_loss == one.eval_loss && r.eval_samples == one.eval_samples);
    }
}
END_TEST

START_TEST(bits_delays)
{
    const struct model_case *m = &models[2];
    struct rig q = {.conf = conf_text(m, 1),
                    .graph = m->graph,
                    .backend = "reference",
                    .n_stages = 1,
                    .schedule = "gpipe",
                    .steps = 3};
    struct rig_result one, r;
    run_ok(&q, &one);
    q.n_stages = 4;
    q.delay_us = 300;
    for (int k = 0; k < 3; k++) {
        q.schedule = schedules[k];
        run_ok(&q, &r);
        ck_assert_str_eq(r.hash, one.hash);
    }
}
END_TEST

START_TEST(bits_change)
{
    const struct model_case *m = &models[1];          /* batch statistics make the split size show at once */
    struct rig q = {.conf = conf_text(m, 1),
                    .graph = m->graph,
                    .backend = "reference",
                    .n_stages = 2,
                    .schedule = "1f1b",
                    .steps = 3};
    struct rig_result one, r;
    run_ok(&q, &one);
    q.conf = conf_text(m, 2);
    run_ok(&q, &r);
    ck_assert_msg(strcmp(r.hash, one.hash), "another seed gave the same weights");
    char other[2048];
    snprintf(other, sizeof other, "%s", conf_text(m, 1));
    char *at = strstr(other, "split_size = 3");
    ck_assert(at != NULL);
    at[strlen("split_size = ")] = '4';
    q.conf = other;
    run_ok(&q, &r);
    ck_assert_msg(strcmp(r.hash, one.hash), "another split size gave the same weights");
}
END_TEST

/* Every nanosecond between entry and return belongs to exactly one part. */
START_TEST(account_adds_up)
{
    const struct model_case *m = &models[1];
    struct rig q = {.conf = conf_text(m, 1),
                    .graph = m->graph,
                    .backend = "reference",
                    .n_stages = 3,
                    .schedule = "1f1b",
                    .steps = 2};
    struct rig_result r;
    run_ok(&q, &r);
    for (int i = 0; i < 3; i++) {
        uint64_t sum = 0;
        for (int k = 0; k < ACC_COUNT; k++) sum += r.last[i].ns[k];
        ck_assert(sum == r.last[i].total_ns);
        ck_assert(r.last[i].ns[ACC_FORWARD] > 0 && r.last[i].ns[ACC_WEIGHT_GRAD] + r.last[i].ns[ACC_INPUT_GRAD] > 0);
    }
}
END_TEST

/* Where the account of the last step books the delay otherwise than a slow link into rank 1 should be booked: NULL when
 * nowhere. */
static const char *booked_elsewhere(const struct rig_result *r, uint64_t delay)
{
    static char text[96];
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < ACC_COUNT; k++) {
            bool here = k == (i ? ACC_TRANSFER : ACC_WAIT_DOWN);     /* upstream of the link: waits for the gradient */
            uint64_t ns = r->last[i].ns[k];
            if (here ? ns >= delay - delay / 4 : ns < delay / 2) continue;
            snprintf(text, sizeof text, "%s, %s: %llu ns of a delay of %llu", i ? "receiver" : "sender",
                     account_name[k], (unsigned long long)ns, (unsigned long long)delay);
            return text;
        }
    return NULL;
}

/* A slow link is the receiver's transfer time: not its waiting, not its work, and nobody else's transfer. One
 * micro-batch, so nothing hides it. On a busy machine any part can last as long as a short delay, so the delay grows
 * until one run shows it cleanly: what is booked in the wrong place is there in every run, however long the delay. */
START_TEST(account_of_a_slow_link)
{
    const struct model_case *m = &models[1];
    struct rig q = {.conf = conf_text(m, 1),
                    .graph = m->graph,
                    .backend = "reference",
                    .n_stages = 2,
                    .schedule = "naive",
                    .steps = 2,
                    .late = 1};
    char whole[2048];
    struct rig_result r;
    snprintf(whole, sizeof whole, "%s", conf_text(m, 1));
    char *at = strstr(whole, "split_size = 3");
    ck_assert(at != NULL);
    at[strlen("split_size = ")] = '7';
    q.conf = whole;
    const char *wrong = "not run";
    for (uint64_t run = 0, delay = 250000000; run < 12 && wrong; run++, delay *= run % 3 ? 1 : 2) {
        q.late_us = (int)(delay / 1000);
        run_ok(&q, &r);
        wrong = booked_elsewhere(&r, delay);
    }
    ck_assert_msg(!wrong, "%s", wrong);
}
END_TEST

/* ---- outputs --------------------------------------------------------------------------------- */

/* Asked for by name, in training and in evaluation: the same bits from every cut, and nothing else changes. */
static void outputs_on(const char *backend, const struct model_case *m, const char *const *name)
{
    static const unsigned patterns[] = {0, 0xff, 0x55};
    struct rig q = {.conf = conf_text(m, 1), .graph = graph_for(m, backend), .backend = backend, .n_stages = 1,
                    .schedule = "naive", .steps = 3, .evaluate = true};
    struct rig_result none, one, r;
    run_ok(&q, &none);
    memcpy(q.output, name, sizeof q.output);
    run_ok(&q, &one);
    ck_assert_str_eq(one.hash, none.hash);
    for (int p = 1; p <= 3; p++)
        for (int k = 0; k < 9; k++) {
            q.n_stages = p;
            q.schedule = schedules[k % 3];
            q.backward = backwards[(k + p) % 3];
            q.recompute = patterns[k / 3];
            q.bundle = k / 3;
            run_ok(&q, &r);
            ck_assert_str_eq(r.hash, one.hash);
            for (int i = 0; i < 6; i++) {
                size_t n = one.value[i / 3][i % 3].n;
                ck_assert_msg(n > 0 && n == r.value[i / 3][i % 3].n &&
                              !memcmp(r.value[i / 3][i % 3].x, one.value[i / 3][i % 3].x, n * sizeof(float)),
                              "%s on %s: %d stages, %s: another \"%s\"", m->name, backend, p, q.schedule, name[i % 3]);
            }
            rig_free(&r);
        }
    for (int i = 0; i < 2 && !strcmp(name[1], "relu1"); i++)   /* of fc1 */
        for (size_t k = 0; k < one.value[i][0].n; k++)
            ck_assert(one.value[i][1].x[k] == fmaxf(one.value[i][0].x[k], 0));
    rig_free(&one);
}

static const char *const inner[][3] = {{"fc1", "relu1", "fc3"}, {"pool", "a.relu2", "fc"}};

START_TEST(outputs_reference) { outputs_on("reference", &models[_i], inner[_i]); }
END_TEST
START_TEST(outputs_onednn) { outputs_on("onednn", &models[_i], inner[_i]); }
END_TEST

/* What a network computes without a loss is what it computes with one; such a network is not trained. */
START_TEST(outputs_without_a_loss)
{
    char text[1024];
    const char *loss = strstr(rig_skip, "loss = "), *labels = strstr(rig_skip, "labels labels"),
               *rest = strchr(labels, '\n') + 1;
    struct rig q = {.conf = conf_text(&models[2], 1), .graph = rig_skip, .backend = "onednn", .n_stages = 1,
                    .schedule = "1f1b", .evaluate = true, .output = {"g", "fc"}};
    struct rig_result with, r;
    snprintf(text, sizeof text, "%.*s%.*soutput fc\n", (int)(labels - rig_skip), rig_skip, (int)(loss - rest), rest);
    run_ok(&q, &with);
    q.graph = text;
    q.no_loss = true;
    for (q.n_stages = 1; q.n_stages <= 3; q.n_stages++) {
        run_ok(&q, &r);
        ck_assert_int_eq(r.eval_samples, 5);
        for (int k = 0; k < 2; k++) {
            size_t n = with.value[1][k].n;
            ck_assert(n && n == r.value[1][k].n && !memcmp(r.value[1][k].x, with.value[1][k].x, n * sizeof(float)));
        }
        rig_free(&r);
    }
    rig_free(&with);
}
END_TEST

/* ---- scores ---------------------------------------------------------------------------------- */

/* A mean squared error of the targets that are at least 0, and how many they are; a score of two more columns, and one
 * that the samples' weights divide. */
static void masked_forward(const struct op_call *c)
{
    int64_t count = shape_count(&c->g->tensor[c->node->in[0]].shape);
    for (int n = 0; n < c->n; n++) {
        double *out = (double *)c->out + 5 * n;
        const float *x = (const float *)c->in[0] + n * count, *y = (const float *)c->in[1] + n * count;
        memset(out, 0, 5 * sizeof *out);
        for (int64_t i = 0; i < count; i++) {
            if (y[i] >= 0) out[1]++, out[0] += (x[i] - y[i]) * (double)(x[i] - y[i]);
            out[2] += 2 * fabs((double)x[i] * y[i]);
            out[3] += (double)x[i] * x[i] + (double)y[i] * y[i];
            out[4] += x[i];
        }
    }
}
static void masked_backward(const struct op_call *c)
{
    int64_t count = shape_count(&c->g->tensor[c->node->in[0]].shape) * c->n;
    const float *x = c->in[0], *y = c->in[1];
    for (int64_t i = 0; i < count; i++)
        ((float *)c->gin[0])[i] = y[i] >= 0 ? (float)(2 * (x[i] - y[i]) * c->block->inv_weight) : 0;
}

static const struct score_row masked_rows[] = {{"loss", 0, 1}, {"dice", 2, 3}, {"sum", 4, -1}, {0}};
static struct op_kind masked;

static void use_masked(struct graph *g)
{
    struct node *n = &g->node[g->tensor[g->loss].producer];
    masked = *n->op;
    masked.rows = masked_rows;
    masked.forward = masked_forward;
    masked.backward_data = masked_backward;
    n->op = &masked;
    g->tensor[g->loss].shape.d[0] = 5;
}

static double weight_of(const struct ds *d, uint64_t index) { return 0.1 * (double)(1 + index % 5); }
static double weight_two(const struct ds *d, uint64_t index) { return 2; }

static const struct model_case masked_case = {"masked", "input = {6} classes = 4", NULL, "vector", "mse", ""};

/* A text without a loss of its own gets the configured one, with a target as long as the output. */
static const char *masked_graph(void)
{
    static char text[1024];
    const char *labels = strstr(rig_mlp_dropout, "labels labels"), *loss = strstr(rig_mlp_dropout, "loss = "),
               *rest = strchr(labels, '\n') + 1;
    snprintf(text, sizeof text, "%.*s%.*soutput fc3\n", (int)(labels - rig_mlp_dropout), rig_mlp_dropout,
             (int)(loss - rest), rest);
    return text;
}

/* Sums of the first step and of an evaluation: however the batch is split and the network is cut. */
START_TEST(scores_of_every_split)
{
    char text[2048];
    snprintf(text, sizeof text, "%s", conf_text(&masked_case, 1));
    char *at = strstr(text, "split_size = 3") + strlen("split_size = ");
    struct rig q = {.conf = text, .graph = masked_graph(), .backend = "reference", .n_stages = 1, .schedule = "1f1b",
                    .evaluate = true, .change = use_masked, .weight = weight_of};
    struct rig_result eval, step, r;
    double weight[2] = {0, 0};
    run_ok(&q, &eval);
    q.steps = 1;
    run_ok(&q, &step);
    for (uint64_t i = 0; i < 7; i++) weight[0] += weight_of(NULL, i), weight[1] += i < 5 ? weight_of(NULL, i) : 0;
    ck_assert(step.score[2].denominator == weight[0] && eval.eval_score[2].denominator == weight[1]);
    ck_assert(step.score[0].denominator > 0 && step.score[0].denominator < 28 && step.score[1].denominator > 0);
    for (int split = 1; split <= 7; split++)
        for (q.n_stages = 1; q.n_stages <= 3; q.n_stages++) {
            *at = (char)('0' + split);
            q.steps = 0;
            run_ok(&q, &r);
            ck_assert(!memcmp(r.eval_score, eval.eval_score, sizeof r.eval_score));
            q.steps = 1;
            run_ok(&q, &r);
            ck_assert_msg(!memcmp(r.score, step.score, sizeof r.score), "split %d, %d stages", split, q.n_stages);
        }
}
END_TEST

/* A score operator apart from the loss, which nobody reads: it takes the place of a node that `last` read. */
static void top_forward(const struct op_call *c)
{
    const float *x = c->in[0];
    for (int n = 0; n < c->n; n++) ((double *)c->out)[n] = fmaxf(fmaxf(x[4 * n], x[4 * n + 1]), x[4 * n + 2]);
}
static const struct score_row top_rows[] = {{"top", 0, -1}, {0}};
static struct op_kind top;

static void use_top(struct graph *g)
{
    struct node *score = &g->node[graph_node_find(g, "score")], *last = &g->node[graph_node_find(g, "last")];
    struct tensor *t = &g->tensor[score->out];
    top = *score->op;
    top = (struct op_kind){.name = top.name, .text = "", .min_in = 1, .max_in = 1, .infer = top.infer,
                           .rows = top_rows, .forward = top_forward};
    score->op = &top;
    last->op = op_find("relu");
    last->n_in = 1;
    t->type = F64;
    t->shape = (struct shape){1, {1}};
    t->n_readers = 0;
    t->needs_grad = false;
}

START_TEST(scores_beside_the_loss)
{
    static const char tail[] = "score = relu(fc3)\nlast = add(fc3, score)\noutput last\n";
    struct text graph = {0};
    const char *end = strstr(masked_graph(), "output fc3");
    text_add(&graph, "%.*s%s", (int)(end - masked_graph()), masked_graph(), tail);
    struct rig q = {.conf = conf_text(&models[0], 1), .graph = graph.s, .backend = "reference", .n_stages = 1,
                    .schedule = "1f1b", .steps = 2, .change = use_top, .output = {"fc3"}};
    struct rig_result one, r;
    double sum = 0;
    run_ok(&q, &one);
    for (int n = 0; n < 7; n++) {
        const float *x = one.value[0][0].x + 4 * n;
        sum += fmaxf(fmaxf(x[0], x[1]), x[2]);
    }
    ck_assert(one.score[3].numerator == sum && one.score[3].denominator == 7 && one.score[0].denominator == 7);
    for (q.n_stages = 2; q.n_stages <= 4; q.n_stages++) {
        run_ok(&q, &r);
        ck_assert(!strcmp(r.hash, one.hash) && !memcmp(r.score, one.score, sizeof r.score));
        rig_free(&r);
    }
    rig_free(&one);
    text_free(&graph);
}
END_TEST

/* Twice the weight of every sample is half the gradient: which twice the learning rate makes up for, to the bit. */
START_TEST(weights_divide_gradients)
{
    char text[2048];
    snprintf(text, sizeof text, "%s", conf_text(&masked_case, 1));
    char *rate = strstr(text, "learning_rate = 0.05"), *decay = strstr(text, "weight_decay = 0.01");
    char *momentum = strstr(text, "momentum = 0.9");
    struct rig q = {.conf = text, .graph = masked_graph(), .backend = "reference", .n_stages = 2, .schedule = "1f1b",
                    .steps = 3};
    struct rig_result ones, twos, same;
    ck_assert(rate && decay && momentum);
    memcpy(decay, "weight_decay = 0.00", 19);
    memcpy(momentum, "momentum = 0.0", 14);
    run_ok(&q, &ones);
    q.weight = weight_two;
    run_ok(&q, &same);
    memcpy(rate, "learning_rate = 0.10", 20);
    run_ok(&q, &twos);
    ck_assert_str_eq(ones.hash, twos.hash);
    ck_assert_str_ne(ones.hash, same.hash);
    ck_assert(ones.loss[2] == 2 * twos.loss[2]);
}
END_TEST

/* Every rank has the same costs: each kernel's time, from whoever ran it, raised so that all of them add up to what
 * kernels took; the slowest link. */
START_TEST(costs_of_profiled_steps)
{
    enum { STAGES = 3, MICRO = 3, STEPS = 4 };
    char text[2048];
    snprintf(text, sizeof text, "%s", conf_text(&models[1], 1));
    char *at = strstr(text, "batch_size = 7");
    ck_assert(at != NULL);
    at[strlen("batch_size = ")] = '9';
    struct rig q = {.conf = text,
                    .graph = rig_small_resnet,
                    .backend = "onednn",
                    .n_stages = STAGES,
                    .schedule = "1f1b",
                    .steps = STEPS,
                    .profile = true,
                    .late = STAGES - 1,
                    .late_us = 2000};
    struct rig_result r;
    double took = 0, cells = 0;
    run_ok(&q, &r);
    const struct cost *k = r.cost[0];
    int n = PH_COUNT * k->n_groups;
    for (int i = 0; i < STAGES; i++) {
        took += r.kernels_ns[i];
        ck_assert(r.spells[i] == r.spells[0] && !memcmp(r.cost[i]->ns, k->ns, (size_t)n * sizeof *k->ns));
        ck_assert(r.cost[i]->load_ns == k->load_ns && r.cost[i]->optimizer_ns_per_byte == k->optimizer_ns_per_byte);
        ck_assert(r.cost[i]->busy_ns_per_byte == k->busy_ns_per_byte && r.cost[i]->latency_ns == k->latency_ns);
        ck_assert(r.cost[i]->bytes_per_ns == k->bytes_per_ns);
    }
    for (int i = 0; i < n; i++) cells += k->ns[i];
    ck_assert_msg(fabs(cells * MICRO * STEPS / took - 1) < 1e-9, "%g of %g", cells * MICRO * STEPS, took);
    for (int g = 0; g < k->n_groups; g++) ck_assert(*cost_cell(k, 0, PH_FWD, g) > 0);
    ck_assert(k->load_ns > 0 && k->optimizer_ns_per_byte > 0 && k->busy_ns_per_byte > 0 && k->bytes_per_ns > 0);
    ck_assert_msg(k->latency_ns >= 1e6, "%g ns", k->latency_ns);   /* half of a trip that is late one way */
    for (int i = 0; i < STAGES; i++) cost_free(r.cost[i]);
}
END_TEST

int main(void)
{
    TCase *t = suite_case("bits", 240);
    tcase_add_loop_test(t, bits_reference, 0, N_MODELS);
    tcase_add_loop_test(t, bits_onednn, 0, N_MODELS);
    tcase_add_loop_test(t, recompute_reference, 0, N_MODELS);
    tcase_add_loop_test(t, recompute_onednn, 0, N_MODELS);
    tcase_add_loop_test(t, bundles_reference, 0, N_MODELS);
    tcase_add_loop_test(t, bundles_onednn, 0, N_MODELS);
    tcase_add_loop_test(t, many_reference, 0, N_MODELS);
    tcase_add_loop_test(t, many_onednn, 0, N_MODELS);
    tcase_add_loop_test(t, outputs_reference, 0, 2);
    tcase_add_loop_test(t, outputs_onednn, 0, 2);
    tcase_add_test(t, outputs_without_a_loss);
    tcase_add_test(t, scores_of_every_split);
    tcase_add_test(t, scores_beside_the_loss);
    tcase_add_test(t, weights_divide_gradients);
    tcase_add_loop_test(t, maps_reference, 0, N_MODELS);
    tcase_add_loop_test(t, maps_onednn, 0, N_MODELS);
    tcase_add_test(t, ranks_without_layers);
    tcase_add_loop_test(t, ranks_are_mapped, 0, 5);
    tcase_add_test(t, bits_delays);
    tcase_add_test(t, bits_change);
    tcase_add_test(t, account_adds_up);
    tcase_add_test(t, account_of_a_slow_link);
    tcase_add_test(t, costs_of_profiled_steps);
    return suite_run("exec", CK_NOFORK, t);
}
