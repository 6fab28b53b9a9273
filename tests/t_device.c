/* The transports of devices, over the doubles of cudart and NCCL: the battery of all transports, order between streams,
 * and what goes wrong. */
#include <check.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "base/clock.h"
#include "gpu/doubles/double.h"
#include "tp_battery.h"
#include "transport/tp_nccl_env.h"
#include "sure.h"

enum { MAX_RANKS = 4, MANY = 64 };

static void check_cuda(cudaError_t status) { ck_assert_msg(status == cudaSuccess, "%s", cudaGetErrorString(status)); }

static cudaStream_t stream_new(void)
{
    cudaStream_t s;
    check_cuda(cudaStreamCreateWithPriority(&s, cudaStreamNonBlocking, 0));
    return s;
}

/* ---- device memory for the battery: given back when all is over, because a free waits for everything ---- */

static pthread_mutex_t memory_lock = PTHREAD_MUTEX_INITIALIZER;
static void *taken[1 << 16];
static int n_taken;

static void *memory_take(size_t bytes)
{
    void *p;
    check_cuda(cudaMalloc(&p, bytes));
    pthread_mutex_lock(&memory_lock);
    ck_assert(n_taken < 1 << 16);
    taken[n_taken++] = p;
    pthread_mutex_unlock(&memory_lock);
    return p;
}

static void memory_keep(void *p) { (void)p; }

static void memory_give_all(void)
{
    while (n_taken) check_cuda(cudaFree(taken[--n_taken]));
}

/* ---- ranks as threads ------------------------------------------------------------------------ */

enum kind { STAGED, NCCL, KINDS };
static const char *const kind_name[KINDS] = {"staged", "nccl"};
static uint64_t patience_ns = 60000000000u;
#define HANGS_NS 40000000000u /* what hangs does so for that patience; ten seconds are enough where nothing else runs \
                               */

struct member {
    struct tp *tp;
    cudaStream_t lane;
    const struct tp_use *use; int n_use;
    const struct tp_check *check;
    int drop;                                            /* stream whose waits are lost, -1: none */
    int rank, size;
    long wrong;                                          /* values */
    char text[1100];
    struct err e;
    int (*run)(struct member *m);
};

static int gpu_of[MAX_RANKS] = {0, 1, 2, 3}, host_of[MAX_RANKS], max_ctas = 4;
static uint64_t connect_ns;

static int device_open(enum kind kind, struct tp *inner, struct tp **out, struct err *e)
{
    struct tp_request q = {.seats = {.gpu = gpu_of, .host = host_of, .name = "here"}, .patience_ns = patience_ns,
                           .connect_ns = connect_ns, .max_ctas = max_ctas};
    return (kind == STAGED ? &tp_staged : &tp_nccl)->over(inner, &q, out, e);
}

static void *member_main(void *p)
{
    struct member *m = p;
    double_drop_waits(m->drop);
    check_cuda(cudaSetDevice(m->rank));
    m->lane = stream_new();                              /* stream 0 of this thread; the links follow */
    if (m->tp->ops->attach(m->tp, m->lane, m->use, m->n_use, &m->e) || m->run(m)) {
        if (!m->text[0]) snprintf(m->text, sizeof m->text, "%s", m->e.text);
        m->tp->ops->abort(m->tp, m->e.code ? m->e.code : E_INTERNAL);
    }
    return NULL;
}

/* Runs all members; afterwards m[i].text says what went wrong. */
static void members_run(enum kind kind, int n, struct member *m)
{
    struct tp *inner[MAX_RANKS];
    pthread_t thread[MAX_RANKS];
    struct err e = {0};
    ck_assert(!tp_local_open(n, inner, &e));
    for (int r = 0; r < n; r++) {
        ck_assert(!device_open(kind, inner[r], &m[r].tp, &e));
        m[r].rank = r;
        m[r].size = n;
    }
    for (int r = 0; r < n; r++) pthread_create(&thread[r], NULL, member_main, &m[r]);
    for (int r = 0; r < n; r++) pthread_join(thread[r], NULL);
}

