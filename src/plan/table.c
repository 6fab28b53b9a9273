/* --plan: what every stage holds and costs, for people and as JSON. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "plan/cost.h"
#include "plan/plan.h"
#include "plan/render.h"
#include "plan/sim.h"

struct stage_row { int layers; int64_t params; uint64_t flops; };
struct rank_row { size_t weights, gradients, optimizer, activations, total; int in_flight; };

static struct stage_row stage_row(const struct plan *p, int s)
{
    const struct stage_plan *st = &p->stage[s];
    const struct graph *g = p->sel->g;
    struct stage_row r = {0};
    for (int i = st->first_group; i < st->first_group + st->n_groups; i++)
        for (int j = 0; j < p->sel->group[i].n_nodes; j++) {
            r.layers += graph_layer(g, p->sel->group[i].node[j]) != NULL;
            r.flops += graph_flops(g, p->sel->group[i].node[j]);
        }
    for (int i = 0; i < p->pl->n_state; i++) {
        const struct state_row *w = &p->pl->state[i];
        if (w->kind == STATE_WEIGHT && p->pl->use_stage[p->pl->use_first[w->param]] == s)
            r.params += shape_count(&w->shape);
    }
    return r;
}

/* in_flight: the sum over all stages of the rank. Weights in other places are not in its memory, but slots are. */
static struct rank_row rank_row(const struct plan *p, const struct device_map *map, int rank)
{
    const struct stage_map *m = &p->pl->map;
    const uint64_t spared = device_map_spares(map, rank);
    struct rank_row r = {.weights = p->pl->param_bytes[rank] + p->pl->packed_bytes[rank] - spared,
                         .gradients = p->pl->grad_bytes[rank],
                         .optimizer = p->pl->state_bytes[rank],
                         .activations = p->slot_bytes[rank] + p->tmp_bytes[rank] + p->work_bytes[rank] +
                                        p->load_bytes[rank],
                         .total = plan_rank_bytes(p, rank) - spared};
    for (int i = 0; i < m->n_stages_of[rank]; i++) r.in_flight += p->stage[m->stages_of[rank][i]].in_flight;
    return r;
}

/* Are ranks numbered differently from stages? Then the tables show both. */
static bool ranks_differ(const struct plan *p)
{
    bool differ = false;
    for (int i = 0; i < p->n_stages; i++) differ |= p->stage[i].rank != i;
    return differ;
}

static const char *call_name(const struct plan *p, const struct kop *k)
{
    return p->sel->g->node[p->sel->group[k->group].node[0]].name;
}

/* The recomputed groups of each stage; neighbouring layers as "first .. last". */
static void recompute_table(const struct plan *p, struct text *out)
{
    bool any = false;
    for (int i = 0; i < p->n_stages; i++) {
        const struct prog *r = &p->stage[i].prog[PROG_R];
        if (!r->n) continue;
        any = true;
        text_add(out, "recomputed on stage %d:", i);
        for (int from = 0, to; from < r->n; from = to + 1) {
            for (to = from; to + 1 < r->n && r->k[to + 1].group == r->k[to].group + 1; to++) ;
            text_add(out, "%s %s", from ? "," : "", call_name(p, &r->k[from]));
            if (to > from) text_add(out, " .. %s", call_name(p, &r->k[to]));
        }
        text_add(out, "\n");
    }
    if (any) text_add(out, "\n");
}

static const struct node *node_of(const struct selection *s, int group)
{
    return &s->g->node[s->group[group].node[0]];
}

void plan_slow_text(const struct selection *s, struct text *out)
{
    for (int i = 0; i < s->n_groups; i++) {
        const struct node *n = node_of(s, i);
        if (s->group[i].slow) text_add(out, "slow: %s, %s by %s\n", n->name, n->op->name, s->group[i].fallback);
    }
}

static bool is_quick(const struct selection *s, int group)
{
    return s->group[group].fallback && !s->group[group].slow;
}

