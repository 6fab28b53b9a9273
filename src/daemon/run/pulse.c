/* The thread that watches over ranks. */
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
#include "daemon/report/desk.h"
#include "daemon/report/log.h"
#include "daemon/run/fate.h"
#include "daemon/run/pulse.h"
#include "daemon/run/siblings.h"
#include "daemon/run/speaker.h"
#include "daemon/run/watcher.h"
#include "daemon/run/wire.h"
#include "daemon/talk/notify.h"

DEADLINE_BEFORE(3 * DEADLINE_BEAT, JUDGE_FRESH_NS / 1000000, "a beat that is late is not taken for silence");
DEADLINE_BEFORE(2 * DEADLINE_JOIN, PULSE_TIMEOUT_S * 1000, "rank 0 is not taken for silent while others connect");

/* What processes tell each other first, whatever their versions: its size never changes. */
struct hello { char version[32], host[72]; int32_t pid, host_rank; struct wire_place place;
               struct speaker_place speaker; char spare[160]; };
_Static_assert(sizeof (struct hello) == 512, "ranks of all versions gather the same number of bytes");

/* of the other end: it has said that its end means nothing any more; its end was seen */
struct line { struct wire wire; bool bye; atomic_bool gone; };

static struct {
    int n, me;                                            /* n 0: ranks have not met */
    bool threads;
    atomic_bool on, over;
    struct exec_beat *beat;                               /* of each rank; those of other processes are unused */
    struct hello *who;
    struct line *line;                                    /* rank 0: of each other rank; others: of rank 0 */
    pthread_mutex_t lock;                                 /* guards what is sent, and n of the thread */
    struct judge judge;
    struct judge_rank *ranks;
    _Atomic uint64_t *heard;                              /* when the last beat of each rank came, for rank 0 */
    struct siblings *siblings;
    _Atomic uint64_t limit_ns, device_ns;
    struct world *world;
    pthread_t thread;
    struct judge_desk desk;                               /* of rank 0's scheduler */
    uint64_t end_at;                                      /* when this thread ends the job in its place; 0: never */
    uint64_t heir_at;                                     /* rank 0 is gone: when this one speaks; 0: never */
    int bell;                                             /* an eventfd: look at what has changed */
} pulse = {.lock = PTHREAD_MUTEX_INITIALIZER, .bell = -1};

uint64_t pulse_heard(int rank)
{
    bool here = !pulse.heard || pulse.threads || rank == pulse.me;
    return here ? clock_ns() : atomic_load(&pulse.heard[rank]);
}

struct exec_beat *pulse_beat(int rank) { return pulse.beat ? &pulse.beat[rank] : NULL; }

char *pulse_who(int rank, char buf[PULSE_WHO])
{
    if (!pulse.who || rank < 0 || rank >= pulse.n) snprintf(buf, PULSE_WHO, "rank %d", rank);
    else
        snprintf(buf, PULSE_WHO, "rank %d (%.60s, process %d)", rank, pulse.who[rank].host, (int)pulse.who[rank].pid);
    return buf;
}

const char *pulse_host(int rank)
{
    for (int r = 1; r < pulse.n && pulse.who; r++)
        if (pulse.who[r].host_rank != pulse.who[0].host_rank) return pulse.who[rank].host;
    return "";
}

int pulse_where(int rank, struct err *e)
{
    const char *host = pulse_host(rank);
    int code = e->code;
    bool its = code == E_DATA || code == E_NOINPUT || code == E_DEVICE || code == E_OS || code == E_CANTCREAT ||
               code == E_IO || code == E_PERM;
    if (*host && (its || (code == E_CONF && strcmp(host, pulse.who[0].host) != 0))) err_where(e, "on %.60s", host);
    return -1;
}

void pulse_timeout(int64_t timeout_s)
{
    atomic_store(&pulse.limit_ns, (uint64_t)timeout_s * 1000000000u);
    watcher_limit((uint64_t)timeout_s * 1000000000u);
}

void pulse_device(uint64_t patience_ns) { atomic_store(&pulse.device_ns, patience_ns); }

