/* The registry of state: its rows; no persistent tensor is missing or listed twice; and state that is stored in another
 * type than its own has the same bits on any number of stages. */
#include <stdlib.h>
#include <string.h>
#include "optim/optim.h"
#include "plan_rig.h"
#include "rig.h"
#include "sure.h"

static const char frozen_text[] =
    "graph frozen\ninput input 6\nlabels labels class\n"
    "fc1 = linear(input) features=9 layer=Linear\nrelu1 = relu(fc1) layer=ReLU\n"
    "fc2 = linear(relu1) features=9 layer=Linear\nrelu2 = relu(fc2) layer=ReLU\n"
    "fc3 = linear(relu2) features=4 layer=Linear\nfreeze fc1.weight\nfreeze fc2.weight\n"
    "loss = softmax_cross_entropy(fc3, labels)\noutput fc3\nloss loss\n";

/* The same with frozen weights that BF16 can hold. */
static const char exact_text[] =
    "graph frozen\ninput input 6\nlabels labels class\n"
    "fc1 = linear(input) features=9 layer=Linear\nrelu1 = relu(fc1) layer=ReLU\n"
    "fc2 = linear(relu1) features=9 layer=Linear\nrelu2 = relu(fc2) layer=ReLU\n"
    "fc3 = linear(relu2) features=4 layer=Linear\nfreeze fc1.weight\nfreeze fc2.weight\n"
    "init fc1.weight one\ninit fc2.weight one\n"
    "loss = softmax_cross_entropy(fc3, labels)\noutput fc3\nloss loss\n";

/* ---- rows -------------------------------------------------------------------------------------------------------- */

static struct made place_on(const char *text, const struct device *d, int stages, int ranks)
{
    struct made m = {.g = rig_graph(text)};
    int cut[9];
    m.s = select_make(m.g, d, 4, &m.e);
    for (int i = 0; i <= stages; i++) cut[i] = i * m.s->n_groups / stages;
    m.pl = placement_make(&(struct placement_request){.sel = m.s, .n_stages = stages, .mesh = {{ranks}},
                                                      .first_group = cut, .buffers = rig_buffers(2)}, &m.e);
    ck_assert_msg(m.pl != NULL, "%s", m.e.text);
    return m;
}

static const struct state_row *row_named(const struct placement *pl, const char *name)
{
    const struct state_row *found = NULL;
    for (int i = 0; i < pl->n_state; i++) {
        if (strcmp(pl->state[i].name, name)) continue;
        ck_assert_msg(!found, "%s is twice in the registry", name);
        found = &pl->state[i];
    }
    ck_assert_msg(found != NULL, "%s is not in the registry", name);
    return found;
}

START_TEST(rows_say_what_there_is)
{
    struct made m = place_on(rig_tied, &rig_plain, 4, 2);
    const struct state_row *w = row_named(m.pl, "first.weight"), *b = row_named(m.pl, "first.weight.second"),
                           *bias = row_named(m.pl, "other.bias");
    ck_assert(w->kind == STATE_WEIGHT && w->tied && w->trained && w->region == IN_PARAM && w->owner == 0);
    ck_assert(w->off[0] != STATE_NOWHERE && w->off[1] != STATE_NOWHERE);      /* used on both ranks */
    ck_assert(b->kind == STATE_OPTIMIZER && b->buffer == 1 && b->param == w->param && b->region == IN_STATE);
    ck_assert(shape_equal(&b->shape, &w->shape) && b->off[0] != STATE_NOWHERE && b->off[1] == STATE_NOWHERE);
    ck_assert(!bias->tied && bias->off[bias->owner] != STATE_NOWHERE && bias->off[1 - bias->owner] == STATE_NOWHERE);
    for (int i = 0; i < m.g->n_params; i++) {
        ck_assert_str_eq(m.pl->state[i].name, m.g->param[i].name);
        ck_assert_int_eq(m.pl->state[i].param, i);
    }
    ck_assert_int_eq(m.pl->n_state, 3 * m.g->n_params);                       /* all are trained, two buffers each */
    made_free(&m);
}
END_TEST

/* An average lies where its weight does, what the optimizer keeps only with the owner. */
START_TEST(averages_are_rows)
{
    struct selection *s;
    struct err e = {0};
    struct graph *g = graph_parse("t", rig_tied, strlen(rig_tied), &e);
    int cut[5];
    s = select_make(g, &rig_plain, 4, &e);
    for (int i = 0; i <= 4; i++) cut[i] = i * s->n_groups / 4;
    struct placement_request r = {
        .sel = s, .n_stages = 4, .mesh = {{2}}, .first_group = cut, .buffers = rig_buffers(1)};
    r.buffers.average = true;
    struct placement *pl = placement_make(&r, &e);
    ck_assert_msg(pl != NULL, "%s", e.text);
    const struct state_row *a = row_named(pl, "first.weight.ema"), *b = row_named(pl, "other.bias.ema");
    ck_assert(a->kind == STATE_AVERAGE && a->region == IN_STATE && a->owner == 0 && a->off[0] != a->off[1]);
    ck_assert(a->off[0] != STATE_NOWHERE && a->off[1] != STATE_NOWHERE);
    ck_assert(b->off[b->owner] != STATE_NOWHERE && b->off[1 - b->owner] == STATE_NOWHERE);
    ck_assert_int_eq(pl->n_state, 3 * g->n_params);
    placement_free(pl);
    select_free(s);
    graph_free(g);
}
END_TEST