static bool same_fallback(const struct selection *s, int a, int b)
{
    return is_quick(s, a) && is_quick(s, b) && node_of(s, a)->op == node_of(s, b)->op &&
           !strcmp(s->group[a].fallback, s->group[b].fallback);
}

/* The other fallback kernels, which estimates do not count as slow. Equal ones of an operator share a line. */
static void quick_text(const struct selection *s, struct text *out)
{
    for (int i = 0; i < s->n_groups; i++) {
        int before = 0, behind = 0;
        for (int j = 0; j < i; j++) before += same_fallback(s, i, j);
        for (int j = i + 1; j < s->n_groups; j++) behind += same_fallback(s, i, j);
        if (!is_quick(s, i) || before) continue;
        text_add(out, "fallback: %s", node_of(s, i)->name);
        if (behind) text_add(out, " and %d more", behind);
        text_add(out, ", %s by %s\n", node_of(s, i)->op->name, s->group[i].fallback);
    }
}

static void fallbacks(const struct selection *s, struct text *out)
{
    size_t before = out->n;
    plan_slow_text(s, out);
    quick_text(s, out);
    if (out->n > before) text_add(out, "\n");
}

/* Fallback kernels that are slow, or those that are not. */
static json_t *fallbacks_json(const struct selection *s, bool slow)
{
    json_t *list = json_array();
    for (int i = 0; i < s->n_groups; i++)
        if (s->group[i].fallback && s->group[i].slow == slow)
            json_array_append_new(list, json_pack("{s:s,s:s,s:s}", "layer", node_of(s, i)->name, "operator",
                                                  node_of(s, i)->op->name, "reason", s->group[i].fallback));
    return list;
}

/* A time unit that suits the step, in columns of 8. */
static void time_table(const struct plan *p, const struct sim *s, struct text *out)
{
    static const struct { const char *head; enum account part; } column[] = {
        {"forward", ACC_FORWARD}, {"in.grad", ACC_INPUT_GRAD}, {"wt.grad", ACC_WEIGHT_GRAD},
        {"recomp.", ACC_RECOMPUTE}, {"optim.", ACC_OPTIMIZER}, {"transf.", ACC_TRANSFER}, {"load", ACC_LOAD},
        {"waiting", ACC_COUNT},
    };
    enum { COLUMNS = sizeof column / sizeof *column };
    struct text_unit u = text_unit(s->wall_ns * 1e-9);
    if (ranks_differ(p)) text_add(out, "of each rank:\n");
    text_right(out, 5, u.name);
    for (int i = 0; i < COLUMNS; i++) text_add(out, " %8s", column[i].head);
    text_add(out, "\n");
    for (int i = 0; i < p->n_ranks; i++) {
        const struct sim_stage *t = &s->rank[i];
        text_add(out, "%5d", i);
        for (int j = 0; j < COLUMNS; j++) {
            double ns = column[j].part < ACC_COUNT ? t->part[column[j].part] : s->wall_ns - sim_busy(t);
            if (column[j].part == ACC_LOAD) ns += t->part[ACC_FETCH];
            text_add(out, " %8.3f", ns > 0 ? ns * 1e-9 / u.seconds : 0.0);
        }
        text_add(out, "\n");
    }
    text_add(out, "\n");
}

/* Where what lies outside the device of a rank is. */
static const char *outside_text(const struct placement *pl, int rank, char buf[80])
{
    char b[32];
    if (!pl->host_bytes[rank]) return "on disk";
    if (pl->host_bytes[rank] == pl->outside_bytes[rank]) return "in the host's memory";
    snprintf(buf, 80, "in %s of the host's memory, and on disk", text_bytes(pl->host_bytes[rank], b));
    return buf;
}

