/* See write.h. Weights are written one after the other, so only one is in memory at a time: what protobuf-c packs are
 * the other fields, and the sizes are known before. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/out.h"
#include "model/onnx/onnx.pb-c.h"
#include "model/onnx/write.h"
#include "model/onnx/write_int.h"

enum { OPSET = 17, IR_VERSION = 8 };                     /* LayerNormalization came with opset 17 */
enum { TAG_GRAPH = 7 << 3 | 2, TAG_INITIALIZER = 5 << 3 | 2, TAG_RAW = 9 << 3 | 2 };   /* of fields in onnx.proto */
enum { PAGE = 4096, OUTSIDE = 1 };                       /* alignment in FILE.onnx.data; TensorProto.EXTERNAL */
#define MOST_BYTES ((uint64_t)INT32_MAX)                  /* of a message of protobuf */

/* A tensor of the file. data: of a constant; NULL: a parameter's values. at: in FILE.onnx.data. */
struct onnx_tensor { Onnx__Tensor *message; const void *data; size_t bytes; bool outside; uint64_t at; };
struct onnx_messages {
    VEC(Onnx__Node *) node;
    VEC(struct onnx_tensor) tensor;
    VEC(Onnx__Value *) input;
    Onnx__Value *output;
};

/* ---- messages ---------------------------------------------------------------------------------------------------- */

#define NEW(w, type, kind) message_new((w)->mem, sizeof(type), &onnx__##kind##__descriptor)
static void *message_new(struct arena *mem, size_t bytes, const ProtobufCMessageDescriptor *d)
{
    ProtobufCMessage *m = arena_alloc(mem, bytes);
    d->message_init(m);
    return m;
}

/* TensorProto.DataType */
static int32_t type_number(enum dtype t)
{
    static const int32_t number[DTYPES] = {[F32] = 1, [F64] = 11, [I64] = 7, [U8] = 2, [BF16] = 16, [I32] = 6,
                                           [F16] = 10, [I8] = 3};
    return number[t];
}

static Onnx__Tensor *tensor_new(struct onnx_writer *w, const char *name, enum dtype type, const struct shape *s)
{
    Onnx__Tensor *t = NEW(w, Onnx__Tensor, tensor);
    t->name = (char *)name;
    t->has_data_type = true;
    t->data_type = type_number(type);
    t->n_dims = (size_t)s->n;
    t->dims = arena_alloc(w->mem, (size_t)s->n * sizeof *t->dims + 1);
    memcpy(t->dims, s->d, (size_t)s->n * sizeof *t->dims);
    return t;
}

static Onnx__Attribute *attribute_new(struct onnx_writer *w, const struct onnx_attr *from)
{
    Onnx__Attribute *a = NEW(w, Onnx__Attribute, attribute);
    const struct shape one = {1, {1}};
    a->name = (char *)from->name;
    a->has_type = true;
    a->type = (int32_t)from->type;
    switch (from->type) {
    case ONNX_FLOAT: a->has_f = true, a->f = (float)from->f; break;
    case ONNX_INT: a->has_i = true, a->i = from->i; break;
    case ONNX_WORD: a->has_s = true, a->s = (ProtobufCBinaryData){strlen(from->s), (uint8_t *)from->s}; break;
    case ONNX_FILL:
        a->t = tensor_new(w, from->name, F32, &one);
        a->t->n_float_data = 1;
        a->t->float_data = arena_alloc(w->mem, sizeof *a->t->float_data);
        *a->t->float_data = (float)from->f;
        break;
    case ONNX_INTS:
        a->n_ints = (size_t)from->n;
        a->ints = arena_alloc(w->mem, (size_t)from->n * sizeof *a->ints + 1);
        memcpy(a->ints, from->v, (size_t)from->n * sizeof *a->ints);
        break;
    }
    return a;
}

static char **names_of(struct onnx_writer *w, const char *const *name, size_t n)
{
    char **all = arena_alloc(w->mem, n * sizeof *all + 1);
    for (size_t i = 0; i < n; i++) all[i] = (char *)name[i];
    return all;
}

