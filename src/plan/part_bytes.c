/* Bytes of each layer, for the policies that place by bytes. These are sums over layers; plan_make computes the exact
 * bytes of a cut. */
#include <stdlib.h>
#include <string.h>
#include "plan/part.h"

/* Bytes of each parameter. training: with its gradient and optimizer state; otherwise its values only. */
static uint64_t *params_count(const struct part_request *q, bool training)
{
    const struct selection *s = q->sel;
    uint64_t *bytes = mem_alloc((size_t)(s->g->n_params + 1) * sizeof *bytes);
    uint64_t levels = (uint64_t)plan_levels(q->plan->groups, &q->mesh, q->sharing);
    uint64_t n_dp = (uint64_t)q->mesh.size[AXIS_DP];
    struct arena *mem = arena_new();
    struct state_row *row;
    int n = state_rows_make(mem, s, &q->buffers, &row);
    for (int i = 0; i < n; i++) {
        if (row[i].home == HOME_FILE) continue;
        bool weight = row[i].kind == STATE_WEIGHT && row[i].trained;
        bool shared = row[i].kind == STATE_OPTIMIZER && q->sharing.weights;
        if (training) bytes[row[i].param] += row[i].bytes * (weight ? 1 + levels : 1) / (shared ? n_dp : 1);
        else if (row[i].region == IN_PARAM) bytes[row[i].param] += state_plain_bytes(&row[i]);
    }
    arena_free(mem);
    return bytes;
}

static void fixed_count(const struct part_request *q, struct part_model *m, bool training)
{
    const struct selection *s = q->sel;
    uint64_t *bytes = params_count(q, training);
    for (int i = 0; i < s->n_groups; i++) {
        const struct group *k = &s->group[i];
        for (int j = 0; j < k->n_param; j++)
            if (training || k->use[j] == 0) m->leaf[i].fixed += bytes[k->param[j]];
        if (training) m->leaf[i].fixed += k->packed_bytes;
    }
    free(bytes);
}

static void kept_add(const struct plan *p, struct part_leaf *l, const struct place *at)
{
    if (at->space != SP_SLOT) return;
    const struct slot_class *k = &p->cls[at->cls];
    if (k->last != L_O) { l->kept += at->bytes; return; }
    l->fixed += at->bytes * (uint64_t)p->n_mb;           /* kept until the step ends, also what other pipelines send */
    for (int i = 0; i < p->pl->mesh.size[AXIS_DP] && k->copy; i++)
        if (i != p->req.dp) l->fixed += at->bytes * (uint64_t)p->part[i].n_mb;
}

/* A tensor belongs to the group that makes it; an input of the network belongs to its first reader. */
static int group_of_tensor(const struct selection *s, int t)
{
    const struct tensor *x = &s->g->tensor[t];
    int node = x->producer >= 0 ? x->producer : x->n_readers ? x->reader[0] : 0;
    return s->group_of[node];
}

/* Kept values of the uncut network, by layer. */
static int kept_count(const struct part_request *q, struct part_model *m, struct err *e)
{
    struct plan_request r = *q->plan;
    int whole[] = {0, q->sel->n_groups};
    struct part_request one = *q;
    one.n_stages = one.mesh.size[AXIS_PP] = 1;
    one.rank_of = NULL;
    r.schedule = r.mode == PLAN_TRAIN ? "gpipe" : "forward";
    struct placement *pl = part_place(&one, whole, e);
    struct plan *p = pl ? plan_make(q->sel, pl, &r, e) : NULL;
    for (int t = 0; p && t < q->sel->g->n_tensors; t++) {
        struct part_leaf *l = &m->leaf[group_of_tensor(q->sel, t)];
        kept_add(p, l, &p->stage[0].act_place[t]);
        kept_add(p, l, &p->stage[0].grad_place[t]);
    }
    for (int i = 0; p && i < m->n; i++) kept_add(p, &m->leaf[i], &p->stage[0].saved_place[i]);
    bool bad = !p;
    plan_free(p);
    placement_free(pl);
    return bad ? -1 : 0;
}

/* How many micro-batches the schedule keeps of each stage. This does not depend on the cuts. */
static int in_flight_count(const struct part_request *q, struct part_model *m, struct err *e)
{
    int *even = mem_alloc((size_t)(m->n_stages + 1) * sizeof *even);
    for (int i = 0; i <= m->n_stages; i++) even[i] = (int)((int64_t)i * m->n / m->n_stages);
    struct placement *pl = part_place(q, even, e);
    struct plan *p = pl ? plan_make(q->sel, pl, q->plan, e) : NULL;
    for (int i = 0; p && i < m->n_stages; i++) m->in_flight[i] = p->stage[i].in_flight;
    bool bad = !p;
    plan_free(p);
    placement_free(pl);
    free(even);
    return bad ? -1 : 0;
}

