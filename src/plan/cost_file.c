/* profile.json: measured costs as a file that people can keep, read and edit. Times are of one group and one
 * micro-batch. It has no step times, so one file serves every cut and schedule of the same network on the same kind of
 * device. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "plan/cost.h"
#include "plan/plan.h"

static const char *const phase_key[PH_COUNT] = {
    [PH_FWD] = "forward_ns", [PH_BWD_DATA] = "input_grad_ns", [PH_BWD_WEIGHTS] = "weight_grad_ns",
};
#define FORMAT "mpstaged profile 2"
#define OTHERS "other_threads"
enum { MAX_THREADS = 1 << 20 };

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static const char *group_name(const struct selection *s, int group)
{
    return s->g->node[s->group[group].node[0]].name;
}

static void device_text(const struct selection *s, struct text *out)
{
    if (s->dev.supposed) text_add(out, "%s", s->dev.backend);
    else text_add(out, "%s %s %s", s->dev.backend, s->dev.library, s->dev.isa);
}

static void graph_hash(const struct selection *s, char out[33])
{
    struct text t = {0};
    graph_print(s->g, &t);
    text_hash(t.s, t.n, out);
    text_free(&t);
}

static int64_t param_bytes(const struct selection *s, int group)
{
    int64_t sum = 0;
    for (int i = 0; i < s->group[group].n_param; i++)
        sum += shape_count(&s->g->param[s->group[group].param[i]].shape) * 4;
    return sum;
}

static json_t *times_json(const struct cost *k, const struct selection *s, int group)
{
    json_t *o = json_pack("{s:s}", "name", group_name(s, group));
    for (int ph = 0; ph < PH_COUNT; ph++) {
        json_t *a = json_array();
        for (int i = 0; i < k->n_sizes; i++)
            json_array_append_new(a, json_real(round(*cost_cell(k, i, (enum phase)ph, group))));
        json_object_set_new(o, phase_key[ph], a);
    }
    return o;
}

static json_t *group_json(const struct cost *k, const struct selection *s, int group)
{
    const struct group *g = &s->group[group];
    json_t *o = times_json(k, s, group);
    json_int_t value = 0;
    for (int i = 0; i < g->n_out; i++) value += (json_int_t)select_sample_bytes(s, g->outs[i]);
    json_object_set_new(o, "output_bytes", json_integer(value));
    json_object_set_new(o, "kept_bytes", json_integer((json_int_t)(group_saved(g, 2) - group_saved(g, 1))));
    json_object_set_new(o, "parameter_bytes", json_integer((json_int_t)param_bytes(s, group)));
    return o;
}

/* Adds the measurements with one number of threads to o. */
static void measured_json(json_t *o, const struct cost *k, int threads, json_t *groups)
{
    json_t *sizes = json_array();
    for (int i = 0; i < k->n_sizes; i++) json_array_append_new(sizes, json_integer(k->size[i]));
    json_t *of = json_pack("{s:i,s:o,s:f,s:f,s:f,s:f,s:f,s:o}", "threads", threads, "micro_batch_sizes", sizes,
                           "transfer_latency_ns", k->latency_ns, "transfer_bytes_per_ns", k->bytes_per_ns,
                           "transfer_busy_ns_per_byte", k->busy_ns_per_byte, "optimizer_ns_per_byte",
                           k->optimizer_ns_per_byte, "load_ns_per_sample", k->load_ns, "groups", groups);
    if (k->sum_ns_per_byte > 0) json_object_set_new(of, "sum_ns_per_byte", json_real(k->sum_ns_per_byte));
    if (k->disk_ns_per_byte > 0) json_object_set_new(of, "disk_ns_per_byte", json_real(k->disk_ns_per_byte));
    if (k->spread > 0) json_object_set_new(of, "spread", json_real(k->spread));
    json_object_update(o, of);
    json_decref(of);
}

static json_t *others_json(const struct cost *k, const struct selection *s)
{
    json_t *all = json_array();
    for (; k; k = k->other) {
        json_t *o = json_object(), *groups = json_array();
        for (int i = 0; i < k->n_groups; i++) json_array_append_new(groups, times_json(k, s, i));
        measured_json(o, k, k->threads, groups);
        json_array_append_new(all, o);
    }
    return all;
}

