/* The metrics of a run, and the page for Prometheus: text format 0.0.4, or OpenMetrics 1.0 (mpstaged(8), MONITORING).
 * Counters begin at 0 with the process. */
#include "config.h"
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/launched.h"
#include "base/proc.h"
#include "cluster/heartbeat.h"
#include "report/energy.h"
#include "report/reporter.h"

/* Upper bounds of the histogram of step durations, in seconds. */
static const double bounds[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
                                1,     2.5,    5,     10,   25,    50,   100, 250,  500};
enum { BOUNDS = sizeof bounds / sizeof *bounds };

struct rank_counters { uint64_t busy_ns, wait_ns, bytes, heard; double bubble; };
struct prometheus {
    const struct job *job;
    struct scores scores;
    uint64_t planned, step, epoch, steps, samples, evaluations, nonfinite, damaged, restarts, rollbacks, ended;
    double score[MAX_SCORES], test[MAX_SCORES], rate, norm;   /* norm -1: not computed */
    uint64_t within[BOUNDS + 1], duration_ns;             /* steps by duration; the last: longer than all bounds */
    /* checkpoints; step, when and seconds: of the last committed one */
    struct { uint64_t good, bad, step, when; double seconds; } kept;
    struct rank_counters *rank;
    struct energy *energy;                                /* NULL: not available */
};

/* ---- counting ---------------------------------------------------------------------------------------------------- */

static void page_print(struct prometheus *t, const struct event *ev);

/* The run continues after the checkpoint of that step. */
static void kept_from(struct prometheus *t, uint64_t step)
{
    t->step = t->kept.step = step;
    t->kept.when = clock_ns();
}

static int counters_open(const struct report_run *q, void **self, struct err *e)
{
    const struct job *j = q->job;
    struct prometheus *t = *self = mem_alloc(sizeof *t);
    (void)e;
    *t = (struct prometheus){.job = j, .norm = -1, .ended = clock_ns(), .restarts = q->from != NULL,
                             .energy = reporters_find(q->all, "energy")};
    t->rank = mem_alloc((size_t)job_world(j) * sizeof *t->rank);
    for (int i = 0; i < job_world(j); i++) t->rank[i].heard = t->ended;
    graph_scores(j->graph, &t->scores);
    if (q->from) kept_from(t, q->from->step);
    return 0;
}

static void rank_count(struct prometheus *t, const struct report *r, uint64_t ns, uint64_t ended)
{
    struct rank_counters *k = &t->rank[r->rank];
    uint64_t part[ACC_COUNT];
    k->bubble = account_of(r, ns, part);
    k->bytes = r->allocated_bytes;
    for (int i = 0; i < ACC_COUNT; i++) {
        bool waits = i == ACC_WAIT_UP || i == ACC_WAIT_DOWN;
        *(waits ? &k->wait_ns : &k->busy_ns) += part[i];
    }
    if (k->heard < ended) k->heard = ended;
}

static void step_count(struct prometheus *t, const struct event *ev)
{
    const struct result *r = ev->result;
    int slot = 0;
    t->step = r->o.step;
    t->epoch = r->epoch;
    t->steps++;
    t->samples += (uint64_t)ev->samples;
    t->ended = r->ended;
    t->rate = ev->lr;
    t->norm = ev->grad_norm;
    t->nonfinite += ev->skipped;
    t->damaged += (uint64_t)r->rep[0].damaged;
    for (int i = 0; i < t->scores.n; i++) t->score[i] = score_mean(ev->sums->score, i);
    while (slot < BOUNDS && (double)r->ns > bounds[slot] * 1e9) slot++;
    t->within[slot]++;
    t->duration_ns += r->ns;
    for (int i = 0; i < job_world(t->job); i++) rank_count(t, &r->rep[i], r->ns, r->ended);
}

static void checkpoint_count(struct prometheus *t, const struct event *ev)
{
    t->kept.good++;
    t->kept.step = (uint64_t)ev->step;
    t->kept.seconds = ev->seconds;
    t->kept.when = clock_ns();
}

