/* The failure detector and stragglers: heartbeats in, suspicion out, with this test's own clock; and the connections
 * for heartbeats. */
#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include "base/deadline.h"
#include "report/straggler.h"
#include "cluster/failure_detector.h"
#include "cluster/peer_socket.h"
#include "sure.h"

enum { RANKS = 4 };
#define MS UINT64_C(1000000)
#define SECOND (1000 * MS)
static struct failure_detector detector;
static struct detector_rank ranks[RANKS];
static struct beat beat[RANKS];
static bool speaks[RANKS];
static int blind;                                        /* this rank looks neither for what it waits for nor work */
static uint64_t now;

static void begin(uint64_t limit_s)
{
    now = 5 * SECOND;
    blind = -1;
    detector_begin(&detector, ranks, RANKS, now);
    detector.limit_ns = limit_s * SECOND;
    for (int r = 0; r < RANKS; r++) {
        beat[r] = (struct beat){.wait = EXEC_WAITS_NOT, .state = BEAT_IN | BEAT_WARM, .step = 17,
                                .slowest_ns = 100 * MS, .where = exec_where(ACT_B, r, 3, 1)};
        speaks[r] = true;
    }
}

/* Lets a quarter of a second go by after another; all ranks that speak say their beat. Returns whether there was a
 * verdict, and how long that took, in ms. */
static bool pass(uint64_t ms, struct suspicion *v, uint64_t *took)
{
    uint64_t from = now;
    for (uint64_t until = now + ms * MS; now < until;) {
        now += 250 * MS;
        for (int r = 0; r < RANKS; r++) {
            if (!speaks[r]) continue;
            beat[r].polls += (beat[r].wait >= 0 || !(beat[r].state & BEAT_IN)) && r != blind;
            detector_beat(&detector, r, &beat[r], now);
        }
        *took = (now - from) / MS;
        if (detector_poll(&detector, now, v)) return true;
    }
    return false;
}

/* As pass, while the counts of those ranks grow: a bit for each. */
static bool pass_moving(uint64_t ms, unsigned moving, struct suspicion *v)
{
    uint64_t took;
    for (uint64_t done = 0; done < ms; done += 250) {
        for (int r = 0; r < RANKS; r++) beat[r].count += moving >> r & 1;
        if (pass(250, v, &took)) return true;
    }
    return false;
}

START_TEST(silence_is_found)
{
    struct suspicion v;
    uint64_t took;
    begin(10);
    ck_assert(!pass_moving(30000, 0xf, &v));
    speaks[2] = false;
    ck_assert(!pass_moving(9750, 0xb, &v));
    ck_assert(pass_moving(1000, 0xb, &v));
    ck_assert(v.kind == SUSPECT_SILENT && v.rank == 2 && v.ns > 10 * SECOND && v.ns < 11 * SECOND);
    begin(0);
    speaks[1] = false;
    ck_assert(!pass(1000000, &v, &took));                 /* 0 judges nobody */
}
END_TEST

START_TEST(ranks_that_left_are_not_judged)
{
    struct suspicion v;
    begin(10);
    speaks[3] = false;
    detector_leave(&detector, 3);
    ck_assert(!pass_moving(60000, 7, &v));
}
END_TEST

/* 0 waits for 1, 1 for 2, 2 is at work and does not get on; 3 waits for 2 as well. */
START_TEST(the_end_of_a_chain_is_stuck)
{
    struct suspicion v;
    uint64_t took;
    begin(10);
    pass_moving(1000, 0xf, &v);
    beat[0].wait = 1, beat[1].wait = beat[3].wait = 2;
    ck_assert(pass(20000, &v, &took));
    ck_assert(v.kind == SUSPECT_STUCK && v.rank == 2);
    ck_assert_uint_ge(took, 10000);
    ck_assert_uint_le(took, 10500);
}
END_TEST

/* As long as the one that all wait for gets on, it is slow, not stuck. */
START_TEST(slow_is_not_stuck)
{
    struct suspicion v;
    begin(2);
    beat[0].wait = 1, beat[1].wait = 2;
    ck_assert(!pass_moving(100000, 0xc, &v));
}
END_TEST

START_TEST(the_slowest_step_counts_five_times)
{
    struct suspicion v;
    uint64_t took;
    begin(2);
    beat[3].slowest_ns = 3 * SECOND;
    pass_moving(1000, 0xf, &v);
    ck_assert(!pass(14000, &v, &took));
    ck_assert(pass(2000, &v, &took));
}
END_TEST