/* What of each rank's weights lies outside, and what moving them costs. */
static void files_table(const struct plan *p, const struct cost *k, const struct sim *s, struct text *out)
{
    char b[5][32], where[80];
    for (int r = 0; r < p->n_ranks; r++) {
        const struct weight_slots *of = &p->pl->slots[r];
        const struct stage_map *m = &p->pl->map;
        const bool grads = of->grad_bytes;
        size_t bytes = 0, n = 0;
        for (int i = 0; i < m->n_stages_of[r]; i++) {
            const int stage = m->stages_of[r][i];
            bytes += p->pl->slot_used[stage] + p->pl->slot_grads[stage];
            n += p->pl->slot_of[stage] >= 0;
        }
        if (!of->n) continue;
        const double rate = sim_outside_ns(k, p->pl, r), ns = rate * (double)s->rank[r].fetched,
                     waits = s->rank[r].part[ACC_FETCH];
        text_add(out, "rank %d: %s of %zu of %d stages, %s, lie %s; %d slots of %s. A step %s %s in %s at %.2f "
                 "GB/s", r, grads ? "weights and their gradients" : "frozen weights", n,
                 m->n_stages_of[r], text_bytes(bytes, b[0]), outside_text(p->pl, r, where), of->n,
                 text_bytes(of->bytes + of->grad_bytes, b[1]),
                 grads ? "reads and writes" : "reads", text_bytes(s->rank[r].fetched, b[2]),
                 text_seconds(ns * 1e-9, b[3]), 1 / rate);
        if (!s->rank[r].moved) text_add(out, ", and waits %s of that", text_seconds(waits * 1e-9, b[4]));
        text_add(out, "\n");
    }
}

/* What of each rank's optimizer state lies outside, and what moving it costs. */
static void moved_table(const struct plan *p, const struct cost *k, const struct sim *s, struct text *out)
{
    char b[4][32], where[80];
    for (int r = 0; r < p->n_ranks; r++) {
        const struct state_file *f = &p->pl->state_file[r];
        const double rate = sim_outside_ns(k, p->pl, r), ns = rate * (double)s->rank[r].moved;
        if (!s->rank[r].moved) continue;
        text_add(out, "rank %d: the optimizer's state, %s, lies %s; memory has %d parts of %s. An update reads "
                 "and writes it%s in %s at %.2f GB/s", r, text_bytes(f->all, b[0]), outside_text(p->pl, r, where), f->n,
                 text_bytes(f->place, b[1]), f->beside ? ", and weights," : "",
                 text_seconds(ns * 1e-9, b[2]), 1 / rate);
        text_add(out, ", and waits %s %s\n", text_seconds(s->rank[r].part[ACC_FETCH] * 1e-9, b[3]),
                 p->pl->slots[r].n ? "in all" : "of that");
    }
}

static void step_text(const struct plan *p, const struct cost *k, const struct sim *s, struct text *out)
{
    char b[2][32];
    double bound = plan_bound(p, k), above = s->wall_ns / bound - 1;
    cost_doubt(k->spread, k->origin, out);
    text_add(out, "simulated with %s costs:\n", k->origin);
    text_add(out, "step %s, %s samples/s\n", text_seconds(s->wall_ns * 1e-9, b[0]),
             text_number(p->req.batch / (s->wall_ns * 1e-9), b[1]));
    text_add(out, "bubble %.1f %% of wall time (idle / wall), %.1f %% of ideal time (idle / work)\n",
             100 * s->bubble_of_wall, 100 * s->bubble_of_ideal);
    text_add(out, "no schedule of this cut can beat %s; this one is %.1f %% above that\n",
             text_seconds(bound * 1e-9, b[0]), above > 1e-9 ? 100 * above : 0.0);
}

void plan_batch_text(const struct plan *p, struct text *out)
{
    int n = plan_micro_batches(p), of = p->pl->mesh.size[AXIS_DP];
    text_add(out, "batch %d in %d micro-batch%s of %d%s", p->req.batch, n, n == 1 ? "" : "es",
             n > 1 ? p->req.split : p->req.batch, n > 1 && p->req.batch % p->req.split ? " (the last is smaller)" : "");
    if (of > 1) text_add(out, ", %s%d on each of %d replicas", n % of ? "up to " : "", p->part[0].n_mb, of);
}

