/* Data sets and the feed: synthetic data, invalid files, prefetch, and a source opened as a configuration and a graph
 * require. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/rng.h"
#include "data/idx.h"
#include "data/npy.h"
#include "data_rig.h"

/* ---- synthetic --------------------------------------------------------------------------------------------------- */

static const struct ds_pair toy_onehot = {.input = {1, {10}}, .target = {1, {5}}, .target_type = F32, .classes = 5};
static const struct ds_pair toy_class = {.input = {1, {10}}, .target_type = I64, .classes = 5};

START_TEST(synthetic_is_a_function_of_seed_and_index)
{
    float x[10], again[10], other[10], y[5];
    int64_t cls;
    struct ds *a = open_good("source = synthetic labels = onehot", toy_onehot),
              *b = open_good("source = synthetic samples = 3", toy_class);
    ck_assert_uint_eq(a->kind->count(a), 1 << 20);
    ck_assert_uint_eq(b->kind->count(b), 3);
    get(a, 2, x, y);
    get(a, 1, other, NULL);
    get(b, 2, again, &cls);
    ck_assert_mem_eq(x, again, sizeof x);
    ck_assert_mem_ne(x, other, sizeof x);
    for (int i = 0; i < 5; i++) ck_assert(y[i] == (i == cls));
    rng_fill_normal((struct rng_at){7, RNG_SYNTH, DS_TRAIN, 2}, again, 10);
    ck_assert_mem_eq(x, again, sizeof x);
    ds_close(a);
    ds_close(b);
}
END_TEST

/* 5000 draws: each class is expected 1000 times with deviation 28; the mean of 50,000 normals has deviation 0.0045.
 * Bounds are 6 deviations. */
START_TEST(synthetic_is_distributed)
{
    int seen[5] = {0};
    double sum = 0, square = 0;
    struct ds *d = open_good("source = synthetic samples = 5000", toy_class);
    for (uint64_t i = 0; i < 5000; i++) {
        float x[10];
        int64_t cls;
        get(d, i, x, &cls);
        ck_assert(cls >= 0 && cls < 5);
        seen[cls]++;
        for (int k = 0; k < 10; k++) { sum += x[k]; square += x[k] * x[k]; }
    }
    for (int k = 0; k < 5; k++) ck_assert_int_lt(abs(seen[k] - 1000), 170);
    ck_assert(sum / 50000 < 0.027 && sum / 50000 > -0.027);
    ck_assert(square / 50000 > 0.96 && square / 50000 < 1.04);
    ds_close(d);
}
END_TEST

/* Without data.samples as many differ as fit into 256 MiB, here 1024; kept or not, with the same bits, from two threads
 * as well. */
static void *kept_read(void *arg)
{
    struct ds *d = arg;
    float *x = malloc(49152 * sizeof *x);
    for (uint64_t i = 0; i < 16; i++) get(d, i % 8, x, NULL);
    free(x);
    return NULL;
}

START_TEST(synthetic_samples_come_round)
{
    static const struct ds_pair image = {.input = {3, {3, 128, 128}}, .target_type = I64, .classes = 1000};
    size_t bytes = 49152 * sizeof(float);
    float *x = malloc(bytes), *again = malloc(bytes);
    int64_t cls, same;
    pthread_t other;
    struct ds *plain = open_good("source = synthetic", image), *kept = open_good("source = synthetic", image),
              *many = open_good("source = synthetic samples = 5000", image);
    kept->kind->keep(kept);
    ck_assert(!pthread_create(&other, NULL, kept_read, kept));
    kept_read(kept);
    pthread_join(other, NULL);
    for (uint64_t i = 0; i < 1 << 20; i += 1023 * 257) {
        get(plain, i, x, &cls);
        for (int round = 0; round < 2; round++) {
            get(kept, i, again, &same);
            ck_assert(cls == same && !memcmp(x, again, bytes));
        }
        get(plain, i % 1024, again, &same);
        ck_assert(cls == same && !memcmp(x, again, bytes));
    }
    get(plain, 0, x, NULL);
    get(plain, 1024 * 3, again, NULL);
    ck_assert_mem_eq(x, again, bytes);
    get(many, 1024 * 3, again, NULL);                    /* whoever says how many gets so many */
    ck_assert_mem_ne(x, again, bytes);
    ds_close(plain); ds_close(kept); ds_close(many);
    free(x); free(again);
}
END_TEST

