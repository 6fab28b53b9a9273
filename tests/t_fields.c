/* Graph inputs of several types, filled from the fields of a data set. Each stage gets what it reads, for any cut and
 * any number of stages per rank. A rank reads a field of a micro-batch once, and no field that its stages do not load.
 * Samples that are read again are marked. The operator and the data set are this test's own. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "backend/be.h"
#include "data/ds.h"
#include "model/op.h"
#include "rig.h"
#include "sure.h"

enum { N = 6, M = 5, COUNT = 8, TESTS = 5, BATCH = 6, SPLIT = 4, STEPS = 4, VISITS = 3 };

/* ---- data: functions of sample and visit ------------------------------------------------------------------------- */

static int32_t index_at(int64_t sample, int j) { return (int32_t)((sample * 3 + j * 2) % N); }
static uint8_t mask_at(int64_t sample, uint64_t visit, int j) { return (uint8_t)(visit * 16 + ((sample >> j) & 1)); }

enum { F_TARGET, F_MASK, F_X, F_INDEX, FIELDS };
static const struct field fields[FIELDS] = {
    {"t", ROLE_TARGET, F32, {1, {M}}}, {"mask", ROLE_SAMPLE, U8, {1, {M}}}, {"x", ROLE_SAMPLE, F32, {1, {N}}},
    {"index", ROLE_SAMPLE, I32, {1, {M}}}};
static atomic_int n_reads[FIELDS];

static void value_write(int64_t sample, uint64_t visit, int field, int j, void *out)
{
    switch (field) {
    case F_TARGET: ((float *)out)[j] = (float)((sample + j) % 4) / 4; break;
    case F_MASK: ((uint8_t *)out)[j] = mask_at(sample, visit, j); break;
    case F_X: ((float *)out)[j] = (float)((sample * 5 + j * 3) % 7 - 3) / 2; break;
    default: ((int32_t *)out)[j] = index_at(sample, j);
    }
}

static int made_read(struct ds *d, uint64_t sample, uint64_t visit, int field, void *out, struct err *e)
{
    for (int j = 0; j < fields[field].shape.d[0]; j++) value_write((int64_t)sample, visit, field, j, out);
    n_reads[field]++;
    return 0;
}

static uint64_t made_count(const struct ds *d) { return COUNT; }
static uint64_t made_tests(const struct ds *d) { return TESTS; }
static void made_close(struct ds *d) { free(d); }
static const struct ds_kind kinds[] = {
    {.name = "made", .count = made_count, .read = made_read, .close = made_close},
    {.name = "made", .count = made_tests, .read = made_read, .close = made_close}};

static struct ds *made_open(enum ds_part part)
{
    struct ds *d = mem_alloc(sizeof *d);
    *d = (struct ds){.kind = &kinds[part], .n_fields = FIELDS};
    memcpy(d->field, fields, sizeof fields);
    return d;
}

/* ---- an operator: of x those that `index` names, where `mask` has bit 0 ------------------------------------------ */

static int pick_infer(const struct node *n, const struct shape *const *in, struct infer *f, struct err *e)
{
    if (in[0]->n != 1 || !shape_equal(in[1], in[2])) return err_set(e, E_CONF, "shapes");
    f->out = *in[1];
    return 0;
}

/* What reaches the kernel belongs to the samples of the call. */
static atomic_int seen[2][VISITS], n_wrong;
static int64_t sizes(const struct op_call *c, int64_t *m)
{
    *m = shape_count(&c->g->tensor[c->node->in[1]].shape);
    return shape_count(&c->g->tensor[c->node->in[0]].shape);
}

static void sample_check(const struct op_call *c, int s, const int32_t *index, const uint8_t *mask)
{
    int64_t id = c->sample[s];
    int visit = mask[0] >> 4;
    if (visit < VISITS) seen[c->train][visit]++;
    else n_wrong++;
    for (int j = 0; j < M; j++) n_wrong += index[j] != index_at(id, j) || mask[j] != mask_at(id, (uint64_t)visit, j);
}

