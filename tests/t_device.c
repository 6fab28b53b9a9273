/* The transports of devices, over the doubles of cudart and NCCL: the battery of all transports, order between streams,
 * and failures. */
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/clock.h"
#include "device_rig.h"
#include "tp_battery.h"
#include "sure.h"

enum { MANY = 64 };
static const char *const kind_name[KINDS] = {"staged", "nccl"};
/* What hangs does so for 60 s; where nothing else runs, ten seconds are enough to see that nothing hangs. */
#define HANGS_NS 40000000000u

/* ---- the battery ----------------------------------------------------------------------------- */

static int battery_run(struct member *m)
{
    const char *wrong = m->check->run(m->tp);
    if (wrong) snprintf(m->text, sizeof m->text, "%s", wrong);
    return wrong != NULL;
}

/* Everybody with everybody; the largest messages go around a ring. */
static void uses_all(int rank, int n, struct tp_use *use, int *n_use)
{
    *n_use = 0;
    for (int peer = 0; peer < n; peer++)
        for (int send = 0; send < 2 && peer != rank; send++) {
            bool ring = (send ? (rank + 1) % n : (rank + n - 1) % n) == peer || n == 2;
            use[(*n_use)++] =
                (struct tp_use){.peer = peer, .send = send, .posts = MANY, .bytes = ring ? (8u << 20) + 4 : 2u << 20};
        }
}

static void battery(enum kind kind, int n, unsigned delay_us)
{
    struct tp_use use[MAX_RANKS][2 * MAX_RANKS];
    double_delays(delay_us, (uint64_t)n);
    tp_battery_memory = (struct tp_battery_memory){memory_take, memory_keep};
    for (const struct tp_check *c = tp_battery; c->name; c++) {
        struct member m[MAX_RANKS] = {0};
        for (int r = 0; r < n; r++) {
            m[r] = (struct member){.use = use[r], .check = c, .drop = -1, .run = battery_run};
            uses_all(r, n, use[r], &m[r].n_use);
        }
        members_run(kind, n, m);
        for (int r = 0; r < n; r++)
            ck_assert_msg(!m[r].text[0], "%s, %s, rank %d of %d: %s", kind_name[kind], c->name, r, n, m[r].text);
        members_close(n, m);
        memory_give_all();
    }
}

/* _i: transport * 8 + (ranks - 1) * 2 + whether streams are delayed. */
START_TEST(battery_device) { battery((enum kind)(_i / 8), _i / 2 % 4 + 1, _i % 2 ? 100 : 0); }
END_TEST

/* ---- order: a pipeline whose host never waits for the device --------------------------------- */

enum { MICRO = 32, WIDTH = 600, SLOTS = 2, SLOW = 8 };
struct fill { float *to; const float *from; float first; long *wrong; };

/* What rank r makes of micro-batch k: its number and r ones on top, in all elements. */
static void fill_run(void *p)
{
    struct fill *f = p;
    for (int i = 0; i < WIDTH; i++) f->to[i] = f->from ? f->from[i] + 1 : f->first;
}
static void idle_run(void *p) { (void)p; }
static void look_run(void *p)
{
    struct fill *f = p;
    for (int i = 0; i < WIDTH; i++) *f->wrong += !(f->from[i] == f->first);   /* NaN is wrong, too */
}

struct pipe { float *in[SLOTS], *out[SLOTS]; struct tp_req received[SLOTS], sent[SLOTS]; };

static void kernel(struct member *m, void (*fn)(void *), struct fill f)
{
    check_cuda((cudaError_t)host_launch(m->stream, fn, &f, sizeof f));
}

static int micro_run(struct member *m, struct pipe *q, int k)
{
    struct tp *t = m->tp;
    int s = k % SLOTS, me = m->rank;
    struct tp_tag tag = {.step = 1, .mb = (uint32_t)k, .samples = 1, .bytes = WIDTH * sizeof(float)};
    if (me && t->ops->post_recv(t, me - 1, &tag, q->in[s], &q->received[s], &m->e)) return -1;
    if (me && come_to(t, &q->received[s], &m->e)) return -1;
    if (me == m->size - 1)
        kernel(m, look_run, (struct fill){.from = q->in[s], .first = (float)(k + me - 1), .wrong = &m->wrong});
    if (me == m->size - 1) return 0;
    if (come_to(t, &q->sent[s], &m->e)) return -1;       /* the slot is still being sent */
    /* the first stage is slow: what does not wait for it comes too soon */
    for (int i = 0; i < SLOW && !me; i++) kernel(m, idle_run, (struct fill){0});
    kernel(m, fill_run, (struct fill){.to = q->out[s], .from = me ? q->in[s] : NULL, .first = (float)k});
    return t->ops->post_send(t, me + 1, &tag, q->out[s], &q->sent[s], &m->e);
}

