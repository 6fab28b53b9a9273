/* Before anything is updated all ranks learn the norms of all gradients and the loss. If any of them is not finite,
 * nothing is: the step runs again at once, on the same samples, and must give the same bits. */
#include <math.h>
#include <string.h>
#include "exec/meter.h"

/* What ranks agree upon: squared norms of the parameters' gradients, then the two sums of the loss. */
static int numbers(const struct exec *s) { return s->g->n_params + 2; }

static bool all_finite(const struct exec *s)
{
    bool finite = true;
    for (int i = 0; i < numbers(s); i++) finite &= isfinite(s->norm[i]) != 0;
    return finite;
}

/* Sums over ranks, of which one has a number and the others 0. Ranks below end their gradients earlier, those above
 * later. */
static int share(struct exec *s, struct err *e)
{
    struct meter_wait w;
    meter_wait_begin(s, &w);
    int bad = meter_wait_for(s, &w, s->rank ? ACC_WAIT_UP : ACC_WAIT_DOWN, e) ||
              s->tp->ops->reduce(s->tp, s->norm, numbers(s), e);
    meter_wait_end(s, &w);
    return bad ? -1 : meter_to(s, ACC_OPTIMIZER, e);
}

static int clip(struct exec *s, struct err *e)
{
    double sum = 0;
    if (s->q.conf->train.clip_norm <= 0) return 0;
    for (int i = 0; i < s->g->n_params; i++) sum += s->norm[i];
    s->grad_norm = sqrt(sum);
    double coef = s->q.conf->train.clip_norm / (s->grad_norm + 1e-6), c = coef < 1 ? coef : 1;
    return s->ops->copy(s->be, &s->block->clip_coef, &c, sizeof c, e);
}

int exec_agree(struct exec *s, struct bound *b, struct err *e)
{
    int n = s->g->n_params;
    /* copies wait for the lane, and would hear neither aborts nor the transport */
    if (exec_drain(s, e)) return -1;
    if (s->ops->copy(s->be, s->norm, s->norm_at, (size_t)n * sizeof *s->norm, e)) return -1;
    if (exec_scores(s, b, s->order, s->report, e)) return -1;
    s->norm[n] = s->report->score[0].numerator;           /* the first score is the loss */
    s->norm[n + 1] = s->report->score[0].denominator;
    if (share(s, e)) return -1;
    s->finite = all_finite(s);
    return s->finite ? clip(s, e) : 0;
}

/* ---- again ------------------------------------------------------------------------------------------------------- */

void exec_agreed_keep(struct exec *s)
{
    double *norm = s->norm;
    s->norm = s->norm_before;
    s->norm_before = norm;
}

static int differ(const struct exec *s, int i, struct err *e)
{
    int n = s->g->n_params;
    double x = sqrt(s->norm_before[i]), y = sqrt(s->norm[i]);
    if (i >= n) x = s->norm_before[n] / s->norm_before[n + 1], y = s->norm[n] / s->norm[n + 1];
    /* a NaN is printed without a sign */
    return err_set(e, E_UNSURE, "step %llu gave other numbers when it was run again: %s%s was %g, then %g; suspect the "
                   "hardware", (unsigned long long)s->step, i < n ? "the norm of the gradient of " : "the loss",
                   i < n ? s->g->param[i].name : "", isnan(x) ? fabs(x) : x, isnan(y) ? fabs(y) : y);
}

int exec_agreed_same(struct exec *s, struct err *e)
{
    for (int i = numbers(s) - 1; i >= 0; i--)
        if (memcmp(&s->norm[i], &s->norm_before[i], sizeof s->norm[i])) return differ(s, i, e);
    return 0;
}

int exec_nonfinite(const struct exec *s)
{
    int n = s->g->n_params, i = 0;
    if (!isfinite(s->norm[n]) || !isfinite(s->norm[n + 1])) return NONFINITE_LOSS;
    while (i < n && isfinite(s->norm[i])) i++;
    return NONFINITE_GRADIENT + i;
}
