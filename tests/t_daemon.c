/* The parts of the daemon that need neither ranks nor clock: command line, queue, course of a run, accounts, run
 * directory. */
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/mempolicy.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include "daemon/run/cores.h"
#include "daemon/run/course.h"
#include "daemon/run/doom.h"
#include "daemon/run/hosts.h"
#include "daemon/report/events.h"
#include "daemon/report/log.h"
#include "daemon/report/metrics.h"
#include "daemon/run/numa.h"
#include "daemon/talk/opts.h"
#include "daemon/report/progress.h"
#include "daemon/run/ring.h"
#include "daemon/report/rundir.h"
#include "sure.h"

/* ---- command line ------------------------------------------------------------------------------------------------ */

static int parse(struct opts *o, struct err *e, const char *line)
{
    static char copy[400];
    char *argv[32];
    int argc = 0;
    snprintf(copy, sizeof copy, "%s", line);
    for (char *s = strtok(copy, " "); s; s = strtok(NULL, " ")) argv[argc++] = s;
    argv[argc] = NULL;
    *e = (struct err){0};
    return opts_parse(o, argc, argv, e);
}

START_TEST(options_become_overrides)
{
    struct opts o;
    struct err e;
    ck_assert_int_eq(parse(&o, &e, "mpstaged -c a.conf --steps 3 -o train.loss=mse --overwrite --stages=4"), 0);
    ck_assert_str_eq(o.config, "a.conf");
    ck_assert_int_eq(o.mode, MODE_RUN);
    ck_assert_int_eq(o.set.n, 4);
    ck_assert_str_eq(o.set.v[0].assignment, "train.steps=3");
    ck_assert_str_eq(o.set.v[0].what, "--steps");
    ck_assert_str_eq(o.set.v[1].assignment, "train.loss=mse");
    ck_assert_str_eq(o.set.v[1].what, "-o train.loss=mse");
    ck_assert_str_eq(o.set.v[2].assignment, "run.overwrite=yes");
    ck_assert_str_eq(o.set.v[3].assignment, "pipeline.stages=4");
    opts_free(&o);
}
END_TEST

static const struct { const char *line, *text; } wrong[] = {
    {"mpstaged", "--stage-config"},
    {"mpstaged -c a.conf --colour", "--colour"},
    {"mpstaged -c a.conf -x", "-x"},
    {"mpstaged -c a.conf --lr 3", "unknown option --lr (did you mean --learning-rate?)"},
    {"mpstaged -c a.conf --lr=3", "unknown option --lr (did you mean --learning-rate?)"},
    {"mpstaged -c a.conf --batchsize 3", "unknown option --batchsize (did you mean --batch-size?)"},
    {"mpstaged -c a.conf --momentum=0.9", "unknown option --momentum (did you mean -o train.momentum=VALUE?)"},
    {"mpstaged -c a.conf --colour", "unknown option --colour (see mpstaged --help)"},
    {"mpstaged -c a.conf --st 3", "ambiguous option --st: --stage-config, --steps, --stages"},
    {"mpstaged -c a.conf --steps", "--steps needs a value (N)"},
    {"mpstaged -c", "needs a value"},
    {"mpstaged -c a.conf --overwrite=yes", "--overwrite takes no value"},
    {"mpstaged -c a.conf -c b.conf", "twice"},
    {"mpstaged -c a.conf -o steps", "SECTION.KEY=VALUE"},
    {"mpstaged -c a.conf -o =3", "SECTION.KEY=VALUE"},
    {"mpstaged -c a.conf b.conf", "unexpected argument b.conf"},
    {"mpstaged a.conf", "unexpected argument a.conf: a configuration file goes behind -c"},
    {"mpstaged -c a.conf --plan --summary", "another mode"},
    {"mpstaged -c a.conf --json", "--json"},
    {"mpstaged -c a.conf --draw-schedule x.png", "x.png"},
};
START_TEST(wrong_command_lines)
{
    struct opts o;
    struct err e;
    ck_assert_int_eq(parse(&o, &e, wrong[_i].line), -1);
    ck_assert_int_eq(e.code, E_USAGE);
    ck_assert_msg(strstr(e.text, wrong[_i].text) != NULL, "\"%s\" says: %s", wrong[_i].line, e.text);
    opts_free(&o);
}
END_TEST

START_TEST(every_option_is_in_help_and_manual)
{
    struct text help = {0}, manual = {0};
    opts_help(80, &help);
    opts_manual(&manual);
    int n = 0;
    for (const char *s = manual.s; (s = strstr(s, "Fl -")); n++) {
        char name[40] = "--";
        sscanf(s + 4, "%37[a-z-]", name + 2);
        ck_assert_msg(strstr(help.s, name) != NULL, "%s is not in --help", name);
        s += 4;
    }
    ck_assert_int_gt(n, 20);
    text_free(&help);
    text_free(&manual);
}
END_TEST