static void node_add(struct onnx_writer *w, const char *name, const char *op, const char *const *in,
                     const struct onnx_attr *at, const char *const *out, int n_out)
{
    Onnx__Node *n = *vec_push(&w->made->node) = NEW(w, Onnx__Node, node);
    n->name = (char *)name;
    n->op_type = (char *)op;
    while (in[n->n_input]) n->n_input++;
    n->input = names_of(w, in, n->n_input);
    n->n_output = (size_t)n_out;
    n->output = names_of(w, out, n->n_output);
    while (at && at[n->n_attribute].name) n->n_attribute++;
    n->attribute = arena_alloc(w->mem, n->n_attribute * sizeof *n->attribute + 1);
    for (size_t i = 0; i < n->n_attribute; i++) n->attribute[i] = attribute_new(w, &at[i]);
    for (int i = 0; i < n_out; i++) name_table_add(&w->known, out[i], 0);
}

static Onnx__Value *value_new(struct onnx_writer *w, const char *name, enum dtype type, const struct shape *s)
{
    Onnx__Value *v = NEW(w, Onnx__Value, value);
    v->name = (char *)name;
    v->type = NEW(w, Onnx__Type, type);
    v->type->tensor_type = NEW(w, Onnx__TensorType, tensor_type);
    v->type->tensor_type->has_elem_type = true;
    v->type->tensor_type->elem_type = type_number(type);
    Onnx__Shape *to = v->type->tensor_type->shape = NEW(w, Onnx__Shape, shape);
    to->n_dim = (size_t)s->n + 1;
    to->dim = arena_alloc(w->mem, to->n_dim * sizeof *to->dim);
    for (int i = 0; i <= s->n; i++) {
        to->dim[i] = NEW(w, Onnx__Dimension, dimension);
        to->dim[i]->value_case = i ? ONNX__DIMENSION__VALUE_DIM_VALUE : ONNX__DIMENSION__VALUE_DIM_PARAM;
        if (i) to->dim[i]->dim_value = s->d[i - 1];
        else to->dim[i]->dim_param = (char *)"N";
    }
    return v;
}

/* ---- values of the network --------------------------------------------------------------------------------------- */

static bool output_last(const struct graph *g)
{
    const int in = graph_input_first(g, ROLE_SAMPLE);
    return in >= 0 && !dtype_floats(g->tensor[in].type);
}

/* A tensor has its own name where it is made, the network's output where it leaves. A parameter may have that name. */
static const char *value_name(struct onnx_writer *w, int t, bool last)
{
    const struct tensor *x = &w->g->tensor[t];
    const bool own = t == w->g->output ? output_last(w->g) : w->value[t].native == ONNX_LAST;
    if (x->shape.n > 1 && last != own) return arena_printf(w->mem, "%s/%s", x->name, last ? "last" : "first");
    for (int i = 0; i < w->g->n_params; i++)
        if (!strcmp(w->g->param[i].name, x->name)) return arena_printf(w->mem, "%s/output", x->name);
    return x->name;
}

static void value_set(struct onnx_writer *w, int t, enum onnx_layout layout)
{
    struct onnx_value *v = &w->value[t];
    v->native = layout;
    v->name[layout] = value_name(w, t, layout == ONNX_LAST);
    if (w->g->tensor[t].shape.n < 2 || !dtype_floats(w->g->tensor[t].type)) v->name[0] = v->name[1] = v->name[layout];
}

static const char *value_get(struct onnx_writer *w, int t, bool last)
{
    struct onnx_value *v = &w->value[t];
    const int n = w->g->tensor[t].shape.n;
    int64_t order[MAX_DIMS + 1] = {0};
    if (v->name[last]) return v->name[last];
    for (int i = 1; i <= n; i++) order[i] = last ? (i < n ? i + 1 : 1) : (i > 1 ? i - 1 : n);
    v->name[last] = value_name(w, t, last);
    node_add(w, arena_printf(w->mem, "%s/turn", w->g->tensor[t].name), "Transpose", INPUTS(v->name[!last]),
             ATTRS(A_VALUES("perm", n + 1, order)), &v->name[last], 1);
    return v->name[last];
}

/* ---- for operators ----------------------------------------------------------------------------------------------- */

void writer_steps(struct onnx_writer *w, const char *op, const char *const *in, const struct onnx_attr *at, int n,
                const char **out)
{
    const char *name = arena_printf(w->mem, "%s/%s", w->node->name, op);
    for (int k = 2; writer_known(w, name); k++) name = arena_printf(w->mem, "%s/%s.%d", w->node->name, op, k);
    for (int i = 0; i < n; i++) out[i] = i ? arena_printf(w->mem, "%s/%d", name, i) : name;
    node_add(w, name, op, in, at, out, n);
}

