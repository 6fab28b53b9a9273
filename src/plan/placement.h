/* Where persistent values are: the stages of each rank, and the regions of their parameters. The same for all plans of
 * a set. Pure, frozen after placement_make. */
#ifndef PLAN_PLACEMENT_H
#define PLAN_PLACEMENT_H
#include "plan/state.h"

/* Which stages each rank has. Ranks here are the plan's; the transport may number ranks differently (exec/exec.h). */
struct stage_map {
    int n_stages, n_ranks, *rank_of;                     /* of each stage */
    int *n_stages_of, **stages_of;                       /* of each rank: its stages, ascending; at least one */
};
/* rank_of NULL: stage s is on rank s % n_ranks. 78 where a rank has no stage. */
int stage_map_make(struct arena *mem, int n_stages, int n_ranks, const int *rank_of, struct stage_map *out,
                   struct err *e);

/* A part of a rank's gradients that pipelines exchange separately: bytes of their region. group: the first group that
 * adds to it; -1: some gradients come from other ranks, at the end. Buckets that are final first come first. Pipelines
 * halve a bucket, then the halves. cut: the borders of the smallest shares, of gradients; weight_cut: the same of
 * weights, where these are shared out (placement_share). */
struct bucket { size_t at, end; int group; size_t *cut, *weight_cut; };
struct buckets { struct bucket *v; int n; };
/* How pipelines share the work. bucket: about how many bytes of gradients they exchange at a time; 0: all. weights:
 * each updates only its share of the weights and keeps the optimizer state of that share. by_transport: the transport
 * adds gradients, in its own order, instead of the plan. */
struct sharing { size_t bucket; bool weights, by_transport; };

/* Slots of weights on a rank: memory for the weights of n stages at a time, at the end of its parameters. The weights
 * of more stages lie in a file; a row of actions says when a stage's weights come into its slot. Trained ones have
 * slots for their gradients, too, at the end of the rank's gradients. at: of the first slot; bytes: of each. */
struct weight_slots { int n; size_t at, bytes, grad_at, grad_bytes; };

/* Optimizer state of a rank that lies in a file, weight by weight, in blocks of `block` elements of a weight: each
 * block has these elements of all its buffers. The update takes it in chunks of whole blocks, through n places in
 * memory, `place` bytes each, from `at` on in the rank's state. all: bytes of the file; bytes: of the largest chunk.
 * A chunk: its bytes from `at` on in the file, which begin with element `from` of a parameter. beside: bytes of trained
 * weights that lie in files; the update takes them and their gradients, too, behind their state in its place. */
struct state_chunk { uint64_t at; size_t bytes; int param; size_t from; };
struct state_file {
    int n; size_t at, bytes, place, block; uint64_t all, beside;
    struct state_chunk *chunk; int n_chunks;
};

struct placement {
    struct arena *mem;
    struct mesh mesh;
    int n_stages, *first_group;                          /* n_stages + 1 entries */
    int *stage_of_group;
    struct stage_map map;
    struct state_row *state; int n_state;                /* the registry; row i < n_params is graph->param[i] */
    /* The stage of each use of each parameter, at [use_first[param] + use]; and the offset where each rank accumulates
     * its gradient, in the gradient region (STATE_NOWHERE: not on that rank). A rank accumulates the uses of its own
     * stages; the owner of a parameter accumulates all its uses. */
    int *use_first, *use_stage;
    size_t **use_off;                                    /* [rank] */
    size_t *param_bytes, *grad_bytes, *state_bytes, *packed_bytes; /* of each rank */
    /* There are n_levels copies of the accumulators, level_bytes of a rank apart. use_off is the offset at level 0,
     * which holds the sum in the end. Higher levels hold blocks of micro-batches that are not added yet. */
    int n_levels; size_t *level_bytes;
    size_t *sum_bytes;                                   /* the first bytes of each level: weights that the rank owns */
    struct sharing sharing;
    struct buckets *bucket;                              /* of each rank; none with one pipeline */
    size_t *update_bytes;                                /* of each rank: gradients from which it updates */
    size_t *packed_off;                                  /* of each group, in its rank's packed region */
    /* slot_of: of each stage, the slot of its weights that lie in a file; -1: they lie in memory. slot_used: bytes of
     * the slot that they fill; slot_grads: the same of gradients. */
    struct weight_slots *slots;                          /* of each rank */
    int *slot_of; size_t *slot_used, *slot_grads;
    struct state_file *state_file;                       /* of each rank; n 0: all its state lies in memory */
    /* of each rank: bytes outside its device (weights and gradients that use slots, and state_file), and how many of
     * them, the first, lie in the host's memory instead of a file */
    uint64_t *outside_bytes, *host_bytes;
};
struct placement_request {
    const struct selection *sel;
    struct mesh mesh;                                    /* size 0 on AXIS_DP: 1 */
    int n_stages;
    const int *first_group;                              /* n_stages + 1 entries */
    const int *rank_of;                                  /* of each stage; NULL: in turn */
    struct state_buffers buffers;                        /* of the optimizer (optim_buffers) */
    int groups;                                          /* of the plans (plan_request); 0: 1 */
    struct sharing sharing;
    /* of each stage: its frozen weights lie in a file; NULL: none. Each rank has this many slots for them, or one for
     * each such stage if these are fewer. trained_in_file: its trained weights, too, and their gradients, unless a
     * weight has several uses, or a copy that a kernel packed. Only with buffers.in_file, one group and one replica,
     * without averages. */
    const bool *in_file; int slots; bool trained_in_file;
    uint64_t host;                                       /* the most host_bytes of all ranks together */
};
/* A weight whose kernels keep no packed copy of it in memory. */
bool placement_may_file(const struct selection *s, const struct state_row *r);
struct placement *placement_make(const struct placement_request *r, struct err *e);
void placement_free(struct placement *p);
/* Among all ranks: the one that changes a row and writes it to checkpoints. */
static inline int placement_writer(const struct placement *pl, const struct state_row *r)
{
    return mesh_rank(&pl->mesh, (struct mesh_coord){{[AXIS_PP] = r->owner, [AXIS_DP] = shard_first(r->shard)}});
}
/* Does a rank update a weight, and keep its optimizer state? */
static inline bool placement_updates(const struct state_row *r, struct mesh_coord rank)
{
    return r->trained && r->owner == rank.at[AXIS_PP] && shard_has(r->shard, rank);
}
/* The share of a bucket that coordinate dp has after n exchanges of halves, nearest first. Those whose numbers end in
 * the same n bits have this share together. */
struct share { size_t at, end; };
struct share placement_share(const struct placement *pl, const size_t *cut, int dp, int n);
int placement_halvings(const struct placement *pl);      /* until each has a share of its own */
/* Elements of the block that begins with element `from` of n. */
static inline size_t state_block(const struct state_file *f, size_t n, size_t from)
{
    return n - from < f->block ? n - from : f->block;
}
/* Offset of a use's gradient on a rank. */
static inline size_t placement_use(const struct placement *pl, int rank, int param, int use)
{
    return pl->use_off[rank][pl->use_first[param] + use];
}

#endif
