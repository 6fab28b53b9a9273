/* The sequence of a run: training steps, evaluations between them, the end. */
#include <string.h>
#include "train/sequencer.h"
#include "train/generation.h"
#include "train/weights.h"
#include "optim/rate.h"

size_t task_bytes(const struct job *j)
{
    return sizeof(struct task) + (size_t)job_order_samples(j) * sizeof(int64_t);
}

static int batch_of(const struct job *j) { return (int)j->conf->train.batch_size; }

/* The number of epochs in which steps begin. */
static uint64_t epochs_begun(const struct job *j, uint64_t steps)
{
    const struct feed_order o = job_order(j);
    bool fills = o.end == FEED_FILL && o.count && steps;
    return fills ? feed_place(&o, (steps - 1) * (uint64_t)batch_of(j)).epoch + 1 : job_epochs(j, steps);
}

static struct rate_run rate_run_of(const struct job *j, const struct conf *now)
{
    const struct feed_order o = job_order(j);
    uint64_t steps = job_steps(j);
    return (struct rate_run){.conf = now, .steps = steps, .epochs = epochs_begun(j, steps),
                             .warm = feed_batches(&o, batch_of(j), (uint64_t)now->train.warmup_epochs)};
}

bool sequencer_only_warms(const struct job *j)
{
    const struct rate_run r = rate_run_of(j, j->conf);
    return r.steps && rate_warms(&r, (struct rate_time){r.steps, r.epochs ? r.epochs - 1 : 0});
}

const struct conf *sequencer_conf(const struct sequencer *c, uint64_t step)
{
    return live_settings_conf(c->rates, step, c->conf);
}

/* Schedules count epochs of data and updates, as torch's do if a skipped step calls no scheduler. */
double sequencer_rate(const struct sequencer *c, uint64_t step, uint64_t skips)
{
    const struct conf *now = sequencer_conf(c, step);
    const struct rate_run r = rate_run_of(c->job, now);
    struct rate_from set = live_settings_at(c->rates, step);
    uint64_t skipped = skips + (c->known ? c->known->skipped : 0);
    const struct feed_order o = job_order(c->job);
    struct rate_time at = {step - skipped, feed_place(&o, c->position).epoch};
    return rate_at(&r, set.any ? set.rate : now->train.learning_rate, at);
}

uint64_t sequencer_samples(const struct job *j, uint64_t position)
{
    const struct feed_order o = job_order(j);
    return feed_taken(&o, position, batch_of(j));
}

/* ---- the next phase ---------------------------------------------------------------------------------------------- */

static bool at_end(const struct sequencer *c) { return c->step >= c->steps; }

static enum sequencer_phase after_checkpoint(const struct sequencer *c)
{
    if (c->stopping) return c->how == STOP_RESUMABLE ? SEQUENCER_STOP : SEQUENCER_SAVE;
    return at_end(c) ? SEQUENCER_SAVE : SEQUENCER_TRAIN;
}

static bool checkpoint_due(const struct sequencer *c)
{
    const struct conf *f = sequencer_conf(c, c->step);
    int64_t every = f->checkpoint.every_steps;
    if (!c->step || c->step == c->saved) return false;
    return c->wanted || (every && c->step % (uint64_t)every == 0) || (conf_saves(f) && at_end(c));
}

static enum sequencer_phase after_interim(const struct sequencer *c)
{
    return checkpoint_due(c) ? SEQUENCER_CHECKPOINT : after_checkpoint(c);
}

static enum sequencer_phase after_evaluation(const struct sequencer *c)
{
    return c->interim_due && !c->stopping ? SEQUENCER_INTERIM : after_interim(c);
}

static enum sequencer_phase after_step(const struct sequencer *c)
{
    return c->evaluate_due ? SEQUENCER_EVALUATE : after_evaluation(c);
}

/* from: where the step began. An epoch that ends within a step counts as ended after it. */
static bool evaluation_due(const struct sequencer *c, uint64_t from)
{
    const struct conf *f = sequencer_conf(c, c->step);
    uint64_t epochs = (uint64_t)f->train.evaluate_epochs * c->job->count[DS_TRAIN];
    bool due = f->train.evaluate_every > 0 && c->step % (uint64_t)f->train.evaluate_every == 0;
    due |= epochs && from / epochs != c->position / epochs;
    return c->job->count[DS_TEST] > 0 && (due || at_end(c));
}

static bool interim_due(const struct sequencer *c)
{
    const int64_t every = c->conf->generate.every_steps;
    return c->job->interim && every && (c->step % (uint64_t)every == 0 || at_end(c));
}

/* ---- begin, roll-back, stop -------------------------------------------------------------------------------------- */

/* The epoch of the last sample before the position. */
static uint64_t epoch_of(const struct sequencer *c)
{
    const struct feed_order o = job_order(c->job);
    return c->position ? feed_place(&o, c->position - 1).epoch + 1 : 1;
}

/* Where the next batch begins, from that position on. With --resume=force batches may have another size than before,
 * and there are plans only for whole batches and for the last one of an epoch. */
