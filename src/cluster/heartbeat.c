/* The thread that watches ranks. */
#include "config.h"
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/deadline.h"
#include "base/mem.h"
#include "cluster/thread_liveness.h"
#include "cluster/log.h"
#include "cluster/shutdown.h"
#include "cluster/heartbeat.h"
#include "cluster/startup_monitor.h"
#include "cluster/leader.h"
#include "cluster/stall_watchdog.h"
#include "cluster/peer_socket.h"
#include "cluster/sd_notify.h"

DEADLINE_BEFORE(3 * DEADLINE_BEAT, DETECTOR_FRESH_NS / 1000000, "a beat that is late is not taken for silence");
DEADLINE_BEFORE(2 * DEADLINE_JOIN, HEARTBEAT_TIMEOUT_S * 1000, "rank 0 is not taken for silent while others connect");

/* What processes exchange first, whatever their versions. Its size never changes. */
struct hello { char version[32], host[72]; int32_t pid, host_rank; struct peer_place place;
               struct leader_place leader; char spare[160]; };
_Static_assert(sizeof (struct hello) == 512, "ranks of all versions gather the same number of bytes");

/* bye: the other end has announced its exit; gone: its exit was seen; met: it has called heartbeat_meet */
struct peer_line { struct peer peer; bool bye; atomic_bool gone, met; };

static struct {
    int n, me;                                            /* n 0: ranks have not met */
    bool threads;
    atomic_bool on, over;
    struct exec_beat *beat;                               /* one for each rank; those of other processes are unused */
    struct hello *who;
    struct peer_line *line;                               /* rank 0: one for each rank; others: one, to rank 0 */
    pthread_mutex_t lock;                                 /* guards what is sent */
    struct failure_detector detector;
    struct detector_rank *ranks;
    _Atomic uint64_t *heard;                              /* rank 0: when the last beat of each rank came */
    struct startup_monitor *startup;
    _Atomic uint64_t limit_ns, device_ns;
    struct world *world;
    pthread_t thread;
    struct thread_view view;                              /* of rank 0's scheduler */
    uint64_t end_at;                                     /* when this thread ends the job for the scheduler; 0: never */
    uint64_t leader_at;                                     /* rank 0 exited: when this rank speaks; 0: never */
    int bell;                                             /* an eventfd: wakes the thread after a change */
} heartbeat = {.lock = PTHREAD_MUTEX_INITIALIZER, .bell = -1};

uint64_t heartbeat_heard(int rank)
{
    bool here = !heartbeat.heard || heartbeat.threads || rank == heartbeat.me;
    return here ? clock_ns() : atomic_load(&heartbeat.heard[rank]);
}

struct exec_beat *heartbeat_beat(int rank) { return heartbeat.beat ? &heartbeat.beat[rank] : NULL; }

char *heartbeat_who(int rank, char buf[HEARTBEAT_WHO])
{
    if (!heartbeat.who || rank < 0 || rank >= heartbeat.n) snprintf(buf, HEARTBEAT_WHO, "rank %d", rank);
    else
        snprintf(buf, HEARTBEAT_WHO, "rank %d (%.60s, process %d)", rank, heartbeat.who[rank].host,
                 (int)heartbeat.who[rank].pid);
    return buf;
}

const char *heartbeat_host(int rank)
{
    for (int r = 1; r < heartbeat.n && heartbeat.who; r++)
        if (heartbeat.who[r].host_rank != heartbeat.who[0].host_rank) return heartbeat.who[rank].host;
    return "";
}

void heartbeat_locate(int rank, struct failure *f)
{
    struct beat beat = {0};
    *f = (struct failure){.rank = rank};
    if (rank < 0) rank = heartbeat.me;                    /* what this process does is known of no other */
    bool known = heartbeat.beat && rank < heartbeat.n, here = heartbeat.threads || rank == heartbeat.me;
    if (known && heartbeat.who) snprintf(f->host, sizeof f->host, "%s", heartbeat.who[rank].host);
    else gethostname(f->host, sizeof f->host - 1);
    if (known && !here) beat = heartbeat.ranks[rank].beat;
    else if (known) beat_take(&heartbeat.beat[rank], shutdown_doing(), &beat);
    if ((beat.state & (BEAT_IN | BEAT_EVALUATES)) == BEAT_IN) f->step = beat.step;
    if (known) beat_text(&beat, f->action);
    else if (shutdown_doing()) snprintf(f->action, sizeof f->action, "%s", shutdown_doing());
}

