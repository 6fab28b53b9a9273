/* The limit for a training step of ResNet-50 on one core: the time of oneDNN's direct convolutions alone.
 *
 * Each different convolution runs forward, backward-data (not the first) and backward-weights on random data in the
 * layouts the library likes best, on one thread; its best time of several repetitions counts as often as the network
 * has it. Prints images a second, and beside them the multiply-adds that the core can do at all. A pass for which the
 * library has only its reference loop counts nothing: the limit is then too high, and says so.
 *
 *   conv_limit [MICRO-BATCH [SIZE [REPEATS]]]          default: 20 128 5 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <omp.h>
#include "backend/cpu/onednn/dnnl_api.h"
#include "base/clock.h"
#include "core_peak.h"

struct conv { int in, out, size, kernel, stride, count; };
enum { MAX_CONV = 64 };

#define CHECK(call) do { dnnl_status_t s_ = (call); if (s_ != dnnl_success) fail(#call, (int)s_); } while (0)

static void fail(const char *what, int status)
{
    fprintf(stderr, "conv_limit: %s: oneDNN status %d\n", what, status);
    exit(1);
}

static int conv_count(struct conv *list, int n, struct conv c)
{
    for (int i = 0; i < n; i++) {
        struct conv *k = &list[i];
        if (k->in == c.in && k->out == c.out && k->size == c.size && k->kernel == c.kernel && k->stride == c.stride) {
            k->count++;
            return n;
        }
    }
    list[n] = c;
    list[n].count = 1;
    return n + 1;
}

/* torchvision's ResNet-50: strides in the 3x3 convolutions, a downsampling 1x1 in the first block of each layer. */
static int resnet50_convs(int size, struct conv *list)
{
    static const int blocks[4] = {3, 4, 6, 3};
    int n = conv_count(list, 0, (struct conv){3, 64, size, 7, 2, 0}), in = 64, s = size / 4;
    for (int layer = 0; layer < 4; layer++) {
        int w = 64 << layer;
        for (int b = 0; b < blocks[layer]; b++) {
            int stride = layer > 0 && b == 0 ? 2 : 1;
            n = conv_count(list, n, (struct conv){in, w, s, 1, 1, 0});
            n = conv_count(list, n, (struct conv){w, w, s, 3, stride, 0});
            n = conv_count(list, n, (struct conv){w, 4 * w, s / stride, 1, 1, 0});
            if (b == 0) n = conv_count(list, n, (struct conv){in, 4 * w, s, 1, stride, 0});
            in = 4 * w;
            s /= stride;
        }
    }
    return n;
}

static dnnl_engine_t engine;
static dnnl_stream_t stream;

enum { ARGS = 3 };
struct pass { enum conv_pass pass; int arg[ARGS]; dnnl_query_t query[ARGS]; };
static const struct pass passes[] = {
    {CONV_FORWARD,
     {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST},
     {dnnl_query_src_md, dnnl_query_weights_md, dnnl_query_dst_md}},
    {CONV_DATA,
     {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST},
     {dnnl_query_diff_src_md, dnnl_query_weights_md, dnnl_query_diff_dst_md}},
    {CONV_WEIGHTS,
     {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST},
     {dnnl_query_src_md, dnnl_query_diff_weights_md, dnnl_query_diff_dst_md}},
};

/* Random data in the layout that the library chose for an argument. */
static dnnl_exec_arg_t random_memory(const_dnnl_primitive_desc_t pd, int arg, dnnl_query_t query)
{
    dnnl_memory_t m;
    float *x;
    size_t bytes;
    CHECK(api_argument(engine, pd, query, &m, &bytes));
    if (dnnl_memory_get_data_handle(m, (void **)&x) != dnnl_success || !x) fail("no memory", 0);
    unsigned r = 1;
    for (size_t i = 0; i < bytes / sizeof *x; i++) {
        r = r * 1664525u + 1013904223u;
        x[i] = (float)(r >> 8) / (1 << 24) - 0.5f;
    }
    return (dnnl_exec_arg_t){arg, m};
}