START_TEST(statistics_and_frozen_have_no_buffers)
{
    static const char text[] =
        "graph g\ninput input 3x4x4\nlabels labels class\nc = conv(input) channels=4 kernel=1 layer=Conv2d\n"
        "n = batch_norm(c) layer=BatchNorm2d\np = global_avg_pool(n)\nf = flatten(p)\nfreeze c.weight\n"
        "loss = softmax_cross_entropy(f, labels)\noutput f\nloss loss\n";
    struct made m = place_on(text, &rig_plain, 1, 1);
    int kinds[STATE_KINDS] = {0};
    for (int i = 0; i < m.pl->n_state; i++) kinds[m.pl->state[i].kind]++;
    ck_assert(kinds[STATE_WEIGHT] == 4 && kinds[STATE_STATISTIC] == 2 && kinds[STATE_COUNTER] == 1);
    ck_assert_int_eq(kinds[STATE_OPTIMIZER], 2 * 3);
    ck_assert(!row_named(m.pl, "c.weight")->trained && row_named(m.pl, "n.num_batches_tracked")->stored.type == I64);
    ck_assert_uint_eq(state_bytes(m.pl->state, m.pl->n_state, STATE_WEIGHT, false), 4 * (12 + 4 + 4 + 4));
    ck_assert_uint_eq(state_bytes(m.pl->state, m.pl->n_state, STATE_WEIGHT, true), 4 * (4 + 4 + 4));
    ck_assert_uint_eq(m.pl->grad_bytes[0], 3 * 64);
    ck_assert_uint_eq(m.pl->param_bytes[0], 7 * 64);
    made_free(&m);
}
END_TEST

START_TEST(storage_is_counted)
{
    struct device d = rig_plain;
    d.frozen = BF16;
    struct made plain = place_on(frozen_text, &rig_plain, 1, 1), half = place_on(frozen_text, &d, 1, 1);
    const struct state_row *w = row_named(half.pl, "fc2.weight"), *t = row_named(half.pl, "fc3.weight");
    ck_assert(w->file.type == F32 && w->stored.type == BF16 && w->bytes == size_align64(2 * 81));
    ck_assert(t->stored.type == F32 && t->bytes == row_named(plain.pl, "fc3.weight")->bytes);
    ck_assert_uint_eq(plain.pl->param_bytes[0] - half.pl->param_bytes[0],
                      size_align64(4 * 54) - size_align64(2 * 54) + size_align64(4 * 81) - size_align64(2 * 81));
    made_free(&plain);
    made_free(&half);
}
END_TEST

/* ---- runs -------------------------------------------------------------------------------------------------------- */

static void train(const char *graph, enum dtype frozen, int stages, struct rig_result *r)
{
    struct rig q = {.conf = "run { name = \"t\" seed = 3 }\nmodel { input = {6} classes = 4 }\n"
                            "data { source = \"synthetic\" samples = 50 test_samples = 5 }\n"
                            "train { batch_size = 7 split_size = 3 steps = 3 learning_rate = 0.05 momentum = 0.9 }\n",
                    .graph = graph, .backend = "reference", .frozen = frozen, .n_stages = stages, .schedule = "1f1b",
                    .steps = 3, .evaluate = true};
    ck_assert_msg(!rig_run(&q, r), "%d stages: %s", stages, r->e.text);
}

/* Where the frozen weights are rounded, the run is another one, but the same on any number of stages; where rounding
 * changes nothing, it is the same. */
START_TEST(storage_and_bits)
{
    struct rig_result full, half, cut;
    train(frozen_text, F32, 1, &full);
    train(frozen_text, BF16, 1, &half);
    train(frozen_text, BF16, 3, &cut);
    ck_assert_str_ne(full.hash, half.hash);
    ck_assert_str_eq(half.hash, cut.hash);
    ck_assert(half.loss[2] == cut.loss[2] && half.eval_loss == cut.eval_loss && half.loss[2] != full.loss[2]);
    train(exact_text, F32, 2, &full);
    train(exact_text, BF16, 2, &half);
    ck_assert_str_eq(full.hash, half.hash);
    ck_assert(half.loss[2] == full.loss[2]);
}
END_TEST

int main(void)
{
    TCase *t = tcase_create("state");
    tcase_add_test(t, rows_say_what_there_is);
    tcase_add_test(t, averages_are_rows);
    tcase_add_test(t, statistics_and_frozen_have_no_buffers);
    tcase_add_test(t, storage_is_counted);
    tcase_add_test(t, storage_and_bits);
    return suite_run("state", CK_FORK, t);
}
