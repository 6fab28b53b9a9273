/* Learning rates of steps against torch.optim.lr_scheduler (1.13), which printed the numbers: SequentialLR of
 * LinearLR(start_factor, total_iters = warm-up) and the schedule. */
#include <math.h>
#include <stdio.h>
#include "conf_rig.h"
#include "optim/rate.h"

static const struct rate_case {
    const char *train; double end; uint64_t steps, samples; bool wrap; int n; double rate[12];
} cases[] = {
    {"schedule = cosine warmup_steps = 4 warmup_factor = 0.1 learning_rate_end = 0.05", .steps = 12, .n = 12,
     .rate = {.05, .1625, .275, .3875, .5, .48287289481503953, .4340990257669732, .36110377228214524, .275,
              .18889622771785486, .11590097423302685, .0671271051849605}},
    {"schedule = polynomial power = 2 warmup_steps = 2", .steps = 8, .n = 8,
     .rate = {.005, .2525, .5, .34722222222222227, .2222222222222223, .125, .05555555555555558,
              .013888888888888886}},
    {"schedule = step step_size = 3", .steps = 8, .n = 8, .rate = {.5, .5, .5, .05, .05, .05, .005, .005}},
    {"schedule = step milestones = {2, 5} gamma = 0.5", .steps = 8, .n = 8,
     .rate = {.5, .5, .25, .25, .25, .125, .125, .125}},
    {"schedule = linear learning_rate_end = 0.1", .steps = 6, .n = 6,
     .rate = {.5, .43333333333333335, .3666666666666667, .3, .23333333333333328, .1666666666666666}},
    /* CosineAnnealingLR(3) behind two epochs of warm-up, once an epoch: 50 samples are two batches of 20 and a short
     * one */
    {"schedule = cosine schedule_by = epoch warmup_epochs = 1 warmup_factor = 0.25", .steps = 12, .samples = 50,
     .n = 12, .rate = {.125, .125, .125, .5, .5, .5, .375, .375, .375, .125, .125, .125}},
    /* epochs of 2.5 steps: the second begins within step 3 (the third), which is counted to the first */
    {"schedule = step schedule_by = epoch step_size = 1", .steps = 5, .samples = 50, .wrap = true, .n = 5,
     .rate = {.5, .5, .5, .05, .05}},
    /* epochs of warm-up that go by step */
    {"schedule = constant warmup_epochs = 2 warmup_factor = 0", .steps = 8, .samples = 40, .n = 6,
     .rate = {0, .125, .25, .375, .5, .5}},
    /* a run that is all warm-up, or one step long */
    {"schedule = cosine warmup_steps = 9 warmup_factor = 0.1", .steps = 3, .n = 3, .rate = {.05, .1, .15}},
    {"schedule = linear", .steps = 1, .n = 1, .rate = {.5}},
};

static struct conf *conf_of(const char *train)
{
    char text[300];
    snprintf(text, sizeof text, "model { network = toy } data { source = synthetic }\n"
             "train { steps = 9 batch_size = 20 learning_rate = 0.5 %s }", train);
    return finished(text);
}

/* wrap: batches go on over the end of an epoch */
static struct rate_time time_of(uint64_t step, uint64_t samples, bool wrap)
{
    uint64_t an_epoch = (samples + 19) / 20;
    return (struct rate_time){step, !samples ? 0 : wrap ? (step - 1) * 20 / samples : (step - 1) / an_epoch};
}

static struct rate_run run_of(const struct conf *c, uint64_t steps, uint64_t samples, bool wrap)
{
    return (struct rate_run){.conf = c, .steps = steps, .epochs = time_of(steps, samples, wrap).epoch + 1,
                             .warm = (uint64_t)c->train.warmup_epochs * ((samples + 19) / 20)};
}

START_TEST(live_settings_are_torchs)
{
    const struct rate_case *k = &cases[_i];
    struct conf *c = conf_of(k->train);
    struct rate_run r = run_of(c, k->steps, k->samples, k->wrap);
    for (int i = k->n - 1; i >= 0; i--) {                /* backwards: no step knows of another */
        double got = rate_at(&r, 0.5, time_of((uint64_t)i + 1, k->samples, k->wrap));
        ck_assert_msg(fabs(got - k->rate[i]) <= 1e-9, "%s: step %d: %.17g, not %.17g", k->train, i + 1, got,
                      k->rate[i]);
    }
    conf_free(c);
}
END_TEST

START_TEST(the_end_is_kept)
{
    static const char *const falling[] = {"cosine", "linear", "polynomial"};
    char text[80];
    for (int i = 0; i < 3; i++) {
        snprintf(text, sizeof text, "schedule = %s learning_rate_end = 0.125", falling[i]);
        struct conf *c = conf_of(text);
        struct rate_run r = run_of(c, 4, 0, false);
        for (uint64_t step = 5; step < 20; step++)
            ck_assert(fabs(rate_at(&r, 0.5, (struct rate_time){step, 0}) - 0.125) < 1e-15);
        conf_free(c);
    }
}
END_TEST

START_TEST(a_warm_up_ends_or_not)
{
    static const struct { const char *train; uint64_t steps, samples; bool at_the_end; } of[] = {
        {"warmup_steps = 8", 9, 0, false}, {"warmup_steps = 9", 9, 0, true}, {"warmup_steps = 8", 8, 0, true},
        {"", 1, 0, false}, {"warmup_epochs = 2", 4, 40, true}, {"warmup_epochs = 2", 5, 40, false},
        {"schedule_by = epoch warmup_epochs = 2", 4, 40, true}, {"schedule_by = epoch warmup_epochs = 2", 5, 40, false},
    };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        struct conf *c = conf_of(of[i].train);
        struct rate_run r = run_of(c, of[i].steps, of[i].samples, false);
        struct rate_time last = time_of(r.steps, of[i].samples, false);
        ck_assert_msg(rate_warms(&r, last) == of[i].at_the_end, "%s, %d steps", of[i].train, (int)r.steps);
        conf_free(c);
    }
}
END_TEST

int main(void)
{
    TCase *t = tcase_create("rate");
    tcase_add_loop_test(t, live_settings_are_torchs, 0, (int)(sizeof cases / sizeof *cases));
    tcase_add_test(t, the_end_is_kept);
    tcase_add_test(t, a_warm_up_ends_or_not);
    return suite_run("rate", CK_FORK, t);
}
