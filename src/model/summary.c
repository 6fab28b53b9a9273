/* torchsummary's table: one row a module in call order, composite modules after their parts, then totals in MiB at 4
 * bytes an element. A row begins with the name for stage sections, recomputation and freezing; torchsummary's name
 * follows. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "model/op.h"

struct summary_row { const char *name, *layer; const struct shape *shape; int64_t params; uint64_t flops; int node; };
struct totals { int64_t params, frozen; double input, passes, weights; uint64_t flops; };

static char *thousands(int64_t v, char buf[32])
{
    char plain[32];
    int n = snprintf(plain, sizeof plain, "%lld", (long long)v), at = 0;
    for (int i = 0; i < n; i++) {
        if (i && (n - i) % 3 == 0) buf[at++] = ',';
        buf[at++] = plain[i];
    }
    buf[at] = 0;
    return buf;
}

/* Parameters of a node: a tied weight counts only at its first use (torchsummary counts it twice). */
static int64_t node_params(const struct graph *g, int i, int64_t *frozen)
{
    int64_t sum = 0;
    for (int k = 0; k < g->node[i].n_param; k++) {
        const struct param *p = &g->param[g->node[i].param[k]];
        if (p->kind != PARAM_WEIGHT || p->use_node[0] != i || p->use_slot[0] != k) continue;
        sum += shape_count(&p->shape);
        if (p->frozen) *frozen += shape_count(&p->shape);
    }
    return sum;
}

const char *graph_layer(const struct graph *g, int i)
{
    for (int k = 0; k < g->n_nodes; k++) if (g->node[k].layer) return g->node[i].layer;
    return g->node[i].op->rows ? NULL : g->node[i].op->name;
}

static double inputs_bytes(const struct graph *g)
{
    double sum = 0;
    for (int i = 0; i < g->n_inputs; i++) {
        const struct tensor *t = &g->tensor[g->input[i].tensor];
        if (g->input[i].role == ROLE_SAMPLE) sum += (double)shape_count(&t->shape) * (double)dtype_bytes(t->type);
    }
    return sum;
}

static int rows_make(const struct graph *g, struct summary_row **out, struct totals *t)
{
    VEC(struct summary_row) rows = {0};
    int c = 0;
    double elements = 0;
    *t = (struct totals){0};
    for (int i = 0; i < g->n_nodes; i++) {
        const struct node *n = &g->node[i];
        int64_t params = node_params(g, i, &t->frozen);
        t->params += params;
        t->flops += graph_flops(g, i);
        const char *layer = graph_layer(g, i);
        if (layer)
            *vec_push(&rows) = (struct summary_row){n->name, layer, &g->tensor[n->out].shape, params, graph_flops(g, i),
                                                    i};
        for (; c < g->n_containers && g->container[c].end == i + 1; c++)
            *vec_push(&rows) = (struct summary_row){
                g->container[c].name, g->container[c].layer, &g->tensor[g->container[c].out].shape, 0, 0, i};
    }
    for (int i = 0; i < rows.n; i++) elements += (double)shape_count(rows.v[i].shape);
    t->input = inputs_bytes(g) / 1048576;
    t->passes = 2 * elements * 4 / 1048576;
    t->weights = (double)t->params * 4 / 1048576;
    *out = rows.v;
    return rows.n;
}

/* ---- the table: as wide as its contents. Names that would exceed the width get a line above their row ------------ */

enum { STAGE_TABLE = 64 };                               /* columns of the table of stages */
enum { C_NAME, C_TYPE, C_SHAPE, C_PARAMS, C_MADDS, C_STAGE, COLUMNS };
static const char *const heading[] = {"Layer", "Type", "Output", "Param #", "Mult-adds", "Stage"};

struct cells { char type[64], shape[96], params[32], madds[32], stage[16]; const char *cell[COLUMNS]; };

static int columns(const struct summary_run *r) { return r ? COLUMNS : C_MADDS; }

