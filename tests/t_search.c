/* --plan=search: how cores are divided among replicas, ranks and threads, with this test's own costs; what is left out;
 * and that the written configuration plans the step that was found. */
#include <math.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "job/memory_limit.h"
#include "job/search.h"
#include "plan/cost.h"
#include "plan/sim.h"
#include "sure.h"

static const char *written = "found.conf";
static char folder[] = "/tmp/mpstaged-search-XXXXXX", profile[64], found[64];

static struct conf *conf_of(const char *text, struct err *e)
{
    struct conf *c = conf_parse("c.conf", text, strlen(text), e);
    ck_assert_msg(c && !conf_finish(c, e), "%s", e->text);
    return c;
}

static void opened(struct job *j, const char *more, struct err *e)
{
    char text[600];
    snprintf(text, sizeof text,
             "run { device = reference }\nmodel { network = mlp input = {64} hidden = {64, 64, 64} classes = 4 }\n"
             "data { source = synthetic labels = onehot }\n"
             "train { steps = 1 batch_size = 16 split_size = 4 loss = mse }\n%s\n", more);
    *j = (struct job){.conf = conf_of(text, e)};
    ck_assert_msg(!job_device(j, e) && !job_model(j, e), "%s", e->text);
}

static void job_done(struct job *j)
{
    struct conf *c = (struct conf *)(uintptr_t)j->conf;
    job_free(j);
    conf_free(c);
}

/* Each group takes 1 ms a sample, with threads of whom each takes `ns` of it instead; messages are free. */
static struct cost *costs_with(const struct selection *s, int threads, double ns)
{
    struct cost *k = cost_new("test", s->n_groups, 1);
    k->size[0] = 1;
    k->bytes_per_ns = 1e9;
    k->threads = threads;
    for (int i = 0; i < PH_COUNT * k->n_groups; i++) k->ns[i] = ns;
    return k;
}

/* A profile of one thread, and, where more is above 0, of two by which kernels take that long. */
static void profile_write(double more)
{
    struct err e = {0};
    struct job j;
    opened(&j, "pipeline { stages = 2 }", &e);
    ck_assert_msg(!job_plan_only(&j, 2, &e), "%s", e.text);
    struct cost *k = costs_with(j.sel, 1, 1e6);
    if (more > 0) k->other = costs_with(j.sel, 2, more);
    char *json = cost_json(k, j.sel);
    FILE *f = fopen(profile, "w");
    ck_assert(f && fputs(json, f) >= 0 && !fclose(f));
    free(json);
    cost_free(k);
    job_done(&j);
}

