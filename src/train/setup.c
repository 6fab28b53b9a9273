/* The phases of set-up. */
#include "config.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/deadline.h"
#include "base/launched.h"
#include "report/confusion.h"
#include "cluster/log.h"
#include "report/predict.h"
#include "train/setup.h"
#include "cluster/shutdown.h"
#include "cluster/fd_limit.h"
#include "train/model_folder.h"
#include "train/profile.h"
#include "cluster/vote.h"
#include "train/ckpt_writer.h"
#include "cluster/heartbeat.h"
#include "cluster/sd_notify.h"
#include "model/decoder.h"
#include "plan/cost.h"

/* ---- phases, in order -------------------------------------------------------------------------------------------- */

static int descriptors_left(const struct setup *b)
{
    const struct world *w = b->world;
    int workers = b->conf ? (int)b->conf->data.workers : 0;
    int readers = workers > 1 ? (workers - 1) * (w->one_process ? w->size : 1) : 0;   /* one is always counted */
    return w->rank == 0 ? FD_LIMIT_FIRST_RANK + b->service_files + readers + (w->one_process ? 0 : w->size)
                        : w->one_process ? 0 : FD_LIMIT_RANK + readers;
}

/* Fails if too few files can be opened. It runs first, so that one line names what is missing. It runs again before the
 * run directory is made, when the rest of set-up has its files open. */
static int phase_files(struct setup *b, struct err *e)
{
    if (!fd_limit_check(descriptors_left(b), e)) return 0;
    return b->world->rank == 0 ? -1 : err_where(e, "rank %d", b->world->rank);
}

/* Rank 0 reads the configuration, so only its host needs the file and all ranks have the same text. A text that was
 * read before is used, because a pipe can be read only once. */
static int phase_read(struct setup *b, struct err *e)
{
    const char *file = b->opts->config;
    int fd = -1;
    bool open = sscanf(file, "/dev/fd/%d", &fd) == 1 || sscanf(file, "/proc/self/fd/%d", &fd) == 1;
    if (open && fd > 2 && launched_any())              /* MPI uses that number by now, and reading it would never end */
        return err_set(e, E_NOINPUT, "%s: a launcher passes no open files on: give the text as /dev/stdin, or in a "
                       "file", file);
    return b->world->rank != 0 || b->file.s ? 0 : conf_text_read(b->opts->config, &b->file, e);
}

static int phase_conf(struct setup *b, struct err *e)
{
    vote_share(b->world, &b->file);
    bool read = b->draft != NULL;
    if (!read) b->draft = conf_parse(b->opts->config, b->file.n ? b->file.s : "", b->file.n, e);
    b->conf = b->job.conf = b->draft;
    if (!b->draft || (!read && opts_apply(b->opts, b->draft, e))) return -1;
    heartbeat_timeout(b->conf->run.hang_timeout);
    if (b->world->rank != 0) return 0;
    terminal_open(&b->screen, when_sign(b->conf->service.progress), launched_any());
    log_columns(terminal_columns(&b->screen));
    b->ready = setup_progress_begin(&b->screen, 0, notify_alive);
    return 0;
}

/* Variables come from rank 0's environment: a launcher may not pass it to other hosts. */
static int phase_names(struct setup *b, struct err *e)
{
    struct text names = {0};
    int bad = b->world->rank == 0 ? conf_expand(b->draft, getenv, e) : 0;
    if (b->world->rank == 0 && !bad) conf_files_give(b->conf, &names);
    vote_share(b->world, &names);
    if (b->world->rank != 0) conf_files_take(b->draft, &names);
    text_free(&names);
    return bad;
}

