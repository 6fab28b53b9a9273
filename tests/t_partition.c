/* How a job's network is cut for its ranks: what is merged, which policies depend on ranks, errors, and a search for a
 * cut together with recomputation. */
#include <stdio.h>
#include <string.h>
#include "job/job.h"
#include "sure.h"

/* 0, or -1 with the error. job_done in either case. */
static int planned(struct job *j, const char *pipeline, int n_ranks, struct err *e)
{
    char text[400];
    snprintf(text, sizeof text,
             "run { device = reference }\nmodel { network = resnet18 input = {3, 32, 32} }\n"
             "data { source = synthetic }\ntrain { steps = 1 batch_size = 8 split_size = 2 }\npipeline { %s }\n",
             pipeline);
    struct conf *c = conf_parse("c.conf", text, strlen(text), e);
    *j = (struct job){.conf = c};
    ck_assert_msg(c && !conf_finish(c, e) && !job_device(j, e) && !job_model(j, e), "%s", e->text);
    return job_plan_only(j, n_ranks, e);
}

static void job_done(struct job *j)
{
    struct conf *c = (struct conf *)(uintptr_t)j->conf;
    job_free(j);
    conf_free(c);
}

/* Fewer ranks than stages run neighbouring stages as one, each cut where it was. */
START_TEST(neighbours_are_merged)
{
    struct err e = {0};
    struct job four, two;
    ck_assert_msg(!planned(&four, "stages = 4", 4, &e) && !planned(&two, "stages = 4", 2, &e), "%s", e.text);
    ck_assert(four.n_merged == 0 && four.n_stages == 4 && two.n_merged == 4 && two.n_stages == 2);
    for (int i = 0; i <= 2; i++) ck_assert_int_eq(two.first_group[i], four.first_group[2 * i]);
    for (int i = 0; i < 2; i++) ck_assert(two.pl->map.rank_of[i] == i && two.pl->map.n_stages_of[i] == 1);
    ck_assert(!plan_check(two.plan[0], &e) && two.plan[0]->n_ranks == 2);
    job_done(&four);
    job_done(&two);
}
END_TEST

/* Those that know the ranks' limits cut for ranks at once. */
static const char *const by_rank[] = {"sequential", "balanced", "balanced_low_0", "auto"};

START_TEST(policies_by_rank_cut_for_ranks)
{
    char text[100];
    struct err e = {0};
    struct job j;
    snprintf(text, sizeof text, "partition = %s stages = 4 max_memory = {1GB, 2GB}", by_rank[_i]);
    ck_assert_msg(!planned(&j, text, 2, &e), "%s", e.text);
    ck_assert(j.n_merged == 4 && j.n_stages == 2 && j.mesh.size[AXIS_PP] == 2 && j.first_group[2] == j.sel->n_groups);
    ck_assert_int_eq(j.found.plans > 0, !strcmp(by_rank[_i], "auto"));
    job_done(&j);
}
END_TEST

/* A schedule that wants several stages a rank gets them under every policy that leaves none empty. */
START_TEST(chunks_are_not_merged)
{
    static const char *const policy[] = {"uniform", "sequential", "balanced", "auto"};
    static const struct { const char *schedule; int rank_of[4]; } way[] = {
        {"interleaved", {0, 1, 0, 1}}, {"zb-v", {0, 1, 1, 0}}, {"auto", {0, 1, 1, 0}}};
    char text[160];
    struct err e = {0};
    struct job j;
    for (int k = 0; k < 12; k++) {
        snprintf(text, sizeof text, "schedule = %s partition = %s stages = 4%s", way[k % 3].schedule, policy[k / 3],
                 k / 3 == 1 ? " max_memory = 28MB count_bytes = weights" : "");
        ck_assert_msg(!planned(&j, text, 2, &e), "%s: %s", text, e.text);
        ck_assert(j.n_merged == 0 && j.n_stages == 4 && j.mesh.size[AXIS_PP] == 2);
        for (int i = 0; i < 4; i++) ck_assert_int_eq(j.plan[0]->stage[i].rank, way[k % 3].rank_of[i]);
        job_done(&j);
    }
}
END_TEST

static const struct { const char *pipeline; int ranks; const char *why; } wrong[] = {
    {"stages = 2", 3, "pipeline.stages: 3|2"},
    {"stages = 1", 2, "pipeline.stages: 2|1"},
    {"stages = 400", 0, "pipeline.stages: 400"},
    {"stages = 2 recompute = auto", 0, "pipeline.recompute:|pipeline.max_memory"},
    {"stages = 3 partition = balanced max_memory = {1GB, 2GB}", 0, "pipeline.max_memory: 2 sizes for 3 ranks"},
    {"schedule = interleaved stages = 3", 2,
     "pipeline.stages: 3|2|\"interleaved\""},
    {"schedule = zb-v stages = 6", 4, "pipeline.stages: 6|4|\"zb-v\""},
    {"schedule = zb-v stages = 4 partition = sequential max_memory = 1GB", 2,
     "pipeline.partition: \"sequential\"|1|4"},
    {"schedule = auto stages = 4 partition = balanced_low_0", 2,
     "pipeline.partition: \"balanced_low_0\"|0|4"},
};

START_TEST(cuts_that_are_refused)
{
    struct err e = {0};
    struct job j;
    ck_assert(planned(&j, wrong[_i].pipeline, wrong[_i].ranks, &e));
    ck_assert_msg(e.code == E_CONF && says(e.text, wrong[_i].why), "%d \"%s\"", e.code, e.text);
    job_done(&j);
}
END_TEST

static uint64_t largest(const struct job *j)
{
    uint64_t most = 0;
    for (int r = 0; r < j->mesh.size[AXIS_PP]; r++) {
        uint64_t bytes = plan_rank_bytes(j->plan[0], r);
        if (bytes > most) most = bytes;
    }
    return most;
}

/* With less memory than it needs as it is, blocks are recomputed, and cut and blocks are those of a plan that fits. */
START_TEST(cut_and_recomputation_are_one)
{
    char text[160];
    struct err e = {0};
    struct job all, less;
    int recompute = 0;
    ck_assert_msg(!planned(&all, "stages = 2 partition = auto schedule = gpipe", 2, &e), "%s", e.text);
    uint64_t limit = largest(&all) / 100 * 97;
    snprintf(text, sizeof text, "stages = 2 partition = auto schedule = gpipe recompute = auto max_memory = %llu",
             (unsigned long long)limit);
    ck_assert_msg(!planned(&less, text, 2, &e), "%s", e.text);
    for (int g = 0; g < less.sel->n_groups; g++) recompute += less.recompute[g];
    ck_assert_msg(less.found.plans >= 3 && less.found.fits && largest(&less) <= limit, "%d plans, %llu bytes of %llu",
                  less.found.plans, (unsigned long long)largest(&less), (unsigned long long)limit);
    ck_assert(recompute > 0 || less.first_group[1] != all.first_group[1]);
    ck_assert(less.found.ns > 0 && !plan_check(less.plan[0], &e));
    job_done(&all);
    job_done(&less);
}
END_TEST

int main(void)
{
    TCase *t = suite_case("cut", 60);
    tcase_add_test(t, neighbours_are_merged);
    tcase_add_loop_test(t, policies_by_rank_cut_for_ranks, 0, N_OF(by_rank));
    tcase_add_test(t, chunks_are_not_merged);
    tcase_add_loop_test(t, cuts_that_are_refused, 0, N_OF(wrong));
    tcase_add_test(t, cut_and_recomputation_are_one);
    return suite_run("cut", CK_FORK, t);
}