/* First and last layer, or the only one. */
static void stage_name(const struct plan *p, int i, struct text *out)
{
    const char *first, *last;
    plan_stage_ends(p, i, &first, &last);
    text_add(out, "%s", first);
    if (strcmp(first, last) != 0) text_add(out, " .. %s", last);
}

/* The layers of each stage. If a stage's names leave no space for the figures, these follow on the next line. */
static void layer_table(const struct plan *p, int columns, struct text *out)
{
    enum { FIGURES = 6 + 12 + 13, LEAST = 12 };
    bool differ = ranks_differ(p);
    int before = differ ? 12 : 7, space = columns - before - FIGURES, width = LEAST;
    if (space < LEAST) space = LEAST;
    struct stage_row all = {0};
    char b[32], rank[16] = " rank";
    struct text name = {0};
    for (int i = 0; i < p->n_stages; i++) {
        name.n = 0;
        stage_name(p, i, &name);
        if ((int)name.n <= space && (int)name.n > width) width = (int)name.n;
    }
    text_add(out, "%5s%s  %-*s%6s%12s%13s\n", "stage", differ ? rank : "", width, "layers", "count", "parameters",
             "mult-adds");
    for (int i = 0; i < p->n_stages; i++) {
        struct stage_row r = stage_row(p, i);
        name.n = 0;
        stage_name(p, i, &name);
        snprintf(rank, sizeof rank, "%5d", p->stage[i].rank);
        text_add(out, "%5d%s  ", i, differ ? rank : "");
        if ((int)name.n > space) text_add(out, "%s\n%*s", name.s, before, "");
        text_add(out, "%-*s", width, (int)name.n > space ? "" : name.s);
        text_add(out, "%6d%12lld%13s\n", r.layers, (long long)r.params, text_count((double)r.flops / 2, b));
        all.layers += r.layers;
        all.params += r.params;
        all.flops += r.flops;
    }
    text_add(out, "%5s  %-*s%6d%12lld%13s\n\n", "all", width + before - 7, "", all.layers, (long long)all.params,
             text_count((double)all.flops / 2, b));
    text_free(&name);
}

static void memory_table(const struct plan *p, const struct device_map *map, struct text *out)
{
    char b[5][32];
    text_add(out, "%5s %11s %11s %11s %11s %11s %10s\n", ranks_differ(p) ? "rank" : "stage", "weights",
             "gradients", "optimizer", "activations", "total", "in flight");
    for (int i = 0; i < p->n_ranks; i++) {
        struct rank_row r = rank_row(p, map, i);
        text_add(out, "%5d %11s %11s %11s %11s %11s %10d\n", i, text_bytes(r.weights, b[0]),
                 text_bytes(r.gradients, b[1]), text_bytes(r.optimizer, b[2]), text_bytes(r.activations, b[3]),
                 text_bytes(r.total, b[4]), r.in_flight);
    }
    text_add(out, "\n");
}

/* Where each rank's weights lie. */
static void places_table(const struct device_map *map, struct text *out)
{
    char b[4][32];
    if (!map || !map->bytes) return;
    text_add(out, "weights by place, and memory for those that pass through:\n%5s %11s %11s %11s %11s\n", "rank",
             "own", "host", "disk", "slots");
    for (int i = 0; i < map->n_ranks; i++)
        text_add(out, "%5d %11s %11s %11s %11s\n", i, text_bytes(map->bytes[i][ON_RANK], b[0]),
                 text_bytes(map->bytes[i][IN_HOST], b[1]), text_bytes(map->bytes[i][ON_DISK], b[2]),
                 text_bytes(map->slots[i], b[3]));
    text_add(out, "\n");
}

static json_t *device_map_json(const struct device_map *map)
{
    json_t *o = json_object();
    for (int i = 0; i < map->m->n; i++) {
        const int at = map->at[i];
        if (at == AT_PARTS) continue;
        json_object_set_new(o, map->m->module[i].name, at >= 0 ? json_integer(at) :
                            json_string(at == AT_CPU ? "cpu" : "disk"));
    }
    return o;
}