int heartbeat_where(int rank, struct err *e)
{
    const char *host = heartbeat_host(rank);
    int code = e->code;
    bool its = code == E_DATA || code == E_NOINPUT || code == E_DEVICE || code == E_OS || code == E_CANTCREAT ||
               code == E_IO || code == E_PERM;
    if (*host && (its || (code == E_CONF && strcmp(host, heartbeat.who[0].host) != 0))) err_where(e, "on %.60s", host);
    return -1;
}

void heartbeat_timeout(int64_t timeout_s)
{
    atomic_store(&heartbeat.limit_ns, (uint64_t)timeout_s * 1000000000u);
    watchdog_limit((uint64_t)timeout_s * 1000000000u);
}

void heartbeat_device(uint64_t patience_ns) { atomic_store(&heartbeat.device_ns, patience_ns); }

/* ---- sending ----------------------------------------------------------------------------------------------------- */

static void say(int rank, const struct frame *f)
{
    pthread_mutex_lock(&heartbeat.lock);
    if (!heartbeat.line[rank].gone) peer_write(&heartbeat.line[rank].peer, f);
    pthread_mutex_unlock(&heartbeat.lock);
}

static int peers(int *first)
{
    *first = heartbeat.me == 0 ? 1 : 0;
    return heartbeat.threads ? 0 : heartbeat.me == 0 ? heartbeat.n : 1;
}

static void send_all(const struct frame *f)
{
    int first, end = peers(&first);
    for (int r = first; r < end; r++) say(r, f);
}

static void beat_now(void)
{
    struct frame f = {.kind = FRAME_BEAT};
    uint64_t now = clock_ns();
    for (int r = 0; r < heartbeat.n; r++) {
        if (!heartbeat.threads && r != heartbeat.me) continue;
        beat_take(&heartbeat.beat[r], shutdown_doing(), &f.beat);
        if (shutdown_elsewhere()) f.beat.state |= BEAT_ELSEWHERE;
        detector_beat(&heartbeat.detector, r, &f.beat, now);
    }
    send_all(&f);
}

/* Wakes rank 0 if it is on this host, and gives it time to write its last lines. */
static void wake_first(void)
{
    if (heartbeat.who[0].host_rank != heartbeat.who[heartbeat.me].host_rank ||
        kill(heartbeat.who[0].pid, SIGCONT)) return;
    nanosleep(&(struct timespec){.tv_nsec = DEADLINE_ANSWER * 1000000L}, NULL);
}

bool heartbeat_threaded(void) { return heartbeat.threads; }

bool heartbeat_carries(void)
{
    return atomic_load(&heartbeat.on) && !heartbeat.threads && heartbeat.me != 0 && !heartbeat.line[0].gone;
}

void heartbeat_bye(const struct failure *f)
{
    struct frame bye = {.kind = FRAME_BYE};
    if (!atomic_load(&heartbeat.on) || heartbeat.threads) return;
    if (f) bye.failure = *f;
    send_all(&bye);
    if (heartbeat.me != 0 && heartbeat.world->leader == heartbeat.me) wake_first();
}

/* ---- suspicions -------------------------------------------------------------------------------------------------- */

/* This rank ends the job instead of rank 0, which is not responding or has exited. It prints its line before it wakes
 * rank 0. If rank 0 runs, it has learnt of the suspicion and prints none. */
static void job_lead(const struct failure *f)
{
    if (!leader_take()) return;                           /* another process speaks and ends the job */
    log_quiet(false);
    heartbeat.world->leader = heartbeat.me;
    abort_event(ON_CAUSE, f);
    shutdown_end();
}

/* Rank 0 informs all ranks and ends as after any failure; the executor's thread, if it runs, sees the abort code. If
 * the suspicion is about rank 0 itself, another rank speaks for the job. */
