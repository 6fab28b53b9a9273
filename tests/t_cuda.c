/* The cuda backend under the executor, over the doubles: device memory against the plan, steps that allocate nothing,
 * recordings that end. */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "backend/cuda/cuda_device.h"
#include "gpu/doubles/double.h"
#include "rig.h"
#include "op_graphs.h"
#include "sure.h"

#define CONF(model, train) \
    "run { name = \"t\" }\nmodel { " model " }\ndata { source = \"synthetic\" labels = \"class\" samples = 40 }\n" \
    "train { " train " steps = 9 loss = \"cross_entropy\" learning_rate = 0.05 momentum = 0.9 }\n"

static int run(const struct rig *q, struct rig_result *r)
{
    struct rig on_gpu = *q;
    on_gpu.backend = "cuda";
    if (!q->schedule) on_gpu.schedule = "1f1b";
    on_gpu.over = &tp_staged;
    on_gpu.taken = double_taken;
    return rig_run(&on_gpu, r);
}

static void runs(const struct rig *q, struct rig_result *r) { ck_assert_msg(!run(q, r), "%s", r->e.text); }

/* ---- memory ---------------------------------------------------------------------------------- */

/* What the plan does not count: tables of pointers, partial sums, sample numbers. */
enum { BESIDE = 256 << 10 };

static const char *const models[] = {
    CONF("network = \"resnet18\" input = {3, 32, 32} classes = 10", "batch_size = 2 split_size = 2"),
    /* loads are most of it */
    CONF("network = \"mlp\" input = {100000} classes = 10 hidden = {4}", "batch_size = 64 split_size = 32"),
};

/* _i: model * 4 + bfloat16 * 2 + ranks - 1 */
START_TEST(memory_is_the_plans)
{
    struct rig q = {.conf = models[_i / 4], .n_stages = 1 + _i % 2, .precision = _i / 2 % 2 ? BFLOAT16 : FP32,
                    .steps = 1, .graphs = true};
    struct rig_result r;
    runs(&q, &r);
    for (int k = 0; k < q.n_stages; k++) {
        uint64_t planned = r.planned[k], taken = r.taken[k];
        ck_assert_uint_eq(r.bytes[k], planned);
        ck_assert_msg(taken >= planned && taken - planned < BESIDE, "rank %d: %llu bytes are taken, %llu planned", k,
                      (unsigned long long)taken, (unsigned long long)planned);
        ck_assert_msg((double)taken <= 1.05 * (double)planned, "rank %d: %llu bytes are taken, %llu planned", k,
                      (unsigned long long)taken, (unsigned long long)planned);
        ck_assert_uint_eq(double_taken(k), 0);
    }
}
END_TEST

/* Of an operator without kernels for GPUs a plan hears, and the device does not. */
START_TEST(operators_without_kernels)
{
    static const char text[] = "input x 6\nlabels t class\na = linear(x) features=5\nb = relu(a)\nl = mse(b, t)\n";
    struct err e = {0};
    struct device d = {0};
    struct graph *g = graph_parse("net", text, strlen(text), &e);
    ck_assert_msg(g != NULL, "%s", e.text);
    be_find("cuda")->suppose(&d);
    for (int i = 0; op_list[i]; i++) {
        struct graph *each = op_graph_example(op_list[i], op_list[i]->examples[0]);
        struct selection *s = select_make(each, &d, 4, &e);
        ck_assert_msg(s != NULL, "%s", e.text);
        select_free(s);
        graph_free(each);
    }
    struct op_kind odd = *op_find("relu");
    odd.name = "odd";
    g->node[1].op = &odd;
    ck_assert_ptr_null(select_make(g, &d, 4, &e));
    ck_assert_int_eq(e.code, 78);
    ck_assert_str_eq(e.text, "b: the cuda backend has no operator odd");
    graph_free(g);
}
END_TEST