START_TEST(synthetic_vectors_and_test_part)
{
    struct err e = {0};
    float y[5], t[5], expected[5];
    struct ds *d = open_good("source = synthetic labels = vector", toy_onehot);
    get(d, 4, NULL, y);
    rng_fill_normal((struct rng_at){7, RNG_LABEL, DS_TRAIN, 4}, expected, 5);
    ck_assert_mem_eq(y, expected, sizeof y);
    ck_assert_ptr_null(open_part("source = synthetic", DS_TEST, toy_onehot, &e));
    struct ds *test = open_part("source = synthetic labels = vector test_samples = 9", DS_TEST, toy_onehot, &e);
    ck_assert_int_eq(e.code, 0);
    ck_assert_uint_eq(test->kind->count(test), 9);
    get(test, 4, NULL, t);
    ck_assert_mem_ne(y, t, sizeof y);
    ck_assert_int_eq(test->kind->read(test, 9, 0, PAIR_TARGET, t, &e), -1);
    expect(&e, E_INTERNAL, "sample 9 of 9");
    ds_close(d);
    ds_close(test);
}
END_TEST

/* Whole numbers below the range, the same in every type; each of 7 is expected 714 times among 5000 with deviation 25.
 * Bounds are 6 deviations. */
START_TEST(synthetic_whole_numbers)
{
    enum { N = 5000, RANGE = 7 };
    static int64_t wide[N];
    static int32_t x[N], again[N], other[N];
    int seen[RANGE] = {0};
    struct ds_pair want = {.input = {1, {N}}, .input_type = I32, .range = RANGE, .target_type = I64, .classes = 5};
    struct ds *d = open_good("source = synthetic samples = 3", want);
    ck_assert(d->field[PAIR_INPUT].type == I32 && d->field[PAIR_INPUT].range == RANGE);
    get(d, 2, (float *)x, NULL);
    get(d, 1, (float *)other, NULL);
    ck_assert_mem_ne(x, other, sizeof x);
    d->kind->keep(d);
    for (int i = 0; i < 2; i++) {
        get(d, 2, (float *)again, NULL);
        ck_assert_mem_eq(x, again, sizeof x);
    }
    ds_close(d);
    want.input_type = I64;
    d = open_good("source = synthetic samples = 3", want);
    get(d, 2, (float *)wide, NULL);
    ds_close(d);
    int wrong = 0;
    for (int i = 0; i < N; i++) {
        wrong += x[i] != wide[i] || x[i] < 0 || x[i] >= RANGE;
        if (!wrong) seen[x[i]]++;
    }
    ck_assert_int_eq(wrong, 0);
    for (int k = 0; k < RANGE; k++) ck_assert(seen[k] > 564 && seen[k] < 864);
    want.range = 0;
    open_bad("source = synthetic", want, 78, "t.conf:3: data.source:");
}
END_TEST

/* ---- files ------------------------------------------------------------------------------------------------------- */

START_TEST(files_that_are_none)
{
    struct err e = {0};
    struct idx_file f;
    struct npy a;
    ck_assert_int_eq(mkdir("folder", 0777) * mkfifo("pipe", 0666), 0);
    static const struct { const char *path; int code; const char *text;
    } all[] = {{"none", 66, "none: No such file"},
               {"folder", 65, "folder: is a directory"},
               {"pipe", 65, "pipe:"},
               {"/dev/zero", 65, "not a regular"}};
    for (int i = 0; i < 4; i++) {
        e = (struct err){0};
        ck_assert_int_eq(idx_file_load(all[i].path, 3, 4, &f, &e), -1);
        expect(&e, all[i].code, all[i].text);
        e = (struct err){0};
        ck_assert_int_eq(npy_open(all[i].path, &a, &e), -1);
        expect(&e, all[i].code, all[i].text);
    }
}
END_TEST

/* ---- prefetch ---------------------------------------------------------------------------------------------------- */

/* Sample i is {i, i + 1/2}, its label i, and 1000 more with each visit. Samples 13 and 913 are broken, which shows
 * late in the latter; sample 99 is read only once the gate opens. */
