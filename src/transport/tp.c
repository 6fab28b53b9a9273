/* What all transports share. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "transport/tp.h"

static void tag_text(const struct tp_tag *t, char buf[128])
{
    snprintf(buf, 128, "step %" PRIu64 " plan %u micro-batch %u channel %u: %u samples, %" PRIu64 " bytes", t->step,
             t->plan, t->mb, t->chan, t->samples, t->bytes);
}

int tp_tag_check(int rank, int from, const struct tp_tag *want, const struct tp_tag *got, struct err *e)
{
    char w[128], g[128];
    if (memcmp(want, got, sizeof *want) == 0) return 0;
    tag_text(want, w);
    tag_text(got, g);
    return err_set(e, E_INTERNAL, "rank %d expected from rank %d (%s), but (%s) came", rank, from, w, g);
}
