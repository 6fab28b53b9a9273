/* Finds ranks that are not responding. */
#include <stdio.h>
#include <string.h>
#include "base/deadline.h"
#include "cluster/failure_detector.h"

/* ---- heartbeats -------------------------------------------------------------------------------------------------- */

void beat_take(const struct exec_beat *b, const char *doing, struct beat *out)
{
    memset(out, 0, sizeof *out);
    out->count = atomic_load(&b->count);
    out->polls = atomic_load(&b->polls);
    out->step = atomic_load(&b->step);
    out->where = atomic_load(&b->where);
    out->slowest_ns = atomic_load(&b->slowest_ns);
    out->wait = atomic_load(&b->wait);
    out->state = atomic_load(&b->state);
    if (doing) snprintf(out->doing, sizeof out->doing, "%s", doing);
}

static bool in_step(const struct beat *b) { return (b->state & BEAT_IN) != 0; }

static const char *op_text(int op)
{
    static const char *const name[ACT_COUNT] = {
        [ACT_L] = "loading", [ACT_F] = "forward", [ACT_B] = "backward", [ACT_W] = "weight gradients",
        [ACT_D] = "backward", [ACT_R] = "recomputation", [ACT_N] = "gradient norm", [ACT_O] = "optimizer",
        [ACT_A] = "adding gradients", [ACT_G] = "adding gradients", [ACT_X] = "adding gradients",
    };
    if (name[op]) return name[op];
    return act_info[op].kind == KIND_RECV ? "receiving" : "sending";
}

/* The two buffer sizes let compilers see that the text fits. */
static void where_text(uint64_t where, char buf[64])
{
    int op = exec_where_op(where), stage = exec_where_stage(where), mb = exec_where_mb(where), n = exec_where_n(where);
    if (op < 0 || op >= ACT_COUNT) snprintf(buf, 64, "before the first action");
    else if (n == 0) snprintf(buf, 64, "stage %d, %s", stage, op_text(op));
    else if (n == 1) snprintf(buf, 64, "stage %d, %s of micro-batch %d", stage, op_text(op), mb);
    else snprintf(buf, 64, "stage %d, %s of micro-batches %d to %d", stage, op_text(op), mb, mb + n - 1);
}

char *beat_text(const struct beat *b, char buf[BEAT_TEXT])
{
    char where[64];
    if (!in_step(b)) {
        snprintf(buf, BEAT_TEXT, "%.*s", (int)sizeof b->doing, *b->doing ? b->doing : "between two steps");
        return buf;
    }
    where_text(b->where, where);
    snprintf(buf, BEAT_TEXT, "%s of %s %llu", where, b->state & BEAT_EVALUATES ? "evaluation batch" : "step",
             (unsigned long long)b->step);
    return buf;
}

static uint64_t age(uint64_t of, uint64_t now) { return now > of ? now - of : 0; }

/* ---- receiving heartbeats ---------------------------------------------------------------------------------------- */

void detector_begin(struct failure_detector *j, struct detector_rank *rank, int n, uint64_t now)
{
    *j = (struct failure_detector){.n = n, .silence = true, .checked = now, .rank = rank};
    for (int r = 0; r < n; r++)
        rank[r] = (struct detector_rank){.watched = true, .heard = now, .moved = now, .polled = now,
                                     .beat.wait = EXEC_WAITS_NOT};
}

void detector_beat(struct failure_detector *j, int rank, const struct beat *b, uint64_t now)
{
    struct detector_rank *r = &j->rank[rank];
    uint64_t gap = age(r->heard, now);
    if (!r->spoke || b->count != r->beat.count || b->state != r->beat.state) r->moved = now;
    else if (gap > DETECTOR_FRESH_NS) r->moved += gap;
    if (!r->spoke || b->polls != r->beat.polls) r->polled = now;
    else if (gap > DETECTOR_FRESH_NS) r->polled += gap;
    r->beat = *b;
    r->heard = now;
    r->spoke = true;
}

void detector_leave(struct failure_detector *j, int rank) { j->rank[rank].watched = false; }

/* ---- suspicions -------------------------------------------------------------------------------------------------- */