/* In bfloat16 cuDNN's attention serves what it can; the others, and float, have own kernels. */
START_TEST(attention_by_the_library)
{
    static const struct { const char *example; unsigned trained; bool library; } of[] = {
        {"48x7 heads=2", 0, true}, {"48x7 heads=2", 1, true}, {"16x9 + 16x9 + 16x9 heads=2", 7, true},
        {"16x9 + 16x9 + 16x9 heads=2", 4, false}, {"24x50000 + 24x50000 + 24x50000 heads=3", 0, true},
        {"24x50000 + 24x50000 + 24x50000 heads=3", 7, false}, {"6x5 heads=2", 0, false},
        {"24x9 + 24x9 + 24x9 + 9 I32 heads=3 causal=yes", 0, false}, {"8x3 + =0 + =0 heads=1", 0, false},
        {"408x3 heads=1", 0, false}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        for (int narrow = 0; narrow < 2; narrow++) {
            struct err e = {0};
            struct device d = {0};
            be_find("cuda")->suppose(&d);
            d.precision = narrow ? BFLOAT16 : FP32;
            struct graph *g = op_graph_example(op_find("attention"), of[i].example);
            for (int k = 0; k < g->node[0].n_in; k++) g->tensor[g->node[0].in[k]].needs_grad = of[i].trained >> k & 1;
            g->tensor[g->node[0].out].needs_grad = of[i].trained;
            struct selection *s = select_make(g, &d, 4, &e);
            ck_assert_msg(s != NULL, "%s", e.text);
            const struct kernel_row *const *row = s->group[0].row;
            const char *const want = narrow && of[i].library ? "cuDNN" : "attention";
            ck_assert_msg(!strcmp(row[PH_FWD]->name, want), "%s %u", of[i].example, of[i].trained);
            if (of[i].trained) ck_assert_str_eq(row[PH_BWD_DATA]->name, want);
            select_free(s);
            graph_free(g);
        }
}
END_TEST

/* A call that failed before is noted by CUDA; a launch that succeeds does not answer for it. */
static void nothing_run(void *data) { (void)data; }

START_TEST(gpus_say_where_they_are)
{
    char bus[BE_BUS];
    cuda_device_bus(2, bus);
    ck_assert_str_eq(bus, "D0B1:02:00.0");
    cuda_device_bus(99, bus);                            /* no such GPU: no place, and no error is left for others */
    ck_assert_str_eq(bus, "");
    ck_assert_int_eq(cudaGetLastError(), cudaSuccess);
}
END_TEST

START_TEST(launches_tell_their_own_status)
{
    void *p;
    cudaStream_t stream;
    ck_assert_int_eq(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0), cudaSuccess);
    ck_assert_int_ne(cudaMalloc(&p, (size_t)1 << 50), cudaSuccess);
    ck_assert_int_eq(host_launch(stream, nothing_run, "", 1), cudaSuccess);
    ck_assert_int_ne(cudaGetLastError(), cudaSuccess);
    ck_assert_int_eq(cudaStreamDestroy(stream), cudaSuccess);
}
END_TEST

/* ---- nothing is made in a step --------------------------------------------------------------- */

static atomic_long count;
void *__real_mem_alloc(size_t bytes);
void *__real_mem_resize(void *p, size_t bytes);
void __real_vec_grow_(void **v, int n, int *cap, size_t size);
void *__wrap_mem_alloc(size_t bytes);
void *__wrap_mem_resize(void *p, size_t bytes);
void __wrap_vec_grow_(void **v, int n, int *cap, size_t size);
void *__wrap_mem_alloc(size_t bytes) { atomic_fetch_add(&count, 1); return __real_mem_alloc(bytes); }
void *__wrap_mem_resize(void *p, size_t bytes) { atomic_fetch_add(&count, 1); return __real_mem_resize(p, bytes); }
void __wrap_vec_grow_(void **v, int n, int *cap, size_t size)
{
    atomic_fetch_add(&count, 1);
    __real_vec_grow_(v, n, cap, size);
}

static const char small[] = CONF("input = {3, 8, 8} classes = 5", "batch_size = 7 split_size = 3 clip_norm = 1");

/* What a run of that many steps makes; refused: the recorded operation that cannot be, 0: none. */
static long made(struct rig q, int steps, int refused)
{
    struct rig_result r;
    long before = atomic_load(&count) + double_makes();
    q.steps = steps;
    double_refuse_recorded(refused, cudaErrorStreamCaptureUnsupported);
    runs(&q, &r);
    return atomic_load(&count) + double_makes() - before;
}

