/* The next order of a run, and its samples. */
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "train/sequencer.h"
#include "data/ds.h"
#include "sure.h"

/* ---- sample order ------------------------------------------------------------------------------------------------ */

START_TEST(order_in_file_order)
{
    int64_t id[8];
    uint64_t epoch;
    struct feed_order wrap = {.count = 10, .end = FEED_FILL}, stop = {.count = 10};
    ck_assert_int_eq(feed_batch(&wrap, 8, 4, id, &epoch), 4);
    ck_assert(id[0] == 8 && id[1] == 9 && id[2] == 0 && id[3] == 1 && epoch == 0);
    ck_assert_int_eq(feed_batch(&stop, 8, 4, id, &epoch), 2);
    ck_assert(id[0] == 8 && id[1] == 9 && epoch == 0);
    ck_assert_int_eq(feed_batch(&stop, 10, 4, id, &epoch), 4);
    ck_assert(id[0] == 0 && id[3] == 3 && epoch == 1);
    struct feed_order tiny = {.count = 3, .end = FEED_FILL}, none = {.end = FEED_FILL};
    ck_assert_int_eq(feed_batch(&tiny, 2, 8, id, &epoch), 8);
    for (int i = 0; i < 8; i++) ck_assert_int_eq(id[i], (2 + i) % 3);
    ck_assert_int_eq(feed_batch(&none, 2, 8, id, &epoch), 0);
}
END_TEST

/* The ends of epochs: which batches there are, and where they begin. 33 samples and batches of 10, in any order. */
START_TEST(order_at_the_end_of_an_epoch)
{
    static const struct { enum feed_end end; int n[8]; uint64_t at[8], batches[4], taken; } of[] = {
        {FEED_SHORT, {10, 10, 10, 3, 10, 10, 10, 3}, {0, 10, 20, 30, 33, 43, 53, 63}, {0, 4, 8, 12}, 66},
        {FEED_DROP, {10, 10, 10, 10, 10, 10, 10, 10}, {0, 10, 20, 33, 43, 53, 66, 76}, {0, 3, 6, 9}, 80},
        {FEED_FILL, {10, 10, 10, 10, 10, 10, 10, 10}, {0, 10, 20, 30, 40, 50, 60, 70}, {0, 4, 7, 10}, 80},
    };
    for (int k = 0; k < 6; k++) {
        struct feed_order o = {.seed = 7, .count = 33, .shuffle = k >= 3, .end = of[k % 3].end};
        uint64_t at = 0, epoch;
        int seen[33] = {0};
        for (int i = 0; i < 8; i++) {
            int64_t id[10];
            ck_assert_uint_eq(at, of[k % 3].at[i]);
            ck_assert_int_eq(feed_batch(&o, at, 10, id, &epoch), of[k % 3].n[i]);
            ck_assert_uint_eq(epoch, at / 33);
            for (int j = 0; j < of[k % 3].n[i]; j++) seen[id[j]]++;
            at = feed_next(&o, at + (uint64_t)of[k % 3].n[i], 10);
        }
        ck_assert_uint_eq(feed_taken(&o, at, 10), of[k % 3].taken);
        for (uint64_t e = 0; e < 4; e++) ck_assert_uint_eq(feed_batches(&o, 10, e), of[k % 3].batches[e]);
        /* no sample comes a third time before all have come twice, but for those that an epoch leaves out */
        for (int i = 0; i < 33; i++) ck_assert(seen[i] <= 3 && (o.end == FEED_DROP || seen[i] >= 2));
    }
    struct feed_order even = {.count = 30, .end = FEED_DROP}, all = {.count = 7};
    ck_assert_uint_eq(feed_next(&even, 30, 10), 30);
    ck_assert_uint_eq(feed_batches(&even, 10, 3), 9);
    int64_t id[10];
    uint64_t epoch;
    ck_assert_int_eq(feed_batch(&all, 7, 10, id, &epoch), 7);   /* fewer samples than a batch has */
    ck_assert(epoch == 1 && feed_batches(&all, 10, 3) == 3);
}
END_TEST