static json_t *places_json(const struct device_map *map)
{
    json_t *list = json_array();
    for (int i = 0; i < map->n_ranks; i++)
        json_array_append_new(list, json_pack("{s:i,s:I,s:I,s:I,s:I}", "rank", i, "rank_bytes",
                                              (json_int_t)map->bytes[i][ON_RANK], "host_bytes",
                                              (json_int_t)map->bytes[i][IN_HOST], "disk_bytes",
                                              (json_int_t)map->bytes[i][ON_DISK], "slot_bytes",
                                              (json_int_t)map->slots[i]));
    return list;
}

/* Share of the head of a language model in the time of all kernels, and how many of its layers take as long; false: it
 * is none. */
static bool head_share(const struct plan *p, const struct cost *k, const char **name, double *share, double *layers)
{
    double head = 0, all = 0;
    int attentions = 0;
    for (int i = 0; i < p->sel->n_groups; i++) {
        const struct node *n = node_of(p->sel, i);
        double ns = 0;
        for (int ph = PH_FWD; ph < PH_COUNT; ph++)
            if (group_has_phase(&p->sel->group[i], (enum phase)ph)) ns += cost_ns(k, (enum phase)ph, i, p->req.split);
        all += ns;
        attentions += !strcmp(n->op->name, "attention");
        if (n->op->ignored) head = ns, *name = n->name;
    }
    *share = all > 0 ? head / all : 0;
    *layers = attentions && all > head ? head / (all - head) * attentions : 0;
    return *share > 0 && *layers > 0;
}

static void head_text(const struct plan *p, const struct cost *k, struct text *out)
{
    const char *name = "";
    double share, layers;
    if (head_share(p, k, &name, &share, &layers))
        text_add(out, "%s takes %.1f %% of the time of all kernels, as long as %.1f of the other layers\n", name,
                 100 * share, layers);
}

void plan_table(const struct plan *p, const struct cost *k, const struct device_map *map, int columns,
                struct text *out)
{
    enum { INDENT = 4 };
    struct sim *s = plan_simulate(p, k, NULL);
    struct text t = {0};
    text_add(&t, "%s, %d stage%s on %d rank%s, ", p->req.schedule, p->n_stages, p->n_stages == 1 ? "" : "s", p->n_ranks,
             p->n_ranks == 1 ? "" : "s");
    plan_batch_text(p, &t);
    text_add(&t, "\n\n");
    layer_table(p, columns, &t);
    memory_table(p, map, &t);
    places_table(map, &t);
    recompute_table(p, &t);
    fallbacks(p->sel, &t);
    if (s) time_table(p, s, &t);
    if (s) files_table(p, k, s, &t);
    if (s) moved_table(p, k, s, &t);
    if (s) step_text(p, k, s, &t);
    head_text(p, k, &t);
    text_fold(t.s, columns, INDENT, out);
    text_free(&t);
    sim_free(s);
}

/* For a rank with several stages, its first stage's row has the rank's numbers. */
static void rank_json(json_t *row, const struct plan *p, const struct device_map *map, int rank)
{
    struct rank_row r = rank_row(p, map, rank);
    json_t *more = json_pack("{s:I,s:I,s:I,s:I,s:I}", "weight_bytes", (json_int_t)r.weights, "gradient_bytes",
                             (json_int_t)r.gradients, "optimizer_bytes", (json_int_t)r.optimizer, "activation_bytes",
                             (json_int_t)r.activations, "peak_bytes", (json_int_t)r.total);
    json_object_update(row, more);
    json_decref(more);
}

static void stage_times(json_t *row, const struct sim_stage *t)
{
    for (int i = 0; i <= ACC_TRANSFER; i++) json_object_set_new(row, account_name[i], json_real(t->part[i] * 1e-9));
}

