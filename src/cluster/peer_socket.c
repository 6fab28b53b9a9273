/* Connections between the processes of a job beside MPI. */
#include "config.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "base/clock.h"
#include "cluster/peer_socket.h"

/* ---- frames ------------------------------------------------------------------------------------------------------ */

int peer_read(struct peer *w, struct frame *f)
{
    ssize_t k;
    if (w->fd < 0) return -1;
    do k = recv(w->fd, w->in + w->n_in, sizeof w->in - w->n_in, MSG_DONTWAIT);
    while (k < 0 && errno == EINTR);
    if (k == 0 || (k < 0 && errno != EAGAIN && errno != EWOULDBLOCK)) return -1;
    if (k > 0) w->n_in += (size_t)k;
    if (w->n_in < sizeof w->in) return 0;
    memcpy(f, w->in, sizeof *f);
    struct failure *why = &f->failure;
    why->e.text[sizeof why->e.text - 1] = why->action[sizeof why->action - 1] = why->host[sizeof why->host - 1] = 0;
    f->beat.doing[sizeof f->beat.doing - 1] = 0;
    w->n_in = 0;
    return 1;
}

/* Sends the rest of the previous frame. 0: nothing is left; -1: something is. */
static int flush(struct peer *w)
{
    while (w->sent < w->n_out) {
        ssize_t k = send(w->fd, w->out + w->sent, w->n_out - w->sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) return -1;
        w->sent += (size_t)k;
    }
    return 0;
}

int peer_write(struct peer *w, const struct frame *f)
{
    if (w->fd < 0 || flush(w)) return -1;
    memcpy(w->out, f, sizeof *f);
    w->n_out = sizeof *f;
    w->sent = 0;
    flush(w);                                             /* the rest, if any, goes before the next frame */
    return 0;
}

void peer_close(struct peer *w)
{
    if (w->fd >= 0) close(w->fd);
    w->fd = -1;
}

/* ---- listening --------------------------------------------------------------------------------------------------- */

/* An abstract socket name, not a file: it disappears with its socket. Only processes that got it through MPI know
 * it. */
static socklen_t name_make(const struct peer_place *p, struct sockaddr_un *a)
{
    static const char digit[] = "0123456789abcdef";
    static const char prefix[] = "mpstaged-";
    char *at = a->sun_path + 1;
    memset(a, 0, sizeof *a);
    a->sun_family = AF_UNIX;
    memcpy(at, prefix, sizeof prefix - 1);
    at += sizeof prefix - 1;
    for (int i = 0; i < PEER_TOKEN; i++) *at++ = digit[p->name[i] >> 4], *at++ = digit[p->name[i] & 15];
    return (socklen_t)(at - (char *)a);
}

static int listener(const struct sockaddr *a, socklen_t n)
{
    int fd = socket(a->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), yes = 1;
    if (fd < 0) return -1;
    if (a->sa_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof yes);
    if (bind(fd, a, n) == 0 && listen(fd, SOMAXCONN) == 0) return fd;
    close(fd);
    return -1;
}

static socklen_t inet_make(const struct peer_address *a, struct sockaddr_storage *out)
{
    memset(out, 0, sizeof *out);
    if (a->family == 4) {
        struct sockaddr_in *in = (struct sockaddr_in *)out;
        in->sin_family = AF_INET;
        in->sin_port = a->port;
        memcpy(&in->sin_addr, a->bytes, sizeof in->sin_addr);
        return sizeof *in;
    }
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)out;
    in6->sin6_family = AF_INET6;
    in6->sin6_port = a->port;
    memcpy(&in6->sin6_addr, a->bytes, sizeof in6->sin6_addr);
    return sizeof *in6;
}

/* Listens on one address only, so that no other network can reach the socket. */
static int door_add(struct peer_listener *d, struct peer_address *a)
{
    struct sockaddr_storage s;
    a->port = 0;
    socklen_t n = inet_make(a, &s);
    int fd = listener((struct sockaddr *)&s, n);
    if (fd < 0 || getsockname(fd, (struct sockaddr *)&s, &n)) return -1;
    a->port = a->family == 4 ? ((struct sockaddr_in *)&s)->sin_port : ((struct sockaddr_in6 *)&s)->sin6_port;
    d->fd[d->n++] = fd;
    return 0;
}

/* Link-local addresses are valid on one link only. */
static bool address_take(const struct ifaddrs *i, struct peer_address *a)
{
    memset(a, 0, sizeof *a);
    if (!i->ifa_addr || !(i->ifa_flags & IFF_UP) || (i->ifa_flags & IFF_LOOPBACK)) return false;
    if (i->ifa_addr->sa_family == AF_INET) {
        a->family = 4;
        memcpy(a->bytes, &((const struct sockaddr_in *)i->ifa_addr)->sin_addr, 4);
        return !(a->bytes[0] == 169 && a->bytes[1] == 254);
    }
    if (i->ifa_addr->sa_family != AF_INET6) return false;
    a->family = 6;
    const struct in6_addr *six = &((const struct sockaddr_in6 *)i->ifa_addr)->sin6_addr;
    memcpy(a->bytes, six, 16);
    return !IN6_IS_ADDR_LINKLOCAL(six);
}

static void door_add_all(struct peer_listener *d, struct peer_place *p)
{
    struct ifaddrs *all;
    if (getifaddrs(&all)) return;
    for (const struct ifaddrs *i = all; i && p->n_at < PEER_ADDRESSES; i = i->ifa_next)
        if (address_take(i, &p->at[p->n_at]) && door_add(d, &p->at[p->n_at]) == 0) p->n_at++;
    freeifaddrs(all);
}

