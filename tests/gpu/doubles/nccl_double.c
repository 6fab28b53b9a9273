/* The double of NCCL: communicators in processes or threads of one host, over TCP on the loopback interface. Those of
 * two ranks send and receive; sums over all ranks go by way of the first one, which adds them one rank after the other.
 *
 * As with the real one, sends and receives hold their stream until they have met; a communicator that does not block
 * takes its time to take a call, and takes it only while somebody looks (ncclCommGetAsyncError); a lost peer is an
 * asynchronous error, and the stream stays held until the communicator is aborted. Unlike it, the double says so when
 * sizes differ, when a call comes before the one before it was taken, and when one communicator is used in both
 * directions. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <nccl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "double.h"

enum { MAX_RANKS = 64 };
struct id { char magic[8]; uint16_t port; uint64_t cookie; };
struct listener { struct listener *next; uint64_t cookie; int fd; };
struct hello { uint64_t cookie; int rank, gpu; char host[128], net[32]; };

struct ncclComm {
    struct id id;
    int rank, n, gpu, users;                             /* users: its owner, its thread, transfers on streams */
    int fd[MAX_RANKS]; int n_fds;                        /* of rank 0: to each other one; of these: to rank 0 */
    bool aborted, sends, receives;
    ncclResult_t state;
    char net[32];                                        /* that it was told to use */
    struct transfer *taken; int looks;                   /* a call that is not on its stream yet */
};
enum what { SEND, RECEIVE, SUM };
struct transfer { struct ncclComm *comm; enum what what; void *at; uint64_t bytes; cudaStream_t stream; };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of everything here */
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct listener *listeners;
static long transfers, comms;
static int comms_left;
static struct double_comm asked;                        /* by the last communicator */

/* ---- sockets --------------------------------------------------------------------------------- */

static bool is_aborted(struct ncclComm *c)
{
    pthread_mutex_lock(&lock);
    bool is = c->aborted;
    pthread_mutex_unlock(&lock);
    return is;
}

/* All bytes, or false: the peer is gone, or the communicator is aborted. */
static bool move(struct ncclComm *c, int fd, void *p, size_t bytes, bool out)
{
    for (size_t at = 0; at < bytes;) {
        struct pollfd q = {.fd = fd, .events = out ? POLLOUT : POLLIN};
        if (is_aborted(c)) return false;
        if (poll(&q, 1, 20) <= 0) continue;
        ssize_t n = out ? send(fd, (char *)p + at, bytes - at, MSG_NOSIGNAL | MSG_DONTWAIT)
                        : recv(fd, (char *)p + at, bytes - at, MSG_DONTWAIT);
        if (n > 0) at += (size_t)n;
        else if (n == 0 || (errno != EAGAIN && errno != EINTR)) return false;
    }
    return true;
}

static int socket_new(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    if (fd >= 0) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

static int listener_take(uint64_t cookie)
{
    int fd = -1;
    pthread_mutex_lock(&lock);
    for (struct listener **l = &listeners; *l; l = &(*l)->next) {
        if ((*l)->cookie != cookie) continue;
        struct listener *found = *l;
        fd = found->fd;
        *l = found->next;
        free(found);
        break;
    }
    pthread_mutex_unlock(&lock);
    return fd;
}

static int accept_one(struct ncclComm *c, int listening)
{
    int fd = -1;
    while (fd < 0 && !is_aborted(c)) {
        struct pollfd q = {.fd = listening, .events = POLLIN};
        if (poll(&q, 1, 20) > 0) fd = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
    }
    return fd;
}

static int connect_one(const struct ncclComm *c)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = c->id.port, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket_new();
    if (fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof a)) {
        close(fd);
        return -1;
    }
    return fd;
}

/* ---- communicators --------------------------------------------------------------------------- */

/* With the lock. */
static void leave(struct ncclComm *c)
{
    if (--c->users) return;
    for (int i = 0; i < c->n_fds; i++) if (c->fd[i] >= 0) close(c->fd[i]);
    free(c->taken);
    free(c);
    comms_left--;
}

static void cut(const struct ncclComm *c)
{
    for (int i = 0; i < c->n_fds; i++) if (c->fd[i] >= 0) shutdown(c->fd[i], SHUT_RDWR);
}

static void hello_fill(const struct ncclComm *c, struct hello *h)
{
    const char *host = getenv("NCCL_HOSTID");
    *h = (struct hello){.cookie = c->id.cookie, .rank = c->rank, .gpu = c->gpu};
    snprintf(h->host, sizeof h->host, "%s", host ? host : "");
    snprintf(h->net, sizeof h->net, "%s", c->net);
}

