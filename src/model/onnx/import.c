/* From the nodes of an ONNX file to a network: onnx.h. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include "model/onnx/value.h"

enum { NODES_MOST = 1 << 16 };

int import_fail(struct import *m, const char *fmt, ...)
{
    char raw[300] = "", text[400], name[120], op[60];
    const char two[] = "with two samples: ";
    const size_t at = m->two ? sizeof two - 1 : 0;
    va_list ap;
    if (m->e->code) return -1;
    memcpy(raw, two, at);
    va_start(ap, fmt);
    vsnprintf(raw + at, sizeof raw - at, fmt, ap);
    va_end(ap);
    text_printable(raw, text, sizeof text);              /* names of the file are in it */
    if (!m->node) return err_set(m->e, E_DATA, "%s: %s", m->file->path, text);
    const char *said = m->node->name && *m->node->name ? m->node->name : m->node->n_output ? m->node->output[0] : "";
    return err_set(m->e, E_DATA, "%s: node %s (%s): %s", m->file->path, text_printable(said, name, sizeof name),
                   text_printable(m->node->op_type ? m->node->op_type : "", op, sizeof op), text);
}

/* ---- values by name ---------------------------------------------------------------------------------------------- */

struct value *value_named(const struct import *m, const char *name)
{
    const int k = name_table_find(&m->named, name);
    return k < 0 ? NULL : m->value.v[k];
}

static void name_value(struct import *m, const char *name, struct value *v)
{
    if (!v->name) v->name = name;
    name_table_add(&m->named, name, m->value.n);
    *vec_push(&m->value) = v;
}

static void initializers(struct import *m)
{
    const Onnx__Graph *g = m->file->model->graph;
    for (size_t i = 0; i < g->n_initializer; i++) {
        const Onnx__Tensor *t = g->initializer[i];
        if (!t->name || value_named(m, t->name)) continue;
        struct value *v = arena_alloc(m->file->mem, sizeof *v);
        *v = (struct value){.kind = V_FIXED, .tensor = -1, .scale = 1, .from = t, .whole = !onnx_floats(t),
                            .f64 = t->data_type == ONNX_F64};
        v->at = axes_of((int)t->n_dims, t->dims);
        v->count = axes_count(&v->at);
        name_value(m, t->name, v);
    }
}

/* Dimensions stay so small that products of them are numbers. */
static int size_check(struct import *m, const struct value *v)
{
    const struct axes *a = &v->at;
    int64_t n = 1;
    for (int i = 0; i < a->n; i++)
        if (a->d[i] < 0 || __builtin_mul_overflow(n, a->d[i], &n) || n > ELEMENTS_MOST)
            return import_fail(m, "a tensor of more than 2^40 elements");
    return n || is_fixed(v) ? 0 : import_fail(m, "a tensor without elements");
}

/* ---- the input --------------------------------------------------------------------------------------------------- */

/* Dimension i of a sample (0: behind that of the batch). */
static int64_t sample_dim(struct import *m, const Onnx__Value *x, int i, int n)
{
    const Onnx__Dimension *d = x->type->tensor_type->shape->dim[i + 1];
    const struct shape *said = &m->ask->input;
    if (d->value_case == ONNX__DIMENSION__VALUE_DIM_VALUE && d->dim_value > 0) return d->dim_value;
    if (said->n == n) return said->d[i];
    char name[60];
    text_printable(d->value_case == ONNX__DIMENSION__VALUE_DIM_PARAM && d->dim_param ? d->dim_param : "?", name,
                   sizeof name);
    return import_fail(m, "dimension %d of its input, %s, is open: model.input decides it", i + 1, name);
}

