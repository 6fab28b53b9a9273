/* See write_onnx.h. */
#include <jansson.h>
#include <stdlib.h>
#include "config.h"
#include "cli/write_onnx.h"
#include "cluster/shutdown.h"
#include "job/job.h"
#include "model/onnx/write.h"
#include "plan/select.h"
#include "report/class_file.h"
#include "report/output_paths.h"
#include "train/lora_merge.h"
#include "train/weights.h"

/* graph: what is written, without adapters. */
struct export {
    struct conf *conf;
    struct job job;
    struct placement pl;
    struct graph *plain;
    const struct graph *graph;
    struct weights_source source;
    struct lora_merge merge;
    struct st_body body;
};

/* Only the network counts, not the machine and how the run computed. */
static struct conf *conf_of(const struct conf *given)
{
    struct conf *c = conf_copy(given);
    c->run.device = DEVICE_cpu;
    c->train.precision = WANT_FP32;
    c->train.winograd = false;
    c->generate.every_steps = 0;
    return c;
}

/* The registry's rows, without places. */
static int network_read(struct export *x, struct err *e)
{
    const struct state_buffers none = {.fixed = true};
    x->job.conf = x->conf;
    if (job_device(&x->job, e) || job_model(&x->job, e)) return -1;
    x->job.sel = select_make(x->job.graph, &x->job.dev, 1, e);
    if (!x->job.sel) return -1;
    x->pl.mem = arena_new();
    x->pl.n_state = state_rows_make(x->pl.mem, x->job.sel, &none, &x->pl.state);
    x->graph = x->job.graph;
    if (!conf_adapts(x->conf)) return 0;
    struct conf *plain = conf_copy(x->conf);
    plain->lora.rank = 0;
    plain->lora.init_from = NULL;
    x->graph = x->plain = model_build(plain, e);
    return x->plain ? 0 : -1;
}

static int row_get(void *ctx, int i, void *buf, const void **at, struct err *e)
{
    struct export *x = ctx;
    return weights_source_get(&x->source, x->merge.rows.row[i], buf, at, e);
}

static int weights_find(struct export *x, struct weights_used *used, struct text *notes, struct err *e)
{
    const struct conf *c = x->conf;
    const bool adapts = conf_adapts(c);
    struct weights_begin q = {.conf = c, .pl = &x->pl, .all = true, .source = &x->source};
    char base[33];
    if (adapts) q.digest = mem_alloc((size_t)x->pl.n_state * sizeof *q.digest + 1);
    int bad = weights_init(&q, used, notes, e);
    if (!bad && adapts) {
        weights_base_digest(c, &x->pl, q.digest, base);
        bad = weights_base_check(c, q.adapts_to, base, e);
    }
    free(q.digest);
    x->merge = (struct lora_merge){.g = x->job.graph, .pl = &x->pl, .get = weights_source_get, .ctx = &x->source};
    if (!bad && adapts) x->body = lora_merge_body(&x->merge);
    else if (!bad) {
        x->merge.rows = weights_rows(&x->pl, WEIGHTS_ALL, -1);
        x->body = (struct st_body){x->merge.rows.n, x->merge.rows.entry, row_get, x, NULL};
    }
    return bad ? -1 : 0;
}

static int values_get(void *ctx, const char *param, void *buf, const void **at, struct err *e)
{
    const struct export *x = ctx;
    int i = 0;
    while (i < x->body.n && strcmp(x->body.entry[i].name, param)) i++;
    if (i == x->body.n) return err_set(e, E_INTERNAL, "%s: no weight of this name was read", param);
    return x->body.data(x->body.ctx, i, buf, at, e);
}

/* ---- what readers may want to know ------------------------------------------------------------------------------- */

static void note_add(struct onnx_output *o, struct onnx_note *note, const char *key, json_t *value)
{
    note[o->n_notes++] = (struct onnx_note){key, json_dumps(value, JSON_COMPACT | JSON_REAL_PRECISION(9))};
    json_decref(value);
}

static json_t *reals_json(const struct conf_reals *r)
{
    json_t *all = json_array();
    for (int i = 0; i < r->n; i++) json_array_append_new(all, json_real(r->v[i]));
    return all;
}

static int notes_add(const struct export *x, struct onnx_output *o, struct onnx_note *note, struct err *e)
{
    const struct conf *c = x->conf;
    const struct shape *s = &x->graph->tensor[x->graph->output].shape;
    struct class_names names = {NULL, NULL};
    struct ds none = {.n_classes = 0};
    const char *from = conf_adapts(c) ? c->lora.init_from : c->run.init_from;
    if (from && class_file_use(from, c, &none, &names, e)) return -1;
    if (names.all && s->n && (int64_t)json_array_size(names.all) == s->d[0])
        note_add(o, note, "classes", json_incref(names.all));
    class_names_free(&names);
    if (c->data.mean.n) note_add(o, note, "mean", reals_json(&c->data.mean));
    if (c->data.std.n) note_add(o, note, "std", reals_json(&c->data.std));
    return 0;
}

/* ---- the mode ---------------------------------------------------------------------------------------------------- */

static int file_write(struct export *x, const char *file, const struct weights_used *used, struct text *out,
                      struct err *e)
{
    enum { NOTES = 3 };
    struct onnx_note note[NOTES];
    struct onnx_written w;
    char b[2][32];
    struct onnx_output o = {.path = file, .version = PACKAGE_VERSION, .most = (uint64_t)x->conf->model.max_shard_size,
                            .note = note, .values = values_get, .ctx = x, .stop = abort_code()};
    int bad = notes_add(x, &o, note, e) || onnx_write(x->graph, &o, &w, e);
    for (int i = 0; i < o.n_notes; i++) free((char *)note[i].value);
    if (bad) return -1;
    text_add(out, "%s: %d nodes, %s", file, w.nodes, text_bytes(w.bytes, b[0]));
    if (w.outside) text_add(out, ", and %s in %s" ONNX_DATA, text_bytes(w.outside, b[1]), file);
    text_add(out, "; weights: %s%s%s\n", used->path.s, used->which.n ? ", " : "", used->which.n ? used->which.s : "");
    return 0;
}

int write_onnx(const struct conf *given, const char *file, struct text *out, struct err *e)
{
    struct export x = {.conf = conf_of(given)};
    struct weights_used used = {.path = {0}};
    int bad = output_paths_spare(given, "--write-onnx", file, e) || network_read(&x, e) ||
              weights_find(&x, &used, out, e) || file_write(&x, file, &used, out, e);
    weights_rows_free(&x.merge.rows);
    weights_source_close(&x.source);
    weights_used_free(&used);
    graph_free(x.plain);
    if (x.pl.mem) arena_free(x.pl.mem);
    job_free(&x.job);
    return bad ? -1 : 0;
}
