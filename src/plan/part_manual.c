/* manual: each stage section names its first and last layer; together they cover the network in order. A name means
 * everything below it: "layer2" is layer2.0.conv1 and so on. The loss belongs to the last stage. */
#include <string.h>
#include "plan/part.h"

/* The node of that name, or the first or last node below it, or -1: layer1.0.relu is one use of that ReLU,
 * layer1.0.relu.2 another. */
static int layer_find(const struct graph *g, const char *layer, bool last)
{
    int found = -1;
    for (int i = 0; i < g->n_nodes; i++) {
        if (!layer_covers(layer, g->node[i].name)) continue;
        if (!last || !strcmp(layer, g->node[i].name)) return i;
        found = i;
    }
    return found;
}

static int section_error(const struct conf *c, int line, struct err *e, const char *fmt, const char *a, const char *b)
{
    err_set(e, E_CONF, fmt, a, b);
    return line > 0 ? err_where(e, "%s:%d", c->file, line) : err_where(e, "%s", c->file);
}

static int no_layer(const struct conf *c, const struct graph *g, int line, const char *layer, struct err *e)
{
    char hint[SUGGEST_TEXT];
    struct suggest near = suggest_begin(layer, strlen(layer));
    for (int i = 0; i < g->n_nodes; i++) layer_names_try(&near, g->node[i].name);
    return section_error(c, line, e, "the network has no layer \"%s\"%s", layer, suggest_text(&near, "", hint));
}

/* The first group of section i's stage. */
static int section_cut(const struct selection *s, const struct conf *c, int i, int *last_node, struct err *e)
{
    const struct graph *g = s->g;
    const struct conf_stage *st = &c->pipeline.stage[i];
    int first = layer_find(g, st->first, false), last = layer_find(g, st->last, true);
    if (first < 0) return no_layer(c, g, st->line, st->first, e);
    if (last < 0) return no_layer(c, g, st->line, st->last, e);
    if (last < first)
        return section_error(c, st->line, e, "layer \"%s\" comes after layer \"%s\"", st->first, st->last);
    /* nodes that are no layers (flatten) stay with the layer before them */
    while (*last_node + 1 < first && !g->node[*last_node + 1].layer) ++*last_node;
    if (first > *last_node + 1)
        return section_error(c, st->line, e, "layer \"%s\" before \"%s\" belongs to no stage",
                             g->node[*last_node + 1].name, st->first);
    if (first <= *last_node)
        return section_error(c, st->line, e, "layer \"%s\" already belongs to the stage before%s", st->first, "");
    *last_node = last;
    int k = s->group_of[first];
    for (int n = 0; n < first; n++)
        if (s->group_of[n] == k)
            return section_error(c, st->line, e, "cannot cut between \"%s\" and \"%s\": one kernel serves both",
                                 g->node[n].name, st->first);
    for (int n = 0; n <= last; n++)                         /* kernels may run in another order than layers */
        if ((s->group_of[n] >= k) != (n >= first))
            return section_error(c, st->line, e,
                                 "cannot cut before \"%s\": its kernel runs in another order with that of \"%s\"; cut "
                                 "elsewhere in this block, or let partition auto cut",
                                 st->first, g->node[n].name);
    return k;
}

static int manual_split(const struct part_request *q, int *first_group, struct err *e)
{
    const struct selection *s = q->sel;
    const struct conf *c = q->conf;
    const struct graph *g = s->g;
    int last_node = -1, n_stages = q->n_stages;
    if (n_stages != c->pipeline.n_stages)
        return conf_error(c, "pipeline.stages", e, "%d stage%s, but %d stage section%s", n_stages,
                          n_stages == 1 ? "" : "s", c->pipeline.n_stages, c->pipeline.n_stages == 1 ? "" : "s");
    for (int i = 0; i < n_stages; i++) {
        first_group[i] = section_cut(s, c, i, &last_node, e);
        if (first_group[i] < 0) return -1;
        if (i && first_group[i] <= first_group[i - 1])
            return section_error(c, c->pipeline.stage[i].line, e,
                                 "the stage of \"%s\" is empty: one kernel serves it and the layer before%s",
                                 c->pipeline.stage[i].first, "");
    }
    while (last_node + 1 < g->n_nodes && (g->node[last_node + 1].op->is_loss || !g->node[last_node + 1].layer))
        last_node++;
    if (last_node + 1 < g->n_nodes)
        return section_error(c, c->pipeline.stage[n_stages - 1].line, e, "layer \"%s\" belongs to no stage%s",
                             g->node[last_node + 1].name, "");
    first_group[n_stages] = s->n_groups;
    return 0;
}

const struct part_kind part_manual = {"manual", "first and last layer of each stage as the stage sections say", false,
                                      manual_split};