static int counters_on(void *self, const struct event *ev, struct err *e)
{
    struct prometheus *t = self;
    (void)e;
    switch (ev->kind) {
    case EVENT_PLANNED: t->planned = (uint64_t)ev->step; break;
    case EVENT_STEP: step_count(t, ev); break;
    case EVENT_EVALUATION:
        t->evaluations++;
        for (int i = 0; i < t->scores.n; i++) t->test[i] = score_mean(ev->sums->score, i);
        break;
    case EVENT_CHECKPOINT: checkpoint_count(t, ev); break;
    case EVENT_CHECKPOINT_FAILED: t->kept.bad++; break;
    case EVENT_ROLLBACK:
        kept_from(t, (uint64_t)ev->to);
        t->rollbacks++;
        break;
    case EVENT_PAGE: page_print(t, ev); break;
    default: break;
    }
    return 0;
}

static void counters_close(void *self)
{
    free(((struct prometheus *)self)->rank);
    free(self);
}

/* ---- the process ------------------------------------------------------------------------------------------------- */

static double process_files(void)
{
    DIR *d = opendir("/proc/self/fd");
    double n = d ? -1 : 0;                                /* without the descriptor of the folder itself */
    for (const struct dirent *f; d && (f = readdir(d));) n += f->d_name[0] != '.';
    if (d) closedir(d);
    return n;
}

static double seconds_of(struct timeval t) { return (double)t.tv_sec + (double)t.tv_usec * 1e-6; }

/* ---- the page ---------------------------------------------------------------------------------------------------- */

struct page { const struct prometheus *t; struct text *out; const char *name; uint64_t now; bool openmetrics; };

static void add_number(struct text *t, double x)
{
    if (isnan(x)) text_add(t, " NaN\n");
    else if (isinf(x)) text_add(t, x > 0 ? " +Inf\n" : " -Inf\n");
    else text_add(t, " %.15g\n", x);
}

static void put(const struct page *p, double x)
{
    text_add(p->out, "%s", p->name);
    add_number(p->out, x);
}

/* Label values may contain any bytes: users name runs. */
static void add_label(struct text *t, const char *name, const char *value)
{
    char clean[300];
    text_add(t, "%s=\"", name);
    for (const char *s = text_printable(value, clean, sizeof clean); *s; s++)
        text_add(t, *s == '\\' || *s == '"' ? "\\%c" : "%c", *s);
    text_add(t, "\"");
}

static void put_label(const struct page *p, const char *label, const char *value, double x)
{
    text_add(p->out, "%s{", p->name);
    add_label(p->out, label, value);
    text_add(p->out, "}");
    add_number(p->out, x);
}

static void put_stages(const struct page *p, double (*of)(const struct page *p, const struct rank_counters *r))
{
    for (int i = 0; i < job_world(p->t->job); i++) {
        text_add(p->out, "%s{stage=\"%d\"", p->name, job_stage(p->t->job, i));
        if (p->t->job->mesh.size[AXIS_DP] > 1)
            text_add(p->out, ",%s=\"%d\"", axis_word[AXIS_DP], job_coord(p->t->job, i).at[AXIS_DP]);
        text_add(p->out, "}");
        add_number(p->out, of(p, &p->t->rank[i]));
    }
}

static double since(const struct page *p, uint64_t when) { return p->now > when ? (double)(p->now - when) * 1e-9 : 0; }

static void put_build(const struct page *p)
{
    const struct job *j = p->t->job;
    text_add(p->out, "%s{", p->name);
    add_label(p->out, "version", PACKAGE_VERSION);
    text_add(p->out, ",");
    add_label(p->out, "backend", j->be->name);
    text_add(p->out, ",");
    add_label(p->out, "library", j->dev.library);
    text_add(p->out, "} 1\n");
}

