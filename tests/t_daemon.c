/* The parts of the daemon that need neither ranks nor clock: command line, queue, course of a run, accounts. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "daemon/report/metrics.h"
#include "daemon/run/course.h"
#include "daemon/run/ring.h"
#include "daemon/talk/opts.h"
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
        static const char letter[] = "TECRSX";
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
    course_begin(&c, &job, NULL);
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
    conf.train.evaluate_epochs = 1;
    check_course("T20 T20 T10 E20 E13! T20 E20 E13! T20 T10 E20 E13! S X ");
    conf.train.evaluate_every = 0;
    check_course("T20 T20 T10 E20 E13! T20 T20 T10 E20 E13! S X ");
    conf.train.evaluate_epochs = 2;
    check_course("T20 T20 T10 T20 T20 T10 E20 E13! S X ");
    conf.train.evaluate_epochs = 1;
    job.count[DS_TEST] = 0;
    check_course("T20 T20 T10 T20 T20 T10 S X ");
}
END_TEST

START_TEST(course_by_steps)
{
    job_by_hand();
    job.count[DS_TEST] = 0;
    conf.train.steps = 4;
    for (int shuffle = 0; shuffle < 2; shuffle++) {       /* the first steps of any run, in whatever order */
        conf.data.shuffle = shuffle;
        conf.train.last_batch = "short";
        check_course("T20 T20 T10 T20 S X ");
        conf.train.last_batch = "fill";
        check_course("T20 T20 T20 T20 S X ");
        conf.train.last_batch = "drop";
        check_course("T20 T20 T20 T20 S X ");
    }
    job.count[DS_TEST] = 33;
    conf.train.evaluate_epochs = 1;
    conf.train.last_batch = "fill";                       /* the first epoch ends within step 3 */
    check_course("T20 T20 T20 E20 E13! T20 E20 E13! S X ");
    conf.train.last_batch = "drop";                       /* behind step 2 */
    check_course("T20 T20 E20 E13! T20 T20 E20 E13! S X ");
}
END_TEST

START_TEST(course_at_the_end_of_epochs)
{
    struct course c;
    struct text got = {0};
    job_by_hand();
    job.count[DS_TEST] = 0;
    conf.train.last_batch = "drop";
    check_course("T20 T20 T20 T20 S X ");
    conf.train.last_batch = "fill";
    check_course("T20 T20 T20 T20 T20 S X ");
    /* from a checkpoint of a run that had no such setting, or another batch size */
    conf.train.steps = 6;
    conf.train.last_batch = "drop";
    course_begin(&c, &job, &(struct ckpt){.step = 4, .position = 70});
    course_text(&c, &got, 1000);
    ck_assert_str_eq(got.s, "T20 T20 S X ");
    ck_assert_uint_eq(c.position, 120);
    ck_assert_uint_eq(course_samples(&job, c.position), 100);
    text_free(&got);
    course_begin(&c, &job, &(struct ckpt){.step = 4, .position = 90});   /* nothing is left of that epoch */
    ck_assert_uint_eq(c.position, 100);
    conf.train.last_batch = "fill";
    course_begin(&c, &job, &(struct ckpt){.step = 4, .position = 93});
    ck_assert_uint_eq(c.position, 93);
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
    course_begin(&c, &job, NULL);
    course_text(&c, &got, 2);
    course_stop(&c, STOP_WEIGHTS);
    course_text(&c, &got, 1000);
    ck_assert_str_eq(got.s, "T20 T20 S X ");
    text_free(&got);
}
END_TEST

START_TEST(course_with_checkpoints)
{
    job_by_hand();
    conf.checkpoint.every_steps = 2;
    conf.train.evaluate_every = 4;
    check_course("T20 T20 C T10 T20 E20 E13! C T20 T10 E20 E13! C S X ");
    conf.checkpoint.every_steps = 4;                      /* and one of the last step */
    check_course("T20 T20 T10 T20 E20 E13! C T20 T10 E20 E13! C S X ");
    conf.checkpoint.every_steps = 0;
    conf.checkpoint.every_seconds = 1000;
    check_course("T20 T20 T10 T20 E20 E13! T20 T10 E20 E13! C S X ");
    conf.run.evaluate = true;
    check_course("E20 E13! X ");
}
END_TEST