static int phase_refuse(struct setup *b, struct err *e)
{
    const struct conf *c = b->conf;
    bool profiles = b->opts->mode == MODE_PROFILE;
    if (b->opts->mode == MODE_CHECK_HOSTS) return job_device(&b->job, e) || assign_check(b, e) ? -1 : 0;
    enum rundir_use use = profiles ? RUNDIR_PROFILE : c->run.evaluate ? RUNDIR_EVALUATE : RUNDIR_TRAIN;
    int bad = b->world->rank == 0 && rundir_check(&b->dir, c, use, e);
    if (b->dir.lock >= 0 && !profiles) unlinkat(b->dir.fd, FAILURE_FILE, 0);   /* of an earlier start */
    if (bad || (b->world->rank == 0 && rundir_spares(&b->dir, c, e))) return -1;
    if (b->world->rank == 0 && output_paths_check(profiles ? NULL : &b->files, c, e)) return -1;
    if (b->world->rank == 0 && !profiles && reporters_check(reporter_list, &b->dir, c, e)) return -1;
    if (b->world->rank == 0 && !profiles && b->service->take(b->service->ctx, c, e)) return -1;
    return job_device(&b->job, e) || assign_check(b, e) ? -1 : 0;
}

static int phase_model(struct setup *b, struct err *e)
{
    int bad = job_model(&b->job, e);
    b->conf = b->job.conf;
    return bad || job_data(&b->job, e) || scores_check(&b->job, e) || confusion_check(&b->job, e) ? -1 : 0;
}

/* Before any planning. All ranks plan with the memory of all ranks, so that their plans are the same. */
static int phase_memory(struct setup *b, struct err *e)
{
    bool one = b->world->one_process;
    int n = one ? 1 : b->world->size, me = one ? 0 : b->world->rank;
    struct memory_info *w = mem_alloc((size_t)n * sizeof *w);
    (void)e;
    memory_read("", (int)b->conf->run.threads * (one ? b->world->size : 1), &w[me]);
    w[me].host = b->world->host;
    if (!one) b->world->allgather(b->world, w, sizeof *w);
    memory_make(w, n, one, &b->memory);
    if (one) memory_all(&b->memory, 0, false);
    memory_reads(&b->memory, &b->job);
    b->job.host = &b->memory.host;
    return 0;
}

/* Checks the plan before kernels are measured, which takes minutes and leaves a file. */
static int phase_check(struct setup *b, struct err *e)
{
    return b->world->rank == 0 ? job_trial(&b->job, b->conf, b->world->size, e) : 0;
}

/* All ranks use rank 0's kernel table, so that they choose the same kernels. */
static int phase_kernels(struct setup *b, struct err *e)
{
    return b->world->rank == 0 ? job_kernels(&b->job, b->unit, e) : 0;
}

static int phase_share(struct setup *b, struct err *e)
{
    vote_share(b->world, &b->job.kernels);
    job_kernels_use(&b->job);
    return 0;
}

static int phase_plan(struct setup *b, struct err *e)
{
    if (job_plan(&b->job, b->world->size, e)) return -1;
    setup_name(b, b->job.plan, b->job.n_plans);
    return 0;
}

int setup_exec(struct setup *b, struct exec_request q, struct err *e)
{
    struct job *j = &b->job;
    if (assign_connect(b, e)) return -1;
    b->control = control_new(b->tp, j);
    b->save = save_new();
    q.hold = save_hold(b->save);
    control_beat(b->control, heartbeat_beat(b->world->rank));
    q.conf = b->conf;
    q.sel = j->sel;
    q.pl = j->pl;
    q.be = j->be;
    q.unit = b->unit;
    q.tp = b->tp;
    q.control = control_of(b->control);
    q.rank = job_coord(j, b->world->rank).at[AXIS_PP];
    q.abort = abort_code();
    q.beat = heartbeat_beat(b->world->rank);
    q.reader_cores = &b->spare;
    const bool trains = !opts_measures(b->opts);
    int bad = exec_open(&q, &b->exec, e) || (trains && interim_open(j, b->world->rank, &q, &b->interim, e));
    return bad ? err_where(e, "rank %d", b->world->rank) : 0;
}