static void members_close(int n, struct member *m)
{
    for (int r = 0; r < n; r++) {
        /* first: a lane may wait for a transfer that only this gives up */
        m[r].tp->ops->close(m[r].tp);
        cudaStreamDestroy(m[r].lane);
    }
}

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

static int come_to(struct tp *t, struct tp_req *r, struct err *e)
{
    enum tp_state s;
    while ((s = t->ops->test(t, r)) < TP_QUEUED) {
        if (t->ops->progress(t, e)) return -1;
        sched_yield();
    }
    return s == TP_QUEUED ? t->ops->join(t, r, e) : 0;
}

static int settle(struct member *m)
{
    while (!m->tp->ops->idle(m->tp)) {
        if (m->tp->ops->progress(m->tp, &m->e)) return -1;
        sched_yield();
    }
    cudaError_t status = cudaStreamSynchronize(m->lane);  /* may be the first to hear that the device is gone */
    return status == cudaSuccess ? 0 : err_set(&m->e, E_DEVICE, "rank %d: %s", m->rank, cudaGetErrorString(status));
}

struct pipe { float *in[SLOTS], *out[SLOTS]; struct tp_req received[SLOTS], sent[SLOTS]; };

static void kernel(struct member *m, void (*fn)(void *), struct fill f)
{
    check_cuda((cudaError_t)host_launch(m->lane, fn, &f, sizeof f));
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

enum { LANE = 0, LINK = 1 };                             /* numbers of a rank's streams */

/* _i: transport * 2 + (four ranks or two) */
START_TEST(order_is_kept)
{
    for (uint64_t seed = 1; seed <= (IS_SANITIZED ? 3 : 10); seed++)
        ck_assert_int_eq(pipeline((enum kind)(_i / 2), _i % 2 ? 4 : 2, seed, -1, -1), 0);
}
END_TEST

START_TEST(missing_wait_before_a_send)
{
    for (uint64_t seed = 1; seed <= 10; seed++)
        ck_assert_int_gt(pipeline((enum kind)(_i / 2), _i % 2 ? 4 : 2, seed, 0, LINK), 0);
}
END_TEST

START_TEST(missing_wait_after_a_receive)
{
    for (uint64_t seed = 1; seed <= 10; seed++)
        ck_assert_int_gt(pipeline((enum kind)(_i / 2), _i % 2 ? 4 : 2, seed, 1, LANE), 0);
}
END_TEST

/* ---- what goes wrong ------------------------------------------------------------------------- */

static int one_transfer(struct member *m, struct tp_tag tag, void *p)
{
    struct tp_req r;
    int bad = m->rank ? m->tp->ops->post_recv(m->tp, 0, &tag, p, &r, &m->e)
                      : m->tp->ops->post_send(m->tp, 1, &tag, p, &r, &m->e);
    return bad || come_to(m->tp, &r, &m->e) ? -1 : settle(m);
}

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

/* Rank 0 sends to rank 1. */
static void two(enum kind kind, int (*run)(struct member *), struct member *m)
{
    static const struct tp_use use[2] = {{.peer = 1, .send = true, .posts = 2, .bytes = 64},
                                         {.peer = 0, .send = false, .posts = 2, .bytes = 64}};
    for (int r = 0; r < 2; r++) m[r] = (struct member){.use = &use[r], .n_use = 1, .drop = -1, .run = run};
    members_run(kind, 2, m);
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

/* ---- what a machine that stands still for a second could look like --------------------------- */

static uint64_t patience_s;                              /* of the try under way */
static char said[1200];

__attribute__((format(printf, 2, 3))) static const char *wrong_if(bool wrong, const char *fmt, ...)
{
    va_list ap;
    if (!wrong) return NULL;
    va_start(ap, fmt);
    vsnprintf(said, sizeof said, fmt, ap);
    va_end(ap);
    return said;
}

/* In a process of its own: is all well? Otherwise said holds what is wrong. */
static bool try(const char *(*check)(int), int i)
{
    enum { WRONG = 3 };                                  /* no status of a crash or of a sanitizer */
    int pipe_fd[2], status;
    ck_assert(!pipe(pipe_fd));
    pid_t child = fork();
    ck_assert(child >= 0);
    if (!child) {
        const char *wrong = check(i);
        if (wrong && write(pipe_fd[1], wrong, strlen(wrong)) < 0) abort();
        exit(wrong ? WRONG : 0);
    }
    close(pipe_fd[1]);
    size_t at = 0;
    for (ssize_t n; at + 1 < sizeof said && (n = read(pipe_fd[0], said + at, sizeof said - 1 - at)) > 0;)
        at += (size_t)n;
    said[at] = 0;
    close(pipe_fd[0]);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == WRONG), "ended with %#x: %s",
                  status, said);
    return WEXITSTATUS(status) == 0;
}