/* A name means a block or a layer; a class means all blocks of that class. */
static bool no_split_known(const struct graph *g, const char *entry)
{
    for (int i = 0; i < g->n_nodes; i++) {
        const struct node *n = &g->node[i];
        if (layer_covers(entry, n->name) || (n->layer && !strcmp(entry, n->layer))) return true;
    }
    for (int i = 0; i < g->n_containers; i++) if (!strcmp(entry, g->container[i].layer)) return true;
    return false;
}

static int no_block(const struct conf *c, const struct graph *g, const char *entry, struct err *e)
{
    char hint[SUGGEST_TEXT];
    struct suggest near = suggest_begin(entry, strlen(entry));
    for (int i = 0; i < g->n_nodes; i++) {
        layer_names_try(&near, g->node[i].name);
        if (g->node[i].layer) suggest_try(&near, g->node[i].layer, strlen(g->node[i].layer), 0);
    }
    for (int i = 0; i < g->n_containers; i++)
        suggest_try(&near, g->container[i].layer, strlen(g->container[i].layer), 0);
    return conf_error(c, "pipeline.no_split", e, "the network has no block or class \"%s\"%s", entry,
                      suggest_text(&near, "", hint));
}

static int no_split_check(const struct conf *c, const struct graph *g, struct err *e)
{
    const struct conf_texts *t = &c->pipeline.no_split;
    for (int i = 0; i < t->n; i++)
        if (!no_split_known(g, t->v[i])) return no_block(c, g, t->v[i], e);
    return 0;
}

/* The stages of a rank share its limit evenly. */
static int limits_share(const struct part_request *q, struct part_model *m, struct err *e)
{
    int n = q->mesh.size[AXIS_PP], *stages = mem_alloc((size_t)n * sizeof *stages);
    uint64_t *limit = mem_alloc((size_t)n * sizeof *limit);
    int bad = part_limits(q->conf, q->free_bytes, n, limit, e);
    for (int i = 0; i < m->n_stages; i++) stages[part_rank(q, i)]++;
    for (int i = 0; i < m->n_stages; i++) {
        int r = part_rank(q, i);
        m->limit[i] = limit[r] == PART_NO_LIMIT ? PART_NO_LIMIT : limit[r] / (uint64_t)stages[r];
    }
    free(stages); free(limit);
    return bad;
}

int part_model_make(const struct part_request *q, struct part_model *m, struct err *e)
{
    *m = (struct part_model){
        .g = q->sel->g, .no_split = &q->conf->pipeline.no_split, .n = q->sel->n_groups, .n_stages = q->n_stages};
    m->leaf = mem_alloc((size_t)m->n * sizeof *m->leaf);
    m->in_flight = mem_alloc((size_t)m->n_stages * sizeof *m->in_flight);
    m->limit = mem_alloc((size_t)m->n_stages * sizeof *m->limit);
    for (int i = 0; i < m->n; i++) m->leaf[i].name = q->sel->g->node[q->sel->group[i].node[0]].name;
    return no_split_check(q->conf, m->g, e) || limits_share(q, m, e) ? -1 : 0;
}

int part_model_count(const struct part_request *q, bool training, struct part_model *m, struct err *e)
{
    m->reserve = !training;
    fixed_count(q, m, training);
    return training && (kept_count(q, m, e) || in_flight_count(q, m, e)) ? -1 : 0;
}

void part_model_free(struct part_model *m)
{
    free(m->leaf); free(m->in_flight); free(m->limit);
    *m = (struct part_model){0};
}

int part_by_bytes(const struct part_request *q, bool balance, bool low_zero, int *first_group, struct err *e)
{
    struct part_model m;
    bool training = q->conf->pipeline.count_bytes != COUNT_WEIGHTS;
    int bad = part_model_make(q, &m, e) || part_model_count(q, training, &m, e) ? -1 : 0;
    if (!bad) {
        int *stage = mem_alloc((size_t)m.n * sizeof *stage);
        if (balance) part_balance(&m, low_zero);
        part_walk(&m, stage);
        for (int k = 0, i = 0; k <= m.n_stages; k++) {
            while (i < m.n && stage[i] < k) i++;
            first_group[k] = i;
        }
        free(stage);
    }
    part_model_free(&m);
    return bad;
}
