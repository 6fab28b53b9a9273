/* Shared by partition policies and by those who call them. Pure. */
#ifndef PLAN_PART_H
#define PLAN_PART_H
#include <string.h>
#include "base/suggest.h"
#include "plan/cost.h"
#include "plan/plan.h"

/* of auto: plans compared; proven: no cut is faster; least_ns: no cut can be */
struct part_found { int plans; bool proven, fits; double ns, least_ns; };
struct part_request {
    const struct selection *sel;
    const struct cost *cost;
    const struct conf *conf;
    const struct plan_request *plan;                     /* the plan that is to be fast and to fit */
    int n_stages;
    struct state_buffers buffers;                        /* of the optimizer */
    struct sharing sharing;                              /* of as many replicas as the plan's */
    /* where the stages will be; 0 and NULL: one a rank */
    int n_ranks; const int *rank_of;
    const uint64_t *room;                                /* part_limits */
    struct part_found *found;                            /* NULL: not asked for */
    bool rough;                                          /* of auto: what fits at once need not be the fastest */
};
struct part_kind {
    const char *name, *text;
    /* knows ranks' limits: cuts for ranks, never for more stages than ranks */
    bool by_rank;
    /* first_group[n_stages + 1]. 78 (conf_error where a key is to blame) names the layer. */
    int (*split)(const struct part_request *q, int *first_group, struct err *e);
};
extern const struct part_kind *const part_list[];
/* pipeline.stages; without it the stage sections under partition manual, n_ranks under others; where no ranks are known
 * (0), the stage sections again, or 1. */
int part_stage_count(const struct conf *c, int n_ranks);
/* Without mpirun: pipeline.ranks, otherwise one a stage. */
int part_rank_count(const struct conf *c);

/* A name stands for everything below it: "layer2" is layer2.0.conv1 and so on. */
static inline bool layer_covers(const char *layer, const char *node)
{
    size_t n = strlen(layer);
    return !strncmp(node, layer, n) && (node[n] == 0 || node[n] == '.');
}
static inline int part_ranks(const struct part_request *q) { return q->n_ranks ? q->n_ranks : q->n_stages; }
static inline int part_rank(const struct part_request *q, int stage)
{
    return q->rank_of ? q->rank_of[stage] : stage % part_ranks(q);
}
struct sharing part_sharing(const struct part_request *q);
/* Of the request's stages, cut so. */
struct placement *part_place(const struct part_request *q, const int *first_group, struct err *e);

/* Puts n_stages contiguous stages on n_ranks <= n_stages ranks as evenly as possible: out[n_ranks + 1] group positions.
 */
void part_merge(const int *first_group, int n_stages, int n_ranks, int *out);

/* max_memory of each rank; without it room, and where that is NULL PART_NO_LIMIT. 78 where the list does not have one
 * value, or one a rank. */
int part_limits(const struct conf *c, const uint64_t *room, int n_ranks, uint64_t *limit, struct err *e);
/* By how much a plan's ranks exceed their limits: the sum of the shares; 0 where all fit. */
double part_excess(const struct plan *p, const uint64_t *limit);

/* ---- bytes by layer: what the policies of Hugging Face's accelerate go by (part_walk.c) ---- */
#define PART_NO_LIMIT (UINT64_C(1) << 62)
struct part_leaf {                                       /* a group: the unit that is placed */
    const char *name;                                    /* of its first node */
    uint64_t fixed, kept;                                /* bytes; kept: of one micro-batch in flight */
};
struct part_model {
    const struct graph *g;                               /* for the classes of blocks; may be NULL */
    const struct conf_texts *no_split;
    int n; struct part_leaf *leaf;
    int n_stages, *in_flight;                            /* micro-batches that each stage keeps */
    uint64_t *limit;                                     /* of each stage: its share of the rank's */
    /* stage 0 keeps room for the largest layer that is not placed yet */
    bool reserve;
};
/* Names, blocks and the limits of every stage; then the bytes of every group. 78. part_model_free in any case. */
int part_model_make(const struct part_request *q, struct part_model *m, struct err *e);
int part_model_count(const struct part_request *q, bool training, struct part_model *m, struct err *e);
/* before that leaf: no_split says no where it is inside a block */
bool part_may_cut(const struct part_model *m, int leaf);
void part_model_free(struct part_model *m);
uint64_t part_bytes(const struct part_model *m, int first, int end, int stage);  /* leaves [first, end) as that stage */
/* accelerate's infer_auto_device_map: in order, each block on the running stage if it fits, otherwise apart, otherwise
 * the next stage; never back. stage[i]: of leaf i. What fits nowhere is put on the last one: the check of limits tells
 * what is missing. */
void part_walk(const struct part_model *m, int *stage);
/* accelerate's get_balanced_memory: lowers the limits so that the walk spreads the layers. low_zero: as little as
 * possible on stage 0. */
void part_balance(struct part_model *m, bool low_zero);
/* The walk's result as cuts. low_zero and balance as the policy says. */
int part_by_bytes(const struct part_request *q, bool balance, bool low_zero, int *first_group, struct err *e);
#endif