static int input_add(struct import *m, const Onnx__Value *x)
{
    if (!x->type || !x->type->tensor_type || !x->type->tensor_type->shape)
        return import_fail(m, "an input without dimensions");
    const int type = x->type->tensor_type->elem_type, n = (int)x->type->tensor_type->shape->n_dim - 1;
    const bool tokens = type == ONNX_I64 || type == ONNX_I32;
    struct shape s = {.n = n};
    int64_t dims[RANK] = {1};
    if (n < 1 || n >= MAX_DIMS) return import_fail(m, "an input of %d dimensions", n + 1);
    if (!tokens && type != ONNX_F32) return import_fail(m, "an input that is neither FLOAT nor INT64");
    if (tokens && n != 1) return import_fail(m, "an input of integers that is no row of tokens");
    for (int i = 0; i < n; i++) if ((dims[i + 1] = s.d[i] = sample_dim(m, x, i, n)) < 1) return -1;
    const Onnx__Dimension *batch = x->type->tensor_type->shape->dim[0];
    if (batch->value_case == ONNX__DIMENSION__VALUE_DIM_VALUE && batch->dim_value != 1)
        return import_fail(m, "its input is of %lld samples: export it with one, or with an open dimension 0",
                           (long long)batch->dim_value);
    const int t = graph_input(m->b, tokens ? "tokens" : "input", ROLE_SAMPLE, &s, tokens ? I64 : F32);
    if (t < 0) return import_fail(m, "%s", m->b->e.text);
    if (tokens) m->tokens = t;
    struct axes at = axes_of(n + 1, dims);
    m->open = batch->value_case != ONNX__DIMENSION__VALUE_DIM_VALUE;
    at.sample = m->open, at.outer = 1;
    struct value *v = value_view(m, t, &at);
    if (size_check(m, v)) return -1;
    v->wide = tokens;
    name_value(m, x->name, v);
    return 0;
}

static int inputs(struct import *m)
{
    const Onnx__Graph *g = m->file->model->graph;
    int n = 0;
    for (size_t i = 0; i < g->n_input; i++) {
        if (!g->input[i]->name || value_named(m, g->input[i]->name)) continue;    /* old files list weights, too */
        if (n++) return import_fail(m, "more than one input");
        if (input_add(m, g->input[i])) return -1;
    }
    return n ? 0 : import_fail(m, "it has no input");
}

/* ---- nodes ------------------------------------------------------------------------------------------------------- */

static const struct import_row *row_find(const struct import_row *r, const char *op)
{
    while (r->op && strcmp(r->op, op)) r++;
    return r->op ? r : NULL;
}

static const struct import_row *op_of(const char *op)
{
    static const struct import_row function = {"function", import_function, 1, 0}, none = {"", NULL, 0, 0};
    const struct import_row *r = row_find(import_moves, op);
    if (!r) r = row_find(import_layers, op);
    return r ? r : function_code(op) >= 0 ? &function : &none;
}

static bool of_standard(const Onnx__Node *n)
{
    return !n->domain || !*n->domain || !strcmp(n->domain, "ai.onnx");
}

enum { IN_MOST = 64, OUT_MOST = 16 };

/* Computes known values once more, with two samples. */
static int twins(struct import *m, import_op *f, struct value **in, struct value **out)
{
    struct value *in2[IN_MOST] = {NULL}, *out2[OUT_MOST] = {NULL};
    const int n_in = (int)m->node->n_input, n_out = (int)m->node->n_output;
    bool any = false;
    for (int i = 0; i < n_in; i++) {
        in2[i] = in[i] && in[i]->twin ? in[i]->twin : in[i];
        any |= in2[i] != in[i];
    }
    if (!any) return 0;
    m->two = true;
    if (f(m, in2, n_in, out2, n_out)) return import_fail(m, "%s", m->b->e.text);
    m->two = false;
    for (int i = 0; i < n_out; i++) if (out[i]) out[i]->twin = out2[i];
    return 0;
}

/* Whether known numbers are the same for each sample: with two samples they are there twice along the axis that is
 * `behind` others from the last one. */
