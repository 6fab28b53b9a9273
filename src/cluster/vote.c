/* Agreement between ranks during start-up. */
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "cluster/heartbeat.h"
#include "cluster/shutdown.h"
#include "cluster/vote.h"

int vote_agree(struct world *w, struct err *e)
{
    struct failure stop;
    if (e->code) heartbeat_where(w->rank, e);
    if (!e->code && atomic_load(abort_code()) && abort_failure(&stop)) *e = stop.e;
    int lowest = w->min(w, e->code ? w->rank : w->size);
    if (lowest == w->size) return 0;
    w->broadcast(w, lowest, e, sizeof *e);
    return -1;
}

void vote_share(struct world *w, struct text *t)
{
    size_t n = t->n;
    if (w->one_process) return;                    /* with a single maker there is nothing to send */
    w->broadcast(w, 0, &n, sizeof n);
    char *s = mem_alloc(n + 1);
    if (w->rank == 0 && n) memcpy(s, t->s, n);
    w->broadcast(w, 0, s, n);
    t->n = 0;
    text_add_bytes(t, s, n);
    free(s);
}