static double primitive_seconds(const_dnnl_primitive_desc_t pd, const struct pass *pass, int repeats)
{
    dnnl_primitive_t p;
    dnnl_exec_arg_t args[ARGS + 1];
    int n = ARGS;
    CHECK(dnnl_primitive_create(&p, pd));
    for (int i = 0; i < ARGS; i++) args[i] = random_memory(pd, pass->arg[i], pass->query[i]);
    if (api_scratch(pd)) args[n++] = random_memory(pd, DNNL_ARG_SCRATCHPAD, dnnl_query_scratchpad_md);
    uint64_t best = UINT64_MAX;
    for (int i = 0; i <= repeats; i++) {
        uint64_t t = clock_ns();
        CHECK(dnnl_primitive_execute(p, stream, n, args));
        t = clock_ns() - t;
        if (i > 0 && t < best) best = t;
    }
    for (int i = 0; i < n; i++) dnnl_memory_destroy(args[i].memory);
    dnnl_primitive_destroy(p);
    return (double)best * 1e-9;
}

/* Seconds of forward, backward-data, backward-weights; *without: passes for which there is only the reference loop. */
static void conv_seconds(const struct conv *c, int n, int repeats, double seconds[3], int *without)
{
    int64_t pad = c->kernel / 2, o = (c->size + 2 * pad - c->kernel) / c->stride + 1;
    const struct conv_shape s = {.src = {4, {n, c->in, c->size, c->size}, dnnl_format_tag_any},
                                 .wei = {4, {c->out, c->in, c->kernel, c->kernel}, dnnl_format_tag_any},
                                 .dst = {4, {n, c->out, o, o}, dnnl_format_tag_any},
                                 .stride = {c->stride, c->stride},
                                 .padding = {pad, pad}};
    for (int i = 0; i < 3; i++) {
        dnnl_primitive_desc_t pd;
        seconds[i] = 0;
        if (i == 1 && c->in == 3) continue;
        CHECK(api_conv(engine, &s, passes[i].pass, false, &pd));
        if (strncmp(api_kernel(pd), "ref", 3)) seconds[i] = primitive_seconds(pd, &passes[i], repeats);
        else *without += c->count;
        dnnl_primitive_desc_destroy(pd);
    }
}

/* Of one pass, with the multiplications by padding that a kernel may leave out. */
static double conv_gflop(const struct conv *c, int n)
{
    int o = c->size / c->stride;
    return 2e-9 * n * c->in * c->out * c->kernel * c->kernel * o * o;
}

static void conv_print(const struct conv *c, int n, const double s[3])
{
    double gflop = conv_gflop(c, n);
    printf("%2d x %4d -> %4d  %dx%d stride %d on %3d:", c->count, c->in, c->out, c->kernel, c->kernel, c->stride,
           c->size);
    for (int i = 0; i < 3; i++)
        if (s[i] > 0) printf("  %8.3f ms %6.1f GFLOP/s", s[i] * 1e3, gflop / s[i]);
        else printf("  %29s", "");
    printf("\n");
}

int main(int argc, char **argv)
{
    int n = argc > 1 ? atoi(argv[1]) : 20, size = argc > 2 ? atoi(argv[2]) : 128,
        repeats = argc > 3 ? atoi(argv[3]) : 5;
    if (n < 1 || size < 32 || repeats < 1) {
        fprintf(stderr, "usage: conv_limit [MICRO-BATCH [SIZE [REPEATS]]]\n");
        return 64;
    }
    omp_set_num_threads(1);
    CHECK(dnnl_engine_create(&engine, dnnl_cpu, 0));
    CHECK(dnnl_stream_create(&stream, engine, dnnl_stream_default_flags));
    struct conv list[MAX_CONV];
    int n_convs = resnet50_convs(size, list), layers = 0, without = 0;
    double total[3] = {0}, gflop = 0;
    printf("different convolutions: forward, backward-data, backward-weights at micro-batch %d, %dx%d\n", n, size,
           size);
    for (int i = 0; i < n_convs; i++) {
        double s[3];
        conv_seconds(&list[i], n, repeats, s, &without);
        conv_print(&list[i], n, s);
        for (int k = 0; k < 3; k++) {
            total[k] += list[i].count * s[k];
            if (s[k] > 0) gflop += list[i].count * conv_gflop(&list[i], n);
        }
        layers += list[i].count;
    }
    double sum = total[0] + total[1] + total[2];
    printf("%d convolutions: forward %.1f ms, backward-data %.1f ms, backward-weights %.1f ms\n", layers,
           total[0] * 1e3, total[1] * 1e3, total[2] * 1e3);
    if (without) printf("%d passes have only a reference loop in this library and are not counted\n", without);
    printf("limit %.3f images/s, %.1f GFLOP/s; multiply-adds of a core %.1f GFLOP/s\n", n / sum, gflop / sum,
           core_peak_fp32());
    dnnl_stream_destroy(stream);
    dnnl_engine_destroy(engine);
    return 0;
}
