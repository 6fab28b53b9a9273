/* The optimizer's buffers from outside, through the update and back. A chunk of them is read and another one written
 * while the update has a third. */
#include <stdlib.h>
#include "exec/disk.h"
#include "exec/fetch.h"
#include "exec/meter.h"

/* A place in memory, and what moves there: a chunk of state, then of weights in files, then of their gradients. */
struct state_place_io { struct transfer io; struct file_piece *piece; char *at; };
struct offload {
    const struct state_file *file;
    uint64_t at;                                          /* of the state in the rank's own file */
    size_t buffers;                                       /* of each weight */
    int *param;                                           /* of each weight that the rank updates */
    uint64_t *weight_at, *grad_at;                        /* of each parameter: trained weights in files */
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
        struct state_place_io *p = &o->place[i];
        p->at = s->state.at + o->file->at + (size_t)i * o->file->place;
        p->io.piece = p->piece = mem_alloc((size_t)(2 * s->n_weights + 1) * sizeof *p->piece);
    }
}

static bool is_filed(const struct exec *s, int param) { return s->q.pl->state[param].home == HOME_FILE; }

/* Weights, then gradients, each in the order of rows, so that those of a chunk are neighbours. */
static void weights_take(struct exec *s, struct offload *o)
{
    const size_t n = (size_t)s->g->n_params + 1;
    o->weight_at = mem_alloc(2 * n * sizeof *o->weight_at);
    o->grad_at = o->weight_at + n;
    for (int i = 0; i < 2 * s->n_weights; i++) {
        const int param = o->param[i % s->n_weights];
        uint64_t *at = i < s->n_weights ? o->weight_at : o->grad_at;
        if (is_filed(s, param)) at[param] = disk_take(s, s->q.pl->state[param].bytes);
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
    for (int i = 0; i < o->file->n; i++) {
        o->place[i].io.bytes = o->file->bytes;
        if (disk_prepare(s, &o->place[i].io, e)) return -1;
    }
    o->at = disk_take(s, o->file->all);
    weights_take(s, o);
    return disk_reserve(s, e);
}

void offload_close(struct exec *s)
{
    if (!s->offload) return;
    for (int i = 0; i < s->offload->file->n; i++) free(s->offload->place[i].piece);
    free(s->offload->param);
    free(s->offload->weight_at);
    free(s->offload->part);
    free(s->offload->place);
    free(s->offload);
    s->offload = NULL;
}

/* ---- the update -------------------------------------------------------------------------------------------------- */

/* A part of a chunk: `n` elements of weight k, from `from` on. */
struct span_of { int k; size_t from, n, left; };

static struct span_of span_first(const struct offload *o, const struct state_chunk *c)
{
    struct span_of x = {.from = c->from, .left = c->bytes / sizeof(float) / o->buffers};
    while (o->param[x.k] != c->param) x.k++;
    return x;
}

/* The next part, of at most `most` elements; false: the chunk ends. */
static bool span_take(const struct exec *s, struct span_of *x, size_t most)
{
    x->from += x->n;
    x->left -= x->n;
    if (x->n && x->from == s->weight[x->k].n) x->k++, x->from = 0;
    x->n = s->weight[x->k < s->n_weights ? x->k : 0].n - x->from;
    if (x->n > most) x->n = most;
    if (x->n > x->left) x->n = x->left;
    return x->left;
}

/* The blocks of weights whose state is in a chunk; their number. */
static int parts_list(const struct exec *s, const struct state_chunk *c, char *at)
{
    const struct offload *o = s->offload;
    float *state = (float *)(void *)at, *w = (float *)(void *)(at + o->file->bytes);
    float *g = w + o->file->bytes / sizeof *w / o->buffers;
    int n = 0;
    for (struct span_of x = span_first(o, c); span_take(s, &x, o->file->block); n++) {
        struct be_weight *part = &o->part[n];
        const bool filed = is_filed(s, o->param[x.k]);
        *part = s->weight[x.k];
        part->w = filed ? w : part->w + x.from;
        part->g = filed ? g : part->g + x.from;
        if (part->average) part->average += x.from;
        if (part->packed) part->packed = (uint16_t *)part->packed + x.from;      /* bfloat16 */
        part->state = state;
        part->n = x.n;
        state += o->buffers * x.n;
        if (filed) w += x.n, g += x.n;
    }
    return n;
}

/* Adds the weights of a chunk, or their gradients, that lie in files. */
static void filed_add(const struct exec *s, const struct state_chunk *c, struct transfer *io, bool grads, char *to)
{
    const struct offload *o = s->offload;
    for (struct span_of x = span_first(o, c); span_take(s, &x, SIZE_MAX);) {
        const int param = o->param[x.k];
        const size_t bytes = x.n * sizeof(float);
        const uint64_t at = (grads ? o->grad_at : o->weight_at)[param] + x.from * sizeof(float);
        if (!is_filed(s, param)) continue;
        io->piece[io->n++] = (struct file_piece){DISK_OWN, at, bytes, to};
        io->bytes += bytes;
        to += bytes;
    }
}

static int chunk_ask(struct exec *s, int chunk, bool writes, struct err *e)
{
    const struct offload *o = s->offload;
    const struct state_chunk *c = &o->file->chunk[chunk];
    struct state_place_io *p = &o->place[chunk % o->file->n];
    char *w = p->at + o->file->bytes, *g = w + o->file->bytes / o->buffers;
    p->piece[0] = (struct file_piece){DISK_OWN, o->at + c->at, c->bytes, p->at};
    p->io = (struct transfer){.piece = p->piece, .n = 1, .writes = writes, .bytes = c->bytes,
                              .fence = p->io.fence};
    if (o->file->beside) filed_add(s, c, &p->io, false, w);
    if (o->file->beside && !writes) filed_add(s, c, &p->io, true, g);
    return disk_ask(s, &p->io, e);
}

static int chunk_update(struct exec *s, int chunk, struct err *e)
{
    const struct offload *o = s->offload;
    const int n = parts_list(s, &o->file->chunk[chunk], o->place[chunk % o->file->n].at);
    return s->ops->update(s->be, s->optimizer, o->part, n, s->block, e);
}

int offload_record(struct exec *s, struct err *e)
{
    int bad = 0;
    for (int i = 0; i < s->offload->file->n_chunks && !bad; i++) bad = chunk_update(s, i, e);
    return bad;
}

/* Everything is written when it returns, so that others may read it. */
int offload_update(struct exec *s, struct err *e)
{
    const struct offload *o = s->offload;
    const int n = o->file->n_chunks, places = o->file->n;
    if (fetch_rest(s, e)) return -1;
    if (chunk_ask(s, 0, false, e)) return -1;
    for (int i = 0; i < n; i++) {
        if (i + 1 < n) {
            if (i + 1 >= places && disk_wait(s, &o->place[(i + 1) % places].io, e)) return -1;
            if (chunk_ask(s, i + 1, false, e)) return -1;
        }
        if (disk_wait(s, &o->place[i % places].io, e) || meter_to(s, ACC_OPTIMIZER, e) || chunk_update(s, i, e) ||
            chunk_ask(s, i, true, e))
            return -1;
    }
    for (int i = 0; i < places; i++) if (disk_wait(s, &o->place[i].io, e)) return -1;
    return 0;
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

typedef int disk_fn(const struct exec *s, const struct file_piece *p, struct err *e);

static int row_move(const struct exec *s, const struct state_row *r, char *stored, disk_fn *move, struct err *e)
{
    const struct offload *o = s->offload;
    const struct file_piece whole = {DISK_OWN, o->weight_at[r->param], r->bytes, stored};
    if (r->kind == STATE_WEIGHT) return move(s, &whole, e);
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

uint64_t offload_weight_at(const struct exec *s, int param) { return s->offload->weight_at[param]; }
uint64_t offload_grad_at(const struct exec *s, int param) { return s->offload->grad_at[param]; }

int offload_grad(const struct exec *s, const struct state_row *r, void *stored, struct err *e)
{
    return disk_read(s, &(struct file_piece){DISK_OWN, s->offload->grad_at[r->param], r->bytes, stored}, e);
}