static int pipe_run(struct member *m)
{
    struct pipe q;
    for (int s = 0; s < SLOTS; s++) {
        q.in[s] = memory_take(WIDTH * sizeof(float));
        q.out[s] = memory_take(WIDTH * sizeof(float));
        q.received[s].slot = q.sent[s].slot = -1;
    }
    for (int k = 0; k < MICRO; k++) if (micro_run(m, &q, k)) return -1;
    for (int s = 0; s < SLOTS; s++) if (come_to(m->tp, &q.sent[s], &m->e)) return -1;
    return settle(m);
}

/* How many values are wrong. */
static long pipeline(enum kind kind, int n, uint64_t seed, int rank, int drop)
{
    struct tp_use use[MAX_RANKS][2];
    struct member m[MAX_RANKS] = {0};
    long wrong = 0;
    double_delays(200, seed);
    for (int r = 0; r < n; r++) {
        m[r] = (struct member){.use = use[r], .drop = r == rank ? drop : -1, .run = pipe_run};
        if (r + 1 < n)
            use[r][m[r].n_use++] =
                (struct tp_use){.peer = r + 1, .send = true, .posts = MICRO, .bytes = WIDTH * sizeof(float)};
        if (r)
            use[r][m[r].n_use++] =
                (struct tp_use){.peer = r - 1, .send = false, .posts = MICRO, .bytes = WIDTH * sizeof(float)};
    }
    members_run(kind, n, m);
    for (int r = 0; r < n; r++) {
        ck_assert_msg(!m[r].text[0], "rank %d of %d: %s", r, n, m[r].text);
        wrong += m[r].wrong;
    }
    members_close(n, m);
    memory_give_all();
    return wrong;
}

enum { STREAM = 0, LINK = 1 };                           /* numbers of a rank's streams */

/* _i: transport * 2 + (four ranks or two) */
START_TEST(order_is_kept)
{
    for (uint64_t seed = 1; seed <= (uint64_t)(IS_SANITIZED ? 3 : cases_of(1, 3, 10)); seed++)
        ck_assert_int_eq(pipeline((enum kind)(_i / 2), _i % 2 ? 4 : 2, seed, -1, -1), 0);
}
END_TEST

/* What is wrong without one of the waits. On a busy machine a rank may come late enough by chance: several seeds. */
static long pipelines(int i, int rank, int drop)
{
    long wrong = 0;
    for (uint64_t seed = 1; seed <= 10 && !wrong; seed++)
        wrong = pipeline((enum kind)(i / 2), i % 2 ? 4 : 2, seed, rank, drop);
    return wrong;
}

START_TEST(missing_wait_before_a_send)
{
    ck_assert_int_gt(pipelines(_i, 0, LINK), 0);
}
END_TEST

START_TEST(missing_wait_after_a_receive)
{
    ck_assert_int_gt(pipelines(_i, 1, STREAM), 0);
}
END_TEST

/* ---- what goes wrong ------------------------------------------------------------------------- */

static int mismatch_run(struct member *m)
{
    return one_transfer(m, (struct tp_tag){.step = 3, .mb = m->rank ? 7 : 8, .samples = 4, .bytes = 64},
                        memory_take(64));
}

static int vanish_run(struct member *m)
{
    void *p = memory_take(64);                           /* now: a device that is gone has no memory to give */
    for (uint32_t k = 0; k < 1000; k++)
        if (one_transfer(m, (struct tp_tag){.step = 1, .mb = k, .bytes = 64}, p)) return -1;
    return 0;
}

static int limits_run(struct member *m)
{
    struct tp_tag tag = {.bytes = 65};
    struct tp_req r;
    struct err e = {0};
    int (*post)(struct tp *, int, const struct tp_tag *, void *, struct tp_req *, struct err *) = m->tp->ops->post_recv;
    bool ok = post(m->tp, 1 - m->rank, &tag, NULL, &r, &e) == -1 && e.code == E_INTERNAL;
    if (m->rank) ok = ok && strcmp(e.text, "rank 1: a transfer of 65 bytes on a link for 64") == 0;
    else ok = ok && strcmp(e.text, "rank 0 has no link from rank 1") == 0;
    tag.bytes = 64;
    void *p = memory_take(64);
    e = (struct err){0};
    for (int i = 0; i < 2 && m->rank; i++) ok = ok && post(m->tp, 0, &tag, p, &r, &e) == 0;
    ok = ok && (!m->rank || (post(m->tp, 0, &tag, p, &r, &e) == -1 && strstr(e.text, "more than 2 open transfers")));
    return ok ? 0 : err_set(&m->e, E_INTERNAL, "not refused: %s", e.text);
}