static uint64_t batch_border(const struct sequencer *c, uint64_t position)
{
    const struct feed_order o = job_order(c->job);
    const struct feed_place p = feed_place(&o, position);
    uint64_t batch = (uint64_t)batch_of(c->job), next = (p.within + batch - 1) / batch * batch;
    if (!p.count || o.end == FEED_FILL) return position;
    return feed_next(&o, position - p.within + (next < p.count ? next : p.count), (int)batch);
}

void sequencer_begin(struct sequencer *c, const struct job *j, const struct ckpt *from)
{
    *c = (struct sequencer){.job = j, .conf = j->conf, .steps = job_steps(j), .phase = SEQUENCER_TRAIN};
    if (j->conf->run.evaluate) c->phase = j->prompts ? SEQUENCER_GENERATE : SEQUENCER_EVALUATE;
    if (!from) return;
    c->step = c->saved = from->step;
    c->position = batch_border(c, from->position);
    c->evaluate_due = from->evaluate && j->count[DS_TEST] > 0;
    c->interim_due = from->generate && j->interim;
    c->epoch = epoch_of(c);
    c->phase = after_step(c);
}

void sequencer_fault(struct sequencer *c)
{
    c->phase = SEQUENCER_FAULT;
    c->test_position = c->part = 0;
    c->evaluate_due = c->interim_due = false;
}

void sequencer_back(struct sequencer *c, uint64_t step, uint64_t position)
{
    c->step = c->saved = step;
    c->position = position;
    c->epoch = epoch_of(c);
    c->phase = SEQUENCER_ROLLBACK;
}

void sequencer_restored(struct sequencer *c) { c->phase = after_checkpoint(c); }

void sequencer_stop(struct sequencer *c, enum sequencer_stop how)
{
    bool wants = how != STOP_WEIGHTS || conf_saves(c->conf) || c->wanted; /* requested before, and promised */
    bool saves = wants && c->step && c->step != c->saved && !c->job->conf->run.evaluate;
    c->stopping = true;
    c->how = how;
    if (c->phase >= SEQUENCER_FAULT) return;
    if (c->phase == SEQUENCER_AWAIT_SCORE) {                    /* the evaluation is done; sequencer_scored continues */
        c->wanted |= saves;
        return;
    }
    c->phase = c->job->conf->run.evaluate ? SEQUENCER_STOP : saves ? SEQUENCER_CHECKPOINT : after_checkpoint(c);
}

bool sequencer_checkpoint(struct sequencer *c)
{
    if (!c->step || c->step == c->saved || c->phase >= SEQUENCER_SAVE || c->job->conf->run.evaluate) return false;
    c->wanted = true;
    if (c->phase == SEQUENCER_TRAIN) c->phase = SEQUENCER_CHECKPOINT;
    return true;
}

uint64_t sequencer_saves_step(const struct sequencer *c)
{
    return c->wanted || c->phase == SEQUENCER_CHECKPOINT ? c->step : c->saved;
}

void sequencer_unsaved(struct sequencer *c, uint64_t step)
{
    if (c->saved == step) c->saved = 0;
}

void sequencer_enough(struct sequencer *c)
{
    c->steps = c->step;
    c->phase = after_step(c);
}

void sequencer_scored(struct sequencer *c, bool best, bool enough)
{
    c->wanted |= best;
    if (enough) c->steps = c->step;
    if (enough) c->interim_due = interim_due(c);
    if (c->phase == SEQUENCER_AWAIT_SCORE) c->phase = after_evaluation(c);
}

static int plan_index(const struct job *j, int full, int n)
{
    return j->batch[full] == n ? j->plan_of[full] : j->plan_of[full + 1];
}

/* Fills in the rates that the next step may have. How many of the running steps have no update is known only when it
 * runs. */
static void live_settings_fill(const struct sequencer *c, struct order *o)
{
    uint64_t ahead = c->known ? o->step - 1 - c->known->step : 0;
    o->n_skipped = c->known ? c->known->skipped : 0;
    o->learning_rate = sequencer_rate(c, o->step, 0);
    for (uint64_t k = 0; k < ahead && k < ORDER_AHEAD; k++) o->after_skips[k] = sequencer_rate(c, o->step, k + 1);
}

static void next_train(struct sequencer *c, struct task *t)
{
    const struct job *j = c->job;
    const struct conf *f = j->conf;
    const struct feed_order order = job_order(j);
    uint64_t epoch, at = c->position;
    int n = feed_batch(&order, at, batch_of(j), t->id, &epoch);
    t->o = (struct order){.kind = ORDER_TRAIN, .plan = (uint32_t)plan_index(j, PLAN_FULL, n), .step = ++c->step, .n = n,
                          .position = at, .weight = ds_weight(j->data[DS_TRAIN], &order, at, t->id, n),
                          .tokens = ds_filled(j->data[DS_TRAIN], &order, at, t->id, n)};
    live_settings_fill(c, &t->o);
    c->position = feed_next(&order, at + (uint64_t)n, batch_of(j));
    c->epoch = epoch + 1;
    c->evaluate_due = evaluation_due(c, at);
    c->interim_due = interim_due(c);
    t->epoch = c->epoch;
    t->last = false;
    c->phase = c->step == 1 && f->run.dump_gradients ? SEQUENCER_DUMP : after_step(c);
}