/* From a checkpoint of step 4, with its evaluation done or still due. */
START_TEST(course_goes_on)
{
    struct course c;
    struct text got = {0};
    struct ckpt from = {.step = 4, .position = 70};
    job_by_hand();
    conf.checkpoint.every_steps = 4;
    conf.train.evaluate_every = 4;
    for (int due = 0; due < 2; due++) {
        from.evaluate = due;
        got.n = 0;
        course_begin(&c, &job, &from);
        course_text(&c, &got, 1000);
        ck_assert_str_eq(got.s, due ? "E20 E13! T20 T10 E20 E13! C S X " : "T20 T10 E20 E13! C S X ");
        ck_assert_uint_eq(c.position, 100);
    }
    from = (struct ckpt){.step = 6, .position = 100};     /* of the last step: only weights are missing */
    got.n = 0;
    course_begin(&c, &job, &from);
    course_text(&c, &got, 1000);
    ck_assert_str_eq(got.s, "S X ");
    from = (struct ckpt){.step = 4, .position = 66};      /* of batches of another size */
    got.n = 0;
    course_begin(&c, &job, &from);
    course_text(&c, &got, 1000);
    ck_assert_str_eq(got.s, "T20 T10 E20 E13! C S X ");
    text_free(&got);
}
END_TEST

START_TEST(course_stops_with_a_checkpoint)
{
    static const struct { enum course_stop how; const char *want; } of[] = {
        {STOP_WEIGHTS, "T20 T20 S X "}, {STOP_CHECKPOINT, "T20 T20 C S X "}, {STOP_RESUMABLE, "T20 T20 C X "}};
    for (size_t i = 0; i < 3; i++) {
        struct course c;
        struct text got = {0};
        job_by_hand();
        course_begin(&c, &job, NULL);
        course_text(&c, &got, 2);
        course_stop(&c, of[i].how);
        course_text(&c, &got, 1000);
        ck_assert_str_eq(got.s, of[i].want);
        text_free(&got);
    }
}
END_TEST

/* Orders that nobody has heard of are taken back with the course before them: the checkpoint is of the step before. */
START_TEST(course_takes_orders_back)
{
    struct course c;
    job_by_hand();
    struct task *t = mem_alloc(task_bytes(&job));
    course_begin(&c, &job, NULL);
    ck_assert(course_next(&c, t) && t->o.kind == ORDER_TRAIN);
    struct course before = c;
    for (int i = 0; i < 2; i++) ck_assert(course_next(&c, t) && t->o.kind == ORDER_TRAIN);
    c = before;
    course_stop(&c, STOP_RESUMABLE);
    ck_assert(course_next(&c, t) && t->o.kind == ORDER_CHECKPOINT);
    ck_assert(t->o.step == 1 && t->o.position == 20 && t->o.what == 0);
    free(t);
}
END_TEST

/* Step 3 of a run with checkpoints every two steps was bad: whatever was ordered behind it is given up, nothing is
 * ordered until the checkpoint is known, and then steps go on from there with the samples behind the bad batch. _i:
 * orders given behind it, to the last one of the course. */
START_TEST(course_goes_back)
{
    struct course c;
    struct text got = {0};
    job_by_hand();
    conf.checkpoint.every_steps = 2;
    conf.train.evaluate_every = 3;
    course_begin(&c, &job, NULL);
    course_text(&c, &got, 4 + _i);
    course_fault(&c);
    ck_assert(!course_next(&c, NULL));
    got.n = 0;
    course_back(&c, 2, 50);
    ck_assert(!course_checkpoint(&c));                    /* there is one of that step */
    struct course before = c;
    course_text(&c, &got, 1);
    ck_assert_str_eq(got.s, "R ");
    ck_assert(c.step == 2 && c.position == 50 && c.epoch == 1);
    c = before;                                           /* the order is taken back, and comes again */
    course_text(&c, &got, 1000);
    ck_assert_str_eq(got.s, "R R ");                      /* it may be damaged, and then an older one is tried */
    course_back(&c, 2, 50);
    course_text(&c, &got, 1000);
    ck_assert_str_eq(got.s, "R R R ");
    course_arrived(&c);
    course_text(&c, &got, 1000);
    ck_assert_str_eq(got.s, "R R R T20 E20 E13! T20 C T10 T20 E20 E13! C S X ");
    ck_assert_uint_eq(c.position, 120);
    text_free(&got);
}
END_TEST