static uint64_t slowest(const struct failure_detector *j)
{
    uint64_t most = 0;
    for (int r = 0; r < j->n; r++) if (j->rank[r].beat.slowest_ns > most) most = j->rank[r].beat.slowest_ns;
    return most;
}

static uint64_t limit_of(const struct failure_detector *j, const struct detector_rank *r)
{
    uint64_t limit = DETECTOR_TIMES * slowest(j);
    if (limit < j->limit_ns) limit = j->limit_ns;
    if (in_step(&r->beat) && !(r->beat.state & BEAT_WARM) && limit < DETECTOR_FIRST * j->limit_ns)
        limit = DETECTOR_FIRST * j->limit_ns;
    if (r->beat.wait == EXEC_WAITS_DEVICE && limit < j->device_ns) limit = j->device_ns;
    return limit;
}

/* Whether heartbeats of that rank arrive, but it has made no progress for longer than its limit. */
static bool is_still(const struct failure_detector *j, int rank, uint64_t now)
{
    const struct detector_rank *r = &j->rank[rank];
    return r->watched && r->spoke && age(r->heard, now) <= DETECTOR_FRESH_NS && age(r->moved, now) > limit_of(j, r);
}

/* Follows the chain of who waits for whom, from a rank in a step. No suspicion if the chain ends at a rank that makes
 * progress, that polls for an order between two steps, or that is outside of steps (BEAT_ELSEWHERE). */
static bool chain_check(const struct failure_detector *j, int from, uint64_t now, struct suspicion *v)
{
    for (int at = from, n = 0; is_still(j, at, now); n++) {
        const struct beat *b = &j->rank[at].beat;
        if (b->state & BEAT_ELSEWHERE) return false;
        *v = (struct suspicion){SUSPECT_STUCK, at, b->wait, age(j->rank[at].moved, now)};
        bool polls = age(j->rank[at].polled, now) <= limit_of(j, &j->rank[at]);
        if (b->wait < 0 || b->wait >= j->n || !polls) return in_step(b) || !polls;
        v->kind = SUSPECT_DEADLOCK;
        if (n == j->n) return true;                       /* more hops than ranks: a cycle */
        at = b->wait;
    }
    return false;
}

bool detector_poll(struct failure_detector *j, uint64_t now, struct suspicion *v)
{
    uint64_t gap = age(j->checked, now);
    j->checked = now;
    if (gap > DETECTOR_FRESH_NS)
        for (int r = 0; r < j->n; r++) {
            if (age(j->rank[r].heard, now)) j->rank[r].heard += gap;
            if (age(j->rank[r].moved, now)) j->rank[r].moved += gap;
            if (age(j->rank[r].polled, now)) j->rank[r].polled += gap;
        }
    if (!j->limit_ns) return false;
    for (int r = 0; r < j->n; r++) {
        *v = (struct suspicion){SUSPECT_SILENT, r, EXEC_WAITS_NOT, age(j->rank[r].heard, now)};
        if (j->silence && j->rank[r].watched && v->ns > j->limit_ns) return true;
    }
    for (int r = 0; r < j->n; r++) if (in_step(&j->rank[r].beat) && chain_check(j, r, now, v)) return true;
    return false;
}

bool detector_is_current(const struct failure_detector *j, uint64_t now)
{
    for (int r = 0; r < j->n; r++)
        if (j->rank[r].watched && age(j->rank[r].heard, now) > DETECTOR_FRESH_NS) return false;
    return true;
}

uint64_t detector_thread(const struct failure_detector *j, struct thread_view *d, uint64_t count, bool in_file,
                         uint64_t now)
{
    uint64_t gap = age(d->checked, now), limit = DETECTOR_TIMES * slowest(j);
    bool moves = !d->spoke || count != d->count;
    if (limit < j->limit_ns) limit = j->limit_ns;
    if (in_file && limit < DEADLINE_NS(DEADLINE_WRITER)) limit = DEADLINE_NS(DEADLINE_WRITER);
    if (moves) d->moved = now;
    else if (gap > DETECTOR_FRESH_NS) d->moved += gap;
    d->spoke = true;
    d->count = count;
    d->checked = now;
    return j->limit_ns && age(d->moved, now) > limit ? age(d->moved, now) : 0;
}
