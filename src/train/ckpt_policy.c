#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "cluster/log.h"
#include "report/scores.h"
#include "train/ckpt_policy.h"
#include "cluster/sd_notify.h"

enum { RING = 4, MOST_FAILURES = 3 };

static const char *score_of(const struct ckpt_policy *k, int i) { return score_style(k->scores.of[i].name).key; }

/* The row that checkpoint.best names; otherwise the leading one. */
static int score_row(const struct ckpt_policy *k)
{
    const char *best = k->conf->checkpoint.best;
    if (!best) return scores_leading(&k->scores);
    for (int i = 0; i < k->scores.n; i++) if (!strcmp(best, score_of(k, i))) return i;
    return 0;
}

void ckpt_policy_begin(struct ckpt_policy *k, const struct job *j, struct save *save, const struct ckpt *from,
                       const double *best)
{
    *k = (struct ckpt_policy){.job = j, .conf = j->conf, .save = save, .since = clock_ns(),
                              .done = queue_new(RING, sizeof(struct save_done)),
                              .step = from ? from->step : 0, .at = clock_ns(), .any = best != NULL, .best = best ?
                                  *best : 0};
    graph_scores(j->graph, &k->scores);
    if (from) ckpt_policy_back(k, &from->best);
}

void ckpt_policy_end(struct ckpt_policy *k)
{
    queue_free(k->done);
}

bool ckpt_policy_due(const struct ckpt_policy *k)
{
    double every = k->conf->checkpoint.every_seconds;
    return every > 0 && !k->writing && (double)(clock_ns() - k->since) >= every * 1e9;
}

void ckpt_policy_ordered(struct ckpt_policy *k)
{
    k->since = clock_ns();
    k->writing++;
    k->slow = false;
    notify_disk(NOTIFY_CHECKPOINT, true);
}

static void one_less(struct ckpt_policy *k)
{
    if (!--k->writing) notify_disk(NOTIFY_CHECKPOINT, false);
}

void ckpt_policy_revoked(struct ckpt_policy *k) { one_less(k); }

void ckpt_policy_tick(struct ckpt_policy *k)
{
    enum { SLOW_SECONDS = 30 };
    if (!k->writing || k->slow || clock_ns() - k->since < SLOW_SECONDS * UINT64_C(1000000000)) return;
    k->slow = true;
    log_line("warning: a checkpoint is not on disk after %d s; the next optimizer step may wait for it", SLOW_SECONDS);
}

static void so_far_take(struct ckpt_policy *k)
{
    struct ckpt_best *b = &k->so_far;
    bool first = !*b->score, number = isfinite(k->score.value);
    if (!number || !(first || score_better(k->score.key, k->score.value, b->value))) {
        b->waited++;
        return;
    }
    *b = (struct ckpt_best){.value = k->score.value, .step = k->score.step};
    snprintf(b->score, sizeof b->score, "%s", k->score.key);
}

bool ckpt_policy_enough(const struct ckpt_policy *k)
{
    int64_t patience = k->conf->train.patience;
    return patience > 0 && k->so_far.waited >= (uint64_t)patience;
}

void ckpt_policy_back(struct ckpt_policy *k, const struct ckpt_best *was)
{
    /* the best of another score cannot be compared */
    bool same = was && k->scores.n && !strcmp(was->score, score_of(k, score_row(k)));
    k->so_far = same ? *was : (struct ckpt_best){0};
}

bool ckpt_policy_scored(struct ckpt_policy *k, uint64_t step, const struct sums *s)
{
    int i = score_row(k);
    if (!k->scores.n) return false;                      /* a prediction has no scores */
    k->score.key = score_of(k, i);
    k->score.step = step;
    k->score.value = score_mean(s->score, i);
    so_far_take(k);
    if (!k->conf->checkpoint.best || !isfinite(k->score.value)) return false;
    return !k->any || score_better(k->score.key, k->score.value, k->best);
}

/* A score counts as the best only after its checkpoint is on disk. */
static void best_take(struct ckpt_policy *k, const struct save_done *d)
{
    const char *best = k->conf->checkpoint.best;
    if (!best || strcmp(d->score, best) || (k->any && !score_better(best, d->value, k->best))) return;
    k->any = true;
    k->best = d->value;
}

void ckpt_policy_release(struct ckpt_policy *k, const struct order *o, uint64_t skipped)
{
    bool scored = k->score.key && k->score.step == o->step;
    struct save_note n = {scored ? k->score.key : NULL, k->score.value, k->conf->checkpoint.keep,
                          k->conf->checkpoint.best, skipped, k->so_far};
    if (!o->code) save_release(k->save, &n);
}

void ckpt_policy_forgo(struct ckpt_policy *k, const struct order *o)
{
    if (!o->code) save_forgo(k->save);
}

/* Reports a checkpoint of a step that the run rolled back. */
static int on_cancelled(const struct save_done *d)
{
    log_line("no checkpoint of step %llu: %s", (unsigned long long)d->step, d->e.text);
    return 0;
}

static int on_committed(struct ckpt_policy *k, const struct save_done *d, struct err *e)
{
    char size[32], time[32];
    k->failures = 0;
    k->step = d->step;
    k->at = clock_ns();
    best_take(k, d);
    log_line("checkpoint %s: %s, written in %s during training%s%s", d->name,
             text_bytes(d->bytes, size), text_seconds((double)d->ns * 1e-9, time),
             *d->e.text ? "; note: " : "", d->e.text);
    return reporters_tell(k->reporters, &(struct event){.kind = EVENT_CHECKPOINT, .step = (int64_t)d->step,
                          .name = d->name, .bytes = (int64_t)d->bytes, .seconds = (double)d->ns * 1e-9}, e);
}

static int on_failed(struct ckpt_policy *k, const struct save_done *d, bool ends, struct err *e)
{
    k->failures++;
    k->lost = d->step;
    log_line("warning: no checkpoint of step %llu: %s", (unsigned long long)d->step, d->e.text);
    if (reporters_tell(k->reporters, &(struct event){.kind = EVENT_CHECKPOINT_FAILED, .step = (int64_t)d->step,
                       .code = d->e.code, .text = d->e.text}, e)) return -1;
    if (k->failures < MOST_FAILURES || ends) return 0;
    return err_set(e, E_IO, "%d checkpoints in a row could not be written, last: %s", k->failures, d->e.text);
}

int ckpt_policy_take(struct ckpt_policy *k, bool ends, struct err *e)
{
    struct save_done d;
    while (queue_get(k->done, &d, 0)) {
        one_less(k);
        k->last = d.e;
        if (d.unwanted) k->last.code = 0;
        if (k->on_saved) k->on_saved(k->ctx, d.step, d.e.code, d.e.code ? d.e.text : "");
        if (d.unwanted ? on_cancelled(&d) : d.e.code ? on_failed(k, &d, ends, e) : on_committed(k, &d, e)) return -1;
    }
    return 0;
}
