/* gpipe (Huang et al. 2019): all forward passes, then all backward passes, both in ascending order (R3). */
#include "plan/plan.h"
#include "plan/sched.h"

static int build(int n_stages, int n_ranks, int n_mb, int rank, struct sched *out, struct err *e)
{
    int last = rank;
    while (last + n_ranks < n_stages) last += n_ranks;
    for (int s = rank; s < n_stages; s += n_ranks)
        for (int mb = 0; mb < n_mb; mb++) sched_push(out, rank, ACT_F, s, mb);
    for (int s = last; s >= 0; s -= n_ranks)
        for (int mb = 0; mb < n_mb; mb++) {
            sched_push(out, rank, ACT_B, s, mb);
            sched_push(out, rank, ACT_W, s, mb);
        }
    return 0;
}

const struct sched_kind sched_gpipe = {
    .name = "gpipe", .text = "all forward passes, then all backward passes", .build = build};
