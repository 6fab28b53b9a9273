/* What a run has to do, in numbers: samples, steps, epochs, parameters and FLOPs. */
#include <string.h>
#include "job/job.h"

/* Short batches have a plan of their own (PLAN_SHORT), so all must have one size: not if epochs differ. */
struct feed_order job_order(const struct job *j)
{
    const struct conf *c = j->conf;
    enum last_batch last = c->train.last_batch;
    const struct ds *d = j->data[DS_TRAIN], *of = ds_epochs_of(d);
    const bool fills = (d && d->endless) || last == LAST_BATCH_FILL || of;
    return (struct feed_order){.seed = (uint64_t)c->run.seed, .count = j->count[DS_TRAIN], .shuffle = c->data.shuffle,
                               .end = fills ? FEED_FILL : last == LAST_BATCH_DROP ? FEED_DROP : FEED_SHORT, .of = of};
}

static void samples_note(const struct job *j, struct text *out)
{
    const struct feed_order o = job_order(j);
    unsigned long long n = o.count, batch = (unsigned long long)j->conf->train.batch_size;
    if (j->conf->run.evaluate || !n) return;
    if (n < batch)
        text_add(out, "note: there %s %llu training sample%s, fewer than train.batch_size = %llu: each batch has %s\n",
                 n == 1 ? "is" : "are", n, n == 1 ? "" : "s", batch,
                 o.of ? "samples of several epochs" : n == 1 ? "it alone" : "all of them");
    else if (o.end == FEED_DROP && n % batch)
        text_add(out, "note: each epoch leaves out %llu of %llu training samples%s (train.last_batch = \"drop\")\n",
                 n % batch, n, o.shuffle ? "" : ", always the last ones");
}

/* Networks of other programs often end with what their loss here has, too. */
static void loss_note(const struct job *j, struct text *out)
{
    const struct graph *g = j->graph;
    const int loss = g->loss < 0 ? -1 : g->tensor[g->loss].producer;
    int last = g->tensor[g->output].producer;
    while (last >= 0 && !strcmp(g->node[last].op->name, "flatten")) last = g->tensor[g->node[last].in[0]].producer;
    if (loss < 0 || last < 0 || j->conf->run.evaluate) return;
    const struct op_kind *k = g->node[loss].op;
    const char *own = k->probabilities ? "softmax" : k->logits ? "sigmoid" : "";
    const struct attr_value *logs = node_attr(&g->node[last], "log");   /* whose softmax is the same */
    if (!strcmp(g->node[last].op->name, own) && !(logs && logs->i[0]))
        text_add(out, "note: the network ends with \"%s\", a %s, and the loss %s applies another one\n",
                 g->node[last].name, own, k->name);
}

void job_notes(const struct job *j, struct text *out)
{
    samples_note(j, out);
    loss_note(j, out);
}

double job_flops(const struct job *j)
{
    double all = 0;
    for (int i = 0; i < j->sel->n_groups; i++) {
        const struct group *k = &j->sel->group[i];
        double forward = 0;
        for (int n = 0; n < k->n_nodes; n++) forward += (double)graph_flops(j->graph, k->node[n]);
        bool weights = k->pgrad_in_b || k->pgrad_in_w;
        int backward = (k->grad_in ? k->n_param ? 1 : 2 : 0) + weights;   /* both factors of attention are inputs */
        all += forward * (1 + backward);
    }
    return all;
}

int64_t job_tokens(const struct job *j)
{
    const struct graph *g = j->graph;
    for (int i = 0; i < g->n_inputs; i++)
        if (graph_input_ignored(g, g->input[i].tensor)) return shape_count(&g->tensor[g->input[i].tensor].shape);
    return 0;
}

double job_token_flops(const struct job *j) { return job_tokens(j) ? job_flops(j) / (double)job_tokens(j) : -1; }

int64_t job_parameters(const struct job *j, bool trained)
{
    int64_t n = 0;
    for (int i = 0; i < j->graph->n_params; i++) {
        const struct param *p = &j->graph->param[i];
        if (p->kind == PARAM_WEIGHT && !(trained && p->frozen)) n += shape_count(&p->shape);
    }
    return n;
}

uint64_t job_steps(const struct job *j)
{
    const struct conf *c = j->conf;
    const struct feed_order o = job_order(j);
    if (c->run.evaluate) return 0;
    if (c->train.steps > 0) return (uint64_t)c->train.steps;
    return feed_batches(&o, (int)c->train.batch_size, (uint64_t)c->train.epochs);
}

uint64_t job_epochs(const struct job *j, uint64_t steps)
{
    const struct feed_order o = job_order(j);
    return feed_epochs(&o, (int)j->conf->train.batch_size, steps);
}