START_TEST(order_shuffled)
{
    struct feed_order o = {.seed = 5, .count = 103, .shuffle = true}, other = o;
    int64_t first[103], id[20];
    uint64_t epoch, at = 0;
    int moved = 0, differs = 0;
    for (uint64_t e = 0; e < 3; e++) {
        char seen[103] = {0};
        for (int k = 0; k < 6; k++) {
            int n = feed_batch(&o, at, 20, id, &epoch);
            ck_assert_int_eq(n, k < 5 ? 20 : 3);
            ck_assert_uint_eq(epoch, e);
            for (int i = 0; i < n; i++) {
                ck_assert_int_eq(seen[id[i]]++, 0);
                if (!e) first[k * 20 + i] = id[i];
                moved += e && id[i] != first[k * 20 + i];
            }
            at += (uint64_t)n;
        }
    }
    ck_assert_uint_eq(at, 309);
    ck_assert_int_gt(moved, 150);                        /* two permutations of 103 agree in one place on average */
    other.seed = 6;
    feed_batch(&other, 0, 20, id, &epoch);
    for (int i = 0; i < 20; i++) differs += id[i] != first[i];
    ck_assert_int_gt(differs, 10);
    feed_batch(&o, 40, 20, id, &epoch);                  /* from the cursor alone, as after a resume */
    ck_assert_mem_eq(id, first + 40, sizeof id);
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
    conf.train.schedule = RATE_constant;
    job = (struct job){.conf = &conf, .count = {50, 33}, .max_batch = 20, .n_plans = 4};
    int batch[PLAN_KINDS] = {20, 10, 20, 13};
    for (int k = 0; k < PLAN_KINDS; k++) { job.batch[k] = batch[k]; job.plan_of[k] = k; }
}

