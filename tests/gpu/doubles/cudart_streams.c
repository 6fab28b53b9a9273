/* The double of cudart: streams, events, recorded graphs.
 *
 * A stream is a thread that runs operations in order. An event counts how often it was recorded; a wait holds its
 * stream until the record that was the last one when the wait was enqueued has been reached. So waiting for an event
 * before it is recorded waits for nothing, as in CUDA. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "double_int.h"

pthread_mutex_t double_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t double_changed = PTHREAD_COND_INITIALIZER;

enum kind { COPY, SET, CALL, RECORD, WAIT };
struct op {
    struct op *next;
    enum kind kind;
    void *dst; const void *src; size_t bytes; int value; /* COPY, SET */
    /* CALL; drop: instead of fn where the device is gone, or NULL */
    cudaHostFn_t fn, drop; void *data;
    struct CUevent_st *event; uint64_t ticket;           /* RECORD, WAIT */
    bool owns;                                           /* src or data is the operation's own */
};
struct ops { struct op *first, *last; };

struct CUevent_st {
    uint64_t recorded, reached, ns;                      /* tickets given, ticket seen; when */
    int users;                                           /* operations under way that name it, and its owner */
    bool timed;
};
struct CUgraph_st {
    struct ops ops;
    bool broken;                                         /* something was called that cannot be recorded */
};
struct CUgraphExec_st { struct ops ops; };
struct CUstream_st {
    struct CUstream_st *next;
    pthread_t thread;
    pthread_cond_t arrived;
    struct ops ops;
    uint64_t enqueued, done, until, random;              /* until: what a free waits for */
    unsigned max_us;
    int number, device;                                  /* number: among its thread's streams */
    bool closing, works;                                 /* works: on memory, now */
    struct CUgraph_st *graph;                            /* that is being recorded */
    bool strict;                                         /* in a mode that forbids calls which might wait */
    atomic_bool loses;                                   /* waits */
};

static struct CUstream_st *streams;                      /* under double_lock, as all below */
static unsigned set_max_us; static uint64_t set_seed; static bool is_set; static int n_streams, refuse_in;
static atomic_int n_recording;
static cudaError_t refuse_with;
/* streams; captures in strict modes; number of the stream that waits for nothing */
static _Thread_local int made, recording, dropped = -1;
static _Thread_local bool drop_read;

void double_delays(unsigned max_us, uint64_t seed)
{
    pthread_mutex_lock(&double_lock);
    set_max_us = max_us;
    set_seed = seed;
    is_set = true;
    pthread_mutex_unlock(&double_lock);
}

void double_drop_waits(int number)
{
    dropped = number;
    drop_read = true;
}

static bool drops(const struct CUstream_st *s)
{
    if (!drop_read) double_drop_waits((int)double_setting("DOUBLE_DROP", true, -1));
    return s->number == dropped;
}

bool double_strict(void) { return recording > 0; }

void double_refuse_recorded(int n, cudaError_t with)
{
    pthread_mutex_lock(&double_lock);
    refuse_in = n;
    refuse_with = with;
    pthread_mutex_unlock(&double_lock);
}

static cudaError_t recorded_refuse(void)
{
    pthread_mutex_lock(&double_lock);
    cudaError_t status = refuse_in > 0 && --refuse_in == 0 ? refuse_with : cudaSuccess;
    pthread_mutex_unlock(&double_lock);
    return status;
}

/* What may not be called on a stream that records breaks the recording off. */
static cudaError_t unrecorded(struct CUstream_st *s, cudaError_t status)
{
    if (s->graph && status >= cudaErrorStreamCaptureUnsupported && status <= cudaErrorStreamCaptureWrongThread)
        s->graph->broken = true;
    return double_result(status);
}

int double_recording(void) { return n_recording; }

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- operations ------------------------------------------------------------------------------ */

static void event_leave(struct CUevent_st *e) { if (--e->users == 0) free(e); }

static void push(struct ops *q, struct op *o)
{
    o->next = NULL;
    if (q->first) q->last->next = o;
    else q->first = o;
    q->last = o;
}

static void op_free(struct op *o)
{
    if (o->owns) { free(o->kind == CALL ? o->data : (void *)(uintptr_t)o->src); }
    free(o);
}

static void ops_free(struct ops *q)
{
    while (q->first) {
        struct op *o = q->first;
        q->first = o->next;
        op_free(o);
    }
}

static void *bytes_copy(const void *p, size_t bytes)
{
    void *copy = malloc(bytes ? bytes : 1);
    if (bytes) memcpy(copy, p, bytes);
    return copy;
}