static void pick_forward(const struct op_call *c)
{
    int64_t m, n = sizes(c, &m);
    for (int s = 0; s < c->n; s++) {
        const float *x = (const float *)c->in[0] + s * n;
        const int32_t *index = (const int32_t *)c->in[1] + s * m;
        const uint8_t *mask = (const uint8_t *)c->in[2] + s * m;
        sample_check(c, s, index, mask);
        for (int64_t j = 0; j < m; j++) ((float *)c->out)[s * m + j] = mask[j] & 1 ? x[index[j]] : 0;
    }
}

static void pick_backward(const struct op_call *c)
{
    int64_t m, n = sizes(c, &m);
    for (int s = 0; s < c->n; s++) {
        float *g = (float *)c->gin[0] + s * n;
        memset(g, 0, (size_t)n * sizeof *g);
        for (int64_t j = 0; j < m; j++)
            if (((const uint8_t *)c->in[2])[s * m + j] & 1)
                g[((const int32_t *)c->in[1])[s * m + j]] += ((const float *)c->gout)[s * m + j];
    }
}

static const struct op_kind op_pick = {
    .name = "pick", .text = "a test's", .n_in = 3,
    .takes = {TAKES(F32), TAKES(I32) | TAKES(I64), TAKES(U8)},
    .infer = pick_infer, .need_b = 6, .forward = pick_forward, .backward_data = pick_backward};

/* The operators of the program and one more: this list stands in for src/model/op.c. */
#define OP(x) extern const struct op_kind op_##x;
#include "registry.inc"
const struct op_kind *const op_list[] = {
#define OP(x) &op_##x,
#include "registry.inc"
    &op_pick, NULL};

const struct op_kind *op_find(const char *name)
{
    for (int i = 0; op_list[i]; i++) if (!strcmp(op_list[i]->name, name)) return op_list[i];
    return NULL;
}

/* ---- whole runs -------------------------------------------------------------------------------------------------- */

static const char conf[] =
    "run { name = \"t\" seed = 3 }\n"
    "data { source = \"synthetic\" samples = 8 test_samples = 5 }\n"
    "train { batch_size = 6 split_size = 4 steps = 4 loss = \"mse\" learning_rate = 0.1 }\n";
/* Groups: a b c d e l. mask and index are read by b and d, x by a, the target by the last. */
static const char text[] =
    "graph three\ninput x 6\ninput index 5 I32\ninput mask 5 U8\nlabels t 5\n"
    "a = linear(x) features=6\nb = pick(a, index, mask)\nc = linear(b) features=6\nd = pick(c, index, mask)\n"
    "e = linear(d) features=5\nl = mse(e, t)\noutput e\nloss l\n";

struct spread { int n_stages, n_ranks, cut[7]; const char *schedule; int reads[FIELDS]; };
/* How many ranks load each field: of one sample it is read so often. */
static const struct spread spreads[] = {
    {1, 1, {0, 6}, "naive", {1, 1, 1, 1}},
    {2, 2, {0, 3, 6}, "1f1b", {1, 2, 1, 2}},
    {2, 2, {0, 4, 6}, "gpipe", {1, 1, 1, 1}},
    {3, 3, {0, 1, 3, 6}, "1f1b", {1, 2, 1, 2}},
    {4, 4, {0, 1, 2, 4, 6}, "1f1b", {1, 2, 1, 2}},
    {2, 1, {0, 3, 6}, "gpipe", {1, 1, 1, 1}},
    {2, 1, {0, 3, 6}, "naive", {1, 1, 1, 1}},
    {6, 1, {0, 1, 2, 3, 4, 5, 6}, "gpipe", {1, 1, 1, 1}},
    {4, 2, {0, 2, 3, 4, 6}, "gpipe", {1, 1, 1, 1}},
    {4, 2, {0, 2, 3, 4, 6}, "naive", {1, 1, 1, 1}},
    {6, 3, {0, 1, 2, 3, 4, 5, 6}, "gpipe", {1, 2, 1, 2}},
};
enum { SPREADS = sizeof spreads / sizeof *spreads };

static void counters_clear(void)
{
    for (int k = 0; k < FIELDS; k++) atomic_store(&n_reads[k], 0);
    for (int i = 0; i < 2 * VISITS; i++) atomic_store(&seen[i / VISITS][i % VISITS], 0);
}