/* As the real one goes by the name of the host: one GPU cannot be two ranks' there. */
static bool one_gpu(const struct hello *a, const struct hello *b)
{
    return a->gpu == b->gpu && strcmp(a->host, b->host) == 0;
}

/* Its line in the log, which the real one writes where it connects: the sender's, of networks both. */
static void way_say(const struct ncclComm *c, const struct hello *mine, const struct hello *other)
{
    static FILE *log;
    const char *debug = getenv("NCCL_DEBUG"), *at = getenv("NCCL_DEBUG_FILE"), *net = getenv("DOUBLE_NET");
    bool near = strcmp(mine->host, other->host) == 0;
    if (!debug || strcmp(debug, "INFO") != 0 || !at || (near && c->rank)) return;
    pthread_mutex_lock(&lock);
    if (!log && (log = fopen(at, "w"))) setbuf(log, NULL);
    if (log) fprintf(log, "host:1:1 [%d] NCCL INFO comm %p rank %d Init COMPLETE\n", c->gpu, (const void *)c, c->rank);
    if (log && near)
        fprintf(log, "host:1:1 [%d] NCCL INFO Channel 00/1 : 0[%d] -> 1[%d] via P2P/CUMEM\n", c->gpu, mine->gpu,
                other->gpu);
    else if (log)
        fprintf(log, "host:1:1 [%d] NCCL INFO Channel 00/1 : 0[0] -> 1[0] [%s] via NET/%s comm %p nRanks 02\n", c->gpu,
                c->rank ? "receive" : "send", *c->net ? "Socket/0" : net ? net : "IB/0/GDRDMA", (const void *)c);
    pthread_mutex_unlock(&lock);
}

/* One connection, on which both say who they are. */
static ncclResult_t meet_one(struct ncclComm *c, int fd, const struct hello *mine, struct hello *other)
{
    bool good = fd >= 0 && move(c, fd, (void *)(uintptr_t)mine, sizeof *mine, true) &&
                move(c, fd, other, sizeof *other, false) && other->cookie == mine->cookie && other->rank >= 0 &&
                other->rank < c->n && (other->rank == 0) != (mine->rank == 0);
    return !good ? ncclSystemError : one_gpu(mine, other) ? ncclInvalidUsage : ncclSuccess;
}

static void *init_main(void *arg)
{
    struct ncclComm *c = arg;
    int listening = c->rank ? -1 : listener_take(c->id.cookie), fd[MAX_RANKS];   /* rank 0 made the id */
    struct hello mine, other = {0};
    ncclResult_t result = ncclSuccess;
    hello_fill(c, &mine);
    memset(fd, 0xff, sizeof fd);                         /* -1 */
    for (int i = 0; i < c->n_fds && result == ncclSuccess; i++) {
        int one = c->rank ? connect_one(c) : listening >= 0 ? accept_one(c, listening) : -1;
        result = meet_one(c, one, &mine, &other);
        int at = result == ncclSuccess && !c->rank ? other.rank - 1 : 0;
        if (fd[at] < 0) fd[at] = one;
        else if (one >= 0) close(one);
    }
    if (listening >= 0) close(listening);
    if (result == ncclSuccess && c->n == 2) way_say(c, &mine, &other);
    pthread_mutex_lock(&lock);
    memcpy(c->fd, fd, sizeof c->fd);
    c->state = result;
    leave(c);
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* Whether the environment is what DOUBLE_NCCL_WANTS says. */
static bool environment_is_wanted(void)
{
    const char *wants = getenv("DOUBLE_NCCL_WANTS");
    while (wants && *wants) {
        char name[64], value[64];
        int n = 0;
        if (sscanf(wants, " %63[^= ]=%63[^ ]%n", name, value, &n) != 2) return false;
        if (!getenv(name) || strcmp(getenv(name), value) != 0) return false;
        wants += n;
    }
    return true;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *out)
{
    if (!environment_is_wanted()) return ncclInvalidUsage;
    static uint64_t made;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    int fd = socket_new();
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof a) || listen(fd, MAX_RANKS) ||
        getsockname(fd, (struct sockaddr *)&a, &n))
        return ncclSystemError;
    struct listener *l = malloc(sizeof *l);
    pthread_mutex_lock(&lock);
    *l = (struct listener){.next = listeners, .cookie = (uint64_t)getpid() << 32 | ++made, .fd = fd};
    listeners = l;
    struct id id = {.magic = "double", .port = a.sin_port, .cookie = l->cookie};
    pthread_mutex_unlock(&lock);
    memset(out, 0, sizeof *out);
    memcpy(out, &id, sizeof id);
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int n, ncclUniqueId unique, int rank, ncclConfig_t *config)
{
    pthread_t thread;
    struct ncclComm *c = calloc(1, sizeof *c);
    memcpy(&c->id, &unique, sizeof c->id);
    c->rank = rank;
    c->n = n;
    c->n_fds = rank ? 1 : n - 1;
    memset(c->fd, 0xff, sizeof c->fd);
    c->users = 2;
    c->state = ncclInProgress;
    cudaGetDevice(&c->gpu);
    snprintf(c->net, sizeof c->net, "%s", config->netName ? config->netName : "");
    *comm = NULL;
    bool wrong = n < 2 || n > MAX_RANKS || rank < 0 || rank >= n || config->blocking != 0 ||
                 strcmp(c->id.magic, "double") != 0;
    pthread_mutex_lock(&lock);
    bool refused = comms++ == double_setting("DOUBLE_COMMS", true, -1);
    asked = (struct double_comm){.cluster = config->cgaClusterSize, .ctas = config->maxCTAs};
    memcpy(asked.net, c->net, sizeof asked.net);
    comms_left += !refused && !wrong;
    pthread_mutex_unlock(&lock);
    if (refused || wrong) {
        free(c);
        return refused ? ncclSystemError : ncclInvalidArgument;
    }
    if (pthread_create(&thread, NULL, init_main, c)) abort();
    pthread_detach(thread);
    *comm = c;
    return ncclInProgress;
}

