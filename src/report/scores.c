/* Names and formats of scores. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "report/scores.h"

static const struct score_style styles[] = {
    {"loss", "loss", "loss", "loss", .bits = true, .significant = true},
    {"top1", "accuracy", "accuracy", "acc.", .rises = true},
    {"token_top1", "accuracy", "accuracy", "acc.", .rises = true, .beside = true},
    {"top5", "top5", "top-5", "top-5", .tests_only = true, .rises = true},
    {"dice", "dice", "Dice", "Dice", .rises = true},
    {"pooled_dice", "pooled_dice", "pooled Dice", "pooled", .tests_only = true, .rises = true},
    {"iou", "iou", "IoU", "IoU", .tests_only = true, .rises = true},
};

/* Whether the row is of one class: dice_1, iou_1. */
static bool of_class(const char *row)
{
    const size_t n = !strncmp(row, "dice_", 5) ? 5 : !strncmp(row, "iou_", 4) ? 4 : 0;
    return n && row[n] >= '0' && row[n] <= '9';
}

struct score_style score_style(const char *row)
{
    for (size_t i = 0; i < sizeof styles / sizeof *styles; i++) if (!strcmp(styles[i].row, row)) return styles[i];
    if (of_class(row)) return (struct score_style){row, row, row, row, .tests_only = true, .rises = true};
    return (struct score_style){row, row, row, row};
}

struct score_style score_style_of(const char *key)
{
    for (size_t i = 0; i < sizeof styles / sizeof *styles; i++) if (!strcmp(styles[i].key, key)) return styles[i];
    return score_style(key);
}

int scores_check(const struct job *j, struct err *e)
{
    const char *best = j->conf->checkpoint.best;
    struct scores s;
    struct text all = {0};
    graph_scores(j->graph, &s);
    if (!best || j->conf->run.predict || j->conf->run.generate) return 0;
    if (!j->count[DS_TEST])                              /* patience sets checkpoint.best if no file does */
        return conf_error(j->conf, j->conf->train.patience ? "train.patience" : "checkpoint.best", e,
                          "there are no test samples to evaluate");
    for (int i = 0; i < s.n; i++) {
        const char *key = score_style(s.of[i].name).key;
        if (!strcmp(key, best)) { text_free(&all); return 0; }
        text_add(&all, "%s%s", i ? ", " : "", key);
    }
    conf_error(j->conf, "checkpoint.best", e, "\"%.60s\" is not a score of this network; it has %s", best, all.s);
    text_free(&all);
    return -1;
}

bool score_rises(const char *key)
{
    return score_style_of(key).rises;
}

int scores_leading(const struct scores *s)
{
    for (int i = 0; i < s->n; i++) {
        const struct score_style k = score_style(s->of[i].name);
        if (k.rises && !k.beside) return i;
    }
    return 0;
}

bool score_better(const char *key, double a, double b) { return score_rises(key) ? a > b : a < b; }

bool score_counted(const struct score_sum *s) { return s->numerator != 0 || s->denominator != 0; }

double score_mean(const struct score_sum *all, int row)
{
    const struct score_sum *s = &all[row];
    return score_counted(s) ? s->numerator / s->denominator : row ? NAN : 0;
}

int score_print(const struct score_style *s, double x, enum score_form form, char *buf, size_t n)
{
    const char *text = form == SCORE_BRIEF ? s->brief : s->text;
    if (isnan(x)) x = fabs(x);                            /* a NaN is printed without a sign */
    /* padded in progress lines, so that fields keep their position from step to step */
    if (s->significant) return snprintf(buf, n, "%s %-*.5g", text, form == SCORE_TEST ? 0 : 8, x);
    const int decimals = form == SCORE_TEST ? 4 : 3;
    /* a score that rises is NaN only if nothing was counted */
    if (s->rises && isnan(x)) return snprintf(buf, n, "%s %-*s", text, form == SCORE_TEST ? 0 : 2 + decimals, "none");
    return snprintf(buf, n, "%s %.*f", text, decimals, x);
}