static void job_fail(int rank, const struct err *e)
{
    struct frame f = {.kind = FRAME_FAILURE};
    bool leads = heartbeat.me != 0 && !heartbeat.threads;
    heartbeat_locate(rank, &f.failure);
    f.failure.e = *e;
    enum shutdown_action what = abort_event(leads ? ON_ALONE : ON_FOUND, &f.failure);
    if (what == DO_SPREAD || what == DO_LEAD) send_all(&f);
    if (what == DO_LEAD) job_lead(&f.failure);
}

static void suspicion_report(const struct suspicion *v)
{
    struct err e = {0};
    char who[HEARTBEAT_WHO], other[HEARTBEAT_WHO], at[BEAT_TEXT];
    double s = (double)v->ns * 1e-9;
    heartbeat_who(v->rank, who);
    beat_text(&heartbeat.ranks[v->rank].beat, at);
    if (v->kind == SUSPECT_DEADLOCK)
        err_set(&e, E_HANG, "%s waits for %s, in a cycle of waiting ranks: a message was lost; %s, for %.1f s", who,
                heartbeat_who(v->other, other), at, s);
    else err_set(&e, E_HANG, "%s is not responding: %s, for %.1f s", who, at, s);
    job_fail(v->rank, &e);
}

static void stood_report(uint64_t ns)
{
    struct err e = {0};
    char host[72] = "", at[BEAT_TEXT];
    int r = 0;
    gethostname(host, sizeof host - 1);
    while (r + 1 < heartbeat.n && !(heartbeat.ranks[r].beat.state & BEAT_IN)) r++;
    err_set(&e, E_HANG, "process %d (%s) is not responding: it was stopped, %s, for %.1f s", (int)getpid(), host,
            beat_text(&heartbeat.ranks[r].beat, at), (double)ns * 1e-9);
    job_fail(FAILURE_NOBODY, &e);
}

/* If the scheduler is not responding, rank 0 cannot write its last lines and would wait in vain. This thread then ends
 * the job after it has informed all other ranks. */
static void liveness_check(uint64_t now)
{
    struct err e = {0};
    char who[HEARTBEAT_WHO];
    const char *file;
    uint64_t count;
    if (!liveness_read(&count, &file)) { heartbeat.view = (struct thread_view){0}; return; }
    bool waits = heartbeat.view.spoke && count == heartbeat.view.count;
    uint64_t ns = detector_thread(&heartbeat.detector, &heartbeat.view, count, file != NULL, now);
    notify_disk(NOTIFY_FILE, file && waits);
    if (!ns || heartbeat.end_at) return;
    double s = (double)ns * 1e-9;
    heartbeat_who(0, who);
    if (file)
        err_set(&e, E_IO, "%s has waited for %s without progress for %.1f s: the file system is not responding", who,
                file, s);
    else err_set(&e, E_HANG, "%s is not responding: its scheduler, for %.1f s", who, s);
    job_fail(0, &e);
    heartbeat.end_at = now + DEADLINE_NS(DEADLINE_ANSWER);
}

/* ---- receiving --------------------------------------------------------------------------------------------------- */

static void gone_report(int rank)
{
    struct err e = {0};
    char who[HEARTBEAT_WHO];
    err_set(&e, E_DEVICE, "%s exited", heartbeat_who(rank, who));
    job_fail(rank, &e);
}

/* How many hosts that come before this rank's host have a rank that can speak for the job. */
static int hosts_before(void)
{
    int n = 0, mine = heartbeat.who[heartbeat.me].host_rank;
    for (int h = 0; h < mine; h++) {
        bool has = false;
        for (int r = 1; r < heartbeat.n; r++) has |= heartbeat.who[r].host_rank == h;
        n += has;
    }
    return n;
}

/* Each other rank sees that rank 0 exited, and one of them speaks: a rank of the first host at once, of another host
 * later. */
static void gone(int rank)
{
    struct peer_line *l = &heartbeat.line[rank];
    l->gone = true;
    detector_leave(&heartbeat.detector, rank);
    if (l->bye) return;
    if (heartbeat.me == 0) gone_report(rank);
    else heartbeat.leader_at = clock_ns() + (uint64_t)hosts_before() * DEADLINE_NS(DEADLINE_LEADER_LEFT);
}

