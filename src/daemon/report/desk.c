/* What the scheduler's thread says of itself. */
#include <stdatomic.h>
#include <stddef.h>
#include "daemon/report/desk.h"

static struct {
    atomic_bool there;
    _Atomic uint64_t count;
    _Atomic(const char *) file;
} desk;
static _Thread_local bool mine;

void desk_begin(void)
{
    mine = true;
    atomic_store(&desk.file, NULL);
    atomic_fetch_add(&desk.count, 1);
    atomic_store(&desk.there, true);
}

void desk_end(void) { atomic_store(&desk.there, false); }

void desk_turn(void)
{
    if (mine) atomic_fetch_add(&desk.count, 1);
}

const char *desk_at(const char *file)
{
    if (!mine) return NULL;
    const char *before = atomic_exchange(&desk.file, file);
    atomic_fetch_add(&desk.count, 1);
    return before;
}

bool desk_look(uint64_t *count, const char **file)
{
    *count = atomic_load(&desk.count);
    *file = atomic_load(&desk.file);
    return atomic_load(&desk.there);
}
