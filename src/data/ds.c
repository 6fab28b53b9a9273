/* The list of formats, and their common code. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#include "base/file.h"
#include "base/mem.h"
#include "data/ds_int.h"
#include "data/mix.h"
#include "data/validation.h"

const struct ds_kind *const ds_list[] = {
#define DATASET(name) &ds_##name,
#include "registry.inc"
    NULL
};

/* "x (F32 3x32x32), ids (I64 16 below 1000), y (I64 class)" */
static const char *fields_text(const struct field *f, int n, char out[300])
{
    char s[96], below[32] = "";
    size_t at = 0;
    out[0] = 0;
    for (int i = 0; i < n && at < 300; i++) {
        if (f[i].range) snprintf(below, sizeof below, " below %lld", (long long)f[i].range);
        at += (size_t)snprintf(out + at, 300 - at, "%s%s (%s %s%s)", i ? ", " : "", f[i].name, dtype_name(f[i].type),
                               f[i].shape.n ? shape_text(&f[i].shape, s) : "class", f[i].range ? below : "");
    }
    return out;
}

static bool is_positions(const struct tensor *t, enum role role)
{
    return role == ROLE_SAMPLE && t->type == I32 && !strcmp(t->name, "positions");
}

/* positions: also an input of that name. */
static struct ds_want want_of(const struct graph *g, bool positions)
{
    struct ds_want want = {0};
    for (int i = 0; i < g->n_inputs; i++) {
        const struct tensor *t = &g->tensor[g->input[i].tensor];
        if (!t->n_readers || (!positions && is_positions(t, g->input[i].role))) continue;
        want.input[want.n] = i;
        want.field[want.n++] = (struct field){t->name, g->input[i].role, t->type, t->shape,
                                              graph_input_range(g, g->input[i].tensor),
                                              graph_input_ignored(g, g->input[i].tensor)};
    }
    return want;
}

static int role_count(const struct field *f, int n, enum role role)
{
    int count = 0;
    for (int i = 0; i < n; i++) count += f[i].role == role;
    return count;
}

/* The field of that name, or the only one of that role if data set and model both have one; -1: none. */
static int field_find(const struct ds *d, const struct ds_want *want, const struct field *w)
{
    bool one = role_count(d->field, d->n_fields, w->role) == 1 && role_count(want->field, want->n, w->role) == 1;
    for (int i = 0; i < d->n_fields; i++)
        if (d->field[i].role == w->role && (one || !strcmp(d->field[i].name, w->name))) return i;
    return -1;
}

/* Adds positions to a data set without them, and the weight of samples to one whose labels all count. */
static void fields_add(struct ds *d, const struct graph *g)
{
    for (int i = 0; i < g->n_inputs; i++) {
        const struct tensor *t = &g->tensor[g->input[i].tensor];
        if (graph_input_ignored(g, g->input[i].tensor)) d->labels = (double)shape_count(&t->shape);
        if (d->kind->positions || !t->n_readers || !is_positions(t, g->input[i].role)) continue;
        if (!d->positions) d->positions = ++d->n_fields;
        d->of[i] = d->positions - 1;
        d->field[d->of[i]] = (struct field){t->name, ROLE_SAMPLE, I32, t->shape, 0, 0};
    }
}

int ds_match(struct ds *d, const struct graph *g, struct err *e)
{
    const struct ds_want want = want_of(g, d->kind->positions);
    char wants[300], has[300];
    for (int i = 0; i < want.n; i++) {
        const struct field *w = &want.field[i];
        int k = d->of[want.input[i]] = field_find(d, &want, w);
        const struct field *f = k >= 0 ? &d->field[k] : NULL;
        bool small = f && (!w->range || (f->range && f->range <= w->range));
        if (small && f->type == w->type && shape_equal(&f->shape, &w->shape)) continue;
        return err_set(e, E_CONF, "the graph's %s %s, samples have %s", w->role == ROLE_SAMPLE ? "input" : "labels",
                       fields_text(w, 1, wants), fields_text(d->field, d->n_fields, has));
    }
    fields_add(d, g);
    return 0;
}

const struct ds_kind *ds_kind_of(const struct conf *c)
{
    return c->data.source ? ds_list[c->data.source - 1] : NULL;
}

void ds_label_bytes(struct ds *to, const struct ds *of, const uint64_t *sample, uint64_t n)
{
    double sum = 0;
    for (uint64_t i = 0; i < n && of->kind->label_bytes; i++) sum += of->kind->label_bytes(of, sample ? sample[i] : i);
    if (sum > 0) to->label_bytes = sum / (double)n;
}

int ds_open(const struct conf *c, enum ds_part part, const struct graph *g, struct ds **out, struct err *e)
{
    *out = NULL;
    const struct ds_kind *k = ds_kind_of(c);
    if (!k) return conf_error(c, "data.source", e, "data.source is missing");
    const struct ds_want want = want_of(g, k->positions);
    const bool divided = c->data.validation > 0 && !k->divides;
    if (divided ? validation_open(k, c, part, &want, out, e) : k->open(c, part, &want, out, e)) return -1;
    struct err fit = {0};
    if (!*out) return 0;
    int bad = ds_match(*out, g, &fit) ? conf_error(c, "data.source", e, "%s", fit.text)
                                      : mix_open(c, part, *out, &(*out)->mix, e);
    if (!bad) return 0;
    ds_close(*out);
    *out = NULL;
    return -1;
}