/* type: torchsummary's name of the layer, its class and number in the table */
static void cells_make(const struct summary_row *row, int i, const struct summary_run *r, struct cells *c)
{
    snprintf(c->type, sizeof c->type, "%s-%d", row->layer, i + 1);
    snprintf(c->stage, sizeof c->stage, "%d", r ? r->stage_of[row->node] : 0);
    c->cell[C_NAME] = row->name;
    c->cell[C_TYPE] = c->type;
    c->cell[C_SHAPE] = shape_text(row->shape, c->shape);
    c->cell[C_PARAMS] = thousands(row->params, c->params);
    c->cell[C_MADDS] = text_count((double)(row->flops / 2), c->madds);
    c->cell[C_STAGE] = c->stage;
}

static void widths_find(const struct summary_row *row, int n, const struct summary_run *r, int width[COLUMNS])
{
    struct cells c;
    for (int k = 0; k < COLUMNS; k++) width[k] = (int)strlen(heading[k]);
    for (int i = 0; i < n; i++) {
        cells_make(&row[i], i, r, &c);
        for (int k = 0; k < COLUMNS; k++) if ((int)strlen(c.cell[k]) > width[k]) width[k] = (int)strlen(c.cell[k]);
    }
}

static void line(const char *const *cell, const int *width, int n, struct text *out)
{
    for (int k = 0; k < n; k++) text_add(out, "%s%*s", k ? " " : "", k <= C_TYPE ? -width[k] : width[k], cell[k]);
    text_add(out, "\n");
}

static void rule(struct text *out, char c, int width)
{
    for (int i = 0; i < width; i++) text_add(out, "%c", c);
    text_add(out, "\n");
}

static void row_print(struct cells *c, const int *width, int n, struct text *out)
{
    if ((int)strlen(c->cell[C_NAME]) > width[C_NAME]) {
        text_add(out, "%s\n", c->cell[C_NAME]);
        c->cell[C_NAME] = "";
    }
    line(c->cell, width, n, out);
}

/* Sets column widths such that the table has at most `most` columns. Returns the resulting width. */
static int widths_fit(const struct summary_row *row, int n, const struct summary_run *r, int most, int width[COLUMNS])
{
    const int LEAST = 12;                                 /* of names */
    int all = columns(r) - 1;
    widths_find(row, n, r, width);
    for (int k = 0; k < columns(r); k++) all += width[k];
    int less = all - most, may = width[C_NAME] - LEAST;
    if (less > may) less = may;
    if (less <= 0) return all;
    width[C_NAME] -= less;
    return all - less;
}

static int rows_print(const struct summary_row *row, int n, const struct summary_run *r, int most, struct text *out)
{
    int width[COLUMNS], all = widths_fit(row, n, r, most, width);
    struct cells c;
    if (all < STAGE_TABLE) all = STAGE_TABLE;
    rule(out, '-', all);
    line(heading, width, columns(r), out);
    rule(out, '=', all);
    for (int i = 0; i < n; i++) {
        cells_make(&row[i], i, r, &c);
        row_print(&c, width, columns(r), out);
    }
    rule(out, '=', all);
    return all;
}

static double mb(uint64_t bytes) { return (double)bytes / 1048576; }

struct stage_sum { int layers; int64_t params; uint64_t flops; };

static int stages_sum(const struct graph *g, const int *stage_of, struct stage_sum **out)
{
    int n = 0;
    int64_t frozen = 0;
    for (int i = 0; i < g->n_nodes; i++) if (stage_of[i] + 1 > n) n = stage_of[i] + 1;
    *out = mem_alloc((size_t)(n + 1) * sizeof **out);
    for (int i = 0; i < g->n_nodes; i++) {
        struct stage_sum *s = &(*out)[stage_of[i]];
        s->layers += graph_layer(g, i) != NULL;
        s->params += node_params(g, i, &frozen);
        s->flops += graph_flops(g, i);
    }
    return n;
}

