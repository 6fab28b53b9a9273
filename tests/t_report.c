/* What a run writes and shows to people, without ranks: run directory, terminal, progress and log lines, scores in all
 * outputs. */
#include "config.h"
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include "report/reporter.h"
#include "cluster/log.h"
#include "report/energy.h"
#include "report/progress.h"
#include "report/rundir.h"
#include "files.h"
#include "sure.h"

/* ---- run directory ----------------------------------------------------------------------------------------------- */

static struct conf conf;

static void enter(void)
{
    scratch_enter();
    conf = (struct conf){0};
    conf.run.directory = "a/b/run";
    conf.run.resume = RESUME_NO;
}

START_TEST(run_directory_is_made_late_and_locked)
{
    struct rundir d, d2;
    struct err e = {0};
    ck_assert_int_eq(rundir_check(&d, &conf, RUNDIR_TRAIN, &e), 0);
    ck_assert_int_ne(access("a", F_OK), 0);
    ck_assert_int_eq(rundir_make(&d, &conf, &e), 0);
    ck_assert_int_eq(access("a/b/run/lock", F_OK), 0);
    ck_assert_int_eq(rundir_check(&d2, &conf, RUNDIR_TRAIN, &e), -1);
    ck_assert_int_eq(e.code, E_STOPPED);
    char pid[40];
    snprintf(pid, sizeof pid, "process %ld", (long)getpid());
    ck_assert_ptr_nonnull(strstr(e.text, pid));
    rundir_close(&d2);
    rundir_close(&d);
    e = (struct err){0};
    ck_assert_int_eq(rundir_check(&d, &conf, RUNDIR_TRAIN, &e), 0);
    rundir_close(&d);
}
END_TEST

START_TEST(run_directory_with_results_is_refused)
{
    struct rundir d;
    struct err e = {0};
    ck_assert_int_eq(rundir_check(&d, &conf, RUNDIR_TRAIN, &e) || rundir_make(&d, &conf, &e), 0);
    close(openat(d.fd, "metrics.jsonl", O_WRONLY | O_CREAT, 0666));
    close(openat(d.fd, "weights.safetensors", O_WRONLY | O_CREAT, 0666));
    rundir_close(&d);
    ck_assert_int_eq(rundir_check(&d, &conf, RUNDIR_TRAIN, &e), -1);
    ck_assert_int_eq(e.code, E_CANTCREAT);
    rundir_close(&d);
    conf.run.overwrite = true;
    e = (struct err){0};
    ck_assert_int_eq(rundir_check(&d, &conf, RUNDIR_TRAIN, &e) || rundir_make(&d, &conf, &e), 0);
    ck_assert_int_ne(faccessat(d.fd, "metrics.jsonl", F_OK, 0), 0);
    rundir_close(&d);
}
END_TEST

/* Two starts at the same moment: both find nothing, and the second gets there when the first has ended already. */
START_TEST(run_directory_of_two_starts_goes_to_the_first)
{
    struct rundir one, two;
    struct err e = {0};
    ck_assert_int_eq(rundir_check(&one, &conf, RUNDIR_TRAIN, &e) | rundir_check(&two, &conf, RUNDIR_TRAIN, &e), 0);
    ck_assert_int_eq(rundir_make(&one, &conf, &e), 0);
    close(openat(one.fd, "metrics.jsonl", O_WRONLY | O_CREAT, 0666));
    close(openat(one.fd, "weights.safetensors", O_WRONLY | O_CREAT, 0666));
    rundir_close(&one);
    ck_assert_int_eq(rundir_make(&two, &conf, &e), -1);
    ck_assert_int_eq(e.code, E_CANTCREAT);
    ck_assert_int_eq(access("a/b/run/metrics.jsonl", F_OK), 0);
    rundir_close(&two);
}
END_TEST

START_TEST(run_directory_below_a_file_is_refused)
{
    struct rundir d;
    struct err e = {0};
    close(open("a", O_WRONLY | O_CREAT, 0666));
    ck_assert_int_eq(rundir_check(&d, &conf, RUNDIR_TRAIN, &e), -1);
    ck_assert_int_eq(e.code, E_CANTCREAT);
    rundir_close(&d);
}
END_TEST

/* ---- what people see --------------------------------------------------------------------------------------------- */

