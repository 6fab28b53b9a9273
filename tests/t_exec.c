/* The executor: the same bits from every cut, schedule and transport timing, with values kept or recomputed; changes
 * that must change the bits do; accounts and costs of steps. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "exec_rig.h"
#include "exec/exec.h"
#include "plan/cost.h"

/* An uneven cut: the first stage gets one group, the rest is spread. */
static void cut_uneven(int n_groups, int n_stages, int *cut)
{
    for (int i = 0; i <= n_stages; i++)
        cut[i] = i == 0 ? 0 : i == n_stages ? n_groups : 1 + (i - 1) * (n_groups - 1) / (n_stages - 1);
}

static void bits_on(const struct model_case *m, const char *backend)
{
    struct rig q = case_rig(m, backend);
    struct rig_result one, r;
    q.evaluate = true;
    case_run(&q, &one);
    ck_assert(isfinite(one.loss[2]) && one.loss[2] != one.loss[0] && one.eval_samples == 5);
    for (int p = 1; p <= 4; p += STAGES_STEP)
        for (int k = 0; k < 3; k++)
            for (int uneven = 0; uneven < (p > 1 ? 2 : 1); uneven++) {
                int cut[5];
                cut_uneven(one.n_groups, p, cut);
                q.n_stages = p;
                q.first_group = uneven ? cut : NULL;
                q.schedule = rig_schedules[k];
                q.backward = rig_backwards[(k + p + uneven) % 3];
                case_same(&q, &one, &r);
            }
}

START_TEST(bits) { bits_on(ON_BOTH(_i)); }
END_TEST

/* Recomputed or kept: all groups, and parts of blocks in three patterns. */
static void recompute_on(const struct model_case *m, const char *backend)
{
    static const unsigned patterns[] = {0xff, 0x55, 0x3c, 0xe1};
    struct rig q = case_rig(m, backend);
    struct rig_result one, r;
    int recomputed = 0;
    q.evaluate = true;
    case_run(&q, &one);
    for (int p = 1; p <= 4; p += STAGES_STEP)
        for (int k = 0; k < 3; k++)
            for (int i = 0; i < 4; i++) {
                q.n_stages = p;
                q.schedule = rig_schedules[k];
                q.backward = rig_backwards[(k + p + i) % 3];
                q.recompute = patterns[i];
                case_same(&q, &one, &r);
                recomputed += r.recomputed;
            }
    ck_assert_int_gt(recomputed, 0);
}

START_TEST(recompute) { recompute_on(ON_BOTH(_i)); }
END_TEST

/* A partition may leave ranks without layers, at either end and between. */
START_TEST(ranks_without_layers)
{
    struct rig q = case_rig(&cases[CASE_SKIP], "reference");
    struct rig_result one, r;
    q.evaluate = true;
    case_run(&q, &one);
    int n = one.n_groups, cuts[][5] = {{0, n, n, n, n}, {0, 0, 0, 0, n}, {0, 0, n / 2, n / 2, n}};
    for (int i = 0; i < 9; i++) {
        q.n_stages = 4;
        q.first_group = cuts[i / 3];
        q.schedule = rig_schedules[i % 3];
        case_same(&q, &one, &r);
    }
}
END_TEST

START_TEST(bits_delays)
{
    struct rig q = case_rig(&cases[CASE_SKIP], "reference");
    struct rig_result one, r;
    case_run(&q, &one);
    q.n_stages = 4;
    q.delay_us = 300;
    for (int k = 0; k < N_SCHEDULES; k++) {
        q.schedule = rig_schedules[k];
        case_same(&q, &one, &r);
    }
}
END_TEST

START_TEST(bits_change)
{
    const struct model_case *m = &cases[CASE_RESNET];    /* batch statistics make the split size show at once */
    struct rig q = case_rig(m, "reference");
    struct rig_result one, r;
    q.n_stages = 2;
    case_run(&q, &one);
    q.conf = case_conf(m, 2, 7, 3);
    case_run(&q, &r);
    ck_assert_msg(strcmp(r.hash, one.hash), "another seed gave the same weights");
    q.conf = case_conf(m, 1, 7, 4);
    case_run(&q, &r);
    ck_assert_msg(strcmp(r.hash, one.hash), "another split size gave the same weights");
}
END_TEST

/* Every nanosecond between entry and return belongs to exactly one part. */
START_TEST(account_adds_up)
{
    struct rig q = case_rig(&cases[CASE_RESNET], "reference");
    struct rig_result r;
    q.n_stages = 3;
    q.steps = 2;
    case_run(&q, &r);
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
    struct rig q = case_rig(&cases[CASE_RESNET], "reference");
    struct rig_result r;
    q.conf = case_conf(&cases[CASE_RESNET], 1, 7, 7);
    q.n_stages = q.steps = 2;
    q.late = 1;
    const char *wrong = "not run";
    for (uint64_t run = 0, delay = 250000000; run < 12 && wrong; run++, delay *= run % 3 ? 1 : 2) {
        q.late_us = (int)(delay / 1000);
        case_run(&q, &r);
        wrong = booked_elsewhere(&r, delay);
    }
    ck_assert_msg(!wrong, "%s", wrong);
}
END_TEST

/* Every rank has the same costs: each kernel's time, from whoever ran it, raised so that all of them add up to what
 * kernels took; the slowest link. */
