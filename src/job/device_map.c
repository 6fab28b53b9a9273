/* From a configuration to a device map, and from that to stages and bytes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/suggest.h"
#include "job/device_map.h"
#include "model/decoder.h"
#include "plan/part.h"

/* ---- modules --------------------------------------------------------------------------------- */

static const struct node *first_user(const struct graph *g, int param) { return &g->node[g->param[param].use_node[0]]; }

static bool counts(const struct job *j, const struct param *p)
{
    return p->kind != PARAM_CACHE && (p->base || !conf_adapts(j->conf));
}

/* Modules of a network that is no decoder: its layers with weights, as stored. */
static struct modules *network_modules(const struct job *j)
{
    const struct graph *g = j->graph;
    struct modules *m = modules_new(NULL);
    for (int i = 0; i < g->n_params; i++) {
        const struct node *n = first_user(g, i);
        const uint64_t bytes = format_bytes(&j->sel->param[i], &g->param[i].shape);
        if (counts(j, &g->param[i])) modules_add(m, n->name, n->layer, bytes);
    }
    for (int i = 0; i < g->n_containers; i++)
        if (modules_find(m, g->container[i].name) > 0) modules_add(m, g->container[i].name, g->container[i].layer, 0);
    for (int i = 0; i < g->n_params; i++)
        for (int k = 1; counts(j, &g->param[i]) && k < g->param[i].n_uses; k++) {
            const struct node *n = &g->node[g->param[i].use_node[k]];
            const int at = modules_add(m, n->name, n->layer, 0), of = modules_find(m, first_user(g, i)->name);
            if (at == of) continue;
            m->module[at].shares = of;
            m->module[at].shared = format_bytes(&j->sel->param[i], &g->param[i].shape);
        }
    modules_finish(m);
    return m;
}

static bool module_named(const struct modules *m, const char *entry)
{
    for (int i = 1; i < m->n; i++)
        if (!strcmp(m->module[i].name, entry) || (m->module[i].layer && !strcmp(m->module[i].layer, entry)))
            return true;
    return false;
}

static int no_split_find(const struct conf *c, const struct modules *m, struct err *e)
{
    for (int i = 0; i < c->pipeline.no_split.n; i++) {
        const char *entry = c->pipeline.no_split.v[i];
        char hint[SUGGEST_TEXT];
        if (module_named(m, entry)) continue;
        struct suggest near = suggest_begin(entry, strlen(entry));
        for (int k = 1; k < m->n; k++) {
            const char *layer = m->module[k].layer;
            suggest_try(&near, m->module[k].name, strlen(m->module[k].name), 0);
            if (layer) suggest_try(&near, layer, strlen(layer), 0);
        }
        return conf_error(c, "pipeline.no_split", e, "the network has no module or class \"%s\"%s", entry,
                          suggest_text(&near, "", hint));
    }
    return 0;
}

/* ---- the map --------------------------------------------------------------------------------- */

enum map_use { MAP_NONE, MAP_SHOWN, MAP_CUTS };

/* With host memory beside CPUs, stages are those of the map. Where weights may lie outside in a run, the map is only
 * shown, as such a plan has its own stages. -1: there is no such map. */
static int map_use(const struct job *j, struct err *e)
{
    const struct conf *c = j->conf;
    const enum partition_word p = c->pipeline.partition;
    const bool by_bytes = p == PART_sequential || p == PART_balanced || p == PART_balanced_low_0,
               known = by_bytes || p == PART_auto || j->mesh.size[AXIS_PP] == 1;
    if (c->pipeline.host_memory.n ? j->be->stream != NULL : c->pipeline.disk != NULL)
        return known && c->pipeline.max_memory.n ? MAP_SHOWN : MAP_NONE;
    if (!c->pipeline.host_memory.n)
        return by_bytes && c->pipeline.count_bytes == COUNT_WEIGHTS && decoder_is(c) && !j->rank_of ? MAP_CUTS
                                                                                                    : MAP_NONE;
    if (j->rank_of)
        return conf_error(c, "pipeline.host_memory", e, "takes one stage a rank, and schedule \"%s\" has %d on %d "
                          "ranks", c->pipeline.schedule, j->n_stages, j->mesh.size[AXIS_PP]);
    if (known) return MAP_CUTS;
    return conf_error(c, "pipeline.host_memory", e, "takes pipeline.partition = auto, balanced, balanced_low_0 or "
                      "sequential, not %s", conf_word(c, "pipeline.partition"));
}

