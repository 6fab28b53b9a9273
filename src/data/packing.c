/* See packing.h. */
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "data/packing.h"

enum { OPEN_ROWS = 64 };

struct open_row { uint32_t used; VEC(uint32_t) record; };
struct open_rows { struct open_row v[OPEN_ROWS]; int n; };

static void row_close(struct open_rows *o, int i, struct record_rows *out)
{
    struct open_row r = o->v[i];
    const uint64_t at = out->begin[out->rows];
    memcpy(out->record + at, r.record.v, (size_t)r.record.n * sizeof *r.record.v);
    out->begin[++out->rows] = at + (uint64_t)r.record.n;
    memmove(&o->v[i], &o->v[i + 1], (size_t)(--o->n - i) * sizeof *o->v);
    r.record.n = 0;
    r.used = 0;
    o->v[o->n] = r;                                       /* its memory serves another row */
}

static int row_fullest(const struct open_rows *o)
{
    int most = 0;
    for (int i = 1; i < o->n; i++) if (o->v[i].used > o->v[most].used) most = i;
    return most;
}

void rows_pack(const uint32_t *length, const uint32_t *order, uint64_t n, uint32_t room, struct record_rows *out)
{
    struct open_rows o = {.n = 0};
    *out = (struct record_rows){.begin = mem_alloc(size_mul(n + 1, sizeof *out->begin)),
                            .record = mem_alloc(size_mul(n + 1, sizeof *out->record))};
    for (uint64_t k = 0; k < n; k++) {
        const uint32_t record = order[k];
        int i = 0;
        while (i < o.n && o.v[i].used + length[record] > room) i++;
        if (i == OPEN_ROWS) {
            row_close(&o, row_fullest(&o), out);
            i = o.n;
        }
        if (i == o.n) o.n++;
        o.v[i].used += length[record];
        *vec_push(&o.v[i].record) = record;
    }
    while (o.n) row_close(&o, 0, out);
    for (int i = 0; i < OPEN_ROWS; i++) vec_free(&o.v[i].record);
}

void rows_free(struct record_rows *p)
{
    free(p->begin);
    free(p->record);
}