static void run(const struct spread *l, const char *backend, struct rig_result *r)
{
    struct rig q = {.conf = conf, .graph = text, .backend = backend, .n_stages = l->n_stages, .n_ranks = l->n_ranks,
                    .first_group = l->cut, .schedule = l->schedule, .steps = STEPS, .delay_us = 200, .evaluate = true,
                    .data = made_open};
    counters_clear();
    ck_assert_msg(!rig_run(&q, r), "%d stages on %d ranks: %s", l->n_stages, l->n_ranks, r->e.text);
}

static void reads_check(const struct spread *l)
{
    for (int k = 0; k < FIELDS; k++) ck_assert_int_eq(n_reads[k], l->reads[k] * (BATCH * STEPS + TESTS));
}

/* 24 samples of 8, by two operators: each comes three times, once a visit, though batches of 6 wrap within an epoch.
 * An evaluation is always the first visit. */
static void visits_check(void)
{
    for (int v = 0; v < VISITS; v++) ck_assert_int_eq(seen[true][v], 2 * COUNT);
    ck_assert_int_eq(seen[false][0], 2 * TESTS);
    ck_assert_int_eq(n_wrong, 0);
}

/* Buffers of a micro-batch: 2 are read ahead of each part, data.prefetch. A rank loads once for all its stages. */
START_TEST(feeds_tell_their_bytes)
{
    enum { SAMPLE = 8 + 4 * M + M + 4 * N + 4 * M };
    struct rig_result r;
    run(&spreads[0], "reference", &r);
    ck_assert_uint_eq(r.last[0].feed_bytes, (2 + 2) * SPLIT * SAMPLE);
    run(&spreads[5], "reference", &r);
    ck_assert_uint_eq(r.last[0].feed_bytes, (2 + 2) * SPLIT * SAMPLE);
    run(&spreads[2], "reference", &r);
    ck_assert_uint_eq(r.last[1].feed_bytes, (2 + 2) * SPLIT * (8 + 4 * M));
}
END_TEST

static const char *const backends[] = {"reference", "onednn"};
START_TEST(fields_reach_their_stages)
{
    struct rig_result one, r;
    run(&spreads[0], backends[_i], &one);
    for (int k = 0; k < SPREADS; k++) {
        run(&spreads[k], backends[_i], &r);
        reads_check(&spreads[k]);
        visits_check();
        ck_assert_str_eq(r.hash, one.hash);
        for (int i = 0; i < STEPS; i++) ck_assert(r.loss[i] == one.loss[i]);
        ck_assert(r.eval_loss == one.eval_loss && r.eval_samples == TESTS);
    }
    ck_assert(one.loss[0] > 0 && one.loss[3] != one.loss[0]);
}
END_TEST

/* ---- the graph and its text -------------------------------------------------------------------------------------- */

static struct graph *parsed(const char *s, struct err *e) { return graph_parse("t.graph", s, strlen(s), e); }

START_TEST(inputs_print_as_they_are_read)
{
    struct err e = {0};
    struct text t = {0};
    struct graph *g = parsed(text, &e);
    ck_assert_msg(g != NULL, "%s", e.text);
    ck_assert_int_eq(g->n_inputs, 4);
    ck_assert(g->tensor[g->input[1].tensor].type == I32 && g->tensor[g->input[2].tensor].type == U8);
    ck_assert(g->input[2].role == ROLE_SAMPLE && g->input[3].role == ROLE_TARGET);
    for (int i = 0; i < g->n_inputs; i++) {
        ck_assert(!g->tensor[g->input[i].tensor].needs_grad);
        ck_assert_int_eq(graph_input_find(g, g->input[i].tensor), i);
    }
    ck_assert_int_eq(graph_input_find(g, g->output), -1);
    graph_print(g, &t);
    ck_assert_str_eq(t.s, text);
    graph_free(g);
    text_free(&t);
}
END_TEST

