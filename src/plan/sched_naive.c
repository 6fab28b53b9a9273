/* naive: one micro-batch after the other travels through all stages and back; only one rank works at a time. */
#include "plan/plan.h"
#include "plan/sched.h"

static int build(int n_stages, int n_ranks, int n_mb, int rank, struct sched *out, struct err *e)
{
    for (int mb = 0; mb < n_mb; mb++) {
        for (int s = rank; s < n_stages; s += n_ranks) sched_push(out, rank, ACT_F, s, mb);
        int last = rank;
        while (last + n_ranks < n_stages) last += n_ranks;
        for (int s = last; s >= 0; s -= n_ranks) {
            sched_push(out, rank, ACT_B, s, mb);
            sched_push(out, rank, ACT_W, s, mb);
        }
    }
    return 0;
}

const struct sched_kind sched_naive = {
    .name = "naive", .text = "no pipelining: one micro-batch at a time", .build = build};