/* _i: graphs * 4 + bfloat16 * 2 + ranks - 1 */
START_TEST(steps_make_nothing)
{
    struct rig q = {.conf = small, .graph = rig_small_resnet, .n_stages = 1 + _i % 2,
                    .precision = _i / 2 % 2 ? BFLOAT16 : FP32, .graphs = _i / 4};
    /* the local transport under it makes its messages when they are first sent */
    int first = q.n_stages > 1;
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);       /* a process sets it once, in its first run */
    /* two steps whose kernels are marked one by one, three that are replayed */
    long few = made(q, first, 0), some = made(q, 5, 0);
    ck_assert_msg(few == some, "%ld things are made with %d steps, %ld with 5", few, first, some);
    ck_assert(few > 0);
}
END_TEST

/* Two steps run kernel by kernel, or none: then the first one is a replay, too, and all leave the same bits. */
START_TEST(steps_are_replays_from_the_first_on)
{
    static const char no_times[] = "run { name = \"t\" kernel_times = no }\n", times[] = "run { name = \"t\" }\n";
    struct rig_result r[3];
    long each = 0;
    for (int i = 0; i < 3; i++) {                        /* replays from the third step on, from the first on, never */
        struct text conf = {0};
        long before = double_replays();
        text_add(&conf, "%s%s", i == 1 ? no_times : times, small + strlen(times));
        struct rig q = {.conf = conf.s, .graph = rig_small_resnet, .n_stages = 1, .steps = 3, .graphs = i < 2};
        runs(&q, &r[i]);
        long n = double_replays() - before;
        if (i == 0) each = n;
        ck_assert_int_eq(n, i == 0 ? each : i == 1 ? 3 * each : 0);
        ck_assert_str_eq(r[i].hash, r[0].hash);
        text_free(&conf);
    }
    ck_assert_int_gt(each, 0);
}
END_TEST

/* ---- steps that are discarded ---------------------------------------------------------------- */

enum { BAD = 10 };                                       /* of the second step */
static void to_nan(uint64_t sample, int field, void *value)
{
    if (sample == BAD && field == 0) *(float *)value = NAN;
}

/* What is on its way to the device for the next step is given up and sent again. _i: graphs * 2 + ranks - 1 */
START_TEST(discarded_steps_leave_nothing)
{
    struct rig q = {.conf = small, .graph = rig_small_resnet, .n_stages = 1 + _i % 2, .graphs = _i / 2, .steps = 5,
                    .omit = 2};
    struct rig_result without, r;
    runs(&q, &without);
    q.omit = 0;
    q.spoil = to_nan;
    for (int i = 0; i < 2; i++) {
        q.ahead = i;
        runs(&q, &r);
        for (int k = 0; k < q.n_stages; k++)
            ck_assert(r.nonfinite[k][1] == NONFINITE_LOSS && !r.nonfinite[k][0] && !r.nonfinite[k][2]);
        ck_assert_str_eq(r.hash, without.hash);
    }
}
END_TEST

/* ---- few channels ---------------------------------------------------------------------------------------------- */

/* In bfloat16 an image of three channels is stored in eight, but not what a layer made of it: the same bits. The double
 * computes sums in double, so zeros among them change nothing. */
START_TEST(padded_images)
{
    static const char from[] = "conv1 = conv(input)", made_of[] = "same = avg_pool(input) kernel=1\nconv1 = conv(same)";
    const char *at = strstr(rig_small_resnet, from);
    struct text other = {0};
    struct rig_result r[2];
    text_add(&other, "%.*s%s%s", (int)(at - rig_small_resnet), rig_small_resnet, made_of, at + strlen(from));
    for (int i = 0; i < 2; i++) {
        struct rig q = {.conf = small, .graph = i ? other.s : rig_small_resnet, .n_stages = 1 + _i, .steps = 5};
        q.precision = BFLOAT16;
        q.graphs = true;
        runs(&q, &r[i]);
    }
    ck_assert_str_eq(r[0].hash, r[1].hash);
    ck_assert_double_ne(r[0].loss[0], r[0].loss[4]);
    ck_assert_int_eq(r[0].n_groups + 1, r[1].n_groups);
    text_free(&other);
}
END_TEST

/* ---- recordings ------------------------------------------------------------------------------ */

/* What one action makes at its first use, and no step makes more: the others were recorded. */
enum { OF_ACTION = 8 };

/* Whatever fails while an action is recorded, the stream does not go on recording. Who wants no graphs does without the
 * rest of that recording. */