START_TEST(progress_lines_fit)
{
    char line[240];
    const uint64_t s = 1000000000;
    struct progress p = {.steps = 123456, .began = 5 * s, .heard = 5 * s};
    progress_line(&p, 47 * s, 79, line, sizeof line);
    ck_assert_str_eq(line, "step 1/123456 is running, 0:00:42");
    p = (struct progress){.steps = 123456, .step = 99999, .epochs = 1500, .epoch = 999,
                          .scores = {3, {{.name = "loss"}, {.name = "top1"}, {.name = "top5"}}},
                          .score = {0.000123456, 0.123, 0.5},
                          .rate = 1234.5, .done = 9, .seconds_ns = 9 * s, .heard = 100 * s};
    progress_line(&p, 100 * s, 239, line, sizeof line);
    ck_assert_str_eq(line,
                     "step  99999/123456  epoch  999/1500  loss 0.00012346  accuracy 0.123   1234 samples/s  "
                     "ETA 6:30:57");
    progress_line(&p, 100 * s, 79, line, sizeof line);
    ck_assert_str_eq(line, "step  99999/123456  epoch  999/1500  loss 0.00012346   1234/s  ETA 6:30:57");
    progress_line(&p, 165 * s, 79, line, sizeof line);
    ck_assert_str_eq(line, "step  99999/123456  loss 0.00012346   1234/s  ETA 6:30:57  now 0:01:05");
    for (int columns = 1; columns < 239; columns++) {
        progress_line(&p, 165 * s, columns, line, sizeof line);
        ck_assert_int_le((int)strlen(line), columns);
        ck_assert(columns < 18 || strncmp(line, "step  99999/123456", 18) == 0);
    }
    /* as of a usual run on a usual terminal, when a test has been */
    struct progress q = {.steps = 45036, .step = 5005, .epochs = 90, .epoch = 1, .columns = 80, .tested = true,
                         .scores = {2, {{.name = "loss"}, {.name = "top1"}}}, .score = {2.3456, 0.4567},
                         .test_score = {2.2, 0.5012}, .rate = 987.6, .done = 9, .seconds_ns = 9 * s, .heard = 100 * s};
    progress_line(&q, 100 * s, 79, line, sizeof line);
    ck_assert_str_eq(line, "step  5005/45036  epoch  1/90  loss 2.3456    test 0.501  987.6/s  ETA 11:07:11");
    p.test_done = 10, p.test_all = 40, p.test_ns = 20 * s, p.step = 123456;
    progress_line(&p, 165 * s, 79, line, sizeof line);
    ck_assert_str_eq(line, "evaluating 10/40 samples  ETA 0:01:00");
}
END_TEST

/* 50 samples in batches of 16: four an epoch, the last of which is short, or goes on into the next one, or is left out.
 */
START_TEST(epochs_of_steps)
{
    struct conf c = {.train = {.batch_size = 16}};
    struct job j = {.conf = &c, .count = {50, 0}};
    static const uint64_t want[][4] = {{0, 0, 0, 0}, {1, 1, 1, 1}, {3, 1, 1, 1}, {4, 1, 2, 2}, {5, 2, 2, 2},
                                       {8, 2, 3, 3}, {25, 7, 8, 9}};
    static const enum last_batch last[] = {LAST_BATCH_SHORT, LAST_BATCH_FILL, LAST_BATCH_DROP};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        for (int k = 0; k < 3; k++) {
            c.train.last_batch = last[k];
            ck_assert_uint_eq(job_epochs(&j, want[i][0]), want[i][1 + k]);
        }
    j.count[DS_TRAIN] = 0;
    ck_assert_uint_eq(job_epochs(&j, 5), 0);
}
END_TEST

/* A network whose loss has other rows: they are told everywhere, under their own names. */
static struct graph *graph_with_dice(void)
{
    static const char text[] =
        "graph g\ninput input 4\nlabels labels class\nfc = linear(input) features=3\nloss = mse(fc, labels)\n";
    static const struct score_row rows[] = {{"loss", 0, -1}, {"dice", 1, 2}, {"top5", 2, -1}, {0}};
    static struct op_kind op;
    struct graph *g = graph_parse("g", text, sizeof text - 1, NULL);
    struct node *n = &g->node[g->n_nodes - 1];
    op = *n->op;
    op.rows = rows;
    n->op = &op;
    return g;
}

static bool file_has(const char *path, const char *what)
{
    char s[1 << 14];
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(s, 1, sizeof s, f) : 0;
    if (f) fclose(f);
    return memmem(s, n, what, strlen(what)) != NULL;
}

