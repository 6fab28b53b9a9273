/* The local transport: the battery of all transports, and checks that need threads of one process. */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tp_battery.h"
#include "sure.h"

struct member { struct tp *tp; const struct tp_check *check; const char *wrong; char text[1100]; };

static void *member_run(void *p)
{
    struct member *m = p;
    m->wrong = m->check->run(m->tp);
    if (!m->wrong) return NULL;
    snprintf(m->text, sizeof m->text, "%s", m->wrong);   /* it dies with the thread */
    m->tp->ops->abort(m->tp, E_INTERNAL);
    return NULL;
}

static void battery(int n, const struct tp_check *check, unsigned delay_us)
{
    struct tp *tp[8];
    struct member m[8];
    pthread_t thread[8];
    struct err e = {0};
    ck_assert(!tp_local_open(n, tp, &e));
    for (int r = 0; r < n; r++) {
        ck_assert(tp[r]->ops->rank(tp[r]) == r && tp[r]->ops->size(tp[r]) == n);
        if (delay_us) tp_local_delay(tp[r], (uint64_t)n, 0, delay_us);
        m[r] = (struct member){.tp = tp[r], .check = check};
        pthread_create(&thread[r], NULL, member_run, &m[r]);
    }
    for (int r = 0; r < n; r++) pthread_join(thread[r], NULL);
    for (int r = 0; r < n; r++) ck_assert_msg(!m[r].wrong, "%s, rank %d of %d: %s", check->name, r, n, m[r].text);
    for (int r = 0; r < n; r++) tp[r]->ops->close(tp[r]);
}

/* _i: ranks * 2 + whether deliveries are delayed. */
START_TEST(battery_local)
{
    for (const struct tp_check *c = tp_battery; c->name; c++) battery(_i / 2, c, _i % 2 ? 200 : 0);
}
END_TEST

/* ---- one thread plays both ranks: every state can be seen -------------------------------------------------------- */

static struct tp_tag tag(uint32_t mb, uint64_t bytes)
{
    return (struct tp_tag){.step = 3, .plan = 0, .mb = mb, .chan = 5, .samples = 4, .bytes = bytes};
}

START_TEST(rendezvous)
{
    struct tp *tp[2];
    struct err e = {0};
    struct tp_req s, r;
    struct tp_tag k = tag(0, 4);
    char from[4] = "abc", to[4] = "";
    ck_assert(!tp_local_open(2, tp, &e));
    ck_assert(!tp[0]->ops->post_send(tp[0], 1, &k, from, &s, &e));
    for (int i = 0; i < 3; i++) ck_assert(!tp[0]->ops->progress(tp[0], &e) && !tp[1]->ops->progress(tp[1], &e));
    ck_assert(tp[0]->ops->test(tp[0], &s) == TP_WAITING);
    /* nobody has copied yet: the receiver reads the sender's buffer */
    strcpy(from, "xyz");
    ck_assert(!tp[1]->ops->post_recv(tp[1], 0, &k, to, &r, &e));
    ck_assert(tp[1]->ops->test(tp[1], &r) == TP_WAITING && tp[0]->ops->test(tp[0], &s) == TP_WAITING);
    ck_assert(!tp[1]->ops->progress(tp[1], &e));
    ck_assert(tp[1]->ops->test(tp[1], &r) == TP_DONE && r.slot == -1);
    ck_assert(tp[0]->ops->test(tp[0], &s) == TP_DONE && s.slot == -1);
    ck_assert_str_eq(to, "xyz");
    ck_assert(tp[0]->ops->test(tp[0], &s) == TP_DONE);
    for (int i = 0; i < 2; i++) tp[i]->ops->close(tp[i]);
}
END_TEST

START_TEST(announced)
{
    struct tp *tp[2];
    struct err e = {0};
    struct tp_req s, r;
    struct tp_tag k = tag(0, 4);
    char from[4] = "abc", to[4] = "";
    ck_assert(!tp_local_open(2, tp, &e));
    tp_local_delay(tp[1], 1, 0, 4000000000u / 1000);        /* up to 4 s: the first look comes long before */
    ck_assert(!tp[1]->ops->post_recv(tp[1], 0, &k, to, &r, &e) && !tp[1]->ops->progress(tp[1], &e));
    ck_assert(tp[1]->ops->test(tp[1], &r) == TP_WAITING);
    ck_assert(!tp[0]->ops->post_send(tp[0], 1, &k, from, &s, &e) && !tp[1]->ops->progress(tp[1], &e));
    ck_assert(tp[1]->ops->test(tp[1], &r) == TP_ANNOUNCED && to[0] == 0);
    for (int i = 0; i < 2; i++) tp[i]->ops->close(tp[i]);
}
END_TEST

/* Each field of the tag is compared, and the error names what was expected and what came. */
START_TEST(mismatch)
{
    struct tp *tp[2];
    struct err e = {0};
    struct tp_req s, r;
    struct tp_tag want = tag(7, 4), sent = want;
    char from[64] = "", to[64] = "";
    ck_assert(!tp_local_open(2, tp, &e));
    switch (_i) {
    case 0: sent.step = 4; break;
    case 1: sent.plan = 1; break;
    case 2: sent.mb = 8; break;
    case 3: sent.chan = 6; break;
    case 4: sent.samples = 3; break;
    case 5: sent.bytes = 8; break;
    }
    ck_assert(!tp[0]->ops->post_send(tp[0], 1, &sent, from, &s, &e) &&
              !tp[1]->ops->post_recv(tp[1], 0, &want, to, &r, &e));
    ck_assert(tp[1]->ops->progress(tp[1], &e) == -1 && e.code == E_INTERNAL);
    ck_assert_ptr_nonnull(strstr(
        e.text, "rank 1 expected from rank 0 (step 3 plan 0 micro-batch 7 channel 5: 4 samples, 4 bytes), but (step"));
    if (_i == 2)
        ck_assert_ptr_nonnull(strstr(e.text, "but (step 3 plan 0 micro-batch 8 channel 5: 4 samples, 4 bytes) came"));
    for (int i = 0; i < 2; i++) tp[i]->ops->close(tp[i]);
}
END_TEST