int ds_read(struct ds *d, const struct ds_at *at, void *out, struct err *e)
{
    if (d->positions && at->field == d->positions - 1) {
        const int64_t n = shape_count(&d->field[at->field].shape);
        for (int64_t i = 0; i < n; i++) ((int32_t *)out)[i] = (int32_t)i;
        return 0;
    }
    return d->mix ? mix_read(d->mix, d, at, out, e) : d->kind->read(d, at->sample, at->visit, at->field, out, e);
}

void ds_damage(const struct ds *d, const struct ds_at *at, struct ds_damage *sum)
{
    uint64_t other;
    if (!d->kind->damage || (d->positions && at->field == d->positions - 1)) return;
    d->kind->damage(d, at->sample, at->field, sum);
    if (d->mix && mix_other(d->mix, at, &other)) d->kind->damage(d, other, at->field, sum);
}

bool ds_pair_has_map(const struct ds_pair *p)
{
    return p->has_target && p->target.n && (p->target_type == U8 || p->target_type == I32 || p->target_type == I64);
}

int ds_pair_of(const struct conf *c, const struct ds_want *want, bool integers, struct ds_pair *p, struct err *e)
{
    char all[300];
    bool fits = role_count(want->field, want->n, ROLE_SAMPLE) == 1 && want->n <= 2;
    *p = (struct ds_pair){0};
    for (int i = 0; fits && i < want->n; i++) {
        const struct field *f = &want->field[i];
        if (f->role == ROLE_SAMPLE) {
            p->input = f->shape;
            p->input_type = f->type;
            p->range = f->range;
            fits = f->type == F32 || (integers && (f->type == U8 || f->type == I32 || f->type == I64));
        } else {
            p->target = f->shape;
            p->target_type = f->type;
            p->classes = f->range;
            p->ignored = f->ignored;
            p->has_target = true;
            fits = f->type == F32 || (f->type == I64 && !f->shape.n) || (integers && ds_pair_has_map(p));
        }
    }
    if (fits) return 0;
    return conf_error(c, "data.source", e,
                      "the graph takes %s; %s has one input of F32%s, and classes or targets of F32%s",
                      fields_text(want->field, want->n, all), ds_kind_of(c)->name, integers ? ", U8, I32 or I64" : "",
                      integers ? ", or maps of classes" : "");
}

void ds_integer_write(enum dtype t, void *x, int64_t at, int64_t value)
{
    if (t == I64) ((int64_t *)x)[at] = value;
    else if (t == I32) ((int32_t *)x)[at] = (int32_t)value;
    else ((uint8_t *)x)[at] = (uint8_t)value;
}

void ds_pair_fields(struct ds *d, const struct ds_pair *p)
{
    d->n_fields = p->has_target ? 2 : 1;
    d->field[PAIR_INPUT] = (struct field){"input", ROLE_SAMPLE, p->input_type, p->input, p->range};
    d->field[PAIR_TARGET] =
        (struct field){"labels", ROLE_TARGET, p->target_type, p->target, p->classes, p->ignored};
}

void ds_close(struct ds *d)
{
    if (!d) return;
    mix_free(d->mix);
    d->kind->close(d);
}

typedef double sample_number(const struct ds *d, uint64_t sample, uint64_t visit);

static double samples_sum(sample_number *of, const struct ds *d, const struct feed_order *o, uint64_t position,
                          const int64_t *id, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += of(d, (uint64_t)id[i], o ? feed_place(o, position + (uint64_t)i).epoch : 0);
    return sum;
}

double ds_weight(const struct ds *d, const struct feed_order *o, uint64_t position, const int64_t *id, int n)
{
    if (d && d->kind->weight) return samples_sum(d->kind->weight, d, o, position, id, n);
    return d && d->labels > 0 ? n * d->labels : n;
}

double ds_filled(const struct ds *d, const struct feed_order *o, uint64_t position, const int64_t *id, int n)
{
    return d && d->kind->filled ? samples_sum(d->kind->filled, d, o, position, id, n) : 0;
}

uint64_t ds_before(const struct ds *d, uint64_t epoch) { return d->kind->before(d, epoch); }

const struct ds *ds_epochs_of(const struct ds *d) { return d && d->kind->before ? d : NULL; }

int ds_files(const struct conf *c, enum ds_part part, const struct ds_pair *want, struct ds_files *f, struct err *e)
{
    bool train = part == DS_TRAIN;
    int64_t limit = train ? c->data.samples : c->data.test_samples;
    f->images = train ? c->data.train : c->data.test;
    f->labels = train ? c->data.train_labels : c->data.test_labels;
    f->limit = limit > 0 ? (uint64_t)limit : 0;
    const char *labels = train ? "data.train_labels" : "data.test_labels",
               *images = train ? "data.train" : "data.test";
    if (!f->images && f->labels) return conf_error(c, labels, e, "given without %s", images);
    if (f->images && !f->labels && want->has_target) return conf_error(c, images, e, "given without %s", labels);
    return 0;
}

