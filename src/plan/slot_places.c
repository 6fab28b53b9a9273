/* Where slot classes lie in a rank's memory. Where a rank has several stages, one stage's values are often needed only
 * while those of another are not: what is recomputed for the backward pass, for instance. Such classes share memory.
 * Each class is placed at the first free place, largest first. */
#include <stdlib.h>
#include <string.h>
#include "plan/plan_int.h"

/* words: of a class's bits, one for each action of the row: does the class hold a value then? alone: it shares with
 * none, because others use it outside the row's order: messages, samples, outputs. */
struct shares { int words; uint64_t *busy; bool *alone; int *order; };

static void busy_set(struct shares *x, int cls, int from, int to)
{
    uint64_t *of = &x->busy[(size_t)cls * (size_t)x->words];
    const uint64_t first = UINT64_MAX << from % 64, last = UINT64_MAX >> (63 - to % 64);
    for (int i = from / 64; i <= to / 64; i++)
        of[i] |= (i == from / 64 ? first : UINT64_MAX) & (i == to / 64 ? last : UINT64_MAX);
}

/* A class is busy from the first action that touches a micro-batch's slot to the last one. */
static void busy_find(const struct lower *w, int rank, struct shares *x)
{
    const int n = w->p->n_mb;
    int *last = mem_alloc(((size_t)w->cls.n * (size_t)n + 1) * sizeof *last);
    for (int i = 0; i < w->row[rank].n; i++) {
        const struct act *a = &w->row[rank].v[i];
        for (int k = 0; k < a->n_opnd; k++)
            for (int j = 0; j < a->n_mb; j++) last[w->opnd.v[(int)a->opnd + k].cls * n + a->mb + j] = i + 1;
    }
    for (int i = 0; i < w->row[rank].n; i++) {
        const struct act *a = &w->row[rank].v[i];
        for (int k = 0; k < a->n_opnd; k++) {
            const int cls = w->opnd.v[(int)a->opnd + k].cls;
            x->alone[cls] |= a->chan >= 0;
            for (int j = 0; j < a->n_mb; j++) {
                int *end = &last[cls * n + a->mb + j];
                if (*end) busy_set(x, cls, i, *end - 1);
                *end = 0;
            }
        }
    }
    free(last);
}

static bool share(const struct lower *w, const struct shares *x, int a, int b)
{
    bool both = x->alone[a] || x->alone[b] || w->cls.v[a].stage == w->cls.v[b].stage;
    for (int i = 0; i < x->words && !both; i++)
        both = x->busy[(size_t)a * (size_t)x->words + (size_t)i] & x->busy[(size_t)b * (size_t)x->words + (size_t)i];
    return !both;
}

static size_t class_bytes(const struct lower *w, int cls)
{
    return w->cls.v[cls].bytes * (size_t)w->cls.v[cls].n_slots;
}

/* Behind those placed classes that it overlaps and cannot share with, until it overlaps none. */
static void class_place(struct lower *w, const struct shares *x, int n, size_t *total)
{
    const int cls = x->order[n];
    const size_t bytes = class_bytes(w, cls);
    size_t at = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (int i = 0; i < n; i++) {
            const int other = x->order[i];
            const size_t from = w->cls.v[other].base, end = from + class_bytes(w, other);
            if (at >= end || at + bytes <= from || share(w, x, cls, other)) continue;
            at = end;
            moved = true;
        }
    }
    w->cls.v[cls].base = at;
    if (at + bytes > *total) *total = at + bytes;
}

static void order_add(const struct lower *w, struct shares *x, int n, int cls)
{
    for (; n && class_bytes(w, x->order[n - 1]) < class_bytes(w, cls); n--) x->order[n] = x->order[n - 1];
    x->order[n] = cls;
}

void slot_places_shared(struct lower *w, int rank)
{
    struct shares x = {.words = w->row[rank].n / 64 + 1, .alone = mem_alloc((size_t)w->cls.n + 1),
                       .order = mem_alloc(((size_t)w->cls.n + 1) * sizeof *x.order)};
    int n = 0;
    x.busy = mem_alloc(((size_t)w->cls.n * (size_t)x.words + 1) * sizeof *x.busy);
    busy_find(w, rank, &x);
    for (int c = 0; c < w->cls.n; c++) {
        const struct slot_class *k = &w->cls.v[c];
        x.alone[c] |= k->last == L_O || k->writer == W_LOAD;
        if (w->p->stage[k->stage].rank == rank) order_add(w, &x, n++, c);
    }
    for (int i = 0; i < n; i++) class_place(w, &x, i, &w->p->slot_bytes[rank]);
    free(x.busy); free(x.alone); free(x.order);
}