static struct op *op_copy(const struct op *o)
{
    struct op *c = malloc(sizeof *c);
    *c = *o;
    if (o->owns && o->kind == CALL) c->data = bytes_copy(o->data, o->bytes);
    else if (o->owns) c->src = bytes_copy(o->src, o->bytes);
    return c;
}

static void op_run(struct op *o)
{
    switch (o->kind) {
    case COPY: memmove(o->dst, o->src, o->bytes); break;
    case SET:
        if (o->value) memset(o->dst, o->value, o->bytes);
        else double_clear(o->dst, o->bytes);
        break;
    case CALL: o->fn(o->data); break;
    case RECORD: case WAIT: break;
    }
}

/* xorshift64*; disorder needs no better. A stream that has lost a wait is not late by chance: what it should have
 * waited for comes after it. */
static void delay(struct CUstream_st *s)
{
    if (!s->max_us || s->loses) return;
    s->random ^= s->random >> 12;
    s->random ^= s->random << 25;
    s->random ^= s->random >> 27;
    uint64_t us = (s->random * 2685821657736338717ull >> 32) % (s->max_us + 1);
    nanosleep(&(struct timespec){.tv_sec = (time_t)(us / 1000000), .tv_nsec = (long)(us % 1000000) * 1000}, NULL);
}

/* With the lock. */
static void op_end(struct CUstream_st *s, struct op *o)
{
    while (o->kind == WAIT && !double_lost && o->event->reached < o->ticket)
        pthread_cond_wait(&double_changed, &double_lock);
    if (o->kind == RECORD && o->event->reached < o->ticket) {
        o->event->reached = o->ticket;
        o->event->ns = now_ns();
    }
    if (o->event) event_leave(o->event);
    op_free(o);
    s->done++;
    pthread_cond_broadcast(&double_changed);
}

static void *stream_main(void *arg)
{
    struct CUstream_st *s = arg;
    struct op *o;
    pthread_mutex_lock(&double_lock);
    for (;;) {
        while (!s->ops.first && !s->closing) pthread_cond_wait(&s->arrived, &double_lock);
        if (!(o = s->ops.first)) break;
        s->ops.first = o->next;
        pthread_mutex_unlock(&double_lock);
        delay(s);
        pthread_mutex_lock(&double_lock);
        bool lost = double_lost;
        /* what has a drop may wait for a peer, until its owner ends it */
        s->works = !lost && !o->drop;
        pthread_mutex_unlock(&double_lock);
        if (!lost) op_run(o);
        else if (o->drop) o->drop(o->data);
        pthread_mutex_lock(&double_lock);
        s->works = false;
        op_end(s, o);
    }
    pthread_mutex_unlock(&double_lock);
    return NULL;
}

/* With the lock. */
static void give(struct CUstream_st *s, struct op *o)
{
    if (o->kind == RECORD) o->ticket = ++o->event->recorded;
    if (o->kind == WAIT) o->ticket = o->event->recorded;
    if (o->event) o->event->users++;
    push(&s->ops, o);
    s->enqueued++;
    pthread_cond_signal(&s->arrived);
}

/* Takes the operation, also on failure. A stream that is recording keeps it. */
static cudaError_t enqueue(struct CUstream_st *s, struct op what)
{
    struct op *o = malloc(sizeof *o);
    *o = what;
    cudaError_t status = s ? double_alive(true) : double_result(cudaErrorInvalidResourceHandle);
    if (status == cudaSuccess && s->graph && s->graph->broken)
        status = double_result(cudaErrorStreamCaptureInvalidated);
    if (status == cudaSuccess && s->graph && o->event)   /* a replay would not be the same in every step */
        status = unrecorded(s, o->kind == WAIT ? cudaErrorStreamCaptureIsolation : cudaErrorStreamCaptureUnsupported);
    if (status == cudaSuccess && s->graph) status = unrecorded(s, recorded_refuse());
    if (status != cudaSuccess) {
        op_free(o);
        return status;
    }
    pthread_mutex_lock(&double_lock);
    if (s->graph) push(&s->graph->ops, o);
    else give(s, o);
    pthread_mutex_unlock(&double_lock);
    return cudaSuccess;
}

