/* Shared by all transports. */
#include "config.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#ifdef HAVE_XXH_X86DISPATCH_H
#include <xxh_x86dispatch.h>                             /* XXH3_64bits for the actual processor; Debian's uses SSE2 */
#endif
#include "base/mem.h"
#include "transport/tp.h"

static void tag_text(const struct tp_tag *t, char buf[128])
{
    snprintf(buf, 128, "step %" PRIu64 " plan %u micro-batch %u channel %u: %u samples, %" PRIu64 " bytes", t->step,
             t->plan, t->mb, t->chan, t->samples, t->bytes);
}

int tp_tag_check(int rank, int from, const struct tp_tag *want, const struct tp_tag *got, struct err *e)
{
    char w[128], g[128];
    struct tp_tag same = *got;
    same.digest = want->digest;
    if (memcmp(want, &same, sizeof *want) == 0) return 0;
    tag_text(want, w);
    tag_text(got, g);
    return err_set(e, E_INTERNAL, "rank %d expected from rank %d (%s), but (%s) came", rank, from, w, g);
}

uint32_t tp_digest_next(uint32_t before, const void *piece, size_t bytes)
{
    uint32_t low = (uint32_t)XXH3_64bits_withSeed(piece, bytes, before);
    return low ? low : 1;
}

uint32_t tp_digest(const void *payload, size_t bytes) { return tp_digest_next(0, payload, bytes); }

void *tp_box_new(struct tp_box *b, size_t head, size_t bytes)
{
    for (struct tp_held **p = &b->spare, *m; (m = *p); p = &m->next) {
        if (m->space < bytes) continue;
        *p = m->next;
        return m;
    }
    struct tp_held *small = b->spare;                     /* a larger message replaces it, now and later */
    if (small) b->spare = small->next;
    free(small);
    struct tp_held *m = mem_alloc(head + bytes);
    m->space = bytes;
    return m;
}

void tp_box_add(struct tp_box *b, void *message)
{
    struct tp_held *m = message;
    m->next = NULL;
    if (b->first) b->last->next = m;
    else b->first = m;
    b->last = m;
}

void tp_box_spare(struct tp_box *b, void *message)
{
    struct tp_held *m = message;
    m->next = b->spare;
    b->spare = m;
}

void tp_box_pop(struct tp_box *b)
{
    struct tp_held *m = b->first;
    b->first = m->next;
    tp_box_spare(b, m);
}

void tp_box_free(struct tp_box *b)
{
    while (b->first) tp_box_pop(b);
    for (struct tp_held *m; (m = b->spare); free(m)) b->spare = m->next;
}