static int phase_open(struct setup *b, struct err *e)
{
    struct job *j = &b->job;
    const char *from = b->conf->run.init_from;
    struct exec_request q = {.plan = job_plans(j, b->world->rank), .n_plans = j->n_plans, .graphs = b->conf->run.graphs,
                              .filled = b->resume.found || (from && *from) || conf_adapts(b->conf),
                              .train = j->data[DS_TRAIN], .test = j->data[DS_TEST]};
    return setup_exec(b, q, e);
}

/* Allocates memory only after all ranks have checked that it is free: they may share a device. */
static int phase_bind(struct setup *b, struct err *e)
{
    return exec_bind(b->exec, e) || interim_bind(b->interim, b->exec, e) ? err_where(e, "rank %d", b->world->rank) : 0;
}

static int phase_weights(struct setup *b, struct err *e)
{
    control_exec(b->control, b->exec, b->interim);
    b->warmup = warmup_new(&b->job, b->exec, b->world->rank, b->resume.found ? b->resume.from.step : 0);
    control_set_warmup(b->control, b->warmup);
    save_open(b->save, &(struct save_request){.job = &b->job, .exec = b->exec, .rank = b->world->rank,
                                              .stop = abort_code(), .dir = b->conf->run.directory,
                                              .head = &b->resume.now, .base = b->resume.base});
    control_save(b->control, b->save);
    control_set_restore(b->control, resume_back, b);
    if (resume_begin(b, e)) return -1;
    const char *from = b->conf->lora.init_from ? b->conf->lora.init_from : b->conf->run.init_from;
    if (b->world->rank != 0 || !b->conf->run.evaluate || !from) return 0;
    return class_file_use(from, b->conf, b->job.data[DS_TEST], &b->classes, e);
}

/* A phase after binding: a rank without memory must not keep others waiting for its end of a link. */
static int phase_connect(struct setup *b, struct err *e) { return exec_connect(b->exec, e); }

/* All ranks at once, since they may share cores. */
static int phase_peak(struct setup *b, struct err *e)
{
    struct world *w = b->world;
    (void)e;
    if (b->conf->run.evaluate) return 0;
    double *peak = mem_alloc((size_t)w->size * sizeof *peak);
    w->min(w, 0);
    peak[w->rank] = exec_peak(b->exec);
    w->allgather(w, peak, sizeof *peak);
    bool all = true;
    for (int i = 0; i < w->size; i++) {
        all &= peak[i] > 0;
        b->peak += peak[i];
    }
    if (!all) b->peak = 0;
    free(peak);
    return 0;
}

/* -1: the network is none that has a context. */
static int64_t context_of(const struct conf *c)
{
    struct decoder d;
    struct err e = {0};
    return !decoder_is(c) || decoder_of(c, &d, &e) ? -1 : d.context;
}

/* Tells how the run begins, and which weights an evaluation uses. */
static int begin_tell(struct setup *b, const struct ckpt *from, struct err *e)
{
    const struct job *j = &b->job;
    char when[32], *conf = conf_json(b->conf);
    json_t *o = json_pack("{s:{s:s},s:o,s:o*}", "libraries", j->be->name, j->dev.library, "settings",
                          ckpt_settings_json(&b->resume.now), "config", json_loads(conf, 0, NULL));
    free(conf);
    struct event start = {.kind = EVENT_START, .version = PACKAGE_VERSION, .time = clock_rfc3339(when),
                          .ranks = job_world(j), .stage_count = j->n_stages, .numerics = b->numerics.s, .plan = b->plan,
                          .pid = getpid(), .step = from ? (int64_t)from->step : -1, .json = o,
                          .planned_steps = (int64_t)job_steps(j), .parameters = job_parameters(j, false),
                          .trained_parameters = job_parameters(j, true),
                          .context = context_of(j->conf),
                          .flops_per_token = job_token_flops(j)};
    struct event used = {.kind = EVENT_WEIGHTS, .file = b->used.path.s,
                         .which = b->used.which.n ? b->used.which.s : ""};
    int bad = reporters_tell(b->reporters, &start, e);
    json_decref(o);
    return bad || !b->conf->run.evaluate || !b->used.path.n ? bad : reporters_tell(b->reporters, &used, e);
}

