/* The planner's inside: shared by plan.c (driver), prog.c (places and programs), lower.c (rows), slots.c (liveness).
 * Nobody else. */
#ifndef PLAN_PLAN_INT_H
#define PLAN_PLAN_INT_H
#include "plan/plan.h"
#include "plan/sched.h"

struct lower {
    struct plan *p;
    const struct graph *g;
    /* of each group: its results are not kept for the backward pass ... */
    bool *again;
    bool *rerun;                                         /* ... and somebody needs them there */
    int *stage_of_group, max_n;                          /* largest micro-batch */
    /* Large networks are planned many times over, so nothing is searched for: classes of stage s are cls_at[s] ..
     * cls_at[s + 1], channels of tensor t chan_at[t] .. chan_at[t + 1]; temp_at is one program's, all zero between
     * them. */
    VEC(struct slot_class) cls; int *cls_at;
    VEC(struct channel) chan; int *chan_at;
    int *temp_at[2];                                     /* of activations and gradients; see struct temps */
    VEC(struct opnd) opnd;
    VEC(struct act) *row;                                /* of each rank */
};
/* outputs.c */
int plan_outputs_check(const struct selection *s, const struct plan_request *r, struct err *e);   /* can they be had? */
void plan_outputs_list(struct plan *p, const struct plan_request *r);
bool plan_is_output(const struct plan *p, int tensor);
void lower_outputs(struct lower *w);                     /* once all values have their places */
/* prog.c */
void lower_channels(struct lower *w);                    /* which tensors cross which borders */
int lower_programs(struct lower *w, struct err *e);      /* places of all values, programs of all stages */
/* lower.c */
void lower_join(struct lower *w, const struct sched *s);  /* which stages join B and W; before lower_programs */
int lower_rows(struct lower *w, const struct sched *s, struct err *e);
/* slots.c */
int lower_slots(struct lower *w, struct err *e);         /* operands, slot numbers, bytes */

static inline size_t size_align64(size_t n) { return (n + 63) / 64 * 64; }
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