static const char *events_file(void)
{
    static char name[300];
    DIR *d = opendir(".");
    for (struct dirent *f; (f = readdir(d));)
        if (strstr(f->d_name, "tfevents")) snprintf(name, sizeof name, "%s", f->d_name);
    closedir(d);
    return name;
}

extern const struct reporter reporter_progress, reporter_metrics, reporter_tensorboard, reporter_prometheus;
static const struct reporter *const sinks[] = {&reporter_progress, &reporter_tensorboard, &reporter_metrics, NULL};

/* _i: no case has the class that the score is about: there is no number, and no value in TensorBoard's files. */
START_TEST(other_scores_are_told)
{
    const bool none = _i == 1;
    static const char text[] = "model { graph = \"g\" } data { source = synthetic } train { steps = 1 }"
                               "service { tensorboard = yes }";
    int zero[] = {0}, one[] = {1}, *stages_of[] = {zero};
    struct placement pl = {.n_stages = 1, .map = {.rank_of = zero, .n_stages_of = one, .stages_of = stages_of}};
    struct err e = {0};
    struct conf *c = conf_parse("t.conf", text, sizeof text - 1, &e);
    ck_assert_msg(c && !conf_finish(c, &e), "%s", e.text);
    struct job j = {.conf = c, .graph = graph_with_dice(), .be = be_find("reference"), .n_stages = 1, .mesh = {{1, 1}},
                    .pl = &pl, .count = {8, 8}};
    struct result *r = mem_alloc(result_bytes(1));
    struct sums s;
    int dir = open(".", O_RDONLY | O_DIRECTORY);
    log_quiet(true);
    r->o = (struct order){.kind = ORDER_TRAIN, .step = 1, .n = 8};
    r->rep[0] = (struct report){.score = {{4, 8}, {6, 8}, {8, 8}}, .samples = 8, .grad_norm = -1};
    if (none) r->rep[0].score[1] = (struct score_sum){0, 0};
    const struct rundir here = {.path = ".", .fd = dir};
    const struct terminal none_watches = {0};
    struct report_run q = {.job = &j, .dir = &here, .screen = &none_watches};
    struct reporters *all;
    ck_assert_msg(!reporters_open(sinks, &q, &all, &e), "%s", e.text);
    struct event step = event_of_step(r, 1, &(struct event_rates){0}, &s);
    ck_assert(!reporters_tell(all, &step, &e));
    ck_assert(!reporters_tell(all, &(struct event){.kind = EVENT_EVALUATION, .step = 1, .epoch = 1, .targets = -1,
                                                   .perplexity = -1, .bits_per_byte = -1, .samples = 8, .sums = &s},
                             &e));
    const struct progress *p = reporters_find(all, "progress");
    ck_assert(file_has("metrics.jsonl",
                       none ? ",\"loss\":0.5,\"loss_bits\":\"0x3fe0000000000000\",\"dice\":null,\"lr\":0,"
                            : ",\"loss\":0.5,\"loss_bits\":\"0x3fe0000000000000\",\"dice\":0.75,\"lr\":0,"));
    ck_assert(file_has("metrics.jsonl", none ? "\"dice\":null,\"top5\":1,\"samples\":8,\"evaluation_seconds\""
                                             : "\"dice\":0.75,\"top5\":1,\"samples\":8,\"evaluation_seconds\""));
    ck_assert(file_has(events_file(), "train/loss") && file_has(events_file(), "test/top5"));
    ck_assert(file_has(events_file(), "train/dice") == !none && file_has(events_file(), "test/dice") == !none);
    json_t *o = json_object();
    progress_json(p, false, o);
    ck_assert_str_eq(json_string_value(json_object_get(o, "scores")), none ? "loss 0.5" : "loss 0.5, Dice 0.750");
    if (none) ck_assert(!json_object_get(o, "test_scores") && !json_object_get(o, "test_dice"));
    else ck_assert_str_eq(json_string_value(json_object_get(o, "test_scores")), "test Dice 0.7500");
    ck_assert(none || json_number_value(json_object_get(o, "test_dice")) == 0.75);
    ck_assert(!json_object_get(o, "accuracy"));
    char line[64];
    const struct score_style style = score_style("dice");
    score_print(&style, p->test_score[1], SCORE_TEST, line, sizeof line);
    ck_assert_str_eq(line, none ? "Dice none" : "Dice 0.7500");
    score_print(&style, p->score[1], SCORE_STEP, line, sizeof line);
    ck_assert_str_eq(line, none ? "Dice none " : "Dice 0.750");
    json_decref(o);
    reporters_close(all);
    close(dir);
    graph_free(j.graph);
    conf_free(c);
    free(r);
}
END_TEST