/* ---- saying ------------------------------------------------------------------------------------------------------ */

static void say(int rank, const struct frame *f)
{
    pthread_mutex_lock(&pulse.lock);
    if (!pulse.line[rank].gone) wire_write(&pulse.line[rank].wire, f);
    pthread_mutex_unlock(&pulse.lock);
}

static int peers(int *first)
{
    *first = pulse.me == 0 ? 1 : 0;
    return pulse.threads ? 0 : pulse.me == 0 ? pulse.n : 1;
}

static void say_all(const struct frame *f)
{
    int first, end = peers(&first);
    for (int r = first; r < end; r++) say(r, f);
}

static void beat_now(void)
{
    struct frame f = {.kind = FRAME_BEAT};
    uint64_t now = clock_ns();
    for (int r = 0; r < pulse.n; r++) {
        if (!pulse.threads && r != pulse.me) continue;
        beat_take(&pulse.beat[r], fate_doing(), &f.beat);
        if (fate_elsewhere()) f.beat.state |= BEAT_ELSEWHERE;
        judge_hear(&pulse.judge, r, &f.beat, now);
    }
    say_all(&f);
}

void pulse_bye(int code, const char *text)
{
    struct frame f = {.kind = FRAME_BYE, .code = code};
    if (!atomic_load(&pulse.on) || pulse.threads) return;
    if (text) snprintf(f.text, sizeof f.text, "%s", text);
    say_all(&f);
}

/* ---- verdicts ---------------------------------------------------------------------------------------------------- */

/* Rank 0 on this host gets the time to write its last lines, if it can. */
static void wake_first(void)
{
    if (pulse.who[0].host_rank != pulse.who[pulse.me].host_rank || kill(pulse.who[0].pid, SIGCONT)) return;
    nanosleep(&(struct timespec){.tv_nsec = DEADLINE_ANSWER * 1000000L}, NULL);
}

/* Whether the job has failed already. Of rank 0 a signal counts, too, which it will report; the others' signal may be
 * mpirun's, because rank 0 is gone. */
static bool is_doomed(void)
{
    struct err e = {0};
    return atomic_load(fate_word()) && (pulse.me == 0 || pulse.threads || !fate_get(&e) || e.code != E_STOPPED);
}

/* Rank 0 tells all and ends as after any failure; the executor's thread, if it lives, sees the word. If rank 0 itself
 * is what the verdict is about, another rank speaks for the job. */
static void doom(int who, int code, const char *text)
{
    struct frame f = {.kind = FRAME_VERDICT, .code = code, .who = who};
    snprintf(f.text, sizeof f.text, "%s", text);
    bool heir = pulse.me != 0 && !pulse.threads;
    if (is_doomed()) return;
    say_all(&f);
    if (!heir) { fate_set_of(who, code, text); return; }
    if (!speaker_take()) return;                          /* another one does, and ends the job */
    log_quiet(false);
    log_error(code, text);
    wake_first();
    pulse.world->speaker = pulse.me;
    fate_set_of(who, code, text);
    fate_end();
}

static void verdict_tell(const struct verdict *v)
{
    char text[600], who[PULSE_WHO], other[PULSE_WHO], at[BEAT_TEXT];
    double s = (double)v->ns * 1e-9;
    pulse_who(v->rank, who);
    beat_text(&pulse.ranks[v->rank].beat, at);
    if (v->kind == VERDICT_LOST)
        snprintf(text, sizeof text, "%s waits for %s, in a cycle of waiting ranks: a message was lost; %s, for %.1f s",
                 who, pulse_who(v->other, other), at, s);
    else snprintf(text, sizeof text, "%s is not responding: %s, for %.1f s", who, at, s);
    doom(v->rank, E_HANG, text);
}

static void stood_tell(uint64_t ns)
{
    char text[300], host[72] = "", at[BEAT_TEXT];
    int r = 0;
    gethostname(host, sizeof host - 1);
    while (r + 1 < pulse.n && !(pulse.ranks[r].beat.state & BEAT_IN)) r++;
    snprintf(text, sizeof text, "process %d (%s) is not responding: it was stopped, %s, for %.1f s", (int)getpid(),
             host, beat_text(&pulse.ranks[r].beat, at), (double)ns * 1e-9);
    doom(FATE_NOBODY, E_HANG, text);
}

