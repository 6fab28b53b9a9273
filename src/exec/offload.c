/* The optimizer's buffers from a file, through the update and back. A chunk of them is read and another one written
 * while the update has a third. */
#include <stdlib.h>
#include "exec/disk.h"
#include "exec/fetch.h"
#include "exec/meter.h"

/* A place in memory, and what moves there now. */
struct state_place_io { struct transfer io; struct file_piece piece; };
struct offload {
    const struct state_file *file;
    uint64_t at;                                          /* of the state in the rank's own file */
    size_t buffers;                                       /* of each weight */
    int *param;                                           /* of each weight that the rank updates */
    struct be_weight *part;                               /* of the chunk that is updated */
    struct state_place_io *place;
};

/* Weights come in the order of their rows. A chunk has a part of each weight for each block at most. */
static size_t parts_most(const struct exec *s, const struct offload *o)
{
    size_t blocks = 1;
    if (o->file->block < SIZE_MAX) blocks += o->file->bytes / (o->file->block * o->buffers * sizeof(float));
    return blocks + (size_t)s->n_weights;
}

static void places_list(struct exec *s, struct offload *o)
{
    o->place = mem_alloc((size_t)o->file->n * sizeof *o->place);
    for (int i = 0; i < o->file->n; i++) {
        o->place[i].piece.to = s->state.at + o->file->at + (size_t)i * o->file->bytes;
        o->place[i].io = (struct transfer){.piece = &o->place[i].piece, .n = 1};
    }
}

int offload_open(struct exec *s, struct err *e)
{
    const struct placement *pl = s->q.pl;
    if (!pl->state_file[s->rank].n) return 0;
    if (disk_open(s, e)) return -1;
    struct offload *o = s->offload = mem_alloc(sizeof *o);
    o->file = &pl->state_file[s->rank];
    o->param = mem_alloc((size_t)(s->n_weights + 1) * sizeof *o->param);
    for (int i = s->g->n_params, k = 0; i < pl->n_state; i++) {
        const struct state_row *r = &pl->state[i];
        if (r->kind != STATE_OPTIMIZER || !exec_holds(s, i)) continue;
        if (!r->buffer) o->param[k++] = r->param;
        if ((size_t)r->buffer >= o->buffers) o->buffers = (size_t)r->buffer + 1;
    }
    o->part = mem_alloc(parts_most(s, o) * sizeof *o->part);
    places_list(s, o);
    o->at = disk_take(s, o->file->all);
    return disk_reserve(s, e);
}

void offload_close(struct exec *s)
{
    if (!s->offload) return;
    free(s->offload->param);
    free(s->offload->part);
    free(s->offload->place);
    free(s->offload);
    s->offload = NULL;
}

/* ---- the update -------------------------------------------------------------------------------------------------- */

/* A weight's elements from `from` on, with their state at `state`. */
static struct be_weight part_of(const struct be_weight *w, size_t from, size_t n, float *state)
{
    struct be_weight part = *w;
    part.w += from;
    part.g += from;
    if (part.average) part.average += from;
    part.state = state;
    part.n = n;
    return part;
}

/* The parts of weights whose state is in a chunk; their number. */
static int parts_list(const struct exec *s, const struct state_chunk *c, float *state)
{
    const struct offload *o = s->offload;
    int k = 0, n = 0;
    size_t from = c->from;
    while (o->param[k] != c->param) k++;
    for (const float *end = state + c->bytes / sizeof *state; state < end; n++) {
        const struct be_weight *w = &s->weight[k];
        const size_t some = state_block(o->file, w->n, from);
        o->part[n] = part_of(w, from, some, state);
        state += o->buffers * some;
        from += some;
        if (from == w->n) k++, from = 0;
    }
    return n;
}

static void chunk_ask(struct exec *s, int chunk, bool writes)
{
    const struct offload *o = s->offload;
    const struct state_chunk *c = &o->file->chunk[chunk];
    struct state_place_io *p = &o->place[chunk % o->file->n];
    p->piece.at = o->at + c->at;
    p->piece.bytes = p->io.bytes = c->bytes;
    p->io.writes = writes;
    disk_ask(s, &p->io);
}

static int chunk_update(struct exec *s, int chunk, struct err *e)
{
    const struct offload *o = s->offload;
    struct state_place_io *p = &o->place[chunk % o->file->n];
    if (disk_wait(s, &p->io, e)) return -1;
    const int n = parts_list(s, &o->file->chunk[chunk], (float *)(void *)p->piece.to);
    return s->ops->update(s->be, s->optimizer, o->part, n, s->block, e);
}

/* Everything is written when it returns, so that others may read the file. */
int offload_update(struct exec *s, struct err *e)
{
    const struct offload *o = s->offload;
    const int n = o->file->n_chunks, places = o->file->n;
    chunk_ask(s, 0, false);
    for (int i = 0; i < n; i++) {
        if (i + 1 < n) {
            if (i + 1 >= places && disk_wait(s, &o->place[(i + 1) % places].io, e)) return -1;
            chunk_ask(s, i + 1, false);
        }
        if (chunk_update(s, i, e)) return -1;
        chunk_ask(s, i, true);
    }
    for (int i = 0; i < places; i++) if (disk_wait(s, &o->place[i].io, e)) return -1;
    return 0;
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

typedef int disk_fn(const struct exec *s, const struct file_piece *p, struct err *e);

static int row_move(const struct exec *s, const struct state_row *r, char *stored, disk_fn *move, struct err *e)
{
    const struct offload *o = s->offload;
    const size_t n = r->bytes / sizeof(float), k = (size_t)r->buffer;
    const uint64_t weight = o->at + r->off[s->rank] - k * r->bytes;
    for (size_t from = 0, some; from < n; from += some) {
        some = state_block(o->file, n, from);
        const uint64_t at = weight + (o->buffers * from + k * some) * sizeof(float);
        const struct file_piece p = {DISK_OWN, at, some * sizeof(float), stored + from * sizeof(float)};
        if (move(s, &p, e)) return -1;
    }
    return 0;
}

int offload_get(const struct exec *s, const struct state_row *r, void *stored, struct err *e)
{
    return row_move(s, r, stored, disk_read, e);
}

/* Writing leaves `stored` as it is. */
int offload_set(const struct exec *s, const struct state_row *r, const void *stored, struct err *e)
{
    return row_move(s, r, (char *)(uintptr_t)stored, disk_write, e);
}