const char *writer_step(struct onnx_writer *w, const char *op, const char *const *in, const struct onnx_attr *at)
{
    const char *out;
    writer_steps(w, op, in, at, 1, &out);
    return out;
}

void writer_end(struct onnx_writer *w, const char *op, const char *const *in, const struct onnx_attr *at)
{
    const char *out[MAX_OUT];
    for (int i = 0; i < w->node->n_out; i++) {
        value_set(w, w->node->outs[i], w->last ? ONNX_LAST : ONNX_FIRST);
        out[i] = w->value[w->node->outs[i]].name[w->last];
    }
    node_add(w, w->node->name, op, in, at, out, w->node->n_out);
}

void writer_same(struct onnx_writer *w) { w->value[w->node->out] = w->value[w->node->in[0]]; }

void writer_first(struct onnx_writer *w)
{
    w->last = false;
    w->in[0] = value_get(w, w->node->in[0], false);
}

bool writer_known(const struct onnx_writer *w, const char *name) { return name_table_find(&w->known, name) >= 0; }

void writer_shared(struct onnx_writer *w, const char *name, const char *op, const char *const *in,
                 const struct onnx_attr *at)
{
    if (!writer_known(w, name)) node_add(w, name, op, in, at, &name, 1);
}

static const char *constant(struct onnx_writer *w, const char *name, enum dtype type, const struct shape *s,
                            const void *data)
{
    const size_t bytes = (size_t)shape_count(s) * dtype_bytes(type);
    if (writer_known(w, name)) return name;
    void *own = arena_alloc(w->mem, bytes + 1);
    memcpy(own, data, bytes);
    *vec_push(&w->made->tensor) = (struct onnx_tensor){tensor_new(w, name, type, s), own, bytes, false, 0};
    name_table_add(&w->known, name, 0);
    return name;
}

const char *writer_ints(struct onnx_writer *w, int n, const int64_t *v)
{
    enum { SHOWN = 8 };
    struct text t = {0};
    char hash[33];
    text_add(&t, "const/");
    for (int i = 0; i < n && n <= SHOWN; i++) text_add(&t, "%s%lld", i ? "," : "", (long long)v[i]);
    text_hash(v, (size_t)n * sizeof *v, hash);
    if (n > SHOWN) text_add(&t, "%d numbers %s", n, hash);
    const char *name = arena_strdup(w->mem, t.s);
    text_free(&t);
    return constant(w, name, I64, &(struct shape){1, {n}}, v);
}

const char *writer_indices(struct onnx_writer *w, int64_t n)
{
    int64_t *at = mem_alloc((size_t)n * sizeof *at + 1);
    for (int64_t i = 0; i < n; i++) at[i] = i;
    const char *name = constant(w, arena_printf(w->mem, "const/0 to %lld", (long long)n - 1), I64,
                                &(struct shape){1, {n}}, at);
    free(at);
    return name;
}

const char *writer_number(struct onnx_writer *w, double x)
{
    const float f = (float)x;
    return constant(w, arena_printf(w->mem, "const/float %.9g", f), F32, &(struct shape){0}, &f);
}

const char *writer_floats(struct onnx_writer *w, const char *name, const struct shape *s, const float *x)
{
    return constant(w, name, F32, s, x);
}

const char *writer_param(struct onnx_writer *w, int slot)
{
    w->used[w->node->param[slot]] = true;
    return w->g->param[w->node->param[slot]].name;
}

const char *writer_matrix(struct onnx_writer *w, int slot, bool turned)
{
    const int64_t order[] = {1, 0};
    const char *p = writer_param(w, slot), *name = arena_printf(w->mem, "%s/turned", p);
    if (w->g->param[w->node->param[slot]].turned == turned) return p;
    writer_shared(w, name, "Transpose", INPUTS(p), ATTRS(A_VALUES("perm", 2, order)));
    return name;
}

/* ---- the graph --------------------------------------------------------------------------------------------------- */

static bool is_positions(const struct tensor *t) { return t->type == I32 && !strcmp(t->name, "positions"); }

/* The node's input. A sample is a text from its begin, so its positions are known: to tables and masks it is NULL. */
static const char *input_get(struct onnx_writer *w, int i)
{
    const int t = w->node->in[i];
    if (!graph_input_is(w->g, t, ROLE_SAMPLE) || !is_positions(&w->g->tensor[t])) return value_get(w, t, w->last);
    return i ? NULL : writer_indices(w, shape_count(&w->g->tensor[t].shape));
}