/* A failure from another rank is always about rank 0. If this is rank 0, it was asleep and the sender has already
 * printed the line. */
static void take(int rank, const struct frame *f)
{
    if (f->kind == FRAME_BEAT) {
        detector_beat(&heartbeat.detector, rank, &f->beat, clock_ns());
        atomic_store(&heartbeat.heard[rank], clock_ns());
    } else if (f->kind == FRAME_BYE) {
        heartbeat.line[rank].bye = true;
        /* it sends no more heartbeats, and libraries take time to end */
        heartbeat.ranks[rank].heard = clock_ns() + DETECTOR_TIMES * heartbeat.detector.limit_ns;
        if (heartbeat.me == 0 && f->failure.e.code) abort_report(&f->failure);
    } else if (f->kind == FRAME_MET) {
        heartbeat.line[rank].met = true;
    } else if (f->kind == FRAME_FAILURE) {
        if (heartbeat.me == 0) log_quiet(true);
        abort_event(heartbeat.me == 0 ? ON_CAUSE : ON_TOLD, &f->failure);   /* if the executor hangs, rank 0 ends it */
    }
}

static void peer_take(int rank)
{
    struct frame f;
    int got;
    while ((got = peer_read(&heartbeat.line[rank].peer, &f)) > 0) take(rank, &f);
    if (got < 0) gone(rank);
}

/* Waits for frames or the bell, at most until that moment. */
static void recv_all(bool on, uint64_t until)
{
    int lines = on && !heartbeat.threads ? heartbeat.n : 0, first, end = lines ? peers(&first) : 0, n = 0;
    struct pollfd *f = mem_alloc((size_t)(lines + 1) * sizeof *f);
    int *of = mem_alloc((size_t)(lines + 1) * sizeof *of);
    uint64_t now = clock_ns(), drop;
    for (int r = lines ? first : 0; r < end; r++)
        if (!heartbeat.line[r].gone && heartbeat.line[r].peer.fd >= 0) {
            of[n] = r;
            f[n++] = (struct pollfd){.fd = heartbeat.line[r].peer.fd, .events = POLLIN};
        }
    f[n] = (struct pollfd){.fd = heartbeat.bell, .events = POLLIN};
    if (poll(f, (nfds_t)n + 1, now < until ? (int)((until - now) / 1000000) + 1 : 0) > 0) {
        for (int i = 0; i < n; i++) if (f[i].revents) peer_take(of[i]);
        if (f[n].revents && read(heartbeat.bell, &drop, sizeof drop) < 0) drop = 0;
    }
    free(of);
    free(f);
}

/* ---- the thread -------------------------------------------------------------------------------------------------- */

/* Before ranks have met, a rank can only see ranks of its own host, and only whether they are stopped. */
static void meeting_poll(uint64_t now)
{
    struct failure f;
    uint64_t limit = atomic_load(&heartbeat.limit_ns);
    if (!heartbeat.startup) return;
    heartbeat_locate(FAILURE_NOBODY, &f);
    uint64_t own = startup_monitor_slept(heartbeat.startup, now);
    uint64_t ns = startup_monitor_poll(heartbeat.startup, now, limit, &f.e);
    if (limit && own > limit) log_quiet(true);            /* another rank has reported this one */
    if (!ns || atomic_load(abort_code())) return;
    log_quiet(false);
    abort_report(&f);
}

static void look(uint64_t now)
{
    struct suspicion v;
    uint64_t stood = watchdog_beat(), device = atomic_load(&heartbeat.device_ns);
    uint64_t limit = atomic_load(&heartbeat.limit_ns);
    /* Ranks time out one after the other, so that only one speaks. */
    if (heartbeat.me > 0 && limit) limit += (uint64_t)(heartbeat.me - 1) * DEADLINE_NS(DEADLINE_LEADER);
    heartbeat.detector.limit_ns = limit;
    heartbeat.detector.device_ns = limit && device ? device + limit / 2 : 0;
    beat_now();
    if (stood) stood_report(stood);
    else if (detector_poll(&heartbeat.detector, now, &v)) suspicion_report(&v);
    else if (heartbeat.me == 0) liveness_check(now);
    if (heartbeat.me == 0) notify_poll(detector_is_current(&heartbeat.detector, now));
    if (heartbeat.end_at && now >= heartbeat.end_at) shutdown_end();
}