START_TEST(the_first_step_gets_longer)
{
    struct suspicion v;
    uint64_t took;
    begin(2);
    for (int r = 0; r < RANKS; r++) beat[r].state = BEAT_IN, beat[r].slowest_ns = 0;
    ck_assert(!pass(59000, &v, &took));
    ck_assert(pass(3000, &v, &took));
}
END_TEST

START_TEST(a_ring_is_a_lost_message)
{
    struct suspicion v;
    uint64_t took;
    begin(10);
    beat[0].wait = 1, beat[1].wait = 2, beat[2].wait = 1, beat[3].wait = 2;
    ck_assert(pass(20000, &v, &took));
    ck_assert(v.kind == SUSPECT_DEADLOCK && ((v.rank == 1 && v.other == 2) || (v.rank == 2 && v.other == 1)));
    /* one of the ring has an order to wait for, because it is lost */
    begin(10);
    beat[1].state = 0, beat[1].wait = 0, beat[0].wait = 1, beat[2].wait = 1, beat[3].wait = 2;
    ck_assert(pass(20000, &v, &took));
    ck_assert(v.kind == SUSPECT_DEADLOCK);
}
END_TEST

/* As above, but the thread of rank 2 is held while it waits. */
START_TEST(who_does_not_look_is_stuck)
{
    struct suspicion v;
    uint64_t took;
    begin(10);
    beat[0].wait = 1, beat[1].wait = 2, beat[2].wait = 1, beat[3].wait = 2;
    blind = 2;
    ck_assert(pass(20000, &v, &took));
    ck_assert(v.kind == SUSPECT_STUCK && v.rank == 2);
}
END_TEST

/* As above, but it is held between two steps, and others are in the next one. */
START_TEST(who_does_not_look_between_steps_is_stuck)
{
    struct suspicion v;
    uint64_t took;
    begin(10);
    for (int r = 0; r < RANKS; r++) beat[r].wait = 1;
    beat[1].wait = EXEC_WAITS_NOT, beat[1].state = 0;
    ck_assert(!pass(100000, &v, &took));
    blind = 1;
    ck_assert(pass(20000, &v, &took));
    ck_assert(v.kind == SUSPECT_STUCK && v.rank == 1);
    begin(10);
    for (int r = 0; r < RANKS; r++) beat[r].wait = 1;
    beat[1].wait = EXEC_WAITS_NOT, beat[1].state = BEAT_ELSEWHERE;
    blind = 1;
    ck_assert(!pass(1000000, &v, &took));
    beat[1].state = BEAT_ELSEWHERE | BEAT_IN | BEAT_WARM;         /* the process is, and the rank has not said it yet */
    ck_assert(!pass(1000000, &v, &took));
}
END_TEST

/* Rank 0 is paused, or writes weights: others that wait for it wait rightly, for however long. */
START_TEST(nobody_is_stuck_outside_of_steps)
{
    struct suspicion v;
    uint64_t took;
    begin(10);
    beat[0].state = 0;
    for (int r = 1; r < RANKS; r++) beat[r].state = 0, beat[r].wait = 0;
    ck_assert(!pass(1000000, &v, &took));
    beat[3].state = BEAT_IN | BEAT_WARM;
    ck_assert(!pass(1000000, &v, &took));
    speaks[0] = false;                                    /* but it must speak */
    ck_assert(pass(11000, &v, &took) && v.kind == SUSPECT_SILENT && v.rank == 0);
}
END_TEST

START_TEST(devices_are_judged_later)
{
    struct suspicion v;
    uint64_t took;
    begin(10);
    detector.device_ns = 20 * SECOND;
    beat[0].wait = 1;
    beat[1].wait = EXEC_WAITS_DEVICE;
    for (int r = 2; r < RANKS; r++) beat[r].wait = 1;
    ck_assert(!pass(19750, &v, &took));
    ck_assert(pass(1000, &v, &took) && v.kind == SUSPECT_STUCK && v.rank == 1);
}
END_TEST

START_TEST(own_sleep_counts_against_nobody)
{
    struct suspicion v;
    uint64_t took;
    begin(10);
    pass(5000, &v, &took);
    now += 3600 * SECOND;
    ck_assert(!detector_poll(&detector, now, &v));
    ck_assert(!pass(4000, &v, &took));
    ck_assert(pass(2000, &v, &took));                     /* what came before still counts */
}
END_TEST

