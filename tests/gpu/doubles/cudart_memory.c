/* The double of cudart: devices, memory, errors. */
#include <limits.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "double_int.h"

enum { ALIGN = 256, VERSION = 13000, MAX_DEVICES = 64, LARGE = 2 << 20 };
static const long default_bytes = 4l << 30;
struct piece { struct piece *next; char *at; size_t bytes; enum cudaMemoryType type; int device; };

static struct piece *pieces;                             /* under double_lock, as taken */
static size_t taken[MAX_DEVICES], pinned;
static long operations, makes;
bool double_lost;
static _Thread_local cudaError_t last;
static _Thread_local int device;

/* ---- settings and faults --------------------------------------------------------------------- */

long double_setting(const char *name, bool of_rank, long none)
{
    const char *text = getenv(name), *only, *rank;
    if (!text) return none;                              /* asked at every operation */
    only = getenv("DOUBLE_RANK");
    rank = getenv("OMPI_COMM_WORLD_RANK") ?: getenv("PMI_RANK");
    if (of_rank && only && (!rank || strcmp(only, rank) != 0)) return none;
    return strtol(text, NULL, 10);
}

cudaError_t double_result(cudaError_t status)
{
    if (status != cudaSuccess) last = status;            /* "not ready", too: CUDA notes whatever is no success */
    return status;
}

cudaError_t double_alive(bool operation)
{
    long most = double_setting("DOUBLE_VANISH", true, -1);
    pthread_mutex_lock(&double_lock);
    if (operation) operations++;
    if (most >= 0 && operations > most && !double_lost) {
        double_lost = true;
        pthread_cond_broadcast(&double_changed);
    }
    bool lost = double_lost;
    pthread_mutex_unlock(&double_lock);
    return lost ? double_result(cudaErrorDevicesUnavailable) : cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t status = last;
    last = cudaSuccess;
    return status;
}

const char *cudaGetErrorString(cudaError_t error)
{
    static const struct { cudaError_t code; const char *text;
    } known[] = {
        {cudaSuccess, "no error"},
        {cudaErrorInvalidValue, "invalid argument"},
        {cudaErrorMemoryAllocation, "out of memory"},
        {cudaErrorInsufficientDriver, "CUDA driver version is insufficient for CUDA runtime version"},
        {cudaErrorDevicesUnavailable, "CUDA-capable device(s) is/are busy or unavailable"},
        {cudaErrorNoDevice, "no CUDA-capable device is detected"},
        {cudaErrorInvalidDevice, "invalid device ordinal"},
        {cudaErrorInvalidResourceHandle, "invalid resource handle"},
        {cudaErrorNotReady, "device not ready"},
        {cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"},
        {cudaErrorStreamCaptureInvalidated, "operation failed due to a previous error during capture"},
        {cudaErrorStreamCaptureIsolation, "dependency created on uncaptured work in another stream"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) if (known[i].code == error) return known[i].text;
    return "unknown error";
}

/* ---- devices --------------------------------------------------------------------------------- */

static int devices(void)
{
    long n = double_setting("DOUBLE_DEVICES", false, 4);
    return n < MAX_DEVICES ? (int)n : MAX_DEVICES;
}
static size_t device_bytes(void) { return (size_t)double_setting("DOUBLE_MEMORY", true, default_bytes); }

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = (int)double_setting("DOUBLE_DRIVER", true, VERSION);
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    int driver;
    *count = 0;
    cudaDriverGetVersion(&driver);
    if (driver < VERSION) return double_result(cudaErrorInsufficientDriver);
    if (devices() <= 0) return double_result(cudaErrorNoDevice);
    *count = devices();
    return double_alive(false);
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int number)
{
    if (number < 0 || number >= devices()) return double_result(cudaErrorInvalidDevice);
    memset(prop, 0, sizeof *prop);
    snprintf(prop->name, sizeof prop->name,
             number == double_setting("DOUBLE_OTHER", false, -1) ? "Double of another GPU" : "Double of a GPU");
    prop->uuid.bytes[15] = (char)(number + 1);
    prop->totalGlobalMem = device_bytes();
    prop->major = 9;
    prop->multiProcessorCount = 132;
    return double_alive(false);
}

cudaError_t cudaDeviceGetPCIBusId(char *id, int room, int number)
{
    if (number < 0 || number >= devices()) return double_result(cudaErrorInvalidDevice);
    snprintf(id, (size_t)room, "D0B1:%02X:00.0", (unsigned)number & 0xff);   /* no machine has that one */
    return double_alive(false);
}

cudaError_t cudaSetDevice(int number)
{
    if (number < 0 || number >= devices()) return double_result(cudaErrorInvalidDevice);
    device = number;
    return double_alive(false);
}

cudaError_t cudaGetDevice(int *number)
{
    *number = device;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Pieces come and go: the kernel need not give new pages each time. Before there are threads, for under a thread
 * sanitizer nothing else has set up glibc's own allocator, and two threads that do so at once break it. */
__attribute__((constructor)) static void pieces_keep(void)
{
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
}

/* A large piece is one block of NaN, mapped again and again, and to clear it maps zeros. A page comes with the first
 * write there, and of the workspace of products, 256 MiB, next to none does. With double_lock. */
static char *nan_map(size_t bytes)
{
    static int block = -1;
    static char nan[LARGE];
    if (block < 0) {
        memset(nan, 0xff, sizeof nan);
        block = memfd_create("nan", MFD_CLOEXEC);
        if (block < 0 || write(block, nan, sizeof nan) != (ssize_t)sizeof nan) return NULL;
    }
    char *at = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) return NULL;
    for (size_t done = 0; done < bytes; done += LARGE)
        if (mmap(at + done, bytes - done < LARGE ? bytes - done : LARGE, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, block, 0) == MAP_FAILED) {
            munmap(at, bytes);
            return NULL;
        }
    return at;
}

static char *memory_new(size_t bytes)
{
    if (bytes > LARGE) return nan_map(bytes);
    char *at = aligned_alloc(ALIGN, bytes + ALIGN);
    return at ? memset(at, 0xff, bytes) : NULL;          /* NaN */
}

static cudaError_t piece_new(void **at, size_t bytes, enum cudaMemoryType type)
{
    if (double_strict()) return double_result(cudaErrorStreamCaptureUnsupported);
    cudaError_t status = double_alive(false);
    if (status != cudaSuccess) return status;
    size_t padded = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    bool counts = type == cudaMemoryTypeDevice;
    pthread_mutex_lock(&double_lock);
    size_t most = counts ? device_bytes() : (size_t)double_setting("DOUBLE_PINNED", true, LONG_MAX),
           *used = counts ? &taken[device] : &pinned;
    bool fits = padded >= bytes && padded <= most && *used <= most - padded;
    struct piece *p = fits ? malloc(sizeof *p) : NULL;
    char *memory = p ? memory_new(padded) : NULL;
    if (memory) {
        *p = (struct piece){.next = pieces, .at = memory, .bytes = padded, .type = type, .device = device};
        pieces = p;
        makes++;
        *used += padded;
    } else free(p);
    pthread_mutex_unlock(&double_lock);
    *at = memory;
    return memory ? cudaSuccess : double_result(cudaErrorMemoryAllocation);
}

/* With the lock: the link to that piece; to NULL if there is none. */
static struct piece **piece_find(const void *at, enum cudaMemoryType type)
{
    struct piece **link = &pieces;
    while (*link && ((*link)->at != at || (*link)->type != type)) link = &(*link)->next;
    return link;
}

/* As the real one, it waits for everything that is enqueued on the memory's device: a transfer that never ends blocks
 * it. */
static cudaError_t piece_free(void *at, enum cudaMemoryType type)
{
    if (!at) return cudaSuccess;
    if (double_strict()) return double_result(cudaErrorStreamCaptureUnsupported);
    pthread_mutex_lock(&double_lock);
    if (*piece_find(at, type)) double_streams_drain((*piece_find(at, type))->device);
    struct piece **link = piece_find(at, type), *p = *link;   /* only now: others may have come and gone meanwhile */
    if (p) {
        *link = p->next;
        *(type == cudaMemoryTypeDevice ? &taken[p->device] : &pinned) -= p->bytes;
    }
    pthread_mutex_unlock(&double_lock);
    if (!p) return double_result(cudaErrorInvalidValue);
    if (p->bytes > LARGE) munmap(p->at, p->bytes);
    else free(p->at);
    free(p);
    return double_alive(false);
}

void double_clear(void *at, size_t bytes)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    char *from = (char *)(((uintptr_t)at + page - 1) / page * page), *to = (char *)at + bytes;
    pthread_mutex_lock(&double_lock);
    struct piece *p = pieces;
    while (p && !(p->bytes > LARGE && from >= p->at && to <= p->at + p->bytes)) p = p->next;
    pthread_mutex_unlock(&double_lock);
    to = (char *)((uintptr_t)to / page * page);
    if (!p || to <= from || mmap(from, (size_t)(to - from), PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) == MAP_FAILED)
        from = to = at;
    memset(at, 0, (size_t)(from - (char *)at));
    memset(to, 0, (size_t)((char *)at + bytes - to));
}