static void add_id(void *ctx, const char *label, const char *id)
{
    text_add(ctx, ",");
    add_label(ctx, label, id);
}

static void put_info(const struct page *p)
{
    const struct job *j = p->t->job;
    const char *network = j->conf->model.network ? j->conf->model.network : j->conf->model.graph;
    text_add(p->out, "%s{ranks=\"%d\"", p->name, job_world(j));
    add_id(p->out, "version", PACKAGE_VERSION);
    add_id(p->out, "run", j->conf->run.name);
    if (network) add_id(p->out, "network", network);
    add_id(p->out, "device", j->dev.isa);
    launched_ids(add_id, p->out);
    text_add(p->out, "} 1\n");
}

static void put_energy(const struct page *p)
{
    struct energy *g = p->t->energy;
    if (energy_joules(g) > 0)
        for (int i = 0; i < g->n; i++) put_label(p, "domain", g->domain[i].name, (double)g->domain[i].uj * 1e-6);
    if (energy_gpu_joules(g) > 0)
        for (int i = 0; i < g->n_gpus; i++) put_label(p, "domain", g->gpu[i].uuid, (double)g->gpu[i].mj * 1e-3);
}

static void put_run(const struct page *p) { put_label(p, "name", p->t->job->conf->run.name, 1); }
static void put_step(const struct page *p) { put(p, (double)p->t->step); }
static void put_planned(const struct page *p) { put(p, (double)p->t->planned); }
static void put_epoch(const struct page *p) { if (p->t->steps) put(p, (double)p->t->epoch); }
static void put_steps(const struct page *p) { put(p, (double)p->t->steps); }
static void put_samples(const struct page *p) { put(p, (double)p->t->samples); }
static void put_loss(const struct page *p) { if (p->t->steps) put(p, p->t->score[0]); }
static void put_rate(const struct page *p) { if (p->t->steps) put(p, p->t->rate); }
static void put_norm(const struct page *p) { if (p->t->norm >= 0) put(p, p->t->norm); }
static void put_evaluations(const struct page *p) { put(p, (double)p->t->evaluations); }
static void put_step_age(const struct page *p) { put(p, since(p, p->t->ended)); }

static void put_scores(const struct page *p)
{
    for (int i = 1; p->t->steps && i < p->t->scores.n; i++) {
        const struct score_style k = score_style(p->t->scores.of[i].name);
        if (!k.tests_only) put_label(p, "score", k.key, p->t->score[i]);
    }
}

static void put_tests(const struct page *p)
{
    for (int i = 0; p->t->evaluations && i < p->t->scores.n; i++)
        put_label(p, "score", score_style(p->t->scores.of[i].name).key, p->t->test[i]);
}

static void put_durations(const struct page *p)
{
    uint64_t n = 0;
    for (int i = 0; i < BOUNDS; i++) {
        /* OpenMetrics wants a point in every bound */
        const char *point = p->openmetrics && bounds[i] == floor(bounds[i]) ? ".0" : "";
        text_add(p->out, "%s_bucket{le=\"%g%s\"} %llu\n", p->name, bounds[i], point,
                 (unsigned long long)(n += p->t->within[i]));
    }
    n += p->t->within[BOUNDS];
    text_add(p->out, "%s_bucket{le=\"+Inf\"} %llu\n%s_sum", p->name, (unsigned long long)n, p->name);
    add_number(p->out, (double)p->t->duration_ns * 1e-9);
    text_add(p->out, "%s_count %llu\n", p->name, (unsigned long long)n);
}

