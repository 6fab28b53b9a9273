#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cli/show_batch.h"
#include "data/ds.h"
#include "data/contact_sheet.h"

/* The data set's fields: input: the picture; target: the label, -1: none. values, targets: of a sample. lo, hi: the
 * values of black and white. */
struct batch {
    const struct conf *c;
    struct ds *d;
    int input, target, n, all;                           /* n of all samples of the batch are drawn */
    struct shape picture;
    size_t values, targets;
    int64_t *id;
    float *x;
    void *label;
    float lo, hi;
};

static int fields_find(struct batch *b, struct err *e)
{
    char s[96];
    b->input = b->target = -1;
    for (int i = b->d->n_fields - 1; i >= 0; i--) {
        if (b->d->field[i].role == ROLE_SAMPLE) b->input = i;
        else b->target = i;
    }
    const struct field *f = &b->d->field[b->input];
    b->picture = b->d->picture.n ? b->d->picture : f->shape;
    b->values = (size_t)shape_count(&f->shape);
    if (b->target >= 0) b->targets = (size_t)shape_count(&b->d->field[b->target].shape);
    if (f->type == F32 && b->picture.n == 3) return 0;
    return conf_error(b->c, "data.source", e, "--show-batch: samples are not pictures (channels, height, width), but "
                      "%s %s%s", dtype_name(f->type), shape_text(&f->shape, s),
                      f->type == I64 ? "; of tokens write FILE.txt" : "");
}

static int samples_read(struct batch *b, struct err *e)
{
    const struct conf *c = b->c;
    const struct feed_order order = {.seed = (uint64_t)c->run.seed, .count = b->d->kind->count(b->d),
                                     .shuffle = c->data.shuffle};
    uint64_t epoch;
    size_t label = b->target >= 0 ? b->targets * dtype_bytes(b->d->field[b->target].type) : 0;
    b->id = mem_alloc((size_t)c->train.batch_size * sizeof *b->id);
    b->all = feed_batch(&order, 0, (int)c->train.batch_size, b->id, &epoch);
    b->n = contact_sheet_takes(b->all, b->picture.d[1], b->picture.d[2]);
    if (!b->n)
        return conf_error(c, "data.source", e, "--show-batch: pictures of %lldx%lld pixels are too large for a sheet",
                          (long long)b->picture.d[1], (long long)b->picture.d[2]);
    b->x = mem_alloc(size_mul((size_t)b->n * sizeof *b->x, b->values));
    b->label = mem_alloc(size_mul((size_t)b->n, label) + 1);
    for (int i = 0; i < b->n; i++) {
        struct ds_at x = {(uint64_t)b->id[i], 0, b->input}, y = {(uint64_t)b->id[i], 0, b->target};
        if (ds_read(b->d, &x, b->x + (size_t)i * b->values, e)) return -1;
        if (b->target >= 0 && ds_read(b->d, &y, (char *)b->label + (size_t)i * label, e)) return -1;
    }
    return 0;
}

/* Undoes data.mean and data.std. Values that are not known to be within 0 to 1 are then drawn from their minimum to
 * their maximum. */
static void values_restore(struct batch *b)
{
    const struct conf_reals *mean = &b->c->data.mean, *std = &b->c->data.std;
    size_t plane = (size_t)(b->picture.d[1] * b->picture.d[2]), all = (size_t)b->n * b->values;
    for (size_t i = 0; i < all && mean->n; i++) {
        size_t k = i % b->values / plane;
        b->x[i] = (float)(b->x[i] * std->v[std->n > 1 ? k : 0] + mean->v[mean->n > 1 ? k : 0]);
    }
    float lo = INFINITY, hi = -INFINITY;
    for (size_t i = 0; i < all; i++) lo = fminf(lo, b->x[i]), hi = fmaxf(hi, b->x[i]);
    bool unit = b->d->unit || (lo >= 0 && hi <= 1) || !(hi > lo);
    b->lo = unit ? 0 : lo;
    b->hi = unit ? 1 : hi;
}

static uint8_t level(const struct batch *b, float v)
{
    float part = (v - b->lo) / (b->hi - b->lo);
    return (uint8_t)(part >= 1 ? 255 : part > 0 ? lrintf(part * 255) : 0);   /* NaN is black */
}