static void next_evaluate(struct sequencer *c, struct task *t)
{
    const struct job *j = c->job;
    struct feed_order order = {.seed = 0, .count = j->count[DS_TEST]};
    int batch = j->batch[j->batch[PLAN_EVAL_FULL] > 0 ? PLAN_EVAL_FULL : PLAN_EVAL_SHORT];
    uint64_t epoch;
    int n = feed_batch(&order, c->test_position, batch, t->id, &epoch);
    t->epoch = c->epoch;
    t->o = (struct order){.kind = ORDER_EVAL, .plan = (uint32_t)plan_index(j, PLAN_EVAL_FULL, n),
                          .step = c->step + ++c->part, .position = c->test_position, .n = n,
                          .weight = ds_weight(j->data[DS_TEST], &order, c->test_position, t->id, n)};
    c->test_position += (uint64_t)n;
    t->last = c->test_position >= j->count[DS_TEST];
    if (!t->last) return;
    c->test_position = c->part = 0;
    c->evaluate_due = false;
    if (j->conf->run.evaluate) c->phase = SEQUENCER_STOP;
    else c->phase = c->conf->checkpoint.best ? SEQUENCER_AWAIT_SCORE : after_evaluation(c);
}

static bool generation_over(struct sequencer *c, struct task *t)
{
    const bool between = c->phase == SEQUENCER_INTERIM;
    if (between) {
        c->test_position = c->part = 0;
        c->interim_due = false;
    }
    c->phase = between ? after_interim(c) : SEQUENCER_STOP;
    return sequencer_next(c, t);
}

/* Of run.generate, or between steps. False: it waits for the logits of earlier orders. */
static bool next_generate(struct sequencer *c, struct task *t)
{
    const bool between = c->phase == SEQUENCER_INTERIM, first = between && !c->part;
    const struct job *j = between ? c->job->interim : c->job;
    if (first) generation_again(c->generation);
    const enum generation_next next = generation_next(c->generation, t->id);
    const bool prefills = next == GENERATION_PREFILLS;
    if (next == GENERATION_WAITS) return false;
    if (next == GENERATION_ENDS) return generation_over(c, t);
    const int kind = prefills ? PLAN_EVAL_FULL : PLAN_EVAL_SHORT, n = j->batch[kind];
    t->epoch = c->epoch;
    t->last = false;
    t->o = (struct order){.kind = ORDER_EVAL, .plan = (uint32_t)j->plan_of[kind], .step = c->step + ++c->part, .n = n,
                          .position = c->test_position, .weight = n,
                          .what = (prefills ? ORDER_ONLY_ENTERS : 0) | (between ? ORDER_INTERIM : 0) |
                                  (first ? ORDER_TAKES_WEIGHTS : 0)};
    c->test_position += (uint64_t)n;
    return true;
}

static void next_checkpoint(struct sequencer *c, struct task *t)
{
    struct rate_from set = live_settings_at(c->rates, c->step + 1);
    t->o = (struct order){.kind = ORDER_CHECKPOINT, .step = c->step, .position = c->position,
                          .learning_rate = set.any ? set.rate : -1,
                          .what = (c->evaluate_due ? CHECKPOINT_EVALUATES : 0) |
                                  (c->interim_due ? CHECKPOINT_GENERATES : 0)};
    c->saved = c->step;
    c->wanted = false;
    c->phase = after_checkpoint(c);
}

bool sequencer_next(struct sequencer *c, struct task *t)
{
    switch (c->phase) {
    case SEQUENCER_TRAIN: next_train(c, t); return true;
    case SEQUENCER_DUMP:
        t->o = (struct order){.kind = ORDER_SAVE, .step = c->step, .what = WEIGHTS_GRADIENTS};
        c->phase = after_step(c);
        return true;
    case SEQUENCER_EVALUATE: next_evaluate(c, t); return true;
    case SEQUENCER_GENERATE: case SEQUENCER_INTERIM: return next_generate(c, t);
    case SEQUENCER_AWAIT_SCORE: case SEQUENCER_FAULT: return false;
    case SEQUENCER_ROLLBACK:
        t->o = (struct order){.kind = ORDER_ROLLBACK, .step = c->step, .position = c->position};
        c->phase = SEQUENCER_FAULT;
        return true;
    case SEQUENCER_CHECKPOINT: next_checkpoint(c, t); return true;
    case SEQUENCER_SAVE:
        t->o = (struct order){.kind = ORDER_SAVE, .step = c->step};
        c->phase = SEQUENCER_STOP;
        return true;
    case SEQUENCER_STOP:
        t->o = (struct order){.kind = ORDER_STOP, .step = c->step};
        c->phase = SEQUENCER_END;
        return true;
    case SEQUENCER_END: break;
    }
    return false;
}
