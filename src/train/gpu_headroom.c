/* Device memory that libraries take besides the plan. */
#include <stdlib.h>
#include "base/mem.h"
#include "train/gpu_headroom.h"

/* Estimates, not measured. A communicator of NCCL 2.28 has its own tables, and for each channel (one for each thread
 * block) buffers for all three protocols: 4 MiB, 4.7 MiB and 0.5 MiB (NCCL_BUFFSIZE, NCCL_LL128_BUFFSIZE,
 * NCCL_LL_BUFFSIZE). A CUDA graph has its own memory and a node for each kernel, about four for each call. cuDNN and
 * cuBLASLt load kernels at their first use. */
static const size_t LINK_BYTES = 16 << 20, CTA_BYTES = 10 << 20, GRAPH_BYTES = 64 << 10, CALL_BYTES = 16 << 10,
                    KERNEL_BYTES = 64 << 20;

static void link_add(bool *seen, const struct reserve_request *q, int peer, bool send, struct reserve *r)
{
    if (peer < 0 || peer >= q->n_ranks || peer == q->rank || seen[2 * peer + send]) return;
    seen[2 * peer + send] = true;
    r->links++;
}

static void links_count(const struct reserve_request *q, struct reserve *r)
{
    bool *seen = mem_alloc(2 * (size_t)q->n_ranks * sizeof *seen), sums = false;
    for (int i = 0; i < q->n_plans; i++)
        for (int c = 0; c < q->plan[i]->n_chan; c++) {
            const struct channel *k = &q->plan[i]->chan[c];
            const struct mesh *m = &q->plan[i]->pl->mesh;
            sums |= k->kind == CHAN_ALL && k->from.at[AXIS_PP] == mesh_coord_of(m, q->rank).at[AXIS_PP];
            if (k->kind == CHAN_ALL) continue;
            int from = mesh_rank(m, k->from), to = mesh_rank(m, k->to);
            if (from == q->rank) link_add(seen, q, to, true, r);
            if (to == q->rank) link_add(seen, q, from, false, r);
        }
    for (int i = 0; i < 4 && q->neighbours; i++) link_add(seen, q, q->rank + (i < 2 ? -1 : 1), i % 2, r);
    r->links += sums;                                    /* one communicator, with the buffers of a ring */
    free(seen);
}

static void graphs_count(const struct plan *p, int rank, struct reserve *r)
{
    for (int i = 0; i < p->row_n[rank]; i++) {
        const struct act *a = &p->row[rank][i];
        bool optimizer = act_info[a->op].kind == KIND_OPTIMIZER;
        int calls = optimizer ? p->stage[a->stage].n_groups : act_calls(p, a);
        r->graphs += optimizer || calls > 0;
        r->calls += calls;
    }
}

void gpu_headroom_count(const struct reserve_request *q, struct reserve *r)
{
    *r = (struct reserve){0};
    if (q->links) links_count(q, r);
    for (int i = 0; i < q->n_plans && q->graphs; i++)
        graphs_count(q->plan[i], mesh_coord_of(&q->plan[i]->pl->mesh, q->rank).at[AXIS_PP], r);
}

size_t gpu_headroom_bytes(const struct reserve *r, int ctas)
{
    int taken = 1;
    while (2 * taken <= ctas) taken *= 2;
    return (size_t)r->links * (LINK_BYTES + (size_t)taken * CTA_BYTES) + (size_t)r->graphs * GRAPH_BYTES +
           (size_t)r->calls * CALL_BYTES + KERNEL_BYTES;
}