START_TEST(wrong_tag)
{
    struct member m[2];
    two((enum kind)_i, mismatch_run, m);
    ck_assert_int_eq(m[1].e.code, E_INTERNAL);
    ck_assert_ptr_nonnull(strstr(m[1].e.text, "rank 1 expected from rank 0 (step 3 plan 0 micro-batch 7"));
    members_close(2, m);
}
END_TEST

START_TEST(limits)
{
    struct member m[2];
    two((enum kind)_i, limits_run, m);
    for (int r = 0; r < 2; r++) ck_assert_msg(!m[r].text[0], "rank %d: %s", r, m[r].text);
    members_close(2, m);
}
END_TEST

/* Both have ended, soon; the one that says more than "stopped" is returned, or NULL: said. */
static const struct member *ended(struct member *m, uint64_t began)
{
    bool soon = clock_ns() - began < HANGS_NS;
    for (int r = 0; r < 2; r++)
        if (wrong_if(!soon || (m[r].e.code != E_DEVICE && m[r].e.code != E_STOPPED), "rank %d, %s: %s", r,
                     soon ? "soon" : "late", m[r].text))
            return NULL;
    return m[0].e.code == E_DEVICE ? &m[0] : &m[1];
}

/* All calls fail from operation n on: both ranks end, soon, who says more than "stopped" names the device's error, and
 * nothing is left of NCCL. */
static const char *vanish_at(int kind, int n)
{
    struct member m[2];
    char at[16];
    uint64_t began = clock_ns();
    snprintf(at, sizeof at, "%d", n);
    setenv("DOUBLE_VANISH", at, 1);
    two((enum kind)kind, vanish_run, m);
    const struct member *first = ended(m, began);
    members_close(2, m);
    if (!first) return said;
    if (double_comms_left())
        return wrong_if(true, "gone at operation %d: %d communicators are still held", n, double_comms_left());
    return wrong_if(!strstr(first->text, "rank ") || !strstr(first->text, "unavailable"), "%s", first->text);
}

static const char *vanishes(int kind) { return vanish_at(kind, 500); }
START_TEST(device_vanishes) { twice(vanishes, _i); }
END_TEST

/* The same when streams are late, at each operation of two transfers: then some have been taken that never get their
 * turn, and belong to nobody unless the double sees to it. */
static const char *vanishes_late(int i)
{
    double_delays(5000, 1);
    return vanish_at(i % KINDS, 40 + i / KINDS);
}
START_TEST(device_vanishes_late) { twice(vanishes_late, _i); }
END_TEST

/* The connection breaks in the middle, or nothing moves any more without a word: a rank says so, and all end soon.
 * hangs: which. */
static const char *peer_lost(int hangs)
{
    struct member m[2];
    uint64_t began = clock_ns();
    patience_ns = patience_s * 1000000000;
    setenv(hangs ? "DOUBLE_NCCL_HANG" : "DOUBLE_NCCL_CLOSE", "60", 1);
    two(NCCL, vanish_run, m);
    const struct member *first = ended(m, began);
    members_close(2, m);
    if (!first) return said;
    return wrong_if(!strstr(first->text, first->rank ? "rank 0" : "rank 1") ||
                        !strstr(first->text, hangs ? "no progress" : "remote"),
                    "%s", first->text);
}
START_TEST(peer_is_lost) { patiently(peer_lost, _i); }
END_TEST

static int short_word_run(struct member *m)
{
    if (m->rank) return m->tp->ops->send_msg(m->tp, 0, TP_WATCH, "x", 1, &m->e);
    while (!m->tp->ops->progress(m->tp, &m->e)) sched_yield();
    return -1;
}

START_TEST(short_word)
{
    struct member m[2];
    two(NCCL, short_word_run, m);
    ck_assert_int_eq(m[0].e.code, E_INTERNAL);
    ck_assert_msg(strncmp(m[0].text, "rank 0 heard 1 bytes about a link instead of ", 45) == 0, "%s", m[0].text);
    members_close(2, m);
}
END_TEST

/* ---- who is lost and who is only slow: two and a half times the patience without a movement ---- */

static struct timespec long_time(void)
{
    return (struct timespec){.tv_sec = (time_t)(patience_s * 5 / 2), .tv_nsec = patience_s % 2 ? 500000000 : 0};
}
static int slow_rank;
static atomic_bool told;