static void begin(void)
{
    strcpy(folder, "/tmp/mpstaged-search-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(profile, sizeof profile, "%s/profile.json", folder);
    snprintf(found, sizeof found, "%s/found.conf", folder);
}

static void end(void)
{
    unlink(profile);
    rmdir(folder);
}

/* The answer as JSON, and the best as a configuration. */
static json_t *searched(const char *pipeline, struct text *best, struct err *e)
{
    char more[300];
    struct job j;
    struct text out = {0};
    snprintf(more, sizeof more, "pipeline { profile = \"%s\" %s }", profile, pipeline);
    opened(&j, more, e);
    struct search_request q = {.cores = 4, .json = true, .best = best, .file = written};
    int bad = search_run(&j, &q, &out, e);
    json_t *o = bad ? NULL : json_loads(out.s, 0, NULL);
    ck_assert(bad || o);
    text_free(&out);
    job_done(&j);
    return o;
}

static int number(const json_t *o, const char *key) { return (int)json_integer_value(json_object_get(o, key)); }

static bool is_layout(const json_t *x, int replicas, int ranks, int threads)
{
    return number(x, "replicas") == replicas && number(x, "ranks") == ranks && number(x, "threads") == threads;
}

static double seconds(const json_t *o, int replicas, int ranks, int threads)
{
    size_t i;
    json_t *x;
    json_array_foreach(json_object_get(o, "layouts"), i, x)
        if (is_layout(x, replicas, ranks, threads)) return json_real_value(json_object_get(x, "step_seconds"));
    return -1;
}

/* What a plan of the written configuration takes, on as many ranks as it says. */
static double planned(const struct text *best, int *world, struct err *e)
{
    struct job j = {.conf = conf_of(best->s, e)};
    *world = (int)(j.conf->pipeline.ranks * j.conf->pipeline.replicas);
    ck_assert_msg(!job_device(&j, e) && !job_model(&j, e) && !job_plan(&j, *world, e), "%s", e->text);
    struct sim *s = plan_simulate(j.plan[j.plan_of[PLAN_FULL]], j.cost, e);
    ck_assert_msg(s != NULL, "%s", e->text);
    double step = s->wall_ns * 1e-9;
    sim_free(s);
    job_done(&j);
    return step;
}

/* Where two threads take longer than half of one's time, two replicas halve it; where less, one rank of two is best:
 * 48 group-samples of 3 phases at 1 ms, but for the first layer's input gradient, whoever does them. */
static const struct { double two_threads; int replicas, ranks, threads; const char *command; } way[] = {
    {0.9e6, 2, 1, 1, "mpirun -np 2 mpstaged -c found.conf"},
    {0.4e6, 1, 1, 2, "mpirun -np 1 --bind-to none mpstaged -c found.conf"},
};

START_TEST(cores_are_shared_out_by_costs)
{
    struct err e = {0};
    struct text best = {0};
    int world;
    profile_write(way[_i].two_threads);
    json_t *o = searched("stages = 2", &best, &e);
    ck_assert_msg(o != NULL, "%s", e.text);
    const json_t *first = json_array_get(json_object_get(o, "best"), 0);
    double step = json_real_value(json_object_get(first, "step_seconds"));
    ck_assert(number(o, "ranks") == 2 && number(o, "cores") == 2);
    ck_assert_int_eq(json_array_size(json_object_get(o, "layouts")), 4);
    ck_assert(is_layout(first, way[_i].replicas, way[_i].ranks, way[_i].threads));
    ck_assert_int_eq(number(first, "gradient_groups"), way[_i].replicas);
    ck_assert_str_eq(json_string_value(json_object_get(o, "command")), way[_i].command);
    /* sums of gradients are free here, and groups even: all that one device does is halved, or goes at that rate */
    double one = seconds(o, 1, 1, 1);
    ck_assert_msg(fabs(seconds(o, 2, 1, 1) / one - 0.5) < 1e-9, "%g of %g", seconds(o, 2, 1, 1), one);
    ck_assert_msg(fabs(seconds(o, 1, 1, 2) / one - way[_i].two_threads * 1e-6) < 1e-9, "%g", seconds(o, 1, 1, 2));
    ck_assert(seconds(o, 1, 2, 1) > one / 2 && seconds(o, 1, 2, 1) < one);
    ck_assert(json_real_value(json_object_get(json_object_get(o, "one_device"), "step_seconds")) == one);
    ck_assert(json_real_value(json_object_get(json_object_get(o, "data_parallel"), "step_seconds")) ==
              seconds(o, 2, 1, 1));
    ck_assert_msg(strstr(best.s, way[_i].command) != NULL, "%s", best.s);
    ck_assert(planned(&best, &world, &e) == step && world == way[_i].replicas * way[_i].ranks);
    json_decref(o);
    text_free(&best);
}
END_TEST

START_TEST(threads_that_were_not_measured_are_left_out)
{
    struct err e = {0};
    profile_write(0);
    json_t *o = searched("stages = 2", NULL, &e);
    ck_assert_msg(o != NULL, "%s", e.text);
    ck_assert_int_eq(json_array_size(json_object_get(o, "layouts")), 3);
    ck_assert(seconds(o, 1, 1, 2) < 0 && seconds(o, 2, 1, 1) > 0);
    ck_assert_int_eq(json_integer_value(json_array_get(json_object_get(o, "unmeasured_threads"), 0)), 2);
    json_decref(o);
}
END_TEST

/* Of cores that are asked for, or that there are where nothing says how many ranks. */
static const struct { const char *pipeline; int cores, layouts, ranks; } many[] = {
    {"cores = 4", 4, 6, 1},                                /* one rank of 4 threads has no costs */
    {"", 4, 6, 1},
    {"cores = 1 stages = 1", 1, 1, 1},
    {"stages = 1", 1, 1, 1},
    {"ranks = 3 stages = 3", 3, 2, 3},                     /* replicas are powers of two */
    {"stages = 2 max_memory = {1MiB, 1MiB}", 2, 4, 2},
    {"ranks = 1 replicas = 2", 2, 4, 2},
};

START_TEST(as_many_cores_as_asked)
{
    struct err e = {0};
    char pipeline[200];
    profile_write(0.9e6);
    snprintf(pipeline, sizeof pipeline, "%s", many[_i].pipeline);
    bool replicas = strstr(pipeline, "replicas") != NULL;
    if (replicas) strcat(pipeline, " } train { gradient_groups = 2");
    json_t *o = searched(pipeline, NULL, &e);
    ck_assert_msg(o != NULL, "%s", e.text);
    ck_assert_int_eq(number(o, "cores"), many[_i].cores);
    ck_assert_int_eq(number(o, "ranks"), many[_i].ranks);
    char *text = json_dumps(json_object_get(o, "layouts"), JSON_COMPACT);
    ck_assert_msg((int)json_array_size(json_object_get(o, "layouts")) == many[_i].layouts, "%s", text);
    size_t i;
    json_t *x;
    json_array_foreach(json_object_get(o, "layouts"), i, x) {
        int used = number(x, "replicas") * number(x, "ranks") * number(x, "threads");
        ck_assert(used == many[_i].cores || used == 1);
    }
    free(text);
    json_decref(o);
}
END_TEST

/* No layout is written that needs more than the limit, and the limit decides. */
START_TEST(limits_hold)
{
    struct err e = {0};
    profile_write(0.9e6);
    struct text best = {0};
    json_t *o = searched("stages = 2", NULL, &e), *all = json_object_get(o, "layouts"), *x;
    json_int_t most = 0, least = INT64_MAX;
    size_t i;
    json_array_foreach(all, i, x) {
        json_int_t peak = json_integer_value(json_object_get(x, "peak_bytes"));
        if (is_layout(x, 2, 1, 1)) most = peak;
        if (is_layout(x, 1, 2, 1)) least = peak;
    }
    ck_assert(least < most);
    json_decref(o);
    char pipeline[100];
    snprintf(pipeline, sizeof pipeline, "stages = 2 max_memory = %lld", (long long)(least + 1024));
    o = searched(pipeline, &best, &e);
    ck_assert_msg(o != NULL, "%s", e.text);
    json_array_foreach(json_object_get(o, "best"), i, x)
        ck_assert(json_integer_value(json_object_get(x, "peak_bytes")) <= least + 1024);
    int world;
    ck_assert(planned(&best, &world, &e) > 0);
    json_decref(o);
    text_free(&best);
    ck_assert_ptr_null(searched("stages = 2 max_memory = 1KiB", NULL, &e));
    ck_assert_int_eq(e.code, E_CONF);
}
END_TEST

/* What a plan of one rank and the configured split size needs. */
static int64_t least_memory(const struct conf *c, struct err *e)
{
    struct job j = {.conf = c};
    ck_assert_msg(!job_device(&j, e) && !job_model(&j, e) && !job_plan_only(&j, 1, e), "%s", e->text);
    int64_t bytes = (int64_t)limit_bytes(&j, 0);
    job_free(&j);
    return bytes;
}

/* The configured split size is compared, too, where others would fill the table: of 720 samples more than 15 divisors
 * are larger than 16; of 64 micro-batches at most, as plans take time. */
static const struct { int split; bool tried; } given[] = {{16, true}, {13, true}, {11, false}};
START_TEST(what_is_configured_is_compared)
{
    struct err e = {0};
    struct text out = {0};
    struct job j;
    char more[200];
    profile_write(0);
    snprintf(more, sizeof more, "pipeline { profile = \"%s\" cores = 1 }", profile);
    opened(&j, more, &e);
    struct conf *c = (struct conf *)(uintptr_t)j.conf;
    c->train.batch_size = 720;
    c->train.split_size = given[_i].split;
    struct search_request q = {.json = true};
    /* where larger ones do not fit, unless they recompute, which takes longer */
    c->pipeline.max_memory = (struct conf_ints){.n = 1, .v = {least_memory(c, &e)}};
    int bad = search_run(&j, &q, &out, &e);
    json_t *o = bad ? NULL : json_loads(out.s, 0, NULL);
    const json_t *first = json_array_get(json_object_get(o, "best"), 0);
    ck_assert_msg((!bad && number(first, "split_size") == given[_i].split) == given[_i].tried, "%s", e.text);
    json_decref(o);
    text_free(&out);
    job_done(&j);
}
END_TEST

/* The last word of the command, as a shell takes it. */
static void last_word(const char *command, char *word, size_t room)
{
    char line[300];
    snprintf(line, sizeof line, "mpirun() { for a; do :; done; printf %%s \"$a\"; }; %s", command);
    FILE *f = popen(line, "r");
    ck_assert(f != NULL);
    word[fread(word, 1, room - 1, f)] = 0;
    ck_assert_int_eq(pclose(f), 0);
}

/* What a shell would read something into is quoted. Names of files are no UTF-8 at times; JSON is. */
static const struct { const char *file, *word; bool bare; } names[] = {
    {"a/b-2.conf", "a/b-2.conf", true}, {"my own.conf", "my own.conf", false}, {"it's $1.conf", "it's $1.conf", false},
    {"a;b.conf", "a;b.conf", false}, {"~/a*", "~/a*", false}, {"a\xff.conf", "a\\xff.conf", false},
};

START_TEST(names_are_words_of_a_shell)
{
    struct err e = {0};
    char word[100];
    profile_write(0);
    written = names[_i].file;
    json_t *o = searched("cores = 1", NULL, &e);
    ck_assert_msg(o != NULL, "%s", e.text);
    const char *command = json_string_value(json_object_get(o, "command"));
    last_word(command, word, sizeof word);
    ck_assert_str_eq(word, names[_i].word);
    ck_assert_msg(!strchr(command, '\'') == names[_i].bare, "%s", command);
    json_decref(o);
}
END_TEST

/* More threads than there are cores are no device to compare with. */
START_TEST(one_device_has_no_more_than_the_cores)
{
    struct err e = {0};
    profile_write(0.9e6);
    json_t *o = searched("cores = 2 } run { threads = 4", NULL, &e);
    ck_assert_msg(o != NULL, "%s", e.text);
    const json_t *one = json_object_get(o, "one_device");
    ck_assert_int_eq(number(one, "threads"), 2);
    ck_assert(json_real_value(json_object_get(one, "step_seconds")) > 0);
    json_decref(o);
}
END_TEST

static void *own_lane(struct be *b) { return b; }

/* Cores of this machine are no devices: a backend with a stream has one, unless more are asked for. */
static const struct { const char *pipeline; int cores; } lanes[] = {{"", 1}, {"cores = 2", 2}, {"stages = 3", 3}};
START_TEST(devices_with_a_lane_are_no_cores)
{
    struct err e = {0};
    struct text out = {0};
    struct job j;
    char more[100];
    snprintf(more, sizeof more, "pipeline { %s }", lanes[_i].pipeline);
    opened(&j, more, &e);
    struct be_ops stream = *j.be;
    stream.stream = own_lane;
    j.be = &stream;
    struct search_request q = {.cores = 4, .json = true};
    ck_assert_msg(!search_run(&j, &q, &out, &e), "%s", e.text);
    json_t *o = json_loads(out.s, 0, NULL);
    ck_assert_int_eq(number(o, "cores"), lanes[_i].cores);
    json_decref(o);
    text_free(&out);
    job_done(&j);
}
END_TEST

/* Many layouts that do not fit are told of in one line, with the one that misses least: where a pipeline of two fits by
 * little, all that keep the whole network in one rank do not. */
START_TEST(what_does_not_fit_is_one_line)
{
    struct err e = {0};
    struct text out = {0};
    struct job j;
    char more[200];
    profile_write(0.9e6);
    json_t *o = searched("stages = 2", NULL, &e), *x;
    json_int_t least = 0;
    size_t i;
    json_array_foreach(json_object_get(o, "layouts"), i, x)
        if (is_layout(x, 1, 2, 1)) least = json_integer_value(json_object_get(x, "peak_bytes"));
    json_decref(o);
    snprintf(more, sizeof more, "pipeline { profile = \"%s\" stages = 2 recompute = all max_memory = %lld }", profile,
             (long long)least);
    opened(&j, more, &e);
    struct search_request q = {.cores = 4};
    ck_assert_msg(!search_run(&j, &q, &out, &e), "%s", e.text);
    ck_assert_msg(strstr(out.s, "3 others do not fit; ") && strstr(out.s, " comes nearest, ") &&
                  !strstr(out.s, "does not fit\n"), "%s", out.s);
    text_free(&out);
    job_done(&j);
}
END_TEST

/* In lines of 80 columns, whatever columns there are. */
START_TEST(tables_fit)
{
    struct err e = {0};
    struct text out = {0};
    struct job j;
    profile_write(0.9e6);
    char more[300];
    snprintf(more, sizeof more, "pipeline { profile = \"%s\" cores = 4 recompute = all max_memory = 1MiB }", profile);
    opened(&j, more, &e);
    struct search_request q = {.cores = 4};
    ck_assert_msg(!search_run(&j, &q, &out, &e), "%s", e.text);
    const char *must[] = {"layout", "recompute", "data parallelism on 4 devices", "4 threads a rank",
                          "replicas x ranks of each x threads", "\n  mpirun -np 4 mpstaged -c FILE\n"};
    for (int i = 0; i < N_OF(must); i++) ck_assert_msg(strstr(out.s, must[i]) != NULL, "%s", out.s);
    for (const char *at = out.s, *stop; (stop = strchr(at, '\n')); at = stop + 1)
        ck_assert_msg(stop - at <= 80 || strchr(at, '/') < stop, "%.*s", (int)(stop - at), at);
    text_free(&out);
    job_done(&j);
}
END_TEST

int main(void)
{
    TCase *t = suite_case("search", 120);
    tcase_add_checked_fixture(t, begin, end);
    tcase_add_loop_test(t, cores_are_shared_out_by_costs, 0, 2);
    tcase_add_test(t, threads_that_were_not_measured_are_left_out);
    tcase_add_loop_test(t, as_many_cores_as_asked, 0, N_OF(many));
    tcase_add_test(t, limits_hold);
    tcase_add_loop_test(t, what_is_configured_is_compared, 0, N_OF(given));
    tcase_add_loop_test(t, names_are_words_of_a_shell, 0, N_OF(names));
    tcase_add_test(t, one_device_has_no_more_than_the_cores);
    tcase_add_loop_test(t, devices_with_a_lane_are_no_cores, 0, N_OF(lanes));
    tcase_add_test(t, what_does_not_fit_is_one_line);
    tcase_add_test(t, tables_fit);
    return suite_run("search", CK_FORK, t);
}