START_TEST(costs_of_profiled_steps)
{
    enum { STAGES = 3, MICRO = 3, STEPS = 4 };
    struct rig q = case_rig(&cases[CASE_RESNET], "onednn");
    struct rig_result r;
    double took = 0, cells = 0, beside = 0, bytes = 0;
    q.conf = case_conf(&cases[CASE_RESNET], 1, 9, 3);
    q.n_stages = STAGES;
    q.steps = STEPS;
    q.profile = true;
    q.late = STAGES - 1;
    q.late_us = 2000;
    case_run(&q, &r);
    const struct cost *k = r.cost[0];
    int n = PH_COUNT * k->n_groups;
    for (int i = 0; i < STAGES; i++) {
        took += r.kernels_ns[i];
        beside += r.spent[i].transfer_ns;
        bytes += r.spent[i].transfer_bytes;
        ck_assert(r.cost[i]->spread == k->spread && k->spread >= 1);
        ck_assert(!memcmp(r.cost[i]->ns, k->ns, (size_t)n * sizeof *k->ns));
        ck_assert(r.cost[i]->load_ns == k->load_ns && r.cost[i]->optimizer_ns_per_byte == k->optimizer_ns_per_byte);
        ck_assert(r.cost[i]->busy_ns_per_byte == k->busy_ns_per_byte && r.cost[i]->latency_ns == k->latency_ns);
        ck_assert(r.cost[i]->bytes_per_ns == k->bytes_per_ns);
    }
    for (int i = 0; i < n; i++) cells += k->ns[i];
    beside -= bytes * k->busy_ns_per_byte;                 /* what messages took beside their bytes */
    if (beside > 0) took += beside;
    ck_assert_msg(fabs(cells * MICRO * STEPS / took - 1) < 1e-9, "%g of %g", cells * MICRO * STEPS, took);
    for (int g = 0; g < k->n_groups; g++) ck_assert(*cost_cell(k, 0, PH_FWD, g) > 0);
    ck_assert(k->load_ns > 0 && k->optimizer_ns_per_byte > 0 && k->busy_ns_per_byte > 0 && k->bytes_per_ns > 0);
    ck_assert_msg(k->latency_ns >= 1e6, "%g ns", k->latency_ns);   /* half of a trip that is late one way */
    for (int i = 0; i < STAGES; i++) cost_free(r.cost[i]);
}
END_TEST

/* ---- somebody reads the state ------------------------------------------------------------------------------------ */

/* A checkpoint's writer that stands still ends the run; a slow one does not. */
START_TEST(a_writer_that_stands_still_is_found)
{
    struct exec_hold hold = {.on = true};
    struct rig q = case_rig(&cases[0], "reference");
    struct rig_result r = {.e.code = 0};
    q.hold = &hold;
    q.hold_ns = 50000000;
    ck_assert_int_eq(rig_run(&q, &r), -1);
    ck_assert_int_eq(r.e.code, E_IO);
    ck_assert_msg(says(r.e.text, "/checkpoints:"), "%s", r.e.text);
}
END_TEST

enum { PIECES = 20 };
static void *write_slowly(void *arg)
{
    struct exec_hold *hold = arg;
    for (int i = 0; i < PIECES; i++) {
        nanosleep(&(struct timespec){.tv_nsec = 60000000}, NULL);
        atomic_fetch_add(&hold->moved, 1);
    }
    atomic_store(&hold->on, false);
    return NULL;
}

START_TEST(a_writer_that_moves_is_awaited)
{
    struct exec_hold hold = {.on = true};
    struct rig q = case_rig(&cases[0], "reference");
    struct rig_result r;
    pthread_t thread;
    q.hold = &hold;
    q.hold_ns = 1000000000;                               /* less than all pieces take */
    ck_assert_int_eq(pthread_create(&thread, NULL, write_slowly, &hold), 0);
    case_run(&q, &r);
    pthread_join(thread, NULL);
}
END_TEST

/* A frozen batch norm computes as in evaluation, so samples do not know each other: micro-batches of 3, 3 and 1 train
 * as one of 7. */
START_TEST(frozen_norms_of_one_sample)
{
    static const char text[] =
        "graph frozen\ninput x 6\nlabels t class\na = linear(x) features=5\nn = batch_norm(a)\nr = relu(n)\n"
        "y = linear(r) features=4\nloss = softmax_cross_entropy(y, t)\nfreeze n\n";
    const struct model_case m = {"frozen", "input = {6} classes = 4", text, "class", "cross_entropy", ""};
    const char *backend = _i ? "onednn" : "reference";
    struct rig_result parts, whole, r;
    struct rig q = case_rig(&m, backend);
    case_run(&q, &parts);
    q.n_stages = 3;
    q.recompute = ~0u;
    case_same(&q, &parts, &r);
    q = case_rig(&m, backend);
    q.conf = case_conf(&m, 1, 7, 7);
    case_run(&q, &whole);
    for (int i = 0; i < q.steps; i++) ck_assert_double_eq_tol(parts.loss[i], whole.loss[i], 1e-6);
    ck_assert_double_eq_tol(parts.grad_norm, whole.grad_norm, 1e-6);
}
END_TEST

int main(void)
{
    TCase *t = suite_case("exec", 240);
    tcase_add_loop_test(t, bits, 0, N_BOTH);
    tcase_add_loop_test(t, recompute, 0, N_BOTH);
    tcase_add_test(t, ranks_without_layers);
    tcase_add_test(t, bits_delays);
    tcase_add_test(t, bits_change);
    tcase_add_test(t, account_adds_up);
    tcase_add_test(t, account_of_a_slow_link);
    tcase_add_test(t, costs_of_profiled_steps);
    tcase_add_test(t, a_writer_that_stands_still_is_found);
    tcase_add_test(t, a_writer_that_moves_is_awaited);
    tcase_add_loop_test(t, frozen_norms_of_one_sample, 0, 2);
    return suite_run("exec", CK_NOFORK, t);
}