int peer_open(struct peer_listener *d, struct peer_place *p, bool remote)
{
    struct sockaddr_un a;
    memset(p, 0, sizeof *p);
    d->n = 0;
    for (int i = 0; i < 3; i++)
        if (getrandom(i == 0 ? p->ask : i == 1 ? p->answer : p->name, PEER_TOKEN, 0) != PEER_TOKEN) return -1;
    socklen_t n = name_make(p, &a);
    int fd = listener((struct sockaddr *)&a, n);
    if (fd < 0) return -1;
    d->fd[d->n++] = fd;
    if (remote) door_add_all(d, p);
    return 0;
}

void peer_shut(struct peer_listener *d)
{
    while (d->n) close(d->fd[--d->n]);
}

/* ---- connecting -------------------------------------------------------------------------------------------------- */

struct peer_greeting { unsigned char token[PEER_TOKEN]; int32_t rank; };

/* Compares in constant time: the duration must not reveal where the tokens differ. */
static bool same_token(const unsigned char *a, const unsigned char *b)
{
    volatile unsigned char differ = 0;
    for (int i = 0; i < PEER_TOKEN; i++) differ = (unsigned char)(differ | (a[i] ^ b[i]));
    return differ == 0;
}

static int ms_left(uint64_t until)
{
    uint64_t now = clock_ns();
    return now < until ? (int)((until - now) / 1000000) + 1 : 0;
}

/* Reads n bytes before `until`. */
static int take(int fd, void *p, size_t n, uint64_t until)
{
    for (size_t at = 0; at < n;) {
        struct pollfd f = {.fd = fd, .events = POLLIN};
        ssize_t k = recv(fd, (char *)p + at, n - at, MSG_DONTWAIT);
        if (k > 0) at += (size_t)k;
        else if (k == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) return -1;
        else if (ms_left(until) == 0) return -1;
        else poll(&f, 1, ms_left(until));
    }
    return 0;
}

static int put(int fd, const void *p, size_t n)
{
    return send(fd, p, n, MSG_NOSIGNAL) == (ssize_t)n ? 0 : -1;   /* so few bytes always fit into the buffer */
}

static void settle(int fd)
{
    int yes = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);   /* fails on unix sockets, which have no such delay */
    fcntl(fd, F_SETFL, O_NONBLOCK);
}

/* A stranger that sends nothing delays the others by STRANGER_MS. */
static bool let_in(int fd, const struct peer_place *p, struct peer *peer, int n, uint64_t until)
{
    enum { STRANGER_MS = 500 };
    struct peer_greeting g;
    uint64_t soon = clock_ns() + STRANGER_MS * UINT64_C(1000000);
    if (take(fd, &g, sizeof g, soon < until ? soon : until) || !same_token(g.token, p->ask)) return false;
    if (g.rank <= 0 || g.rank >= n || peer[g.rank].fd >= 0 || put(fd, p->answer, PEER_TOKEN)) return false;
    settle(fd);
    peer[g.rank].fd = fd;
    return true;
}

void peer_accept(struct peer_listener *d, const struct peer_place *p, struct peer *peer, int n, int missing, int ms)
{
    uint64_t until = clock_ns() + (uint64_t)ms * 1000000;
    struct pollfd f[PEER_ADDRESSES + 1];
    for (int i = 0; i < d->n; i++) f[i] = (struct pollfd){.fd = d->fd[i], .events = POLLIN};
    while (missing > 0 && ms_left(until) > 0) {
        if (poll(f, (nfds_t)d->n, ms_left(until)) <= 0) continue;
        for (int i = 0; i < d->n; i++) {
            int fd = f[i].revents ? accept4(d->fd[i], NULL, NULL, SOCK_CLOEXEC) : -1;
            if (fd < 0) continue;
            if (let_in(fd, p, peer, n, until)) missing--;
            else close(fd);
        }
    }
}

static int connect_to(const struct sockaddr *a, socklen_t n, uint64_t until)
{
    int fd = socket(a->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), bad = 0;
    socklen_t size = sizeof bad;
    if (fd < 0) return -1;
    struct pollfd f = {.fd = fd, .events = POLLOUT};
    if (connect(fd, a, n) == 0) return fd;
    if (errno == EINPROGRESS && poll(&f, 1, ms_left(until)) > 0 &&
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &bad, &size) == 0 && !bad)
        return fd;
    close(fd);
    return -1;
}

static int join_at(const struct sockaddr *a, socklen_t n, const struct peer_place *p, int me, struct peer *w, int ms)
{
    uint64_t until = clock_ns() + (uint64_t)ms * 1000000;
    struct peer_greeting g = {.rank = me};
    unsigned char answer[PEER_TOKEN];
    memcpy(g.token, p->ask, sizeof g.token);
    int fd = connect_to(a, n, until);
    if (fd < 0) return -1;
    if (put(fd, &g, sizeof g) || take(fd, answer, sizeof answer, until) || !same_token(answer, p->answer)) {
        close(fd);
        return -1;
    }
    settle(fd);
    w->fd = fd;
    return 0;
}

int peer_join(const struct peer_place *p, int me, bool here, struct peer *w, int ms)
{
    struct sockaddr_un a;
    *w = PEER_NONE;
    socklen_t n = name_make(p, &a);
    if (here && join_at((struct sockaddr *)&a, n, p, me, w, ms) == 0) return 0;
    for (int i = 0; i < p->n_at && i < PEER_ADDRESSES; i++) {
        struct sockaddr_storage s;
        n = inet_make(&p->at[i], &s);
        if (join_at((struct sockaddr *)&s, n, p, me, w, ms / p->n_at) == 0) return 0;
    }
    return -1;
}