static bool page_has(struct reporters *t, const char *line)
{
    struct text page = {0};
    char whole[200];
    reporters_tell(t, &(struct event){.kind = EVENT_PAGE, .page = &page}, NULL);
    snprintf(whole, sizeof whole, "\n%s\n", line);
    bool has = strstr(page.s, whole) != NULL;
    text_free(&page);
    return has;
}

/* Equal text is equal bits: of the rate, the norm and scores each bit counts, and gradients have their digest. */
START_TEST(bits_are_printed)
{
    const struct scores scores = {2, {{.name = "loss"}, {.name = "top1"}}};
    static const double ulp = 0x1p-53;
    char want[200];
    for (int i = 0; i < 2; i++) {
        struct sums s = {.score = {{0.5, 1}, {i ? 0.7 + ulp : 0.7, 1}}, .samples = 8};
        struct event ev = {.kind = EVENT_STEP, .sums = &s, .step = 1, .lr = i ? 0.1 : nextafter(0.1, 1),
                           .grad_norm = i ? 1.0 / 3 : 0.5, .grad_hash = i ? "00ff" : NULL};
        struct text t = {0};
        event_line(&ev, NULL, &scores, &t);
        snprintf(want, sizeof want, ",\"accuracy\":%s,\"lr\":%s,\"grad_norm\":%s,%s", i ? "0.7000000000000001" : "0.7",
                 i ? "0.1" : "0.10000000000000002", i ? "0.3333333333333333" : "0.5",
                 i ? "\"grad_hash\":\"00ff\",\"samples\"" : "\"samples\"");
        ck_assert_msg(strstr(t.s, want), "%s, not %s", t.s, want);
        text_free(&t);
    }
}
END_TEST

/* What does not come from steps, and numbers and names that are no plain ones. */
START_TEST(figures_of_a_run)
{
    int zero[] = {0}, one[] = {1}, *stages_of[] = {zero};
    struct placement pl = {.n_stages = 1, .map = {.rank_of = zero, .n_stages_of = one, .stages_of = stages_of}};
    struct conf c = {.run.name = "a\"b\\c\nd"};
    struct job j = {.conf = &c, .graph = graph_with_dice(), .be = be_find("reference"), .n_stages = 1, .mesh = {{1, 1}},
                    .pl = &pl};
    struct result *r = mem_alloc(result_bytes(1));
    struct sums s;
    static const struct reporter *const list[] = {&reporter_prometheus, NULL};
    struct ckpt from = {.step = 2};
    strcpy(j.dev.isa, "avx2");
    setenv("SLURM_JOB_ID", "17", 1);
    struct report_run q = {.job = &j};
    struct reporters *t;
    struct err e = {0};
    ck_assert(!reporters_open(list, &q, &t, &e));
    ck_assert(page_has(t, "mpstaged_run_info{name=\"a\\\"b\\\\c\\\\x0ad\"} 1"));
    ck_assert(page_has(t, "mpstaged_info{ranks=\"1\",version=\"" PACKAGE_VERSION "\",run=\"a\\\"b\\\\c\\\\x0ad\","
                          "device=\"avx2\",slurm_job_id=\"17\"} 1"));
    ck_assert(!page_has(t, "mpstaged_energy_joules_total{"));
    ck_assert(page_has(t, "mpstaged_checkpoints_total{result=\"committed\"} 0"));
    ck_assert(page_has(t, "# TYPE mpstaged_loss gauge\n# HELP mpstaged_score Other scores of the last step"));
    r->o = (struct order){.kind = ORDER_TRAIN, .step = 5};
    r->ns = 600000000000;
    r->rep[0] = (struct report){.score = {{0.0 / 0.0, 8}, {8, 0}, {-1, 0}}, .samples = 8, .grad_norm = 0.5};
    r->rep[0].nonfinite = NONFINITE_LOSS;
    struct event step = event_of_step(r, 1, &(struct event_rates){0}, &s);
    reporters_tell(t, &step, &e);
    ck_assert(page_has(t, "mpstaged_loss NaN") && page_has(t, "mpstaged_score{score=\"dice\"} +Inf"));
    ck_assert(page_has(t, "mpstaged_grad_norm 0.5") && page_has(t, "mpstaged_step 5"));
    ck_assert(page_has(t, "mpstaged_step_duration_seconds_bucket{le=\"500\"} 0"));
    ck_assert(page_has(t, "mpstaged_step_duration_seconds_bucket{le=\"+Inf\"} 1"));
    ck_assert(page_has(t, "mpstaged_step_duration_seconds_sum 600"));
    reporters_tell(t, &(struct event){.kind = EVENT_EVALUATION, .sums = &s}, &e);
    ck_assert(page_has(t, "mpstaged_test_score{score=\"top5\"} -Inf"));
    reporters_tell(t, &(struct event){.kind = EVENT_CHECKPOINT, .step = 4, .seconds = 2.5}, &e);
    reporters_tell(t, &(struct event){.kind = EVENT_CHECKPOINT_FAILED, .step = 5}, &e);
    ck_assert(page_has(t, "mpstaged_checkpoints_total{result=\"committed\"} 1"));
    ck_assert(page_has(t, "mpstaged_checkpoints_total{result=\"failed\"} 1"));
    ck_assert(page_has(t, "mpstaged_checkpoint_last_step 4"));
    ck_assert(page_has(t, "mpstaged_checkpoint_duration_seconds 2.5"));
    ck_assert(page_has(t, "mpstaged_nonfinite_steps_total 1"));
    reporters_tell(t, &(struct event){.kind = EVENT_ROLLBACK, .to = 1}, &e);
    ck_assert(page_has(t, "mpstaged_rollbacks_total 1") && page_has(t, "mpstaged_checkpoint_last_step 1"));
    ck_assert(page_has(t, "mpstaged_step 1"));
    reporters_close(t);
    q.from = &from;
    ck_assert(!reporters_open(list, &q, &t, &e) && page_has(t, "mpstaged_restarts_total 1"));
    ck_assert(page_has(t, "mpstaged_step 2") && page_has(t, "mpstaged_checkpoint_last_step 2"));
    reporters_close(t);
    graph_free(j.graph);
    free(r);
}
END_TEST