static void sleep_run(void *p) { nanosleep(p, NULL); }

/* Nobody is lost. */
static const char *nobody(int (*run)(struct member *))
{
    struct member m[2];
    const char *wrong = NULL;
    patience_ns = patience_s * 1000000000;
    two(NCCL, run, m);
    for (int r = 0; r < 2 && !wrong; r++) wrong = wrong_if(m[r].text[0], "rank %d: %s", r, m[r].text);
    members_close(2, m);
    return wrong;
}

static int slow_run(struct member *m)
{
    struct timespec t = long_time();
    if (m->rank == slow_rank) check_cuda((cudaError_t)host_launch(m->stream, sleep_run, &t, sizeof t));
    return one_transfer(m, (struct tp_tag){.step = 1, .bytes = 64}, memory_take(64));
}

/* A stream that computes for long is not lost, be it the sender's or the receiver's. */
static const char *stream_slow(int whose)
{
    slow_rank = whose;
    return nobody(slow_run);
}
START_TEST(slow_stream) { patiently(stream_slow, _i); }
END_TEST

/* Both ranks stand still while the receiver's stream has not come to the transfer that both have posted. */
static int stopped_run(struct member *m)
{
    struct tp_tag tag = {.step = 1, .bytes = 64};
    struct tp_req r;
    struct timespec t = long_time(), longer = {.tv_sec = (time_t)(3 * patience_s)};
    void *p = memory_take(64);
    if (m->rank) check_cuda((cudaError_t)host_launch(m->stream, sleep_run, &longer, sizeof longer));
    if (m->rank ? m->tp->ops->post_recv(m->tp, 0, &tag, p, &r, &m->e)
                : m->tp->ops->post_send(m->tp, 1, &tag, p, &r, &m->e))
        return -1;
    for (int i = 0; i < 200; i++) {
        if (m->tp->ops->progress(m->tp, &m->e)) return -1;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    nanosleep(&t, NULL);
    return come_to(m->tp, &r, &m->e) || settle(m) ? -1 : 0;
}

static const char *job_stopped(int unused) { (void)unused; return nobody(stopped_run); }
START_TEST(stopped_job) { patiently(job_stopped, 0); }
END_TEST

static int silent_run(struct member *m)
{
    if (m->rank) {
        while (!atomic_load(&told)) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        return 0;
    }
    int bad = one_transfer(m, (struct tp_tag){.step = 1, .bytes = 64}, memory_take(64));
    atomic_store(&told, true);
    return bad;
}

/* A rank whose host stands still answers nobody. */
START_TEST(silent_peer)
{
    struct member m[2];
    patience_ns = 1000000000;
    two(NCCL, silent_run, m);
    ck_assert_int_eq(m[0].e.code, E_DEVICE);
    ck_assert_str_eq(m[0].text, "rank 0: no progress on the link to rank 1 for 1 s, and that rank is not responding");
    members_close(2, m);
}
END_TEST

int main(void)
{
    TCase *t[] = {suite_case("battery", 120), suite_case("order", 120), suite_case("faults", 120)};
#ifndef __SANITIZE_THREAD__                              /* too slow there; the tests of order take the same ways */
    suite_loop(t[0], battery_device, 8 * KINDS, EVERY(1) && SANITIZED_EVERY(3));
#endif
    suite_loop(t[1], order_is_kept, 2 * KINDS, EVERY(1));
#ifndef __SANITIZE_THREAD__                              /* it sees the planted races by itself, and ends the program */
    suite_loop(t[1], missing_wait_before_a_send, 2 * KINDS, EVERY(1) && SANITIZED_EVERY(3));
    suite_loop(t[1], missing_wait_after_a_receive, 2 * KINDS, EVERY(1) && SANITIZED_EVERY(3));
#endif
    tcase_add_loop_test(t[2], wrong_tag, 0, KINDS);
    tcase_add_loop_test(t[2], limits, 0, KINDS);
    tcase_add_loop_test(t[2], device_vanishes, 0, KINDS);
    suite_loop(t[2], device_vanishes_late, 12 * KINDS, EVERY(1) && SANITIZED_EVERY(5));
    tcase_add_loop_test(t[2], peer_is_lost, 0, 2);
    tcase_add_test(t[2], short_word);
    tcase_add_loop_test(t[2], slow_stream, 0, 2);
    tcase_add_test(t[2], stopped_job);
    tcase_add_test(t[2], silent_peer);
    return suite_run("device", CK_FORK, t[0], t[1], t[2]);
}