/* What is wrong is wrong with any patience; a rank that the machine kept waiting is only slow. */
static void patiently(const char *(*check)(int), int i)
{
    bool well = false;
    for (patience_s = 1; !well && patience_s <= 8; patience_s *= 2)
        if (!(well = try(check, i))) fprintf(stderr, "with a patience of %d s: %s\n", (int)patience_s, said);
    ck_assert_msg(well, "%s", said);
}

/* The same where the transport's own second and a half decides, in which a rank that lost its peer lets that one speak
 * first: a stall of that length may come once. */
static void twice(const char *(*check)(int), int i)
{
    if (try(check, i)) return;
    fprintf(stderr, "at first: %s\n", said);
    ck_assert_msg(try(check, i), "%s", said);
}

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
                        !strstr(first->text, hangs ? "nothing moved" : "remote"),
                    "%s", first->text);
}
START_TEST(peer_is_lost) { patiently(peer_lost, _i); }
END_TEST

static int short_word_run(struct member *m)
{
    if (m->rank) return m->tp->ops->say(m->tp, 0, TP_WATCH, "x", 1, &m->e);
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

/* ---- ranks that connect ---------------------------------------------------------------------- */

enum { TOO_MANY = 1 << 16 };

/* The last rank comes later. */
static void *meeting_main(void *p)
{
    struct member *m = p;
    check_cuda(cudaSetDevice(m->rank));
    m->lane = stream_new();
    if (m->rank == m->size - 1) nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    if (m->tp->ops->attach(m->tp, m->lane, m->use, m->n_use, &m->e)) snprintf(m->text, sizeof m->text, "%s", m->e.text);
    return NULL;
}

/* A connection breaks at its first message, and then a third rank says what happened: that is the cause. */
static const char *third_fails(int unused)
{
    static const struct tp_use use[3][2] = {
        {{.peer = 1, .send = true, .posts = 2, .bytes = 64}},
        {{.peer = 0, .send = false, .posts = 2, .bytes = 64}, {.peer = 2, .send = true, .posts = 2, .bytes = 64}},
        {{.peer = 1, .send = false, .posts = TOO_MANY, .bytes = 64}},
    };
    struct tp *inner[3];
    struct member m[3];
    pthread_t thread[3];
    struct err e = {0};
    const char *wrong = NULL;
    (void)unused;
    setenv("DOUBLE_NCCL_CLOSE", "0", 1);
    ck_assert(!tp_local_open(3, inner, &e));
    for (int r = 0; r < 3; r++) {
        m[r] = (struct member){.use = use[r], .n_use = 1 + (r == 1), .rank = r, .size = 3};
        ck_assert(!device_open(NCCL, inner[r], &m[r].tp, &e));
    }
    for (int r = 0; r < 3; r++) pthread_create(&thread[r], NULL, meeting_main, &m[r]);
    for (int r = 0; r < 3; r++) pthread_join(thread[r], NULL);
    for (int r = 0; r < 3 && !wrong; r++)
        wrong = wrong_if(strcmp(m[r].text, "rank 2: 65536 transfers on one link") != 0, "rank %d: %s", r, m[r].text);
    members_close(3, m);
    return wrong;
}
START_TEST(third_rank_fails) { twice(third_fails, 0); }
END_TEST

/* ---- who shares a GPU with whom ---------------------------------------------------------------------------------- */

/* What NCCL would read, of rank `me` of four: its host's name, the interface, and whether NVLink joins hosts. */
static void env_is(int me, const char *host, const char *interface, const char *joins)
{
    static const char *const name[] = {
        "NCCL_HOSTID", "NCCL_SOCKET_IFNAME", "NCCL_MNNVL_ENABLE", "NCCL_CUMEM_HOST_ENABLE",
        "NCCL_NET",    "NCCL_P2P_DISABLE",   "NCCL_SHM_DISABLE",  "NCCL_IB_DISABLE"};
    const char *want[] = {host, interface, joins, host ? "0" : NULL, NULL, NULL, NULL, NULL};
    struct tp_seats s = {.gpu = gpu_of, .host = host_of, .name = "here"};
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) unsetenv(name[i]);
    nccl_env_set(&s, me, 4);
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        const char *is = getenv(name[i]);
        bool right = want[i] ? is && !strcmp(is, want[i]) : !is;
        ck_assert_msg(right, "rank %d: %s is %s", me, name[i], is ? is : "not set");
    }
}

