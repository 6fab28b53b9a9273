/* Device maps by the rules that accelerate documents. Modules are taken in order; each goes to the current device with
 * the weights that are tied to it, is taken apart, or opens the next device; never back. The first device and host
 * memory keep room for the largest block that is not placed yet. */
#include <stdlib.h>
#include <string.h>
#include "plan/device_map.h"

/* todo: the next module; behind[i]: the one after module i, -1: none. used: bytes of the device. */
struct mapping {
    const struct device_map_request *q;
    const struct module *module;
    int n, todo, *behind, *at;
    uint64_t reserve, *limit, used;
    int device;                                          /* n_devices: host memory; above: disk */
};

static bool stays_whole(const struct mapping *w, int i)
{
    const struct module *x = &w->module[i];
    if (x->end == i + 1 || x->holds) return true;
    for (int k = 0; w->q->no_split && k < w->q->no_split->n; k++) {
        const char *entry = w->q->no_split->v[k];
        if (!strcmp(entry, x->name) || (x->layer && !strcmp(entry, x->layer))) return true;
    }
    return false;
}

static bool is_within(const struct mapping *w, int i, int above) { return i >= above && i < w->module[above].end; }

/* Room for the largest block to come. */
static void reserve_set(struct mapping *w)
{
    w->reserve = 0;
    for (int x = w->todo; x >= 0; x = w->behind[x])
        for (int i = x; i < w->module[x].end;) {
            const bool whole = stays_whole(w, i);
            if (whole && w->module[i].bytes > w->reserve) w->reserve = w->module[i].bytes;
            i = whole ? w->module[i].end : i + 1;
        }
}

/* ---- the list of modules to come ------------------------------------------------------------- */

static int take_first(struct mapping *w)
{
    const int x = w->todo;
    w->todo = w->behind[x];
    return x;
}

static void put_first(struct mapping *w, int x)
{
    w->behind[x] = w->todo;
    w->todo = x;
}

/* Where the list names x, which is in it. */
static int *link_to(struct mapping *w, int x)
{
    int *at = &w->todo;
    while (*at != x) at = &w->behind[*at];
    return at;
}

/* Puts the modules of x where *at is. */
static void put_parts(struct mapping *w, int x, int *at)
{
    for (int i = x + 1; i < w->module[x].end; i = w->module[i].end) {
        w->behind[i] = *at;
        *at = i;
        at = &w->behind[i];
    }
}

/* ---- tied weights ---------------------------------------------------------------------------- */

/* The module to come that has module i; -1: none. */
static int to_come(const struct mapping *w, int i)
{
    int x = w->todo;
    while (x >= 0 && !is_within(w, i, x)) x = w->behind[x];
    return x;
}

/* The module to come with the other use of a weight that x has, from the k-th module on; *k: behind it; *bytes: what it
 * adds. -1: no more. */
static int tied_next(const struct mapping *w, int x, int *k, uint64_t *bytes)
{
    while (*k < w->n) {
        const int i = (*k)++, of = w->module[i].shares;
        if (of < 0 || is_within(w, i, x) == is_within(w, of, x)) continue;
        const int other = is_within(w, i, x) ? of : i, entry = to_come(w, other);
        if (entry < 0) continue;
        *bytes = w->module[entry].bytes - (other == of ? w->module[i].shared : 0);
        return entry;
    }
    return -1;
}

static uint64_t bytes_tied(const struct mapping *w, int x)
{
    uint64_t sum = w->module[x].bytes, more = 0;
    for (int k = 0; tied_next(w, x, &k, &more) >= 0;) sum += more;
    return sum;
}

static int place_of_device(const struct mapping *w)
{
    const int n = w->q->n_devices;
    return w->device < n ? w->device : w->device == n && w->q->has_host ? AT_CPU : AT_DISK;
}

static void place(struct mapping *w, int x)
{
    uint64_t more;
    w->used += bytes_tied(w, x);
    w->at[x] = place_of_device(w);
    for (int k = 0, other; (other = tied_next(w, x, &k, &more)) >= 0;) {
        *link_to(w, other) = w->behind[other];
        w->at[other] = w->at[x];
    }
}

/* Takes a module apart that is tied to x; false: none can be. */
static bool tied_split(struct mapping *w, int x)
{
    uint64_t more;
    for (int k = 0, other; (other = tied_next(w, x, &k, &more)) >= 0;) {
        if (stays_whole(w, other)) continue;
        int *at = link_to(w, other);
        *at = w->behind[other];
        put_parts(w, other, at);
        return true;
    }
    return false;
}

