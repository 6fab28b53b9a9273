/* Rates of devices and links, measured on all ranks at once: for --check-hosts. */
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "exec/costs.h"
#include "exec/exec_int.h"

enum { PART_NS = 200000000, BLOCKS = 8 };
#define COPIED ((size_t)BLOCKS * LINK_LARGE)

/* Links that have no rank in common are measured at once. */
static int rates_links(struct exec *s, int n, struct rates *mine, struct err *e)
{
    for (int odd = 0; odd < 2; odd++) {
        int a = (s->rank + odd) / 2 * 2 - odd;            /* the link from a has an end here */
        double ready = 0;
        struct link l;
        if (exec_reduce(s, &ready, 1, e)) return -1;
        if (a < 0 || a + 1 >= n) continue;
        if (link_measure(s, a, a + 1, &l, e)) return -1;
        if (a == s->rank) mine->latency_s = l.latency_ns / 1e9, mine->link = 1e9 * l.bytes_per_ns;
    }
    return 0;
}

/* write: fills the first half of the memory. Otherwise compares the second one, a copy, with what was written. */
static int rates_pattern(struct exec *s, unsigned char *at, bool write, struct err *e)
{
    unsigned char *piece = mem_alloc(2 * LINK_LARGE), *back = piece + LINK_LARGE;
    int bad = 0;
    for (unsigned i = 0; i < LINK_LARGE; i++) piece[i] = (unsigned char)(i * 2654435761u >> 13);
    for (size_t i = 0; i < BLOCKS && !bad; i++) {
        if (write) bad = s->ops->copy(s->be, at + i * LINK_LARGE, piece, LINK_LARGE, e);
        else bad = s->ops->copy(s->be, back, at + COPIED + i * LINK_LARGE, LINK_LARGE, e) ||
                   (memcmp(piece, back, LINK_LARGE) != 0 &&
                    err_set(e, E_CORRUPT, "rank %d: its memory gives back other bytes than were written", s->rank));
    }
    free(piece);
    return bad;
}

/* Products and copies take turns until rank 0's time is over. exec_peak tells the best of some products; those that
 * other programs disturbed count by the time of the call. A byte that is read waits for the device. */
static int rates_rounds(struct exec *s, unsigned char *at, double seconds, struct rates *mine, struct err *e)
{
    const uint64_t began = clock_ns();
    double best = 0, least = 1e18, products_ns = 0, copies_ns = 0, products = 0, copies = 0;
    for (double more = 1; more > 0;) {
        char last;
        uint64_t from = clock_ns(), before = from;
        for (uint64_t now = from; now - from < PART_NS; before = now, products++, beat_moves(s)) {
            double rate = exec_peak(s);
            now = clock_ns();
            if (rate > best) best = rate;
            if ((double)(now - before) < least) least = (double)(now - before);
        }
        products_ns += (double)(before - from);
        for (from = clock_ns(); clock_ns() - from < PART_NS; copies++, beat_moves(s))
            if (s->ops->copy(s->be, at + COPIED, at, COPIED, e) || s->ops->copy(s->be, &last, at + COPIED, 1, e))
                return -1;
        copies_ns += (double)(clock_ns() - from);
        more = s->rank == 0 && (double)(clock_ns() - began) < 1e9 * seconds;
        if (exec_reduce(s, &more, 1, e)) return -1;
    }
    mine->flops = best * least * products / products_ns;
    mine->memory = 2e9 * COPIED * copies / copies_ns;
    return 0;
}

int rates_measure(struct exec *s, double seconds, struct rates *all, struct err *e)
{
    const int n = s->q.pl->mesh.size[AXIS_PP];
    struct rates *mine = &all[s->rank];
    memset(all, 0, (size_t)n * sizeof *all);
    if (rates_links(s, n, mine, e)) return -1;
    unsigned char *at = s->ops->alloc(s->be, 2 * COPIED, e);
    int bad = !at || rates_pattern(s, at, true, e) || rates_rounds(s, at, seconds, mine, e) ||
              rates_pattern(s, at, false, e);
    if (at) s->ops->free(s->be, at, 2 * COPIED);
    /* a sum over ranks makes each measurement known to all */
    return bad ? -1 : exec_reduce(s, (double *)all, n * (int)(sizeof *all / sizeof(double)), e);
}