size_t double_taken(int number)
{
    pthread_mutex_lock(&double_lock);
    size_t bytes = taken[number];
    pthread_mutex_unlock(&double_lock);
    return bytes;
}

void double_made(void)
{
    pthread_mutex_lock(&double_lock);
    makes++;
    pthread_mutex_unlock(&double_lock);
}

long double_makes(void)
{
    pthread_mutex_lock(&double_lock);
    long n = makes;
    pthread_mutex_unlock(&double_lock);
    return n;
}

cudaError_t cudaMalloc(void **at, size_t bytes) { return piece_new(at, bytes, cudaMemoryTypeDevice); }
cudaError_t cudaFree(void *at) { return piece_free(at, cudaMemoryTypeDevice); }
cudaError_t cudaMallocHost(void **at, size_t bytes) { return piece_new(at, bytes, cudaMemoryTypeHost); }
cudaError_t cudaFreeHost(void *at) { return piece_free(at, cudaMemoryTypeHost); }

cudaError_t cudaMemGetInfo(size_t *room, size_t *total)
{
    pthread_mutex_lock(&double_lock);
    *total = device_bytes();
    *room = *total > taken[device] ? *total - taken[device] : 0;
    pthread_mutex_unlock(&double_lock);
    return double_alive(false);
}

enum cudaMemoryType double_memory(const void *at)
{
    enum cudaMemoryType type = cudaMemoryTypeUnregistered;
    pthread_mutex_lock(&double_lock);
    for (const struct piece *p = pieces; p; p = p->next)
        if ((const char *)at >= p->at && (const char *)at < p->at + (p->bytes ? p->bytes : 1)) type = p->type;
    pthread_mutex_unlock(&double_lock);
    return type;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *at)
{
    void *p = (void *)(uintptr_t)at;
    memset(a, 0, sizeof *a);
    a->type = double_memory(at);
    a->device = device;
    a->devicePointer = a->type == cudaMemoryTypeUnregistered ? NULL : p;
    a->hostPointer = a->type == cudaMemoryTypeDevice ? NULL : p;
    return double_alive(false);
}
