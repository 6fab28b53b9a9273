/* --check-hosts: rates of all ranks as a table, and what is below four fifths of the median. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "exec/costs.h"
#include "train/profile.h"

enum { NAME_WIDE = 25 };
struct rank_host { char name[64]; };

static int rates_compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* A rate of each rank; 0: it has none. Compared are those of the same kind: links within hosts, links between hosts.
 * Of two the better one is the median. */
struct rated { const char *what; const double *x; const bool *kind; };

static void slow_find(const struct rated *d, const struct rank_host *host, int n, struct text *slow)
{
    double *sorted = mem_alloc((size_t)n * sizeof *sorted);
    for (int kind = 0; kind < 2; kind++) {
        int many = 0;
        for (int r = 0; r < n; r++) if (d->kind[r] == kind && d->x[r] > 0) sorted[many++] = d->x[r];
        qsort(sorted, (size_t)many, sizeof *sorted, rates_compare);
        for (int r = 0; r < n && many; r++) {
            double share = d->x[r] / sorted[many / 2];
            if (d->kind[r] != kind || d->x[r] <= 0 || share >= 0.8) continue;
            text_add(slow, "%s%s of rank %d on %s has %.2f of the median", slow->n ? "; " : "", d->what, r,
                     host[r].name, share);
        }
    }
    free(sorted);
}

/* A row has 80 columns at most. A name that is longer loses its middle: domains begin alike, and so do pods. */
static void table_row(const struct rates *k, const struct rank_host *host, int r, int n, struct text *out)
{
    const char *name = host[r].name;
    const size_t long_by = strlen(name) > NAME_WIDE ? strlen(name) - NAME_WIDE : 0;
    if (long_by) text_add(out, "%4d  %.12s..%s", r, name, name + 14 + long_by);
    else text_add(out, "%4d  %-*s", r, NAME_WIDE, name);
    if (k->flops > 0) text_add(out, " %13.1f", k->flops / 1e9);
    else text_add(out, " %13s", "-");
    text_add(out, " %10.2f", k->memory / 1e9);
    if (r + 1 < n) text_add(out, " %12.1f %10.2f", 1e6 * k->latency_s, k->link / 1e9);
    text_add(out, "\n");
}

static void table_add(const struct setup *b, const struct rates *all, const struct rank_host *host, struct text *out,
                      struct text *slow)
{
    const int n = b->world->size;
    double *x = mem_alloc(3 * (size_t)n * sizeof *x);
    bool *kind = mem_alloc(2 * (size_t)n * sizeof *kind), *between = kind + n;
    text_add(out, "rank  %-*s %13s %10s %12s %10s\n", NAME_WIDE, "host", "GFLOP/s", "copy GB/s", "latency us",
             "link GB/s");
    for (int r = 0; r < n; r++) {
        table_row(&all[r], host, r, n, out);
        x[r] = all[r].flops;
        x[n + r] = all[r].memory;
        x[2 * n + r] = all[r].link;
        between[r] = r + 1 < n && b->host[r] != b->host[r + 1];
    }
    slow_find(&(struct rated){"the product", x, kind}, host, n, slow);
    slow_find(&(struct rated){"the memory", x + n, kind}, host, n, slow);
    slow_find(&(struct rated){"the link to the next rank", x + 2 * n, between}, host, n, slow);
    free(x);
    free(kind);
}

int check_hosts(struct setup *b, struct text *out, struct text *slow, struct err *e)
{
    struct world *w = b->world;
    struct rates *all = mem_alloc((size_t)w->size * sizeof *all);
    int bad = rates_measure(b->exec, b->opts->seconds, all, e);
    if (bad) control_fail(b->control, e);
    else {
        struct rank_host *host = mem_alloc((size_t)w->size * sizeof *host);
        gethostname(host[w->rank].name, sizeof host->name - 1);
        w->allgather(w, host, sizeof *host);
        if (w->rank == 0) table_add(b, all, host, out, slow);
        free(host);
    }
    free(all);
    return bad;
}