static int map_make(const struct job *j, struct device_map *t, struct err *e)
{
    const struct conf *c = j->conf;
    const struct conf_ints *host = &c->pipeline.host_memory;
    uint64_t *limit = mem_alloc((size_t)t->n_ranks * sizeof *limit);
    const int bad = part_limits(c, j->free_bytes, t->n_ranks, limit, e);
    const struct device_map_request q = {
        .m = t->m, .no_split = &c->pipeline.no_split, .n_devices = t->n_ranks, .limit = limit,
        .has_host = host->n, .host = host->n ? (uint64_t)host->v[0] : 0,
        .balance = c->pipeline.partition != PART_sequential, .low_zero = c->pipeline.partition == PART_balanced_low_0};
    if (!bad) t->at = device_map_make(&q);
    free(limit);
    return bad;
}

/* The first module on disk, and the bytes of all; NULL: none. */
static const char *first_on_disk(const struct device_map *t, uint64_t *bytes)
{
    const char *first = NULL;
    *bytes = 0;
    for (int i = 0; i < t->m->n; i++) {
        if (t->at[i] != AT_DISK) continue;
        if (!first) first = *t->m->module[i].name ? t->m->module[i].name : "the network";
        *bytes += t->m->module[i].bytes;
    }
    return first;
}

int job_map_find(struct job *j, bool *cuts, struct err *e)
{
    const int use = map_use(j, e);
    *cuts = use == MAP_CUTS;
    if (use <= MAP_NONE) return use;
    struct device_map *t = j->map = mem_alloc(sizeof *t);
    uint64_t bytes;
    char b[32];
    t->n_ranks = j->mesh.size[AXIS_PP];
    t->m = decoder_is(j->conf) ? decoder_modules(j->conf, e) : network_modules(j);
    if (!t->m || no_split_find(j->conf, t->m, e) || map_make(j, t, e)) return -1;
    const char *first = first_on_disk(t, &bytes);
    if (!first || j->conf->pipeline.disk) return 0;
    if (j->conf->pipeline.host_memory.n && *cuts)
        return conf_error(j->conf, "pipeline.host_memory", e, "%s of weights, from %s on, fit neither there nor on the "
                          "ranks; raise it or pipeline.max_memory, or set pipeline.disk", text_bytes(bytes, b), first);
    job_map_free(t);                                      /* the policy cuts, and limits are checked later */
    j->map = NULL;
    *cuts = false;
    return 0;
}

/* ---- stages ---------------------------------------------------------------------------------- */

/* Does a node have only weights that count elsewhere, as a tied head does? */
static bool shares_only(const struct graph *g, int node)
{
    const struct node *n = &g->node[node];
    for (int i = 0; i < n->n_param; i++) if (g->param[n->param[i]].use_node[0] == node) return false;
    return n->n_param > 0;
}

/* The earliest place of a group's weights; `last` where they are on no rank; AT_PARTS: it has none. */
static int place_of_group(const struct job *j, const struct group *k, int last)
{
    int earliest = AT_PARTS;
    for (int i = 0; i < k->n_nodes; i++) {
        const int place = device_map_find(j->map->m, j->map->at, j->graph->node[k->node[i]].name);
        if (place == AT_PARTS || shares_only(j->graph, k->node[i])) continue;
        const int rank = place < 0 ? last : place;
        if (earliest == AT_PARTS || rank < earliest) earliest = rank;
    }
    return earliest;
}

/* Groups run in the order of the graph, which may differ from that of modules: a group is never on a later rank than
 * one behind it. Groups without a place go with the one before. */
