/* Scores of class maps: true and false positives and negatives of each class except 0, and values derived from these.
 * dice: the mean over cases and classes of 2 tp / (2 tp + fp + fn), only for classes present in the case's truth, as in
 * MONAI. pooled_dice, iou: from the sums over all cases and classes. dice_1, iou_1 and so on: for one class. */
#include <stdlib.h>
#include <string.h>
#include "model/ops/segment.h"
#include "model/ops/segment_rule.h"

#define CLASS_AT(k, column) (OVERLAP_SUMS + OVERLAP_EACH * ((k) - 1) + (column))
#define CLASS_ROWS(k) \
    {"dice_" #k, CLASS_AT(k, CLASS_DICE), CLASS_AT(k, CLASS_PRESENT)}, \
    {"iou_" #k, CLASS_AT(k, CLASS_TP), CLASS_AT(k, CLASS_ANY)}
enum { OF_ALL = 3, NAMED = 10 };                         /* number of classes with rows of their own */
static const struct score_row rows[] = {
    {"dice", OVERLAP_DICE, OVERLAP_PRESENT}, {"pooled_dice", OVERLAP_POOLED, OVERLAP_POOLED_OF},
    {"iou", OVERLAP_TP, OVERLAP_ANY}, CLASS_ROWS(1), CLASS_ROWS(2), CLASS_ROWS(3), CLASS_ROWS(4), CLASS_ROWS(5),
    CLASS_ROWS(6), CLASS_ROWS(7), CLASS_ROWS(8), CLASS_ROWS(9), CLASS_ROWS(10), {0}};

/* With a single class its own rows would repeat those of all. */
static int n_rows(const struct graph *g, const struct node *n)
{
    const int64_t classes = segment_classes(&g->tensor[n->in[0]].shape) - 1;
    return OF_ALL + (classes == 1 ? 0 : 2 * (int)(classes < NAMED ? classes : NAMED));
}

static int overlap_infer(const struct node *n, const struct shape *const *in, struct infer *f, struct err *e)
{
    if (segment_check(n, in, e)) return -1;
    f->out = (struct shape){1, {OVERLAP_SUMS + OVERLAP_EACH * (segment_classes(in[0]) - 1)}};
    f->type = F64;
    return 0;
}

/* counts: per class, the number of correct, predicted and true points */
static void one(const struct segment *s, int64_t classes, int64_t *counts, double *out)
{
    memset(counts, 0, 3 * (size_t)classes * sizeof *counts);
    for (int64_t i = 0; i < s->points; i++) {
        const int64_t taken = segment_class(s, i), is = label_at(s->y, i);
        counts[taken] += taken == is;
        counts[classes + taken]++;
        if (is >= 0 && is < classes) counts[2 * classes + is]++;
    }
    for (int64_t k = 1; k < classes; k++) {
        const int64_t tp = counts[k];
        overlap_add(out, k - 1, (double)tp, (double)(counts[classes + k] - tp), (double)(counts[2 * classes + k] - tp),
                    (double)s->points);
    }
}

static void overlap_forward(const struct op_call *c)
{
    const int64_t classes = segment_classes(&c->g->tensor[c->node->in[0]].shape),
                  columns = c->g->tensor[c->node->out].shape.d[0];
    int64_t *counts = mem_alloc(3 * (size_t)classes * sizeof *counts);
    memset(c->out, 0, (size_t)c->n * (size_t)columns * sizeof(double));
    for (int n = 0; n < c->n; n++) {
        const struct segment s = segment_of(c, n);
        one(&s, classes, counts, (double *)c->out + n * columns);
    }
    free(counts);
}

static const char *const examples[] = {"3x5 + 5 I64", "1x4x3 + 4x3 I64", "2x3x4x2 + 3x4x2 I32", "12x9 + 9 U8", NULL};
const struct op_kind op_overlap = {
    .name = "overlap",
    .text = "score: how predicted classes of points overlap with true ones (Dice, intersection over union)",
    .n_in = 2,
    .takes = {TAKES(F32), LABEL_TAKES},
    .range = segment_range,
    .infer = overlap_infer,
    .rows = rows,
    .n_rows = n_rows,
    .forward = overlap_forward,
    .examples = examples,
};
