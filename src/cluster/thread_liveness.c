/* What the scheduler's thread reports about itself. */
#include <stdatomic.h>
#include <stddef.h>
#include "cluster/thread_liveness.h"

static struct {
    atomic_bool there;
    _Atomic uint64_t count;
    _Atomic(const char *) file;
} liveness;
static _Thread_local bool mine;

void liveness_begin(void)
{
    mine = true;
    atomic_store(&liveness.file, NULL);
    atomic_fetch_add(&liveness.count, 1);
    atomic_store(&liveness.there, true);
}

void liveness_end(void) { atomic_store(&liveness.there, false); }

void liveness_turn(void)
{
    if (mine) atomic_fetch_add(&liveness.count, 1);
}

const char *liveness_wait_file(const char *file)
{
    if (!mine) return NULL;
    const char *before = atomic_exchange(&liveness.file, file);
    atomic_fetch_add(&liveness.count, 1);
    return before;
}

bool liveness_read(uint64_t *count, const char **file)
{
    *count = atomic_load(&liveness.count);
    *file = atomic_load(&liveness.file);
    return atomic_load(&liveness.there);
}
