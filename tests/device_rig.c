#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "device_rig.h"
#include "tp_battery.h"

void check_cuda(cudaError_t status) { ck_assert_msg(status == cudaSuccess, "%s", cudaGetErrorString(status)); }

cudaStream_t stream_new(void)
{
    cudaStream_t s;
    check_cuda(cudaStreamCreateWithPriority(&s, cudaStreamNonBlocking, 0));
    return s;
}

/* ---- device memory for the battery: given back when all is over, because a free waits for everything ---- */

static pthread_mutex_t memory_lock = PTHREAD_MUTEX_INITIALIZER;
static void *taken[1 << 16];
static int n_taken;

void *memory_take(size_t bytes)
{
    void *p;
    check_cuda(cudaMalloc(&p, bytes));
    pthread_mutex_lock(&memory_lock);
    ck_assert(n_taken < 1 << 16);
    taken[n_taken++] = p;
    pthread_mutex_unlock(&memory_lock);
    return p;
}

void memory_keep(void *p) { (void)p; }

void memory_give_all(void)
{
    while (n_taken) check_cuda(cudaFree(taken[--n_taken]));
}

/* ---- ranks as threads ------------------------------------------------------------------------ */

uint64_t patience_ns = 60000000000u;
int gpu_of[MAX_RANKS] = {0, 1, 2, 3}, host_of[MAX_RANKS], max_ctas = 4;
uint64_t connect_ns;

int device_open(enum kind kind, struct tp *inner, struct tp **out, struct err *e)
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
    m->stream = stream_new();                            /* stream 0 of this thread; the links follow */
    if (m->tp->ops->attach(m->tp, m->stream, m->use, m->n_use, &m->e) || m->run(m)) {
        if (!m->text[0]) snprintf(m->text, sizeof m->text, "%s", m->e.text);
        m->tp->ops->abort(m->tp, m->e.code ? m->e.code : E_INTERNAL);
    }
    return NULL;
}

void members_run(enum kind kind, int n, struct member *m)
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

void members_close(int n, struct member *m)
{
    for (int r = 0; r < n; r++) {
        /* first: a stream may wait for a transfer that only this gives up */
        m[r].tp->ops->close(m[r].tp);
        cudaStreamDestroy(m[r].stream);
    }
}

int come_to(struct tp *t, struct tp_req *r, struct err *e)
{
    enum tp_state s;
    for (unsigned tries = 0; (s = t->ops->test(t, r)) < TP_QUEUED; poll_again(tries++))
        if (t->ops->progress(t, e)) return -1;
    return s == TP_QUEUED ? t->ops->join(t, r, e) : 0;
}

int settle(struct member *m)
{
    for (unsigned tries = 0; !m->tp->ops->idle(m->tp); poll_again(tries++))
        if (m->tp->ops->progress(m->tp, &m->e)) return -1;
    cudaError_t status = cudaStreamSynchronize(m->stream); /* may be the first to hear that the device is gone */
    return status == cudaSuccess ? 0 : err_set(&m->e, E_DEVICE, "rank %d: %s", m->rank, cudaGetErrorString(status));
}

int one_transfer(struct member *m, struct tp_tag tag, void *p)
{
    struct tp_req r;
    int bad = m->rank ? m->tp->ops->post_recv(m->tp, 0, &tag, p, &r, &m->e)
                      : m->tp->ops->post_send(m->tp, 1, &tag, p, &r, &m->e);
    return bad || come_to(m->tp, &r, &m->e) ? -1 : settle(m);
}

void two(enum kind kind, int (*run)(struct member *), struct member *m)
{
    static const struct tp_use use[2] = {{.peer = 1, .send = true, .posts = 2, .bytes = 64},
                                         {.peer = 0, .send = false, .posts = 2, .bytes = 64}};
    for (int r = 0; r < 2; r++) m[r] = (struct member){.use = &use[r], .n_use = 1, .drop = -1, .run = run};
    members_run(kind, 2, m);
}

/* ---- what a machine that stands still for a second could look like --------------------------- */

uint64_t patience_s;                              /* of the try under way */
char said[1200];

const char *wrong_if(bool wrong, const char *fmt, ...)
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

void patiently(const char *(*check)(int), int i)
{
    bool well = false;
    for (patience_s = 1; !well && patience_s <= 8; patience_s *= 2)
        if (!(well = try(check, i))) fprintf(stderr, "with a patience of %d s: %s\n", (int)patience_s, said);
    ck_assert_msg(well, "%s", said);
}

void twice(const char *(*check)(int), int i)
{
    if (try(check, i)) return;
    fprintf(stderr, "at first: %s\n", said);
    ck_assert_msg(try(check, i), "%s", said);
}