/* Where the scheduler stands still, rank 0 cannot write its last lines and waits for it in vain: this thread ends the
 * job when all others know of it. */
static void desk_look_at(uint64_t now)
{
    char text[300], who[PULSE_WHO];
    const char *file;
    uint64_t count;
    if (!desk_look(&count, &file)) { pulse.desk = (struct judge_desk){0}; return; }
    bool waits = pulse.desk.spoke && count == pulse.desk.count;
    uint64_t ns = judge_desk(&pulse.judge, &pulse.desk, count, file != NULL, now);
    notify_disk(NOTIFY_FILE, file && waits);
    if (!ns || pulse.end_at) return;
    double s = (double)ns * 1e-9;
    pulse_who(0, who);
    if (file)
        snprintf(text, sizeof text, "%s has waited for %s without progress for %.1f s: the file system does not "
                                    "respond", who, file, s);
    else snprintf(text, sizeof text, "%s is not responding: its scheduler, for %.1f s", who, s);
    doom(0, file ? E_IO : E_HANG, text);
    pulse.end_at = now + DEADLINE_NS(DEADLINE_ANSWER);
}

/* ---- hearing ----------------------------------------------------------------------------------------------------- */

static void gone_tell(int rank)
{
    char text[300], who[PULSE_WHO];
    snprintf(text, sizeof text, "%s exited", pulse_who(rank, who));
    doom(rank, E_DEVICE, text);
}

/* How many hosts have a rank before this one's that can speak for the job. */
static int hosts_before(void)
{
    int n = 0, mine = pulse.who[pulse.me].host_rank;
    for (int h = 0; h < mine; h++) {
        bool has = false;
        for (int r = 1; r < pulse.n; r++) has |= pulse.who[r].host_rank == h;
        n += has;
    }
    return n;
}

/* Each other rank sees that rank 0 is gone, and one speaks: of the first host, of another one later. */
static void gone(int rank)
{
    struct line *l = &pulse.line[rank];
    l->gone = true;
    judge_leave(&pulse.judge, rank);
    if (l->bye || is_doomed()) return;
    if (pulse.me == 0) gone_tell(rank);
    else pulse.heir_at = clock_ns() + (uint64_t)hosts_before() * DEADLINE_NS(DEADLINE_HEIR_LEFT);
}

/* A verdict from another rank is about rank 0: this process, which was asleep while that one has told it. */
static void take(int rank, const struct frame *f)
{
    if (f->kind == FRAME_BEAT) {
        judge_hear(&pulse.judge, rank, &f->beat, clock_ns());
        atomic_store(&pulse.heard[rank], clock_ns());
    } else if (f->kind == FRAME_BYE) {
        pulse.line[rank].bye = true;
        /* it says no more, and libraries take their time to end */
        pulse.ranks[rank].heard = clock_ns() + JUDGE_TIMES * pulse.judge.limit_ns;
        if (pulse.me == 0 && f->code && *f->text) fate_set_of(rank, f->code, f->text);
    } else if (f->kind == FRAME_VERDICT) {
        if (pulse.me == 0) log_quiet(true);
        fate_set_of(f->who, f->code, f->text);           /* where the executor hangs, it is rank 0 that ends the job */
    }
}

static void hear(int rank)
{
    struct frame f;
    int got;
    while ((got = wire_read(&pulse.line[rank].wire, &f)) > 0) take(rank, &f);
    if (got < 0) gone(rank);
}

