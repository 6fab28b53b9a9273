/* The MPI transport under mpirun: run by tests/check-mpi.
 *
 *   tp_mpi_check               the battery of all transports, in whole messages and in pieces
 *   tp_mpi_check mismatch      rank 0 sends another tag than rank 1 expects: rank 1 prints the error and stops the job
 *   with its code
 *   tp_mpi_check forbidden     the battery with a kernel that lets no process copy another's memory, as in some
 *   containers
 *   tp_mpi_check abort CODE    rank 0 stops the job while all others wait in a collective
 *   tp_mpi_check idle          prints the cost of a progress call with a receive open, in ns, and how a transfer
 *   overlaps with computing */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <mpi.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include "base/clock.h"
#include "tp_battery.h"

static int battery(struct tp *t, const char *how)
{
    int bad = 0;
    for (const struct tp_check *c = tp_battery; c->name && !bad; c++) {
        const char *wrong = c->run(t);
        if (wrong) {
            fprintf(stderr, "%s, %s, rank %d: %s\n", c->name, how, t->ops->rank(t), wrong);
            bad = 1;
        }
    }
    if (bad) t->ops->abort(t, 1);
    return bad;
}

static int mismatch(struct tp *t)
{
    struct tp_tag tag = {.step = 1, .mb = 2, .bytes = 8};
    struct err e = {0};
    struct tp_req r;
    double x = 0;
    int me = t->ops->rank(t);
    if (me == 0) tag.mb = 3;
    if (me == 0) t->ops->post_send(t, 1, &tag, &x, &r, &e);
    if (me == 1) t->ops->post_recv(t, 0, &tag, &x, &r, &e);
    while (!e.code) {
        t->ops->progress(t, &e);
        sched_yield();
    }
    fprintf(stderr, "%s\n", e.text);
    t->ops->abort(t, e.code);
    return 0;
}

static int stop(struct tp *t, int code)
{
    struct err e = {0};
    double x = 1;
    if (t->ops->rank(t) == 0) t->ops->abort(t, code);
    return t->ops->reduce(t, &x, 1, &e);
}

static void compute(uint64_t ns)
{
    for (uint64_t until = clock_ns() + ns; clock_ns() < until;) continue;
}

/* One transfer of 10 MiB between kernels of `ms`: when it was through, and how long both sides were in the transport.
 */
static int overlap(struct tp *t, unsigned char *p, int ms, struct err *e)
{
    struct tp_tag tag = {.bytes = 10 << 20};
    struct tp_req r;
    int me = t->ops->rank(t), kernels = 0;
    double x = 0;
    if (t->ops->reduce(t, &x, 1, e)) return -1;
    uint64_t start = clock_ns(), in = 0;
    if (me == 0 ? t->ops->post_send(t, 1, &tag, p, &r, e) : t->ops->post_recv(t, 0, &tag, p, &r, e)) return -1;
    in += clock_ns() - start;
    for (; r.slot >= 0; kernels++) {
        compute((uint64_t)ms * 1000000);
        uint64_t at = clock_ns();
        if (t->ops->progress(t, e)) return -1;
        t->ops->test(t, &r);
        in += clock_ns() - at;
    }
    printf("kernels of %d ms, rank %d: through after %.2f ms and %d kernels, %.3f ms of it in the transport\n", ms, me,
           (double)(clock_ns() - start) * 1e-6, kernels, (double)in * 1e-6);
    fflush(stdout);
    return t->ops->reduce(t, &x, 1, e);
}

static int idle(struct tp *t)
{
    enum { CALLS = 1000000 };
    struct tp_tag tag = {.bytes = 8};
    struct err e = {0};
    struct tp_req r;
    double x = 0;
    struct tp_message m = {0, STREAM_ORDER, &x, 8};
    int me = t->ops->rank(t);
    if (me > 1) return 0;
    if (me == 1 && t->ops->post_recv(t, 0, &tag, &x, &r, &e)) return 1;
    uint64_t start = clock_ns();
    for (int i = 0; i < CALLS; i++) t->ops->progress(t, &e);
    printf("rank %d: progress with %s open: %.0f ns\n", me, me ? "a receive" : "nothing",
           (double)(clock_ns() - start) / CALLS);
    start = clock_ns();
    for (int i = 0; i < CALLS; i++) t->ops->recv_msg(t, &m, &e);
    printf("rank %d: hear: %.0f ns\n", me, (double)(clock_ns() - start) / CALLS);
    if (me == 0 && t->ops->post_send(t, 1, &tag, &x, &r, &e)) return 1;
    while (t->ops->test(t, &r) != TP_DONE) if (t->ops->progress(t, &e)) return 1;
    unsigned char *p = calloc(10 << 20, 1), *q = malloc(10 << 20);
    memcpy(q, p, 10 << 20);
    start = clock_ns();
    memcpy(q, p, 10 << 20);
    printf("rank %d: one memcpy of 10 MiB: %.2f ms\n", me, (double)(clock_ns() - start) * 1e-6);
    for (int ms = 1; ms <= 16; ms *= 2) for (int k = 0; k < 2; k++) if (overlap(t, p, ms, &e)) return 1;
    free(p);
    free(q);
    return 0;
}

static int forbid(void)
{
    struct sock_filter f[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog p = {sizeof f / sizeof *f, f};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p);
}

int main(int argc, char **argv)
{
    struct tp *t;
    struct err e = {0};
    int provided, bad = 1;
    const char *what = argc > 1 ? argv[1] : "battery";
    if (!strcmp(what, "forbidden") && forbid()) return 77;
    tp_mpi_tune();
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
    if (tp_mpi_open(MPI_Comm_c2f(MPI_COMM_WORLD), &t, &e)) return 1;
    if (!strcmp(what, "battery") || !strcmp(what, "forbidden")) {
        bad = battery(t, "whole");
        tp_mpi_pieces(t, 1 << 19);
        bad = bad || battery(t, "in pieces");
    }
    if (!strcmp(what, "mismatch")) bad = mismatch(t);
    if (!strcmp(what, "abort") && argc > 2) bad = stop(t, atoi(argv[2]));
    if (!strcmp(what, "idle")) bad = idle(t);
    t->ops->close(t);
    MPI_Finalize();
    return bad;
}