char *plan_json(const struct plan *p, const struct cost *k, const struct device_map *map)
{
    struct sim *s = plan_simulate(p, k, NULL);
    char hash[33];
    json_t *stages = json_array();
    plan_hash(p, hash);
    for (int i = 0; i < p->n_stages; i++) {
        struct stage_row r = stage_row(p, i);
        const char *first, *last;
        plan_stage_ends(p, i, &first, &last);
        int rank = p->stage[i].rank;
        bool stands = p->pl->map.stages_of[rank][0] == i;
        json_t *row = json_pack("{s:i,s:i,s:s,s:s,s:I,s:I}", "stage", i, "rank", rank, "first", first, "last", last,
                                "params", (json_int_t)r.params, "multiply_adds", (json_int_t)(r.flops / 2));
        if (stands) rank_json(row, p, map, rank);
        json_object_set_new(row, "in_flight", json_integer(p->stage[i].in_flight));
        json_t *recompute = json_array();
        const struct prog *run = &p->stage[i].prog[PROG_R];
        for (int j = 0; j < run->n; j++) json_array_append_new(recompute, json_string(call_name(p, &run->k[j])));
        json_object_set_new(row, "recomputed", recompute);
        if (s && stands) stage_times(row, &s->rank[rank]);
        const size_t outside = p->pl->slot_used[i] + p->pl->slot_grads[i];
        if (p->pl->slots[rank].n) json_object_set_new(row, "outside_bytes", json_integer((json_int_t)outside));
        if (stands && p->pl->host_bytes[rank])
            json_object_set_new(row, "host_bytes", json_integer((json_int_t)p->pl->host_bytes[rank]));
        if (s && stands && p->pl->slots[rank].n)
            json_object_set_new(row, "read_bytes", json_integer((json_int_t)s->rank[rank].fetched));
        if (s && stands && (p->pl->slots[rank].n || p->pl->state_file[rank].n))
            json_object_set_new(row, account_name[ACC_FETCH], json_real(s->rank[rank].part[ACC_FETCH] * 1e-9));
        if (stands && p->pl->state_file[rank].n)
            json_object_set_new(row, "optimizer_outside_bytes", json_integer((json_int_t)p->pl->state_file[rank].all));
        json_array_append_new(stages, row);
    }
    json_t *rows = json_array();
    for (int r = 0; r < p->n_ranks; r++) {
        struct text t = {0};
        char one[32];
        for (int i = 0; i < p->row_n[r]; i++) text_add(&t, "%s%s", i ? " " : "", act_text(p, &p->row[r][i], one));
        json_array_append_new(rows, json_string(t.s ? t.s : ""));
        text_free(&t);
    }
    json_t *all = json_pack("{s:s,s:i,s:i,s:i,s:s,s:s,s:f,s:f,s:o,s:o}", "schedule", p->req.schedule, "batch_size",
                            p->req.batch, "split_size", p->req.split, "micro_batches", plan_micro_batches(p),
                            "plan_hash", hash, "costs", k->origin, "step_seconds", s ? s->wall_ns * 1e-9 : 0.0,
                            "bubble", s ? s->bubble_of_wall : 0.0, "stages", stages, "rows", rows);
    json_object_set_new(all, "bubble_of_ideal", json_real(s ? s->bubble_of_ideal : 0));
    json_object_set_new(all, "slow", fallbacks_json(p->sel, true));
    json_object_set_new(all, "stand_ins", fallbacks_json(p->sel, false));
    json_object_set_new(all, "replicas", json_integer(p->pl->mesh.size[AXIS_DP]));
    json_object_set_new(all, "backend", json_string(p->sel->dev.backend));
    json_object_set_new(all, "precision", json_string(select_precision(&p->sel->dev)));
    const char *name;
    double share, layers;
    if (head_share(p, k, &name, &share, &layers)) json_object_set_new(all, "head_share", json_real(share));
    if (k->spread > 0) json_object_set_new(all, "profile_spread", json_real(k->spread));
    json_object_set_new(all, "bound_seconds", json_real(plan_bound(p, k) * 1e-9));
    if (map) json_object_set_new(all, "device_map", device_map_json(map));
    if (map && map->bytes) json_object_set_new(all, "places", places_json(map));
    char *text = json_dumps(all, JSON_INDENT(2));
    json_decref(all);
    sim_free(s);
    return text;
}