static double busy_of(const struct page *p, const struct rank_counters *r) { return (double)r->busy_ns * 1e-9; }
static double wait_of(const struct page *p, const struct rank_counters *r) { return (double)r->wait_ns * 1e-9; }
static double bubble_of(const struct page *p, const struct rank_counters *r) { return r->bubble; }
static double bytes_of(const struct page *p, const struct rank_counters *r) { return (double)r->bytes; }
static double silence_of(const struct page *p, const struct rank_counters *r) { return since(p, r->heard); }
static void put_busy(const struct page *p) { put_stages(p, busy_of); }
static void put_waits(const struct page *p) { put_stages(p, wait_of); }
static void put_bubble(const struct page *p) { if (p->t->steps) put_stages(p, bubble_of); }
static void put_memory(const struct page *p) { if (p->t->steps) put_stages(p, bytes_of); }
static void put_heartbeat(const struct page *p) { put_stages(p, silence_of); }

static void put_kept(const struct page *p)
{
    put_label(p, "result", "committed", (double)p->t->kept.good);
    put_label(p, "result", "failed", (double)p->t->kept.bad);
}

static void put_kept_step(const struct page *p) { if (p->t->kept.when) put(p, (double)p->t->kept.step); }
static void put_kept_age(const struct page *p) { if (p->t->kept.when) put(p, since(p, p->t->kept.when)); }
static void put_kept_time(const struct page *p) { if (p->t->kept.good) put(p, p->t->kept.seconds); }
static void put_restarts(const struct page *p) { put(p, (double)p->t->restarts); }
static void put_rollbacks(const struct page *p) { put(p, (double)p->t->rollbacks); }
static void put_nonfinite(const struct page *p) { put(p, (double)p->t->nonfinite); }
static void put_damaged(const struct page *p) { put(p, (double)p->t->damaged); }

static void put_cpu(const struct page *p)
{
    struct rusage u;
    if (!getrusage(RUSAGE_SELF, &u)) put(p, seconds_of(u.ru_utime) + seconds_of(u.ru_stime));
}

static void put_virtual(const struct page *p)
{
    struct proc own;
    if (proc_read(getpid(), &own)) put(p, (double)own.virtual_bytes);
}

static void put_resident(const struct page *p)
{
    struct proc own;
    if (proc_read(getpid(), &own)) put(p, (double)own.resident_pages * (double)sysconf(_SC_PAGESIZE));
}

static void put_files(const struct page *p) { put(p, process_files()); }

static void put_start(const struct page *p)
{
    double start = proc_own_start();
    if (start >= 0) put(p, start);
}

static void put_most_files(const struct page *p)
{
    struct rlimit r;
    if (!getrlimit(RLIMIT_NOFILE, &r)) put(p, r.rlim_cur == RLIM_INFINITY ? INFINITY : (double)r.rlim_cur);
}

