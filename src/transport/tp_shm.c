/* Windows between processes of one host, see tp_shm.h. */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>
#include "base/mem.h"
#include "transport/tp_shm.h"

/* The head of a window. secret: proves that the opened file is the window, as that process may have others. */
struct door { uint64_t secret; _Atomic uint64_t returned[]; };
struct shm_window { char *at; size_t bytes; };           /* the whole mapping, NULL: none */

/* Loans from one rank. taken: how many arrived. returned: how many are returned without a gap. back: which later ones
 * are returned. */
enum { LOANS = 1 << 12 };
struct lents { uint64_t taken, returned; bool back[LOANS]; };

struct tp_shm {
    int me, n, fd;
    bool met;
    uint64_t secret;
    size_t head;                                         /* bytes of the head, whole pages */
    struct shm_window *window;                             /* of each rank: its own window, and those that it reads */
    struct lents **lents;                                /* of each rank; NULL: they do not read each other's windows */
    bool *near;                                          /* of each rank: it is on this host and should meet this one */
};

/* Each rank's description of its window, in whole numbers that doubles hold exactly. */
enum { CARD_HOST, CARD_HOST_HIGH, CARD_PROCESS, CARD_FILE, CARD_BYTES, CARD_SECRET, CARD_SECRET_HIGH, CARD };

static struct door *door_of(const struct tp_shm *r, int rank) { return (struct door *)r->window[rank].at; }

struct tp_shm *tp_shm_new(int rank, int ranks)
{
    struct tp_shm *r = mem_alloc(sizeof *r);
    size_t page = (size_t)sysconf(_SC_PAGESIZE), door = sizeof(struct door) + (size_t)ranks * sizeof(uint64_t);
    *r = (struct tp_shm){.me = rank, .n = ranks, .fd = -1, .head = (door + page - 1) / page * page};
    r->window = mem_alloc((size_t)ranks * sizeof *r->window);
    r->lents = mem_alloc((size_t)ranks * sizeof *r->lents);
    r->near = mem_alloc((size_t)ranks * sizeof *r->near);
    return r;
}

void tp_shm_free(struct tp_shm *r)
{
    for (int i = 0; i < r->n; i++) {
        if (r->window[i].at) munmap(r->window[i].at, r->window[i].bytes);
        free(r->lents[i]);
    }
    if (r->fd >= 0) close(r->fd);
    free(r->window);
    free(r->lents);
    free(r->near);
    free(r);
}

/* Makes a file of that size that nobody can shorten, so no reader runs past its end. */
static int file_make(size_t bytes)
{
    int fd = memfd_create("mpstaged", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) return -1;
    bool made = posix_fallocate(fd, 0, (off_t)bytes) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0;
    if (made) return fd;
    close(fd);
    return -1;
}

void *tp_shm_make(struct tp_shm *r, size_t bytes)
{
    size_t all = r->head + bytes;
    if (r->fd >= 0 || getrandom(&r->secret, sizeof r->secret, 0) != sizeof r->secret) return NULL;
    if ((r->fd = file_make(all)) < 0) return NULL;
    char *p = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, r->fd, 0);
    if (p == MAP_FAILED) {
        close(r->fd);
        r->fd = -1;
        return NULL;
    }
    r->window[r->me] = (struct shm_window){p, all};
    door_of(r, r->me)->secret = r->secret;
    return p + r->head;
}

/* ---- which ranks read which windows ------------------------------------------------------------------------------ */

/* Equal for processes that find each other in /proc: the same kernel, host name and process namespace. */
static uint64_t host_hash(void)
{
    char text[3][128] = {{0}};
    gethostname(text[0], sizeof text[0] - 1);
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    bool known = fd >= 0 && read(fd, text[1], sizeof text[1] - 1) > 0 &&
                 readlink("/proc/self/ns/pid", text[2], sizeof text[2] - 1) > 0;
    if (fd >= 0) close(fd);
    return known ? XXH3_64bits(text, sizeof text) : 0;
}

static double low(uint64_t x) { return (double)(uint32_t)x; }
static double high(uint64_t x) { return (double)(x >> 32); }

static void card_write(const struct tp_shm *r, double *card)
{
    uint64_t host = host_hash();
    card[CARD_HOST] = low(host), card[CARD_HOST_HIGH] = high(host);
    if (r->fd < 0) return;
    card[CARD_PROCESS] = getpid();
    card[CARD_FILE] = r->fd;
    card[CARD_BYTES] = (double)r->window[r->me].bytes;
    card[CARD_SECRET] = low(r->secret), card[CARD_SECRET_HIGH] = high(r->secret);
}

