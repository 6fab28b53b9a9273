#include <stdlib.h>
#include <string.h>
#include "tp_battery.h"

#define EXPECT(x) do { if (!(x)) return "not true: " #x; } while (0)
#define OK(x) do { if (x) return e.text; } while (0)

struct tp_battery_memory tp_battery_memory = {malloc, free};

static _Thread_local struct err e;                       /* of this rank: what a failing check returns lives here */

static int rank(struct tp *t) { return t->ops->rank(t); }
static int size(struct tp *t) { return t->ops->size(t); }

/* Byte i of the transfer with number k. */
static unsigned char pattern(int k, size_t i) { return (unsigned char)(k * 31 + i * 7 + (i >> 8) * 13); }

static unsigned char *filled(int k, size_t bytes)
{
    unsigned char *p = tp_battery_memory.take(bytes + 1);
    for (size_t i = 0; i < bytes; i++) p[i] = pattern(k, i);
    p[bytes] = 0xa5;
    return p;
}

static const char *compare(const unsigned char *p, int k, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) if (p[i] != pattern(k, i)) return "a byte arrived changed";
    return p[bytes] == 0xa5 ? NULL : "written behind the end of a buffer";
}

static struct tp_tag tag_of(int k, size_t bytes)
{
    return (struct tp_tag){.step = 9, .plan = 1, .mb = (uint32_t)k, .chan = 3, .samples = 2, .bytes = bytes};
}

static int wait_one(struct tp *t, struct tp_req *r)
{
    for (unsigned tries = 0; t->ops->test(t, r) != TP_DONE; poll_again(tries++))
        if (t->ops->progress(t, &e)) return -1;
    return 0;
}

static const size_t sizes[] = {8, 0, 1, 4096, 1 << 20, 32, 0, 300000, 7, 5000};
enum { N_SIZES = sizeof sizes / sizeof *sizes };

/* Everybody sends to everybody, all posted before anything is driven: posts may not block, links are first in first
 * out. */
static const char *check_all_to_all(struct tp *t)
{
    int n = size(t), me = rank(t);
    unsigned char *out[N_SIZES * 8], *in[N_SIZES * 8];
    struct tp_req rs[N_SIZES * 8], rr[N_SIZES * 8];
    for (int i = 0; i < N_SIZES * n; i++) {
        int peer = i % n, k = i / n;
        if (peer == me) continue;
        struct tp_tag tag = tag_of(k, sizes[k]);
        out[i] = filled(k + 100 * me, sizes[k]);
        in[i] = filled(255, sizes[k]);
        OK(t->ops->post_send(t, peer, &tag, out[i], &rs[i], &e));
        OK(t->ops->post_recv(t, peer, &tag, in[i], &rr[i], &e));
        EXPECT(rs[i].slot >= 0 && rr[i].slot >= 0);
    }
    for (int i = N_SIZES * n - 1; i >= 0; i--) {         /* waiting in another order than posting */
        int peer = i % n, k = i / n;
        if (peer == me) continue;
        OK(wait_one(t, &rr[i]));
        EXPECT(rr[i].slot == -1);
        const char *wrong = compare(in[i], k + 100 * peer, sizes[k]);
        if (wrong) return wrong;
        OK(wait_one(t, &rs[i]));
        tp_battery_memory.give(in[i]);
        tp_battery_memory.give(out[i]);
    }
    return NULL;
}

static const char *check_big(struct tp *t)
{
    size_t bytes = (8u << 20) + 4;
    int n = size(t), me = rank(t), to = (me + 1) % n, from = (me + n - 1) % n;
    if (n == 1) return NULL;
    struct tp_tag tag = tag_of(1, bytes);
    unsigned char *out = filled(me, bytes), *in = filled(77, bytes);
    for (int k = 0; k < 3; k++) {
        struct tp_req s, r;
        OK(t->ops->post_recv(t, from, &tag, in, &r, &e));
        OK(t->ops->post_send(t, to, &tag, out, &s, &e));
        OK(wait_one(t, &r));
        const char *wrong = compare(in, from, bytes);
        if (wrong) return wrong;
        in[5] ^= 1;
        OK(wait_one(t, &s));
    }
    tp_battery_memory.give(in);
    tp_battery_memory.give(out);
    return NULL;
}

