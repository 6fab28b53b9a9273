/* One interface for everything that measures a rank's time: its time breakdown, the spans of traced steps, and the
 * times of single kernels. The other files of exec report events here and do nothing else about time.
 *
 * In a step exactly one part of the breakdown runs at any moment. On a device the breakdown comes from events on its
 * stream (stream.c): the device runs after the host, and the host's own work meanwhile does not count. Otherwise it
 * comes from the host's clock. */
#ifndef EXEC_METER_H
#define EXEC_METER_H
#include "base/clock.h"
#include "exec/exec_int.h"

/* Recorded of a kernel: its time, its thread's time on a core, pages that came from a disk. */
struct noted { uint64_t ns, core_ns, faults; };
struct meter {
    enum account part;                                   /* the part of the host's time that runs */
    uint64_t since, ns[ACC_COUNT];                       /* its start; times of ended parts */
    /* start of the running step; end of the previous one, 0: none */
    uint64_t began, ended;
    bool traced, watched;                                /* of this step; watched: each of its calls, for any purpose */
    int act; uint64_t act_began;                         /* the running action; its start, in a traced step */
    uint64_t call_began; struct noted call;              /* the running call, where calls are watched */
    struct stream *stream;                               /* NULL: the backend runs at once */
    struct trace *trace;                                 /* NULL: nothing is traced */
    struct profile *profile;                             /* NULL: kernels are not recorded */
    struct profile *profiled;                            /* recorded times, or the memory for them */
};
/* A wait for a post. part: the part that it belongs to now, ACC_COUNT: it took no time yet; before: the part that ran
 * when it began. */
struct meter_wait { enum account before, part; uint64_t from; };

int meter_open(struct exec *s, struct err *e);          /* after all plans are bound */
void meter_close(struct exec *s);
/* Begins a step: exec.step and exec.plan name it. Fills r->idle_ns. */
int meter_step(struct exec *s, const struct order *o, struct report *r, struct err *e);
/* Ends the step. Waits for the stream, unless the step failed: then its events are not valid. Fills the report's time
 * breakdown. */
int meter_step_end(struct exec *s, bool failed, struct report *r, struct err *e);
void meter_act(struct exec *s, int act);                /* what follows belongs to this action of the row */
void meter_act_end(struct exec *s);

/* The host works on `part` from here on; no effect on a stream's breakdown. Returns clock_ns. */
static inline uint64_t meter_host(struct exec *s, enum account part)
{
    struct meter *m = s->meter;
    uint64_t now = clock_ns();
    m->ns[m->part] += now - m->since;
    m->since = now;
    m->part = part;
    return now;
}
/* What follows belongs to a part, on the host and on the stream. */
int meter_to(struct exec *s, enum account part, struct err *e);
/* As meter_to for a program, unless its calls are marked on the stream one by one. */
int meter_program(struct exec *s, enum account part, struct err *e);
bool meter_marks_calls(const struct exec *s);           /* ... which is not so if calls are replayed */

/* A call of a program begins, runs its kernels, ends. */
int meter_watch_begin(struct exec *s, const struct kop *k, const struct act *a, struct err *e);
int meter_watch_run(struct exec *s, struct be_kernel *kernel, const struct be_call *c, struct err *e);
void meter_watch_end(struct exec *s, const struct kop *k, const struct act *a);
static inline int meter_call_begin(struct exec *s, const struct kop *k, const struct act *a, struct err *e)
{
    if (s->meter->watched) return meter_watch_begin(s, k, a, e);
    meter_host(s, act_part(a->op, k->phase));
    return 0;
}
static inline int meter_run(struct exec *s, struct be_kernel *kernel, const struct be_call *c, struct err *e)
{
    return s->meter->watched ? meter_watch_run(s, kernel, c, e) : s->ops->run(s->be, kernel, c, e);
}
static inline void meter_call_end(struct exec *s, const struct kop *k, const struct act *a)
{
    if (s->meter->watched) meter_watch_end(s, k, a);
    else meter_host(s, ACC_TRANSFER);
}

void meter_wait_begin(struct exec *s, struct meter_wait *w);
/* Before each poll: from now on the wait belongs to part. */
int meter_wait_for(struct exec *s, struct meter_wait *w, enum account part, struct err *e);
void meter_wait_end(struct exec *s, struct meter_wait *w);
/* Should messages be tested while no action waits for them? */
static inline bool meter_messages(const struct exec *s) { return s->meter->traced; }
void meter_message(struct exec *s, uint64_t posted, int act);   /* a message is complete */
uint64_t meter_load(struct exec *s);                    /* loading begins; pass the result to meter_load_end */
void meter_load_end(struct exec *s, uint64_t began);

#endif
