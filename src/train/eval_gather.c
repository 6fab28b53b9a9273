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

void eval_gather_open(struct control *s)
{
    const struct job *j = s->job;
    if (!job_wants(j)) return;
    for (int i = 0; i < j->n_plans; i++) {
        const struct plan *p = j->plan[i];
        if (output_of(p, j->output) >= 0) s->has_values = p->output[output_of(p, j->output)].rank;
    }
    s->value_bytes = (size_t)shape_count(&j->graph->tensor[j->output].shape) * sizeof(float);
    int n = s->rank == 0 ? OPEN_RESULTS : s->rank == s->has_values ? 1 : 0;
    for (int i = 0; i < n; i++) s->values[i] = mem_alloc(size_mul(s->value_bytes, (size_t)j->max_batch));
}

void eval_gather_free(struct control *s)
{
    for (int i = 0; i < OPEN_RESULTS; i++) free(s->values[i]);
}

static bool brings(const struct control *s, const struct order *o)
{
    return s->value_bytes && o->kind == ORDER_EVAL && o->what != ORDER_ONLY_ENTERS;
}

int eval_gather_send(struct control *s, const struct order *o, struct err *e)
{
    if (!brings(s, o) || s->rank != s->has_values) return 0;
    int at = s->rank == 0 ? (int)(s->n_reports[0] % OPEN_RESULTS) : 0;
    int output = output_of(s->job->plan[o->plan], s->job->output);
    if (exec_output_get(s->exec, (int)o->plan, output, s->values[at], e)) return -1;
    return s->rank == 0 ? 0 : control_send(s, CONTROL_VALUES, s->values[at], (size_t)o->n * s->value_bytes, e);
}

int eval_gather_take(struct control *s, const struct coordinator *l, struct err *e)
{
    int at = (int)(s->first_open % OPEN_RESULTS);
    const struct order *o = &s->open[at]->o;
    if (!brings(s, o)) return 0;
    if (s->has_values != 0 &&
        control_recv(s, s->has_values, CONTROL_VALUES, s->values[at], (size_t)o->n * s->value_bytes, e))
        return -1;
    if (l->generation) return generation_rows(l->generation, s->values[at], e);
    if (!l->predict) return l->confusion ? confusion_rows(l->confusion, s->values[at], o->n, o->position, e) : 0;
    control_elsewhere(s, SHUTDOWN_EVALUATION, "writing predictions");
    if (predict_rows(l->predict, s->values[at], o->n, o->position, e)) return -1;
    control_elsewhere(s, SHUTDOWN_EVALUATION, NULL);
    return 0;
}