void job_map_cut(const struct job *j, int *first_group)
{
    const int n = j->sel->n_groups, last = j->n_stages - 1;
    int *stage = mem_alloc((size_t)n * sizeof *stage), now = last;
    for (int g = n - 1; g >= 0; g--) {
        const int place = place_of_group(j, &j->sel->group[g], last);
        if (place != AT_PARTS && place < now) now = place;
        stage[g] = place == AT_PARTS ? AT_PARTS : now;
    }
    for (int g = 0, s = 0; g < n; g++) {
        if (stage[g] != AT_PARTS) now = stage[g];
        for (; s <= now; s++) first_group[s] = g;
        if (g == n - 1) for (; s <= j->n_stages; s++) first_group[s] = n;
    }
    free(stage);
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static enum weight_place place_of_param(const struct job *j, int param)
{
    const struct param *p = &j->graph->param[param];
    if (p->kind != PARAM_WEIGHT || !counts(j, p)) return ON_RANK;
    const int place = device_map_find(j->map->m, j->map->at, first_user(j->graph, param)->name);
    return place == AT_CPU ? IN_HOST : place == AT_DISK ? ON_DISK : ON_RANK;
}

/* Two of the largest group's weights. */
static void slots_count(const struct job *j, struct device_map *t)
{
    for (int g = 0; g < j->sel->n_groups; g++) {
        const struct group *k = &j->sel->group[g];
        const int rank = j->pl->map.rank_of[j->pl->stage_of_group[g]];
        uint64_t bytes = 0;
        for (int i = 0; i < k->n_param; i++)
            if (t->of_param[k->param[i]] != ON_RANK) bytes += j->pl->state[k->param[i]].bytes;
        if (2 * bytes > t->slots[rank]) t->slots[rank] = 2 * bytes;
    }
}

int job_map_count(struct job *j, struct err *e)
{
    bool cuts;
    if (!j->map && job_map_find(j, &cuts, e)) return -1;  /* stages that are cut otherwise */
    struct device_map *t = j->map;
    if (!t || !j->conf->pipeline.host_memory.n || j->be->stream) return 0;
    t->of_param = mem_alloc((size_t)(j->graph->n_params + 1) * sizeof *t->of_param);
    t->bytes = mem_alloc((size_t)t->n_ranks * sizeof *t->bytes);
    t->slots = mem_alloc((size_t)t->n_ranks * sizeof *t->slots);
    for (int i = 0; i < j->graph->n_params; i++) {
        const struct state_row *row = &j->pl->state[i];
        const enum weight_place place = t->of_param[i] = place_of_param(j, i);
        if (row->trained && place != ON_RANK)
            return conf_error(j->conf, place == IN_HOST ? "pipeline.host_memory" : "pipeline.disk", e, "%s does not "
                              "fit pipeline.max_memory, but is trained, so it must; freeze it with train.freeze, train "
                              "adapters with lora, or raise the limit", row->name);
        for (int r = 0; r < t->n_ranks; r++) if (row->off[r] != STATE_NOWHERE) t->bytes[r][place] += row->bytes;
    }
    slots_count(j, t);
    return 0;
}

int job_map_run_check(const struct job *j, struct err *e)
{
    uint64_t away = 0;
    char b[32];
    for (int r = 0; j->map && j->map->bytes && r < j->map->n_ranks; r++)
        away += j->map->bytes[r][IN_HOST] + j->map->bytes[r][ON_DISK];
    if (!away || j->supposes) return 0;
    return conf_error(j->conf, "pipeline.host_memory", e, "%s of weights do not fit pipeline.max_memory; where they "
                      "would lie is only planned (--plan); a run needs a higher limit, more ranks, or pipeline.disk "
                      "alone", text_bytes(away, b));
}

void job_map_free(struct device_map *t)
{
    if (!t) return;
    modules_free(t->m);
    free(t->at); free(t->bytes); free(t->slots); free(t->of_param);
    free(t);
}