/* More open transfers than the first chunk of slots holds. */
START_TEST(many_open)
{
    enum { MANY = 1000 };
    static struct tp_req s[MANY], r[MANY];
    static int from[MANY], to[MANY];
    struct tp *tp[2];
    struct err e = {0};
    ck_assert(!tp_local_open(2, tp, &e));
    for (int i = 0; i < MANY; i++) {
        struct tp_tag k = tag((uint32_t)i, sizeof(int));
        from[i] = i;
        ck_assert(!tp[0]->ops->post_send(tp[0], 1, &k, &from[i], &s[i], &e) &&
                  !tp[1]->ops->post_recv(tp[1], 0, &k, &to[i], &r[i], &e));
    }
    ck_assert(!tp[1]->ops->progress(tp[1], &e));
    for (int i = 0; i < MANY; i++)
        ck_assert(tp[0]->ops->test(tp[0], &s[i]) == TP_DONE && tp[1]->ops->test(tp[1], &r[i]) == TP_DONE && to[i] == i);
    for (int i = 0; i < 2; i++) tp[i]->ops->close(tp[i]);
}
END_TEST

/* ---- stopping ---------------------------------------------------------------------------------------------------- */

enum sleeper { IN_REDUCE, IN_BCAST, IN_TRANSFER, SLEEPERS };
struct asleep { struct tp *tp; enum sleeper how; struct err e; int result; };

static void *sleep_run(void *p)
{
    struct asleep *a = p;
    double x = 1;
    struct tp_req r;
    struct tp_tag k = tag(0, sizeof x);
    if (a->how == IN_REDUCE) a->result = a->tp->ops->reduce(a->tp, &x, 1, &a->e);
    else if (a->how == IN_BCAST) a->result = a->tp->ops->bcast(a->tp, &x, sizeof x, &a->e);
    else {
        a->result = a->tp->ops->post_recv(a->tp, 0, &k, &x, &r, &a->e);
        while (!a->result && a->tp->ops->test(a->tp, &r) != TP_DONE) {
            a->result = a->tp->ops->progress(a->tp, &a->e);
            sched_yield();
        }
    }
    return NULL;
}

START_TEST(abort_wakes)
{
    struct tp *tp[3];
    struct asleep a[2];
    pthread_t t[2];
    struct err e = {0};
    ck_assert(!tp_local_open(3, tp, &e));
    for (int i = 0; i < 2; i++) {
        a[i] = (struct asleep){.tp = tp[i + 1], .how = (enum sleeper)_i};
        pthread_create(&t[i], NULL, sleep_run, &a[i]);
    }
    for (int i = 0; i < 100; i++) sched_yield();
    tp[0]->ops->abort(tp[0], 79);
    tp[0]->ops->abort(tp[0], 70);                        /* the first code stays */
    for (int i = 0; i < 2; i++) {
        pthread_join(t[i], NULL);
        ck_assert(a[i].result == -1 && a[i].e.code == E_STOPPED);
        ck_assert_ptr_nonnull(strstr(a[i].e.text, "79"));
    }
    ck_assert(tp[0]->ops->progress(tp[0], &e) == -1 && e.code == E_STOPPED);
    for (int i = 0; i < 3; i++) tp[i]->ops->close(tp[i]);
}
END_TEST

static void *reduce_two(void *p)
{
    struct asleep *a = p;
    double x[2] = {1, 2};
    a->result = a->tp->ops->reduce(a->tp, x, 2, &a->e);
    return NULL;
}

START_TEST(collectives_differ)
{
    struct tp *tp[2];
    struct err e = {0};
    pthread_t t;
    double x = 1;
    ck_assert(!tp_local_open(2, tp, &e));
    struct asleep a = {.tp = tp[1]};
    pthread_create(&t, NULL, reduce_two, &a);
    int mine = tp[0]->ops->reduce(tp[0], &x, 1, &e);
    pthread_join(t, NULL);
    ck_assert(mine == -1 && e.code == E_INTERNAL && a.result == -1 && a.e.code == E_INTERNAL && x == 1);
    for (int i = 0; i < 2; i++) tp[i]->ops->close(tp[i]);
}
END_TEST

/* Messages that grow, one at a time, leave the memory of the largest, not of each. */
START_TEST(spares_grow)
{
    struct tp_box b = {0};
    int spare = 0;
    for (size_t n = 1; n <= 1 << 20; n *= 2) {
        tp_box_add(&b, tp_box_new(&b, sizeof(struct tp_held), n));
        ck_assert(b.first && b.first->space >= n);
        tp_box_pop(&b);
    }
    for (const struct tp_held *m = b.spare; m; m = m->next) spare++;
    ck_assert_int_eq(spare, 1);
    ck_assert(b.spare->space == 1 << 20);
    tp_box_free(&b);
}
END_TEST

int main(void)
{
    TCase *t = suite_case("local", 120);
    tcase_add_loop_test(t, battery_local, 2, 10);        /* 1 to 4 ranks */
    tcase_add_test(t, rendezvous);
    tcase_add_test(t, announced);
    tcase_add_loop_test(t, mismatch, 0, 6);
    tcase_add_test(t, many_open);
    tcase_add_loop_test(t, abort_wakes, 0, SLEEPERS);
    tcase_add_test(t, collectives_differ);
    tcase_add_test(t, spares_grow);
    return suite_run("tp", CK_FORK, t);
}