START_TEST(seats)
{
    for (int r = 0; r < 4; r++) env_is(r, NULL, NULL, NULL);
    memcpy(gpu_of, (int[]){0, 1, 0, 1}, sizeof gpu_of);   /* all on one host: the first ones, the second ones */
    for (int r = 0; r < 4; r++) env_is(r, r < 2 ? "here-0-0" : "here-0-1", "lo", "0");
    memcpy(gpu_of, (int[]){0, 0, 2, 3}, sizeof gpu_of);   /* the second host's ranks have a GPU each */
    memcpy(host_of, (int[]){0, 0, 2, 2}, sizeof host_of);
    env_is(0, "here-0-0", NULL, "0");
    env_is(1, "here-0-1", NULL, "0");
    env_is(2, NULL, NULL, "0");
    env_is(3, NULL, NULL, "0");
    setenv("NCCL_HOSTID", "mine", 1);                     /* the user's */
    nccl_env_set(&(struct tp_seats){.gpu = gpu_of, .host = host_of, .name = "here"}, 1, 4);
    ck_assert_str_eq(getenv("NCCL_HOSTID"), "mine");
}
END_TEST

static int nothing_run(struct member *m) { return settle(m); }

/* Of a pair that shares a GPU (odd), and of one that does not; the double's GPUs are always two. NCCL would make three
 * blocks of threads four, and five eight. */
START_TEST(pair_is_asked_for)
{
    static const struct { int most, apart, shared; } ctas[] = {{4, 4, 2}, {1, 1, 1}, {3, 2, 2}, {5, 4, 2}};
    struct member m[2];
    bool shared = _i % 2;
    gpu_of[1] = shared ? 0 : 1;
    max_ctas = ctas[_i / 2].most;
    /* before there are threads: then they change nothing of the environment */
    nccl_env_set(&(struct tp_seats){.gpu = gpu_of, .host = host_of, .name = "here"}, 0, 2);
    two(NCCL, nothing_run, m);
    for (int r = 0; r < 2; r++) ck_assert_msg(!m[r].text[0], "rank %d: %s", r, m[r].text);
    struct double_comm made = double_comm_made();
    members_close(2, m);
    ck_assert_int_eq(made.cluster, 1);
    ck_assert_int_eq(made.ctas, shared ? ctas[_i / 2].shared : ctas[_i / 2].apart);
    ck_assert_str_eq(made.net, shared ? "Socket" : "");
}
END_TEST

/* One GPU, and nobody divided the host: the double refuses, as NCCL does, and the error says what to try. */
static int same_gpu_attach(const char *advice)
{
    static const struct tp_use use[2] = {{.peer = 1, .send = true, .posts = 2, .bytes = 64},
                                         {.peer = 0, .send = false, .posts = 2, .bytes = 64}};
    struct tp *inner[2];
    struct member m[2];
    pthread_t thread[2];
    struct err e = {0};
    ck_assert(!tp_local_open(2, inner, &e));
    for (int r = 0; r < 2; r++) {
        m[r] = (struct member){.use = &use[r], .n_use = 1, .rank = 0, .size = 2};
        ck_assert(!device_open(NCCL, inner[r], &m[r].tp, &e));
    }
    for (int r = 0; r < 2; r++) pthread_create(&thread[r], NULL, meeting_main, &m[r]);
    for (int r = 0; r < 2; r++) pthread_join(thread[r], NULL);
    for (int r = 0; r < 2; r++) {
        const char *at = strstr(m[r].text, "NCCL: invalid usage");
        ck_assert_msg(at && strcmp(at + strlen("NCCL: invalid usage"), advice) == 0, "rank %d: %s", r, m[r].text);
    }
    members_close(2, m);
    return 0;
}