/* Waits for whatever comes, at most until that moment. */
static void hear_all(bool on, uint64_t until)
{
    int lines = on && !pulse.threads ? pulse.n : 0, first, end = lines ? peers(&first) : 0, n = 0;
    struct pollfd *f = mem_alloc((size_t)(lines + 1) * sizeof *f);
    int *of = mem_alloc((size_t)(lines + 1) * sizeof *of);
    uint64_t now = clock_ns(), drop;
    for (int r = lines ? first : 0; r < end; r++)
        if (!pulse.line[r].gone && pulse.line[r].wire.fd >= 0) {
            of[n] = r;
            f[n++] = (struct pollfd){.fd = pulse.line[r].wire.fd, .events = POLLIN};
        }
    f[n] = (struct pollfd){.fd = pulse.bell, .events = POLLIN};
    if (poll(f, (nfds_t)n + 1, now < until ? (int)((until - now) / 1000000) + 1 : 0) > 0) {
        for (int i = 0; i < n; i++) if (f[i].revents) hear(of[i]);
        if (f[n].revents && read(pulse.bell, &drop, sizeof drop) < 0) drop = 0;
    }
    free(of);
    free(f);
}

/* ---- the thread -------------------------------------------------------------------------------------------------- */

/* Where ranks have not met, only those of this host can be seen, and only whether they are stopped. */
static void meeting_look(uint64_t now)
{
    char text[200];
    uint64_t limit = atomic_load(&pulse.limit_ns);
    if (!pulse.siblings) return;
    uint64_t own = siblings_slept(pulse.siblings, now);
    uint64_t ns = siblings_look(pulse.siblings, now, limit, text, sizeof text);
    if (limit && own > limit) log_quiet(true);            /* another rank has spoken about this one */
    if (!ns || atomic_load(fate_word())) return;
    log_quiet(false);
    fate_set_of(FATE_NOBODY, E_HANG, text);
}

static void look(uint64_t now)
{
    struct verdict v;
    uint64_t stood = watcher_beat(), device = atomic_load(&pulse.device_ns);
    uint64_t limit = atomic_load(&pulse.limit_ns);
    /* One after the other, so that one rank speaks. */
    if (pulse.me > 0 && limit) limit += (uint64_t)(pulse.me - 1) * DEADLINE_NS(DEADLINE_HEIR);
    pulse.judge.limit_ns = limit;
    pulse.judge.device_ns = limit && device ? device + limit / 2 : 0;
    beat_now();
    if (stood) stood_tell(stood);
    else if (judge_look(&pulse.judge, now, &v)) verdict_tell(&v);
    else if (pulse.me == 0) desk_look_at(now);
    if (pulse.me == 0) notify_look(judge_hears(&pulse.judge, now));
    if (pulse.end_at && now >= pulse.end_at) fate_end();
}

static void *watch(void *arg)
{
    uint64_t next = clock_ns();
    (void)arg;
    while (!atomic_load(&pulse.over)) {
        bool on = atomic_load(&pulse.on);
        hear_all(on, pulse.heir_at && pulse.heir_at < next ? pulse.heir_at : next);
        uint64_t now = clock_ns();
        if (pulse.heir_at && now >= pulse.heir_at) pulse.heir_at = 0, gone_tell(0);
        if (now < next) continue;
        next = now + DEADLINE_NS(DEADLINE_BEAT);
        if (on) look(now);
        else if (!atomic_load(&pulse.on)) meeting_look(now);
    }
    return NULL;
}

static int thread_start(struct err *e)
{
    sigset_t all, before;
    pulse.bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (pulse.bell < 0) return err_set(e, E_OS, "eventfd: %s", strerror(errno));
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);            /* signals are for the other threads */
    int bad = pthread_create(&pulse.thread, NULL, watch, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return bad ? err_set(e, E_OS, "cannot create a thread (ulimit -u, ulimit -v)") : 0;
}

static void ring(void)
{
    uint64_t one = 1;
    ssize_t k = write(pulse.bell, &one, sizeof one);
    (void)k;
}

int pulse_begin(bool launched, int64_t timeout_s, struct err *e)
{
    pulse_timeout(timeout_s);
    if (launched) pulse.siblings = siblings_new();
    return thread_start(e);
}

/* ---- meeting ----------------------------------------------------------------------------------------------------- */

