/* Schedule files: an error is one line with a place. Accepted rows make a plan that the checker passes, that the
 * simulator runs to its end and that a second planning repeats; so do short batches. Two ranks, three micro-batches,
 * each of three ways to join the backward passes. Rows that do not parse are tried in one of these ways only. */
#include <stdlib.h>
#include <string.h>
#include "../devices.h"
#include "depth.h"
#include "plan/cost.h"
#include "plan/plan.h"
#include "plan/sched.h"
#include "plan/sim.h"

static const char network[] =
    "graph fuzz\ninput input 4\nlabels labels class\na = linear(input) features=4 layer=Linear\nb = relu(a) "
    "layer=ReLU\n"
    "c = linear(b) features=3 layer=Linear\nd = add(c, c) layer=Add\nloss = mse(d, labels)\nloss loss\noutput d\n";

static void must(bool right) { if (!right) abort(); }

static void error_check(const struct err *e)
{
    must(e->code == E_DATA && !strncmp(e->text, "rows:", 5));
    for (const char *s = e->text; *s; s++) must((unsigned char)*s >= 0x20);
}

struct world { struct selection *s; struct placement *pl; struct cost *k; };

/* What is the same for all inputs. */
static void world_make(struct world *w)
{
    static const int cut[] = {0, 2, 5};
    struct graph *g = graph_parse("fuzz.graph", network, strlen(network), NULL);
    w->s = select_make(g, &rig_plain, 4, NULL);
    struct placement_request where = {.sel = w->s, .n_stages = 2, .mesh = {{2}}, .first_group = cut};
    w->pl = placement_make(&where, NULL);
    w->k = cost_estimate(w->s);
}

static void plan_try(const struct world *w, const char *rows, enum backward_mode backward)
{
    struct plan_request r = {.mode = PLAN_TRAIN,
                             .schedule = "rows",
                             .rows = rows,
                             .batch = 5,
                             .split = 2,
                             .backward = backward,
                             .batch_norm = STATS_MICRO};
    struct err e = {0};
    struct plan *p = plan_make(w->s, w->pl, &r, &e);
    if (!p) { error_check(&e); return; }
    struct plan *again = plan_make(w->s, w->pl, &r, &e);
    struct sim *t = plan_simulate(p, w->k, &e);
    char a[33], b[33];
    must(again && t);
    plan_hash(p, a);
    plan_hash(again, b);
    must(!strcmp(a, b));
    sim_free(t);
    plan_free(again);
    plan_free(p);
    r.rows_micro = 3;
    for (r.batch = 4; r.batch > 0; r.batch--) {          /* what is legal stays legal without its last micro-batches */
        must((p = plan_make(w->s, w->pl, &r, &e)) && (t = plan_simulate(p, w->k, &e)));
        sim_free(t);
        plan_free(p);
    }
}

static bool parse_try(const uint8_t *data, size_t size)
{
    struct err e = {0};
    struct sched s = {.n_ranks = 2, .row = mem_alloc(2 * sizeof *s.row)};
    bool bad = sched_parse("rows", (const char *)data, size, &s, &e);
    if (bad) error_check(&e);
    sched_free(&s);
    return !bad;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const enum backward_mode backward[] = {BACKWARD_AUTO, BACKWARD_JOINED, BACKWARD_SPLIT};
    static struct world w;
    bool read = parse_try(data, size);
    if (!goes_deep()) return 0;
    if (!w.s) world_make(&w);
    char *rows = mem_alloc(size + 1);
    if (size) memcpy(rows, data, size);
    for (int i = 0; i < (read ? 3 : 1); i++) plan_try(&w, rows, backward[i]);
    free(rows);
    return 0;
}