START_TEST(advice)
{
    static const char *const want[] = {"; try again with NCCL_CUMEM_ENABLE=0 in the environment, or with "
                                       "NCCL_DEBUG=INFO, which says more",
                                       "; try again with NCCL_DEBUG=INFO, which says more", ""};
    if (_i > 0) setenv("NCCL_CUMEM_ENABLE", "0", 1);
    if (_i > 1) setenv("NCCL_DEBUG", "INFO", 1);
    same_gpu_attach(want[_i]);
}
END_TEST

/* Rank 1 is there, but its half of the link moves nothing. */
START_TEST(hangs_while_connecting)
{
    static const char want[] = " in 1 s; try again with NCCL_CUMEM_ENABLE=0 in the environment";
    struct member m[2];
    connect_ns = 1000000000;
    setenv("DOUBLE_NCCL_HANG", "0", 1);
    two(NCCL, nothing_run, m);                            /* one of them may only be stopped by the other */
    ck_assert_msg(m[0].text[0] && m[1].text[0] && (strstr(m[0].text, want) || strstr(m[1].text, want)), "%s; %s",
                  m[0].text, m[1].text);
    members_close(2, m);
}
END_TEST

/* ---- by which way a link goes ------------------------------------------------------------------------------------ */

START_TEST(ways)
{
    static const struct { const char *log, *via; } known[] = {
        {"", ""},
        {"h:1:2 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>\nh:1:2 [0] NCCL INFO Connected all rings\n", ""},
        {"h:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM\n", "P2P/CUMEM"},
        {"h:1:2 [0] NCCL INFO Channel 00/1 : 0[1c000] -> 1[1d000] via P2P/IPC/read", "P2P/IPC/read"},
        {"h:1:2 [0] NCCL INFO Channel 01/1 : 0[0] -> 1[1] via SHM/direct/direct comm 0x5581 nRanks 02\n",
         "SHM/direct/direct"},
        {"h:1:2 [0] NCCL INFO Channel 00/0 : 1[1] -> 0[0] [receive] via NET/Socket/0\n"
         "h:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] [send] via NET/IB/0/GDRDMA(PCI)\n"
         "h:1:2 [0] NCCL INFO Channel 00/0 : 1[1] -> 0[0] [receive] via NET/IB/1\n", "NET/IB/0/GDRDMA(PCI)"},
        {"Channel 00 : 1[1] -> 0[0] via P2P/direct pointer  \n", "P2P/direct pointer"},
        {"sent via nothing that is known\nChannel 00 : 0 -> 1 [send] to nowhere\n via \n", ""},
        {"Channel 00 : 0[0] -> 1[1] via 0123456789012345678901234567890123456789012345678901234567890123456789\n",
         "01234567890123456789012345678901234567890123456"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        char via[NCCL_VIA];
        nccl_via(known[i].log, via);
        ck_assert_str_eq(via, known[i].via);
    }
}
END_TEST

/* The user's settings stay, and nothing of ours is left behind. */
START_TEST(log_is_kept)
{
    struct nccl_log l;
    char via[NCCL_VIA];
    setenv("NCCL_DEBUG", "WARN", 1);
    nccl_log_begin(&l);
    ck_assert_int_eq(l.fd, -1);
    ck_assert_str_eq(getenv("NCCL_DEBUG"), "WARN");
    ck_assert_ptr_null(getenv("NCCL_DEBUG_FILE"));
    nccl_log_via(&l, via);
    ck_assert_str_eq(via, "");
    nccl_log_end(&l);
    unsetenv("NCCL_DEBUG");
    nccl_log_begin(&l);
    ck_assert_str_eq(getenv("NCCL_DEBUG"), "INFO");
    FILE *f = fopen(getenv("NCCL_DEBUG_FILE"), "w");
    ck_assert_ptr_nonnull(f);
    setbuf(f, NULL);
    fprintf(f, "Channel 00/1 : 0[0] -> 1[1] via P2P/CUMEM\n");
    nccl_log_via(&l, via);
    ck_assert_str_eq(via, "P2P/CUMEM");
    nccl_log_via(&l, via);                               /* nothing new */
    ck_assert_str_eq(via, "");
    for (int i = 0; i < 1000; i++) fprintf(f, "a line that says nothing\n");
    fprintf(f, "Channel 00/1 : 0[0] -> 1[1] [send] via NET/Socket/1\n");
    nccl_log_via(&l, via);
    ck_assert_str_eq(via, "NET/Socket/1");
    fclose(f);
    char text[NCCL_ADVICE];
    ck_assert_ptr_nonnull(strstr(nccl_env_advice(text), "NCCL_DEBUG=INFO"));   /* that one is ours */
    nccl_log_end(&l);
    ck_assert_ptr_null(getenv("NCCL_DEBUG"));
    ck_assert_ptr_null(getenv("NCCL_DEBUG_FILE"));
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
    if (m->rank == slow_rank) check_cuda((cudaError_t)host_launch(m->lane, sleep_run, &t, sizeof t));
    return one_transfer(m, (struct tp_tag){.step = 1, .bytes = 64}, memory_take(64));
}

/* A lane that computes for long is not lost, be it the sender's or the receiver's. */
static const char *lane_slow(int whose)
{
    slow_rank = whose;
    return nobody(slow_run);
}
START_TEST(slow_lane) { patiently(lane_slow, _i); }
END_TEST

/* Both ranks stand still while the receiver's lane has not come to the transfer that both have posted. */
static int stopped_run(struct member *m)
{
    struct tp_tag tag = {.step = 1, .bytes = 64};
    struct tp_req r;
    struct timespec t = long_time(), longer = {.tv_sec = (time_t)(3 * patience_s)};
    void *p = memory_take(64);
    if (m->rank) check_cuda((cudaError_t)host_launch(m->lane, sleep_run, &longer, sizeof longer));
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
    ck_assert_str_eq(m[0].text, "rank 0: nothing moved on the link to rank 1 for 1 s, and that rank does not answer");
    members_close(2, m);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("device");
    TCase *t[] = {tcase_create("battery"), tcase_create("order"), tcase_create("faults")};
#ifndef __SANITIZE_THREAD__                              /* too slow there; the tests of order take the same ways */
    tcase_add_loop_test(t[0], battery_device, 0, 8 * KINDS);
#endif
    tcase_add_loop_test(t[1], order_is_kept, 0, 2 * KINDS);
#ifndef __SANITIZE_THREAD__                              /* it sees the planted races by itself, and ends the program */
    tcase_add_loop_test(t[1], missing_wait_before_a_send, 0, 2 * KINDS);
    tcase_add_loop_test(t[1], missing_wait_after_a_receive, 0, 2 * KINDS);
#endif
    tcase_add_loop_test(t[2], wrong_tag, 0, KINDS);
    tcase_add_loop_test(t[2], limits, 0, KINDS);
    tcase_add_loop_test(t[2], device_vanishes, 0, KINDS);
    tcase_add_loop_test(t[2], device_vanishes_late, 0, 12 * KINDS);
    tcase_add_loop_test(t[2], peer_is_lost, 0, 2);
    tcase_add_test(t[2], short_word);
    tcase_add_test(t[2], third_rank_fails);
    tcase_add_test(t[2], seats);
    tcase_add_test(t[2], ways);
    tcase_add_test(t[2], log_is_kept);
    tcase_add_loop_test(t[2], pair_is_asked_for, 0, 8);
    tcase_add_loop_test(t[2], advice, 0, 3);
    tcase_add_test(t[2], hangs_while_connecting);
    tcase_add_loop_test(t[2], slow_lane, 0, 2);
    tcase_add_test(t[2], stopped_job);
    tcase_add_test(t[2], silent_peer);
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        tcase_set_timeout(t[i], 120);
        suite_add_tcase(s, t[i]);
    }
    return suite_run(s, CK_FORK);
}
