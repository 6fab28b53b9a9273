/* Before the update all ranks learn the norms of all gradients, the loss and the damaged tensors. If a number is not
 * finite, or a tensor was damaged, nothing is updated, and the step runs again at once on the same samples. Numbers
 * from sound tensors must have the same bits then. Verified steps (run.verify_every) run twice only for this check. A
 * wrong gradient that changes no norm in double precision is not detected. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/text.h"
#include "exec/meter.h"

/* The numbers that ranks agree on: squared norms of the parameters' gradients, the two sums of the loss, the number of
 * damaged tensors, and sums of their sending and receiving ranks. */
enum { DAMAGE = 3 };
static int numbers(const struct exec *s) { return s->g->n_params + 2; }
int exec_agreed_numbers(const struct exec *s) { return numbers(s) + DAMAGE; }

static bool all_finite(const struct exec *s)
{
    bool finite = true;
    for (int i = 0; i < numbers(s); i++) finite &= isfinite(s->norm[i]) != 0;
    return finite;
}

/* Sums over ranks; one rank has a number and the others have 0. Earlier ranks of the pipeline end their gradients later
 * than this rank, later ranks earlier. */
static int share(struct exec *s, struct err *e)
{
    struct meter_wait w;
    meter_wait_begin(s, &w);
    int bad = meter_wait_for(s, &w, s->rank ? ACC_WAIT_UP : ACC_WAIT_DOWN, e) ||
              exec_reduce(s, s->norm, exec_agreed_numbers(s), e);
    meter_wait_end(s, &w);
    return bad ? -1 : meter_to(s, ACC_OPTIMIZER, e);
}

/* Equal gradients have equal norms on any layout (R6), so the digests of two runs show the step in which they part. */
static void digest(const struct exec *s, char out[17])
{
    char hash[33];
    text_hash(s->norm, (size_t)s->g->n_params * sizeof *s->norm, hash);
    snprintf(out, 17, "%.16s", all_finite(s) ? hash : "");
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

/* The number that differs from the kept one, the loss first; -1: none. */
static int differing(const struct exec *s)
{
    int i = numbers(s) - 1;
    while (i >= 0 && !memcmp(&s->norm[i], &s->norm_before[i], sizeof s->norm[i])) i--;
    return i;
}

static enum outcome outcome_of(const struct exec *s)
{
    if (s->norm[numbers(s)] > 0) return CORRUPTED;
    if (s->kept && differing(s) >= 0) return NOT_REPRODUCED;
    if (!all_finite(s)) return NOT_FINITE;
    return s->verifies && !s->kept ? VERIFIED : UPDATE;
}

int exec_agree(struct exec *s, struct bound *b, struct err *e)
{
    int n = s->g->n_params;
    double *damage = s->norm + numbers(s);
    /* copies wait for the stream and would check neither aborts nor the transport */
    if (exec_drain(s, e)) return -1;
    if (s->ops->copy(s->be, s->norm, s->norm_at, (size_t)n * sizeof *s->norm, e)) return -1;
    if (exec_scores(s, b, s->order, s->report, e)) return -1;
    for (int i = 0; i < n; i++) if (!exec_norms_it(s, i)) s->norm[i] = 0;
    s->norm[n] = s->report->score[0].numerator;           /* the first score is the loss */
    s->norm[n + 1] = s->report->score[0].denominator;
    damage[0] = s->damaged.n;
    damage[1] = s->damaged.n ? s->damaged.from : 0;
    damage[2] = s->damaged.n ? s->damaged.to : 0;
    if (share(s, e)) return -1;
    s->outcome = outcome_of(s);
    digest(s, s->report->grad_hash);
    return s->outcome == UPDATE ? clip(s, e) : 0;
}

/* ---- repeating a step -------------------------------------------------------------------------------------------- */

void exec_agreed_store(struct exec *s)
{
    double *norm = s->norm;
    s->norm = s->norm_before;
    s->norm_before = norm;
    s->kept = true;
}

int exec_unsure(struct exec *s, struct err *e)
{
    int n = s->g->n_params, i = differing(s);
    double x = sqrt(s->norm_before[i]), y = sqrt(s->norm[i]);
    char was[64], is[64];
    if (i >= n) x = s->norm_before[n] / s->norm_before[n + 1], y = s->norm[n] / s->norm[n + 1];
    for (int digits = 6; digits <= 17; digits += 11) {
        snprintf(was, sizeof was, "%.*g", digits, isnan(x) ? fabs(x) : x);    /* a NaN is printed without a sign */
        snprintf(is, sizeof is, "%.*g", digits, isnan(y) ? fabs(y) : y);
        if (strcmp(was, is) != 0) break;
    }
    if (!strcmp(was, is)) {                               /* roots and quotients may hide the last bit */
        int at = i < n ? i : n + (s->norm_before[n] == s->norm[n]);
        snprintf(was, sizeof was, "%.6g (of %.17g)", x, s->norm_before[at]);
        snprintf(is, sizeof is, "%.6g (of %.17g)", y, s->norm[at]);
    }
    return err_set(e, E_CORRUPT, "step %llu gave different results when repeated: %s%s was %s, then %s; suspect the "
                                "hardware", (unsigned long long)s->step,
                   i < n ? "the norm of the gradient of " : "the loss", i < n ? s->g->param[i].name : "", was, is);
}

int exec_nonfinite(const struct exec *s)
{
    int n = s->g->n_params, i = 0;
    if (!isfinite(s->norm[n]) || !isfinite(s->norm[n + 1])) return NONFINITE_LOSS;
    while (i < n && isfinite(s->norm[i])) i++;
    return NONFINITE_GRADIENT + i;
}

int exec_damaged_report(struct exec *s, struct err *e)
{
    const double *damage = s->norm + numbers(s);
    struct report *r = s->report;
    char link[64] = "";
    bool again = r->damaged > 0, one = damage[0] == 1;
    r->damaged += (int32_t)damage[0];
    r->damaged_from = one ? (int32_t)damage[1] : -1;
    r->damaged_to = one ? (int32_t)damage[2] : -1;
    if (!again) return 0;
    if (one) snprintf(link, sizeof link, " from rank %d to rank %d", r->damaged_from, r->damaged_to);
    return err_set(e, E_CORRUPT, "step %llu: %.0f tensor%s corrupted in transfer%s, for the second time in this step; "
                                "suspect the memory or the network", (unsigned long long)s->step, damage[0],
                   one ? "" : "s", link);
}
