/* Brings outputs of evaluations to rank 0, for predictions, generation and confusion matrices: from the rank that has
 * the tensor, in the order of samples. The rank sends them before the report of their step. So when rank 0 has the
 * report, they have been sent. */
#include <stdlib.h>
#include "report/confusion.h"
#include "train/generation.h"
#include "report/predict.h"
#include "train/control_channel_int.h"

/* The plan's output that holds the tensor; -1: none. */
static int output_of(const struct plan *p, int tensor)
{
    for (int i = 0; i < p->n_outputs; i++) if (p->output[i].tensor == tensor) return i;
    return -1;
}

static const struct job *job_of(const struct control *s, const struct order *o)
{
    return order_interim(o) ? s->job->interim : s->job;
}
static struct values *values_of(struct control *s, const struct order *o) { return &s->values[order_interim(o)]; }

static void values_open(struct control *s, const struct job *j, struct values *v)
{
    if (!j || !j->n_plans || !job_wants(j)) return;
    for (int i = 0; i < j->n_plans; i++) {
        const struct plan *p = j->plan[i];
        if (output_of(p, j->output) >= 0) v->rank = p->output[output_of(p, j->output)].rank;
    }
    v->bytes = (size_t)shape_count(&j->graph->tensor[j->output].shape) * sizeof(float);
    int n = s->rank == 0 ? OPEN_RESULTS : s->rank == v->rank ? 1 : 0;
    for (int i = 0; i < n; i++) v->at[i] = mem_alloc(size_mul(v->bytes, (size_t)j->max_batch));
}

void eval_gather_open(struct control *s)
{
    values_open(s, s->job, &s->values[0]);
    values_open(s, s->job->interim, &s->values[1]);
}

void eval_gather_free(struct control *s)
{
    for (int k = 0; k < 2; k++) for (int i = 0; i < OPEN_RESULTS; i++) free(s->values[k].at[i]);
}

static bool brings(struct control *s, const struct order *o)
{
    return o->kind == ORDER_EVAL && values_of(s, o)->bytes && !(o->what & ORDER_ONLY_ENTERS);
}

int eval_gather_send(struct control *s, const struct order *o, struct err *e)
{
    const struct job *j = job_of(s, o);
    struct values *v = values_of(s, o);
    if (!brings(s, o) || s->rank != v->rank) return 0;
    int at = s->rank == 0 ? (int)(s->n_reports[0] % OPEN_RESULTS) : 0;
    int output = output_of(j->plan[o->plan], j->output);
    struct exec *runs = order_interim(o) ? interim_exec(s->interim) : s->exec;
    if (exec_output_get(runs, (int)o->plan, output, v->at[at], e)) return -1;
    return s->rank == 0 ? 0 : control_send(s, CONTROL_VALUES, v->at[at], (size_t)o->n * v->bytes, e);
}

int eval_gather_take(struct control *s, const struct coordinator *l, struct err *e)
{
    int at = (int)(s->first_open % OPEN_RESULTS);
    const struct order *o = &s->open[at]->o;
    struct values *v = values_of(s, o);
    if (!brings(s, o)) return 0;
    if (v->rank != 0 && control_recv(s, v->rank, CONTROL_VALUES, v->at[at], (size_t)o->n * v->bytes, e)) return -1;
    if (job_of(s, o)->prompts) return generation_rows(l->generation, v->at[at], e);
    if (!l->predict) return l->confusion ? confusion_rows(l->confusion, v->at[at], o->n, o->position, e) : 0;
    control_elsewhere(s, SHUTDOWN_EVALUATION, "writing predictions");
    if (predict_rows(l->predict, v->at[at], o->n, o->position, e)) return -1;
    control_elsewhere(s, SHUTDOWN_EVALUATION, NULL);
    return 0;
}