static void *watch(void *arg)
{
    uint64_t next = clock_ns();
    (void)arg;
    while (!atomic_load(&heartbeat.over)) {
        bool on = atomic_load(&heartbeat.on);
        recv_all(on, heartbeat.leader_at && heartbeat.leader_at < next ? heartbeat.leader_at : next);
        uint64_t now = clock_ns();
        if (heartbeat.leader_at && now >= heartbeat.leader_at) heartbeat.leader_at = 0, gone_report(0);
        if (now < next) continue;
        next = now + DEADLINE_NS(DEADLINE_BEAT);
        if (on) look(now);
        else if (!atomic_load(&heartbeat.on)) meeting_poll(now);
    }
    return NULL;
}

static int thread_start(struct err *e)
{
    sigset_t all, before;
    heartbeat.bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (heartbeat.bell < 0) return err_set(e, E_OS, "eventfd: %s", strerror(errno));
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);            /* the other threads handle signals */
    int bad = pthread_create(&heartbeat.thread, NULL, watch, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return bad ? err_set(e, E_OS, "cannot create a thread (ulimit -u, ulimit -v)") : 0;
}

static void ring(void)
{
    uint64_t one = 1;
    ssize_t k = write(heartbeat.bell, &one, sizeof one);
    (void)k;
}

int heartbeat_begin(bool launched, int64_t timeout_s, struct err *e)
{
    heartbeat_timeout(timeout_s);
    if (launched) heartbeat.startup = startup_monitor_new();
    return thread_start(e);
}

/* ---- connecting -------------------------------------------------------------------------------------------------- */

static void ranks_alloc(int n)
{
    heartbeat.beat = mem_alloc((size_t)n * sizeof *heartbeat.beat);
    heartbeat.ranks = mem_alloc((size_t)n * sizeof *heartbeat.ranks);
    heartbeat.heard = mem_alloc((size_t)n * sizeof *heartbeat.heard);
    for (int r = 0; r < n; r++) {
        atomic_store(&heartbeat.beat[r].wait, EXEC_WAITS_NOT);
        atomic_store(&heartbeat.heard[r], clock_ns());
    }
    detector_begin(&heartbeat.detector, heartbeat.ranks, n, clock_ns());
    heartbeat.n = n;
}

/* Lets tools read the version from the executable file. */
static const char *volatile version_mark = "mpstaged-version=" PACKAGE_VERSION;

static void hello_make(const struct world *w, struct hello *h)
{
    memset(h, 0, sizeof *h);
    snprintf(h->version, sizeof h->version, "%s", strchr(version_mark, '=') + 1);
    gethostname(h->host, sizeof h->host - 1);
    h->pid = (int32_t)getpid();
    h->host_rank = w->host;
}

static int versions_match(struct err *e)
{
    char who[HEARTBEAT_WHO];
    for (int r = 1; r < heartbeat.n; r++)
        if (strncmp(heartbeat.who[r].version, heartbeat.who[0].version, sizeof heartbeat.who->version) != 0)
            return err_set(e, E_CONF, "%s runs mpstaged %.32s, rank 0 runs %.32s: all ranks need the same",
                           heartbeat_who(r, who), heartbeat.who[r].version, heartbeat.who[0].version);
    return 0;
}