/* Replayed or not, cut or not. _i: bfloat16 */
START_TEST(outputs_come_down)
{
    struct rig q = {.conf = small, .graph = rig_small_resnet, .n_stages = 1, .steps = 3,
                    .output = {"a.relu2", "fc"}, .precision = _i ? BFLOAT16 : FP32};
    struct rig_result one, r;
    runs(&q, &one);
    for (int k = 1; k < 4; k++) {
        q.graphs = k & 1;
        q.n_stages = 1 + k / 2;
        runs(&q, &r);
        for (int i = 0; i < 2; i++) {
            size_t n = one.value[0][i].n;
            ck_assert(n && n == r.value[0][i].n && one.value[0][1].x[0] != 0);
            ck_assert(!memcmp(r.value[0][i].x, one.value[0][i].x, n * sizeof(float)));
        }
        rig_free(&r);
    }
    rig_free(&one);
}
END_TEST

START_TEST(recordings_end)
{
    struct rig q = {.conf = small, .graph = rig_small_resnet, .n_stages = 1, .steps = 3};
    struct rig_result plain, r;
    int failed = 0;
    runs(&q, &plain);
    for (int n = 1;; n += 37) {
        q.graphs = true;
        double_refuse_recorded(n, cudaErrorStreamCaptureUnsupported);
        bool bad = run(&q, &r);
        ck_assert_int_eq(double_recording(), 0);
        ck_assert_uint_eq(double_taken(0), 0);
        if (!bad) break;
        ck_assert_msg(r.e.code == E_DEVICE, "%s", r.e.text);
        failed++;
        q.graphs = false;
        double_refuse_recorded(n, cudaErrorStreamCaptureUnsupported);
        runs(&q, &r);
        ck_assert_str_eq(r.hash, plain.hash);
        long in_steps = made(q, 3, n) - made(q, 0, n);
        ck_assert_msg(in_steps >= 0 && in_steps <= OF_ACTION,
                      "operation %d is not recorded: %ld things are made in steps", n, in_steps);
        double_refuse_recorded(n, cudaErrorMemoryAllocation);
        ck_assert_msg(run(&q, &r) && r.e.code == E_DEVICE && strstr(r.e.text, "out of memory"), "%s", r.e.text);
        ck_assert_int_eq(double_recording(), 0);
    }
    ck_assert_str_eq(r.hash, plain.hash);
    ck_assert_int_gt(failed, 2);
}
END_TEST

/* ---- packed weights ------------------------------------------------------------------------- */

/* Several stages a rank share a tied weight, its packed form is made after the step, and nothing is there twice. */
START_TEST(several_stages_a_rank)
{
    static const int maps[][4] = {{0, 1, 0, 1}, {0, 1, 1, 0}, {0, 0, 1, 1}};
    struct rig q = {.conf = CONF("input = {6} classes = 6", "batch_size = 6 split_size = 2"),
                    .graph = _i / 2 ? rig_skip : rig_tied, .precision = _i % 2 ? BFLOAT16 : FP32, .graphs = true,
                    .steps = 5, .n_stages = 1};
    struct rig_result one, r;
    if (_i / 2) q.conf = CONF("input = {6} classes = 4", "batch_size = 6 split_size = 2");
    runs(&q, &one);
    q.n_stages = 4;
    q.n_ranks = 2;
    for (int i = 0; i < 3; i++) {
        q.rank_of = maps[i];
        q.schedule = i ? "gpipe" : "naive";
        q.recompute = i == 2 ? 0x55 : 0;
        runs(&q, &r);
        ck_assert_str_eq(one.hash, r.hash);
        ck_assert_double_eq(one.loss[4], r.loss[4]);
        for (int k = 0; k < q.n_ranks; k++) ck_assert_uint_eq(r.bytes[k], r.planned[k]);
    }
}
END_TEST

/* W of several micro-batches on a stream, launched, recorded or replayed: the weights of single ones. _i: bfloat16 * 2
 * + graphs */