/* Stopped for 9 s and then 5 s without progress: neither is too long. */
START_TEST(sleep_below_the_limit_is_forgiven)
{
    struct suspicion v;
    uint64_t took;
    begin(10);
    pass_moving(1000, 0xf, &v);
    for (int r = 1; r < RANKS; r++) beat[r].wait = 0;
    speaks[0] = false;
    ck_assert(!pass(9000, &v, &took));
    speaks[0] = true;
    ck_assert(!pass(5000, &v, &took));
    beat[0].count++;
    ck_assert(!pass(9000, &v, &took));
}
END_TEST

/* The scheduler comes by, or not, for so long. Returns for how long it has stood still if that was too long. */
static uint64_t desk_pass(struct thread_view *d, uint64_t ms, bool comes, bool in_file)
{
    uint64_t ns = 0, count = d->count;
    for (uint64_t until = now + ms * MS; now < until && !ns;) {
        now += 250 * MS;
        ns = detector_thread(&detector, d, count += comes, in_file, now);
    }
    return ns;
}

START_TEST(a_scheduler_that_does_not_come_by_is_stuck)
{
    struct thread_view d = {0};
    begin(10);
    ck_assert_uint_eq(desk_pass(&d, 100000, true, false), 0);
    ck_assert_uint_eq(desk_pass(&d, 10000, false, false), 0);
    uint64_t ns = desk_pass(&d, 1000, false, false);
    ck_assert(ns > 10 * SECOND && ns < 11 * SECOND);
    ck_assert_uint_eq(desk_pass(&d, 1000, true, false), 0);
    beat[2].slowest_ns = 4 * SECOND;
    detector_beat(&detector, 2, &beat[2], now);
    ck_assert_uint_eq(desk_pass(&d, 19000, false, false), 0);
    ck_assert_uint_gt(desk_pass(&d, 2000, false, false), 0);
}
END_TEST

/* A slow disk is told of when a checkpoint on it would be. */
START_TEST(a_scheduler_may_wait_for_files)
{
    struct thread_view d = {0};
    begin(10);
    ck_assert_uint_eq(desk_pass(&d, DEADLINE_WRITER, false, true), 0);
    ck_assert_uint_gt(desk_pass(&d, 1000, false, true), 0);
}
END_TEST

START_TEST(nor_is_a_scheduler_judged_while_nobody_looks)
{
    struct thread_view d = {0};
    begin(10);
    ck_assert_uint_eq(desk_pass(&d, 5000, false, false), 0);
    now += 3600 * SECOND;
    ck_assert_uint_eq(desk_pass(&d, 4000, false, false), 0);
    ck_assert_uint_gt(desk_pass(&d, 2000, false, false), 0);
    begin(0);                                             /* 0 judges nobody */
    ck_assert_uint_eq(desk_pass(&d, 1000000, false, false), 0);
}
END_TEST

START_TEST(threads_are_never_silent)
{
    struct suspicion v;
    uint64_t took;
    begin(10);
    detector.silence = false;
    speaks[1] = false;
    ck_assert(!pass_moving(100000, 0xd, &v));
    speaks[1] = true;
    pass_moving(1000, 0xf, &v);
    beat[0].wait = beat[2].wait = beat[3].wait = 1;
    ck_assert(pass(11000, &v, &took) && v.kind == SUSPECT_STUCK && v.rank == 1);
}
END_TEST

START_TEST(beats_have_texts)
{
    char text[BEAT_TEXT];
    struct exec_beat b = {.count = 3, .step = 17, .where = exec_where(ACT_D, 1, 3, 1), .wait = 0,
                          .state = BEAT_IN};
    struct beat t;
    beat_take(&b, NULL, &t);
    ck_assert_str_eq(beat_text(&t, text), "stage 1, backward of micro-batch 3 of step 17");
    t.where = exec_where(ACT_W, 2, 4, 3);
    ck_assert_str_eq(beat_text(&t, text), "stage 2, weight gradients of micro-batches 4 to 6 of step 17");
    t.where = exec_where(ACT_O, 2, 0, 0);
    ck_assert_str_eq(beat_text(&t, text), "stage 2, optimizer of step 17");
    t.state = BEAT_IN | BEAT_EVALUATES;
    t.where = exec_where(ACT_RF, 65535, 1000000, 1);
    ck_assert_str_eq(beat_text(&t, text), "stage 65535, receiving of micro-batch 1000000 of evaluation batch 17");
    t.where = 0;
    ck_assert_str_eq(beat_text(&t, text), "before the first action of evaluation batch 17");
    atomic_store(&b.state, 0);
    beat_take(&b, "reading data", &t);
    ck_assert_str_eq(beat_text(&t, text), "reading data");
}
END_TEST