static bool repeats(struct import *m, struct value *v, int behind)
{
    const struct axes *one = &v->at, *two = &v->twin->at;
    const int axis = one->n - 1 - behind;
    int64_t outer = 1, inner = 1;
    if (one->n != two->n || axis < 0 || one->d[axis] != 1 || two->d[axis] != 2) return false;
    for (int i = 0; i < one->n; i++) {
        if (i != axis && one->d[i] != two->d[i]) return false;
        if (i < axis) outer *= one->d[i];
        if (i > axis) inner *= one->d[i];
    }
    struct axes first = *two;                            /* of a view, without its numbers */
    first.d[axis] = 1;
    if (!two->stride[axis] && v->from == v->twin->from && v->c == v->twin->c && axes_same(one, &first)) return true;
    const double *c = fixed_numbers(m, v), *c2 = c ? fixed_numbers(m, v->twin) : NULL;
    for (int64_t i = 0; c2 && i < outer; i++)
        for (int k = 0; k < 2; k++)
            if (memcmp(c2 + (2 * i + k) * inner, c + i * inner, (size_t)inner * sizeof *c)) return false;
    return c2 != NULL;
}

bool same_numbers(struct import *m, struct value *v)
{
    const int64_t n = axes_count(&v->at);
    if (v->at.n != v->twin->at.n || memcmp(v->at.d, v->twin->at.d, (size_t)v->at.n * sizeof *v->at.d)) return false;
    const double *c = fixed_numbers(m, v), *c2 = c ? fixed_numbers(m, v->twin) : NULL;
    return c2 && !memcmp(c, c2, (size_t)n * sizeof *c);
}

/* Beside activations, known numbers that depend on the number of samples must be the same for each sample, and may not
 * have more dimensions: the output would have them. */
static int known_check(struct import *m, const struct import_row *r, struct value **in)
{
    const int n_in = (int)m->node->n_input;
    const bool spreads = r->known == BROADCASTS;
    int most = 0, behind = -1;
    for (int i = 0; i < n_in; i++) {
        if (!in[i] || is_fixed(in[i])) continue;
        if (in[i]->at.n > most) most = in[i]->at.n;
        if (in[i]->at.sample && in[i]->at.outer == 1) behind = in[i]->at.n - in[i]->at.sample;
    }
    for (int i = 0; i < n_in; i++) {
        struct value *v = in[i];
        if (!is_fixed(v)) continue;
        if (spreads && v->at.n > most) return import_fail(m, "known numbers of more dimensions than its activation");
        const bool own = !v->twin || (r->known && r->known == i) || same_numbers(m, v) ||
                         (spreads && behind >= 0 && repeats(m, v, behind));
        if (!own) return import_fail(m, "its input %d depends on the number of samples", i);
    }
    return 0;
}

static int node_add(struct import *m, const Onnx__Node *n)
{
    struct value *in[IN_MOST] = {NULL}, *out[OUT_MOST] = {NULL};
    bool known = true;
    m->node = n;
    if (!n->op_type) return import_fail(m, "it names no operator");
    if (!of_standard(n)) return import_fail(m, "an operator of the domain %.60s", n->domain);
    const struct import_row *r = op_of(n->op_type);
    import_op *f = r->f;
    if (!f && !fold_knows(n->op_type)) return import_fail(m, "there is no counterpart of this operator");
    if (n->n_input > IN_MOST || n->n_output > OUT_MOST || !n->n_output) return import_fail(m, "its inputs or outputs");
    for (size_t i = 0; i < n->n_input; i++) {
        if (!*n->input[i]) continue;
        in[i] = value_named(m, n->input[i]);
        if (!in[i]) return import_fail(m, "its input %.80s does not exist", n->input[i]);
        known &= is_fixed(in[i]);
    }
    const int needs = r->needs == ALL && n->n_input ? (int)n->n_input : r->needs == ALL ? 1 : r->needs;
    for (int i = 0; i < needs; i++) if (!in[i]) return import_fail(m, "its input %d is missing", i);
    if (known && fold_knows(n->op_type) && n->n_input && strcmp(n->op_type, "Gather")) f = import_fold;
    if (!f) return import_fail(m, "there is no counterpart of this operator but for known numbers");
    if ((!known && known_check(m, r, in)) || f(m, in, (int)n->n_input, out, (int)n->n_output))
        return import_fail(m, "%s", m->b->e.text);
    if (known && twins(m, f, in, out)) return -1;
    for (size_t i = 0; i < n->n_output; i++) {
        if (!*n->output[i] || !out[i]) continue;
        if (size_check(m, out[i])) return -1;
        if (value_named(m, n->output[i])) return import_fail(m, "its output %.80s exists already", n->output[i]);
        name_value(m, n->output[i], out[i]);
    }
    const int64_t most = m->ask->most ? m->ask->most : ONNX_KNOWN;
    return m->folded > most ? import_fail(m, "more known numbers than a file may have") : 0;
}