static void zone_put(int zone, const char *name, const char *range, const char *uj)
{
    char path[60];
    const struct { const char *file, *text; } of[] = {
        {"name", name}, {"max_energy_range_uj", range}, {"energy_uj", uj}};
    snprintf(path, sizeof path, "intel-rapl:%d", zone);
    mkdir(path, 0777);
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "intel-rapl:%d/%s", zone, of[i].file);
        if (of[i].text) put_text(path, of[i].text);
    }
}

static struct energy *energy_of_here(void)
{
    extern const struct reporter reporter_energy;
    struct conf c = {.run.name = "a"};
    struct job j = {.conf = &c};
    void *self = NULL;
    struct err e = {0};
    setenv("MPSTAGED_POWERCAP", ".", 1);
    ck_assert(!reporter_energy.open(&(struct report_run){.job = &j}, &self, &e));
    return self;
}

/* Packages count, and parts of them and whole machines do not. A counter begins anew behind its range. What has no
 * value is not 0. */
START_TEST(energy_of_packages)
{
    struct energy *g = energy_of_here();
    ck_assert(!g && energy_joules(g) < 0);
    zone_put(0, "package-0\n", "9000000\n", "8000000\n");
    zone_put(1, "psys\n", "9000000\n", "1\n");
    zone_put(2, "package-1\n", "9000000\n", NULL);
    ck_assert(!energy_of_here());                         /* half of the packages is no sum */
    zone_put(2, "package-1\n", "9000000\n", "5\n");
    ck_assert((g = energy_of_here()) && g->n == 2 && energy_joules(g) < 0);
    zone_put(1, "psys\n", "9000000\n", "2000000\n");
    zone_put(2, "package-1\n", "9000000\n", "500005\n");
    ck_assert_double_eq(energy_joules(g), 0.5);
    zone_put(0, "package-0\n", "9000000\n", "1000000\n");
    ck_assert_double_eq(energy_joules(g), 2.5);
    unlink("intel-rapl:2/energy_uj");
    ck_assert_double_eq(energy_joules(g), 2.5);
    ck_assert(g->domain[0].uj == 2000000 && !strcmp(g->domain[1].name, "package-1"));
    free(g);
}
END_TEST