/* ---- queue ------------------------------------------------------------------------------------------------------- */

START_TEST(ring_keeps_order_and_bounds)
{
    struct ring *r = ring_new(3, sizeof(int));
    int x = 0;
    ck_assert(!ring_get(r, &x, 0));
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < 3; i++) ck_assert(ring_put(r, &(int){10 * round + i}));
        ck_assert(!ring_put(r, &x));
        for (int i = 0; i < 3; i++) {
            ck_assert(ring_get(r, &x, 0));
            ck_assert_int_eq(x, 10 * round + i);
        }
    }
    ck_assert(!ring_get(r, &x, 1));
    ring_free(r);
}
END_TEST

/* ---- course ------------------------------------------------------------------------------------------------------ */

static struct conf conf;
static struct job job;

/* 50 training samples in batches of 20 by epochs, 33 test samples in batches of 20. */
static void job_by_hand(void)
{
    conf = (struct conf){0};
    conf.train.batch_size = 20;
    conf.train.epochs = 2;
    conf.train.learning_rate = 1;
    conf.train.schedule = "constant";
    job = (struct job){.conf = &conf, .count = {50, 33}, .max_batch = 20, .n_plans = 4};
    int batch[PLAN_KINDS] = {20, 10, 20, 13};
    for (int k = 0; k < PLAN_KINDS; k++) { job.batch[k] = batch[k]; job.plan_of[k] = k; }
}

/* The whole course in letters: T20 E20 E13! ... S X. */
static void course_text(struct course *c, struct text *out, int max)
{
    struct task *t = mem_alloc(task_bytes(&job));
    for (int i = 0; i < max && course_next(c, t); i++) {
        static const char letter[] = "TESX";
        text_add(out, "%c", letter[t->o.kind]);
        if (t->o.kind <= ORDER_EVAL) {
            text_add(out, "%d%s", t->o.n, t->o.kind == ORDER_EVAL && t->last ? "!" : "");
            ck_assert_int_eq(t->o.n, job.batch[t->o.plan]);
        }
        text_add(out, " ");
    }
    free(t);
}

static void check_course(const char *want)
{
    struct course c;
    struct text got = {0};
    course_begin(&c, &job);
    course_text(&c, &got, 1000);
    ck_assert_str_eq(got.s, want);
    text_free(&got);
}

START_TEST(course_by_epochs)
{
    job_by_hand();
    check_course("T20 T20 T10 T20 T20 T10 E20 E13! S X ");
    conf.train.evaluate_every = 3;
    check_course("T20 T20 T10 E20 E13! T20 T20 T10 E20 E13! S X ");
    conf.train.evaluate_every = 4;
    check_course("T20 T20 T10 T20 E20 E13! T20 T10 E20 E13! S X ");
    job.count[DS_TEST] = 0;
    check_course("T20 T20 T10 T20 T20 T10 S X ");
}
END_TEST

START_TEST(course_by_steps)
{
    job_by_hand();
    job.count[DS_TEST] = 0;
    conf.train.steps = 4;
    job.wrap = true;
    check_course("T20 T20 T20 T20 S X ");
    conf.data.shuffle = true;
    job.wrap = false;
    check_course("T20 T20 T10 T20 S X ");
}
END_TEST

START_TEST(course_dumps_gradients_once)
{
    job_by_hand();
    job.count[DS_TEST] = 0;
    conf.run.dump_gradients = "g.safetensors";
    check_course("T20 S T20 T10 T20 T20 T10 S X ");
}
END_TEST

START_TEST(course_of_evaluation_only)
{
    job_by_hand();
    conf.run.evaluate = true;
    check_course("E20 E13! X ");
}
END_TEST

START_TEST(course_stops)
{
    struct course c;
    struct text got = {0};
    job_by_hand();
    course_begin(&c, &job);
    course_text(&c, &got, 2);
    course_stop(&c);
    course_text(&c, &got, 1000);
    ck_assert_str_eq(got.s, "T20 T20 S X ");
    text_free(&got);
}
END_TEST

START_TEST(course_counts_steps_and_epochs)
{
    struct course c;
    struct task *t;
    static const uint64_t epoch[] = {1, 1, 1, 2, 2, 2}, position[] = {0, 20, 40, 50, 70, 90};
    job_by_hand();
    course_begin(&c, &job);
    t = mem_alloc(task_bytes(&job));
    for (uint64_t i = 0; i < 6; i++) {
        ck_assert(course_next(&c, t));
        ck_assert_uint_eq(t->o.step, i + 1);
        ck_assert_uint_eq(t->epoch, epoch[i]);
        ck_assert_int_eq((int)t->id[0], (int)(i % 3 * 20));
        ck_assert_uint_eq(t->o.position, position[i]);
    }
    for (uint64_t i = 0; i < 2; i++) {                   /* an evaluation begins anew, each time */
        ck_assert(course_next(&c, t) && t->o.kind == ORDER_EVAL);
        ck_assert_uint_eq(t->o.position, i * 20);
    }
    free(t);
}
END_TEST