/* Memory that CUDA does not know is copied at once, or waited for, as pageable memory is. */
cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    enum cudaMemoryType to = double_memory(dst), from = double_memory(src);
    bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    if (kind != cudaMemcpyDefault &&
        (to_device != (to == cudaMemoryTypeDevice) || from_device != (from == cudaMemoryTypeDevice)))
        return double_result(cudaErrorInvalidValue);
    struct op o = {.kind = COPY, .dst = dst, .src = src, .bytes = bytes};
    if (from == cudaMemoryTypeUnregistered) {
        o.src = bytes_copy(src, bytes);
        o.owns = true;
    }
    cudaError_t status = enqueue(stream, o);
    return status == cudaSuccess && to == cudaMemoryTypeUnregistered ? cudaStreamSynchronize(stream) : status;
}

cudaError_t cudaMemsetAsync(void *dst, int value, size_t bytes, cudaStream_t stream)
{
    if (bytes && double_memory(dst) != cudaMemoryTypeDevice) return double_result(cudaErrorInvalidValue);
    return enqueue(stream, (struct op){.kind = SET, .dst = dst, .value = value, .bytes = bytes});
}

cudaError_t double_call(cudaStream_t stream, cudaHostFn_t fn, cudaHostFn_t drop, void *data)
{
    return enqueue(stream, (struct op){.kind = CALL, .fn = fn, .drop = drop, .data = data});
}

int host_launch(void *stream, cudaHostFn_t fn, const void *data, size_t bytes)
{
    struct op o = {.kind = CALL, .fn = fn, .data = bytes_copy(data, bytes), .bytes = bytes, .owns = true};
    return enqueue(stream, o);
}

/* ---- streams --------------------------------------------------------------------------------- */

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority)
{
    cudaError_t status = double_alive(false);
    (void)flags;
    (void)priority;
    if (status != cudaSuccess) return status;
    if (made == double_setting("DOUBLE_STREAMS", true, -1)) return double_result(cudaErrorMemoryAllocation);
    double_made();
    struct CUstream_st *s = calloc(1, sizeof *s);
    int device;
    cudaGetDevice(&device);
    pthread_mutex_lock(&double_lock);
    if (!is_set) {
        set_max_us = (unsigned)double_setting("DOUBLE_DELAY_US", false, 0);
        set_seed = (uint64_t)double_setting("DOUBLE_SEED", false, 1);
        is_set = true;
    }
    s->max_us = set_max_us;
    s->random = (set_seed + 1) * 0x9e3779b97f4a7c15ull ^ (uint64_t)++n_streams << 32;
    s->number = made++;
    s->device = device;
    pthread_cond_init(&s->arrived, NULL);
    s->next = streams;
    streams = s;
    pthread_mutex_unlock(&double_lock);
    if (pthread_create(&s->thread, NULL, stream_main, s)) abort();
    *stream = s;
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    return cudaStreamCreateWithPriority(stream, flags, 0);
}

/* Waits for what is enqueued, unlike the real one, so that no test ends before its streams. */
cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    if (!s) return double_result(cudaErrorInvalidResourceHandle);
    pthread_mutex_lock(&double_lock);
    struct CUstream_st **link = &streams;
    while (*link != s) link = &(*link)->next;
    *link = s->next;
    s->closing = true;
    pthread_cond_signal(&s->arrived);
    pthread_mutex_unlock(&double_lock);
    pthread_join(s->thread, NULL);
    pthread_cond_destroy(&s->arrived);
    free(s);
    return double_alive(false);
}

cudaError_t cudaStreamQuery(cudaStream_t s)
{
    if (s->graph || recording) return unrecorded(s, cudaErrorStreamCaptureUnsupported);
    cudaError_t status = double_alive(false);
    if (status != cudaSuccess) return status;
    pthread_mutex_lock(&double_lock);
    bool idle = s->done == s->enqueued;
    pthread_mutex_unlock(&double_lock);
    /* who asks, asks again: the streams need the cores */
    if (!idle) nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    return double_result(idle ? cudaSuccess : cudaErrorNotReady);
}

/* With the lock. */
static void drain(const struct CUstream_st *s)
{
    uint64_t until = s->enqueued;
    while (s->done < until && !double_lost) pthread_cond_wait(&double_changed, &double_lock);
}

cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
    if (s->graph || recording) return unrecorded(s, cudaErrorStreamCaptureUnsupported);
    pthread_mutex_lock(&double_lock);
    drain(s);
    pthread_mutex_unlock(&double_lock);
    return double_alive(false);
}

void double_streams_drain(int device)
{
    for (struct CUstream_st *s = streams; s; s = s->next) if (s->device == device) s->until = s->enqueued;
    for (bool idle = false; !idle;) {                    /* the list may change meanwhile, and the device may be lost */
        idle = true;
        for (const struct CUstream_st *s = streams; s && idle; s = s->next)
            idle = s->device != device || (double_lost ? !s->works : s->done >= s->until);
        if (!idle) pthread_cond_wait(&double_changed, &double_lock);
    }
}