/* The double has the name that the reporter looks for. */
static void *nvml_double(const char *which)
{
    char path[512];
    snprintf(path, sizeof path, "%s/tests/nvml-%s/libnvidia-ml.so.1", getenv("top_builddir"), which);
    void *library = dlopen(path, RTLD_NOW);
    ck_assert_msg(library, "%s", dlerror());
    return library;
}

static struct energy *energy_of_gpus(int n)
{
    extern const struct reporter reporter_energy;
    static const char id[2][BE_ID] = {"00000000-0000-0000-0000-000000000001", "ffffffff-ffff"};
    struct conf c = {.run.name = "a"};
    struct job j = {.conf = &c};
    void *self = NULL;
    struct err e = {0};
    setenv("MPSTAGED_POWERCAP", "none", 1);
    ck_assert(!reporter_energy.open(&(struct report_run){.job = &j, .n_gpus = n, .gpu = id}, &self, &e));
    return self;
}

/* Values, a counter that begins again, and errors: what has no value is not 0. */
START_TEST(energy_of_gpus_by_nvml)
{
    extern const struct reporter reporter_energy;
    void *library = nvml_double("double");
    unsigned long long *mj = dlsym(library, "nvml_double_mj"), *step = dlsym(library, "nvml_double_step");
    int *begins = dlsym(library, "nvml_double_begins"), *reads = dlsym(library, "nvml_double_reads");
    int *opened = dlsym(library, "nvml_double_open");
    *step = 0;
    struct energy *g = energy_of_gpus(1);
    ck_assert(g && g->n == 0 && g->n_gpus == 1 && *opened == 1 && energy_joules(g) < 0);
    ck_assert(energy_gpu_joules(g) < 0);                  /* it has not moved */
    *mj += 2500;
    ck_assert_double_eq(energy_gpu_joules(g), 2.5);
    *reads = 15;
    *mj += 1000;
    ck_assert(energy_gpu_joules(g) < 0);
    *reads = 0;
    ck_assert_double_eq(energy_gpu_joules(g), 3.5);
    *mj = 250;                                            /* the driver was loaded again */
    ck_assert_double_eq(energy_gpu_joules(g), 3.75);
    reporter_energy.close(g);
    ck_assert_int_eq(*opened, 0);
    ck_assert(!energy_of_gpus(2) && *opened == 0);        /* one of two is no sum */
    *reads = 3;
    ck_assert(!energy_of_gpus(1) && *opened == 0);
    *reads = 0;
    *begins = 9;
    ck_assert(!energy_of_gpus(1) && *opened == 0);
    ck_assert(!energy_of_gpus(0) && energy_gpu_joules(NULL) < 0);
}
END_TEST

START_TEST(energy_without_the_counter_of_nvml)
{
    nvml_double("lacks");
    ck_assert(!energy_of_gpus(1));
}
END_TEST

START_TEST(silence_is_told_from_long_steps)
{
    const uint64_t s = 1000000000;
    struct progress p = {.steps = 100, .began = 5 * s, .heard = 5 * s};
    ck_assert_uint_eq(progress_idle_ns(&p, 6 * s), 0);
    ck_assert_uint_eq(progress_idle_ns(&p, 8 * s), 3 * s);
    p = (struct progress){.steps = 100, .step = 90, .done = 10, .seconds_ns = 100 * s, .last_ns = s, .heard = 200 * s};
    ck_assert_uint_eq(progress_idle_ns(&p, 249 * s), 0);     /* 5 times the mean */
    ck_assert_uint_eq(progress_idle_ns(&p, 251 * s), 51 * s);
    p.last_ns = 20 * s;                                      /* or the last one, which a short mean hides */
    ck_assert_uint_eq(progress_idle_ns(&p, 251 * s), 0);
    ck_assert_uint_eq(progress_idle_ns(&p, 301 * s), 101 * s);
}
END_TEST

/* ---- a reader that stopped --------------------------------------------------------------------------------------- */

static size_t pipe_drain(int fd, char *buf, size_t n)
{
    size_t got = 0;
    for (ssize_t k; got < n && (k = read(fd, buf + got, n - got)) > 0;) got += (size_t)k;
    return got;
}

/* Who stops a terminal, or does not read a pipe, stops no run: its lines are missed, and counted. Waiting for the
 * reader would end in the time limit. */