static void run_text(const struct graph *g, const struct summary_run *r, const struct totals *t, int width,
                     struct text *out)
{
    struct stage_sum *s;
    char a[32], b[32];
    int n = stages_sum(g, r->stage_of, &s);
    text_add(out, "Forward multiply-adds per sample: %s\n", thousands((int64_t)(t->flops / 2), a));
    text_add(out, "In training at %s (MiB): parameters %.2f, running statistics %.2f,\n    gradients %.2f, %s %.2f\n",
             r->precision, mb(r->parameters), mb(r->statistics), mb(r->gradients), r->optimizer, mb(r->buffers));
    rule(out, '-', width);
    text_add(out, "%5s %8s %15s %20s %12s\n", "Stage", "Layers", "Param #", "Multiply-adds", "Share");
    for (int i = 0; i < n; i++)
        text_add(out, "%5d %8d %15s %20s %10.1f %%\n", i, s[i].layers, thousands(s[i].params, a),
                 thousands((int64_t)(s[i].flops / 2), b), t->flops ? 100.0 * (double)s[i].flops / (double)t->flops : 0);
    rule(out, '-', width);
    free(s);
}

void graph_summary(const struct graph *g, const struct summary_run *r, int most, struct text *out)
{
    struct summary_row *row;
    struct totals t;
    char num[32];
    int n = rows_make(g, &row, &t), width = rows_print(row, n, r, most, out);
    text_add(out, "Total params: %s\n", thousands(t.params, num));
    text_add(out, "Trainable params: %s\n", thousands(t.params - t.frozen, num));
    text_add(out, "Non-trainable params: %s\n", thousands(t.frozen, num));
    rule(out, '-', width);
    text_add(out, "Input size (MiB): %.2f\nForward/backward pass size (MiB): %.2f\n", t.input, t.passes);
    text_add(out, "Params size (MiB): %.2f\nEstimated Total Size (MiB): %.2f\n", t.weights,
             t.input + t.passes + t.weights);
    rule(out, '-', width);
    if (r) run_text(g, r, &t, width, out);
    free(row);
}

static void run_json(const struct graph *g, const struct summary_run *r, json_t *all)
{
    struct stage_sum *s;
    int n = stages_sum(g, r->stage_of, &s);
    json_t *stages = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(stages,
                              json_pack("{s:i,s:i,s:I,s:I}", "stage", i, "layers", s[i].layers, "params",
                                        (json_int_t)s[i].params, "multiply_adds", (json_int_t)(s[i].flops / 2)));
    json_object_set_new(all, "stages", stages);
    json_object_set_new(all, "precision", json_string(r->precision));
    json_object_set_new(all, "parameter_bytes", json_integer((json_int_t)r->parameters));
    json_object_set_new(all, "statistics_bytes", json_integer((json_int_t)r->statistics));
    json_object_set_new(all, "gradient_bytes", json_integer((json_int_t)r->gradients));
    json_object_set_new(all, "optimizer_bytes", json_integer((json_int_t)r->buffers));
    free(s);
}

char *graph_summary_json(const struct graph *g, const struct summary_run *r)
{
    struct summary_row *row;
    struct totals t;
    int n = rows_make(g, &row, &t);
    json_t *layers = json_array();
    for (int i = 0; i < n; i++) {
        json_t *shape = json_array();
        for (int k = 0; k < row[i].shape->n; k++) json_array_append_new(shape, json_integer(row[i].shape->d[k]));
        char label[64];
        snprintf(label, sizeof label, "%s-%d", row[i].layer, i + 1);
        json_t *o = json_pack("{s:s,s:s,s:s,s:o,s:I,s:I}", "name", row[i].name, "type", row[i].layer, "torchsummary",
                              label, "output_shape", shape, "params", (json_int_t)row[i].params,
                              "multiply_adds", (json_int_t)(row[i].flops / 2));
        if (r) json_object_set_new(o, "stage", json_integer(r->stage_of[row[i].node]));
        json_array_append_new(layers, o);
    }
    json_t *all = json_pack("{s:s,s:o,s:I,s:I,s:I,s:f,s:f,s:f,s:f}", "network", g->name, "layers", layers, "params",
                            (json_int_t)t.params, "trainable_params", (json_int_t)(t.params - t.frozen),
                            "multiply_adds", (json_int_t)(t.flops / 2), "input_mb", t.input, "forward_backward_mb",
                            t.passes, "params_mb", t.weights, "total_mb", t.input + t.passes + t.weights);
    if (r) run_json(g, r, all);
    char *s = json_dumps(all, JSON_INDENT(2));
    json_decref(all);
    free(row);
    return s;
}
