/* How losses and scores of class maps use their sums, in C and CUDA. */
#ifndef OPS_SEGMENT_RULE_H
#define OPS_SEGMENT_RULE_H
#include <stdbool.h>

#ifdef __CUDACC__
#define RULE_FN static inline __host__ __device__
#else
#define RULE_FN static inline
#endif

/* ---- dice, dice_ce (dice.h) ------------------------------------------------------------------ */

enum { DICE_KEPT = 3 };

RULE_FN double dice_ratio(const double *kept, double smooth)
{
    return (2 * kept[0] + smooth) / (kept[1] + kept[2] + smooth);
}

/* q_c = y y_c + p p_c^(a-1) */
struct dice_slopes { double y, p; };
RULE_FN struct dice_slopes dice_slopes_of(const double *kept, double smooth, int power, double classes)
{
    const double d = kept[1] + kept[2] + smooth, n = 2 * kept[0] + smooth;
    struct dice_slopes s;
    s.y = -2 / (classes * d);
    s.p = power * n / (classes * d * d);
    return s;
}
RULE_FN double dice_slope(struct dice_slopes s, int power, double p, double y)
{
    return s.y * y + s.p * (power == 2 ? p : 1.0);
}

/* ---- overlap: its columns, of one sample ----------------------------------------------------- */

/* Sums over all classes except 0, then OVERLAP_EACH columns for each of these classes. */
enum {
    OVERLAP_DICE, OVERLAP_PRESENT,                       /* of classes present: sum of Dice; their number */
    OVERLAP_POOLED, OVERLAP_POOLED_OF,                   /* 2 tp; 2 tp + fp + fn */
    OVERLAP_TP, OVERLAP_ANY,                             /* tp; tp + fp + fn */
    OVERLAP_SUMS
};
enum { CLASS_DICE, CLASS_PRESENT, CLASS_TP, CLASS_ANY, CLASS_FP, CLASS_FN, CLASS_TN, OVERLAP_EACH };

/* Adds the k-th counted class to the columns, which are initially 0. */
RULE_FN void overlap_add(double *column, long long k, double tp, double fp, double fn, double points)
{
    double *const of = column + OVERLAP_SUMS + OVERLAP_EACH * k;
    const bool present = tp + fn > 0;
    of[CLASS_PRESENT] = present ? 1 : 0;
    of[CLASS_DICE] = present ? 2 * tp / (2 * tp + fp + fn) : 0;
    of[CLASS_TP] = tp;
    of[CLASS_ANY] = tp + fp + fn;
    of[CLASS_FP] = fp;
    of[CLASS_FN] = fn;
    of[CLASS_TN] = points - tp - fp - fn;
    column[OVERLAP_DICE] += of[CLASS_DICE];
    column[OVERLAP_PRESENT] += of[CLASS_PRESENT];
    column[OVERLAP_POOLED] += 2 * tp;
    column[OVERLAP_POOLED_OF] += 2 * tp + fp + fn;
    column[OVERLAP_TP] += tp;
    column[OVERLAP_ANY] += tp + fp + fn;
}
#endif