int ds_count(const struct conf *c, enum ds_part part, const struct ds_files *f, uint64_t there, uint64_t *count,
             struct err *e)
{
    *count = f->limit ? f->limit : there;
    if (*count <= there) return 0;
    return conf_error(c, part == DS_TRAIN ? "data.samples" : "data.test_samples", e, "%llu samples, but %s has %llu",
                      (unsigned long long)f->limit, f->images, (unsigned long long)there);
}

static int norm_length(const struct conf *c, const char *key, const struct conf_reals *v, int64_t channels,
                       struct err *e)
{
    if (v->n <= 1 || v->n == channels) return 0;
    return conf_error(c, key, e, "%d values for %lld channels", v->n, (long long)channels);
}

int ds_norm(const struct conf *c, int64_t channels, struct arena *mem, struct ds_norm *n, struct err *e)
{
    const struct conf_reals *mean = &c->data.mean, *std = &c->data.std;
    if (norm_length(c, "data.mean", mean, channels, e) || norm_length(c, "data.std", std, channels, e)) return -1;
    for (int i = 0; i < std->n; i++)
        if (!((float)std->v[i] > 0)) return conf_error(c, "data.std", e, "%g is not a standard deviation", std->v[i]);
    *n = (struct ds_norm){.channels = channels, .set = mean->n || std->n};
    if (!n->set) return 0;
    n->mean = arena_alloc(mem, (size_t)channels * sizeof *n->mean);
    n->std = arena_alloc(mem, (size_t)channels * sizeof *n->std);
    for (int64_t k = 0; k < channels; k++) {
        n->mean[k] = mean->n ? (float)mean->v[mean->n == 1 ? 0 : k] : 0;
        n->std[k] = std->n ? (float)std->v[std->n == 1 ? 0 : k] : 1;
    }
    return 0;
}

float ds_norm_level(const struct ds_norm *n, int64_t channel, float v)
{
    float x = v / 255.0f;
    return n->set ? (x - n->mean[channel]) / n->std[channel] : x;
}

void ds_norm_levels(const struct ds_norm *n, float *level)
{
    for (int64_t k = 0; k < n->channels; k++)
        for (int v = 0; v < 256; v++) *level++ = ds_norm_level(n, k, (float)v);
}

int ds_classes(const char *file, const struct ds_pair *want, int64_t *classes, struct err *e)
{
    char s[96];
    if (want->target_type == I64 && want->target.n == 0) *classes = want->classes;
    else if (want->target_type == F32 && want->target.n == 1) *classes = want->target.d[0];
    else
        return err_set(e, E_DATA, "%s: has classes, the model takes targets of shape %s", file,
                       shape_text(&want->target, s));
    return 0;
}

int ds_index_check(const struct ds *d, uint64_t index, struct err *e)
{
    uint64_t n = d->kind->count(d);
    return index < n ? 0
                     : err_set(e, E_INTERNAL, "sample %llu of %llu", (unsigned long long)index, (unsigned long long)n);
}

void ds_class_write(const struct ds_pair *want, int64_t classes, int64_t label, void *y)
{
    if (want->target_type == I64) {
        *(int64_t *)y = label;
        return;
    }
    memset(y, 0, (size_t)classes * sizeof(float));
    ((float *)y)[label] = 1;
}

/* ---- digests ----------------------------------------------------------------------------------------------------- */

static void hash_put(void *ctx, const void *p, size_t n) { XXH3_128bits_update(ctx, p, n); }

char *ds_digest(const struct ds *d, char hash[33])
{
    *hash = '\0';
    if (!d || !d->kind->tell) return hash;
    XXH3_state_t *state = mem_got(XXH3_createState());
    XXH3_128bits_reset(state);
    d->kind->tell(d, &(struct ds_sink){hash_put, state});
    XXH128_hash_t h = XXH3_128bits_digest(state);
    snprintf(hash, 33, "%016llx%016llx", (unsigned long long)h.high64, (unsigned long long)h.low64);
    XXH3_freeState(state);
    return hash;
}

uint64_t ds_message(uint64_t count, int i)
{
    uint64_t step = count / DS_TOLD, rest = count % DS_TOLD;
    return step * (uint64_t)i + rest * (uint64_t)i / DS_TOLD;
}

void ds_bytes_report(const struct ds_sink *to, int fd, const char *path, uint64_t at, uint64_t size)
{
    struct err none = {0};
    size_t n = size < DS_TOLD_BYTES ? (size_t)size : DS_TOLD_BYTES;
    char *piece = mem_alloc(n + 1);
    to->put(to->ctx, &size, sizeof size);
    if (!file_read_at(fd, path, at, piece, n, &none)) to->put(to->ctx, piece, n);
    free(piece);
}