/* The whole course in letters: T20 E20 E13! ... S X. */
static void sequencer_text(struct sequencer *c, struct text *out, int max)
{
    struct task *t = mem_alloc(task_bytes(&job));
    for (int i = 0; i < max && sequencer_next(c, t); i++) {
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
    struct sequencer c;
    struct text got = {0};
    sequencer_begin(&c, &job, NULL);
    sequencer_text(&c, &got, 1000);
    ck_assert_str_eq(got.s, want);
    text_free(&got);
}

START_TEST(sequencer_by_epochs)
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

START_TEST(sequencer_by_steps)
{
    job_by_hand();
    job.count[DS_TEST] = 0;
    conf.train.steps = 4;
    for (int shuffle = 0; shuffle < 2; shuffle++) {       /* the first steps of any run, in whatever order */
        conf.data.shuffle = shuffle;
        conf.train.last_batch = LAST_BATCH_SHORT;
        check_course("T20 T20 T10 T20 S X ");
        conf.train.last_batch = LAST_BATCH_FILL;
        check_course("T20 T20 T20 T20 S X ");
        conf.train.last_batch = LAST_BATCH_DROP;
        check_course("T20 T20 T20 T20 S X ");
    }
    job.count[DS_TEST] = 33;
    conf.train.evaluate_epochs = 1;
    conf.train.last_batch = LAST_BATCH_FILL;                       /* the first epoch ends within step 3 */
    check_course("T20 T20 T20 E20 E13! T20 E20 E13! S X ");
    conf.train.last_batch = LAST_BATCH_DROP;                       /* behind step 2 */
    check_course("T20 T20 E20 E13! T20 T20 E20 E13! S X ");
}
END_TEST

START_TEST(sequencer_at_the_end_of_epochs)
{
    struct sequencer c;
    struct text got = {0};
    job_by_hand();
    job.count[DS_TEST] = 0;
    conf.train.last_batch = LAST_BATCH_DROP;
    check_course("T20 T20 T20 T20 S X ");
    conf.train.last_batch = LAST_BATCH_FILL;
    check_course("T20 T20 T20 T20 T20 S X ");
    /* from a checkpoint of a run that had no such setting, or another batch size */
    conf.train.steps = 6;
    conf.train.last_batch = LAST_BATCH_DROP;
    sequencer_begin(&c, &job, &(struct ckpt){.step = 4, .position = 70});
    sequencer_text(&c, &got, 1000);
    ck_assert_str_eq(got.s, "T20 T20 S X ");
    ck_assert_uint_eq(c.position, 120);
    ck_assert_uint_eq(sequencer_samples(&job, c.position), 100);
    text_free(&got);
    sequencer_begin(&c, &job, &(struct ckpt){.step = 4, .position = 90}); /* nothing is left of that epoch */
    ck_assert_uint_eq(c.position, 100);
    conf.train.last_batch = LAST_BATCH_FILL;
    sequencer_begin(&c, &job, &(struct ckpt){.step = 4, .position = 93});
    ck_assert_uint_eq(c.position, 93);
}
END_TEST

START_TEST(sequencer_dumps_gradients_once)
{
    job_by_hand();
    job.count[DS_TEST] = 0;
    conf.run.dump_gradients = "g.safetensors";
    check_course("T20 S T20 T10 T20 T20 T10 S X ");
}
END_TEST

START_TEST(sequencer_of_evaluation_only)
{
    job_by_hand();
    conf.run.evaluate = true;
    check_course("E20 E13! X ");
}
END_TEST

START_TEST(sequencer_stops)
{
    struct sequencer c;
    struct text got = {0};
    job_by_hand();
    sequencer_begin(&c, &job, NULL);
    sequencer_text(&c, &got, 2);
    sequencer_stop(&c, STOP_WEIGHTS);
    sequencer_text(&c, &got, 1000);
    ck_assert_str_eq(got.s, "T20 T20 S X ");
    text_free(&got);
}
END_TEST

START_TEST(sequencer_with_checkpoints)
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
START_TEST(sequencer_goes_on)
{
    struct sequencer c;
    struct text got = {0};
    struct ckpt from = {.step = 4, .position = 70};
    job_by_hand();
    conf.checkpoint.every_steps = 4;
    conf.train.evaluate_every = 4;
    for (int due = 0; due < 2; due++) {
        from.evaluate = due;
        got.n = 0;
        sequencer_begin(&c, &job, &from);
        sequencer_text(&c, &got, 1000);
        ck_assert_str_eq(got.s, due ? "E20 E13! T20 T10 E20 E13! C S X " : "T20 T10 E20 E13! C S X ");
        ck_assert_uint_eq(c.position, 100);
    }
    from = (struct ckpt){.step = 6, .position = 100};     /* of the last step: only weights are missing */
    got.n = 0;
    sequencer_begin(&c, &job, &from);
    sequencer_text(&c, &got, 1000);
    ck_assert_str_eq(got.s, "S X ");
    from = (struct ckpt){.step = 4, .position = 66};      /* of batches of another size */
    got.n = 0;
    sequencer_begin(&c, &job, &from);
    sequencer_text(&c, &got, 1000);
    ck_assert_str_eq(got.s, "T20 T10 E20 E13! C S X ");
    text_free(&got);
}
END_TEST

/* One that was asked for before is written in any case. */
START_TEST(sequencer_stops_with_a_checkpoint)
{
    static const struct { enum sequencer_stop how; const char *want; bool asked; } of[] = {
        {STOP_WEIGHTS, "T20 T20 S X "}, {STOP_CHECKPOINT, "T20 T20 C S X "}, {STOP_RESUMABLE, "T20 T20 C X "},
        {STOP_WEIGHTS, "T20 T20 C S X ", true}};
    for (size_t i = 0; i < 4; i++) {
        struct sequencer c;
        struct text got = {0};
        job_by_hand();
        sequencer_begin(&c, &job, NULL);
        sequencer_text(&c, &got, 2);
        if (of[i].asked) ck_assert(sequencer_checkpoint(&c));
        sequencer_stop(&c, of[i].how);
        sequencer_text(&c, &got, 1000);
        ck_assert_str_eq(got.s, of[i].want);
        text_free(&got);
    }
}
END_TEST

/* Orders that nobody has heard of are taken back with the sequence before them: the checkpoint is of the step before.
 * */
START_TEST(sequencer_takes_orders_back)
{
    struct sequencer c;
    job_by_hand();
    struct task *t = mem_alloc(task_bytes(&job));
    sequencer_begin(&c, &job, NULL);
    ck_assert(sequencer_next(&c, t) && t->o.kind == ORDER_TRAIN);
    struct sequencer before = c;
    for (int i = 0; i < 2; i++) ck_assert(sequencer_next(&c, t) && t->o.kind == ORDER_TRAIN);
    c = before;
    sequencer_stop(&c, STOP_RESUMABLE);
    ck_assert(sequencer_next(&c, t) && t->o.kind == ORDER_CHECKPOINT);
    ck_assert(t->o.step == 1 && t->o.position == 20 && t->o.what == 0);
    free(t);
}
END_TEST

/* Step 3 of a run with checkpoints every two steps was bad: whatever was ordered behind it is given up, nothing is
 * ordered until the checkpoint is known, and then steps go on from there with the samples behind the bad batch. _i:
 * orders given behind it, to the last one of the run. */
START_TEST(sequencer_goes_back)
{
    struct sequencer c;
    struct text got = {0};
    job_by_hand();
    conf.checkpoint.every_steps = 2;
    conf.train.evaluate_every = 3;
    sequencer_begin(&c, &job, NULL);
    sequencer_text(&c, &got, 4 + _i);
    sequencer_fault(&c);
    ck_assert(!sequencer_next(&c, NULL));
    got.n = 0;
    sequencer_back(&c, 2, 50);
    ck_assert(!sequencer_checkpoint(&c));                 /* there is one of that step */
    struct sequencer before = c;
    sequencer_text(&c, &got, 1);
    ck_assert_str_eq(got.s, "R ");
    ck_assert(c.step == 2 && c.position == 50 && c.epoch == 1);
    c = before;                                           /* the order is taken back, and comes again */
    sequencer_text(&c, &got, 1000);
    ck_assert_str_eq(got.s, "R R ");                      /* it may be damaged, and then an older one is tried */
    sequencer_back(&c, 2, 50);
    sequencer_text(&c, &got, 1000);
    ck_assert_str_eq(got.s, "R R R ");
    sequencer_restored(&c);
    sequencer_text(&c, &got, 1000);
    ck_assert_str_eq(got.s, "R R R T20 E20 E13! T20 C T10 T20 E20 E13! C S X ");
    ck_assert_uint_eq(c.position, 120);
    text_free(&got);
}
END_TEST

/* A run that is told to stop while it goes back, or before, ends behind that: there is a checkpoint. _i: how */
START_TEST(sequencer_stops_while_it_goes_back)
{
    static const char *const want[] = {"T20 R S X ", "T20 R S X ", "T20 R X "};
    for (int when = 0; when < 4; when++) {
        struct sequencer c;
        struct text got = {0};
        job_by_hand();
        sequencer_begin(&c, &job, NULL);
        sequencer_text(&c, &got, 1);
        if (when == 0) sequencer_stop(&c, (enum sequencer_stop)_i);
        sequencer_fault(&c);
        if (when == 1) sequencer_stop(&c, (enum sequencer_stop)_i);
        ck_assert(!sequencer_next(&c, NULL));
        sequencer_back(&c, 1, 40);
        if (when == 2) sequencer_stop(&c, (enum sequencer_stop)_i);
        sequencer_text(&c, &got, 1);
        if (when == 3) sequencer_stop(&c, (enum sequencer_stop)_i);
        sequencer_restored(&c);
        sequencer_text(&c, &got, 1000);
        ck_assert_str_eq(got.s, want[_i]);
        text_free(&got);
    }
}
END_TEST

/* A course that is told to stop while an evaluation is judged waits for that, and then saves, because it makes
 * checkpoints. _i: how; + 3: it was the best one */
START_TEST(sequencer_stops_while_it_judges)
{
    static const char *const want[] = {"C S X ", "C S X ", "C X ", "C S X ", "C S X ", "C X "};
    struct sequencer c;
    struct text got = {0};
    job_by_hand();
    conf.train.evaluate_every = 1;
    conf.checkpoint.best = "loss";
    sequencer_begin(&c, &job, NULL);
    sequencer_text(&c, &got, 1000);
    ck_assert(c.phase == SEQUENCER_AWAIT_SCORE && sequencer_saves_step(&c) == 0);
    sequencer_stop(&c, (enum sequencer_stop)(_i % 3));
    ck_assert(!sequencer_next(&c, NULL) && sequencer_saves_step(&c) == 1);
    got.n = 0;
    sequencer_scored(&c, _i >= 3, false);
    ck_assert(sequencer_saves_step(&c) == 1);             /* also before it is ordered */
    sequencer_text(&c, &got, 1000);
    ck_assert_str_eq(got.s, want[_i]);
    text_free(&got);
}
END_TEST

/* A wanted checkpoint comes at the next border, once for each step; with a best score the sequencer waits for it. */
START_TEST(sequencer_checkpoints_when_asked)
{
    struct sequencer c;
    struct text got = {0};
    job_by_hand();
    conf.train.evaluate_every = 3;
    conf.checkpoint.best = "accuracy";
    sequencer_begin(&c, &job, NULL);
    ck_assert(!sequencer_checkpoint(&c));                 /* nothing is done yet */
    sequencer_text(&c, &got, 1);
    ck_assert(sequencer_checkpoint(&c));
    sequencer_text(&c, &got, 1);
    ck_assert(!sequencer_checkpoint(&c));
    sequencer_text(&c, &got, 1);
    ck_assert(sequencer_checkpoint(&c));
    sequencer_text(&c, &got, 1000);
    ck_assert_str_eq(got.s, "T20 C T20 C T10 E20 E13! ");
    sequencer_scored(&c, true, false);
    sequencer_text(&c, &got, 1000);
    ck_assert_str_eq(got.s, "T20 C T20 C T10 E20 E13! C T20 T20 T10 E20 E13! ");
    sequencer_scored(&c, false, false);
    sequencer_text(&c, &got, 1000);
    ck_assert_str_eq(got.s, "T20 C T20 C T10 E20 E13! C T20 T20 T10 E20 E13! C S X ");
    text_free(&got);
}
END_TEST

/* Enough evaluations: the step is the last one, and its checkpoint and weights follow. */
START_TEST(sequencer_ends_when_it_is_enough)
{
    struct sequencer c;
    struct text got = {0};
    job_by_hand();
    conf.train.evaluate_every = 1;
    conf.checkpoint.best = "loss";
    sequencer_begin(&c, &job, NULL);
    sequencer_text(&c, &got, 1000);
    sequencer_scored(&c, true, false);
    sequencer_text(&c, &got, 1000);
    sequencer_scored(&c, false, true);
    sequencer_text(&c, &got, 1000);
    ck_assert_str_eq(got.s, "T20 E20 E13! C T20 E20 E13! C S X ");
    text_free(&got);
    sequencer_begin(&c, &job, &(struct ckpt){.step = 2, .position = 40});
    sequencer_enough(&c);                                 /* it is known from the checkpoint */
    sequencer_text(&c, &got, 1000);
    ck_assert_str_eq(got.s, "S X ");
    text_free(&got);
}
END_TEST

START_TEST(sequencer_counts_steps_and_epochs)
{
    struct sequencer c;
    struct task *t;
    static const uint64_t epoch[] = {1, 1, 1, 2, 2, 2}, position[] = {0, 20, 40, 50, 70, 90};
    job_by_hand();
    sequencer_begin(&c, &job, NULL);
    t = mem_alloc(task_bytes(&job));
    for (uint64_t i = 0; i < 6; i++) {
        ck_assert(sequencer_next(&c, t));
        ck_assert_uint_eq(t->o.step, i + 1);
        ck_assert_uint_eq(t->epoch, epoch[i]);
        ck_assert_int_eq((int)t->id[0], (int)(i % 3 * 20));
        ck_assert_uint_eq(t->o.position, position[i]);
    }
    for (uint64_t i = 0; i < 2; i++) {                   /* an evaluation begins anew, each time */
        ck_assert(sequencer_next(&c, t) && t->o.kind == ORDER_EVAL);
        ck_assert_uint_eq(t->o.position, i * 20);
    }
    free(t);
}
END_TEST

static double weight_probe(const struct ds *d, uint64_t index, uint64_t visit) { return (double)(index % 4) / 2; }

START_TEST(orders_say_what_samples_weigh)
{
    static const struct ds_kind kind = {.name = "probe", .weight = weight_probe};
    struct ds probe = {&kind};
    struct sequencer c;
    struct task *t;
    job_by_hand();
    conf.train.epochs = 1;
    job.data[DS_TEST] = &probe;
    sequencer_begin(&c, &job, NULL);
    t = mem_alloc(task_bytes(&job));
    for (int i = 0; i < 5; i++) {
        static const double sum[] = {20, 20, 10, 15, 9};   /* 5 times 0 + .5 + 1 + 1.5; three times, and sample 32 */
        ck_assert(sequencer_next(&c, t));
        ck_assert_msg(t->o.weight == sum[i], "%d: %g", i, t->o.weight);
    }
    free(t);
}
END_TEST

/* What is not known yet of the steps before: rates for each number of skips; and what is known by now. */
START_TEST(orders_have_rates_behind_skips)
{
    struct sequencer c;
    struct known known = {0};
    job_by_hand();
    conf.train.schedule = RATE_step;
    conf.train.gamma = 0.5;
    conf.train.milestones = (struct conf_ints){3, {1, 2, 3}};
    struct task *t = mem_alloc(task_bytes(&job));
    sequencer_begin(&c, &job, NULL);
    c.known = &known;
    for (uint64_t k = 1; k <= 3; k++) {                   /* three at once: of the first nobody has heard */
        ck_assert(sequencer_next(&c, t) && t->o.step == k && t->o.n_skipped == 0);
        for (uint64_t skips = 0; skips < k; skips++)
            ck_assert(order_rate(&t->o, skips) == 1 / (double)(UINT64_C(1) << (k - 1 - skips)));
    }
    known = (struct known){2, 2};                         /* the first two were skipped */
    ck_assert(sequencer_next(&c, t) && t->o.step == 4 && t->o.n_skipped == 2);
    ck_assert(order_rate(&t->o, 2) == 0.5 && order_rate(&t->o, 3) == 1);
    /* by epoch the data decide: step 5 begins in the second one */
    conf.train.schedule_by = SCHEDULE_BY_EPOCH;
    ck_assert(sequencer_next(&c, t) && order_rate(&t->o, 2) == 0.5 && order_rate(&t->o, 3) == 0.5);
    free(t);
}
END_TEST

START_TEST(step_rate)
{
    struct sequencer c = {.job = &job, .conf = &conf};
    job_by_hand();
    conf.train.schedule = RATE_step;
    conf.train.gamma = 0.5;
    conf.train.milestones = (struct conf_ints){2, {2, 3}};
    ck_assert(sequencer_rate(&c, 2, 0) == 1);
    ck_assert(sequencer_rate(&c, 3, 0) == 0.5);
    ck_assert(sequencer_rate(&c, 4, 0) == 0.25);
    struct live_settings rates = {0};
    live_settings_add(&rates, &(struct rate_from){3, true, 4}); /* what is set goes through the schedule, too */
    c.rates = &rates;
    ck_assert(sequencer_rate(&c, 2, 0) == 1 && sequencer_rate(&c, 3, 0) == 2 && sequencer_rate(&c, 4, 0) == 1);
    live_settings_free(&rates);
    static struct conf before, behind;                    /* reloaded from step 3 on, once more from step 5 on */
    before = behind = conf;
    before.train.gamma = 1;
    behind.train.learning_rate = 8;
    rates.before = &before;
    *vec_push(&rates.w) = (struct rate_change){3, NULL, &conf};
    *vec_push(&rates.w) = (struct rate_change){5, NULL, &behind};
    ck_assert(sequencer_rate(&c, 2, 0) == 1 && sequencer_rate(&c, 3, 0) == 0.5 && sequencer_rate(&c, 4, 0) == 0.25);
    ck_assert(sequencer_rate(&c, 5, 0) == 2);
    ck_assert(sequencer_conf(&c, 2) == &before && sequencer_conf(&c, 99) == &behind);
    live_settings_free(&rates);
    c.rates = NULL;
    conf.train.schedule = RATE_constant;
    ck_assert(sequencer_rate(&c, 9, 0) == 1);
}
END_TEST
int main(void)
{
    TCase *t = tcase_create("course");
    tcase_add_test(t, order_in_file_order);
    tcase_add_test(t, order_shuffled);
    tcase_add_test(t, order_at_the_end_of_an_epoch);
    tcase_add_test(t, sequencer_by_epochs);
    tcase_add_test(t, sequencer_by_steps);
    tcase_add_test(t, sequencer_at_the_end_of_epochs);
    tcase_add_test(t, sequencer_dumps_gradients_once);
    tcase_add_test(t, sequencer_of_evaluation_only);
    tcase_add_test(t, sequencer_stops);
    tcase_add_test(t, sequencer_with_checkpoints);
    tcase_add_test(t, sequencer_goes_on);
    tcase_add_test(t, sequencer_stops_with_a_checkpoint);
    tcase_add_test(t, sequencer_takes_orders_back);
    tcase_add_loop_test(t, sequencer_goes_back, 0, 10);
    tcase_add_loop_test(t, sequencer_stops_while_it_goes_back, 0, 3);
    tcase_add_test(t, sequencer_checkpoints_when_asked);
    tcase_add_loop_test(t, sequencer_stops_while_it_judges, 0, 6);
    tcase_add_test(t, sequencer_ends_when_it_is_enough);
    tcase_add_test(t, sequencer_counts_steps_and_epochs);
    tcase_add_test(t, orders_say_what_samples_weigh);
    tcase_add_test(t, orders_have_rates_behind_skips);
    tcase_add_test(t, step_rate);
    return suite_run("course", CK_FORK, t);
}