cudaError_t cudaDeviceSynchronize(void)
{
    int device;
    if (recording) return double_result(cudaErrorStreamCaptureUnsupported);
    cudaGetDevice(&device);
    pthread_mutex_lock(&double_lock);
    double_streams_drain(device);
    pthread_mutex_unlock(&double_lock);
    return double_alive(false);
}

/* ---- events ---------------------------------------------------------------------------------- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    cudaError_t status = double_alive(false);
    if (status != cudaSuccess) return status;
    double_made();
    *event = calloc(1, sizeof **event);
    (*event)->users = 1;
    (*event)->timed = !(flags & cudaEventDisableTiming);
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event) { return cudaEventCreateWithFlags(event, 0); }

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    if (!event) return double_result(cudaErrorInvalidResourceHandle);
    pthread_mutex_lock(&double_lock);
    event_leave(event);
    pthread_mutex_unlock(&double_lock);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    return enqueue(stream, (struct op){.kind = RECORD, .event = event});
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    (void)flags;
    if (!drops(stream)) return enqueue(stream, (struct op){.kind = WAIT, .event = event});
    stream->loses = true;
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    if (recording) return double_result(cudaErrorStreamCaptureUnsupported);
    cudaError_t status = double_alive(false);
    if (status != cudaSuccess) return status;
    pthread_mutex_lock(&double_lock);
    bool reached = event->reached >= event->recorded;
    pthread_mutex_unlock(&double_lock);
    return double_result(reached ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    if (recording) return double_result(cudaErrorStreamCaptureUnsupported);
    pthread_mutex_lock(&double_lock);
    for (uint64_t ticket = event->recorded; event->reached < ticket && !double_lost;)
        pthread_cond_wait(&double_changed, &double_lock);
    pthread_mutex_unlock(&double_lock);
    return double_alive(false);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    if (!start->timed || !end->timed) return double_result(cudaErrorInvalidResourceHandle);
    pthread_mutex_lock(&double_lock);
    bool known = start->recorded && end->recorded,
         reached = start->reached >= start->recorded && end->reached >= end->recorded;
    *ms = (float)(((double)end->ns - (double)start->ns) * 1e-6);
    pthread_mutex_unlock(&double_lock);
    return !known    ? double_result(cudaErrorInvalidResourceHandle)
           : reached ? double_alive(false)
                     : double_result(cudaErrorNotReady);
}

/* ---- recorded graphs ------------------------------------------------------------------------- */

cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode mode)
{
    if (!s || s->graph) return double_result(cudaErrorStreamCaptureUnsupported);
    s->graph = calloc(1, sizeof *s->graph);
    s->strict = mode != cudaStreamCaptureModeRelaxed;
    recording += s->strict;
    n_recording++;
    return double_alive(false);
}

cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *graph)
{
    *graph = s->graph;
    if (!s->graph) return double_result(cudaErrorInvalidValue);
    recording -= s->strict;
    n_recording--;
    s->graph = NULL;
    if (!(*graph)->broken) return double_alive(false);
    cudaGraphDestroy(*graph);
    *graph = NULL;
    return double_result(cudaErrorStreamCaptureInvalidated);
}

static struct ops ops_copy(const struct ops *from)
{
    struct ops to = {0};
    for (const struct op *o = from->first; o; o = o->next) push(&to, op_copy(o));
    return to;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags)
{
    (void)flags;
    double_made();
    *exec = calloc(1, sizeof **exec);
    (*exec)->ops = ops_copy(&graph->ops);
    return double_alive(false);
}

static long replays;

long double_replays(void)
{
    pthread_mutex_lock(&double_lock);
    long n = replays;
    pthread_mutex_unlock(&double_lock);
    return n;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t s)
{
    if (s->graph) return double_result(cudaErrorStreamCaptureUnsupported);
    cudaError_t status = double_alive(true);
    if (status != cudaSuccess) return status;
    struct ops copy = ops_copy(&exec->ops);
    pthread_mutex_lock(&double_lock);
    replays++;
    while (copy.first) {
        struct op *o = copy.first;
        copy.first = o->next;
        give(s, o);
    }
    pthread_mutex_unlock(&double_lock);
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    ops_free(&graph->ops);
    free(graph);
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    ops_free(&exec->ops);
    free(exec);
    return cudaSuccess;
}