static double weight_probe(const struct ds *d, uint64_t index) { return (double)(index % 4) / 2; }

START_TEST(orders_say_what_samples_weigh)
{
    static const struct ds_kind kind = {.name = "probe", .weight = weight_probe};
    struct ds probe = {&kind};
    struct course c;
    struct task *t;
    job_by_hand();
    conf.train.epochs = 1;
    job.data[DS_TEST] = &probe;
    course_begin(&c, &job);
    t = mem_alloc(task_bytes(&job));
    for (int i = 0; i < 5; i++) {
        static const double sum[] = {20, 20, 10, 15, 9};   /* 5 times 0 + .5 + 1 + 1.5; three times, and sample 32 */
        ck_assert(course_next(&c, t));
        ck_assert_msg(t->o.weight == sum[i], "%d: %g", i, t->o.weight);
    }
    free(t);
}
END_TEST

START_TEST(step_rate)
{
    job_by_hand();
    conf.train.schedule = "step";
    conf.train.gamma = 0.5;
    conf.train.milestones = (struct conf_ints){2, {2, 3}};
    ck_assert(course_rate(&conf, 2) == 1);
    ck_assert(course_rate(&conf, 3) == 0.5);
    ck_assert(course_rate(&conf, 4) == 0.25);
    conf.train.schedule = "constant";
    ck_assert(course_rate(&conf, 9) == 1);
}
END_TEST

/* ---- accounts ---------------------------------------------------------------------------------------------------- */

static uint64_t total(const uint64_t *part)
{
    uint64_t sum = 0;
    for (int i = 0; i < ACC_COUNT; i++) sum += part[i];
    return sum;
}

START_TEST(accounts_add_up)
{
    uint64_t part[ACC_COUNT] = {[ACC_FORWARD] = 100, [ACC_WAIT_UP] = 30, [ACC_OTHER] = 5};
    account_fit(part, 150);
    ck_assert_uint_eq(part[ACC_WAIT_UP], 45);
    ck_assert_uint_eq(total(part), 150);
    account_fit(part, 120);
    ck_assert_uint_eq(part[ACC_WAIT_UP], 15);
    ck_assert_uint_eq(part[ACC_FORWARD], 100);
    account_fit(part, 90);
    ck_assert_uint_eq(part[ACC_FORWARD], 90);
    ck_assert_uint_eq(total(part), 90);
}
END_TEST

START_TEST(sums_are_of_all_ranks)
{
    struct result *r = mem_alloc(result_bytes(2));
    struct sums s = {0};
    r->ns = 7;
    r->rep[0] = (struct report){.score = {[1] = {3, 4}}};
    r->rep[1] = (struct report){.score = {{2.5, 5}, [2] = {4, 5}}, .samples = 5};
    sums_add(&s, r, 2);
    sums_add(&s, r, 2);
    ck_assert(s.score[0].numerator == 5 && s.score[0].denominator == 10 && s.score[1].numerator == 6);
    ck_assert(score_mean(&s.score[1]) == 0.75 && score_mean(&s.score[2]) == 0.8 && score_mean(&s.score[3]) == 0);
    ck_assert(s.samples == 10 && s.ns == 14);
    free(r);
}
END_TEST

/* ---- run directory ----------------------------------------------------------------------------------------------- */