/* Opens the file of a card to read; -1: not possible. It opens only a memfd, because opening other files may block. */
static int file_open(const double *card)
{
    char path[64], name[64] = "";
    snprintf(path, sizeof path, "/proc/%.0f/fd/%.0f", card[CARD_PROCESS], card[CARD_FILE]);
    if (readlink(path, name, sizeof name - 1) < 0 || strncmp(name, "/memfd:mpstaged", 15) != 0) return -1;
    return open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
}

static struct shm_window window_map(const double *card)
{
    struct shm_window none = {0}, x = {.bytes = (size_t)card[CARD_BYTES]};
    struct stat st;
    int fd = file_open(card);
    if (fd < 0) return none;
    int seals = fcntl(fd, F_GET_SEALS);
    bool sound = fstat(fd, &st) == 0 && (uint64_t)st.st_size == x.bytes && seals >= 0 && (seals & F_SEAL_SHRINK);
    x.at = sound ? mmap(NULL, x.bytes, PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;
    close(fd);
    if (x.at == MAP_FAILED) return none;
    uint64_t secret = ((const struct door *)x.at)->secret;
    if (low(secret) == card[CARD_SECRET] && high(secret) == card[CARD_SECRET_HIGH]) return x;
    munmap(x.at, x.bytes);
    return none;
}

static void windows_map(struct tp_shm *r, const bool *with, const double *cards)
{
    const double *own = cards + r->me * CARD;
    for (int i = 0; i < r->n; i++) {
        const double *card = cards + i * CARD;
        bool known = card[CARD_HOST] + card[CARD_HOST_HIGH] > 0;
        r->near[i] = i != r->me && (!with || with[i]) && known && card[CARD_HOST] == own[CARD_HOST] &&
                     card[CARD_HOST_HIGH] == own[CARD_HOST_HIGH];
        if (r->near[i] && own[CARD_BYTES] > 0 && card[CARD_BYTES] > 0) r->window[i] = window_map(card);
    }
}

int tp_shm_meet(struct tp_shm *r, struct tp *t, const bool *with, struct err *e)
{
    if (r->met) return 0;
    r->met = true;
    double *cards = mem_alloc((size_t)(r->n * CARD) * sizeof *cards);
    double *reads = mem_alloc((size_t)(r->n * r->n) * sizeof *reads);
    card_write(r, cards + r->me * CARD);
    int bad = t->ops->reduce(t, cards, r->n * CARD, e);
    if (!bad) windows_map(r, with, cards);
    for (int i = 0; i < r->n; i++) reads[r->me * r->n + i] = i != r->me && r->window[i].at != NULL;
    bad = bad || t->ops->reduce(t, reads, r->n * r->n, e);
    for (int i = 0; i < r->n && !bad; i++)
        if (reads[r->me * r->n + i] > 0 && reads[i * r->n + r->me] > 0) r->lents[i] = mem_alloc(sizeof **r->lents);
    free(cards);
    free(reads);
    return bad ? -1 : 0;
}

bool tp_shm_reads(const struct tp_shm *r, int peer) { return r->lents[peer] != NULL; }

bool tp_shm_shut(const struct tp_shm *r, int i, int *peer)
{
    for (int k = 0; k < r->n; k++)
        if (r->near[k] && !r->lents[k] && i-- == 0) {
            *peer = k;
            return true;
        }
    return false;
}

/* ---- loans ------------------------------------------------------------------------------------------------------- */

uint64_t tp_shm_place(const struct tp_shm *r, int to, const void *p, size_t bytes)
{
    const struct shm_window *own = &r->window[r->me];
    uintptr_t first = (uintptr_t)own->at + r->head, end = (uintptr_t)own->at + own->bytes, at = (uintptr_t)p;
    if (!r->lents[to] || !bytes || at < first || at > end || bytes > end - at) return 0;
    return at - first + 1;
}

uint64_t tp_shm_returned(const struct tp_shm *r, int by)
{
    return atomic_load_explicit(&door_of(r, by)->returned[r->me], memory_order_acquire);
}

const void *tp_shm_at(const struct tp_shm *r, int from, uint64_t place, size_t bytes)
{
    const struct shm_window *x = &r->window[from];
    size_t limit = r->lents[from] ? x->bytes - r->head : 0;
    if (!place || place - 1 > limit || bytes > limit - (place - 1)) return NULL;
    return x->at + r->head + (place - 1);
}

uint64_t tp_shm_take(struct tp_shm *r, int from)
{
    struct lents *l = r->lents[from];
    if (l->taken - l->returned == LOANS) return 0;
    l->back[++l->taken % LOANS] = false;
    return l->taken;
}

void tp_shm_return(struct tp_shm *r, int to, uint64_t lent)
{
    struct lents *l = r->lents[to];
    l->back[lent % LOANS] = true;
    while (l->returned < l->taken && l->back[(l->returned + 1) % LOANS]) l->returned++;
    atomic_store_explicit(&door_of(r, r->me)->returned[to], l->returned, memory_order_release);
}