/* One channel is grey; of more than three the first three are drawn. */
static void pixels_make(const struct batch *b, int i, uint8_t *rgb)
{
    size_t plane = (size_t)(b->picture.d[1] * b->picture.d[2]);
    const float *x = b->x + (size_t)i * b->values;
    for (size_t k = 0; k < 3; k++)
        for (size_t at = 0; at < plane; at++)
            rgb[3 * at + k] = level(b, x[at + (b->picture.d[0] >= 3 ? k * plane : 0)]);
}

/* ---- labels ------------------------------------------------------------------------------------------------------ */

static void class_add(const struct batch *b, int64_t k, struct text *out)
{
    if (b->d->class_name && k < b->d->n_classes) text_add(out, "%s", b->d->class_name[k]);
    else text_add(out, "%lld", (long long)k);
}

static bool probabilities(const float *t, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        if (!(t[i] >= 0 && t[i] <= 1)) return false;
        sum += t[i];
    }
    return fabs(sum - 1) < 1e-4;
}

/* The two most probable classes, a line each; or the first numbers. */
static void vector_add(const struct batch *b, const float *t, struct text *out)
{
    size_t first = 0, second = b->targets;
    if (!probabilities(t, b->targets)) {
        for (size_t i = 0; i < b->targets && i < 4; i++) text_add(out, "%s%.4g", i ? " " : "", (double)t[i]);
        text_add(out, "%s", b->targets > 4 ? " ..." : "");
        return;
    }
    for (size_t i = 1; i < b->targets; i++) if (t[i] > t[first]) first = i;
    for (size_t i = 0; i < b->targets; i++)
        if (i != first && t[i] > 0 && (second == b->targets || t[i] > t[second])) second = i;
    class_add(b, (int64_t)first, out);
    if (second == b->targets) return;
    text_add(out, " %.2f\n", (double)t[first]);
    class_add(b, (int64_t)second, out);
    text_add(out, " %.2f", (double)t[second]);
}

static void label_add(const struct batch *b, int i, struct text *out)
{
    text_add(out, "%s", "");
    if (b->target < 0) return;
    const struct field *f = &b->d->field[b->target];
    if (f->type == I64 && b->targets == 1) class_add(b, ((const int64_t *)b->label)[i], out);
    else if (f->type == F32) vector_add(b, (const float *)b->label + (size_t)i * b->targets, out);
}

static int contact_sheet_make(const struct batch *b, struct text *png, struct text *said, struct err *e)
{
    char shape[96];
    struct text title = {0};
    struct contact_sheet *s = contact_sheet_new(b->n, (int)b->picture.d[1], (int)b->picture.d[2]);
    uint8_t *rgb = mem_alloc(3 * (size_t)(b->picture.d[1] * b->picture.d[2]));
    text_add(&title, "%d of %d samples of the first batch, %s", b->n, b->all, shape_text(&b->picture, shape));
    if (!b->d->unit && (b->lo != 0 || b->hi != 1))
        text_add(&title, ", values from %.4g to %.4g", (double)b->lo, (double)b->hi);
    text_add(said, "%s\n", title.s);
    contact_sheet_title(s, title.s);
    for (int i = 0; i < b->n; i++) {
        struct text label = {0};
        label_add(b, i, &label);
        pixels_make(b, i, rgb);
        contact_sheet_put(s, i, rgb, label.s);
        text_free(&label);
    }
    int bad = contact_sheet_png(s, png, e);
    free(rgb);
    text_free(&title);
    contact_sheet_free(s);
    return bad;
}

int show_batch(struct job *j, struct text *png, struct text *said, struct err *e)
{
    struct batch b = {.c = j->conf};
    if (ds_open(b.c, DS_TRAIN, j->graph, &j->data[DS_TRAIN], e)) return -1;
    b.d = j->data[DS_TRAIN];
    if (!b.d) return conf_error(b.c, "data.train", e, "--show-batch needs training samples");
    int bad = fields_find(&b, e) || samples_read(&b, e);
    if (!bad) {
        values_restore(&b);
        bad = contact_sheet_make(&b, png, said, e);
    }
    free(b.id);
    free(b.x);
    free(b.label);
    return bad ? -1 : 0;
}
