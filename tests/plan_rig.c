#include <check.h>
#include <string.h>
#include "plan_rig.h"
#include "rig_graphs.h"

struct graph *rig_graph(const char *text)
{
    struct err e = {0};
    struct graph *g = graph_parse("test", text, strlen(text), &e);
    ck_assert_msg(g != NULL, "%s", e.text);
    return g;
}

struct graph *rig_chain(int n)
{
    struct text t = {0};
    text_add(&t, "graph chain\ninput input 4\nlabels labels class\n");
    for (int i = 0; i < n; i++) {
        text_add(&t, "l%d = linear(", i);
        if (i) text_add(&t, "l%d", i - 1);
        else text_add(&t, "input");
        text_add(&t, ") features=4 layer=Linear\n");
    }
    text_add(&t, "loss = mse(l%d, labels)\nloss loss\noutput l%d\n", n - 1, n - 1);
    struct graph *g = rig_graph(t.s);
    text_free(&t);
    return g;
}

struct made made_cut(struct placement_request q, struct graph *g, const struct device *d, struct plan_request r)
{
    struct made m = {.g = g};
    int even[33];
    q.sel = m.s = select_make(g, d, r.split, &m.e);
    for (int i = 0; i <= q.n_stages; i++) even[i] = i * m.s->n_groups / q.n_stages;
    if (!q.first_group) q.first_group = even;
    if (!q.buffers.n) q.buffers = rig_buffers(1);
    q.groups = r.groups;
    m.pl = placement_make(&q, &m.e);
    if (m.pl) m.p = plan_make(m.s, m.pl, &r, &m.e);
    return m;
}

struct made made_make(struct graph *g, const struct device *d, int stages, const int *cut, struct plan_request r)
{
    return made_cut((struct placement_request){.n_stages = stages, .mesh = {{stages}}, .first_group = cut}, g, d, r);
}

struct made made_on(struct graph *g, const struct device *d, int stages, int ranks, const int *rank_of,
                    struct plan_request r)
{
    return made_cut((struct placement_request){.n_stages = stages, .mesh = {{ranks}}, .rank_of = rank_of}, g, d, r);
}

void made_free(struct made *m)
{
    plan_free(m->p);
    placement_free(m->pl);
    select_free(m->s);
    graph_free(m->g);
}

void side_make(struct control *x, struct placement_request where, const char *graph, int n, struct plan_request q)
{
    *x = (struct control){.n = n};
    where.mesh.size[AXIS_DP] = n;
    for (q.dp = 0; q.dp < n; q.dp++) {
        struct made *m = &x->m[q.dp];
        *m = made_cut(where, rig_graph(graph), &rig_plain, q);
        ck_assert_msg(m->p != NULL, "%s", m->e.text);
        x->p[q.dp] = m->p;
    }
}

void control_free(struct control *x) { for (int i = 0; i < x->n; i++) made_free(&x->m[i]); }

struct plan_request rig_request(const char *schedule, int batch, int split, enum backward_mode backward)
{
    return (struct plan_request){.mode = PLAN_TRAIN, .schedule = schedule, .batch = batch, .split = split,
                                 .backward = backward, .batch_norm = STATS_MICRO};
}
