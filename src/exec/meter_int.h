/* The receivers of the meter's events: events on a stream, spans, times of kernels. Only the meter calls them. */
#ifndef EXEC_METER_INT_H
#define EXEC_METER_INT_H
#include "exec/meter.h"

/* Time on an asynchronous stream (stream.c); without a stream these functions do nothing. Events on the stream give the
 * time breakdown of a step. */
int stream_open(struct exec *s, struct err *e);
void stream_close(struct exec *s);
int stream_step(struct exec *s, struct err *e);          /* a step begins */
/* from here on the stream's time belongs to part; ACC_GRADS is divided by shares of an earlier step */
int stream_to(struct exec *s, enum account part, struct err *e);
/* as stream_to, in a fine step, for one kernel (index as in spans) */
int stream_kernel(struct exec *s, enum account part, int index, struct err *e);
/* does this step record every change, also within an action? */
bool stream_fine(const struct exec *s);
/* when all work is done: the meter's breakdown from the events, and spans of a traced step; from, to: clock_ns of the
 * step */
int stream_collect(struct exec *s, uint64_t from, uint64_t to, struct err *e);
/* runs one kernel alone and times it */
int stream_timed(struct exec *s, struct be_kernel *k, const struct be_call *c, uint64_t *ns, struct err *e);

void trace_open(struct exec *s);                                                                /* trace.c */
void trace_close(struct exec *s);
void trace_step(struct exec *s, const struct order *o);  /* is this step traced? */
bool trace_on(const struct exec *s);
void trace_span(struct exec *s, enum span_kind kind, uint64_t from, uint64_t to, int index);

void noted_begin(struct noted *k);                                                               /* profile.c */
void noted_end(struct noted *k);
void profile_note(struct profile *p, int plan, enum phase ph, int group, const struct noted *k);
void profile_note_load(struct profile *p, int plan, uint64_t ns);
void profile_free(struct profile *p);

#endif
