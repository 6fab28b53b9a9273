/* Soft Dice, with and without cross-entropy: dice.h. All sums in double, points ascending. */
#include <stdlib.h>
#include <string.h>
#include "model/ops/dice.h"

enum { A_POWER, A_BACKGROUND, A_SIGMOID, A_SMOOTH, A_BATCH };
const struct attr_kind dice_attrs[] = {
    {"power", A_INT, 1, 1, 2, "of probabilities and targets in the denominator"},
    {"background", A_BOOL, 1, 0, 1, "class 0 counts, too"},
    {"sigmoid", A_BOOL, 0, 0, 1, "each channel for itself instead of softmax; always so of one channel"},
    {"smooth", A_REAL, 1e-5, 1e-12, 1e3, "added to numerator and denominator"},
    {"batch", A_BOOL, 0, 0, 1, "over all samples of a batch: refused"},
    {NULL},
};
const char *const dice_examples[] = {"3x5 + 5 I64", "1x4x3 + 4x3 I64 power=2", "2x3x4x2 + 3x4x2 I32 background=no",
                                     "4x6 + 6 I64 sigmoid=yes power=2", "3x7x5 + 7x5 I32 background=no power=2",
                                     "16x9 + 9 U8 smooth=1", NULL};
const struct score_row dice_rows[] = {{"loss", 0, -1}, {0}};

struct dice dice_of(const struct graph *g, const struct node *n)
{
    const struct shape *s = &g->tensor[n->in[0]].shape;
    return (struct dice){.c = s->d[0],
                         .points = shape_count(s) / s->d[0],
                         .first = n->attr[A_BACKGROUND].i[0] ? 0 : 1,
                         .sigmoid = s->d[0] == 1 || n->attr[A_SIGMOID].i[0],
                         .ce = !strcmp(n->op->name, "dice_ce"),
                         .power = (int)n->attr[A_POWER].i[0],
                         .smooth = n->attr[A_SMOOTH].r};
}

int dice_infer(const struct node *n, const struct shape *const *in, struct infer *f, struct err *e)
{
    if (n->attr[A_BATCH].i[0])
        return err_set(e, E_CONF, "batch=yes: Dice over the batch is not a mean of samples: its sums over all "
                       "micro-batches must be known before the first backward pass; leave it out, and each sample has "
                       "a Dice of its own");
    if (segment_check(n, in, e)) return -1;
    if (in[0]->d[0] == 1 && !n->attr[A_BACKGROUND].i[0])
        return err_set(e, E_CONF, "background=no leaves no class: the output has one channel");
    f->out = (struct shape){1, {1}};
    f->type = F64;
    return 0;
}

size_t dice_saved(const struct graph *g, const struct node *n, int samples)
{
    return DICE_KEPT * sizeof(double) * (size_t)samples * (size_t)g->tensor[n->in[0]].shape.d[0];
}

static double y_of(const struct dice *d, int64_t label, int64_t c) { return d->c == 1 ? label == 1 : label == c; }
static double sigmoid(double x) { return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x)); }

/* -log p if y is 1, -log (1 - p) if y is 0, p = sigmoid(x) */
static double binary_entropy(double x, double y) { return (x > 0 ? x : 0) - x * y + log1p(exp(-fabs(x))); }

static double one_forward(const struct dice *d, const struct segment *s, double *kept)
{
    double ce = 0, ratio = 0;
    memset(kept, 0, DICE_KEPT * (size_t)d->c * sizeof *kept);
    for (int64_t i = 0; i < d->points; i++) {
        const double lse = d->sigmoid ? 0 : segment_log_sum(s, i);
        const int64_t label = label_at(s->y, i);
        for (int64_t c = 0; c < d->c; c++) {
            const double x = s->x[c * d->points + i], y = y_of(d, label, c), p = d->sigmoid ? sigmoid(x) : exp(x - lse);
            double *k = kept + DICE_KEPT * c;
            k[0] += p * y;
            k[1] += d->power == 2 ? p * p : p;
            k[2] += y;
            if (d->ce) ce += d->sigmoid ? binary_entropy(x, y) / (double)d->c : y * (lse - x);
        }
    }
    for (int64_t c = d->first; c < d->c; c++) ratio += dice_ratio(kept + DICE_KEPT * c, d->smooth);
    return 1 - ratio / (double)(d->c - d->first) + ce / (double)d->points;
}

void dice_forward(const struct op_call *call)
{
    const struct dice d = dice_of(call->g, call->node);
    for (int n = 0; n < call->n; n++) {
        const struct segment s = segment_of(call, n);
        ((double *)call->out)[n] = one_forward(&d, &s, (double *)call->saved + DICE_KEPT * d.c * n);
    }
}

/* slope: per class */
static void point_backward(const struct dice *d, const struct segment *s, const struct dice_slopes *slope, int64_t i,
                           float *gx, double by)
{
    const double lse = d->sigmoid ? 0 : segment_log_sum(s, i);
    const int64_t label = label_at(s->y, i);
    double mean = 0;
    for (int64_t c = d->first; c < d->c && !d->sigmoid; c++) {
        const double p = exp(s->x[c * d->points + i] - lse);
        mean += p * dice_slope(slope[c], d->power, p, y_of(d, label, c));
    }
    for (int64_t c = 0; c < d->c; c++) {
        const double x = s->x[c * d->points + i], y = y_of(d, label, c), p = d->sigmoid ? sigmoid(x) : exp(x - lse);
        const double q = c < d->first ? 0 : dice_slope(slope[c], d->power, p, y);
        double g = d->sigmoid ? q * p * (1 - p) : p * (q - mean);
        if (d->ce) g += (p - y) / (double)d->points / (d->sigmoid ? (double)d->c : 1);
        gx[c * d->points + i] = (float)(g * by);
    }
}

void dice_backward(const struct op_call *call)
{
    const struct dice d = dice_of(call->g, call->node);
    struct dice_slopes *slope = mem_alloc((size_t)d.c * sizeof *slope);
    for (int n = 0; n < call->n; n++) {
        const struct segment s = segment_of(call, n);
        const double *kept = (const double *)call->saved + DICE_KEPT * d.c * n;
        for (int64_t c = 0; c < d.c; c++)
            slope[c] = dice_slopes_of(kept + DICE_KEPT * c, d.smooth, d.power, (double)(d.c - d.first));
        for (int64_t i = 0; i < d.points; i++)
            point_backward(&d, &s, slope, i, (float *)call->gin[0] + n * d.c * d.points, call->block->inv_weight);
    }
    free(slope);
}