static int node_write(struct onnx_writer *w, struct err *e)
{
    const struct graph *g = w->g;
    const struct node *n = w->node;
    const struct onnx_op *op = onnx_op_find(n->op->name);
    if (!op && g->file && n->line)
        return err_set(e, E_DATA, "%s:%d: %s: ONNX has no counterpart of %s", g->file, n->line, n->name, n->op->name);
    if (!op) return err_set(e, E_CONF, "%s: ONNX has no counterpart of %s", n->name, n->op->name);
    w->last = op->wants == ONNX_LAST || (op->wants == ONNX_ANY && w->value[n->in[0]].native == ONNX_LAST);
    for (int i = 0; i < MAX_IN; i++) w->in[i] = i < n->n_in ? input_get(w, i) : NULL;
    op->write(w);
    return 0;
}

/* Marks the nodes that the output depends on. */
static bool *nodes_needed(const struct graph *g, struct arena *mem)
{
    bool *tensor = arena_alloc(mem, (size_t)g->n_tensors + 1), *node = arena_alloc(mem, (size_t)g->n_nodes + 1);
    tensor[g->output] = true;
    for (int i = g->n_nodes - 1; i >= 0; i--) {
        for (int k = 0; k < g->node[i].n_out; k++) node[i] |= tensor[g->node[i].outs[k]];
        for (int k = 0; k < g->node[i].n_in && node[i]; k++) tensor[g->node[i].in[k]] = true;
    }
    return node;
}

static void inputs_add(struct onnx_writer *w, const bool *needed)
{
    for (int i = 0; i < w->g->n_inputs; i++) {
        const struct input *in = &w->g->input[i];
        const struct tensor *t = &w->g->tensor[in->tensor];
        bool read = in->tensor == w->g->output;
        for (int k = 0; k < t->n_readers; k++) read |= needed[t->reader[k]];
        if (in->role != ROLE_SAMPLE || !read) continue;
        value_set(w, in->tensor, ONNX_FIRST);
        if (!is_positions(t))
            *vec_push(&w->made->input) = value_new(w, w->value[in->tensor].name[0], t->type, &t->shape);
    }
}

static void output_add(struct onnx_writer *w)
{
    const struct tensor *t = &w->g->tensor[w->g->output];
    const bool last = output_last(w->g) && t->shape.n > 1;
    const char *name = value_get(w, w->g->output, last), *is = name;
    struct shape s = t->shape;
    for (int i = 0; last && i < s.n; i++) s.d[i] = i + 1 < s.n ? t->shape.d[i + 1] : t->shape.d[0];
    for (int i = 0; i < w->made->input.n; i++) if (!strcmp(w->made->input.v[i]->name, name)) is = "output";
    if (is != name) node_add(w, is, "Identity", INPUTS(name), NULL, &is, 1);
    w->made->output = value_new(w, is, t->type, &s);
}

static void params_add(struct onnx_writer *w)
{
    for (int i = 0; i < w->g->n_params; i++) {
        const struct param *p = &w->g->param[i];
        struct shape s = p->shape;
        if (!w->used[i]) continue;
        if (p->turned) s.d[0] = p->shape.d[1], s.d[1] = p->shape.d[0];
        *vec_push(&w->made->tensor) = (struct onnx_tensor){tensor_new(w, p->name, p->type, &s), NULL,
                                                           graph_param_bytes(w->g, i), false, 0};
    }
}

