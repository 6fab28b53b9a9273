/* The interpreter: for each action of the row it waits for the operands, then runs the program or posts the transfer.
 * It decides nothing about schedules. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "exec/disk.h"
#include "exec/fetch.h"
#include "exec/meter.h"
#include "optim/optim.h"

static int prog_run(struct exec *s, struct bound *b, const struct act *a, struct err *e)
{
    if (!act_prog(b->p, a)->n) return 0;
    if (s->fetch && fetch_wait(s, b, a, e)) return -1;
    return meter_program(s, act_info[a->op].part, e) || calls_replay(s, b, act_index(s, b, a), e) ? -1 : 0;
}

static int sum_run(struct exec *s, struct bound *b, const struct act *a, struct err *e)
{
    if (meter_to(s, act_info[a->op].part, e) || calls_replay(s, b, act_index(s, b, a), e)) return -1;
    meter_host(s, ACC_OTHER);
    return 0;
}

static int optimizer_run(struct exec *s, struct bound *b, const struct act *a, struct err *e)
{
    bool norms = act_info[a->op].kind == KIND_REDUCE;
    if (!norms && state_wait(s, e)) return -1;
    if (meter_to(s, act_info[a->op].part, e)) return -1;
    int bad = calls_replay(s, b, act_index(s, b, a), e);
    if (!bad && norms) bad = exec_agree(s, b, e);
    meter_host(s, ACC_OTHER);
    return bad;
}

static act_fn *const run_of[] = {
    [KIND_LOAD] = exec_load, [KIND_PROGRAM] = prog_run, [KIND_SUM] = sum_run,
    [KIND_SEND] = exec_post, [KIND_RECV] = exec_post, [KIND_ALL] = exec_post,
    [KIND_REDUCE] = optimizer_run, [KIND_OPTIMIZER] = optimizer_run, [KIND_FETCH] = exec_fetch,
    [KIND_EVICT] = exec_evict,
};

static int step_failed(const struct exec *s, const char *where, struct err *e)
{
    return err_where(e, "rank %d, step %llu, %s", all_rank(s), (unsigned long long)s->step, where);
}

/* For a tensor damaged after the agreement, or in an evaluation: the step cannot run again. */
static int damaged_late(const struct exec *s, struct err *e)
{
    const struct damaged *d = &s->damaged;
    return err_set(e, E_DEVICE, "data from rank %d was corrupted in transfer; suspect the memory or the network",
                   d->from);
}

/* A step without an update ends after the action that found the reason, on all ranks alike. */
static int row_run(struct exec *s, struct bound *b, struct err *e)
{
    const struct act *a = b->p->row[s->rank];
    char text[32];
    for (int i = 0; i < b->p->row_n[s->rank] && s->outcome == UPDATE; i++, a++) {
        meter_act(s, i);
        beat_act(s, b, a);
        if (exec_aborted(s, e) || operands_wait(s, b, a, e) || messages_wait(s, b, a, e) ||
            run_of[act_info[a->op].kind](s, b, a, e))
            return step_failed(s, act_text(b->p, a, text), e);
        meter_act_end(s);
    }
    if (posts_settle(s, e)) return step_failed(s, "end", e);
    if (s->outcome == UPDATE && s->damaged.n) {
        damaged_late(s, e);
        return step_failed(s, "end", e);
    }
    if (b->p->req.mode != PLAN_TRAIN || s->outcome != UPDATE) return 0;
    if (meter_to(s, ACC_OPTIMIZER, e) || calls_replay(s, b, b->p->row_n[s->rank], e))
        return step_failed(s, "optimizer", e);
    return 0;
}

void exec_past_set(struct exec *s, const struct exec_past *p) { s->past = *p; }
struct exec_past exec_past(const struct exec *s) { return s->past; }

static int block_set(struct exec *s, const struct bound *b, const struct order *o, const int64_t *id, struct err *e)
{
    struct be_block k = s->given;
    double ema = s->q.conf->train.ema;
    uint64_t skipped = s->past.n_skipped, update = o->step - skipped;
    if (b->p->req.mode == PLAN_TRAIN && (skipped < o->n_skipped || skipped - o->n_skipped > ORDER_AHEAD))
        return err_set(e, E_INTERNAL, "%llu steps were skipped, %llu of them when this one was ordered",
                       (unsigned long long)skipped, (unsigned long long)o->n_skipped);
    k.fresh = update == 1 ? 1 : 1 - ema;                 /* torch's AveragedModel begins as a copy */
    k.inv_weight = o->weight > 0 ? 1.0 / o->weight : 0;   /* 0: all samples of the batch have weight 0 */
    k.learning_rate = b->p->req.mode == PLAN_TRAIN ? order_rate(o, skipped) : 0;
    k.step = o->step;
    k.update = update - s->past.before;
    optim_list[s->optimizer]->once(&k);
    if (b->p->req.batch != o->n)
        return err_set(e, E_INTERNAL, "order of %d samples for a plan of %d", o->n, b->p->req.batch);
    if (!(o->weight >= 0 && isfinite(o->weight)))
        return err_set(e, E_DATA, "the samples of the batch weigh %g", o->weight);
    return s->ops->copy(s->be, s->block, &k, sizeof k, e) ||
                   s->ops->copy(s->be, s->sample, id, (size_t)o->n * sizeof *id, e)
               ? -1
               : 0;
}