static int create(struct setup *b, struct err *e)
{
    b->coordinator.files = &b->files;
    const bool leaves = (decoder_is(b->conf) || conf_adapts(b->conf)) && !b->conf->run.evaluate;
    if (leaves && model_files_read(b->conf, b->job.graph, &b->model, e)) return -1;
    if (rundir_make(&b->dir, b->conf, e) || output_paths_enter(&b->files, b->conf, &b->dir, e)) return -1;
    if (log_file(b->dir.fd, b->dir.path, e)) return -1;
    const struct ckpt *from = b->resume.found ? &b->resume.from : NULL;
    if (resume_rates(b, e)) return -1;
    if (!b->conf->run.evaluate && class_file_write(&b->dir, b->job.data[DS_TRAIN], e)) return -1;
    struct report_run run = {&b->job, &b->dir, from, &b->screen, b->world->one_process, NULL, b->n_ids,
                             (const char (*)[BE_ID])b->ids};
    if (reporters_open(reporter_list, &run, &b->reporters, e) || begin_tell(b, from, e)) return -1;
    if (rundir_sync(&b->dir, e)) return -1;
    if (b->conf->run.predict && predict_open(&b->job, &b->files.predictions, abort_code(), &b->predict, e)) return -1;
    const struct out_place *texts = conf_generates_aloud(b->conf) ? NULL : &b->files.predictions;
    if (b->conf->run.generate && generation_open(&b->job, texts, abort_code(), &b->generation, e)) return -1;
    if (b->job.interim && generation_open(b->job.interim, NULL, abort_code(), &b->generation, e)) return -1;
    setup_progress_end(b->ready);
    b->ready = NULL;
    int bad = b->service->open(b->service->ctx, from, e);
    b->coordinator.predict = b->predict;
    b->coordinator.model = b->model;
    b->coordinator.generation = b->generation;
    b->coordinator.confusion = b->confusion = confusion_new(&b->job, &b->dir);
    return bad;
}

/* Creates files, after everything that was given has been checked. */
static int phase_create(struct setup *b, struct err *e)
{
    if (b->world->rank != 0) return 0;
    if (!create(b, e)) {
        shutdown_run(b->dir.path);
        return 0;
    }
    reporters_undo(b->reporters, b->dir.fd);
    rundir_undo(&b->dir);
    return -1;
}

/* ---- running the phases ------------------------------------------------------------------------------------------ */

/* A phase of a run, and of --profile and --check-hosts (NULL: none). doing: the status for people until the next phase
 * that has a text. once: only the maker of each process runs it, and the other ranks borrow its results. work: what may
 * take minutes. */
struct setup_phase { int (*run)(struct setup *b, struct err *e), (*profile)(struct setup *b, struct err *e);
                    const char *doing; bool once; enum notify_work work; };
enum { ONCE = 1, EACH = 0 };

/* Gives the other ranks of this process what the maker has made so far. No rank writes that any more, no rank reads
 * what the maker still changes, and the maker frees it only when the job ends. Collective. */
static void borrow(struct setup *b)
{
    if (!b->world->one_process) return;
    struct setup maker = *b;
    b->world->broadcast(b->world, 0, &maker, sizeof maker);
    if (b->world->maker) return;
    b->conf = maker.conf;
    b->job = maker.job;
    b->sized = maker.sized;
    b->n_sized = maker.n_sized;
}

