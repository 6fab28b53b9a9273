/* The course of a run: training steps, evaluations between them, the end. */
#include <string.h>
#include "daemon/run/course.h"
#include "daemon/run/weights.h"

size_t task_bytes(const struct job *j) { return sizeof(struct task) + (size_t)j->max_batch * sizeof(int64_t); }

/* The step schedule: the rate times gamma for every milestone passed. Milestone m takes effect after m steps, as in
 * torch.optim.lr_scheduler.MultiStepLR. */
double course_rate(const struct conf *c, uint64_t step)
{
    double rate = c->train.learning_rate;
    if (strcmp(c->train.schedule, "step") != 0) return rate;
    for (int i = 0; i < c->train.milestones.n; i++)
        if (step > (uint64_t)c->train.milestones.v[i]) rate *= c->train.gamma;
    return rate;
}

void course_begin(struct course *c, const struct job *j)
{
    *c = (struct course){.job = j, .steps = job_steps(j), .phase = COURSE_TRAIN};
    if (j->conf->run.evaluate) c->phase = COURSE_EVALUATE;
}

void course_stop(struct course *c)
{
    c->stopping = true;
    if (c->phase < COURSE_SAVE) c->phase = c->job->conf->run.evaluate ? COURSE_STOP : COURSE_SAVE;
}

static int plan_index(const struct job *j, int full, int n)
{
    return j->batch[full] == n ? j->plan_of[full] : j->plan_of[full + 1];
}

static enum course_phase after_step(const struct course *c)
{
    const struct conf *f = c->job->conf;
    bool have_test = c->job->count[DS_TEST] > 0, end = c->step == c->steps;
    bool due = f->train.evaluate_every > 0 && c->step % (uint64_t)f->train.evaluate_every == 0;
    if (have_test && (due || end)) return COURSE_EVALUATE;
    return end ? COURSE_SAVE : COURSE_TRAIN;
}

static void next_train(struct course *c, struct task *t)
{
    const struct job *j = c->job;
    const struct conf *f = j->conf;
    struct feed_order order = {.seed = (uint64_t)f->run.seed, .count = j->count[DS_TRAIN], .shuffle = f->data.shuffle,
                               .wrap = j->wrap};
    uint64_t epoch;
    uint64_t at = c->position;
    int n = feed_batch(&order, at, (int)f->train.batch_size, t->id, &epoch);
    c->position += (uint64_t)n;
    c->step++;
    c->epoch = epoch + 1;
    t->epoch = c->epoch;
    t->last = false;
    t->o = (struct order){.kind = ORDER_TRAIN, .plan = (uint32_t)plan_index(j, PLAN_FULL, n), .step = c->step, .n = n,
                          .position = at, .weight = ds_weight(j->data[DS_TRAIN], t->id, n),
                          .learning_rate = course_rate(f, c->step)};
    c->phase = c->step == 1 && f->run.dump_gradients ? COURSE_DUMP : after_step(c);
}

static void next_evaluate(struct course *c, struct task *t)
{
    const struct job *j = c->job;
    struct feed_order order = {.seed = 0, .count = j->count[DS_TEST]};
    int batch = j->batch[j->batch[PLAN_EVAL_FULL] > 0 ? PLAN_EVAL_FULL : PLAN_EVAL_SHORT];
    uint64_t epoch;
    int n = feed_batch(&order, c->test_position, batch, t->id, &epoch);
    t->epoch = c->epoch;
    t->o = (struct order){.kind = ORDER_EVAL, .plan = (uint32_t)plan_index(j, PLAN_EVAL_FULL, n),
                          .step = c->step + ++c->part, .position = c->test_position, .n = n,
                          .weight = ds_weight(j->data[DS_TEST], t->id, n)};
    c->test_position += (uint64_t)n;
    t->last = c->test_position >= j->count[DS_TEST];
    if (!t->last) return;
    c->test_position = c->part = 0;
    if (j->conf->run.evaluate) c->phase = COURSE_STOP;
    else c->phase = c->step == c->steps ? COURSE_SAVE : COURSE_TRAIN;
}

bool course_next(struct course *c, struct task *t)
{
    switch (c->phase) {
    case COURSE_TRAIN: next_train(c, t); return true;
    case COURSE_DUMP:
        t->o = (struct order){.kind = ORDER_SAVE, .step = c->step, .what = WEIGHTS_GRADIENTS};
        c->phase = after_step(c);
        return true;
    case COURSE_EVALUATE: next_evaluate(c, t); return true;
    case COURSE_SAVE:
        t->o = (struct order){.kind = ORDER_SAVE, .step = c->step};
        c->phase = COURSE_STOP;
        return true;
    case COURSE_STOP:
        t->o = (struct order){.kind = ORDER_STOP, .step = c->step};
        c->phase = COURSE_END;
        return true;
    case COURSE_END: break;
    }
    return false;
}
