/* Waiting: for posts and an action's operands, for readers of state, for the stream; it yields the core. */
#include <sched.h>
#include <time.h>
#include "base/clock.h"
#include "base/deadline.h"
#include "exec/meter.h"

/* The part of the account that causes a wait. */
static enum account wait_part(const struct pending *p, enum tp_state state)
{
    return !p->send && state >= TP_ANNOUNCED ? p->info->part : p->info->wait;
}

/* Polls eagerly, then yields, because ranks may outnumber cores. */
static void wait_politely(unsigned tries)
{
    if (tries < 200) return;
    if (tries < 20000) { sched_yield(); return; }
    nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
}

/* Tests a post; counts a damaged tensor when its end is known. */
static enum tp_state pending_test(struct exec *s, struct pending *p)
{
    if (p->done) return TP_DONE;
    enum tp_state state = s->tp->ops->test(s->tp, &p->req);
    if (state == TP_DONE && p->lent) *p->lent = p->req;
    if (state == TP_DONE && p->req.read_ns) s->report->read_bytes += p->bytes, s->report->read_ns += p->req.read_ns;
    if (state < TP_QUEUED || !p->req.damaged || p->damaged) return state;
    p->damaged = true;
    if (!s->damaged.n++) s->damaged.from = p->from, s->damaged.to = all_rank(s);
    return state;
}

/* While tracing, messages are tested after every kernel. Otherwise their end would be seen only when an action needs
 * them. */
void posts_poll(struct exec *s)
{
    for (int i = 0; i < s->n_pending; i++) {
        struct pending *p = &s->pending[i];
        if (p->done || pending_test(s, p) != TP_DONE) continue;
        p->done = true;
        meter_message(s, p->posted, p->act);
    }
}

/* Waits until the post is done, or until its end is queued and joined by the stream. The stream has an event for waits,
 * too. The device reaches this event when it has nothing else to do. If the device is later than the host, it reaches
 * the event at once, and the wait takes no time. */
static int pending_wait(struct exec *s, struct pending *p, struct err *e)
{
    enum tp_state state = pending_test(s, p);
    struct meter_wait w;
    meter_wait_begin(s, &w);
    for (unsigned tries = 0; state < TP_QUEUED; tries++) {
        if (meter_wait_for(s, &w, wait_part(p, state), e)) return -1;
        if (!tries) beat_waits(s, p->peer);
        exec_beat_poll(s->beat);
        if (exec_aborted(s, e) || exec_progress(s, e)) return -1;
        state = pending_test(s, p);
        if (state < TP_QUEUED) wait_politely(tries);
    }
    beat_waits(s, EXEC_WAITS_NOT);
    if (state == TP_QUEUED &&
        (meter_wait_for(s, &w, wait_part(p, state), e) || s->tp->ops->join(s->tp, &p->req, e)))
        return -1;
    meter_wait_end(s, &w);
    if (!p->done) meter_message(s, p->posted, p->act);
    *p = s->pending[--s->n_pending];
    return 0;
}

int posts_wait(struct exec *s, int cls, int slot, bool sends, struct err *e)
{
    for (int i = 0; i < s->n_pending;) {
        struct pending *p = &s->pending[i];
        bool hit = cls == WAIT_ALL || (p->cls == cls && p->slot == slot && p->send == sends);
        if (!hit) i++;
        else if (pending_wait(s, p, e)) return -1;
    }
    return 0;
}

int messages_wait(struct exec *s, const struct bound *b, const struct act *a, struct err *e)
{
    const struct act_info *info = &act_info[a->op];
    const struct channel *own = a->chan < 0 ? NULL : &b->p->chan[a->chan];
    for (int i = 0; (info->after_come || info->after_left) && i < s->n_pending;) {
        struct pending *p = &s->pending[i];
        /* messages of other buckets may still move, and so may tied weights if the bucket has none */
        bool other = own && own->bucket && (p->bucket ? p->bucket != own->bucket : !own->late);
        if (other || !((p->send ? info->after_left : info->after_come) >> p->info->chan & 1)) i++;
        else if (pending_wait(s, p, e)) return -1;
    }
    return 0;
}

/* Posts that the stream joined still move, and after the step the transport may not be driven for a while. */
int posts_settle(struct exec *s, struct err *e)
{
    if (posts_wait(s, WAIT_ALL, 0, false, e)) return -1;
    if (!s->tp->ops->idle) return 0;
    meter_host(s, ACC_TRANSFER);
    beat_waits(s, EXEC_WAITS_DEVICE);
    for (unsigned tries = 0; !s->tp->ops->idle(s->tp); tries++) {
        if (exec_aborted(s, e) || exec_progress(s, e)) return -1;
        wait_politely(tries);
    }
    beat_waits(s, EXEC_WAITS_NOT);
    meter_host(s, ACC_OTHER);
    return 0;
}

void operands_place(struct bound *b, const struct act *a)
{
    const struct opnd *o = b->p->opnd + a->opnd;
    for (int i = 0; i < a->n_opnd; i++, o++)
        for (int j = 0; j < a->n_mb; j++) b->slot[o->cls * b->p->n_mb + a->mb + j] = o->slot + j;
}

int operands_wait(struct exec *s, struct bound *b, const struct act *a, struct err *e)
{
    const struct opnd *o = b->p->opnd + a->opnd;
    operands_place(b, a);
    for (int i = 0; i < a->n_opnd; i++, o++)
        for (int j = 0; j < a->n_mb; j++) {
            if ((o->mode & OPND_READ) && posts_wait(s, o->cls, o->slot + j, false, e)) return -1;
            if ((o->mode & OPND_WRITE) && posts_wait(s, o->cls, o->slot + j, true, e)) return -1;
        }
    return 0;
}

/* The checkpoint writer has made no progress for `ns`: a file server does not respond. */
static int hold_failed(const struct exec *s, uint64_t ns, struct err *e)
{
    return err_set(e, E_IO, "%s/checkpoints: writing makes no progress for %.1f s: the file system is not responding",
                   s->q.conf->run.directory, (double)ns * 1e-9);
}

int state_wait(struct exec *s, struct err *e)
{
    const struct exec_hold *h = s->q.hold;
    if (!h || !atomic_load(&h->on)) return 0;
    if (meter_to(s, ACC_CHECKPOINT, e)) return -1;
    uint64_t moved = atomic_load(&h->moved), since = clock_ns();
    uint64_t limit = s->q.hold_ns ? s->q.hold_ns : DEADLINE_NS(DEADLINE_WRITER);
    for (unsigned tries = 0; atomic_load(&h->on); tries++) {
        uint64_t now = clock_ns(), seen = atomic_load(&h->moved);
        if (seen != moved) moved = seen, since = now;
        if (now - since > limit) return hold_failed(s, now - since, e);
        beat_moves(s);                                    /* a slow disk must not look like a stuck rank */
        if (exec_aborted(s, e) || exec_progress(s, e)) return -1;
        wait_politely(tries);
    }
    return 0;
}

int exec_drain(struct exec *s, struct err *e)
{
    int done;
    for (unsigned tries = 0; (done = s->ops->done(s->be, e)) == 0; tries++) {
        if (!tries) beat_waits(s, EXEC_WAITS_DEVICE);
        if (exec_aborted(s, e) || exec_progress(s, e) || exec_load_early(s, e)) return -1;
        wait_politely(tries);
    }
    beat_waits(s, EXEC_WAITS_NOT);
    return done < 0 ? -1 : 0;
}
