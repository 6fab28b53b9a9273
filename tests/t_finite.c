/* Steps whose loss or gradients are not finite: all ranks discard them together, after they have run them twice. */
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include "exec_rig.h"
#include "exec/exec.h"

/* Batches of 7 samples: this one is in the second step. */
enum { BAD = 10, SAMPLE = 0 };
static atomic_int reads;

static void to_nan(uint64_t sample, int field, void *value)
{
    if (sample == BAD && field == SAMPLE) *(float *)value = NAN;
}

/* Only the first time that it is read, as by hardware that fails once. */
static void to_nan_once(uint64_t sample, int field, void *value)
{
    if (sample == BAD && field == SAMPLE && atomic_fetch_add(&reads, 1) == 0) *(float *)value = NAN;
}

/* Scores of 1e21 have a loss of 1e42, which is a double, but a weight's gradient is their product with the sample. */
static void to_large(uint64_t sample, int field, void *value)
{
    if (sample == BAD && field == SAMPLE) *(float *)value = 1e22f;
}

static void nonfinite_is(const struct rig *q, const struct rig_result *r, int step, int want)
{
    int ranks = q->n_ranks ? q->n_ranks : q->n_stages;
    for (int i = 0; i < ranks; i++)
        for (int k = 0; k < q->steps; k++)
            ck_assert_msg(r->nonfinite[i][k] == (k + 1 == step ? want : 0), "rank %d of %d, step %d: %d, not %d", i,
                          ranks, k + 1, r->nonfinite[i][k], want);
}

/* As if the order had never come: weights, statistics and what the optimizer keeps, and so all steps after it. Twice:
 * the samples of the next step may have been read ahead. */
static void discarded_on(const struct model_case *m, const char *backend)
{
    struct rig q = case_rig(m, backend);
    struct rig_result without, r;
    q.steps = 4;
    q.omit = 2;
    case_run(&q, &without);
    q.omit = 0;
    q.spoil = to_nan;
    for (int i = 0; i < 10; i += STAGES_STEP) {
        static const int stages[] = {1, 2, 3, 4, 2};
        q.n_stages = stages[i % 5];
        q.schedule = rig_schedules[i % 3];
        q.backward = rig_backwards[i % 2];
        q.ahead = i >= 5;
        q.recompute = i % 3 == 2 ? 0x55 : 0;
        case_run(&q, &r);
        nonfinite_is(&q, &r, 2, NONFINITE_LOSS);
        ck_assert_msg(!strcmp(r.hash, without.hash), "%s on %s: %d stages, %s: other weights", m->name, backend,
                      q.n_stages, q.schedule);
        ck_assert(!isfinite(r.loss[1]));
        for (int k = 0; k < 4; k++) ck_assert(k == 1 || r.loss[k] == without.loss[k]);
    }
}

/* Embeddings take no number that is not one. */
START_TEST(step_is_discarded)
{
    if (strcmp(cases[_i / 2].graph, rig_words) != 0) discarded_on(ON_BOTH(_i));
}
END_TEST

static const char chain[] =
    "graph chain\ninput input 6\na = linear(input) features=8 layer=Linear\nb = linear(a) features=8 layer=Linear\n"
    "c = linear(b) features=8 layer=Linear\nfc = linear(c) features=4 layer=Linear\noutput fc\n";

/* The loss is finite, and on another rank than the gradient that is not. */
START_TEST(gradient_is_found)
{
    const struct model_case m = {"a chain", "input = {6} classes = 4", chain, "onehot", "mse", ""};
    struct rig_result r, without;
    int first = 0;
    struct rig q = case_rig(&m, _i ? "onednn" : "reference");
    q.steps = 3;
    q.omit = 2;
    case_run(&q, &without);
    q.omit = 0;
    q.spoil = to_large;
    for (q.n_stages = 1; q.n_stages <= 4; q.n_stages++) {
        case_run(&q, &r);
        ck_assert_msg(isfinite(r.loss[1]), "the loss is %g", r.loss[1]);
        first = q.n_stages == 1 ? r.nonfinite[0][1] : first;
        ck_assert_int_ge(first, NONFINITE_GRADIENT);
        nonfinite_is(&q, &r, 2, first);
        ck_assert_str_eq(r.hash, without.hash);
    }
}
END_TEST

START_TEST(other_numbers_are_told)
{
    struct rig q = case_rig(&cases[CASE_SKIP], _i ? "onednn" : "reference");
    struct rig_result r;
    const char *says = "step 2 gave different results when repeated: the loss was nan, then ";
    q.spoil = to_nan_once;
    for (q.n_stages = 1; q.n_stages <= 4; q.n_stages++) {
        atomic_store(&reads, 0);
        q.ahead = q.n_stages % 2;
        ck_assert(rig_run(&q, &r));
        ck_assert_int_eq(r.e.code, E_CORRUPT);
        ck_assert_msg(!strncmp(r.e.text, says, strlen(says)), "%s", r.e.text);
    }
}
END_TEST

/* ---- steps that run twice in any case ---------------------------------------------------------------------------- */

static struct rig rehearsed(const struct model_case *m, const char *backend, int every)
{
    static char conf[2200];
    struct rig q = case_rig(m, backend);
    snprintf(conf, sizeof conf, "%srun { verify_every = %d }\n", q.conf, every);
    q.conf = conf;
    return q;
}

/* The first attempt leaves no trace: running statistics, dropout's random numbers, averages and clipping. */
START_TEST(rehearsal_changes_nothing)
{
    struct rig q = case_rig(ON_BOTH(_i));
    struct rig_result once, twice;
    q.steps = 4;
    case_run(&q, &once);
    for (int every = 1; every <= 3; every++) {
        q.conf = rehearsed(ON_BOTH(_i), every).conf;
        q.n_stages = every;
        q.ahead = every % 2;
        q.schedule = rig_schedules[every % 3];
        case_same(&q, &once, &twice);
    }
}
END_TEST

/* A number that changes by its last bit between the two attempts at the second step. */
static void to_next(uint64_t sample, int field, void *value)
{
    if (sample == BAD && field == SAMPLE && atomic_fetch_add(&reads, 1) == 1)
        *(float *)value = nextafterf(*(float *)value, 9);
}

START_TEST(rehearsal_finds_a_bit)
{
    struct rig q = rehearsed(&cases[CASE_SKIP], _i ? "onednn" : "reference", 2);
    struct rig_result r;
    const char *says = "step 2 gave different results when repeated: ";
    q.spoil = to_next;
    for (q.n_stages = 1; q.n_stages <= 4; q.n_stages++) {
        atomic_store(&reads, 0);
        q.ahead = q.n_stages % 2;
        ck_assert(rig_run(&q, &r));
        ck_assert_int_eq(r.e.code, E_CORRUPT);
        ck_assert_msg(!strncmp(r.e.text, says, strlen(says)), "%s", r.e.text);
    }
}
END_TEST

int main(void)
{
    TCase *t = suite_case("finite", 240);
    tcase_add_loop_test(t, step_is_discarded, 0, N_BOTH);
    tcase_add_loop_test(t, gradient_is_found, 0, 2);
    tcase_add_loop_test(t, other_numbers_are_told, 0, 2);
    tcase_add_loop_test(t, rehearsal_changes_nothing, 0, N_BOTH);
    tcase_add_loop_test(t, rehearsal_finds_a_bit, 0, 2);
    return suite_run("finite", CK_NOFORK, t);
}