ncclResult_t ncclCommFinalize(ncclComm_t c)
{
    pthread_mutex_lock(&lock);
    ncclResult_t state = c->taken ? ncclInvalidUsage : c->state;
    pthread_mutex_unlock(&lock);
    return state;
}

ncclResult_t ncclCommAbort(ncclComm_t c)
{
    pthread_mutex_lock(&lock);
    c->aborted = true;
    cut(c);
    pthread_cond_broadcast(&changed);
    leave(c);
    pthread_mutex_unlock(&lock);
    return ncclSuccess;
}

struct double_comm double_comm_made(void)
{
    pthread_mutex_lock(&lock);
    struct double_comm last = asked;
    pthread_mutex_unlock(&lock);
    return last;
}

int double_comms_left(void)
{
    pthread_mutex_lock(&lock);
    int n = comms_left;
    pthread_mutex_unlock(&lock);
    return n;
}

ncclResult_t ncclCommDestroy(ncclComm_t c)
{
    pthread_mutex_lock(&lock);
    leave(c);
    pthread_mutex_unlock(&lock);
    return ncclSuccess;
}

/* ---- transfers ------------------------------------------------------------------------------- */

static bool misused(struct ncclComm *c)
{
    pthread_mutex_lock(&lock);
    c->state = ncclInvalidUsage;                         /* sizes differ */
    pthread_mutex_unlock(&lock);
    return false;
}

/* Sizes first, so that different ones are seen. */
static bool sum_up(const struct transfer *t)
{
    struct ncclComm *c = t->comm;
    uint64_t bytes = t->bytes;
    float *sum = t->at, *part = malloc(bytes + 1);
    bool good = true;
    for (int i = 0; i < c->n_fds && good; i++) {
        good = move(c, c->fd[i], &bytes, sizeof bytes, c->rank);
        if (good && bytes != t->bytes) good = misused(c);
        good = good && move(c, c->fd[i], c->rank ? t->at : part, bytes, c->rank);
        for (uint64_t k = 0; k < bytes / sizeof *sum && good && !c->rank; k++) sum[k] += part[k];
    }
    for (int i = 0; i < c->n_fds && good; i++) good = move(c, c->fd[i], t->at, bytes, !c->rank);
    free(part);
    return good;
}

static bool exchange(const struct transfer *t)
{
    struct ncclComm *c = t->comm;
    uint64_t bytes = t->bytes;
    char met = 1;
    int fd = c->fd[0];
    if (t->what == SUM) return sum_up(t);
    if (t->what == SEND)
        return move(c, fd, &bytes, sizeof bytes, true) && move(c, fd, t->at, t->bytes, true) &&
               move(c, fd, &met, 1, false);
    if (!move(c, fd, &bytes, sizeof bytes, false)) return false;
    if (bytes == t->bytes) return move(c, fd, t->at, t->bytes, false) && move(c, fd, &met, 1, true);
    return misused(c);
}

