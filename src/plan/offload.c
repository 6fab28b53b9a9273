/* The optimizer's buffers in a file. Its pass visits each weight once, so reading and writing them can overlap with
 * it, chunk by chunk. */
#include "plan/plan_int.h"

/* BLOCK: elements, the least part of a weight that an update takes. A chunk has at most CHUNK bytes, and fewer where
 * all state is small, unless one block has more. PLACES: one is read, one updated, one written. */
enum { BLOCK = 16 << 10, CHUNK = 8 << 20, CHUNKS = 16, PLACES = 3 };

static size_t chunk_limit(uint64_t all)
{
    const uint64_t part = all / CHUNKS;
    return part < CHUNK ? (size_t)part : CHUNK;
}

/* A block joins the last chunk, unless that is full. */
static void block_add(struct state_file *f, int param, size_t from, size_t bytes, size_t limit)
{
    struct state_chunk *last = f->n_chunks ? &f->chunk[f->n_chunks - 1] : NULL;
    if (!last || last->bytes + bytes > limit) {
        last = &f->chunk[f->n_chunks++];
        *last = (struct state_chunk){.at = f->all, .param = param, .from = from};
    }
    last->bytes += bytes;
    f->all += bytes;
    if (last->bytes > f->bytes) f->bytes = last->bytes;
}

/* Each trained weight has its buffers in consecutive rows. */
static void rank_offload(struct placement *pl, const struct placement_request *q, int rank, int first)
{
    struct state_file *f = &pl->state_file[rank];
    const size_t buffers = (size_t)q->buffers.n;
    uint64_t all = 0, blocks = 0;
    f->block = q->buffers.whole ? SIZE_MAX : BLOCK;
    for (int i = first; i < pl->n_state; i++) {
        const struct state_row *r = &pl->state[i];
        if (r->home != HOME_FILE || r->owner != rank) continue;
        all += r->bytes;
        blocks += r->bytes / sizeof(float) / BLOCK + 1;
    }
    f->chunk = arena_alloc(pl->mem, (size_t)(blocks + 1) * sizeof *f->chunk);
    for (int i = first; i < pl->n_state; i++) {
        struct state_row *r = &pl->state[i];
        if (r->home != HOME_FILE || r->owner != rank) continue;
        const size_t n = r->bytes / sizeof(float);
        r->off[rank] = r->buffer ? pl->state[i - 1].off[rank] + r->bytes : f->all;
        for (size_t from = 0; from < n && !r->buffer; from += state_block(f, n, from))
            block_add(f, r->param, from, buffers * sizeof(float) * state_block(f, n, from), chunk_limit(all));
    }
    f->n = f->n_chunks < PLACES ? f->n_chunks : PLACES;
    f->at = pl->state_bytes[rank];
    for (int i = 0; i < pl->map.n_stages_of[rank]; i++) f->beside += pl->slot_grads[pl->map.stages_of[rank][i]];
    f->place = f->bytes + (f->beside ? 2 * f->bytes / buffers : 0);
    pl->state_bytes[rank] += (size_t)f->n * f->place;
}

void offload_place(struct placement *pl, const struct placement_request *q, int n_params)
{
    for (int rank = 0; rank < pl->mesh.size[AXIS_PP]; rank++) rank_offload(pl, q, rank, n_params);
}
