/* What is read of a step after it: scores, added up for the report, and values for callers. */
#include <string.h>
#include "exec/exec_int.h"

bool output_scores(const struct exec *s, const struct output *o)
{
    for (int i = 0; i < s->scores.n; i++) if (s->scores.of[i].tensor == o->tensor) return true;
    return false;
}

/* Adds one score over the n samples of a micro-batch. */
static void score_add(const struct graph_score *k, const double *column, int n, int n_columns, struct score_sum *sum)
{
    for (int i = 0; i < n; i++, column += n_columns) {
        sum->numerator += column[k->numerator];
        if (k->denominator >= 0) sum->denominator += column[k->denominator];
    }
}

/* Adds the scores of one pipeline's micro-batches that lie in one tensor. */
static int output_add(struct exec *s, const struct bound *b, const struct output *out, int dp, struct report *r,
                      struct err *e)
{
    const struct portion *part = &b->p->part[dp];
    int columns = (int)s->g->tensor[out->tensor].shape.d[0];
    if (!part->n_mb) return 0;
    const char *first = kept_at(s, b, &out->at, dp, 0), *last = first;
    /* slots of one tensor are neighbours, so one copy takes all */
    for (int mb = 1; mb < part->n_mb; mb++) {
        const char *next = kept_at(s, b, &out->at, dp, mb);
        if (next < first) first = next;
        if (next > last) last = next;
    }
    if (s->ops->copy(s->be, s->scores_host, first, (size_t)(last - first) + out->at.bytes, e)) return -1;
    for (int mb = 0; mb < part->n_mb; mb++) {
        const char *from = kept_at(s, b, &out->at, dp, mb);
        ptrdiff_t at = (from - first) / (ptrdiff_t)sizeof(double);
        for (int i = 0; i < s->scores.n; i++)
            if (s->scores.of[i].tensor == out->tensor)
                score_add(&s->scores.of[i], s->scores_host + at, part->mb_n[mb], columns, &r->score[i]);
    }
    return 0;
}

/* Adds all scores in one tensor, in the order of samples, so they do not depend on the pipeline. */
static int output_collect(struct exec *s, const struct bound *b, const struct output *out, struct report *r,
                          struct err *e)
{
    for (int k = 0; k < b->p->pl->mesh.size[AXIS_DP]; k++) if (output_add(s, b, out, k, r, e)) return -1;
    return 0;
}

int exec_scores(struct exec *s, const struct bound *b, const struct order *o, struct report *r, struct err *e)
{
    memset(r->score, 0, sizeof r->score);                /* clears those of an earlier attempt */
    for (int i = 0; i < b->p->n_outputs; i++) {
        const struct output *out = &b->p->output[i];
        if (out->rank != s->rank || b->p->req.dp) continue;   /* the first pipeline has all */
        if (i == 0) r->samples = o->n;
        if (output_scores(s, out) && output_collect(s, b, out, r, e)) return -1;
        for (int k = 0; k < s->scores.n; k++)            /* scores that divide by the weights of the samples */
            if (s->scores.of[k].tensor == out->tensor && s->scores.of[k].denominator < 0)
                r->score[k].denominator = o->weight;
    }
    return 0;
}

int exec_output_get(struct exec *s, int plan, int output, void *plain, struct err *e)
{
    const struct bound *b = plan >= 0 && plan < s->n_bound ? &s->bound[plan] : NULL;
    const struct output *out = b && output >= 0 && output < b->p->n_outputs ? &b->p->output[output] : NULL;
    if (!out || out->rank != s->rank || exec_coord(s).at[AXIS_DP] || plan != s->plan)
        return err_set(e, E_INTERNAL, "rank %d was asked for output %d of plan %d, which it does not have", s->rank,
                       output, plan);
    const struct tensor *t = &s->g->tensor[out->tensor];
    size_t bytes = (size_t)shape_count(&t->shape) * dtype_bytes(t->type);
    for (int k = 0; k < b->p->pl->mesh.size[AXIS_DP]; k++)
        for (int mb = 0; mb < b->p->part[k].n_mb; mb++) {
            const struct portion *part = &b->p->part[k];
            char *to = (char *)plain + bytes * (size_t)part->mb_first[mb];
            const void *at = kept_at(s, b, &out->at, k, mb);
            if (s->ops->tensor_export(s->be, out->tensor, part->mb_n[mb], to, at, e)) return -1;
        }
    return 0;
}