static char scratch[64];
static void enter(void)
{
    snprintf(scratch, sizeof scratch, "/tmp/t_daemon.XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(scratch));
    ck_assert_int_eq(chdir(scratch), 0);
    conf = (struct conf){0};
    conf.run.directory = "a/b/run";
}
static void leave(void)
{
    char command[96];
    snprintf(command, sizeof command, "rm -rf %s", scratch);
    ck_assert_int_eq(system(command), 0);
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

START_TEST(first_cause_wins)
{
    struct err e;
    ck_assert(!doom_get(&e));
    doom_set(E_STOPPED, "stopped");
    doom_set(E_DATA, "x.idx: offset 3: bad");
    doom_set(E_DEVICE, "later");
    ck_assert(doom_get(&e));
    ck_assert_int_eq(e.code, E_DATA);
    ck_assert_str_eq(e.text, "x.idx: offset 3: bad");
    ck_assert_int_eq(atomic_load(doom_word()), E_STOPPED);
}
END_TEST

/* ---- what people see --------------------------------------------------------------------------------------------- */

/* As Linux 6 wrote them: mpirun of a terminal, /dev/pts/300 of a program with an odd name, a daemon. */
START_TEST(processes_tell_their_terminal)
{
    struct screen_process p;
    ck_assert(screen_process_parse("23042 (mpirun) S 23041 23042 23042 34816 23042 4194560 1", &p));
    ck_assert_int_eq(p.parent, 23041);
    ck_assert_int_eq(p.group, 23042);
    ck_assert_int_eq(p.foreground, 23042);
    ck_assert_uint_eq(p.terminal, makedev(136, 0));
    ck_assert(screen_process_parse("7 (a) b (c)) R 1 7 7 1083436 -1 0", &p));
    ck_assert_uint_eq(p.terminal, makedev(136, 300));
    ck_assert_int_eq(p.foreground, -1);
    ck_assert(screen_process_parse("9 (cron) S 1 9 9 0 -1 4194624", &p));
    ck_assert_uint_eq(p.terminal, 0);
    ck_assert(!screen_process_parse("", &p) && !screen_process_parse("9 (cron) S 1 9", &p));
}
END_TEST

START_TEST(progress_lines_fit)
{
    char line[240];
    const uint64_t s = 1000000000;
    struct progress p = {.steps = 123456, .began = 5 * s, .heard = 5 * s};
    progress_line(&p, 47 * s, 79, line, sizeof line);
    ck_assert_str_eq(line, "step 1/123456 is running, 0:00:42");
    p = (struct progress){.steps = 123456, .step = 99999, .epoch = 1234,
                          .scores = {3, {{.name = "loss"}, {.name = "top1"}, {.name = "top5"}}},
                          .score = {0.000123456, 0.123, 0.5},
                          .rate = 1234.5, .seconds_ns = 99999 * s, .heard = 100 * s};
    progress_line(&p, 100 * s, 239, line, sizeof line);
    ck_assert_str_eq(line,
                     "step  99999/123456  epoch 1234  loss 0.00012346  accuracy 0.123   1234 samples/s  ETA 6:30:57");
    progress_line(&p, 100 * s, 79, line, sizeof line);
    ck_assert_str_eq(line, "step  99999/123456  loss 0.00012346  acc. 0.123   1234/s  ETA 6:30:57");
    progress_line(&p, 165 * s, 79, line, sizeof line);
    ck_assert_str_eq(line, "step  99999/123456  loss 0.00012346   1234/s  ETA 6:30:57  now 0:01:05");
    for (int columns = 1; columns < 239; columns++) {
        progress_line(&p, 165 * s, columns, line, sizeof line);
        ck_assert_int_le((int)strlen(line), columns);
        ck_assert(columns < 18 || strncmp(line, "step  99999/123456", 18) == 0);
    }
    p.test_done = 10, p.test_all = 40, p.test_ns = 20 * s, p.step = 123456;
    progress_line(&p, 165 * s, 79, line, sizeof line);
    ck_assert_str_eq(line, "evaluating 10/40 samples  ETA 0:01:00");
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

START_TEST(other_scores_are_told)
{
    static const char text[] = "model { graph = \"g\" } data { source = synthetic } train { steps = 1 }";
    int zero[] = {0}, one[] = {1}, *stages_of[] = {zero};
    struct placement pl = {.n_stages = 1, .map = {.rank_of = zero, .n_stages_of = one, .stages_of = stages_of}};
    struct err e = {0};
    struct conf *c = conf_parse("t.conf", text, sizeof text - 1, &e);
    ck_assert_msg(c && !conf_finish(c, &e), "%s", e.text);
    struct job j = {.conf = c, .graph = graph_with_dice(), .be = be_find("reference"), .n_stages = 1, .n_ranks = 1,
                    .pl = &pl, .count = {8, 8}};
    struct result *r = mem_alloc(result_bytes(1));
    struct metrics *m;
    struct events *v;
    struct progress p;
    struct sums s = {0};
    int dir = open(".", O_RDONLY | O_DIRECTORY);
    log_quiet(true);
    r->o = (struct order){.kind = ORDER_TRAIN, .step = 1, .n = 8};
    r->rep[0] = (struct report){.score = {{4, 8}, {6, 8}, {8, 8}}, .samples = 8, .grad_norm = -1};
    sums_add(&s, r, 1);
    ck_assert_msg(!metrics_open(dir, ".", &j, "n", "p", &m, &e) && !events_open(dir, ".", &j, &v, &e), "%s", e.text);
    progress_begin(&p, &j, 1, &(struct screen){0});
    progress_step(&p, r, &s);
    progress_evaluation(&p, 1, &s);
    ck_assert(!metrics_step(m, r, &e) && !metrics_evaluation(m, 1, 1, &s, &e));
    ck_assert(!events_step(v, r, &e) && !events_evaluation(v, 1, &s, &e));
    ck_assert(file_has("metrics.jsonl", ",\"loss\":0.5,\"loss_bits\":\"0x3fe0000000000000\",\"dice\":0.75,\"lr\":0,"));
    ck_assert(file_has("metrics.jsonl", "\"dice\":0.75,\"top5\":1,\"samples\":8,\"evaluation_seconds\""));
    ck_assert(file_has(events_file(), "train/dice") && file_has(events_file(), "test/top5"));
    json_t *o = json_object();
    progress_json(&p, false, o);
    ck_assert_str_eq(json_string_value(json_object_get(o, "scores")), "loss 0.5, dice 0.750");
    ck_assert_str_eq(json_string_value(json_object_get(o, "test_scores")), "test dice 0.7500");
    ck_assert(json_number_value(json_object_get(o, "test_dice")) == 0.75 && !json_object_get(o, "accuracy"));
    json_decref(o);
    progress_end(&p);
    metrics_close(m);
    events_close(v);
    close(dir);
    graph_free(j.graph);
    conf_free(c);
    free(r);
}
END_TEST

START_TEST(silence_is_told_from_long_steps)
{
    const uint64_t s = 1000000000;
    struct progress p = {.steps = 100, .began = 5 * s, .heard = 5 * s};
    ck_assert_uint_eq(progress_idle_ns(&p, 6 * s), 0);
    ck_assert_uint_eq(progress_idle_ns(&p, 8 * s), 3 * s);
    p = (struct progress){.steps = 100, .step = 10, .seconds_ns = 100 * s, .last_ns = s, .heard = 200 * s};
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
    static const char want[] = "note: 2 lines were not shown here: nobody read them\nthree\n\r\033[Ktwo/3";
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

/* ---- cores ------------------------------------------------------------------------------------------------------- */

/* A machine of 8 processors: half a second in ticks, during which each was busy that much, in percent. */
static void machine(const int *busy, struct core_times *before, struct core_times *after)
{
    struct text a = {0}, b = {0};
    text_add(&a, "cpu  1 2 3 4 5 6 7 8 9 10\n");
    text_add(&b, "cpu  9 9 9 9 9 9 9 9 9 10\n");
    for (int i = 0; i < 8; i++) {
        text_add(&a, "cpu%d 1000 10 100 5000 50 1 2 30 0 0\n", i);
        int half = busy[i] / 4;
        text_add(&b, "cpu%d %d 10 %d %d 50 1 2 90 0 0\n", i, 1000 + half, 100 + half, 5050 - 2 * half);
    }
    text_add(&a, "intr 12345 0 9\nctxt 1\n");
    text_add(&b, "intr 12345 0 9\nctxt 1\n");
    core_times_parse(a.s, before);
    core_times_parse(b.s, after);
    text_free(&a);
    text_free(&b);
}

/* A rank on processors from..to of a machine; wide: the two halves of the machine are the threads of 4 cores. */
static struct core_word rank_on(const int *busy, int from, int to, double own, bool bound, bool wide)
{
    struct core_times before, after;
    struct core_word w = {.host = "here", .measured = true, .threads = 1, .own = own};
    cpu_set_t mine, all;
    static int first[CPU_SETSIZE];
    for (int i = 0; i < CPU_SETSIZE; i++) first[i] = wide && i < 8 ? i % 4 : i;
    CPU_ZERO(&mine);
    CPU_ZERO(&all);
    for (int i = 0; i < 8; i++) CPU_SET(i, &all);
    for (int i = from; i <= to; i++) CPU_SET(i, &mine);
    if (wide) for (int i = from; i <= to; i++) CPU_SET((i + 4) % 8, &mine);
    machine(busy, &before, &after);
    core_word_fill(&before, &after, &mine, bound ? &all : &mine, first, &w);
    return w;
}

static char *judged(struct core_word *w, int n)
{
    static char line[400];
    struct text t = {0};
    cores_judge(w, n, &t);
    snprintf(line, sizeof line, "%s", t.n ? t.s : "");
    text_free(&t);
    return line;
}

START_TEST(cores_of_another_job_are_named)
{
    const int taken[8] = {100, 100, 0, 4, 0, 8, 0, 0}, alone[8] = {4, 100, 0, 4, 0, 8, 0, 0};
    struct core_word w[2] = {rank_on(taken, 0, 0, 0.5, true, false), rank_on(taken, 1, 1, 0.5, true, false)};
    ck_assert_int_eq(w[0].allowed, 8);
    ck_assert_int_eq(CPU_COUNT(&w[0].idle), 6);
    ck_assert_str_eq(judged(w, 2),
                     "note: rank 0 and 1 more are bound to cores where other programs run (50 % of core 0), while 6 "
                     "of 8 cores are idle: use mpirun --bind-to none\n");
    w[0].own = 1;
    ck_assert_str_eq(judged(w, 2),
                     "note: rank 1 is bound to cores where other programs run (50 % of core 1), while 6 of 8 cores "
                     "are idle: use mpirun --bind-to none\n");
    w[1] = rank_on(alone, 1, 1, 0.95, true, false);
    ck_assert_str_eq(judged(w, 2), "");                  /* what runs there is their own */
    w[1].measured = false;
    w[1].own = 0;
    ck_assert_str_eq(judged(w, 2), "");                  /* and nobody looked */
}
END_TEST

/* ---- hosts and NUMA nodes ---------------------------------------------------------------------------------------- */

static const char *hosts_said(const int *host, int n, int n_stages)
{
    static char line[200];
    int rank_of[16];
    struct text t = {0};
    for (int s = 0; s < n_stages; s++) rank_of[s] = s % n;
    hosts_judge(host, n, rank_of, n_stages, &t);
    snprintf(line, sizeof line, "%s", t.n ? t.s : "");
    text_free(&t);
    return line;
}

START_TEST(borders_between_hosts_are_counted)
{
    ck_assert_str_eq(hosts_said((int[]){0, 1, 0, 1}, 4, 4),
                     "note: 3 of 3 borders between stages lie between hosts, 1 would do: start ranks host by host "
                     "(mpirun --map-by slot)\n");
    ck_assert_str_eq(hosts_said((int[]){0, 1, 2, 0}, 4, 4),
                     "note: 3 of 3 borders between stages lie between hosts, 2 would do: start ranks host by host "
                     "(mpirun --map-by slot)\n");
    ck_assert_str_eq(hosts_said((int[]){0, 0, 2, 2}, 4, 4), "");
    ck_assert_str_eq(hosts_said((int[]){3, 2, 1, 0}, 4, 4), "");   /* a host each */
    ck_assert_str_eq(hosts_said((int[]){0, 0, 0, 0}, 4, 4), "");
    ck_assert_str_eq(hosts_said((int[]){0, 1}, 2, 1), "");
    ck_assert_str_eq(hosts_said((int[]){0, 0, 1, 1}, 4, 8), "");   /* two rounds: back to the first host once */
    ck_assert_int_eq(atoi(hosts_said((int[]){0, 1, 1, 0}, 4, 8) + 6), 4);
}
END_TEST

START_TEST(patience_is_longer_than_a_networks)
{
    const int one[] = {0, 0, 0}, two[] = {0, 0, 2};
    ck_assert_int_eq(hosts_patience_s(0, one, 3), 8);
    ck_assert_int_eq(hosts_patience_s(0, two, 3), 60);
    ck_assert_int_eq(hosts_patience_s(5, two, 3), 5);
    ck_assert_int_eq(hosts_patience_s(90, one, 3), 90);
}
END_TEST

START_TEST(ways_are_told)
{
    struct hosts_links all[3] = {{1, {{1, "P2P/CUMEM"}}}, {2, {{2, "P2P/CUMEM"}, {0, "P2P/CUMEM"}}},
                                 {1, {{1, "P2P/CUMEM"}}}};
    struct text t = {0};
    hosts_links_text(all, 3, &t);
    ck_assert_str_eq(t.s, "all 4 links: via P2P/CUMEM\n");
    t.n = 0;
    strcpy(all[1].link[0].via, "NET/IB/0");
    strcpy(all[2].link[0].via, "NET/IB/0");
    hosts_links_text(all, 3, &t);
    ck_assert_str_eq(t.s, "links 0 to 1, 1 to 0: via P2P/CUMEM\nlinks 1 to 2, 2 to 1: via NET/IB/0\n");
    t.n = 0;
    *all[2].link[0].via = 0;
    hosts_links_text(all, 3, &t);
    ck_assert_str_eq(t.s, "links 0 to 1, 1 to 0: via P2P/CUMEM\nlink 1 to 2: via NET/IB/0\n"
                     "link 2 to 1: NCCL does not say by which way\n");
    t.n = 0;
    hosts_links_text(all, 1, &t);
    ck_assert_str_eq(t.s, "link 0 to 1: via P2P/CUMEM\n");
    text_free(&t);
    for (int r = 0; r < 3; r++) for (int i = 0; i < all[r].n; i++) *all[r].link[i].via = 0;
    hosts_links_text(all, 3, &t);
    ck_assert_int_eq((int)t.n, 0);                       /* the user has the log */
    text_free(&t);
}
END_TEST

static void sys_file(const char *name, const char *text)
{
    char command[300];
    snprintf(command, sizeof command, "mkdir -p $(dirname %s)", name);
    ck_assert_int_eq(system(command), 0);
    FILE *f = fopen(name, "w");
    ck_assert_ptr_nonnull(f);
    fputs(text, f);
    fclose(f);
}

static struct numa_word looked(const char *bus, int core)
{
    struct numa_word w;
    cpu_set_t mine;
    CPU_ZERO(&mine);
    CPU_SET(core, &mine);
    numa_look("sys", bus, &mine, &w);
    return w;
}

START_TEST(numa_nodes_are_read)
{
    char folder[] = "/tmp/t_daemon.XXXXXX";
    ck_assert_ptr_nonnull(mkdtemp(folder));
    ck_assert_int_eq(chdir(folder), 0);
    struct numa_word w = looked("0000:3B:00.0", 0);
    ck_assert_int_eq(w.gpu, -1);                         /* there is nothing to read */
    sys_file("sys/bus/pci/devices/0000:3b:00.0/numa_node", "1\n");
    sys_file("sys/bus/pci/devices/0000:5e:00.0/numa_node", "-1\n");
    sys_file("sys/devices/system/node/online", "0\n");
    ck_assert_int_eq(looked("0000:3B:00.0", 0).gpu, -1); /* one node */
    sys_file("sys/devices/system/node/online", "0-1\n");
    sys_file("sys/devices/system/node/node0/cpulist", "0-3,8-11\n");
    sys_file("sys/devices/system/node/node1/cpulist", "4-7,12\n");
    w = looked("00000000:3B:00.0", 9);
    ck_assert_int_eq(w.gpu, 1);
    ck_assert_int_eq(w.cores, 0);
    ck_assert_int_eq(looked("0000:3B:00.0", 12).cores, 1);
    ck_assert_int_eq(looked("0000:3B:00.0", 20).cores, -1);
    ck_assert_int_eq(looked("0000:5E:00.0", 0).gpu, -1);
    ck_assert_int_eq(looked("0000:99:00.0", 0).gpu, -1);
    ck_assert_int_eq(looked("", 0).gpu, -1);
    sys_file("sys/devices/system/node/node1/cpulist", "nonsense");
    static const char *const odd[] = {"", "\n", "nonsense", "-", "1024\n", "4294967296\n", "99999999999999999999\n"};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        sys_file("sys/bus/pci/devices/0000:77:00.0/numa_node", odd[i]);
        ck_assert_int_eq(looked("0000:77:00.0", 0).gpu, -1);
    }
    ck_assert_int_eq(looked("0000:3B:00.0", 12).cores, -1);
    ck_assert_int_eq(chdir("/"), 0);
    char command[80];
    snprintf(command, sizeof command, "rm -r %s", folder);
    ck_assert_int_eq(system(command), 0);
}
END_TEST

static const char *numa_said(const struct numa_word *w, int n)
{
    static char lines[400];
    struct text t = {0};
    numa_judge(w, n, &t);
    snprintf(lines, sizeof lines, "%s", t.n ? t.s : "");
    text_free(&t);
    return lines;
}

START_TEST(cores_far_from_a_gpu_are_named)
{
    const struct numa_word near[] = {{0, 0, 0}, {1, 1, 0}, {-1, -1, 0}}, far[] = {{0, 0, 0}, {1, 0, 0}},
        more[] = {{1, 0, EPERM}, {0, 0, 0}, {1, 0, EPERM}};
    ck_assert_str_eq(numa_said(near, 3), "");
    ck_assert_str_eq(numa_said(far, 2),
                     "note: rank 1 may use no core near its GPU (cores of NUMA node 0, GPU at node 1): bind ranks to "
                     "cores near their GPUs, or use mpirun --bind-to none\n");
    ck_assert_str_eq(numa_said(more, 3),
                     "note: rank 0 and 1 more may use no core near their GPU (cores of NUMA node 0, GPU at node 1): "
                     "bind ranks to cores near their GPUs, or use mpirun --bind-to none\n"
                     "note: rank 0 and 1 more cannot ask for memory near their GPU: Operation not permitted\n");
}
END_TEST

/* Memory comes from node 0, which every machine has, as asked; a container may forbid to ask. */
START_TEST(memory_is_asked_for)
{
    int refused = numa_prefer(0);
    ck_assert_int_eq(numa_prefer(-1), EINVAL);
    ck_assert_int_eq(numa_prefer(1 << 20), EINVAL);
    if (refused == EPERM || refused == ENOSYS) return;
    ck_assert_int_eq(refused, 0);
    int mode = -1;
    unsigned long nodes[16] = {0};
    ck_assert_int_eq(syscall(SYS_get_mempolicy, &mode, nodes, 1024ul, NULL, 0ul), 0);
    ck_assert_int_eq(mode, MPOL_PREFERRED);
    ck_assert_int_eq((int)nodes[0], 1);
}
END_TEST

START_TEST(busy_machines_are_told_from_bound_ranks)
{
    const int full[8] = {100, 100, 96, 100, 100, 92, 100, 100}, ours[8] = {100, 100}, none[8] = {0};
    struct core_word w[2] = {rank_on(full, 0, 0, 0.4, true, false), rank_on(full, 1, 1, 1, true, false)};
    ck_assert_str_eq(judged(w, 2),
                     "note: this machine is busy: other programs take 60 % of core 0, and no core is idle; steps "
                     "take longer, and their times vary\n");
    w[0] = rank_on(full, 0, 7, 0.5, false, false), w[1] = rank_on(full, 0, 7, 0.5, false, false);
    ck_assert_str_eq(judged(w, 2),
                     "note: this machine is busy: other programs take 86 % of 8 cores, and no core is idle; steps "
                     "take longer, and their times vary\n");
    w[0] = rank_on(ours, 0, 7, 1, false, false), w[1] = rank_on(ours, 0, 7, 1, false, false);
    ck_assert_str_eq(judged(w, 2), "");
    w[0] = rank_on(none, 0, 7, 0, false, false), w[1] = rank_on(none, 0, 7, 0, false, false);
    ck_assert_str_eq(judged(w, 2), "");
    /* half of the machine is another job's: an unbound rank takes the other half, and one bound to 4 cores of which 2
     * are free, too */
    const int half[8] = {100, 100, 0, 0, 100, 100, 0, 0};
    w[0] = rank_on(half, 0, 7, 0, false, false), w[1] = rank_on(half, 0, 3, 0, true, false);
    ck_assert_str_eq(judged(w, 2), "");
}
END_TEST

/* mpirun binds to both hardware threads of a core: somebody else on one of them takes half of it. */
START_TEST(hardware_threads_share_a_core)
{
    const int beside[8] = {100, 100, 0, 0, 100, 100, 0, 0}, little[8] = {100, 100, 0, 0, 20, 20, 0, 0};
    struct core_word w[2] = {rank_on(beside, 0, 0, 1, true, true), rank_on(beside, 1, 1, 1, true, true)};
    ck_assert_int_eq(w[0].processors, 2);
    ck_assert_int_eq(CPU_COUNT(&w[0].cores), 1);
    ck_assert_str_eq(judged(w, 2),
                     "note: rank 0 and 1 more are bound to cores where other programs run (50 % of core 0), while 2 "
                     "of 4 cores are idle: use mpirun --bind-to none\n");
    w[0] = rank_on(little, 0, 0, 1, true, true), w[1] = rank_on(little, 1, 1, 1, true, true);
    ck_assert_str_eq(judged(w, 2), "");
}
END_TEST

START_TEST(narrow_ranks_are_named)
{
    const int none[8] = {0};
    struct core_word w[3] = {rank_on(none, 0, 0, 0, true, false), rank_on(none, 1, 1, 0, true, false),
                             rank_on(none, 1, 1, 0, true, false)};
    ck_assert_str_eq(judged(w, 3),
                     "note: rank 1 and 1 more are bound to the same 1 core: use mpirun --bind-to none\n");
    snprintf(w[2].host, sizeof w[2].host, "there");
    ck_assert_str_eq(judged(w, 3), "");
    w[2].threads = 4;
    ck_assert_str_eq(judged(w, 3),
                     "note: rank 2 computes with 4 threads, but may use 1 core: use mpirun --bind-to none\n");
    w[0].threads = 2, w[0].bound = false;
    ck_assert_str_eq(judged(w, 1),
                     "note: 2 threads compute on 1 core\n");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("daemon");
    TCase *pure = tcase_create("pure"), *dir = tcase_create("directory");
    tcase_add_test(pure, options_become_overrides);
    tcase_add_loop_test(pure, wrong_command_lines, 0, sizeof wrong / sizeof *wrong);
    tcase_add_test(pure, every_option_is_in_help_and_manual);
    tcase_add_test(pure, ring_keeps_order_and_bounds);
    tcase_add_test(pure, course_by_epochs);
    tcase_add_test(pure, course_by_steps);
    tcase_add_test(pure, course_dumps_gradients_once);
    tcase_add_test(pure, course_of_evaluation_only);
    tcase_add_test(pure, course_stops);
    tcase_add_test(pure, course_counts_steps_and_epochs);
    tcase_add_test(pure, step_rate);
    tcase_add_test(pure, orders_say_what_samples_weigh);
    tcase_add_test(pure, accounts_add_up);
    tcase_add_test(pure, sums_are_of_all_ranks);
    tcase_add_test(pure, first_cause_wins);
    tcase_add_test(pure, processes_tell_their_terminal);
    tcase_add_test(pure, progress_lines_fit);
    tcase_add_test(pure, silence_is_told_from_long_steps);
    tcase_add_test(pure, lines_that_nobody_reads_hold_up_nobody);
    tcase_add_test(pure, cores_of_another_job_are_named);
    tcase_add_test(pure, borders_between_hosts_are_counted);
    tcase_add_test(pure, ways_are_told);
    tcase_add_test(pure, patience_is_longer_than_a_networks);
    tcase_add_test(pure, numa_nodes_are_read);
    tcase_add_test(pure, cores_far_from_a_gpu_are_named);
    tcase_add_test(pure, memory_is_asked_for);
    tcase_add_test(pure, busy_machines_are_told_from_bound_ranks);
    tcase_add_test(pure, hardware_threads_share_a_core);
    tcase_add_test(pure, narrow_ranks_are_named);
    tcase_add_checked_fixture(dir, enter, leave);
    tcase_add_test(dir, other_scores_are_told);
    tcase_add_test(dir, run_directory_is_made_late_and_locked);
    tcase_add_test(dir, run_directory_with_results_is_refused);
    tcase_add_test(dir, run_directory_of_two_starts_goes_to_the_first);
    tcase_add_test(dir, run_directory_below_a_file_is_refused);
    suite_add_tcase(s, pure);
    suite_add_tcase(s, dir);
    return suite_run(s, CK_FORK);
}