static int attempt(struct exec *s, struct bound *b, const struct order *o, const int64_t *id, struct err *e)
{
    s->outcome = UPDATE;
    s->damaged.n = 0;
    memset(s->has_norm, 0, (size_t)s->g->n_params * sizeof *s->has_norm);
    return block_set(s, b, o, id, e) ? step_failed(s, "begin", e) : row_run(s, b, e);
}

/* Decides what follows from an attempt's outcome, on all ranks alike. Returns 1: run the same order again, with its
 * samples read again. */
static int attempt_outcome(struct exec *s, struct err *e)
{
    switch (s->outcome) {
    case UPDATE: return 0;
    case CORRUPTED:
        if (exec_damaged_report(s, e)) return -1;
        break;
    case NOT_FINITE:
        if (s->kept) {
            s->report->nonfinite = exec_nonfinite(s);
            s->past.n_skipped++;
            return 0;
        }
        exec_agreed_store(s);
        break;
    case VERIFIED: exec_agreed_store(s); break;
    case NOT_REPRODUCED: return exec_unsure(s, e);
    }
    return exec_ahead_again(s, e) ? step_failed(s, "again", e) : 1;
}

static bool is_verified(const struct exec *s, const struct bound *b)
{
    int64_t every = s->q.conf->run.verify_every;
    return every && b->p->req.mode == PLAN_TRAIN && s->step % (uint64_t)every == 0;
}

static int step_run(struct exec *s, const struct order *o, const int64_t *id, struct report *r, struct err *e)
{
    struct bound *b = &s->bound[o->plan];
    int again = 1;
    s->kept = false;
    s->verifies = is_verified(s, b);
    while (again > 0) if (attempt(s, b, o, id, e) || (again = attempt_outcome(s, e)) < 0) return -1;
    if (meter_to(s, ACC_OTHER, e) || exec_drain(s, e)) return step_failed(s, "end", e);
    if (b->p->req.mode != PLAN_TRAIN && exec_scores(s, b, o, r, e)) return step_failed(s, "end", e);
    return 0;
}

static void damage_report(const struct exec *s, struct report *r)
{
    for (int part = DS_TRAIN; part <= DS_TEST; part++) {
        if (!s->feed[part]) continue;
        const struct ds_damage *found = feed_damage(s->feed[part]);
        if (found->skipped && !r->skipped) r->first_skipped = found->first;
        r->skipped += found->skipped;
    }
}

/* Memory that the data sets of this rank hold of their files. */
static uint64_t held_bytes(const struct exec *s)
{
    uint64_t n = 0;
    struct ds *const part[] = {[DS_TRAIN] = s->q.train, [DS_TEST] = s->q.test};
    for (int i = DS_TRAIN; i <= DS_TEST; i++)
        if (s->feed[i] && part[i]->kind->held) n += part[i]->kind->held(part[i]);
    return n;
}

int exec_step(struct exec *s, const struct order *o, const int64_t *id, struct report *r, struct err *e)
{
    *r = (struct report){.step = o->step, .rank = all_rank(s), .allocated_bytes = exec_taken(s)};
    s->step = o->step;
    s->plan = (int)o->plan;
    s->order = o;
    s->report = r;
    s->grad_norm = -1;
    bool evaluates = s->bound[o->plan].p->req.mode != PLAN_TRAIN;
    int bad = meter_step(s, o, r, e) || exec_averages_use(s, evaluates, e) || exec_ahead_ready(s, o, id, e);
    if (bad) step_failed(s, "begin", e);
    else {
        bad = step_run(s, o, id, r, e);
        exec_ahead_done(s);
    }
    if (s->disk) disk_report(s, r);
    if (meter_step_end(s, bad, r, e)) bad = step_failed(s, "account", e);
    r->grad_norm = s->grad_norm;
    r->resident_bytes = resident_peak() - s->resident_before;
    s->has_read |= !evaluates;
    if (s->has_read) r->resident_bytes -= s->read_bytes < r->resident_bytes ? s->read_bytes : r->resident_bytes;
    r->library_bytes = s->library_bytes;
    r->feed_bytes = s->feed_bytes + held_bytes(s);
    damage_report(s, r);
    return bad ? -1 : 0;
}
