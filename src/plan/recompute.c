/* Recomputation: which groups run again. */
#include <stdlib.h>
#include <string.h>
#include "plan/cost.h"
#include "plan/part.h"
#include "plan/recompute.h"

static const char *group_name(const struct selection *s, int g) { return s->g->node[s->group[g].node[0]].name; }

static int no_layer(const struct conf *c, const struct selection *s, const char *layer, struct err *e)
{
    char hint[SUGGEST_TEXT];
    struct suggest near = suggest_begin(layer, strlen(layer));
    for (int g = 0; g < s->n_groups; g++) layer_names_try(&near, group_name(s, g));
    return conf_error(c, "pipeline.recompute_layers", e, "the network has no layer \"%s\"%s", layer,
                      suggest_text(&near, "", hint));
}

int recompute_named(const struct conf *c, const struct selection *s, bool *recompute, struct err *e)
{
    const struct conf_texts *t = &c->pipeline.recompute_layers;
    bool all = c->pipeline.recompute == RECOMPUTE_ALL;
    for (int g = 0; g < s->n_groups; g++) recompute[g] = all;
    for (int i = 0; i < t->n; i++) {
        bool found = false;
        for (int g = 0; g < s->n_groups; g++) {
            if (!layer_covers(t->v[i], group_name(s, g))) continue;
            recompute[g] = found = true;
        }
        if (!found) return no_layer(c, s, t->v[i], e);
    }
    return 0;
}

int recompute_stages(const struct conf *c, const struct placement *pl, bool *recompute, struct err *e)
{
    const struct conf_ints *l = &c->pipeline.recompute_stages;
    for (int i = 0; i < l->n; i++) {
        if (l->v[i] >= pl->n_stages)
            return conf_error(c, "pipeline.recompute_stages", e, "there is no stage %lld of %d", (long long)l->v[i],
                              pl->n_stages);
        for (int g = pl->first_group[l->v[i]]; g < pl->first_group[l->v[i] + 1]; g++) recompute[g] = true;
    }
    return 0;
}

/* ---- auto ------------------------------------------------------------------------------------ */

/* neighbouring groups of one block; value: bytes freed a nanosecond */
struct recompute_unit { int first, end; double value; bool on; };
struct recompute_choice { const struct recompute_request *q; bool *recompute; VEC(struct recompute_unit) unit; };

/* Length of the name of the innermost block around a group; 0 for a layer in no block. */
static size_t block_of(const struct graph *g, const char *name)
{
    size_t best = 0;
    for (int i = 0; i < g->n_containers; i++) {
        size_t n = strlen(g->container[i].name);
        if (n > best && layer_covers(g->container[i].name, name)) best = n;
    }
    return best;
}

static bool same_block(const struct selection *s, int a, int b)
{
    const char *x = group_name(s, a), *y = group_name(s, b);
    size_t n = block_of(s->g, x);
    return n > 0 && n == block_of(s->g, y) && !strncmp(x, y, n);
}

static double kept_bytes(const struct plan *p, int stage, int group)
{
    const struct stage_plan *st = &p->stage[stage];
    const struct group *k = &p->sel->group[group];
    const struct place *saved = &st->saved_place[group - st->first_group];
    double sum = 0;
    for (int i = 0; i < k->n_out; i++) {
        const struct place *out = &st->act_place[k->outs[i]];
        const struct slot_class *c = out->space == SP_SLOT ? &p->cls[out->cls] : NULL;
        if (c && c->writer == W_F && c->last > L_R && !c->n_users) sum += (double)out->bytes;
    }
    if (saved->space == SP_SLOT && p->cls[saved->cls].last != L_O) sum += (double)saved->bytes;
    return sum;
}

/* Adds the blocks of one stage with their values. A layer in no block is a block by itself. Blocks that keep nothing
 * come last: if recomputed, they only spare the values that they read. */
static void units_add(struct recompute_choice *c, const struct plan *p, int stage)
{
    const int *first = c->q->pl->first_group;
    for (int g = first[stage], end; g < first[stage + 1]; g = end) {
        struct recompute_unit u = {.first = g};
        double bytes = 0, ns = 1;
        for (end = g; end < first[stage + 1] && (end == g || same_block(c->q->sel, g, end)); end++) {
            bytes += kept_bytes(p, stage, end);
            ns += cost_ns(c->q->cost, PH_FWD, end, p->mb_n[0]);
        }
        u.end = end;
        u.value = bytes / ns;
        if (!c->recompute[g]) *vec_push(&c->unit) = u;
    }
}

static int by_value(const void *a, const void *b)
{
    const struct recompute_unit *x = a, *y = b;
    return x->value != y->value ? (x->value < y->value ? 1 : -1) : (x->first > y->first) - (x->first < y->first);
}

static void unit_set(struct recompute_choice *c, struct recompute_unit *u, bool on)
{
    for (int g = u->first; g < u->end; g++) c->recompute[g] = on;
    u->on = on;
}

/* 1: the rank fits; 0: it does not fit; -1: error. */
static int fits(const struct recompute_choice *c, int rank, struct err *e)
{
    struct plan_request r = *c->q->plan;
    r.recompute = c->recompute;
    struct plan *p = plan_make(c->q->sel, c->q->pl, &r, e);
    if (!p) return -1;
    int yes = plan_rank_bytes(p, rank) <= c->q->limit[rank];
    plan_free(p);
    return yes;
}

static int rank_choose(struct recompute_choice *c, int rank, struct err *e)
{
    int ok = fits(c, rank, e);
    if (c->unit.n) qsort(c->unit.v, (size_t)c->unit.n, sizeof *c->unit.v, by_value);
    for (int i = 0; i < c->unit.n && ok == 0; i++) {
        unit_set(c, &c->unit.v[i], true);
        ok = fits(c, rank, e);
    }
    for (int i = 0; i < c->unit.n && ok == 1; i++) {     /* a later block may have made an earlier one superfluous */
        struct recompute_unit *u = &c->unit.v[i];
        if (!u->on) break;
        unit_set(c, u, false);
        ok = fits(c, rank, e);
        if (ok != 0) continue;
        unit_set(c, u, true);
        ok = 1;
    }
    return ok < 0 ? -1 : 0;
}

int recompute_auto(const struct recompute_request *q, bool *recompute, struct err *e)
{
    const struct placement *pl = q->pl;
    struct plan_request bare = *q->plan;
    bare.recompute = recompute;
    struct plan *p = plan_make(q->sel, pl, &bare, e);
    int bad = p ? 0 : -1;
    for (int rank = 0; rank < pl->mesh.size[AXIS_PP] && !bad; rank++) {
        if (plan_rank_bytes(p, rank) <= q->limit[rank]) continue;
        struct recompute_choice c = {.q = q, .recompute = recompute};
        for (int i = 0; i < pl->n_stages; i++) if (pl->map.rank_of[i] == rank) units_add(&c, p, i);
        bad = rank_choose(&c, rank, e);
        vec_free(&c.unit);
    }
    plan_free(p);
    return bad;
}