START_TEST(lines_that_nobody_reads_hold_up_nobody)
{
    enum { ROOM = 1 << 20 };
    static const char want[] = "note: 2 lines were not shown: the output was not read\nthree\n\r\033[Ktwo/3";
    char *buf = calloc(1, ROOM);
    int p[2], screen = dup(STDERR_FILENO);
    ck_assert(pipe(p) == 0 && fcntl(p[0], F_SETFL, O_NONBLOCK) == 0 && fcntl(p[1], F_SETFL, O_NONBLOCK) == 0);
    while (write(p[1], buf, 4096) > 0) { }
    ck_assert(fcntl(p[1], F_SETFL, 0) == 0);
    dup2(p[1], STDERR_FILENO);
    log_line("one");
    log_progress("one/3");
    log_line("two");
    pipe_drain(p[0], buf, ROOM);
    log_line("three");
    log_progress("two/3");
    size_t n = pipe_drain(p[0], buf, ROOM);
    log_progress(NULL);
    dup2(screen, STDERR_FILENO);
    ck_assert_msg(n == sizeof want - 1 && !memcmp(buf, want, n), "%.*s", (int)n, buf);
    close(p[0]), close(p[1]), close(screen);
    free(buf);
}
END_TEST

START_TEST(lines_have_levels)
{
    static const char want[] = "warning: three\nnote: four\nerror: six\n";
    char buf[4096];
    int p[2], screen = dup(STDERR_FILENO);
    ck_assert_int_eq(log_level_text("note: a"), LEVEL_NOTE);
    ck_assert_int_eq(log_level_text("warning: a"), LEVEL_WARNING);
    ck_assert_int_eq(log_level_text("error: "), LEVEL_ERROR);
    ck_assert_int_eq(log_level_text("notes: a"), LEVEL_INFO);
    ck_assert_int_eq(log_level_text("note a: b"), LEVEL_INFO);
    ck_assert_int_eq(log_level_text("slow: a"), LEVEL_INFO);
    ck_assert_int_eq(log_level_text(""), LEVEL_INFO);
    for (int i = 0; i < LOG_LEVELS; i++) ck_assert_int_eq(log_level_of(log_level_name((enum log_level)i)), i);
    ck_assert_int_eq(log_level_of("loud"), -1);
    ck_assert_int_eq(log_level(), LEVEL_INFO);
    ck_assert(pipe(p) == 0 && fcntl(p[0], F_SETFL, O_NONBLOCK) == 0);
    dup2(p[1], STDERR_FILENO);
    log_level_set(LEVEL_NOTE);
    log_line("one");
    log_at(LEVEL_INFO, "two");
    log_at(LEVEL_WARNING, "%s", "three");
    log_line("note: four");
    log_level_set(LEVEL_ERROR);
    log_line("warning: five");
    log_at(LEVEL_ERROR, "six");
    size_t n = pipe_drain(p[0], buf, sizeof buf);
    dup2(screen, STDERR_FILENO);
    ck_assert_msg(n == sizeof want - 1 && !memcmp(buf, want, n), "%.*s", (int)n, buf);
    close(p[0]), close(p[1]), close(screen);
}
END_TEST

int main(void)
{
    TCase *pure = tcase_create("pure"), *dir = tcase_create("directory");
    tcase_add_test(pure, progress_lines_fit);
    tcase_add_test(pure, epochs_of_steps);
    tcase_add_test(pure, bits_are_printed);
    tcase_add_test(pure, figures_of_a_run);
    tcase_add_test(pure, silence_is_told_from_long_steps);
    tcase_add_test(pure, lines_that_nobody_reads_hold_up_nobody);
    tcase_add_test(pure, lines_have_levels);
    tcase_add_checked_fixture(dir, enter, scratch_leave);
    tcase_add_test(dir, run_directory_is_made_late_and_locked);
    tcase_add_test(dir, run_directory_with_results_is_refused);
    tcase_add_test(dir, run_directory_of_two_starts_goes_to_the_first);
    tcase_add_test(dir, run_directory_below_a_file_is_refused);
    tcase_add_test(dir, energy_of_packages);
    tcase_add_test(dir, energy_of_gpus_by_nvml);
    tcase_add_test(dir, energy_without_the_counter_of_nvml);
    tcase_add_loop_test(dir, other_scores_are_told, 0, 2);
    return suite_run("report", CK_FORK, pure, dir);
}
