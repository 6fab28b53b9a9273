/* The list of formats, and what they share. */
#include <string.h>
#include "data/ds_int.h"

const struct ds_kind *const ds_list[] = {
#define DATASET(name) &ds_##name,
#include "registry.inc"
    NULL
};

int ds_open(const struct conf *c, enum ds_part part, const struct graph *g, struct ds **out, struct err *e)
{
    *out = NULL;
    struct ds_want want = {.input = g->tensor[g->input].shape, .has_target = g->labels >= 0};
    want.classes = g->output >= 0 ? shape_count(&g->tensor[g->output].shape) : 0;
    if (want.has_target) {
        want.target = g->tensor[g->labels].shape;
        want.target_type = g->tensor[g->labels].type;
    }
    for (const struct ds_kind *const *k = ds_list; *k; k++)
        if (c->data.source && !strcmp((*k)->name, c->data.source)) return (*k)->open(c, part, &want, out, e);
    return conf_error(c, "data.source", e, "there is no data source \"%s\"", c->data.source ? c->data.source : "");
}

void ds_close(struct ds *d)
{
    if (d) d->kind->close(d);
}

int ds_files(const struct conf *c, enum ds_part part, const struct ds_want *want, struct ds_files *f, struct err *e)
{
    bool train = part == DS_TRAIN;
    int64_t limit = train ? c->data.samples : c->data.test_samples;
    f->images = train ? c->data.train_images : c->data.test_images;
    f->labels = train ? c->data.train_labels : c->data.test_labels;
    f->limit = limit > 0 ? (uint64_t)limit : 0;
    const char *labels = train ? "data.train_labels" : "data.test_labels",
               *images = train ? "data.train_images" : "data.test_images";
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

int ds_classes(const char *file, const struct ds_want *want, int64_t *classes, struct err *e)
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

void ds_class_write(const struct ds_want *want, int64_t classes, int64_t label, void *y)
{
    if (want->target_type == I64) {
        *(int64_t *)y = label;
        return;
    }
    memset(y, 0, (size_t)classes * sizeof(float));
    ((float *)y)[label] = 1;
}
