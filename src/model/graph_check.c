/* Checks a whole graph: all tensors are read, scores fit, the loss is last, trained weights have gradients. */
#include <string.h>
#include "model/graph_int.h"

/* All scores fit, and each has a unique name and existing columns. */
static int scores_check(struct graph_builder *b, const struct graph *g)
{
    struct scores s;
    int rows = 0;
    graph_scores(g, &s);
    for (int i = 0; i < g->n_nodes; i++) rows += op_rows(g, &g->node[i]);
    if (rows > s.n) return graph_fail(b, "the network has too many scores");
    for (int i = 0; i < s.n; i++) {
        const struct tensor *t = &g->tensor[s.of[i].tensor];
        int64_t columns = t->type == F64 && t->shape.n == 1 ? t->shape.d[0] : 0;
        if (s.of[i].numerator < 0 || s.of[i].numerator >= columns || s.of[i].denominator >= columns)
            return graph_fail(b, "\"%s\" has no column for \"%s\"", t->name, s.of[i].name);
        for (int k = 0; k < i; k++)
            if (!strcmp(s.of[k].name, s.of[i].name))
                return graph_fail(b, "\"%s\" is a second score \"%s\"", t->name, s.of[i].name);
    }
    return 0;
}

static int outputs_check(struct graph_builder *b, const struct graph *g)
{
    const struct node *loss = g->loss >= 0 && g->tensor[g->loss].producer >= 0 ? &g->node[g->tensor[g->loss].producer]
                                                                               : NULL;
    if (g->loss >= 0 && (!loss || !loss->op->is_loss)) return graph_fail(b, "the loss is not a loss operator");
    if (loss && (loss->in[0] != g->output || loss != &g->node[g->n_nodes - 1]))
        return graph_fail(b, "the loss \"%s\" must come last and read the output \"%s\"", loss->name,
                          g->tensor[g->output].name);
    if (loss && loss->n_in > 1 && g->tensor[loss->in[1]].producer >= 0)
        return graph_fail(b,
                          "the loss compares with \"%s\", which the network computes: targets come with the samples",
                          g->tensor[loss->in[1]].name);
    for (int i = 0; i < g->n_inputs; i++) {
        const struct tensor *t = &g->tensor[g->input[i].tensor];
        if (b->file) b->line = g->input[i].line;
        if (!t->n_readers && g->input[i].role == ROLE_SAMPLE)
            return graph_fail(b, "nothing reads \"%s\"", t->name);
    }
    for (int i = 0; i < g->n_nodes; i++) {
        const struct node *n = &g->node[i];
        if (b->file) b->line = n->line;
        bool score = n->op->rows && !n->op->is_loss;
        bool used = score || b->predicts;
        for (int o = 0; o < n->n_out; o++)
            used |= g->tensor[n->outs[o]].n_readers > 0 || n->outs[o] == g->loss || n->outs[o] == g->output;
        if (!used)
            return graph_fail(b, "nothing reads \"%s\"", n->name);
        if (n->op->is_loss && n->out != g->loss) return graph_fail(b, "\"%s\" is a second loss", n->name);
    }
    return scores_check(b, g);
}

/* Trained weights have gradients: the loss depends on each of their uses. */
static int trained_check(struct graph_builder *b, const struct graph *g)
{
    for (int i = 0; i < g->n_nodes && g->loss >= 0; i++) {
        const struct node *n = &g->node[i];
        if (b->file) b->line = n->line;
        for (int k = 0; k < n->n_param && !graph_wants_grad(g, n); k++) {
            const struct param *p = &g->param[n->param[k]];
            if (p->kind == PARAM_CACHE) return graph_fail(b, "\"%s\" only generates: it cannot be trained", n->name);
            if (p->kind == PARAM_WEIGHT && !p->frozen)
                return graph_fail(b, "the loss does not depend on \"%s\": freeze %s", n->name, p->name);
        }
    }
    return 0;
}

int graph_check(struct graph_builder *b, const struct graph *g)
{
    return outputs_check(b, g) || trained_check(b, g) ? -1 : 0;
}
