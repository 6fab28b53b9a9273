/* Messages between the ranks of a job: orders, reports, tensors, and the first failure, which all ranks learn. The
 * stages are doubles of this test. */
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "ckpt/st.h"
#include "train/sequencer.h"
#include "cluster/shutdown.h"
#include "report/result.h"
#include "train/ckpt_writer_int.h"
#include "train/control_channel_int.h"
#include "plan/plan.h"
#include "files.h"
#include "sure.h"

enum { RANKS = 3, PARAMS = 4, BATCH = 5 };
static const int owner[PARAMS] = {0, 1, 2, 1};
/* ---- doubles ----------------------------------------------------------------------------------------------------- */

enum trouble { NONE, FAIL_WHILE_FIRST_WAITS, FAIL_FIRST, FAIL_AFTER_REPORT, FAIL_AVERAGES, LOSS_NAN, GRADIENTS_INF, SUM,
               FAIL_BEFORE_SUM };
static atomic_bool begun, reported;
struct exec { int rank; struct tp *tp; struct exec_control control; enum trouble trouble; int prefetched, ran;
              uint64_t last_step; bool wrong_order; };

int exec_prefetch(struct exec *s, const struct order *o, const int64_t *id, struct err *e)
{
    for (int i = 0; i < o->n; i++)
        if (id[i] != (int64_t)(100 * o->step) + i) return err_set(e, E_INTERNAL, "wrong sample ids");
    s->prefetched++;
    return 0;
}