/* ---- connections ------------------------------------------------------------------------------------------------- */

struct joining { struct peer_place place; int rank, bad; bool here; struct peer wire; pthread_t thread; };

static void *join(void *arg)
{
    struct joining *j = arg;
    j->bad = peer_join(&j->place, j->rank, j->here, &j->wire, 2000);
    return NULL;
}

static int read_frame(struct peer *w, struct frame *f)
{
    int got = 0;
    for (int ms = 0; ms < 5000 && got == 0; ms++) {
        got = peer_read(w, f);
        if (got == 0) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return got;
}

/* One loopback address beside the socket on this host, as if it were that of a network. */
static void open_door(struct peer_listener *d, struct peer_place *p)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    ck_assert_int_eq(peer_open(d, p, false), 0);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    ck_assert(bind(fd, (struct sockaddr *)&a, n) == 0 && listen(fd, 8) == 0);
    ck_assert(getsockname(fd, (struct sockaddr *)&a, &n) == 0);
    p->at[p->n_at++] = (struct peer_address){.family = 4, .port = a.sin_port, .bytes = {127, 0, 0, 1}};
    d->fd[d->n++] = fd;
}

/* Ranks 1 (on this host) and 2 (by TCP) get in; 3 has one bit of its token wrong, 4 hears the wrong answer. */
START_TEST(strangers_stay_outside)
{
    struct peer_listener door;
    struct peer_place place;
    struct peer wire[5];
    struct joining j[5];
    open_door(&door, &place);
    for (int r = 0; r < 5; r++) wire[r] = PEER_NONE;
    for (int r = 1; r < 5; r++) {
        j[r] = (struct joining){.place = place, .rank = r, .here = r != 2};
        if (r == 3) j[r].place.ask[15] ^= 1;
        if (r == 4) j[r].place.answer[0] ^= 128, j[r].place.n_at = 0;
        if (r == 3) j[r].place.n_at = 0;
        pthread_create(&j[r].thread, NULL, join, &j[r]);
    }
    peer_accept(&door, &place, wire, 5, 4, 1500);
    for (int r = 1; r < 5; r++) pthread_join(j[r].thread, NULL);
    ck_assert(j[1].bad == 0 && j[2].bad == 0 && j[3].bad == -1 && j[4].bad == -1);
    ck_assert(wire[1].fd >= 0 && wire[2].fd >= 0 && wire[3].fd < 0);
    peer_shut(&door);
    for (int r = 1; r < 3; r++) {
        struct frame f = {.kind = FRAME_FAILURE, .failure = {.rank = r, .e = {E_HANG, "words"}}}, g;
        for (int i = 0; i < 50; i++) ck_assert_int_eq(peer_write(&wire[r], &f), 0);
        for (int i = 0; i < 50; i++) {
            ck_assert_int_eq(read_frame(&j[r].wire, &g), 1);
            ck_assert(g.kind == FRAME_FAILURE && g.failure.e.code == E_HANG && g.failure.rank == r);
            ck_assert_str_eq(g.failure.e.text, "words");
        }
        peer_close(&wire[r]);
        ck_assert_int_eq(read_frame(&j[r].wire, &g), -1);
        peer_close(&j[r].wire);
    }
    j[1].place.n_at = 0;
    j[1].bad = 0;
    join(&j[1]);
    ck_assert_int_eq(j[1].bad, -1);                       /* the door is shut */
}
END_TEST

/* A peer that does not read holds nobody up, and gets whole frames when it does. */
START_TEST(frames_are_dropped_whole)
{
    int fd[2];
    struct peer a = PEER_NONE, b = PEER_NONE;
    struct frame f = {.kind = FRAME_BEAT}, g;
    uint64_t last = 0;
    ck_assert(socketpair(AF_UNIX, SOCK_STREAM, 0, fd) == 0);
    a.fd = fd[0], b.fd = fd[1];
    for (f.beat.count = 1; f.beat.count < 100000; f.beat.count++) if (peer_write(&a, &f)) break;
    ck_assert_uint_lt(f.beat.count, 100000);
    for (uint64_t i = 1; i < f.beat.count; i++) {
        peer_write(&a, &(struct frame){.kind = FRAME_BYE});   /* flushes what was begun */
        if (peer_read(&b, &g) != 1) break;
        ck_assert(g.kind == FRAME_BYE || g.beat.count == last + 1);
        if (g.kind == FRAME_BEAT) last = g.beat.count;
    }
    ck_assert_uint_ge(last, 1);
    peer_close(&a);
    peer_close(&b);
}
END_TEST