struct probe { struct ds ds; pthread_mutex_t lock; pthread_cond_t changed; bool open, waiting; int reads; };
static uint64_t probe_count(const struct ds *d) { (void)d; return 1000; }
static int probe_read(struct ds *d, uint64_t i, uint64_t visit, int field, void *out, struct err *e)
{
    struct probe *p = (struct probe *)d;
    pthread_mutex_lock(&p->lock);
    p->reads++;
    p->waiting |= i == 99;
    pthread_cond_broadcast(&p->changed);
    while (i == 99 && !p->open) pthread_cond_wait(&p->changed, &p->lock);
    pthread_mutex_unlock(&p->lock);
    if (i == 913) nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    if (i == 13 || i == 913) return err_set(e, E_DATA, "x: offset %d: broken", (int)i);
    if (field == PAIR_INPUT) { ((float *)out)[0] = (float)i; ((float *)out)[1] = (float)i + 0.5f; }
    else *(int64_t *)out = (int64_t)(i + 1000 * visit);
    return 0;
}
static const struct ds_kind probe_kind = {.name = "probe", .count = probe_count, .read = probe_read};
#define FIELDS .n_fields = 2, .field = {{"x", ROLE_SAMPLE, F32, {1, {2}}}, {"t", ROLE_TARGET, I64}}
#define GATE .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER
#define PROBE {.ds = {.kind = &probe_kind, FIELDS}, GATE}

/* Threads that read; each test of the feed runs with some numbers of them. */
static const int workers[] = {0, 1, 2, 7};
enum { WORKERS = sizeof workers / sizeof *workers };

static struct feed *probe_feed(struct probe *p, int readers, bool x, bool y, int depth)
{
    struct err e = {0};
    struct feed *f;
    struct feed_want w = {.ds = &p->ds, .max_samples = 4, .depth = depth, .readers = readers};
    if (x) w.field[w.n_fields++] = PAIR_INPUT;
    if (y) w.field[w.n_fields++] = PAIR_TARGET;
    ck_assert_int_eq(feed_open(&w, &f, &e), 0);
    return f;
}

START_TEST(feed_gives_samples_in_order)
{
    struct probe p = PROBE;
    struct err e = {0};
    struct feed *f = probe_feed(&p, workers[_i], true, true, 3);
    void *const *v;
    for (int64_t k = 0; k < 50; k++) {
        int n = (int)(k % 4) + 1;
        for (int64_t ahead = k ? k + 2 : 0; ahead <= k + 2; ahead++) {
            int64_t id[4] = {100 + 4 * ahead, 101 + 4 * ahead, 102 + 4 * ahead, 103 + 4 * ahead};
            ck_assert_int_eq(feed_request(f, (int)(ahead % 4) + 1, id, 0, &e), 0);
        }
        ck_assert_int_eq(feed_take(f, NULL, &v, &e), 0);
        for (int i = 0; i < n; i++) {
            int64_t id = 100 + 4 * k + i;
            const float *x = v[0];
            ck_assert(x[2 * i] == (float)id && x[2 * i + 1] == (float)id + 0.5f && ((const int64_t *)v[1])[i] == id);
        }
        feed_give(f);
    }
    feed_close(f);
}
END_TEST

START_TEST(feed_reads_only_what_is_wanted_and_keeps_its_bound)
{
    struct probe p = PROBE;
    struct err e = {0};
    struct feed *f = probe_feed(&p, workers[_i], false, true, 3);
    void *const *v;
    int64_t id[5] = {7, 8};
    ck_assert_int_eq(feed_take(f, NULL, &v, &e), -1);
    expect(&e, E_INTERNAL, "nobody requested");
    e = (struct err){0};
    ck_assert_int_eq(feed_request(f, 2, id, 0, &e) | feed_request(f, 1, id + 1, 0, &e), 0);
    ck_assert_int_eq(feed_request(f, 2, id, 0, &e), 0);
    ck_assert_int_eq(feed_request(f, 1, id, 0, &e), -1);
    expect(&e, E_INTERNAL, "more samples are requested");
    e = (struct err){0};
    ck_assert_int_eq(feed_take(f, NULL, &v, &e), 0);
    ck_assert_int_eq(((const int64_t *)v[0])[1], 8);
    ck_assert_int_eq(feed_request(f, 5, id, 0, &e), -1);
    expect(&e, E_INTERNAL, "5 | 4");
    e = (struct err){0};
    ck_assert_int_eq(feed_request(f, 1, id, 0, &e), -1); /* while the first is still held */
    ck_assert_int_eq(((const int64_t *)v[0])[0], 7);
    feed_give(f);
    ck_assert_int_eq(feed_request(f, 1, id, 0, &e), 0);
    feed_close(f);
}
END_TEST

