/* The checker for memory that slot classes share: no two of them are needed at once. */
#include <stdlib.h>
#include "plan/check_int.h"

/* A class holds a micro-batch's value from the first to the last action of the row that touches it. */
struct lifetime { int first, last; };
/* Of each class: n lifetimes, by their first actions; alone: others use its memory outside the row's order, for
 * messages, samples, and what is read after the step. */
struct lifetimes { struct lifetime *v; int n; bool alone; };

static int by_first(const void *a, const void *b)
{
    const struct lifetime *x = a, *y = b;
    return (x->first > y->first) - (x->first < y->first);
}

/* touched: scratch memory, of each class and micro-batch. */
static void lifetimes_find(const struct plan *p, int rank, struct lifetime *touched, struct lifetimes *of)
{
    for (int i = 0; i < p->n_cls * p->n_mb; i++) touched[i] = (struct lifetime){-1, -1};
    for (int i = 0; i < p->row_n[rank]; i++) {
        const struct act *a = &p->row[rank][i];
        for (int k = 0; k < a->n_opnd * a->n_mb; k++) {
            const int cls = p->opnd[a->opnd + k / a->n_mb].cls;
            struct lifetime *t = &touched[cls * p->n_mb + a->mb + k % a->n_mb];
            if (t->first < 0) t->first = i;
            t->last = i;
            of[cls].alone |= a->chan >= 0;
        }
    }
    for (int c = 0; c < p->n_cls; c++) {
        of[c].alone |= p->cls[c].last == L_O || p->cls[c].writer == W_LOAD;
        of[c].v = touched + c * p->n_mb;
        for (int i = 0; i < p->n_mb; i++) if (of[c].v[i].first >= 0) of[c].v[of[c].n++] = of[c].v[i];
        qsort(of[c].v, (size_t)of[c].n, sizeof *of[c].v, by_first);
    }
}

/* Goes through both lists in the order of the row; the one that ends first can meet nothing later. */
static bool lifetimes_meet(const struct lifetimes *a, const struct lifetimes *b)
{
    for (int i = 0, j = 0; i < a->n && j < b->n;) {
        if (a->v[i].first <= b->v[j].last && b->v[j].first <= a->v[i].last) return true;
        if (a->v[i].last < b->v[j].last) i++;
        else j++;
    }
    return false;
}

static bool classes_overlap(const struct slot_class *a, const struct slot_class *b)
{
    return a->base < b->base + b->bytes * (size_t)b->n_slots && b->base < a->base + a->bytes * (size_t)a->n_slots;
}

int check_memory(const struct plan *p, int rank, struct err *e)
{
    struct lifetime *touched = mem_alloc(((size_t)p->n_cls * (size_t)p->n_mb + 1) * sizeof *touched);
    struct lifetimes *of = mem_alloc(((size_t)p->n_cls + 1) * sizeof *of);
    int bad = 0;
    lifetimes_find(p, rank, touched, of);
    for (int a = 0; a < p->n_cls && !bad; a++)
        for (int b = 0; b < a && !bad; b++) {
            const struct slot_class *x = &p->cls[a], *y = &p->cls[b];
            if (p->stage[x->stage].rank != rank || p->stage[y->stage].rank != rank || !classes_overlap(x, y)) continue;
            if (x->stage == y->stage || of[a].alone || of[b].alone || lifetimes_meet(&of[a], &of[b]))
                bad = err_set(e, E_INTERNAL, "illegal plan: slots %d and %d lie in the same memory", a, b);
        }
    free(touched);
    free(of);
    return bad;
}
