/* Weights from outside into their slots, by the threads of disk.c. A stage's weights come together, in the order in
 * which the row asks for stages. */
#include <stdlib.h>
#include "exec/disk.h"
#include "exec/fetch.h"
#include "plan/plan_int.h"

struct fetcher {
    struct transfer *stage, *grads;                       /* of each stage of the plan: weights; gradients of them */
    /* of each slot: the stage that is there, or comes; the one whose gradients came or went last; -1 */
    int *holds, *moved;
};

static int stage_of_row(const struct exec *s, const struct state_row *r)
{
    return s->q.pl->use_stage[s->q.pl->use_first[r->param]];
}

static void piece_add(struct exec *s, struct transfer *x, struct file_piece p)
{
    if (!x->piece) x->piece = mem_alloc((size_t)s->g->n_params * sizeof *x->piece);
    x->piece[x->n++] = p;
    x->bytes += p.bytes;
}

/* Every row has a place in the rank's own file, until it is known to lie in another one. */
static void stages_list(struct exec *s, struct fetcher *f)
{
    const struct placement *pl = s->q.pl;
    f->stage = mem_alloc((size_t)pl->n_stages * sizeof *f->stage);
    f->grads = mem_alloc((size_t)pl->n_stages * sizeof *f->grads);
    f->holds = mem_alloc((size_t)pl->slots[s->rank].n * sizeof *f->holds);
    f->moved = mem_alloc((size_t)pl->slots[s->rank].n * sizeof *f->moved);
    for (int i = 0; i < pl->slots[s->rank].n; i++) f->holds[i] = f->moved[i] = -1;
    for (int i = 0; i < s->g->n_params; i++) {
        const struct state_row *r = &pl->state[i];
        if (r->home != HOME_FILE || r->off[s->rank] == STATE_NOWHERE) continue;
        const int stage = stage_of_row(s, r);
        const uint64_t at = r->trained ? offload_weight_at(s, i) : disk_take(s, r->bytes);
        piece_add(s, &f->stage[stage], (struct file_piece){DISK_OWN, at, r->bytes, state_at(s, r)});
        if (!r->trained) continue;
        char *to = (char *)use_at(s, i, 0);
        piece_add(s, &f->grads[stage], (struct file_piece){DISK_OWN, offload_grad_at(s, i), r->bytes, to});
    }
}

int fetch_open(struct exec *s, struct err *e)
{
    if (!s->q.pl->slots[s->rank].n) return 0;
    if (disk_open(s, e)) return -1;
    s->fetch = mem_alloc(sizeof *s->fetch);
    stages_list(s, s->fetch);
    int bad = 0;
    for (int i = 0; i < s->q.pl->n_stages && !bad; i++)
        bad = disk_prepare(s, &s->fetch->stage[i], e) || disk_prepare(s, &s->fetch->grads[i], e);
    return bad;
}

void fetch_close(struct exec *s)
{
    struct fetcher *f = s->fetch;
    if (!f) return;
    for (int i = 0; i < s->q.pl->n_stages; i++) { free(f->stage[i].piece); free(f->grads[i].piece); }
    free(f->stage); free(f->grads); free(f->holds); free(f->moved);
    free(f);
    s->fetch = NULL;
}

/* ---- in a step --------------------------------------------------------------------------------------------------- */

/* Until the slot's weights are there. */
static int slot_wait(struct exec *s, int slot, struct err *e)
{
    const int stage = s->fetch->holds[slot];
    return stage < 0 ? 0 : disk_wait(s, &s->fetch->stage[stage], e);
}

/* Asks for a stage's weights, unless they are in the slot or on their way. What still comes for another stage comes
 * first. */
static int stage_ask(struct exec *s, int stage, struct err *e)
{
    struct fetcher *f = s->fetch;
    const int slot = s->q.pl->slot_of[stage];
    if (f->holds[slot] == stage) return 0;
    if (slot_wait(s, slot, e)) return -1;
    f->holds[slot] = stage;
    return disk_ask(s, &f->stage[stage], e);
}

/* Until the slot's gradients have come, or gone to the file. */
static int grads_wait(struct exec *s, int slot, struct err *e)
{
    const int stage = s->fetch->moved[slot];
    return stage < 0 ? 0 : disk_wait(s, &s->fetch->grads[stage], e);
}