/* What is held is not written over, and is given back before something else is taken. */
START_TEST(feed_holds_what_is_taken)
{
    struct probe p = PROBE;
    struct err e = {0};
    struct feed *f = probe_feed(&p, workers[_i], true, false, 2);
    void *const *a, *const *b;
    ck_assert(!feed_request(f, 1, (int64_t[]){1}, 0, &e) && !feed_take(f, NULL, &a, &e));
    ck_assert(!feed_request(f, 1, (int64_t[]){2}, 0, &e));
    while (!feed_ready(f)) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    ck_assert(((const float *)a[0])[0] == 1);
    ck_assert_int_eq(feed_take(f, NULL, &b, &e), -1);
    expect(&e, E_INTERNAL, "before others are given back");
    e = (struct err){0};
    feed_give(f);
    ck_assert(!feed_take(f, NULL, &b, &e) && ((const float *)b[0])[0] == 2);
    feed_close(f);
}
END_TEST

/* A micro-batch that wraps has samples of two visits; the probe has 1000 samples. */
START_TEST(feed_counts_visits)
{
    struct probe p = PROBE;
    struct err e = {0};
    struct feed *f = probe_feed(&p, workers[_i], false, true, 3);
    void *const *v;
    ck_assert(!feed_request(f, 4, (int64_t[]){998, 999, 0, 1}, 998, &e));
    ck_assert(!feed_request(f, 2, (int64_t[]){7, 5}, 3007, &e));
    static const int64_t want[2][4] = {{998, 999, 1000, 1001}, {3007, 3005}};
    for (int k = 0; k < 2; k++) {
        ck_assert_int_eq(feed_take(f, NULL, &v, &e), 0);
        for (int i = 0; i < 4 - 2 * k; i++) ck_assert_int_eq(((const int64_t *)v[0])[i], want[k][i]);
        feed_give(f);
    }
    feed_close(f);
}
END_TEST

START_TEST(feed_carries_errors_and_goes_on)
{
    struct probe p = PROBE;
    struct err e = {0};
    struct feed *f = probe_feed(&p, workers[_i], true, true, 2);
    void *const *v;
    ck_assert_int_eq(feed_request(f, 2, (int64_t[]){12, 13}, 0, &e) | feed_request(f, 1, (int64_t[]){14}, 0, &e), 0);
    ck_assert_int_eq(feed_take(f, NULL, &v, &e), -1);
    expect(&e, 65, "x: offset 13: broken");
    e = (struct err){0};
    ck_assert_int_eq(feed_take(f, NULL, &v, &e), 0);
    ck_assert(((const float *)v[0])[0] == 14);
    feed_give(f);
    ck_assert_int_eq(feed_request(f, 4, (int64_t[]){15, 913, 13, 16}, 0, &e), 0);
    ck_assert_int_eq(feed_take(f, NULL, &v, &e), -1);
    expect(&e, 65, "x: offset 913: broken");             /* the first, though others are known before */
    feed_close(f);
}
END_TEST

/* What was requested is forgotten, whatever of it has been read or is broken. */
START_TEST(feed_drops_requests)
{
    struct probe p = PROBE;
    struct err e = {0};
    struct feed *f = probe_feed(&p, workers[_i], true, true, 3);
    void *const *v;
    for (int64_t k = 0; k < 50; k++) {
        for (int64_t i = 0; i < 3; i++)
            ck_assert_int_eq(feed_request(f, 4, (int64_t[]){k, 200 + i, 13, 20}, 0, &e), 0);
        if (k % 2) {
            ck_assert_int_eq(feed_take(f, NULL, &v, &e), -1);
            e = (struct err){0};
        }
        ck_assert_int_eq(feed_drop(f, NULL, &e), 0);
        ck_assert(!feed_ready(f));
        ck_assert_int_eq(feed_request(f, 2, (int64_t[]){300 + k, 7}, 0, &e), 0);
        ck_assert_int_eq(feed_take(f, NULL, &v, &e), 0);
        ck_assert(((const float *)v[0])[0] == (float)(300 + k) && ((const int64_t *)v[1])[1] == 7);
        feed_give(f);
    }
    feed_close(f);
}
END_TEST