/* Blocks as the executor does: drives the transport and looks at the abort word. */
static int wait_for_ever(struct exec *s, struct err *e)
{
    for (;;) {
        if (s->tp->ops->progress(s->tp, e) || s->control.listen(s->control.ctx, e)) return -1;
        if (atomic_load(abort_code())) return err_set(e, atomic_load(abort_code()), "rank %d: stopped", s->rank);
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
}

static void wait_until(atomic_bool *flag)
{
    while (!atomic_load(flag)) nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

/* Rank 1 says why it ends while rank 0 is in its step and does not listen; only then rank 0 sees that rank 1 is gone.
 */
static int lose_device(struct exec *s, struct err *e)
{
    struct failure_report r = {.rank = 1, .f = {.rank = 1, .e = {E_DEVICE, "rank 1: the device is gone"}}};
    if (s->rank == 2) return wait_for_ever(s, e);
    if (s->rank == 0) {
        atomic_store(&begun, true);
        wait_until(&reported);
        return err_set(e, E_DEVICE, "rank 0: the connection to rank 1 broke");
    }
    wait_until(&begun);
    if (s->tp->ops->send_msg(s->tp, 0, CONTROL_REPORT, &r, sizeof r, e)) return -1;
    atomic_store(&reported, true);
    return err_set(e, E_DEVICE, "%s", r.f.e.text);
}

int exec_step(struct exec *s, const struct order *o, const int64_t *id, struct report *r, struct err *e)
{
    (void)id;
    *r = (struct report){.step = o->step, .rank = s->rank, .grad_norm = -1};
    s->ran++;
    if (s->prefetched < s->ran || s->prefetched > s->ran + 1 || (s->last_step && o->step != s->last_step + 1))
        s->wrong_order = true;
    s->last_step = o->step;
    if (o->step == 3 && s->trouble == FAIL_WHILE_FIRST_WAITS)
        return s->rank == 2 ? err_set(e, E_DATA, "x.idx: offset 3: bad") : wait_for_ever(s, e);
    if (o->step == 3 && s->trouble == FAIL_FIRST)
        return s->rank == 0 ? err_set(e, E_DEVICE, "a kernel failed") : wait_for_ever(s, e);
    if (o->step == 3 && s->trouble == FAIL_AFTER_REPORT) return lose_device(s, e);
    if (s->trouble == FAIL_BEFORE_SUM && s->rank == 1) return err_set(e, E_DATA, "x.idx: offset 3: bad");
    if (s->trouble >= SUM) {                              /* 2^53 + 1 - 2^53 shows the order of the additions */
        double x[2] = {s->rank == 0 ? 9007199254740992.0 : s->rank == 1 ? 1 : -9007199254740992.0, s->rank + 1};
        if (s->control.reduce(s->control.ctx, x, 2, e)) return -1;
        if (x[0] != 0 || x[1] != 6) return err_set(e, E_INTERNAL, "sums are %g and %g", x[0], x[1]);
    }
    if (s->trouble == LOSS_NAN && o->step == 2) r->nonfinite = NONFINITE_LOSS;
    if (s->trouble == GRADIENTS_INF && o->step % 4 >= 2) r->nonfinite = NONFINITE_GRADIENT + 2;
    if (s->rank == RANKS - 1) {
        r->score[0].numerator = s->trouble == LOSS_NAN && o->step == 2 ? (double)NAN : (double)o->step;
        r->samples = o->n;
    }
    return 0;
}

bool exec_owns(const struct exec *s, int param) { return owner[param] == s->rank; }
bool exec_holds(const struct exec *s, int param) { return exec_owns(s, param); }
int exec_state_get(struct exec *s, int param, void *plain, struct err *e)
{
    (void)e;
    for (int i = 0; i < 6; i++) ((float *)plain)[i] = (float)(100 * s->rank + 10 * param + i);
    return 0;
}
void *exec_state_values(struct exec *s, int row) { return NULL; }
int exec_grad_get(struct exec *s, int param, void *plain, struct err *e) { return exec_state_get(s, param, plain, e); }
int exec_state_from(struct exec *s, int row, const struct exec_source *from, struct err *e) { return 0; }
int exec_state_set(struct exec *s, int row, const void *plain, struct err *e) { return 0; }
int exec_state_begin(struct exec *s, int row, struct err *e) { (void)s, (void)row, (void)e; return 0; }
int exec_state_changed(struct exec *s, struct err *e) { return 0; }
int exec_averages_begin(struct exec *s, struct err *e) { return 0; }
struct exec_past exec_past(const struct exec *s) { return (struct exec_past){0}; }
int exec_averages_use(struct exec *s, bool averaged, struct err *e)
{
    return s->trouble == FAIL_AVERAGES && s->rank == 1 && s->last_step == 2 ? err_set(e, E_DEVICE, "no swap") : 0;
}
void exec_idle_since(struct exec *s) {}
struct exec *interim_exec(const struct interim *s) { return NULL; }
int interim_weights(struct interim *s, struct err *e) { return 0; }

/* After step 3 each rank says its number twice over; the last rank's come late. */
enum { NUMBERS = 2 };
struct warmup_profile { int rank; bool over; double x[NUMBERS]; };

int warmup_count(const struct job *j) { return NUMBERS; }
void warmup_before(struct warmup_profile *p, const struct order *o) { }
const double *warmup_after(struct warmup_profile *p, const struct order *o, const struct report *r)
{
    if (!p || p->over || o->step < 3) return NULL;
    if (p->rank == RANKS - 1) nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    p->over = true;
    for (int i = 0; i < NUMBERS; i++) p->x[i] = (i + 1) * (p->rank + 1);
    return p->x;
}

void warmup_again(struct warmup_profile *p, uint64_t step) { }

/* ---- a job of three ranks ---------------------------------------------------------------------------------------- */

static struct param param[PARAMS];
static struct graph graph = {.param = param, .n_params = PARAMS};
static struct state_row state[PARAMS];
static int rank_of[RANKS] = {0, 1, 2};
static struct placement placement = {
    .mesh = {{RANKS, 1}}, .n_stages = RANKS, .map.rank_of = rank_of, .state = state, .n_state = PARAMS};
static struct conf conf;
static struct ckpt head = {.numerics = "n", .config = "c"};
static struct job job = {.conf = &conf, .graph = &graph, .pl = &placement, .mesh = {{RANKS, 1}}, .n_stages = RANKS,
                         .max_batch = BATCH};

struct member { struct exec exec; struct control *side; struct save *save; struct err e; int bad; pthread_t thread; };
static struct member member[RANKS];
static struct tp *tp[RANKS];
static struct coordinator lead;
static char path[64];
static struct outputs files = OUTPUTS_NONE;

/* What the loop would do about checkpoints: it lets them be committed when it hears of them, after the steps before. */
static struct { int steps, before[4], n; struct save_done done[4]; _Atomic int n_done; } heard;

/* Of a checkpoint that was given up, of the same step. */
static void stale_hear(void)
{
    struct saved stale = {.rank = 1, .e = {E_IO, "stale"}};
    save_reported(member[0].save, &stale);
    stale.rank = 2;
    save_reported(member[0].save, &stale);
}

static void wake(void *ctx)
{
    struct result *r = ctx;
    while (r && queue_get(lead.results, r, 0)) {
        heard.steps += r->o.kind == ORDER_TRAIN;
        if (r->o.kind != ORDER_CHECKPOINT) continue;
        heard.before[heard.n++] = heard.steps;
        stale_hear();
        save_release(member[0].save, &(struct save_note){.keep = 3});
    }
}

static void done(void *ctx, const struct save_done *d) { heard.done[heard.n_done++] = *d; }

static void job_make(enum trouble trouble)
{
    if (!conf.train.nonfinite) conf.train.nonfinite = NONFINITE_STOP;
    static const char *const name[PARAMS] = {"a", "b", "c", "d"};
    struct err e = {0};
    for (int i = 0; i < PARAMS; i++) {
        param[i] = (struct param){.name = name[i], .shape = {2, {2, 3}}, .type = F32};
        state[i] = (struct state_row){.name = name[i], .param = i, .shape = param[i].shape, .owner = owner[i],
                                      .file = {F32, LAYOUT_PLAIN, 1}, .trained = true};
    }
    ck_assert_int_eq(tp_local_open(RANKS, tp, &e), 0);
    for (int i = 0; i < RANKS; i++) {
        member[i].side = control_new(tp[i], &job);
        member[i].side->piece = 7;                        /* tensors of 24 bytes: three messages and a shorter one */
        member[i].exec = (struct exec){i, tp[i], control_of(member[i].side), trouble, 0, 0, 0, false};
        control_exec(member[i].side, &member[i].exec, NULL);
        member[i].save = save_new();
        save_open(member[i].save, &(struct save_request){.job = &job, .exec = &member[i].exec, .rank = i,
                                                         .stop = abort_code(), .dir = ".", .head = &head});
        control_save(member[i].side, member[i].save);
    }
    snprintf(path, sizeof path, "/tmp/t_side.%ld.safetensors", (long)getpid());
    ck_assert_int_eq(out_place(path, &files.weights, &e), 0);
    lead = (struct coordinator){.orders = queue_new(16, task_bytes(&job)),
                                .results = queue_new(16, result_bytes(RANKS)), .files = &files, .wake = wake};
}

static void order_put(enum order_kind kind, uint64_t step)
{
    struct task *t = mem_alloc(task_bytes(&job));
    t->epoch = 7;
    t->o = (struct order){.kind = kind, .step = step, .n = kind == ORDER_TRAIN ? BATCH : 0};
    for (int i = 0; i < t->o.n; i++) t->id[i] = (int64_t)(100 * step) + i;
    ck_assert(queue_put(lead.orders, t));
    free(t);
}

static void *member_main(void *arg)
{
    struct member *m = arg;
    m->bad = m->exec.rank ? worker_run(m->side, &m->e) : coordinator_run(m->side, &lead, &m->e);
    return NULL;
}

static void job_run(void)
{
    for (int i = 0; i < RANKS; i++) pthread_create(&member[i].thread, NULL, member_main, &member[i]);
    for (int i = 0; i < RANKS; i++) pthread_join(member[i].thread, NULL);
}

static void job_end(void)
{
    for (int i = 0; i < RANKS; i++) {
        save_free(member[i].save);
        control_free(member[i].side);
        tp[i]->ops->close(tp[i]);
    }
    queue_free(lead.orders);
    queue_free(lead.results);
    unlink(path);
    output_paths_free(&files);
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

/* A job whose checkpoints come into a scratch folder. */
static void saving_make(enum trouble trouble)
{
    scratch_enter();
    job_make(trouble);
    memset(&heard, 0, sizeof heard);
    save_lead(member[0].save, &(struct save_lead){NULL, AT_FDCWD, done, NULL});
    lead.ctx = mem_alloc(result_bytes(RANKS));
}

/* Steps, and checkpoints behind two of them. */
static void orders_put(uint64_t steps, uint64_t a, uint64_t b)
{
    for (uint64_t i = 1; i <= steps; i++) {
        order_put(ORDER_TRAIN, i);
        if (i == a || i == b) order_put(ORDER_CHECKPOINT, i);
    }
}

static void saving_end(void)
{
    free(lead.ctx);
    job_end();
    scratch_leave();
}

/* Two checkpoints among five steps; the second begins when the first is written. */
START_TEST(checkpoints_are_written_beside_steps)
{
    struct err e = {0};
    saving_make(NONE);
    orders_put(5, 2, 3);
    order_put(ORDER_STOP, 5);
    job_run();
    ck_assert(heard.n == 2 && heard.before[0] == 2 && heard.before[1] == 3 && heard.n_done == 2);
    int dir = open("checkpoints", O_RDONLY | O_DIRECTORY);
    for (int i = 0; i < 2; i++) {
        struct ckpt c;
        ck_assert_msg(heard.done[i].e.code == 0 && heard.done[i].step == (uint64_t)i + 2, "%s", heard.done[i].e.text);
        ck_assert_msg(!ckpt_verify(dir, "checkpoints", (uint64_t)i + 2, NULL, &c, &e), "%s", e.text);
        ck_assert_int_eq(c.n_files, RANKS + 1);           /* a file of each rank, and the index */
        ckpt_free(&c);
    }
    close(dir);
    for (int i = 0; i < RANKS; i++) ck_assert(!member[i].bad && member[i].exec.ran == 5 && !member[i].exec.wrong_order);
    saving_end();
}
END_TEST

/* A rank that cannot begin says so: there is no checkpoint of that step, and the run goes on. */
START_TEST(a_checkpoint_that_a_rank_cannot_begin_is_none)
{
    saving_make(FAIL_AVERAGES);
    orders_put(4, 2, 3);
    order_put(ORDER_STOP, 4);
    job_run();
    ck_assert(heard.n_done == 2 && heard.done[0].e.code == E_DEVICE && heard.done[1].e.code == 0);
    ck_assert_str_eq(heard.done[0].e.text, "no swap");
    ck_assert(!access("checkpoints/step-00000003", F_OK) && access("checkpoints/step-00000002", F_OK));
    for (int i = 0; i < RANKS; i++) ck_assert_msg(!member[i].bad, "%s", member[i].e.text);
    saving_end();
}
END_TEST

static void never_release(void *ctx) { while (queue_get(lead.results, ctx, 0)) heard.n++; }

/* A part that never comes ends the run when the next checkpoint is due, and not before. */
START_TEST(a_checkpoint_that_never_comes_ends_the_run)
{
    saving_make(NONE);
    lead.wake = never_release;
    member[0].save->q.patience_ns = 100000000;
    orders_put(5, 1, 5);
    job_run();
    ck_assert(member[0].bad && member[0].e.code == E_IO && heard.n_done == 0 && heard.n);
    ck_assert(strstr(member[0].e.text, "step-00000001: rank 0: not on disk"));
    ck_assert_int_eq(member[0].exec.ran, 5);
    saving_end();
}
END_TEST

START_TEST(orders_run_everywhere_and_reports_come_back)
{
    struct result *r = mem_alloc(result_bytes(RANKS));
    job_make(NONE);
    for (uint64_t i = 1; i <= 10; i++) order_put(ORDER_TRAIN, i);
    order_put(ORDER_STOP, 10);
    job_run();
    for (int i = 0; i < RANKS; i++) {
        ck_assert_int_eq(member[i].bad, 0);
        ck_assert_int_eq(member[i].exec.ran, 10);
        ck_assert(!member[i].exec.wrong_order);
    }
    for (uint64_t i = 1; i <= 10; i++) {
        ck_assert(queue_get(lead.results, r, 0));
        ck_assert_uint_eq(r->o.step, i);
        ck_assert_uint_eq(r->epoch, 7);
        for (int k = 0; k < RANKS; k++) {
            ck_assert_uint_eq(r->rep[k].step, i);
            ck_assert_int_eq(r->rep[k].rank, k);
        }
        ck_assert(r->rep[RANKS - 1].score[0].numerator == (double)i);
        ck_assert_int_eq((int)r->rep[RANKS - 1].samples, BATCH);
    }
    ck_assert(!queue_get(lead.results, r, 0));
    free(r);
    job_end();
}
END_TEST

START_TEST(costs_are_summed_once)
{
    struct warmup_profile probe[RANKS] = {{0}};
    double x[NUMBERS];
    job_make(NONE);
    lead.costs = queue_new(1, sizeof x);
    for (int i = 0; i < RANKS; i++) {
        probe[i].rank = i;
        control_set_warmup(member[i].side, &probe[i]);
    }
    for (uint64_t i = 1; i <= 10; i++) order_put(ORDER_TRAIN, i);
    order_put(ORDER_STOP, 10);
    job_run();
    for (int i = 0; i < RANKS; i++)
        ck_assert_msg(member[i].bad == 0 && !member[i].exec.wrong_order, "%s", member[i].e.text);
    ck_assert(queue_get(lead.costs, x, 0));
    ck_assert(x[0] == 6 && x[1] == 12);
    ck_assert(!queue_get(lead.costs, x, 0));
    queue_free(lead.costs);
    job_end();
}
END_TEST

START_TEST(weights_are_fetched_from_their_owners)
{
    struct result *r = mem_alloc(result_bytes(RANKS));
    struct err e = {0};
    float x[6];
    job_make(NONE);
    order_put(ORDER_TRAIN, 1);
    order_put(ORDER_SAVE, 1);
    order_put(ORDER_STOP, 1);
    job_run();
    ck_assert_msg(member[0].bad == 0, "%s", member[0].e.text);
    ck_assert(queue_get(lead.results, r, 0) && queue_get(lead.results, r, 0));
    ck_assert_int_eq((int)r->o.kind, ORDER_SAVE);
    ck_assert_uint_eq(strlen(r->hash), 32);
    struct st *s = st_open(path, &e);
    ck_assert_msg(s != NULL, "%s", e.text);
    for (int i = 0; i < PARAMS; i++) {
        int k = st_find(s, param[i].name);
        ck_assert_int_ge(k, 0);
        ck_assert_int_eq(st_read(s, k, x, &e), 0);
        for (int j = 0; j < 6; j++) ck_assert(x[j] == (float)(100 * owner[i] + 10 * i + j));
    }
    st_close(s);
    free(r);
    job_end();
}
END_TEST

START_TEST(failure_of_another_rank_ends_a_waiting_first_rank)
{
    job_make(FAIL_WHILE_FIRST_WAITS);
    for (uint64_t i = 1; i <= 5; i++) order_put(ORDER_TRAIN, i);
    job_run();
    for (int i = 0; i < RANKS; i++) {
        ck_assert_int_eq(member[i].bad, -1);
        ck_assert_int_eq(member[i].e.code, E_DATA);
    }
    ck_assert_str_eq(member[0].e.text, "x.idx: offset 3: bad");
    job_end();
}
END_TEST

/* The job ends on all ranks, and rank 0 says that. */
static void job_fails(enum trouble how, const char *says)
{
    job_make(how);
    for (uint64_t i = 1; i <= 5; i++) order_put(ORDER_TRAIN, i);
    job_run();
    for (int i = 0; i < RANKS; i++) ck_assert_int_eq(member[i].e.code, E_DEVICE);
    ck_assert_str_eq(member[0].e.text, says);
    job_end();
}

START_TEST(failure_of_the_first_rank_ends_the_others) { job_fails(FAIL_FIRST, "a kernel failed"); }
END_TEST
START_TEST(cause_that_was_told_wins_over_what_follows) { job_fails(FAIL_AFTER_REPORT, "rank 1: the device is gone"); }
END_TEST

/* What no coordinator_run or worker_run runs fails by control_fail: the job ends as after a step. */
static void *step_main(void *arg)
{
    struct member *m = arg;
    struct order o = {.kind = ORDER_TRAIN, .step = 3};
    struct report r;
    m->bad = exec_step(&m->exec, &o, NULL, &r, &m->e);
    control_fail(m->side, &m->e);
    return NULL;
}

START_TEST(failure_outside_of_orders_is_told)
{
    job_make(FAIL_WHILE_FIRST_WAITS);
    for (int i = 0; i < RANKS; i++) pthread_create(&member[i].thread, NULL, step_main, &member[i]);
    for (int i = 0; i < RANKS; i++) pthread_join(member[i].thread, NULL);
    for (int i = 0; i < RANKS; i++) ck_assert_int_eq(member[i].e.code, E_DATA);
    ck_assert_str_eq(member[0].e.text, "x.idx: offset 3: bad");
    job_end();
}
END_TEST

START_TEST(loss_that_is_not_finite_ends_the_run)
{
    job_make(LOSS_NAN);
    for (uint64_t i = 1; i <= 5; i++) order_put(ORDER_TRAIN, i);
    job_run();
    for (int i = 0; i < RANKS; i++) ck_assert_int_eq(member[i].e.code, E_NONFINITE);
    ck_assert_ptr_nonnull(strstr(member[0].e.text, "step 2:"));
    job_end();
}
END_TEST

/* Steps 2 and 3, 6 and 7 update nothing. _i: so many in a row may. */
START_TEST(steps_are_skipped_within_a_limit)
{
    struct result *r = mem_alloc(result_bytes(RANKS));
    conf.train.nonfinite = NONFINITE_SKIP;
    conf.train.nonfinite_limit = _i;
    job_make(GRADIENTS_INF);
    for (uint64_t i = 1; i <= 9; i++) order_put(ORDER_TRAIN, i);
    order_put(ORDER_STOP, 9);
    job_run();
    if (_i == 2) {
        for (int i = 0; i < RANKS; i++) ck_assert_msg(!member[i].bad, "%s", member[i].e.text);
    } else {
        for (int i = 0; i < RANKS; i++) ck_assert_int_eq(member[i].e.code, E_NONFINITE);
        ck_assert_str_eq(member[0].e.text, "step 3: the gradient of c is not finite in 2 steps in a row; try a smaller "
                         "train.learning_rate, and look for NaN and very large values in the data");
    }
    for (uint64_t i = 1; i <= (_i == 2 ? 9 : 3); i++) {
        ck_assert(queue_get(lead.results, r, 0));
        ck_assert_uint_eq(r->o.step, i);
        ck_assert_int_eq(r->rep[1].nonfinite, i % 4 >= 2 ? NONFINITE_GRADIENT + 2 : 0);
    }
    free(r);
    job_end();
}
END_TEST

/* What a rank does to go back: here it only counts steps anew. ctx: struct member. Rank 2 takes long, and may fail. */
static int unreadable;
static int went_back(void *ctx, uint64_t step, struct err *e)
{
    struct member *m = ctx;
    if (m->exec.rank == 2) nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    if (m->exec.rank == 2 && unreadable)
        return err_set(e, unreadable == 1 ? E_DATA : E_IO, unreadable == 1 ? "a file is damaged" : "a disk is gone");
    m->exec.last_step = step;
    return 0;
}

/* Steps 2 and 3 are not finite, and it is the loop who judges that. Then all ranks go back to step 1, behind all that
 * was ordered before, and on. _i: rank 2 finds damage (1), which ends no run, or cannot read at all (2). */
START_TEST(ranks_go_back_together)
{
    static const uint64_t steps[] = {1, 2, 3, 1, 2, 3, 4};
    struct result *r = mem_alloc(result_bytes(RANKS));
    conf.train.nonfinite = NONFINITE_ROLLBACK;
    unreadable = _i;
    job_make(GRADIENTS_INF);
    for (int i = 0; i < RANKS; i++) control_set_restore(member[i].side, went_back, &member[i]);
    for (int i = 0; i < 7; i++) order_put(i == 3 ? ORDER_ROLLBACK : ORDER_TRAIN, steps[i]);
    order_put(ORDER_STOP, 4);
    job_run();
    for (int i = 0; i < RANKS; i++) {
        ck_assert_int_eq(member[i].e.code, _i == 2 ? E_IO : 0);
        ck_assert((_i == 1 || !member[i].exec.wrong_order) && member[i].exec.ran == (_i == 2 ? 3 : 6));
    }
    if (_i == 2) ck_assert_str_eq(member[0].e.text, "rank 2, going back to step 1: a disk is gone");
    for (int i = 0; i < (_i == 2 ? 3 : 7); i++) {
        ck_assert(queue_get(lead.results, r, 0) && r->o.step == steps[i]);
        ck_assert_int_eq((int)r->o.kind, i == 3 ? ORDER_ROLLBACK : ORDER_TRAIN);
        if (i == 3) ck_assert_int_eq(r->damaged.code, _i ? E_DATA : 0);
        if (i == 3 && _i) ck_assert_str_eq(r->damaged.text, "a file is damaged");
    }
    ck_assert(!queue_get(lead.results, r, 0));
    free(r);
    job_end();
}
END_TEST

START_TEST(sums_are_taken_in_rank_order)
{
    job_make(SUM);
    for (uint64_t i = 1; i <= 5; i++) order_put(ORDER_TRAIN, i);
    order_put(ORDER_STOP, 5);
    job_run();
    for (int i = 0; i < RANKS; i++) ck_assert_msg(member[i].bad == 0, "%s", member[i].e.text);
    job_end();
}
END_TEST

START_TEST(failure_ends_a_sum_that_waits)
{
    job_make(FAIL_BEFORE_SUM);
    for (uint64_t i = 1; i <= 5; i++) order_put(ORDER_TRAIN, i);
    job_run();
    for (int i = 0; i < RANKS; i++) ck_assert_int_eq(member[i].e.code, E_DATA);
    ck_assert_str_eq(member[0].e.text, "x.idx: offset 3: bad");
    job_end();
}
END_TEST

int main(void)
{
    TCase *t = tcase_create("job");
    tcase_add_test(t, orders_run_everywhere_and_reports_come_back);
    tcase_add_test(t, checkpoints_are_written_beside_steps);
    tcase_add_test(t, a_checkpoint_that_a_rank_cannot_begin_is_none);
    tcase_add_test(t, a_checkpoint_that_never_comes_ends_the_run);
    tcase_add_test(t, costs_are_summed_once);
    tcase_add_test(t, weights_are_fetched_from_their_owners);
    tcase_add_test(t, failure_of_another_rank_ends_a_waiting_first_rank);
    tcase_add_test(t, failure_of_the_first_rank_ends_the_others);
    tcase_add_test(t, cause_that_was_told_wins_over_what_follows);
    tcase_add_test(t, failure_outside_of_orders_is_told);
    tcase_add_test(t, loss_that_is_not_finite_ends_the_run);
    tcase_add_loop_test(t, steps_are_skipped_within_a_limit, 1, 3);
    tcase_add_loop_test(t, ranks_go_back_together, 0, 3);
    tcase_add_test(t, sums_are_taken_in_rank_order);
    tcase_add_test(t, failure_ends_a_sum_that_waits);
    return suite_run("side", CK_FORK, t);
}