/* The same pseudo-random list of transfers on all ranks; each keeps up to WINDOW of its own open. */
static const char *check_random(struct tp *t)
{
    enum { TRANSFERS = 600, WINDOW = 12, MOST = 40000 };
    struct { struct tp_req r; unsigned char *p; int k, from; size_t bytes; } w[WINDOW] = {0};
    uint32_t random = 12345;
    int n = size(t), me = rank(t), open = 0;
    for (int k = 0; k < TRANSFERS && n > 1; k++) {
        random = random * 1664525 + 1013904223;
        int from = (int)(random >> 8) % n, to = (from + 1 + (int)(random >> 16) % (n - 1)) % n;
        size_t bytes = (random >> 4) % MOST;
        if (me != from && me != to) continue;
        if (open == WINDOW) {                            /* the oldest leaves */
            OK(wait_one(t, &w[0].r));
            const char *wrong = compare(w[0].p, w[0].k, w[0].bytes);
            if (wrong) return wrong;
            tp_battery_memory.give(w[0].p);
            memmove(w, w + 1, (WINDOW - 1) * sizeof *w);
            open--;
        }
        struct tp_tag tag = tag_of(k, bytes);
        w[open].p = filled(me == from ? k : -1, bytes);
        w[open].k = k;
        w[open].bytes = bytes;
        OK(me == from ? t->ops->post_send(t, to, &tag, w[open].p, &w[open].r, &e)
                      : t->ops->post_recv(t, from, &tag, w[open].p, &w[open].r, &e));
        open++;
    }
    for (int i = 0; i < open; i++) {
        OK(wait_one(t, &w[i].r));
        const char *wrong = compare(w[i].p, w[i].k, w[i].bytes);
        if (wrong) return wrong;
        tp_battery_memory.give(w[i].p);
    }
    return NULL;
}

/* Rank order shows in the last bits: 1e16 + 1 - 1e16 is 0 or 2 or 1, as one adds. */
static const char *check_reduce(struct tp *t)
{
    enum { N = 1161 };
    static const double part[3] = {1e16, 1, -1e16};
    int n = size(t), me = rank(t);
    for (int round = 0; round < 5; round++) {
        double x[N];
        for (int i = 0; i < N; i++) x[i] = i % 2 ? part[(me + i + round) % 3] : i % n == me ? 1.0 / (i + 3) : 0;
        OK(t->ops->reduce(t, x, N, &e));
        for (int i = 0; i < N; i++) {
            double want = i % 2 ? part[(i + round) % 3] : 1.0 / (i + 3);
            for (int r = 1; r < n && i % 2; r++) want += part[(r + i + round) % 3];
            EXPECT(x[i] == want);
        }
    }
    OK(t->ops->reduce(t, NULL, 0, &e));
    return NULL;
}

static const char *check_bcast(struct tp *t)
{
    static const size_t bytes[] = {0, 1, 1000, 3000001};
    for (int k = 0; k < 4; k++) {
        unsigned char *p = filled(rank(t) == 0 ? k : 200, bytes[k]);
        OK(t->ops->bcast(t, p, bytes[k], &e));
        const char *wrong = compare(p, k, bytes[k]);
        if (wrong) return wrong;
        tp_battery_memory.give(p);
    }
    return NULL;
}

/* A transfer that is under way while its receiver waits in a collective still arrives: the sender enters only when it
 * is gone. */
static const char *check_progress_in_reduce(struct tp *t)
{
    size_t bytes = 1 << 20;
    struct tp_tag tag = tag_of(4, bytes);
    struct tp_req r;
    double x = 1;
    int me = rank(t);
    if (size(t) == 1) return NULL;
    unsigned char *p = filled(me == 0 ? 6 : 50, bytes);
    if (me == 0) {
        OK(t->ops->post_send(t, 1, &tag, p, &r, &e));
        OK(wait_one(t, &r));
    }
    if (me == 1) OK(t->ops->post_recv(t, 0, &tag, p, &r, &e));
    OK(t->ops->reduce(t, &x, 1, &e));
    EXPECT(x == size(t));
    if (me == 1) OK(wait_one(t, &r));
    const char *wrong = me <= 1 ? compare(p, 6, bytes) : NULL;
    tp_battery_memory.give(p);
    return wrong;
}

static int hear_wait(struct tp *t, int from, int stream, void *p, size_t max, size_t *n)
{
    struct tp_message m = {from, stream, p, max};
    int got;
    for (unsigned tries = 0; (got = t->ops->recv_msg(t, &m, &e)) == 0; poll_again(tries++))
        if (t->ops->progress(t, &e)) return -1;
    *n = m.n;
    return got < 0 ? -1 : 0;
}

/* Orders down, reports up, one long state tensor; each stream in its own order. The reports answer nothing: say does
 * not block. */