static atomic_int stop_word;
static void *stop_later(void *arg)
{
    struct probe *p = arg;
    pthread_mutex_lock(&p->lock);
    while (!p->waiting) pthread_cond_wait(&p->changed, &p->lock);
    pthread_mutex_unlock(&p->lock);
    atomic_store(&stop_word, E_STOPPED);
    return NULL;
}

static int stop_check(void *ctx, struct err *e)
{
    int code = atomic_load((atomic_int *)ctx);
    return code ? err_set(e, code, "stopped") : 0;
}

/* The reader hangs in a sample: who waits for it does what else there is to do, and may be called off. When storage
 * answers, the feed serves. */
START_TEST(feed_is_called_off_while_storage_stalls)
{
    struct probe p = PROBE;
    struct err e = {0};
    pthread_t other;
    struct feed *f = probe_feed(&p, workers[_i], true, true, 3);
    void *const *v;
    ck_assert_int_eq(feed_request(f, 2, (int64_t[]){1, 99}, 0, &e) | feed_request(f, 1, (int64_t[]){20}, 0, &e), 0);
    pthread_create(&other, NULL, stop_later, &p);
    ck_assert_int_eq(feed_take(f, &(struct feed_meanwhile){stop_check, &stop_word}, &v, &e), -1);
    expect(&e, E_STOPPED, "stopped");
    pthread_join(other, NULL);
    e = (struct err){0};
    pthread_mutex_lock(&p.lock);
    p.open = true;
    pthread_cond_broadcast(&p.changed);
    pthread_mutex_unlock(&p.lock);
    ck_assert_int_eq(feed_take(f, NULL, &v, &e), 0);
    ck_assert(((const float *)v[0])[0] == 1 && ((const float *)v[0])[2] == 99);
    feed_give(f);
    ck_assert_int_eq(feed_take(f, NULL, &v, &e), 0);
    ck_assert(((const float *)v[0])[0] == 20);
    feed_close(f);
    feed_close(NULL);
}
END_TEST

START_TEST(feed_closes_while_full)
{
    struct probe p = PROBE;
    struct err e = {0};
    p.open = true;
    struct feed *f = probe_feed(&p, workers[_i], true, true, 3);
    for (int i = 0; i < 3; i++) ck_assert_int_eq(feed_request(f, 4, (int64_t[]){99, 99, 99, 99}, 0, &e), 0);
    feed_close(f);
    ck_assert_int_le(p.reads, 24);
}
END_TEST

/* What the targets are to be, what the loss is, what the graph compares with: only what says the same is drawn. */
START_TEST(synthetic_targets_that_fit)
{
    static const struct { const char *labels, *loss; enum dtype type; struct shape target; const char *wrong;
    } of[] = {
        {"", "mse", I64, {0}, NULL},
        {"labels = class", "mse", I64, {0}, NULL},
        {"labels = onehot", "mse", I64, {0}, NULL},
        {"labels = class", "cross_entropy", F32, {1, {5}}, NULL},
        {"labels = onehot", "cross_entropy", F32, {1, {5}}, NULL},
        {"labels = vector", "mse", F32, {1, {5}}, NULL},
        {"labels = vector", "mse", F32, {3, {5, 2, 3}}, NULL},
        {"labels = vector", "mse", I64, {0}, "t.conf:3: data.labels:"},
        {"labels = vector",
         "cross_entropy",
         F32,
         {1, {5}},
         "t.conf:3: data.labels:"},
        {"", "mse", F32, {3, {5, 2, 3}}, "t.conf: data.labels:|5x2x3:"},
        {"labels = class", "mse", F32, {2, {5, 2}}, "t.conf:3: data.labels:|5x2"},
        {"labels = onehot", "mse", F32, {3, {5, 2, 3}}, "t.conf:3: data.labels:|5x2x3"},
    };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        struct ds_pair want = {
            .input = {1, {10}}, .target = of[i].target, .target_type = of[i].type, .classes = 5, .has_target = true};
        struct err e = {0};
        char s[100];
        snprintf(s, sizeof s, "source = synthetic %s } train { loss = %s", of[i].labels, of[i].loss);
        struct ds *d = open_part(s, DS_TRAIN, want, &e);
        ck_assert_msg(!d == !!of[i].wrong, "%zu: %s", i, e.text);
        if (!d) expect(&e, E_CONF, of[i].wrong);
        ds_close(d);
    }
}
END_TEST