static void room_make(int n)
{
    pulse.beat = mem_alloc((size_t)n * sizeof *pulse.beat);
    pulse.ranks = mem_alloc((size_t)n * sizeof *pulse.ranks);
    pulse.heard = mem_alloc((size_t)n * sizeof *pulse.heard);
    for (int r = 0; r < n; r++) {
        atomic_store(&pulse.beat[r].wait, EXEC_WAITS_NOT);
        atomic_store(&pulse.heard[r], clock_ns());
    }
    judge_begin(&pulse.judge, pulse.ranks, n, clock_ns());
    pulse.n = n;
}

/* The version of a program can be read in its file, too. */
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
    char who[PULSE_WHO];
    for (int r = 1; r < pulse.n; r++)
        if (strncmp(pulse.who[r].version, pulse.who[0].version, sizeof pulse.who->version) != 0)
            return err_set(e, E_CONF, "%s runs mpstaged %.32s, rank 0 runs %.32s: all ranks need the same",
                           pulse_who(r, who), pulse.who[r].version, pulse.who[0].version);
    return 0;
}

/* Who could not connect, behind a firewall between hosts, is not watched; the run goes on. */
static void connect_all(struct world *w, struct wire_door *d)
{
    const struct hello *first = &pulse.who[0];
    int lines = w->rank == 0 ? w->size : 1;
    struct wire *wire = mem_alloc((size_t)lines * sizeof *wire);
    for (int r = 0; r < lines; r++) wire[r] = WIRE_NONE;
    if (w->rank == 0) wire_meet(d, &first->place, wire, w->size, w->size - 1, 2 * DEADLINE_JOIN);
    else wire_join(&first->place, w->rank, pulse.who[w->rank].host_rank == first->host_rank, wire, DEADLINE_JOIN);
    pulse.line = mem_alloc((size_t)lines * sizeof *pulse.line);
    for (int r = 0; r < lines; r++) {
        pulse.line[r].wire = wire[r];
        pulse.line[r].gone = wire[r].fd < 0;
        if (wire[r].fd < 0 && r != w->rank) judge_leave(&pulse.judge, r);
    }
    for (int r = 1; r < w->size && w->rank != 0; r++) judge_leave(&pulse.judge, r);
    free(wire);
}

int pulse_join(struct world *w, struct err *e)
{
    struct wire_door door = {.n = 0};
    pulse.who = mem_alloc((size_t)w->size * sizeof *pulse.who);
    hello_make(w, &pulse.who[w->rank]);
    if (w->rank == 0 && w->size > 1) wire_open(&door, &pulse.who[0].place, w->here < w->size);
    if (w->host == w->rank) speaker_make(&pulse.who[w->rank].speaker);
    w->gather(w, pulse.who, sizeof *pulse.who);
    speaker_join(&pulse.who[w->host].speaker);
    pulse.world = w;
    pulse.me = w->rank;
    room_make(w->size);
    int bad = versions_match(e);
    if (!bad && w->size > 1) connect_all(w, &door);
    wire_shut(&door);
    if (bad) return -1;
    if (w->size == 1) pulse.line = mem_alloc(sizeof *pulse.line), pulse.line->gone = true;
    atomic_store(&pulse.on, true);
    ring();
    return 0;
}

int pulse_threads(int n, int64_t timeout_s, struct err *e)
{
    pulse.threads = true;
    room_make(n);
    pulse.judge.silence = false;
    pulse_timeout(timeout_s);
    atomic_store(&pulse.on, true);
    return thread_start(e);
}

/* Whether rank 0 still waits for the end of the others: the judge says when one takes too long; without one, this. */
static bool waits_on(uint64_t since)
{
    return atomic_load(&pulse.limit_ns) || clock_ns() - since < DEADLINE_NS(DEADLINE_PARTING);
}

/* The connections end with the processes: others see that this one is gone only when it really is. */
void pulse_end(void)
{
    int first, end = peers(&first);
    uint64_t since = clock_ns();
    if (pulse.bell < 0) return;
    pulse_bye(0, NULL);
    for (int r = first; r < end && pulse.me == 0 && !pulse.threads; r++)
        while (!pulse.line[r].gone && waits_on(since)) {
            if (atomic_load(fate_word())) fate_end();
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        }
    atomic_store(&pulse.over, true);
    ring();
    pthread_join(pulse.thread, NULL);
}