/* A run that is told to stop while it goes back, or before, ends behind that: there is a checkpoint. _i: how */
START_TEST(course_stops_while_it_goes_back)
{
    static const char *const want[] = {"T20 R S X ", "T20 R S X ", "T20 R X "};
    for (int when = 0; when < 4; when++) {
        struct course c;
        struct text got = {0};
        job_by_hand();
        course_begin(&c, &job, NULL);
        course_text(&c, &got, 1);
        if (when == 0) course_stop(&c, (enum course_stop)_i);
        course_fault(&c);
        if (when == 1) course_stop(&c, (enum course_stop)_i);
        ck_assert(!course_next(&c, NULL));
        course_back(&c, 1, 40);
        if (when == 2) course_stop(&c, (enum course_stop)_i);
        course_text(&c, &got, 1);
        if (when == 3) course_stop(&c, (enum course_stop)_i);
        course_arrived(&c);
        course_text(&c, &got, 1000);
        ck_assert_str_eq(got.s, want[_i]);
        text_free(&got);
    }
}
END_TEST

/* A course that is told to stop while an evaluation is judged waits for that, and then saves, because it makes
 * checkpoints. _i: how; + 3: it was the best one */
START_TEST(course_stops_while_it_judges)
{
    static const char *const want[] = {"C S X ", "C S X ", "C X ", "C S X ", "C S X ", "C X "};
    struct course c;
    struct text got = {0};
    job_by_hand();
    conf.train.evaluate_every = 1;
    conf.checkpoint.best = "loss";
    course_begin(&c, &job, NULL);
    course_text(&c, &got, 1000);
    ck_assert(c.phase == COURSE_JUDGE && course_saves_step(&c) == 0);
    course_stop(&c, (enum course_stop)(_i % 3));
    ck_assert(!course_next(&c, NULL) && course_saves_step(&c) == 1);
    got.n = 0;
    course_judged(&c, _i >= 3, false);
    ck_assert(course_saves_step(&c) == 1);                /* also before it is ordered */
    course_text(&c, &got, 1000);
    ck_assert_str_eq(got.s, want[_i]);
    text_free(&got);
}
END_TEST

/* A wanted checkpoint comes at the next border, once for each step; with a best score the course waits for it. */
START_TEST(course_checkpoints_when_asked)
{
    struct course c;
    struct text got = {0};
    job_by_hand();
    conf.train.evaluate_every = 3;
    conf.checkpoint.best = "accuracy";
    course_begin(&c, &job, NULL);
    ck_assert(!course_checkpoint(&c));                    /* nothing is done yet */
    course_text(&c, &got, 1);
    ck_assert(course_checkpoint(&c));
    course_text(&c, &got, 1);
    ck_assert(!course_checkpoint(&c));
    course_text(&c, &got, 1);
    ck_assert(course_checkpoint(&c));
    course_text(&c, &got, 1000);
    ck_assert_str_eq(got.s, "T20 C T20 C T10 E20 E13! ");
    course_judged(&c, true, false);
    course_text(&c, &got, 1000);
    ck_assert_str_eq(got.s, "T20 C T20 C T10 E20 E13! C T20 T20 T10 E20 E13! ");
    course_judged(&c, false, false);
    course_text(&c, &got, 1000);
    ck_assert_str_eq(got.s, "T20 C T20 C T10 E20 E13! C T20 T20 T10 E20 E13! C S X ");
    text_free(&got);
}
END_TEST

/* Enough evaluations: the step is the last one, and its checkpoint and weights follow. */
START_TEST(course_ends_when_it_is_enough)
{
    struct course c;
    struct text got = {0};
    job_by_hand();
    conf.train.evaluate_every = 1;
    conf.checkpoint.best = "loss";
    course_begin(&c, &job, NULL);
    course_text(&c, &got, 1000);
    course_judged(&c, true, false);
    course_text(&c, &got, 1000);
    course_judged(&c, false, true);
    course_text(&c, &got, 1000);
    ck_assert_str_eq(got.s, "T20 E20 E13! C T20 E20 E13! C S X ");
    text_free(&got);
    course_begin(&c, &job, &(struct ckpt){.step = 2, .position = 40});
    course_enough(&c);                                    /* it is known from the checkpoint */
    course_text(&c, &got, 1000);
    ck_assert_str_eq(got.s, "S X ");
    text_free(&got);
}
END_TEST