static const char *check_messages(struct tp *t)
{
    enum { MESSAGES = 60, LONG = 700001 };
    int n = size(t), me = rank(t);
    unsigned char p[256], *big = filled(me, LONG);
    size_t got;
    for (int k = 0; k < MESSAGES && me == 0; k++)
        for (int r = 1; r < n; r++) {
            memset(p, k + r, sizeof p);
            OK(t->ops->send_msg(t, r, STREAM_ORDER, p, (size_t)k * 4, &e));
        }
    memset(p, me, sizeof p);
    for (int k = 0; k < MESSAGES && me; k++) {
        p[1] = (unsigned char)k;
        OK(t->ops->send_msg(t, 0, STREAM_REPORT, p, 2, &e));
    }
    if (me) OK(t->ops->send_msg(t, 0, STREAM_STATE, big, LONG, &e));
    for (int k = 0; k < MESSAGES && me; k++) {
        OK(hear_wait(t, 0, STREAM_ORDER, p, sizeof p, &got));
        EXPECT(got == (size_t)k * 4 && (!k || p[got - 1] == (unsigned char)(k + me)));
    }
    int seen[64] = {0};
    for (int i = 0; me == 0 && i < (n - 1) * MESSAGES; i++) {
        OK(hear_wait(t, -1, STREAM_REPORT, p, sizeof p, &got));
        EXPECT(got == 2 && p[0] > 0 && p[0] < n && p[1] == seen[p[0]]);
        seen[p[0]]++;
    }
    for (int r = 1; r < n && me == 0; r++) {
        unsigned char *in = filled(99, LONG);
        OK(hear_wait(t, r, STREAM_STATE, in, LONG, &got));
        const char *wrong = compare(in, r, LONG);
        if (wrong) return wrong;
        EXPECT(got == LONG);
        tp_battery_memory.give(in);
    }
    EXPECT(t->ops->recv_msg(t, &(struct tp_message){-1, STREAM_STATE, p, sizeof p}, &e) == 0);
    OK(t->ops->bcast(t, p, 1, &e));
    tp_battery_memory.give(big);
    return NULL;
}

/* A message longer than the buffer: as much as fits, and its true length. */
static const char *check_long_message(struct tp *t)
{
    unsigned char p[10] = {0}, none = 0;
    size_t got = 0;
    for (int r = 1; r < size(t) && rank(t) == 0; r++)
        OK(t->ops->send_msg(t, r, STREAM_ORDER, "0123456789abcdef", 16, &e));
    if (rank(t)) {
        OK(hear_wait(t, 0, STREAM_ORDER, p, 4, &got));
        EXPECT(got == 16 && memcmp(p, "0123\0\0", 6) == 0);
    }
    OK(t->ops->bcast(t, &none, 1, &e));
    return NULL;
}

/* A receive waits until its sender has posted; then it is announced, then done. */
static const char *check_states(struct tp *t)
{
    size_t bytes = 2 << 20, got;
    struct tp_tag tag = tag_of(8, bytes);
    struct tp_req r;
    int me = rank(t);
    if (size(t) == 1) return NULL;
    unsigned char *p = filled(me == 0 ? 8 : 60, bytes), go = 0;
    if (me == 1) {
        OK(t->ops->post_recv(t, 0, &tag, p, &r, &e));
        for (int i = 0; i < 50; i++) {
            OK(t->ops->progress(t, &e));
            EXPECT(t->ops->test(t, &r) == TP_WAITING && r.slot >= 0);
        }
        OK(t->ops->send_msg(t, 0, STREAM_REPORT, &go, 1, &e));
        OK(wait_one(t, &r));
        const char *wrong = compare(p, 8, bytes);
        if (wrong) return wrong;
    }
    if (me == 0) {
        OK(hear_wait(t, 1, STREAM_REPORT, &go, 1, &got));
        OK(t->ops->post_send(t, 1, &tag, p, &r, &e));
        OK(wait_one(t, &r));
    }
    OK(t->ops->bcast(t, &go, 1, &e));
    tp_battery_memory.give(p);
    return NULL;
}

static const char *check_bad_peer(struct tp *t)
{
    struct tp_tag tag = tag_of(1, 4);
    struct tp_req r;
    struct err bad = {0};
    EXPECT(t->ops->post_send(t, size(t), &tag, &tag, &r, &bad) == -1 && bad.code == E_INTERNAL);
    bad = (struct err){0};
    EXPECT(t->ops->post_recv(t, rank(t), &tag, &tag, &r, &bad) == -1 && bad.code == E_INTERNAL);
    return NULL;
}

/* ---- what is lent ------------------------------------------------------------------------------------------------ */

