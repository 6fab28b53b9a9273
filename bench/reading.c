/* reading PATH PIXELS WORKERS IMAGES [SETTING]...: how fast a rank's threads read, decode, scale and normalise a folder
 * or list of pictures (data.source = images; SETTING is of section data), as a feed does for a run: shuffled, in
 * micro-batches of 32, two ahead.
 *
 * Prints JSON: seconds from the first request to the last sample, of which who takes them waited, and seconds of
 * processors. The first 64 pictures are left out, as is opening. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "data/ds_int.h"

enum { SPLIT = 32, DEPTH = 2, BEFORE = 64 };

static int quit(const struct err *e)
{
    fprintf(stderr, "reading: %s\n", e->text);
    return e->code;
}

static struct ds *pictures(const char *path, int64_t pixels, char **setting, int n, struct err *e)
{
    struct text t = {0};
    struct ds *d = NULL;
    text_add(&t, "model { network = \"resnet50\" }\ndata { source = \"images\"  train = \"%s\"\n"
             "mean = {0.485, 0.456, 0.406}  std = {0.229, 0.224, 0.225}\n", path);
    for (int i = 0; i < n; i++) text_add(&t, "%s\n", setting[i]);
    text_add(&t, "}\ntrain { steps = 1 }\n");
    struct conf *c = conf_parse("reading", t.s, t.n, e);
    struct ds_want want = {.n = 1, .field = {{"x", ROLE_SAMPLE, F32, {3, {3, pixels, pixels}}, 0}}};
    if (c && !conf_finish(c, e)) ds_images.open(c, DS_TRAIN, &want, &d, e);
    text_free(&t);
    return d;
}

struct reading { struct feed *f; struct feed_order order; uint64_t asked, taken, waited_ns; };

static int ask(struct reading *r, struct err *e)
{
    int64_t id[SPLIT];
    uint64_t epoch;
    for (; r->asked < r->taken + DEPTH * SPLIT; r->asked += SPLIT) {
        feed_batch(&r->order, r->asked, SPLIT, id, &epoch);
        if (feed_request(r->f, SPLIT, id, r->asked, e)) return -1;
    }
    return 0;
}

static int take(struct reading *r, struct err *e)
{
    void *const *value;
    uint64_t began = clock_ns();
    if (ask(r, e) || feed_take(r->f, NULL, &value, e)) return -1;
    r->waited_ns += clock_ns() - began;
    r->taken += SPLIT;
    feed_give(r->f);
    return 0;
}

int main(int argc, char **argv)
{
    struct err e = {0};
    if (argc < 5) return 64;
    uint64_t images = strtoull(argv[4], NULL, 10);
    struct ds *d = pictures(argv[1], atoll(argv[2]), argv + 5, argc - 5, &e);
    if (!d) return quit(&e);
    struct reading r = {.order = {.seed = 1, .count = d->kind->count(d), .shuffle = true}};
    struct feed_want want = {.ds = d, .n_fields = 1, .field = {PAIR_INPUT}, .max_samples = SPLIT, .depth = DEPTH,
                             .readers = atoi(argv[3])};
    r.order.count -= r.order.count % SPLIT;              /* whole micro-batches */
    if (!r.order.count || feed_open(&want, &r.f, &e)) return quit(&e);
    while (r.taken < BEFORE) if (take(&r, &e)) return quit(&e);
    uint64_t wall = clock_ns(), cpu = clock_process_ns();
    r.waited_ns = 0;
    while (r.taken < BEFORE + images) if (take(&r, &e)) return quit(&e);
    printf("{\"images\": %llu, \"seconds\": %.6f, \"waited_seconds\": %.6f, \"cpu_seconds\": %.6f}\n",
           (unsigned long long)(r.taken - BEFORE), (double)(clock_ns() - wall) * 1e-9, (double)r.waited_ns * 1e-9,
           (double)(clock_process_ns() - cpu) * 1e-9);
    feed_close(r.f);
    ds_close(d);
    return 0;
}
