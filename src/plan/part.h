/* Shared by partition policies and their callers. Pure. */
#ifndef PLAN_PART_H
#define PLAN_PART_H
#include <string.h>
#include "base/suggest.h"
#include "plan/cost.h"
#include "plan/plan.h"

/* of auto: plans compared; proven: no cut is faster; least_ns: a lower bound of all cuts */
struct part_found { int plans; bool proven, fits; double ns, least_ns; };
struct part_request {
    const struct selection *sel;
    const struct cost *cost;
    const struct conf *conf;
    const struct plan_request *plan;                     /* the plan that should be fast and fit */
    int n_stages;
    struct state_buffers buffers;                        /* of the optimizer */
    struct sharing sharing;
    struct mesh mesh;
    const int *rank_of;                                  /* of each stage; NULL: in turn */
    const uint64_t *free_bytes;                                /* part_limits */
    struct part_found *found;                            /* NULL: not requested */
    bool rough;                                          /* of auto: the first cut that fits need not be the fastest */
};
struct part_kind {
    const char *name, *text;
    /* it knows the ranks' limits: it cuts for ranks, never for more stages than ranks */
    bool by_rank;
    /* first_group[n_stages + 1]. 78 names the layer (conf_error where a key is the cause). */
    int (*split)(const struct part_request *q, int *first_group, struct err *e);
};
extern const struct part_kind *const part_list[];
/* pipeline.stages; if it is not set, the stage sections under partition manual, and n_ranks under other policies.
 * Without known ranks (n_ranks 0): the stage sections again, or 1. */
int part_stage_count(const struct conf *c, int n_ranks);
/* Without mpirun: pipeline.ranks, or else one rank a stage. */
int part_rank_count(const struct conf *c);

/* A name stands for everything below it: "layer2" is layer2.0.conv1 and so on. */
static inline bool layer_covers(const char *layer, const char *node)
{
    size_t n = strlen(layer);
    return !strncmp(node, layer, n) && (node[n] == 0 || node[n] == '.');
}
static inline int part_rank(const struct part_request *q, int stage)
{
    return q->rank_of ? q->rank_of[stage] : stage % q->mesh.size[AXIS_PP];
}
/* Places the request's stages, cut at first_group. */
struct placement *part_place(const struct part_request *q, const int *first_group, struct err *e);

/* Puts n_stages contiguous stages on n_ranks <= n_stages ranks as evenly as possible: out[n_ranks + 1] holds group
 * positions. */
void part_merge(const int *first_group, int n_stages, int n_ranks, int *out);

/* max_memory of each rank; if it is not set, free_bytes; if that is NULL, PART_NO_LIMIT. 78 unless the list has one
 * value, or one a rank. */
int part_limits(const struct conf *c, const uint64_t *free_bytes, int n_ranks, uint64_t *limit, struct err *e);
/* How much the plan's ranks exceed their limits: the sum of relative excesses; 0 where all fit. */
double part_excess(const struct plan *p, const uint64_t *limit);

/* ---- bytes by layer: the policies of Hugging Face's accelerate (part_walk.c) ---- */
#define PART_NO_LIMIT (UINT64_C(1) << 62)
struct part_leaf {                                       /* a group: the unit that is placed */
    const char *name;                                    /* of its first node */
    uint64_t fixed, kept;                                /* bytes; kept: for one micro-batch in flight */
};
struct part_model {
    const struct graph *g;                               /* for the classes of blocks; may be NULL */
    const struct conf_texts *no_split;
    int n; struct part_leaf *leaf;
    int n_stages, *in_flight;                            /* micro-batches that each stage keeps */
    uint64_t *limit;                                     /* of each stage: its share of the rank's limit */
    /* stage 0 reserves space for the largest layer that is not placed yet */
    bool reserve;
};
/* part_model_make: names, blocks and the limits of every stage. part_model_count: the bytes of every group. 78. Call
 * part_model_free in any case. */
int part_model_make(const struct part_request *q, struct part_model *m, struct err *e);
int part_model_count(const struct part_request *q, bool training, struct part_model *m, struct err *e);
/* May a stage begin at that leaf? Not inside a block of no_split. */
bool part_may_cut(const struct part_model *m, int leaf);
void part_model_free(struct part_model *m);
uint64_t part_bytes(const struct part_model *m, int first, int end, int stage);  /* leaves [first, end) on that stage */
/* accelerate's infer_auto_device_map. In order, each block goes to the current stage if it fits, or else is split, or
 * else goes to the next stage; never back. stage[i]: of leaf i. A leaf that fits nowhere goes to the last stage; the
 * check of limits reports what is missing. */
void part_walk(const struct part_model *m, int *stage);
/* accelerate's get_balanced_memory: lowers the limits so that the walk spreads the layers. low_zero: stage 0 gets as
 * little as possible. */
void part_balance(struct part_model *m, bool low_zero);
/* The walk's result as cuts. The policy sets low_zero and balance. */
int part_by_bytes(const struct part_request *q, bool balance, bool low_zero, int *first_group, struct err *e);
#endif