/* Memory of this rank that others read in place, where there is such; else the battery's own. */
struct place { unsigned char *at; bool own; };
static struct place place_take(struct tp *t, size_t bytes)
{
    static _Thread_local unsigned char *room;            /* of the first check that asks, which asks for the most */
    if (!room && t->ops->window) room = t->ops->window(t, bytes);
    return room ? (struct place){room, false} : (struct place){tp_battery_memory.take(bytes), true};
}
static void place_give(struct place p) { if (p.own) tp_battery_memory.give(p.at); }

/* All receives are borrowed, and given back from the last one to the first: then, and not before, their sends are
 * complete. Where the memory is read in place, what its owner writes meanwhile is seen. */
static const char *check_loans(struct tp *t)
{
    enum { N = 5, BYTES = 300000 };
    int n = size(t), me = rank(t), to = (me + 1) % n, from = (me + n - 1) % n;
    struct tp_req rs[N], rr[N];
    if (n < 2 || !t->ops->post_get) return NULL;
    struct place mine = place_take(t, (size_t)N * BYTES);
    unsigned char *out = mine.at, *in = tp_battery_memory.take((size_t)N * BYTES);
    if (t->ops->meet) OK(t->ops->meet(t, NULL, &e));
    for (int i = 0; i < N; i++) {
        struct tp_tag tag = tag_of(i, BYTES);
        for (size_t k = 0; k < BYTES; k++) out[(size_t)i * BYTES + k] = pattern(i + 10 * me, k);
        OK(t->ops->post_get(t, from, &tag, in + (size_t)i * BYTES, &rr[i], &e));
        OK(t->ops->post_send(t, to, &tag, out + (size_t)i * BYTES, &rs[i], &e));
    }
    bool comes = !t->ops->reads || t->ops->reads(t, from), goes = !t->ops->reads || t->ops->reads(t, to);
    EXPECT((comes && goes) || getenv("TP_WITHOUT_ROOMS"));
    for (int i = N - 1; i >= 0; i--) {
        OK(wait_one(t, &rr[i]));
        EXPECT(rr[i].slot >= 0 && !rr[i].damaged && rr[i].at != NULL);
        EXPECT(comes == (rr[i].at != in + (size_t)i * BYTES));
        const unsigned char *at = rr[i].at;
        for (size_t k = 0; k < BYTES; k++) EXPECT(at[k] == pattern(i + 10 * from, k));
        if (goes) EXPECT(t->ops->test(t, &rs[0]) < TP_DONE);   /* the other rank has the first one still */
        if (i) t->ops->get_release(t, &rr[i]);
        EXPECT(!i || rr[i].slot == -1);
    }
    double met = 0;
    OK(t->ops->reduce(t, &met, 1, &e));
    if (goes) out[0] = 77;
    OK(t->ops->reduce(t, &met, 1, &e));
    if (comes) EXPECT(*(const unsigned char *)rr[0].at == 77);
    t->ops->get_release(t, &rr[0]);
    for (int i = 0; i < N; i++) OK(wait_one(t, &rs[i]));
    tp_battery_memory.give(in);
    place_give(mine);
    return NULL;
}

/* Out of a room into a place of the receiver's own; and loans go on to be told apart. */
static const char *check_room(struct tp *t)
{
    enum { N = 9000, BYTES = 64 };
    int n = size(t), me = rank(t), to = (me + 1) % n, from = (me + n - 1) % n;
    if (n < 2 || !t->ops->window) return NULL;
    struct place mine = place_take(t, BYTES);
    unsigned char *out = mine.at, in[BYTES + 1];
    for (int i = 0; i < N; i++) {
        struct tp_tag tag = tag_of(i, BYTES);
        struct tp_req s, r;
        for (size_t k = 0; k < BYTES; k++) out[k] = pattern(i + me, k);
        in[BYTES] = 0xa5;
        OK(t->ops->post_recv(t, from, &tag, in, &r, &e));
        OK(t->ops->post_send(t, to, &tag, out, &s, &e));
        OK(wait_one(t, &r));
        OK(wait_one(t, &s));
        const char *wrong = compare(in, i + from, BYTES);
        if (wrong) return wrong;
    }
    place_give(mine);
    return NULL;
}

const struct tp_check tp_battery[] = {
    {"all to all", check_all_to_all},
    {"big messages", check_big},
    {"random traffic", check_random},
    {"reduce", check_reduce},
    {"broadcast", check_bcast},
    {"progress in reduce", check_progress_in_reduce},
    {"messages", check_messages},
    {"long message", check_long_message},
    {"states", check_states},
    {"bad peer", check_bad_peer},
    {"loans", check_loans},
    {"room", check_room},
    {NULL, NULL},
};
