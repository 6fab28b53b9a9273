/* The life of a run: its ranks as processes or threads, set-up, steps, end. */
#include "config.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/deadline.h"
#include "base/launched.h"
#include "cluster/log.h"
#include "report/trace.h"
#include "cluster/fd_limit.h"
#include "cluster/heartbeat.h"
#include "service/loop.h"
#include "train/profile.h"
#include "service/run.h"
#include "train/setup.h"
#include "cluster/shutdown.h"
#include "cluster/stall_watchdog.h"
#include "cluster/vote.h"
#include "service/http.h"
#include "cluster/sd_notify.h"
#include "plan/part.h"

/* One rank. loop, http (bound socket of service.metrics; -1: none): rank 0 only. */
struct run_rank { struct setup setup; struct loop *loop; int http; };

/* ---- functions that set-up calls --------------------------------------------------------------------------------- */

/* Binds the address early: another program may use it, and the following phases may take minutes. */
static int address_take(void *ctx, const struct conf *c, struct err *e)
{
    struct run_rank *r = ctx;
    if (!c->service.metrics) return 0;
    if (http_bind(c->service.metrics, abort_code(), &r->http, e)) return -1;
    r->setup.service_files = HTTP_FILES;
    return 0;
}

static int service_open(void *ctx, const struct ckpt *from, struct err *e)
{
    struct run_rank *r = ctx;
    struct setup *b = &r->setup;
    struct loop_request q = {.job = &b->job, .dir = &b->dir, .reporters = b->reporters, .peak = b->peak,
                             .screen = &b->screen, .save = b->save, .generation = b->generation, .from = from,
                             .rates = &b->resume.rates, .best = b->resume.any ? &b->resume.best : NULL,
                             .http = r->http, .opts = b->opts, .file = &b->file};
    r->http = -1;                                         /* the loop closes it */
    return loop_open(&q, &r->loop, &b->coordinator, e);
}

/* ---- the run ----------------------------------------------------------------------------------------------------- */

/* Ends after a failure in the middle of a step. Peers may wait for transfers that never come, so nothing is closed.
 * Where ranks are threads, rank 0's ends the process. */
static _Noreturn void run_abort(struct run_rank *r, struct err *e)
{
    struct setup *b = &r->setup;
    struct err more = {0};
    abort_request(b->world->rank, e->code, e->text);
    if (r->loop) loop_close(r->loop, e->code ? e->code : E_INTERNAL, e->text, &more);
    while (b->world->one_process && b->world->rank != 0) pause();
    shutdown_end();
}

static int train(struct run_rank *r, struct err *e)
{
    struct setup *b = &r->setup;
    if (b->world->rank != 0) return worker_run(b->control, e);
    if (coordinator_run(b->control, &b->coordinator, e)) return -1;
    struct loop *l = r->loop;
    r->loop = NULL;                                       /* loop_close frees it, even if it fails */
    return loop_close(l, 0, "", e);
}

static int profile(struct run_rank *r, struct err *e)
{
    struct setup *b = &r->setup;
    if (setup_begin(b, e)) return -1;
    setup_progress_now(b->ready, "measuring kernels");
    shutdown_phase(SHUTDOWN_STEP, "measuring kernels");
    if (profile_measure(b, e)) run_abort(r, e);
    profile_write(b, e);
    return vote_agree(b->world, e);
}

static int hosts(struct run_rank *r, struct err *e)
{
    struct setup *b = &r->setup;
    struct text table = {0}, slow = {0};
    if (setup_begin(b, e)) return -1;
    setup_progress_now(b->ready, "measuring hosts");
    shutdown_phase(SHUTDOWN_STEP, "measuring hosts");
    if (check_hosts(b, &table, &slow, e)) run_abort(r, e);
    setup_progress_end(b->ready);
    b->ready = NULL;
    if (table.n && (fputs(table.s, stdout) < 0 || fflush(stdout))) err_set(e, E_IO, "the standard output failed");
    if (slow.n) err_set(e, E_DIFFERS, "%s", slow.s);
    text_free(&table);
    text_free(&slow);
    return vote_agree(b->world, e);
}

/* Ends after a failed set-up. If a signal came when all else was ready, rank 0's scheduler already runs and is ended
 * here. */
static int setup_failed(struct run_rank *r, struct err *e)
{
    struct err more = {0};
    if (r->loop) loop_close(r->loop, e->code, e->text, &more);
    r->loop = NULL;
    return -1;
}

static void start_announce(const struct setup *b)
{
    if (b->resume.found) notify_resumed(b->resume.from.step);
    notify_ready(b->dir.path);
}

static int run(struct run_rank *r, struct err *e)
{
    struct setup *b = &r->setup;
    if (b->opts->mode == MODE_PROFILE) return profile(r, e);
    if (b->opts->mode == MODE_CHECK_HOSTS) return hosts(r, e);
    if (setup_begin(b, e)) return setup_failed(r, e);
    if (b->world->rank == 0) setup_hello(b), start_announce(b);
    shutdown_phase(SHUTDOWN_STEP, NULL);
    if (train(r, e)) run_abort(r, e);
    shutdown_phase(SHUTDOWN_END, NULL);
    if (b->world->rank == 0) rundir_settle(&b->dir, b->conf, e);
    if (vote_agree(b->world, e)) return -1;
    trace_write(&(struct trace_request){.world = b->world, .job = &b->job, .exec = b->exec, .at = &b->files.trace}, e);
    if (vote_agree(b->world, e)) return -1;
    if (b->world->rank == 0) setup_end(b);
    return 0;
}

/* The configuration, if it was read before there were ranks; rank 0 takes both. */
struct run_early { struct text file; struct conf *conf; };

