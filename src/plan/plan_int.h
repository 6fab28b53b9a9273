/* Inside of the planner, shared by plan.c (driver), channels.c (what crosses borders), stage_program.c (places and
 * programs), lower.c (rows), happens_before.c and slots.c (liveness), outputs.c, reduction_tree.c, dp.c.
 * part_bound.c uses batch_split, sim.c prog_fetches. No other file includes it. */
#ifndef PLAN_PLAN_INT_H
#define PLAN_PLAN_INT_H
#include "plan/plan.h"
#include "plan/sched.h"

/* reduction_tree.c */
void batch_split(struct arena *mem, const struct plan_request *r, int n_dp, int dp, struct portion *b);
/* How gradients are added. level: the accumulator level that each micro-batch adds to. Then, in this order and after
 * micro-batch `after`, level + 1 is added to level. */
struct sum_add { int after, level; };
struct block_sums { int *level, n_levels; struct sum_add *adds; int n_adds; };
void reduction_tree_make(struct arena *mem, const struct portion *b, struct block_sums *s);

struct lower {
    struct plan *p;
    /* of each rank; and how many phases of the bucket's exchange its row already has */
    struct buckets *bucket; int *phase;
    int *final;                                          /* of each stage: gradients of groups from here on are final */
    struct block_sums sums;
    const struct graph *g;
    /* of each group: its results are not kept for the backward pass ... */
    bool *recompute;
    bool *recomputed;                                    /* ... and the backward pass needs some of them */
    int *stage_of_group, max_n;                          /* largest micro-batch */
    bool sure; /* a slot that was sent is free only when that is known (happens_before.c) */
    /* Large networks are planned many times, so lists are indexed instead of searched. Classes of stage s are cls_at[s]
     * .. cls_at[s + 1]; channels of tensor t are chan_at[t] .. chan_at[t + 1]. temp_at belongs to one program and is
     * all zero between programs. */
    VEC(struct slot_class) cls; int *cls_at;
    VEC(struct channel) chan; int *chan_at;
    /* [tensor][stage], of activations and of gradients: the stage of the same rank that holds the value; -1: its own
     * place, or none */
    int *home[2];
    struct slot_user *users;                             /* scratch memory for the users of one value */
    int *temp_at[2];                                     /* of activations and gradients; see struct temps */
    VEC(struct opnd) opnd;
    VEC(struct act) *row;                                /* of each rank */
};
/* outputs.c */
/* are the requested outputs possible? */
int plan_outputs_check(const struct selection *s, const struct plan_request *r, struct err *e);
void plan_outputs_list(struct plan *p, const struct plan_request *r);
bool plan_is_output(const struct plan *p, int tensor);
void lower_outputs(struct lower *w);                     /* after all values have their places */
void lower_channels(struct lower *w);                    /* channels.c: sets chan, home and load_stage */
/* stage_program.c */
int lower_programs(struct lower *w, struct err *e);      /* places of all values, programs of all stages */
/* lower.c */
void lower_join(struct lower *w, const struct sched *s);  /* which stages join B and W; before lower_programs */
int lower_rows(struct lower *w, const struct sched *s, struct err *e);
/* happens_before.c: the order that an action can rely on. For each action of each rank: how many actions of every rank,
 * from the first of its row, are over when it begins. This follows from the order of rows, and from the fact that a
 * received message was sent before. */
/* receive: of each channel and micro-batch, the position of its receive */
struct happens_before { int n_ranks, n_mb, **of, *receive; };
void before_find(const struct lower *w, struct happens_before *k);
void before_free(struct happens_before *k);
static inline int before_of(const struct happens_before *k, int rank, int act, int other)
{
    return k->of[rank][act * k->n_ranks + other];
}
static inline int before_receive(const struct happens_before *k, const struct act *send)
{
    return k->receive[send->chan * k->n_mb + send->mb];
}
/* dp.c: after lower_programs, channels between pipelines; then their posts, at the end of a row */
void lower_dp(struct lower *w);
void dp_kept_emit(struct lower *w, int rank);
void dp_final_emit(struct lower *w, int rank);     /* for gradients that are final (lower.final) */
void dp_sum_emit(struct lower *w, int rank);       /* all that is left */
void dp_weights_emit(struct lower *w, int rank);   /* after the optimizer: weights that other pipelines updated */
/* buckets.c */
void buckets_make(struct placement *pl, const struct selection *s, int rank);
void pieces_make(struct plan *p, const struct buckets *b);   /* of all stages, from the buckets of their ranks */
/* offload.c: for buffers of the optimizer in a file; after all other state has its place */
void offload_place(struct placement *pl, const struct placement_request *q, int n_params);
/* fetch.c: which programs read weights that lie in a file; the actions that bring these; after lower_rows */
bool prog_fetches(const struct placement *pl, int rank, const struct prog *g);
void lower_fetch(struct lower *w);
/* slot_places.c: of a rank with several stages; after the number of slots is known */
void slot_places_shared(struct lower *w, int rank);
/* slots.c */
int lower_slots(struct lower *w, struct err *e);         /* operands, slot numbers, bytes */

enum { HOME_ACT, HOME_GRAD };
static inline int *home_of(const struct lower *w, int what, int t, int stage)
{
    return &w->home[what][t * w->p->n_stages + stage];
}
static inline bool tensor_graded(const struct lower *w, int t)
{
    return w->p->req.mode == PLAN_TRAIN && w->g->tensor[t].needs_grad;
}
/* Does group k read tensor t? Bit mask of the inputs. */
static inline uint32_t group_reads(const struct group *k, int t)
{
    uint32_t m = 0;
    for (int i = 0; i < k->n_in; i++) if (k->in[i] == t) m |= 1u << i;
    return m;
}
static inline int group_making(const struct lower *w, int t)
{
    int n = w->g->tensor[t].producer;
    return n < 0 ? -1 : w->p->sel->group_of[n];
}
#endif
