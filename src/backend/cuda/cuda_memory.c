/* Memory of the device, and copies between it and the host, in order with the stream. */
#include <stdlib.h>
#include <string.h>
#include "backend/cuda/cuda_int.h"

int cuda_event_new(cudaEvent_t *ev, struct err *e)
{
    return cuda_check(e, "an event", cudaEventCreateWithFlags(ev, cudaEventDisableTiming));
}

/* All device memory of a backend is taken here. */
cudaError_t cuda_take(struct be *b, void **out, size_t bytes)
{
    cudaError_t bad = cudaMalloc(out, bytes);
    if (bad == cudaSuccess) b->taken += bytes;
    return bad;
}

int cuda_free_memory(struct be *b, size_t *bytes, struct err *e)
{
    size_t all;
    return cuda_check(e, "free memory", cudaMemGetInfo(bytes, &all));
}

void cuda_free(struct be *b, void *p, size_t bytes)
{
    if (p) b->taken -= bytes ? bytes : 1;
    cudaFree(p);
}

void *cuda_alloc(struct be *b, size_t bytes, struct err *e)
{
    void *p = NULL;
    size_t n = bytes ? bytes : 1, space = 0;
    if (cuda_take(b, &p, n) != cudaSuccess) {
        char want[32], have[32];
        cudaGetLastError();                              /* this failure is not the next call's */
        cuda_free_memory(b, &space, NULL);
        err_set(e, E_DEVICE, "GPU %d: out of memory: %s wanted, %s free", b->unit, text_bytes(bytes, want),
                text_bytes(space, have));
        return NULL;
    }
    if (cuda_check(e, "clearing memory", cudaMemsetAsync(p, 0, n, b->stream))) { cuda_free(b, p, bytes); return NULL; }
    return p;
}

size_t cuda_taken(const struct be *b) { return b->taken; }

/* A free pinned piece: the oldest, once the device has read it. NULL: e. */
static struct up *up_take(struct be *b, struct err *e)
{
    struct up *u = &b->up[b->up_next];
    b->up_next = (b->up_next + 1) % UP_SLOTS;
    if (u->busy && cuda_check(e, "copying to the device", cudaEventSynchronize(u->sent))) return NULL;
    u->busy = false;
    return u;
}

/* Host memory to the device in order with the stream, through pinned memory; src may be reused on return. */
int cuda_up(struct be *b, void *dst, const void *src, size_t bytes, struct err *e)
{
    for (size_t at = 0; at < bytes; at += UP_BYTES) {
        size_t n = bytes - at < UP_BYTES ? bytes - at : UP_BYTES;
        struct up *u = up_take(b, e);
        if (!u) return -1;
        memcpy(u->at, (const char *)src + at, n);
        if (cuda_check(e, "copying to the device",
                       cudaMemcpyAsync((char *)dst + at, u->at, n, cudaMemcpyHostToDevice, b->stream)) ||
            cuda_check(e, "copying to the device", cudaEventRecord(u->sent, b->stream)))
            return -1;
        u->busy = true;
    }
    return 0;
}

int cuda_down(struct be *b, void *dst, const void *src, size_t bytes, struct err *e)
{
    for (size_t at = 0; at < bytes; at += UP_BYTES) {
        size_t n = bytes - at < UP_BYTES ? bytes - at : UP_BYTES;
        struct up *u = up_take(b, e);
        if (!u) return -1;
        if (cuda_check(e, "copying to the host",
                       cudaMemcpyAsync(u->at, (const char *)src + at, n, cudaMemcpyDeviceToHost, b->stream)) ||
            cuda_check(e, "copying to the host", cudaStreamSynchronize(b->stream)))
            return -1;
        memcpy((char *)dst + at, u->at, n);
    }
    return 0;
}

static bool on_device(const void *p)
{
    struct cudaPointerAttributes a;
    if (cudaPointerGetAttributes(&a, p) != cudaSuccess) { cudaGetLastError(); return false; }
    return a.type == cudaMemoryTypeDevice;
}

int cuda_copy(struct be *b, void *dst, const void *src, size_t bytes, struct err *e)
{
    bool to = on_device(dst), from = on_device(src);
    if (!bytes) return 0;
    if (to && from)
        return cuda_check(e, "copying on the device",
                          cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToDevice, b->stream));
    if (to) return cuda_up(b, dst, src, bytes, e);
    if (from) return cuda_down(b, dst, src, bytes, e);
    memcpy(dst, src, bytes);
    return 0;
}

/* ---- memory of the host beside the device -------------------------------------------------------------------- */

void *cuda_pinned(struct be *b, size_t bytes, struct err *e)
{
    char want[32];
    void *at = NULL;
    for (int i = 0; i < BE_MOVERS && !b->mover[BE_MOVERS - 1]; i++)
        if (cuda_check(e, "a stream", cudaStreamCreateWithFlags(&b->mover[i], cudaStreamNonBlocking))) return NULL;
    if (cudaMallocHost(&at, bytes ? bytes : 1) == cudaSuccess) return *vec_push(&b->pinned) = at;
    cudaGetLastError();
    err_set(e, E_DEVICE, "GPU %d: no %s of pinned host memory (ulimit -l, memory of the job)", b->unit,
            text_bytes(bytes, want));
    return NULL;
}

int cuda_fence(struct be *b, void **fence, struct err *e)
{
    const unsigned flags = cudaEventDisableTiming | cudaEventBlockingSync;   /* who waits leaves its core */
    if (!*fence) {
        cudaEvent_t event;
        if (cuda_check(e, "an event", cudaEventCreateWithFlags(&event, flags))) return -1;
        *fence = *vec_push(&b->fence) = event;
    }
    return cuda_check(e, "a fence", cudaEventRecord(*fence, b->stream));
}

/* A thread has its own current device. */
int cuda_passed(struct be *b, void *fence, struct err *e)
{
    const char what[] = "waiting for the device";
    return cuda_check(e, what, cudaSetDevice(b->unit)) || cuda_check(e, what, cudaEventSynchronize(fence)) ? -1 : 0;
}

int cuda_move(struct be *b, int mover, void *dst, const void *src, size_t bytes, struct err *e)
{
    const char what[] = "moving weights between host and device";
    bool bad = cuda_check(e, what, cudaSetDevice(b->unit)) ||
               cuda_check(e, what, cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, b->mover[mover])) ||
               cuda_check(e, what, cudaStreamSynchronize(b->mover[mover]));
    return bad ? -1 : 0;
}

void *cuda_mirror(struct be *b, const void *key, const void *host, size_t bytes, struct err *e)
{
    struct mirror *m;
    for (int i = 0; i < b->mirror.n; i++)
        if (b->mirror.v[i].key == key && b->mirror.v[i].bytes == bytes && memcmp(b->mirror.v[i].host, host, bytes) == 0)
            return b->mirror.v[i].at;
    void *at;
    if (cuda_check(e, "device memory", cuda_take(b, &at, bytes))) return NULL;
    m = vec_push(&b->mirror);
    *m = (struct mirror){.key = key, .host = mem_alloc(bytes), .at = at, .bytes = bytes};
    memcpy(m->host, host, bytes);
    /* On the copy stream, and complete on return, because the compute stream may be recording. */
    bool bad = cuda_check(e, "copying to the device",
                          cudaMemcpyAsync(m->at, m->host, bytes, cudaMemcpyHostToDevice, b->copy)) ||
               cuda_check(e, "copying to the device", cudaStreamSynchronize(b->copy));
    return bad ? NULL : m->at;
}