/* One rank from start to end. Returns 0; after a failure rank 0's thread, or each process, does not return. */
static int rank_run(const struct opts *o, struct world *w, struct run_early *early)
{
    struct run_rank r = {.http = -1};
    const struct setup_service service = {address_take, service_open, &r};
    struct setup *b = &r.setup;
    struct err e = {0};
    setup_init(b, o, w, &service);
    if (w->rank == 0) {
        b->file = early->file;
        b->draft = early->conf;
        *early = (struct run_early){.conf = NULL};
    }
    if (w->rank == 0 && o->mode == MODE_RUN) notify_open(NULL);
    int bad = run(&r, &e);
    setup_progress_end(b->ready);
    if (bad && (!w->one_process || w->rank == 0)) abort_request(FAILURE_NOBODY, e.code, e.text), shutdown_end();
    setup_close(b);
    if (r.http >= 0) close(r.http);
    return e.code;
}

static int64_t timeout_early(const struct opts *o)
{
    return opts_number(o, "run.hang_timeout", HEARTBEAT_TIMEOUT_S);
}

/* mpirun may kill all ranks as soon as one exits, so the leader, which writes why.json, exits first. */
static void job_end(void *ctx, const struct failure *f, bool self)
{
    const struct world *w = ctx;
    heartbeat_bye(f);
    if (!self) world_mpi_abort(w, f->e.code);
    else if (w->rank != w->leader) usleep(DEADLINE_WHY * 1000);
}

static int run_processes(const struct opts *o, int *argc, char ***argv, struct run_early *early)
{
    struct world w;
    struct err e = {0};
    const struct launched_claim claim = launched_claim();
    if (heartbeat_begin(launched_any(), timeout_early(o), &e)) return log_error(e.code, e.text);
    world_mpi_begin(&w, argc, argv);
    log_quiet(w.rank != 0);
    if (launched_check(&claim, w.size, world_mpi_library(), &e)) {
        log_error(e.code, e.text);
        world_mpi_end();
        heartbeat_end();
        return e.code;
    }
    shutdown_end_by(job_end, &w);
    if (heartbeat_join(&w, &e)) abort_request(FAILURE_NOBODY, e.code, e.text), shutdown_end();
    int code = rank_run(o, &w, early);
    w.min(&w, 0);                                         /* all messages have arrived */
    heartbeat_meet();                                     /* no rank may be in MPI when another finalizes it */
    world_mpi_end();
    shutdown_end_by(NULL, NULL);
    heartbeat_end();
    return code;
}

struct rank { pthread_t thread; const struct opts *opts; struct world *world; struct run_early *early; int code; };

static void *rank_main(void *arg)
{
    struct rank *r = arg;
    char name[16];
    snprintf(name, sizeof name, "mpstaged:%d", r->world->rank % 1000);
    pthread_setname_np(pthread_self(), name);             /* as top -H shows it */
    r->code = rank_run(r->opts, r->world, r->early);
    return NULL;
}

static int run_threads(const struct opts *o, int n, struct run_early *early, struct err *e)
{
    struct world **w = world_local(n, e);
    if (!w || heartbeat_threads(n, timeout_early(o), e)) return e->code;
    struct rank *r = mem_alloc((size_t)n * sizeof *r);
    for (int i = 0; i < n; i++) r[i] = (struct rank){.opts = o, .world = w[i], .early = early};
    for (int i = 1; i < n; i++)
        if (pthread_create(&r[i].thread, NULL, rank_main, &r[i]))
            abort_request(FAILURE_NOBODY, E_OS, "cannot create a thread for each stage (ulimit -u, ulimit -v)"),
            shutdown_end();
    r[0].code = rank_run(o, w[0], early);                      /* the main thread has the program's name */
    for (int i = 1; i < n; i++) pthread_join(r[i].thread, NULL);
    int code = r[0].code;
    heartbeat_end();
    free(r);
    world_local_free(w);
    return code;
}

/* How many threads to run as ranks without a launcher; 0: this process is a job of one rank under MPI. */
static int threads_wanted(const struct opts *o, struct run_early *early, int *n, struct err *e)
{
    struct text *t = &early->file;
    struct conf *c = conf_text_read(o->config, t, e) ? NULL : conf_parse(o->config, t->s, t->n, e);
    if (!c || opts_apply(o, c, e)) {
        conf_free(c);
        text_free(t);
        return -1;
    }
    *n = c->run.transport == TRANSPORT_mpi ? 0 : part_rank_count(c) * (int)c->pipeline.replicas;
    early->conf = c;
    return 0;
}

int run_main(const struct opts *o, int *argc, char ***argv)
{
    struct err e = {0};
    struct run_early early = {.conf = NULL};
    int n;
    if (!launched_any()) watchdog_begin();
    shutdown_begin(true);
    shutdown_ignore();
    log_failed(notify_failed);
    if (o->mode == MODE_RUN && launched_first()) signals_open();
    if (launched_any()) {
        shutdown_launched();
        fd_limit_raise(FD_LIMIT_FIRST_RANK + launched_ranks()); /* before MPI opens its descriptors */
        return run_processes(o, argc, argv, &early);
    }
    if (threads_wanted(o, &early, &n, &e)) return log_error(e.code, e.text);
    if (n == 0) return run_processes(o, argc, argv, &early);
    const struct launched_claim claim = launched_claim();
    if (launched_check(&claim, 1, world_mpi_library(), &e)) return log_error(e.code, e.text);
    int code = run_threads(o, n > 0 ? n : 1, &early, &e);
    return e.code ? log_error(e.code, e.text) : code;
}
