/* The checker for memory that slot classes share: no two of them are needed at once. */
#include <stdlib.h>
#include "plan/check_int.h"

/* Of each class and micro-batch: the first action of the row that touches it, plus 1, and the last one. */
struct touched { int *first, *last; };

static bool classes_meet(const struct plan *p, const struct touched *t, int a, int b)
{
    for (int i = 0; i < p->n_mb; i++)
        for (int j = 0; j < p->n_mb; j++) {
            const int x = a * p->n_mb + i, y = b * p->n_mb + j;
            const bool both = t->first[x] && t->first[y];
            if (both && t->first[x] - 1 <= t->last[y] && t->first[y] - 1 <= t->last[x]) return true;
        }
    return false;
}

static bool classes_overlap(const struct slot_class *a, const struct slot_class *b)
{
    return a->base < b->base + b->bytes * (size_t)b->n_slots && b->base < a->base + a->bytes * (size_t)a->n_slots;
}

/* Memory that others use outside the row's order: messages, samples, what is read after the step. */
static bool class_alone(const struct plan *p, int rank, int cls)
{
    bool alone = p->cls[cls].last == L_O || p->cls[cls].writer == W_LOAD;
    for (int i = 0; i < p->row_n[rank] && !alone; i++) {
        const struct act *a = &p->row[rank][i];
        for (int k = 0; k < a->n_opnd && a->chan >= 0; k++) alone |= p->opnd[a->opnd + k].cls == cls;
    }
    return alone;
}

int check_memory(const struct plan *p, int rank, struct err *e)
{
    const size_t n = (size_t)(p->n_cls + 1) * (size_t)p->n_mb;
    struct touched t = {mem_alloc(2 * n * sizeof *t.first), NULL};
    int bad = 0;
    t.last = t.first + n;
    for (int i = 0; i < p->row_n[rank]; i++) {
        const struct act *a = &p->row[rank][i];
        for (int k = 0; k < a->n_opnd * a->n_mb; k++) {
            const int at = p->opnd[a->opnd + k / a->n_mb].cls * p->n_mb + a->mb + k % a->n_mb;
            if (!t.first[at]) t.first[at] = i + 1;
            t.last[at] = i;
        }
    }
    for (int a = 0; a < p->n_cls && !bad; a++)
        for (int b = 0; b < a && !bad; b++) {
            const struct slot_class *x = &p->cls[a], *y = &p->cls[b];
            if (p->stage[x->stage].rank != rank || p->stage[y->stage].rank != rank || !classes_overlap(x, y)) continue;
            if (x->stage == y->stage || class_alone(p, rank, a) || class_alone(p, rank, b) ||
                classes_meet(p, &t, a, b))
                bad = err_set(e, E_INTERNAL, "illegal plan: slots %d and %d lie in the same memory", a, b);
        }
    free(t.first);
    return bad;
}