static int graph_write(struct onnx_writer *w, struct err *e)
{
    const bool *needed = nodes_needed(w->g, w->mem);
    int bad = 0;
    inputs_add(w, needed);
    for (int i = 0; i < w->g->n_nodes && !bad; i++) {
        w->node = &w->g->node[i];
        if (needed[i]) bad = node_write(w, e);
    }
    if (bad) return -1;
    output_add(w);
    params_add(w);
    return 0;
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

static void number_put(struct text *t, uint64_t v)       /* a varint */
{
    for (; v > 127; v >>= 7) text_add_bytes(t, &(uint8_t){(uint8_t)(v | 128)}, 1);
    text_add_bytes(t, &(uint8_t){(uint8_t)v}, 1);
}
static uint64_t field_size(uint64_t bytes)                /* with a tag of one byte */
{
    uint64_t n = bytes + 2;
    for (uint64_t v = bytes; v > 127; v >>= 7) n++;
    return n;
}
static void field_begin(struct text *t, int tag, uint64_t bytes)
{
    text_add_bytes(t, &(uint8_t){(uint8_t)tag}, 1);
    number_put(t, bytes);
}
static void message_put(struct text *t, const ProtobufCMessage *m)
{
    const size_t n = protobuf_c_message_get_packed_size(m);
    uint8_t *own = mem_alloc(n + 1);
    protobuf_c_message_pack(m, own);
    text_add_bytes(t, own, n);
    free(own);
}

static uint64_t tensor_size(const struct onnx_tensor *t)
{
    return onnx__tensor__get_packed_size(t->message) + (t->outside ? 0 : field_size(t->bytes));
}

static Onnx__Graph *graph_message(struct onnx_writer *w)
{
    struct onnx_messages *m = w->made;
    Onnx__Graph *g = NEW(w, Onnx__Graph, graph);
    g->name = (char *)w->g->name;
    g->n_node = (size_t)m->node.n, g->node = m->node.v;
    g->n_input = (size_t)m->input.n, g->input = m->input.v;
    g->n_output = 1, g->output = &m->output;
    return g;
}

static Onnx__Entry *entry_new(struct onnx_writer *w, const char *key, const char *value)
{
    Onnx__Entry *x = NEW(w, Onnx__Entry, entry);
    x->key = (char *)key;
    x->value = (char *)value;
    return x;
}

/* All but the graph. */
static Onnx__Model *model_message(struct onnx_writer *w, const struct onnx_output *o)
{
    Onnx__Model *m = NEW(w, Onnx__Model, model);
    m->has_ir_version = true, m->ir_version = IR_VERSION;
    m->producer_name = (char *)"mpstaged", m->producer_version = (char *)o->version;
    m->n_opset_import = 1;
    m->opset_import = arena_alloc(w->mem, sizeof *m->opset_import);
    m->opset_import[0] = NEW(w, Onnx__OperatorSet, operator_set);
    m->opset_import[0]->domain = (char *)"";
    m->opset_import[0]->has_version = true, m->opset_import[0]->version = OPSET;
    m->n_metadata_props = (size_t)o->n_notes;
    m->metadata_props = arena_alloc(w->mem, (size_t)o->n_notes * sizeof *m->metadata_props + 1);
    for (int i = 0; i < o->n_notes; i++) m->metadata_props[i] = entry_new(w, o->note[i].key, o->note[i].value);
    return m;
}

/* Moves the parameters to FILE.onnx.data; returns its size. */
static uint64_t params_move(struct onnx_writer *w, const char *file)
{
    const char *slash = strrchr(file, '/'), *name = arena_printf(w->mem, "%s" ONNX_DATA, slash ? slash + 1 : file);
    uint64_t at = 0;
    for (int i = 0; i < w->made->tensor.n; i++) {
        struct onnx_tensor *t = &w->made->tensor.v[i];
        if (t->data) continue;
        t->at = (at + PAGE - 1) / PAGE * PAGE;
        at = t->at + t->bytes;
        t->outside = true;
        t->message->has_data_location = true, t->message->data_location = OUTSIDE;
        t->message->n_external_data = 3;
        t->message->external_data = arena_alloc(w->mem, 3 * sizeof *t->message->external_data);
        t->message->external_data[0] = entry_new(w, "location", name);
        t->message->external_data[1] = entry_new(w, "offset", arena_printf(w->mem, "%llu", (unsigned long long)t->at));
        t->message->external_data[2] = entry_new(w, "length", arena_printf(w->mem, "%zu", t->bytes));
    }
    return at;
}

static int values_put(const struct onnx_output *o, const struct onnx_tensor *t, struct out *to, struct err *e)
{
    if (t->data) return out_write(to, t->data, t->bytes, e);
    void *own = mem_alloc(t->bytes + 1);
    const void *at = own;
    const int bad = o->values(o->ctx, t->message->name, own, &at, e) || out_write(to, at, t->bytes, e);
    free(own);
    return bad ? -1 : 0;
}

static int text_put(struct out *to, struct text *t, struct err *e)
{
    const int bad = t->n ? out_write(to, t->s, t->n, e) : 0;
    t->n = 0;
    return bad;
}

/* FILE.onnx.data: the gaps between parameters are zeros. */
static int outside_put(const struct onnx_writer *w, const struct onnx_output *o, struct out *to, struct err *e)
{
    static const char zeros[PAGE];
    uint64_t at = 0;
    for (int i = 0; i < w->made->tensor.n; i++) {
        const struct onnx_tensor *t = &w->made->tensor.v[i];
        if (!t->outside) continue;
        if (out_write(to, zeros, (size_t)(t->at - at), e) || values_put(o, t, to, e)) return -1;
        at = t->at + t->bytes;
    }
    return 0;
}

struct onnx_sizes { uint64_t graph, all; };
static struct onnx_sizes sizes_of(const struct onnx_writer *w, const Onnx__Graph *g, const Onnx__Model *m)
{
    struct onnx_sizes s = {onnx__graph__get_packed_size(g), onnx__model__get_packed_size(m)};
    for (int i = 0; i < w->made->tensor.n; i++) s.graph += field_size(tensor_size(&w->made->tensor.v[i]));
    s.all += field_size(s.graph);
    return s;
}

static int model_put(const struct onnx_writer *w, const struct onnx_output *o, struct onnx_sizes size,
                     const Onnx__Graph *g, const Onnx__Model *m, struct out *to, struct err *e)
{
    struct text t = {0};
    message_put(&t, &m->base);
    field_begin(&t, TAG_GRAPH, size.graph);
    message_put(&t, &g->base);
    int bad = text_put(to, &t, e);
    for (int i = 0; i < w->made->tensor.n && !bad; i++) {
        const struct onnx_tensor *x = &w->made->tensor.v[i];
        field_begin(&t, TAG_INITIALIZER, tensor_size(x));
        message_put(&t, &x->message->base);
        if (!x->outside) field_begin(&t, TAG_RAW, x->bytes);
        bad = text_put(to, &t, e) || (!x->outside && values_put(o, x, to, e));
    }
    text_free(&t);
    return bad ? -1 : 0;
}

/* Weights of the new file must never be read by an older FILE.onnx: that leaves first. */
static int both_commit(struct out *file, struct out *data, struct err *e)
{
    if (data->at && unlinkat(file->at->dir, file->at->name, 0) && errno != ENOENT) {
        out_drop(file);
        out_drop(data);
        return err_set(e, E_CANTCREAT, "%s: %m", file->at->path);
    }
    if (!data->at || !out_commit(data, false, e)) return out_commit(file, false, e);
    out_drop(file);
    return -1;
}

static int files_put(struct onnx_writer *w, const struct onnx_output *o, struct onnx_written *done, struct err *e)
{
    const Onnx__Graph *g = graph_message(w);
    const Onnx__Model *m = model_message(w, o);
    struct out_place at[2] = {OUT_NOWHERE, OUT_NOWHERE};
    struct out file = {.fd = -1}, data = {.fd = -1};
    struct onnx_sizes size = sizes_of(w, g, m);
    if (size.all > (o->most < MOST_BYTES ? o->most : MOST_BYTES)) {
        done->outside = params_move(w, o->path);
        size = sizes_of(w, g, m);
    }
    *done = (struct onnx_written){w->made->node.n, size.all, done->outside};
    int bad = out_place(o->path, &at[0], e) || out_begin(&file, &at[0], o->stop, e) || out_reserve(&file, size.all, e);
    if (!bad && done->outside)
        bad = out_place(arena_printf(w->mem, "%s" ONNX_DATA, o->path), &at[1], e) ||
              out_begin(&data, &at[1], o->stop, e) || out_reserve(&data, done->outside, e) ||
              outside_put(w, o, &data, e);
    bad = bad || model_put(w, o, size, g, m, &file, e);
    if (!bad) bad = both_commit(&file, &data, e);
    else for (int i = 0; i < 2; i++) if ((i ? &data : &file)->at) out_drop(i ? &data : &file);
    for (int i = 0; i < 2; i++) out_place_free(&at[i]);
    return bad ? -1 : 0;
}

int onnx_write(const struct graph *g, const struct onnx_output *o, struct onnx_written *done, struct err *e)
{
    struct onnx_messages made = {0};
    struct onnx_writer w = {.g = g, .mem = arena_new(), .made = &made};
    w.value = arena_alloc(w.mem, (size_t)g->n_tensors * sizeof *w.value + 1);
    w.used = arena_alloc(w.mem, (size_t)g->n_params + 1);
    *done = (struct onnx_written){0};
    const int bad = graph_write(&w, e) || files_put(&w, o, done, e);
    name_table_free(&w.known);
    vec_free(&made.node);
    vec_free(&made.tensor);
    vec_free(&made.input);
    arena_free(w.mem);
    return bad ? -1 : 0;
}