/* ---- the walk -------------------------------------------------------------------------------- */

static bool has_room(const struct mapping *w, uint64_t bytes)
{
    const int place = place_of_device(w);
    if (place == AT_DISK) return true;
    return w->used + bytes + (place == 0 || place == AT_CPU ? w->reserve : 0) <=
           (place == AT_CPU ? w->q->host : w->limit[place]);
}

static void mapping_step(struct mapping *w)
{
    const int x = take_first(w);
    reserve_set(w);
    if (has_room(w, bytes_tied(w, x))) { place(w, x); return; }
    const bool alone = has_room(w, w->module[x].bytes);
    if (alone && tied_split(w, x)) put_first(w, x);
    else if (!alone && !stays_whole(w, x)) put_parts(w, x, &w->todo);
    else {
        put_first(w, x);
        w->used = 0;
        w->device++;
    }
}

/* ---- balancing ------------------------------------------------------------------------------- */

/* The largest of the first block of each entry of no_split and of the mean of layers, and a quarter of it. */
static uint64_t margin_of(const struct mapping *w)
{
    uint64_t sum = 0, n = 0, most;
    for (int i = 0; i < w->n; i++) {
        const bool layer = w->module[i].end == i + 1 && w->module[i].bytes;
        n += layer;
        sum += layer ? w->module[i].bytes : 0;
    }
    most = n ? sum / n : 0;
    for (int k = 0; w->q->no_split && k < w->q->no_split->n; k++)
        for (int i = 1; i < w->n; i++) {
            const struct module *x = &w->module[i];
            const char *entry = w->q->no_split->v[k];
            if (!x->bytes || (strcmp(entry, x->name) && !(x->layer && !strcmp(entry, x->layer)))) continue;
            if (x->bytes > most) most = x->bytes;
            break;
        }
    return most + most / 4;
}

static void limits_balance(struct mapping *w)
{
    const uint64_t total = w->module[0].bytes;
    uint64_t others = 0;
    int n = 0, last = 0;
    for (int i = 0; i < w->q->n_devices; i++) if (w->limit[i]) { n++; last = i; }
    if (!n) return;
    const bool low_zero = w->q->low_zero && n > 1;
    const uint64_t each = total / (uint64_t)(low_zero ? n - 1 : n) + margin_of(w);
    for (int i = 0; i < last; i++) if (!(low_zero && !i) && w->limit[i] > each) w->limit[i] = each;
    if (!low_zero) return;
    for (int i = 1; i < n; i++) others += w->limit[i];
    const uint64_t rest = total > others ? total - others : 0;
    if (w->limit[0] > rest) w->limit[0] = rest;
}

/* ---- the result ------------------------------------------------------------------------------ */

/* A module whose parts all lie in one place is one key. */
static void parts_join(const struct modules *m, int *at)
{
    for (int x = 0; x < m->n; x++) {
        int n = 0, other = 0, place = AT_PARTS;
        for (int i = x + 1; i < m->module[x].end; i++) {
            if (at[i] == AT_PARTS) continue;
            if (n++) other += at[i] != place;
            else place = at[i];
        }
        if (n < 2 || other) continue;
        for (int i = x + 1; i < m->module[x].end; i++) at[i] = AT_PARTS;
        at[x] = place;
    }
}

int *device_map_make(const struct device_map_request *q)
{
    const size_t n = (size_t)q->m->n;
    struct mapping w = {.q = q, .module = q->m->module, .n = q->m->n, .todo = -1,
                        .behind = mem_alloc(n * sizeof *w.behind), .at = mem_alloc(n * sizeof *w.at),
                        .limit = mem_alloc((size_t)q->n_devices * sizeof *w.limit)};
    memcpy(w.limit, q->limit, (size_t)q->n_devices * sizeof *w.limit);
    for (size_t i = 0; i < n; i++) w.at[i] = AT_PARTS;
    if (q->balance) limits_balance(&w);
    put_parts(&w, 0, &w.todo);
    while (w.todo >= 0) mapping_step(&w);
    parts_join(q->m, w.at);
    free(w.behind); free(w.limit);
    return w.at;
}

int device_map_find(const struct modules *m, const int *at, const char *name)
{
    for (int i = m->n - 1; i >= 0; i--) {
        const char *key = m->module[i].name;
        const size_t n = strlen(key);
        if (at[i] != AT_PARTS && (!n || (!strncmp(name, key, n) && (name[n] == '.' || !name[n])))) return at[i];
    }
    return AT_PARTS;
}