static const struct { const char *name, *type, *help; void (*put)(const struct page *p); } rows[] = {
    {"mpstaged_build_info", "gauge", "Program, backend and library; always 1", put_build},
    {"mpstaged_info", "gauge", "Run, network, device, ranks and ids of jobs; always 1", put_info},
    {"mpstaged_run_info", "gauge", "Name of the run; always 1", put_run},
    {"mpstaged_step", "gauge", "Number of the last step", put_step},
    {"mpstaged_planned_steps", "gauge", "Number of the step that ends the run", put_planned},
    {"mpstaged_epoch", "gauge", "Epoch of the last step, counted from 1", put_epoch},
    {"mpstaged_steps_total", "counter", "Steps done by this process", put_steps},
    {"mpstaged_samples_total", "counter", "Samples trained by this process", put_samples},
    {"mpstaged_loss", "gauge", "Loss of the last step", put_loss},
    {"mpstaged_score", "gauge", "Other scores of the last step", put_scores},
    {"mpstaged_learning_rate", "gauge", "Learning rate of the last step", put_rate},
    {"mpstaged_grad_norm", "gauge", "Norm of the last step's gradient, where it is clipped", put_norm},
    {"mpstaged_evaluations_total", "counter", "Evaluations by this process", put_evaluations},
    {"mpstaged_test_score", "gauge", "Loss and other scores of the last evaluation", put_tests},
    {"mpstaged_step_duration_seconds", "histogram", "Durations of steps", put_durations},
    {"mpstaged_step_age_seconds", "gauge", "Time since the last step ended", put_step_age},
    {"mpstaged_stage_busy_seconds_total", "counter", "Time in which a stage did not wait for others", put_busy},
    {"mpstaged_stage_wait_seconds_total", "counter", "Time in which a stage waited for its neighbours", put_waits},
    {"mpstaged_stage_bubble_ratio", "gauge", "Share of the last step in which a stage waited", put_bubble},
    {"mpstaged_stage_memory_bytes", "gauge", "Memory that a stage holds of its device", put_memory},
    {"mpstaged_checkpoints_total", "counter", "Checkpoints of this process by result", put_kept},
    {"mpstaged_checkpoint_last_step", "gauge", "Step of the last checkpoint", put_kept_step},
    {"mpstaged_checkpoint_age_seconds", "gauge", "Time since a checkpoint was committed or loaded", put_kept_age},
    {"mpstaged_checkpoint_duration_seconds", "gauge", "How long the last checkpoint took to write", put_kept_time},
    {"mpstaged_restarts_total", "counter", "How often the run was resumed", put_restarts},
    {"mpstaged_nonfinite_steps_total", "counter", "Steps whose loss or gradient was not finite", put_nonfinite},
    {"mpstaged_damaged_transfers_total", "counter", "Tensors corrupted in transfer between ranks", put_damaged},
    {"mpstaged_rollbacks_total", "counter", "Roll-backs of this process to a checkpoint", put_rollbacks},
    {"mpstaged_heartbeat_age_seconds", "gauge", "Time since the last heartbeat of a stage's rank", put_heartbeat},
    {"mpstaged_energy_joules_total", "counter",
     "Energy of processor packages and of the run's GPUs on rank 0's host; without a value: not available", put_energy},
    {"process_cpu_seconds_total", "counter", "CPU time of rank 0", put_cpu},
    {"process_resident_memory_bytes", "gauge", "Resident memory of rank 0", put_resident},
    {"process_virtual_memory_bytes", "gauge", "Address space of rank 0", put_virtual},
    {"process_open_fds", "gauge", "Open files of rank 0", put_files},
    {"process_max_fds", "gauge", "Limit of open files of rank 0", put_most_files},
    {"process_start_time_seconds", "gauge", "When rank 0 began, since 1970", put_start},
};

/* OpenMetrics names a family without the end that its type gives to samples, and states units. */
static void head_openmetrics(const struct page *p, const char *type, const char *help)
{
    static const char *const units[] = {"_seconds", "_bytes", "_ratio", "_joules"};
    char family[64];
    bool info = text_ends(p->name, "_info"), total = text_ends(p->name, "_total");
    snprintf(family, sizeof family, "%.*s", (int)(strlen(p->name) - strlen(info ? "_info" : total ? "_total" : "")),
             p->name);
    text_add(p->out, "# TYPE %s %s\n", family, info ? "info" : type);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (text_ends(family, units[i])) text_add(p->out, "# UNIT %s %s\n", family, units[i] + 1);
    text_add(p->out, "# HELP %s %s\n", family, help);
}

static void page_print(struct prometheus *t, const struct event *ev)
{
    for (int i = 0; i < job_world(t->job); i++)
        if (t->rank[i].heard < heartbeat_heard(i)) t->rank[i].heard = heartbeat_heard(i);
    struct page p = {.t = t, .out = ev->page, .now = clock_ns(), .openmetrics = ev->openmetrics};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        p.name = rows[i].name;
        if (p.openmetrics) head_openmetrics(&p, rows[i].type, rows[i].help);
        else text_add(p.out, "# HELP %s %s\n# TYPE %s %s\n", p.name, rows[i].help, p.name, rows[i].type);
        rows[i].put(&p);
    }
    if (p.openmetrics) text_add(p.out, "# EOF\n");
}

const struct reporter reporter_prometheus = {.name = "prometheus", .open = counters_open, .on = counters_on,
                                             .close = counters_close};