static const struct setup_phase phases[] = {
    {phase_files, phase_files},
    {phase_read, phase_read, NULL, ONCE},
    {phase_conf, phase_conf, NULL, ONCE},
    {phase_names, phase_names, NULL, ONCE},
    {phase_refuse, phase_refuse, "checking the machine", ONCE},
    {cores_watch},
    {assign_unit, assign_unit},
    {phase_model, phase_model, "reading data", ONCE, NOTIFY_COMPUTES},
    {phase_memory, phase_memory, NULL, ONCE},
    {phase_check, profile_check, "checking the plan", ONCE, NOTIFY_COMPUTES},
    {phase_kernels, phase_kernels, "choosing kernels", ONCE, NOTIFY_COMPUTES},
    {phase_share, phase_share, NULL, ONCE},
    {phase_plan, profile_plan, "planning", ONCE, NOTIFY_COMPUTES},
    {setup_same, setup_same, NULL, ONCE},
    {resume_settings, NULL, "looking for a checkpoint", EACH, NOTIFY_READS},
    {resume_find, NULL, NULL, EACH, NOTIFY_READS},
    {cores_seek, cores_seek},
    {phase_open, profile_open, "opening the transport"},
    {assign_memory, assign_memory},
    {phase_bind, phase_bind, "creating kernels", EACH, NOTIFY_COMPUTES},
    {phase_weights, NULL, "initialising weights", EACH, NOTIFY_COMPUTES},
    {phase_connect, phase_connect, "connecting ranks"},
    {assign_links},
    {phase_peak},
    {cores_check, NULL, "checking the cores"},
    {phase_files},
    {phase_create, NULL, "creating the run directory"},
    {assign_folder},
};
enum { N_PHASES = sizeof phases / sizeof *phases };

/* Runs the phases. All ranks enter a phase only after all have left the previous one without an error. */
int setup_begin(struct setup *b, struct err *e)
{
    for (int i = 0; i < N_PHASES; i++) {
        const struct setup_phase *p = &phases[i];
        int (*make)(struct setup *b, struct err *e) = opts_measures(b->opts) ? p->profile : p->run;
        if (!make) continue;
        if (p->doing) setup_progress_now(b->ready, p->doing), shutdown_phase(SHUTDOWN_START, p->doing);
        if (b->world->rank == 0) notify_phase(p->doing, p->work);
        if ((!p->once || b->world->maker) && make(b, e) && b->conf) conf_where(b->conf, e);
        if (b->world->rank == 0) notify_others();
        if (vote_agree(b->world, e)) return -1;
        if (p->once && !p[1].once) borrow(b);
    }
    return 0;
}

void setup_init(struct setup *b, const struct opts *o, struct world *w, const struct setup_service *service)
{
    *b = (struct setup){.opts = o, .world = w, .service = service, .dir = RUNDIR_NONE, .files = OUTPUTS_NONE,
                        .screen = {.fd = -1}};
}

void setup_close(struct setup *b)
{
    save_free(b->save);
    interim_close(b->interim);
    if (b->exec) exec_close(b->exec);
    control_free(b->control);
    warmup_free(b->warmup);
    cost_free(b->costs);
    if (b->tp) b->tp->ops->close(b->tp);
    model_files_free(b->model);
    predict_free(b->predict);
    generation_free(b->generation);
    confusion_free(b->confusion);
    reporters_close(b->reporters);
    output_paths_free(&b->files);
    rundir_close(&b->dir);
    terminal_close(&b->screen);
    if (b->world->one_process) b->world->min(b->world, 0);   /* waits until no rank borrows from another */
    if (b->world->maker) profile_plans_free(b);
    if (b->world->maker) job_free(&b->job), memory_free(&b->memory);
    conf_free(b->draft);
    text_free(&b->file);
    text_free(&b->numerics);
    text_free(&b->notes);
    resume_free(&b->resume);
    weights_used_free(&b->used);
    class_names_free(&b->classes);
    free(b->gpu);
    free(b->host);
    free(b->ids);
    free(b->cores);
}