static const char *const wrong[][2] = {
    {"input x 6\ninput i 5 U8\ninput m 5 U8\na = pick(x, i, m)\n",
     "t.graph:4: a: input \"i\" is U8, and pick takes I64 or I32 there"},
    {"input x 6\ninput i 5 I32\ninput m 5\na = pick(x, i, m)\n", "a: input \"m\" is F32, and pick takes U8 there"},
    {"input x 6 BF16\ninput i 5 I32\ninput m 5 U8\na = pick(x, i, m)\n",
     "a: input \"x\" is BF16, and pick takes F32 there"},
    {"input x 6\ninput i 5 I32\na = linear(i) features=3\nb = add(a, x)\n", "input \"i\" is I32, and linear takes F32"},
};
START_TEST(wrong_types_are_refused)
{
    struct err e = {0};
    ck_assert_ptr_null(parsed(wrong[_i][0], &e));
    ck_assert_int_eq(e.code, E_DATA);
    ck_assert_msg(strstr(e.text, wrong[_i][1]) != NULL, "%s", e.text);
}
END_TEST

/* ---- graph and data set ------------------------------------------------------------------------------------------ */

/* By name, whatever the order, and the only one of a role by that; I64 where there is I32 is refused. */
static const struct { const char *graph, *message; } matches[] = {
    {text, NULL},
    {"input x 6\ninput index 5 I32\ninput mask 5 U8\nlabels other 5\na = pick(x, index, mask)\nl = mse(a, other)\n",
     NULL},
    {"input x 6\ninput index 5 I64\ninput mask 5 U8\na = pick(x, index, mask)\n",
     "the graph's input index (I64 5), samples have t (F32 5), mask (U8 5), x (F32 6), index (I32 5)"},
    {"input x 6\ninput index 4 I32\ninput mask 4 U8\na = pick(x, index, mask)\n", "the graph's input index (I32 4), "},
    {"input index 5 I32\na = embedding(index) count=4 features=2\n",
     "the graph's input index (I32 5 below 4), samples"},
    {"input y 6\na = relu(y)\n", "the graph's input y (F32 6), samples have t "},
    {"input x 6\nlabels t class\na = relu(x)\nl = mse(a, t)\n",
     "the graph's labels t (I64 class below 6), samples have"},
};
START_TEST(fields_match_inputs)
{
    struct err e = {0};
    struct ds *d = made_open(DS_TRAIN);
    struct graph *g = parsed(matches[_i].graph, &e);
    ck_assert_msg(g != NULL, "%s", e.text);
    int bad = ds_match(d, g, &e);
    ck_assert_msg(!bad == !matches[_i].message, "%s", e.text);
    if (bad) ck_assert_msg(e.code == E_CONF && !strncmp(e.text, matches[_i].message, strlen(matches[_i].message)), "%s",
                           e.text);
    if (!_i) ck_assert(d->of[0] == F_X && d->of[1] == F_INDEX && d->of[2] == F_MASK && d->of[3] == F_TARGET);
    graph_free(g);
    ds_close(d);
}
END_TEST

START_TEST(formats_say_what_they_have)
{
    struct err e = {0};
    struct ds *d;
    struct conf *c = conf_parse("t.conf", conf, sizeof conf - 1, &e);
    struct graph *g = parsed(text, &e);
    ck_assert(c && g);
    ck_assert_int_eq(ds_open(c, DS_TRAIN, g, &d, &e), -1);
    ck_assert_ptr_null(d);
    ck_assert_str_eq(e.text, "t.conf:2: data.source: the graph takes x (F32 6), index (I32 5), mask (U8 5), t (F32 5); "
                             "synthetic has one input of F32, U8, I32 or I64, and classes or targets of F32, or maps "
                             "of classes");
    graph_free(g);
    conf_free(c);
}
END_TEST

int main(void)
{
    TCase *t = suite_case("fields", 300);
    tcase_add_loop_test(t, fields_reach_their_stages, 0, (int)(sizeof backends / sizeof *backends));
    tcase_add_test(t, feeds_tell_their_bytes);
    tcase_add_test(t, inputs_print_as_they_are_read);
    tcase_add_loop_test(t, wrong_types_are_refused, 0, (int)(sizeof wrong / sizeof *wrong));
    tcase_add_loop_test(t, fields_match_inputs, 0, (int)(sizeof matches / sizeof *matches));
    tcase_add_test(t, formats_say_what_they_have);
    return suite_run("fields", CK_NOFORK, t);
}