/* Marks the nodes that the output needs, and counts what they read. ONNX lists producers first, so one way back is
 * enough. */
static void needed_mark(struct import *m, const char *output, bool *needed)
{
    const Onnx__Graph *g = m->file->model->graph;
    name_table_add(&m->reads, output, 0);
    m->read[0].n = 1;
    int n = 1;
    for (size_t i = g->n_node; i-- > 0;) {
        const Onnx__Node *x = g->node[i];
        for (size_t k = 0; k < x->n_output; k++) needed[i] |= name_table_find(&m->reads, x->output[k]) >= 0;
        for (size_t k = 0; needed[i] && k < x->n_input; k++) {
            int at = name_table_find(&m->reads, x->input[k]);
            if (at < 0) name_table_add(&m->reads, x->input[k], at = n++);
            m->read[at].n++;
            m->read[at].by = x;
        }
    }
}

static int nodes(struct import *m, const char *output)
{
    const Onnx__Graph *g = m->file->model->graph;
    size_t names = 1;
    if (g->n_node > NODES_MOST) return import_fail(m, "more than %d nodes", NODES_MOST);
    for (size_t i = 0; i < g->n_node; i++) names += g->node[i]->n_input;
    bool *needed = mem_alloc(g->n_node + 1);
    m->read = arena_alloc(m->file->mem, names * sizeof *m->read);
    int bad = 0;
    needed_mark(m, output, needed);
    for (size_t i = 0; i < g->n_node && !bad; i++) {
        const Onnx__Node *x = g->node[i];
        if (!needed[i]) continue;
        bad = node_add(m, x);
        for (size_t k = 0; k < x->n_output && !bad; k++) {
            struct value *v = value_named(m, x->output[k]);
            const int at = name_table_find(&m->reads, x->output[k]);
            if (v && at >= 0) v->uses += m->read[at].n;
        }
    }
    free(needed);
    return bad;
}

/* ---- the output -------------------------------------------------------------------------------------------------- */

/* The table of tokens that has the values of a matrix of the head: exporters write a shared weight twice, once turned.
 * NULL: none, or values that are not in memory. */
static const Onnx__Tensor *shared_find(struct import *m, const struct value *head)
{
    const int64_t width = head->at.d[0], words = head->at.d[1];
    struct onnx_weight h, t;
    struct err none = {0};
    const struct axes row = axes_of(2, head->at.d);
    if (!head->from || head->at.offset || !axes_same(&head->at, &row) || axes_count(&row) != head->count ||
        onnx_place(m->file, head->from, &h, &none) || !h.values || strcmp(h.type, "F32")) return NULL;
    for (int i = 0; i < m->used.n; i++) {
        const Onnx__Tensor *of = m->used.v[i].from;
        if (of->n_dims != 2 || of->dims[0] != words || of->dims[1] != width || onnx_place(m->file, of, &t, &none) ||
            !t.values || strcmp(t.type, "F32")) continue;
        bool same = true;
        for (int64_t k = 0; k < words * width && same; k++)
            same = !memcmp((const float *)t.values + k, (const float *)h.values + k % width * words + k / width, 4);
        if (same) return of;
    }
    return NULL;
}

