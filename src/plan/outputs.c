/* Outputs of a plan: which tensors, and their places. */
#include "plan/plan_int.h"

static void output_add(struct plan *p, int tensor)
{
    for (int i = 0; i < p->n_outputs; i++) if (p->output[i].tensor == tensor) return;
    p->output[p->n_outputs++] = (struct output){.tensor = tensor};
}

/* Their places are known when the outputs are lowered. */
void plan_outputs_list(struct plan *p, const struct plan_request *r)
{
    struct scores s;
    graph_scores(p->sel->g, &s);
    p->output = arena_alloc(p->mem, (size_t)(s.n + r->n_outputs + 1) * sizeof *p->output);
    for (int i = 0; i < s.n; i++) output_add(p, s.of[i].tensor);
    for (int i = 0; i < r->n_outputs; i++) output_add(p, r->output[i]);
}

/* Only the output of a kernel has a place. */
int plan_outputs_check(const struct selection *s, const struct plan_request *r, struct err *e)
{
    const struct graph *g = s->g;
    for (int i = 0; i < r->n_outputs; i++) {
        const struct tensor *t = r->output[i] >= 0 && r->output[i] < g->n_tensors ? &g->tensor[r->output[i]] : NULL;
        if (!t) return err_set(e, E_INTERNAL, "output %d: there is no such tensor", r->output[i]);
        if (t->producer < 0) return err_set(e, E_CONF, "\"%s\" is an input of the network, not an output", t->name);
        const struct group *k = &s->group[s->group_of[t->producer]];
        const struct tensor *out = &g->tensor[k->out];
        if (!group_makes(k, r->output[i]))
            return err_set(e, E_CONF, "\"%s\" cannot be an output: one kernel makes and uses it; \"%s\" can, which is "
                                      "computed from it", t->name, out->name);
    }
    if (g->loss >= 0 || (r->mode == PLAN_EVAL && r->n_outputs)) return 0;
    return err_set(e, E_CONF, "network \"%s\" has no loss", g->name);
}

bool plan_is_output(const struct plan *p, int t)
{
    for (int i = 0; i < p->n_outputs; i++) if (p->output[i].tensor == t) return true;
    return false;
}

void lower_outputs(struct lower *w)
{
    for (int i = 0; i < w->p->n_outputs; i++) {
        struct output *o = &w->p->output[i];
        o->stage = w->stage_of_group[group_making(w, o->tensor)];
        o->rank = w->p->stage[o->stage].rank;
        o->at = w->p->stage[o->stage].act_place[o->tensor];
    }
}