/* ---- who is slow ------------------------------------------------------------------------------------------------- */

/* Feeds n steps of that many ms; returns the news, of which there is at most one. */
static enum straggler_news steps(struct straggler *s, uint64_t *step, int n, double ms, double *times)
{
    enum straggler_news all = STRAGGLER_NONE;
    for (int i = 0; i < n; i++) {
        enum straggler_news news = straggler_step(s, ++*step, ms * 1e6, times);
        ck_assert(news == STRAGGLER_NONE || all == STRAGGLER_NONE);
        if (news != STRAGGLER_NONE) all = news;
    }
    return all;
}

START_TEST(who_becomes_slow_is_told_once)
{
    struct straggler s = {0};
    uint64_t step = 0;
    double times = 0;
    ck_assert(steps(&s, &step, 1, 5000, &times) == STRAGGLER_NONE);   /* it warms up */
    ck_assert(steps(&s, &step, STRAGGLER_FIRST, 20, &times) == STRAGGLER_NONE);
    ck_assert(steps(&s, &step, 100, 39, &times) == STRAGGLER_NONE);
    ck_assert(steps(&s, &step, STRAGGLER_STEPS - 1, 60, &times) == STRAGGLER_NONE);
    ck_assert(steps(&s, &step, 1, 20, &times) == STRAGGLER_NONE);     /* not ten in a row */
    ck_assert(steps(&s, &step, STRAGGLER_STEPS, 60, &times) == STRAGGLER_SLOW);
    ck_assert(times == 3 && s.since == step);
    ck_assert(steps(&s, &step, 100, 80, &times) == STRAGGLER_NONE);
    ck_assert(steps(&s, &step, STRAGGLER_STEPS - 1, 20, &times) == STRAGGLER_NONE);
    ck_assert(steps(&s, &step, 1, 20, &times) == STRAGGLER_OVER);
    ck_assert(steps(&s, &step, 100, 20, &times) == STRAGGLER_NONE);
}
END_TEST

START_TEST(slow_is_more_than_the_plan_and_worth_it)
{
    struct straggler planned = {.planned_ns = 100e6}, tiny = {0};
    uint64_t step = 0;
    double times = 0;
    steps(&planned, &step, 1 + STRAGGLER_FIRST, 20, &times);
    ck_assert(steps(&planned, &step, 100, 190, &times) == STRAGGLER_NONE);
    ck_assert(steps(&planned, &step, 100, 250, &times) == STRAGGLER_SLOW && times == 2.5);
    steps(&tiny, &step, 1 + STRAGGLER_FIRST, 0.5, &times);
    ck_assert(steps(&tiny, &step, 100, 5, &times) == STRAGGLER_NONE);
}
END_TEST

int main(void)
{
    TCase *t = tcase_create("pure");
    tcase_add_test(t, silence_is_found);
    tcase_add_test(t, ranks_that_left_are_not_judged);
    tcase_add_test(t, the_end_of_a_chain_is_stuck);
    tcase_add_test(t, slow_is_not_stuck);
    tcase_add_test(t, the_slowest_step_counts_five_times);
    tcase_add_test(t, the_first_step_gets_longer);
    tcase_add_test(t, a_ring_is_a_lost_message);
    tcase_add_test(t, who_does_not_look_is_stuck);
    tcase_add_test(t, who_does_not_look_between_steps_is_stuck);
    tcase_add_test(t, nobody_is_stuck_outside_of_steps);
    tcase_add_test(t, devices_are_judged_later);
    tcase_add_test(t, own_sleep_counts_against_nobody);
    tcase_add_test(t, sleep_below_the_limit_is_forgiven);
    tcase_add_test(t, a_scheduler_that_does_not_come_by_is_stuck);
    tcase_add_test(t, a_scheduler_may_wait_for_files);
    tcase_add_test(t, nor_is_a_scheduler_judged_while_nobody_looks);
    tcase_add_test(t, threads_are_never_silent);
    tcase_add_test(t, beats_have_texts);
    tcase_add_test(t, strangers_stay_outside);
    tcase_add_test(t, frames_are_dropped_whole);
    tcase_add_test(t, who_becomes_slow_is_told_once);
    tcase_add_test(t, slow_is_more_than_the_plan_and_worth_it);
    return suite_run("judge", CK_FORK, t);
}