/* Planted: from some transfer on all hang, or all sums do, or a connection breaks. */
static bool faults(const struct transfer *t)
{
    long hang = double_setting("DOUBLE_NCCL_HANG", true, -1), ends = double_setting("DOUBLE_NCCL_CLOSE", true, -1);
    long sums = double_setting("DOUBLE_NCCL_SUMS_HANG", true, -1);
    pthread_mutex_lock(&lock);
    long number = transfers++;
    if (ends >= 0 && number >= ends) cut(t->comm);
    pthread_mutex_unlock(&lock);
    if (t->what == SUM && sums >= 0 && number >= sums) return true;
    return hang >= 0 && number >= hang;
}

/* On the stream's thread. */
static void transfer_run(void *p)
{
    struct transfer *t = p;
    struct ncclComm *c = t->comm;
    bool hangs = faults(t), good = !hangs && exchange(t);
    pthread_mutex_lock(&lock);
    if (!good && !hangs && c->state == ncclSuccess) c->state = ncclRemoteError;
    while (!good && !c->aborted) pthread_cond_wait(&changed, &lock);
    leave(c);
    pthread_mutex_unlock(&lock);
    free(t);
}

/* Instead of it, where the GPU was lost while the transfer waited for its turn. */
static void transfer_drop(void *p)
{
    struct transfer *t = p;
    pthread_mutex_lock(&lock);
    leave(t->comm);
    pthread_mutex_unlock(&lock);
    free(t);
}

static ncclResult_t take(struct transfer t)
{
    struct ncclComm *c = t.comm;
    pthread_mutex_lock(&lock);
    bool wrong = c->state != ncclSuccess || c->taken || (t.what == SEND && c->receives) ||
                 (t.what == RECEIVE && c->sends);
    if (!wrong) {
        c->sends |= t.what == SEND;
        c->receives |= t.what == RECEIVE;
        c->taken = malloc(sizeof *c->taken);
        *c->taken = t;
        c->looks = (int)(transfers % 3);
    }
    pthread_mutex_unlock(&lock);
    return wrong ? ncclInvalidUsage : ncclInProgress;
}

static bool is_pair(ncclComm_t c, ncclDataType_t type, int peer)
{
    return type == ncclUint8 && c->n == 2 && peer == 1 - c->rank;
}

ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer, ncclComm_t c, cudaStream_t stream)
{
    return is_pair(c, type, peer) ? take((struct transfer){c, SEND, (void *)(uintptr_t)from, count, stream})
                                  : ncclInvalidArgument;
}

ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t c, cudaStream_t stream)
{
    return is_pair(c, type, peer) ? take((struct transfer){c, RECEIVE, to, count, stream}) : ncclInvalidArgument;
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t c, cudaStream_t stream)
{
    bool good = type == ncclFloat32 && op == ncclSum && from == to;   /* elsewhere nobody asked for it yet */
    return good ? take((struct transfer){c, SUM, to, count * sizeof(float), stream}) : ncclInvalidArgument;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *state)
{
    struct transfer *ready = NULL;
    pthread_mutex_lock(&lock);
    *state = c->state;
    if (c->taken && c->state == ncclSuccess) {
        if (c->looks-- > 0) *state = ncclInProgress;
        else {
            ready = c->taken;
            c->taken = NULL;
            c->users++;
        }
    }
    pthread_mutex_unlock(&lock);
    if (!ready || double_call(ready->stream, transfer_run, transfer_drop, ready) == cudaSuccess) return ncclSuccess;
    pthread_mutex_lock(&lock);
    *state = c->state = ncclUnhandledCudaError;
    cut(c);                                              /* peers see the end of the connection */
    leave(c);
    pthread_mutex_unlock(&lock);
    free(ready);
    return ncclSuccess;
}

/* ---- texts ----------------------------------------------------------------------------------- */

const char *ncclGetErrorString(ncclResult_t result)
{
    static const char *const text[] = {"no error",
                                       "unhandled cuda error",
                                       "unhandled system error",
                                       "internal error",
                                       "invalid argument",
                                       "invalid usage",
                                       "remote process exited or there was a network error",
                                       "NCCL operation in progress"};
    return (size_t)result < sizeof text / sizeof *text ? text[result] : "unknown result code";
}

const char *ncclGetLastError(ncclComm_t c)
{
    (void)c;
    return "";
}

ncclResult_t ncclGetVersion(int *version)
{
    const char *wanted = getenv("DOUBLE_NCCL_VERSION");
    *version = wanted ? atoi(wanted) : 22809;
    return ncclSuccess;
}