char *cost_json(const struct cost *k, const struct selection *s)
{
    struct text dev = {0};
    char hash[33];
    json_t *groups = json_array();
    device_text(s, &dev);
    graph_hash(s, hash);
    for (int i = 0; i < k->n_groups; i++) json_array_append_new(groups, group_json(k, s, i));
    json_t *o = json_pack("{s:s,s:s,s:s,s:s,s:s}", "format", FORMAT, "network", s->g->name, "graph_hash", hash,
                          "device", dev.s, "precision", select_precision(&s->dev));
    measured_json(o, k, s->dev.threads, groups);
    if (k->other) json_object_set_new(o, OTHERS, others_json(k->other, s));
    char *text = json_dumps(o, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
    json_decref(o);
    text_free(&dev);
    return text;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

struct cost_reader { const char *file; const struct selection *s; struct cost *k; struct err *e; };

static int refuse(const struct cost_reader *r, const char *what, const char *name)
{
    return err_set(r->e, E_DATA, "%s: %s %s", r->file, what, name);
}

static int number(const struct cost_reader *r, const json_t *v, const char *name, double least, double *out)
{
    *out = json_number_value(v);
    if (json_is_number(v) && isfinite(*out) && *out >= least && *out <= 1e18) return 0;
    return refuse(r, least >= 1  ? "a number from 1 is missing:"
                     : least > 0 ? "a number above 0 is missing:"
                                 : "a number from 0 is missing:", name);
}

static int same_text(const struct cost_reader *r, const json_t *o, const char *key, const char *want)
{
    const char *got = json_string_value(json_object_get(o, key));
    if (!got) return refuse(r, "is not a profile of mpstaged: it lacks", key);
    if (strcmp(got, want) == 0) return 0;
    return err_set(r->e, E_DATA, "%s: measured for %s \"%.200s\", but this is \"%s\"", r->file, key, got, want);
}

/* A supposed device takes the measured device, if the backend is the same. */
static int device_read(const struct cost_reader *r, const json_t *o)
{
    const char *got = json_string_value(json_object_get(o, "device"));
    struct text want = {0};
    device_text(r->s, &want);
    size_t n = strlen(r->s->dev.backend);
    bool takes = r->s->dev.supposed && got && strncmp(got, r->s->dev.backend, n) == 0 && got[n] == ' ';
    int bad = takes ? 0 : same_text(r, o, "device", want.s);
    text_free(&want);
    return bad || same_text(r, o, "precision", select_precision(&r->s->dev)) ? -1 : 0;
}

static int header_read(const struct cost_reader *r, const json_t *o)
{
    char hash[33];
    if (same_text(r, o, "format", FORMAT) || same_text(r, o, "network", r->s->g->name)) return -1;
    graph_hash(r->s, hash);
    return same_text(r, o, "graph_hash", hash) || device_read(r, o) ? -1 : 0;
}

static int threads_read(const struct cost_reader *r, const json_t *o, int *threads)
{
    json_int_t n = json_integer_value(json_object_get(o, "threads"));
    if (n < 1 || n > MAX_THREADS) return refuse(r, "a whole number from 1 to 1048576 is missing:", "threads");
    *threads = (int)n;
    return 0;
}

static int sizes_read(struct cost_reader *r, const json_t *o)
{
    enum { MAX_SIZES = 64, MAX_SIZE = 1 << 24 };
    const json_t *a = json_object_get(o, "micro_batch_sizes");
    size_t n = json_array_size(a);
    if (n < 1 || n > MAX_SIZES) return refuse(r, "1 to 64 numbers are missing:", "micro_batch_sizes");
    r->k = cost_new(r->file, r->s->n_groups, (int)n);
    for (size_t i = 0; i < n; i++) {
        json_int_t v = json_integer_value(json_array_get(a, i));
        if (v < 1 || v > MAX_SIZE || (i && v <= r->k->size[i - 1]))
            return refuse(r, "whole numbers in ascending order are missing:", "micro_batch_sizes");
        r->k->size[i] = (int)v;
    }
    return 0;
}

static int group_read(const struct cost_reader *r, const json_t *o, int group)
{
    const char *name = json_string_value(json_object_get(o, "name")), *want = group_name(r->s, group);
    if (!name || strcmp(name, want) != 0)
        return err_set(r->e, E_DATA, "%s: group %d is not \"%s\"", r->file, group, want);
    for (int ph = 0; ph < PH_COUNT; ph++) {
        const json_t *a = json_object_get(o, phase_key[ph]);
        if (json_array_size(a) != (size_t)r->k->n_sizes)
            return err_set(r->e, E_DATA, "%s: group \"%s\": %s does not have one number per micro-batch size", r->file,
                           want, phase_key[ph]);
        for (int i = 0; i < r->k->n_sizes; i++)
            if (number(r, json_array_get(a, (size_t)i), phase_key[ph], 0, cost_cell(r->k, i, (enum phase)ph, group)))
                return -1;
    }
    return 0;
}

/* Reads the measurements with one number of threads. r->k becomes the costs read so far, or stays NULL. */
static int measured_read(struct cost_reader *r, const json_t *o)
{
    const json_t *groups = json_object_get(o, "groups");
    int threads = 0;
    if (threads_read(r, o, &threads) || sizes_read(r, o)) return -1;
    struct cost *k = r->k;
    k->threads = threads;
    struct { const char *key; double least, *to; } field[] = {
        {"transfer_latency_ns", 0, &k->latency_ns}, {"transfer_bytes_per_ns", 1e-9, &k->bytes_per_ns},
        {"transfer_busy_ns_per_byte", 0, &k->busy_ns_per_byte},
        {"optimizer_ns_per_byte", 0, &k->optimizer_ns_per_byte}, {"load_ns_per_sample", 0, &k->load_ns},
    };
    for (size_t i = 0; i < sizeof field / sizeof *field; i++)
        if (number(r, json_object_get(o, field[i].key), field[i].key, field[i].least, field[i].to)) return -1;
    struct { const char *key; double least, *to; } may[] = {           /* older files lack these */
        {"sum_ns_per_byte", 0, &k->sum_ns_per_byte}, {"spread", 1, &k->spread},
        {"disk_ns_per_byte", 0, &k->disk_ns_per_byte},
    };
    for (size_t i = 0; i < sizeof may / sizeof *may; i++) {
        const json_t *v = json_object_get(o, may[i].key);
        if (v && number(r, v, may[i].key, may[i].least, may[i].to)) return -1;
    }
    if (json_array_size(groups) != (size_t)r->s->n_groups)
        return err_set(r->e, E_DATA, "%s: %zu groups, but the network has %d", r->file, json_array_size(groups),
                       r->s->n_groups);
    for (int i = 0; i < r->s->n_groups; i++)
        if (group_read(r, json_array_get(groups, (size_t)i), i)) return -1;
    return 0;
}

static bool is_known(const struct cost *k, int threads)
{
    for (; k; k = k->other) if (k->threads == threads) return true;
    return false;
}

static int all_read(struct cost_reader *r, const json_t *o)
{
    const json_t *more = json_object_get(o, OTHERS);
    if (header_read(r, o) || measured_read(r, o)) return -1;
    if (more && !json_is_array(more)) return refuse(r, "a list is missing:", OTHERS);
    for (size_t i = 0; i < json_array_size(more); i++) {
        struct cost *before = r->k;
        r->k = NULL;
        int bad = measured_read(r, json_array_get(more, i));
        if (!r->k) r->k = before;
        else r->k->other = before;
        if (bad) return -1;
        if (is_known(before, r->k->threads))
            return err_set(r->e, E_DATA, "%s: twice measured with %d thread%s a rank", r->file, r->k->threads,
                           r->k->threads == 1 ? "" : "s");
    }
    return 0;
}

struct cost *cost_parse_all(const char *file, const char *text, size_t n, const struct selection *s, struct err *e)
{
    json_error_t why;
    json_t *o = json_loadb(text, n, JSON_REJECT_DUPLICATES, &why);
    struct cost_reader r = {.file = file, .s = s, .e = e};
    int bad = o ? all_read(&r, o) : err_set(e, E_DATA, "%s:%d: %s", file, why.line > 0 ? why.line : 1, why.text);
    json_decref(o);
    if (!bad) return r.k;
    cost_free(r.k);
    return NULL;
}

struct cost *cost_parse(const char *file, const char *text, size_t n, const struct selection *s, struct err *e)
{
    struct cost *all = cost_parse_all(file, text, n, s, e), *k = cost_take(&all, s->dev.threads);
    if (!k && all) {
        struct text known = {0};
        for (const struct cost *x = all; x; x = x->other) text_add(&known, "%s%d", known.n ? ", " : "", x->threads);
        bool one = !all->other && all->threads == 1;
        err_set(e, E_DATA, "%s: measured with %s thread%s a rank, but these are %d", file, known.s, one ? "" : "s",
                s->dev.threads);
        text_free(&known);
    }
    cost_free(all);
    return k;
}

int cost_threads(const char *text, size_t n, double spread, int **threads)
{
    json_t *o = json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL);
    const json_t *more = json_object_get(o, OTHERS);
    int known = 0;
    *threads = mem_alloc((json_array_size(more) + 1) * sizeof **threads);
    for (size_t i = 0; o && i <= json_array_size(more); i++) {
        const json_t *of = i ? json_array_get(more, i - 1) : o;
        json_int_t v = json_integer_value(json_object_get(of, "threads"));
        if (v >= 1 && v <= MAX_THREADS && json_number_value(json_object_get(of, "spread")) <= spread)
            (*threads)[known++] = (int)v;
    }
    json_decref(o);
    return known;
}