START_TEST(weight_gradients_of_several)
{
    static const char *const ways[] = {"gpipe", "1f1b"};
    struct rig q = {.conf = CONF("input = {3, 8, 8} classes = 5", "batch_size = 20 split_size = 3"),
                    .graph = rig_small_resnet, .precision = _i / 2 ? BFLOAT16 : FP32, .graphs = _i % 2, .steps = 4};
    struct rig_result one, r;
    for (int i = 0; i < 6; i++) {
        struct sched rows[2];
        q.n_stages = 1 + i / 2;
        q.schedule = ways[i % 2];
        for (int k = 0; k < 2; k++) {
            rig_rows_of(&q, 7, k ? 2 + i % 3 : 1, &rows[k]);
            q.rows = &rows[k];
            runs(&q, k ? &r : &one);
            sched_free(&rows[k]);
        }
        ck_assert_msg(!strcmp(r.hash, one.hash), "%d stages, %s: other weights", q.n_stages, q.schedule);
        ck_assert_double_eq(r.loss[3], one.loss[3]);
        for (int k = 0; k < q.n_stages; k++) ck_assert_uint_eq(r.bytes[k], r.planned[k]);
    }
    ck_assert_double_ne(one.loss[0], one.loss[3]);
}
END_TEST

/* On one rank a tied weight's two copies in bfloat16 are made after the step, on several ranks the owner's is made by
 * it: the same bits. Also of a table, whose rows are read as they are, and which a layer has as its weights. */
START_TEST(derived_weights)
{
    static const struct { const char *conf, *graph; } nets[] = {
        {CONF("input = {6} classes = 6", "batch_size = 6 split_size = 2"), rig_tied},
        {CONF("input = {3, 4} classes = 9", "batch_size = 6 split_size = 2"), rig_words}};
    struct rig q = {.conf = nets[_i % 2].conf, .graph = nets[_i % 2].graph, .precision = _i / 2 ? FP32 : BFLOAT16,
                    .steps = 5, .n_stages = 1};
    struct rig_result one, r;
    runs(&q, &one);
    for (q.n_stages = 2; q.n_stages <= 4; q.n_stages++) {
        runs(&q, &r);
        ck_assert_str_eq(one.hash, r.hash);
        ck_assert(!memcmp(one.score, r.score, sizeof one.score));
    }
    ck_assert_double_ne(one.loss[0], one.loss[4]);
}
END_TEST

/* Several stages of a rank load the same input of a micro-batch, ahead of its action, as a rank with one stage does. */
START_TEST(stages_share_loads)
{
    static const char graph[] =
        "input x 6\nlabels t class\na = linear(x) features=6\nb = relu(a)\nc = add(b, x)\nd = linear(c) features=6\n"
        "e = add(d, x)\nf = linear(e) features=5\nl = softmax_cross_entropy(f, t)\n";
    static const int at[][2] = {{2, 1}, {2, 2}, {4, 1}, {4, 2}, {3, 3}};
    struct rig q = {.conf = CONF("", "batch_size = 9 split_size = 5"), .graph = graph, .n_stages = 1, .steps = 4,
                    .schedule = "gpipe", .precision = _i % 2 ? BFLOAT16 : FP32, .graphs = _i / 2};
    struct rig_result one, r;
    runs(&q, &one);
    for (size_t k = 0; k < sizeof at / sizeof *at; k++) {
        q.n_stages = at[k][0];
        q.n_ranks = at[k][1];
        runs(&q, &r);
        ck_assert_str_eq(r.hash, one.hash);
    }
}
END_TEST

int main(void)
{
    TCase *t = suite_case("backend", 120);
    suite_loop(t, memory_is_the_plans, IS_SANITIZED ? 2 : 8, PAIRS);
    suite_loop(t, stages_share_loads, 4, EVERY(1));
    tcase_add_test(t, operators_without_kernels);
    tcase_add_test(t, attention_by_the_library);
    tcase_add_test(t, gpus_say_where_they_are);
    tcase_add_test(t, launches_tell_their_own_status);
    tcase_add_test(t, steps_are_replays_from_the_first_on);
    suite_loop(t, steps_make_nothing, IS_SANITIZED ? 2 : 8, PAIRS);
    suite_loop(t, discarded_steps_leave_nothing, 4, EVERY(3));
    suite_loop(t, padded_images, 2, EVERY(1));
    suite_loop(t, outputs_come_down, 2, EVERY(1));
    tcase_add_test(t, recordings_end);
    suite_loop(t, derived_weights, 4, EVERY(1));
    suite_loop(t, several_stages_a_rank, 4, EVERY(1));
    suite_loop(t, weight_gradients_of_several, 4, IS_SANITIZED ? i_ == 3 : EVERY(1));
    return suite_run("cuda", CK_FORK, t);
}