/* ---- by configuration and graph ---------------------------------------------------------------------------------- */

START_TEST(ds_open_takes_shapes_from_the_graph)
{
    struct err e = {0};
    struct ds *d;
    float x[10], y[5];
    struct conf *c = conf_make("source = synthetic labels = onehot");
    ck_assert_msg(!conf_set(c, "t", "train.loss=mse", &e), "%s", e.text);
    struct graph *g = model_build(c, &e);
    ck_assert_msg(g != NULL, "%s", e.text);
    ck_assert_msg(!ds_open(c, DS_TRAIN, g, &d, &e), "%s", e.text);
    get(d, 0, x, y);
    ck_assert(y[0] + y[1] + y[2] + y[3] + y[4] == 1);
    ds_close(d);
    ck_assert_int_eq(ds_open(c, DS_TEST, g, &d, &e), 0);
    ck_assert_ptr_null(d);
    ds_close(d);
    c->data.source = SOURCE_unset;
    ck_assert_int_eq(ds_open(c, DS_TRAIN, g, &d, &e), -1);
    expect(&e, 78, "t.conf:3: data.source:|missing");
    graph_free(g);
    conf_free(c);
}
END_TEST

/* Labels that nothing reads are asked of no data set: any file of labels does, and none at all. */
START_TEST(ds_open_leaves_out_what_nobody_reads)
{
    static const char text[] = "input x 3\nlabels t class\nlabels u 5\na = linear(x) features=3\nl = mse(a, x)\n";
    static const char *const data[] = {"source = synthetic labels = vector samples = 2",
                                       "source = idx train = \"i.idx\" train_labels = \"l.idx\"",
                                       "source = idx train = \"i.idx\""};
    struct err e = {0};
    struct graph *g = graph_parse("g.txt", text, strlen(text), &e);
    ck_assert_msg(g != NULL, "%s", e.text);
    PUT("i.idx", "\0\0\010\003\0\0\0\002\0\0\0\001\0\0\0\003" "abcdef");
    PUT("l.idx", "\0\0\010\001\0\0\0\002" "\004\001");
    for (size_t i = 0; i < sizeof data / sizeof *data; i++) {
        struct ds *d;
        struct conf *c = conf_make(data[i]);
        ck_assert_msg(!conf_set(c, "t", "train.loss=mse", &e) && !conf_set(c, "t", "train.steps=1", &e) &&
                      !conf_finish(c, &e), "%s", e.text);
        ck_assert_msg(!ds_open(c, DS_TRAIN, g, &d, &e), "%s: %s", data[i], e.text);
        ck_assert_int_eq(d->of[0], PAIR_INPUT);
        ck_assert_int_eq(d->n_fields, 1);
        ds_close(d);
        conf_free(c);
    }
    graph_free(g);
}
END_TEST

static void all(TCase *t)
{
    tcase_add_test(t, synthetic_is_a_function_of_seed_and_index);
    tcase_add_test(t, synthetic_targets_that_fit);
    tcase_add_test(t, synthetic_is_distributed);
    tcase_add_test(t, synthetic_samples_come_round);
    tcase_add_test(t, synthetic_vectors_and_test_part);
    tcase_add_test(t, synthetic_whole_numbers);
    tcase_add_test(t, files_that_are_none);
    tcase_add_loop_test(t, feed_gives_samples_in_order, 0, WORKERS);
    tcase_add_loop_test(t, feed_reads_only_what_is_wanted_and_keeps_its_bound, 0, WORKERS);
    tcase_add_loop_test(t, feed_holds_what_is_taken, 1, WORKERS);
    tcase_add_loop_test(t, feed_counts_visits, 0, WORKERS);
    tcase_add_loop_test(t, feed_carries_errors_and_goes_on, 0, WORKERS);
    tcase_add_loop_test(t, feed_is_called_off_while_storage_stalls, 1, WORKERS);
    tcase_add_loop_test(t, feed_drops_requests, 0, WORKERS);
    tcase_add_loop_test(t, feed_closes_while_full, 0, WORKERS);
    tcase_add_test(t, ds_open_takes_shapes_from_the_graph);
    tcase_add_test(t, ds_open_leaves_out_what_nobody_reads);
}

int main(void) { return scratch_suite("data", all); }