/* A rank that could not connect, because of a firewall between hosts, is not watched: see heartbeat_report. */
static void connect_all(struct world *w, struct peer_listener *d)
{
    const struct hello *first = &heartbeat.who[0];
    int lines = w->rank == 0 ? w->size : 1;
    struct peer *peer = mem_alloc((size_t)lines * sizeof *peer);
    for (int r = 0; r < lines; r++) peer[r] = PEER_NONE;
    if (w->rank == 0) peer_accept(d, &first->place, peer, w->size, w->size - 1, 2 * DEADLINE_JOIN);
    else peer_join(&first->place, w->rank, heartbeat.who[w->rank].host_rank == first->host_rank, peer, DEADLINE_JOIN);
    heartbeat.line = mem_alloc((size_t)lines * sizeof *heartbeat.line);
    for (int r = 0; r < lines; r++) {
        heartbeat.line[r].peer = peer[r];
        heartbeat.line[r].gone = peer[r].fd < 0;
        if (peer[r].fd < 0 && r != w->rank) detector_leave(&heartbeat.detector, r);
    }
    for (int r = 1; r < w->size && w->rank != 0; r++) detector_leave(&heartbeat.detector, r);
    free(peer);
}

int heartbeat_join(struct world *w, struct err *e)
{
    struct peer_listener door = {.n = 0};
    heartbeat.who = mem_alloc((size_t)w->size * sizeof *heartbeat.who);
    hello_make(w, &heartbeat.who[w->rank]);
    if (w->rank == 0 && w->size > 1) peer_open(&door, &heartbeat.who[0].place, w->here < w->size);
    if (w->host == w->rank) leader_make(&heartbeat.who[w->rank].leader);
    w->allgather(w, heartbeat.who, sizeof *heartbeat.who);
    leader_join(&heartbeat.who[w->host].leader);
    heartbeat.world = w;
    heartbeat.me = w->rank;
    ranks_alloc(w->size);
    int bad = versions_match(e);
    if (!bad && w->size > 1) connect_all(w, &door);
    peer_shut(&door);
    if (bad) return -1;
    if (w->size == 1) heartbeat.line = mem_alloc(sizeof *heartbeat.line), heartbeat.line->gone = true;
    atomic_store(&heartbeat.on, true);
    ring();
    return 0;
}

void heartbeat_report(struct text *out)
{
    char who[HEARTBEAT_WHO];
    int n = 0, first = 0;
    for (int r = heartbeat.n - 1; r > 0 && heartbeat.me == 0 && !heartbeat.threads; r--)
        if (heartbeat.line[r].gone) n++, first = r;
    if (!n) return;
    text_add(out, "warning: %d of %d ranks cannot connect to rank 0, first %s: nobody notices when they hang or are "
             "lost; the ports of net.ipv4.ip_local_port_range must be open between hosts\n", n, heartbeat.n,
             heartbeat_who(first, who));
}

int heartbeat_threads(int n, int64_t timeout_s, struct err *e)
{
    heartbeat.threads = true;
    ranks_alloc(n);
    heartbeat.detector.silence = false;
    heartbeat_timeout(timeout_s);
    atomic_store(&heartbeat.on, true);
    return thread_start(e);
}

/* Waits until that is true of a rank, or it has exited. The failure detector ends the wait if a rank takes too long;
 * without it, DEADLINE_PARTING does. */
static void line_wait(int rank, const atomic_bool *done, uint64_t since)
{
    while (!*done && !heartbeat.line[rank].gone &&
           (atomic_load(&heartbeat.limit_ns) || clock_ns() - since < DEADLINE_NS(DEADLINE_PARTING))) {
        if (atomic_load(abort_code())) shutdown_end();
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

void heartbeat_meet(void)
{
    const struct frame met = {.kind = FRAME_MET};
    int first, end = peers(&first);
    uint64_t since = clock_ns();
    if (heartbeat.me != 0) send_all(&met);
    for (int r = first; r < end; r++) line_wait(r, &heartbeat.line[r].met, since);
    if (heartbeat.me == 0) send_all(&met);
}

/* The connections stay open until the process exits, so that other ranks see the exit only when it happens. */
void heartbeat_end(void)
{
    int first, end = peers(&first);
    uint64_t since = clock_ns();
    if (heartbeat.bell < 0) return;
    heartbeat_bye(NULL);
    for (int r = first; r < end && heartbeat.me == 0; r++) line_wait(r, &heartbeat.line[r].gone, since);
    atomic_store(&heartbeat.over, true);
    ring();
    pthread_join(heartbeat.thread, NULL);
}
