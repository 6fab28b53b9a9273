/* Reads /sys/class/powercap/intel-rapl:N, which processors of AMD have, too. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "cluster/log.h"
#include "report/energy.h"
#include "report/reporter.h"

/* A counter of 2^32 units of 61 microjoules wraps after four minutes at 1 kW. */
static const uint64_t READ_EVERY_NS = 10000000000;

static bool number_read(const char *folder, const char *name, uint64_t *out, struct err *e)
{
    char path[320], *end;
    struct text t = {0};
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int bad = text_read_file(&t, path, 1 << 16, e);
    if (!bad) *out = strtoull(t.s, &end, 10);
    if (!bad && (end == t.s || *end != '\n')) bad = err_set(e, E_DATA, "%s: expected a number", path);
    text_free(&t);
    return !bad;
}

/* False: there is no such zone. Others than packages are parts of one, or of the whole machine, and left out. */
static bool zone_read(struct energy *g, const char *root, int zone, struct err *why)
{
    struct energy_domain *d = &g->domain[g->n];
    struct err none = {0};
    struct text name = {0};
    char path[320];
    snprintf(d->path, sizeof d->path, "%s/intel-rapl:%d", root, zone);
    snprintf(path, sizeof path, "%s/name", d->path);
    bool found = !text_read_file(&name, path, 1 << 16, &none);
    if (found && !strncmp(name.s, "package", strlen("package"))) {
        snprintf(d->name, sizeof d->name, "%.*s", (int)strcspn(name.s, "\n"), name.s);
        g->n += number_read(d->path, "max_energy_range_uj", &d->range, why) &&
            number_read(d->path, "energy_uj", &d->last, why);
    }
    text_free(&name);
    return found;
}

/* The sum is of all packages, or there is none. */
static int energy_open(const struct report_run *q, void **self, struct err *e)
{
    const char *other = getenv("MPSTAGED_POWERCAP"), *root = other ? other : "/sys/class/powercap";
    struct energy *g = mem_alloc(sizeof *g);
    struct err why = {0};
    (void)e;
    *g = (struct energy){.read = clock_ns()};
    for (int i = 0; g->n < ENERGY_DOMAINS && !why.code && zone_read(g, root, i, &why); i++) { }
    if (g->n && !why.code) {
        *self = g;
        return 0;
    }
    if (!why.code) err_set(&why, E_NOINPUT, "%s has no processor package", root);
    log_at(q->job->conf->service.metrics ? LEVEL_INFO : LEVEL_DEBUG, "energy: not available: %s", why.text);
    free(g);
    return 0;
}

double energy_joules(struct energy *g)
{
    uint64_t sum = 0;
    for (int i = 0; g && i < g->n; i++) {
        struct energy_domain *d = &g->domain[i];
        struct err none = {0};
        uint64_t now = d->last;
        number_read(d->path, "energy_uj", &now, &none);
        d->uj += now >= d->last ? now - d->last : now + d->range - d->last;
        d->last = now;
        sum += d->uj;
    }
    return sum ? (double)sum * 1e-6 : -1;
}

static int energy_on(void *self, const struct event *ev, struct err *e)
{
    struct energy *g = self;
    const uint64_t now = ev->kind == EVENT_TICK ? clock_ns() : 0;
    (void)e;
    if (now > g->read + READ_EVERY_NS) {
        energy_joules(g);
        g->read = now;
    }
    return 0;
}

const struct reporter reporter_energy = {.name = "energy", .open = energy_open, .on = energy_on, .close = free};
