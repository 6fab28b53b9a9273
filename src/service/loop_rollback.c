/* Rank 0's scheduler: train.nonfinite = rollback. When the result of a step that was not finite arrives, ranks already
 * run later orders. These orders end first, and their results are discarded, because how many there are depends on
 * timing. Then all ranks read the newest checkpoint, or if that is damaged the one before. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "cluster/thread_liveness.h"
#include "cluster/log.h"
#include "service/loop_int.h"
#include "cluster/sd_notify.h"

bool loop_back_waits(const struct loop *l)
{
    enum sequencer_phase p = l->sequencer.phase;
    bool ends = p == SEQUENCER_DUMP || p >= SEQUENCER_SAVE;
    return conf_rolls_back(l->sequencer.conf) && ends && l->in_flight > 0;
}

void loop_back_begin(struct loop *l, const struct result *r)
{
    loop_revoke(l);
    sequencer_fault(&l->sequencer);
    l->goes_back = true;
    l->back.step = r->o.step;
    l->back.what = r->rep[0].nonfinite;
    l->back.position = r->o.position + (uint64_t)r->o.n;
}

static int folder_open(const struct loop *l)
{
    return openat(l->q.dir->fd, CKPT_FOLDER, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* An earlier process may have written the checkpoint, so only its manifest knows the evaluations until then. */
static void best_back(struct loop *l)
{
    struct ckpt c;
    struct err none = {0};
    const char *at = liveness_wait_file(CKPT_FOLDER);
    int dir = folder_open(l);
    bool read = dir >= 0 && !ckpt_read(dir, CKPT_FOLDER, l->back.to, &c, &none);
    ckpt_policy_back(&l->policy, read ? &c.best : NULL);
    if (read) ckpt_free(&c);
    if (dir >= 0) close(dir);
    liveness_wait_file(at);
}

/* All ranks have the state that they had after that step. */
static int rollback_done(struct loop *l, const struct result *r, struct err *e)
{
    l->goes_back = false;
    l->known = (struct known){l->back.to, r->o.n_skipped};
    l->reached.to = l->back.to;
    l->reached.times = l->back.times;
    sequencer_restored(&l->sequencer);
    l->steps = l->back.to;
    l->samples = sequencer_samples(l->q.job, l->back.position);
    best_back(l);
    notify_disk(NOTIFY_CHECKPOINT, false);
    log_line("rolled back to step %llu", (unsigned long long)l->back.to);
    struct event ev = {.kind = EVENT_ROLLBACK, .step = (int64_t)l->back.step, .to = (int64_t)l->back.to,
                       .times = (int64_t)l->back.times, .position = (int64_t)l->back.position};
    event_nonfinite(&ev, l->q.job->graph, l->back.what);
    return reporters_tell(l->q.reporters, &ev, e);
}

/* The run's newest checkpoint before that step; 0: none. */
static uint64_t older(const struct loop *l, uint64_t than)
{
    struct err none = {0};
    uint64_t *step = NULL, found = 0;
    const char *at = liveness_wait_file(CKPT_FOLDER);
    int n = 0, dir = folder_open(l);
    if (dir >= 0) ckpt_list_of(dir, CKPT_FOLDER, save_headed(l->q.save)->run, &step, &n, &none);
    for (int i = 0; i < n && !found; i++) if (step[i] < than) found = step[i];
    free(step);
    if (dir >= 0) close(dir);
    liveness_wait_file(at);
    return found;
}

/* loop_back_turn then tries the checkpoint before it. */
static void pass_over(struct loop *l, const char *why)
{
    l->passed_over = true;
    l->policy.step = older(l, l->back.to);
    log_line("warning: skipping a damaged checkpoint: %s", why);
}

int loop_back_take(struct loop *l, const struct result *r, struct err *e)
{
    if (r->o.kind == ORDER_CHECKPOINT) ckpt_policy_forgo(&l->policy, &r->o);
    if (r->o.kind != ORDER_ROLLBACK) return 0;
    if (!r->damaged.code) return rollback_done(l, r, e);
    pass_over(l, r->damaged.text);
    return 0;
}

static int too_often(const struct loop *l, const char *what, struct err *e)
{
    static const char hint[] = "try a smaller train.learning_rate, and look for NaN and very large values in the data";
    unsigned long long step = l->back.step;
    if (!l->policy.step)
        return err_set(e, E_NONFINITE, "step %llu: %s is not finite, and there is no %scheckpoint to roll back to; %s",
                       step, what, l->passed_over ? "valid " : "", hint);
    return err_set(e, E_NONFINITE, "step %llu: %s is not finite after %llu roll-backs to the checkpoint of step "
                   "%llu; %s", step, what, (unsigned long long)l->reached.times, (unsigned long long)l->reached.to,
                   hint);
}

int loop_back_turn(struct loop *l, struct err *e)
{
    struct rollback *b = &l->back;
    char what[300];
    if (l->sequencer.phase != SEQUENCER_FAULT || l->in_flight || l->policy.writing) return 0;
    nonfinite_text(l->q.job->graph, b->what, what, sizeof what);
    b->to = l->policy.step;
    b->times = b->to == l->reached.to ? l->reached.times : 0;
    bool again = b->times < (uint64_t)l->q.job->conf->train.nonfinite_limit;
    if (!b->to || !again) return too_often(l, what, e);
    b->times++;
    log_line("step %llu: %s is not finite; rolling back to the checkpoint of step %llu and skipping the samples from "
             "there to this step", (unsigned long long)b->step, what, (unsigned long long)b->to);
    sequencer_back(&l->sequencer, b->to, b->position);
    ctl_checkpoint_back(l->ctl, b->to);
    notify_disk(NOTIFY_CHECKPOINT, true);
    return 0;
}