START_TEST(course_counts_steps_and_epochs)
{
    struct course c;
    struct task *t;
    static const uint64_t epoch[] = {1, 1, 1, 2, 2, 2}, position[] = {0, 20, 40, 50, 70, 90};
    job_by_hand();
    course_begin(&c, &job, NULL);
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
    course_begin(&c, &job, NULL);
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
    struct course c = {.job = &job, .conf = &conf};
    job_by_hand();
    conf.train.schedule = "step";
    conf.train.gamma = 0.5;
    conf.train.milestones = (struct conf_ints){2, {2, 3}};
    ck_assert(course_rate(&c, 2) == 1);
    ck_assert(course_rate(&c, 3) == 0.5);
    ck_assert(course_rate(&c, 4) == 0.25);
    struct rates rates = {0};
    rates_add(&rates, &(struct rate_from){3, true, 4});   /* what is set goes through the schedule, too */
    c.rates = &rates;
    ck_assert(course_rate(&c, 2) == 1 && course_rate(&c, 3) == 2 && course_rate(&c, 4) == 1);
    rates_free(&rates);
    static struct conf before, behind;                    /* reloaded from step 3 on, once more from step 5 on */
    before = behind = conf;
    before.train.gamma = 1;
    behind.train.learning_rate = 8;
    rates.before = &before;
    *vec_push(&rates.w) = (struct rate_change){3, NULL, &conf};
    *vec_push(&rates.w) = (struct rate_change){5, NULL, &behind};
    ck_assert(course_rate(&c, 2) == 1 && course_rate(&c, 3) == 0.5 && course_rate(&c, 4) == 0.25);
    ck_assert(course_rate(&c, 5) == 2);
    ck_assert(course_conf(&c, 2) == &before && course_conf(&c, 99) == &behind);
    rates_free(&rates);
    c.rates = NULL;
    conf.train.schedule = "constant";
    ck_assert(course_rate(&c, 9) == 1);
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
    ck_assert(score_mean(s.score, 1) == 0.75 && score_mean(s.score, 2) == 0.8 && isnan(score_mean(s.score, 3)));
    ck_assert(score_mean(&s.score[3], 0) == 0);          /* a loss of nothing */
    ck_assert(s.samples == 10 && s.ns == 14);
    free(r);
}
END_TEST

int main(void)
{
    TCase *t = tcase_create("pure");
    tcase_add_test(t, options_become_overrides);
    tcase_add_loop_test(t, wrong_command_lines, 0, sizeof wrong / sizeof *wrong);
    tcase_add_test(t, every_option_is_in_help_and_manual);
    tcase_add_test(t, ring_keeps_order_and_bounds);
    tcase_add_test(t, course_by_epochs);
    tcase_add_test(t, course_by_steps);
    tcase_add_test(t, course_at_the_end_of_epochs);
    tcase_add_test(t, course_dumps_gradients_once);
    tcase_add_test(t, course_of_evaluation_only);
    tcase_add_test(t, course_stops);
    tcase_add_test(t, course_with_checkpoints);
    tcase_add_test(t, course_goes_on);
    tcase_add_test(t, course_stops_with_a_checkpoint);
    tcase_add_test(t, course_takes_orders_back);
    tcase_add_loop_test(t, course_goes_back, 0, 10);
    tcase_add_loop_test(t, course_stops_while_it_goes_back, 0, 3);
    tcase_add_test(t, course_checkpoints_when_asked);
    tcase_add_loop_test(t, course_stops_while_it_judges, 0, 6);
    tcase_add_test(t, course_ends_when_it_is_enough);
    tcase_add_test(t, course_counts_steps_and_epochs);
    tcase_add_test(t, orders_say_what_samples_weigh);
    tcase_add_test(t, step_rate);
    tcase_add_test(t, accounts_add_up);
    tcase_add_test(t, sums_are_of_all_ranks);
    return suite_run("daemon", CK_FORK, t);
}