/* A decoder's head is its loss, too, so that logits of all points are never stored together. */
static int head(struct import *m, struct value *v, struct onnx_net *net)
{
    char attrs[80];
    const struct value *w = v->b;
    struct value *x = v->a, weight = *w;
    const int t = channels_of(m, x, x->at.n - 1);
    if (t < 0) return -1;
    if (w->at.stride[0] != 1) {
        if (!(weight.from = shared_find(m, w))) return 1;          /* stored the other way: a linear layer and a loss */
        weight.name = weight.from->name;
    }
    const struct shape points = {1, {axes_count(&x->at) / x->at.d[x->at.n - 1]}};
    weight.at = axes_of(2, (int64_t[]){w->at.d[1], w->at.d[0]});
    const int labels = graph_input(m->b, "labels", ROLE_TARGET, &points, I64);
    const char *name = node_name(m, w);
    snprintf(attrs, sizeof attrs, "classes=%lld", (long long)w->at.d[1]);
    net->loss = graph_add(m->b, &(struct graph_node){"token_loss", name, NULL, attrs, 2, {t, labels}, {NULL}});
    net->output = t;
    return net->loss < 0 ? import_fail(m, "%s", m->b->e.text) : take_weight(m, &weight, name, 0);
}

/* The output of a sample has its first dimension first: channels, then points. */
static int output(struct import *m, struct value *v, struct onnx_net *net)
{
    net->loss = -1;
    if (is_fixed(v)) return import_fail(m, "its output does not depend on its input");
    if (m->tokens >= 0 && v->kind == V_PRODUCT && !m->ask->predicts) {
        const int is = head(m, v, net);
        if (is <= 0) return is;
    }
    net->output = whole_of(m, v);
    if (net->output < 0) return -1;
    if (m->b->tensor.v[net->output].producer < 0) return import_fail(m, "it has no layer");
    if (v->at.sample && (v->at.sample > 1 || v->at.outer > 1))
        return import_fail(m, "samples are not the first dimension of its output");
    const struct shape *s = &m->b->tensor.v[net->output].shape;
    const int64_t all = shape_count(s), points = all / s->d[0];
    const bool row = v->at.n == 2 && v->at.d[1] == all && (all == 1 || v->at.stride[1] == 1);
    for (int i = 0; i < v->at.n && !row; i++)
        if (v->at.stride[i] < points && v->at.d[i] > 1 && v->at.stride[i] * v->at.d[i] > points)
            return import_fail(m, "an axis of its output is channels and points");
    for (int i = 0; i < v->at.n; i++)                    /* channels among each other, and points */
        for (int k = i + 1; k < v->at.n; k++)
            if (v->at.d[i] > 1 && v->at.d[k] > 1 && (v->at.stride[i] < points) == (v->at.stride[k] < points) &&
                v->at.stride[i] < v->at.stride[k])
                return import_fail(m, "its output has its points in another order");
    if (row && s->n > 1)
        net->output = emit(m, "flatten", "output", "", net->output);
    if (m->tokens >= 0 && m->ask->predicts) m->b->loss_op = op_find("token_loss");
    return net->output < 0 ? -1 : 0;
}

static int build(struct import *m, struct onnx_net *net)
{
    const Onnx__Model *model = m->file->model;
    const Onnx__Graph *g = model->graph;
    for (size_t i = 0; i < model->n_opset_import; i++)
        if (!model->opset_import[i]->domain || !*model->opset_import[i]->domain ||
            !strcmp(model->opset_import[i]->domain, "ai.onnx"))
            m->opset = model->opset_import[i]->version;
    if (m->opset < 1) return import_fail(m, "it names no opset");
    if (!g->n_output || !g->output[0]->name) return import_fail(m, "it has no output");
    initializers(m);
    if (inputs(m) || nodes(m, g->output[0]->name)) return -1;
    struct value *v = value_named(m, g->output[0]->name);
    return v ? output(m, v, net) : import_fail(m, "no node computes its output");
}

int onnx_build(struct graph_builder *b, const char *path, const struct onnx_ask *ask, struct onnx_net *net,
               struct err *e)
{
    struct err own = {0};
    struct import m = {.b = b, .file = onnx_file_open(path, e), .ask = ask, .tokens = -1, .positions = -1, .e = &own};
    if (!m.file) return -1;
    const int bad = build(&m, net);
    if (bad) err_set(e, own.code, "%s", own.text);
    vec_free(&m.value);
    vec_free(&m.used);
    name_table_free(&m.named);
    name_table_free(&m.bases);
    name_table_free(&m.reads);
    vec_free(&m.last);
    onnx_file_close(m.file);
    return bad;
}