static int grads_ask(struct exec *s, int stage, bool writes, struct err *e)
{
    struct fetcher *f = s->fetch;
    const int slot = s->q.pl->slot_of[stage];
    if (grads_wait(s, slot, e)) return -1;
    f->moved[slot] = stage;
    f->grads[stage].writes = writes;
    return disk_ask(s, &f->grads[stage], e);
}

int exec_fetch(struct exec *s, struct bound *b, const struct act *a, struct err *e)
{
    return stage_ask(s, a->stage, e) || (a->flags & ACT_GRADS && grads_ask(s, a->stage, false, e)) ? -1 : 0;
}

int exec_evict(struct exec *s, struct bound *b, const struct act *a, struct err *e)
{
    return a->flags & ACT_GRADS ? grads_ask(s, a->stage, true, e) : 0;
}

int fetch_rest(struct exec *s, struct err *e)
{
    struct fetcher *f = s->fetch;
    for (int i = 0; f && i < s->q.pl->slots[s->rank].n; i++) {
        if (slot_wait(s, i, e) || grads_wait(s, i, e)) return -1;
        if (f->holds[i] >= 0 && f->grads[f->holds[i]].n) f->holds[i] = -1;
    }
    return 0;
}

int fetch_wait(struct exec *s, struct bound *b, const struct act *a, struct err *e)
{
    const struct placement *pl = s->q.pl;
    const int slot = pl->slot_of[a->stage];
    if (slot < 0 || !prog_fetches(pl, s->rank, act_prog(b->p, a))) return 0;
    if (s->fetch->holds[slot] != a->stage)
        return err_set(e, E_INTERNAL, "stage %d runs without its weights", a->stage);
    return slot_wait(s, slot, e) || grads_wait(s, slot, e) ? -1 : 0;
}

/* ---- rows, between steps ----------------------------------------------------------------------------------------- */

static struct file_piece *piece_of(const struct exec *s, const struct state_row *r)
{
    struct file_piece *p = s->fetch->stage[stage_of_row(s, r)].piece;
    while (p->to != (char *)state_at(s, r)) p++;
    return p;
}

int fetch_row_read(struct exec *s, const struct state_row *r, void *to, struct err *e)
{
    const struct file_piece *p = piece_of(s, r);
    return disk_read(s, &(struct file_piece){p->source, p->at, p->bytes, to}, e);
}

int fetch_row_begin(struct exec *s, const struct state_row *r, struct err *e)
{
    const int slot = s->q.pl->slot_of[stage_of_row(s, r)];
    if (slot_wait(s, slot, e)) return -1;
    s->fetch->holds[slot] = -1;
    return 0;
}

int fetch_row_write(struct exec *s, const struct state_row *r, const void *stored, struct err *e)
{
    struct file_piece *p = piece_of(s, r);
    if (p->source != DISK_OWN) {                          /* it gets a place in the rank's own store after all */
        s->fetch->stage[stage_of_row(s, r)].bytes += r->bytes - p->bytes;
        *p = (struct file_piece){DISK_OWN, disk_take(s, r->bytes), r->bytes, p->to};
    }
    const struct file_piece from = {DISK_OWN, p->at, p->bytes, (char *)(uintptr_t)stored};
    return (!disk_in_host(s, p) && disk_own(s, e)) || disk_write(s, &from, e) ? -1 : 0;
}

/* 1: taken; 0: the row's form in memory is not the file's, or it has a place in the host's memory. */
int fetch_row_from(struct exec *s, const struct state_row *r, const struct exec_source *from, struct err *e)
{
    const bool same = !r->turned && r->stored.type == from->type && r->stored.layout == LAYOUT_PLAIN &&
                      r->stored.scale == SCALE_NONE && format_bytes(&r->stored, &r->shape) == from->bytes;
    if (!same || r->trained || disk_in_host(s, piece_of(s, r))) return 0;
    for (int i = 0; i < s->q.pl->slots[s->rank].n; i++) if (slot_wait(s, i, e)) return -1;
    const int source = disk_source(s, from->path, e);
    if (source < 0 || fetch_row_begin(s, r, e)) return -1;
    struct file_piece *p = piece_of(s, r);
    struct transfer *x = &s->fetch->stage[stage_of_row(s, r)];
    x->bytes -= p->bytes - from->bytes;
    *p = (struct file_piece){source, from->at, from->bytes, p->to};
    return 1;
}
