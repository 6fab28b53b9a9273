/* Builds and freezes a graph. The text form is in text.c, the networks are in zoo_*.c. */
#include <assert.h>
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/suggest.h"
#include "model/graph_int.h"

static const struct { const char *name; size_t bytes; bool floats; } types[DTYPES] = {
    [F32] = {"F32", 4, true}, [F64] = {"F64", 8, true}, [BF16] = {"BF16", 2, true},
    [F16] = {"F16", 2, true},
    [I64] = {"I64", 8, false}, [I32] = {"I32", 4, false}, [U8] = {"U8", 1, false}, [I8] = {"I8", 1, false}};

size_t dtype_bytes(enum dtype t) { return types[t].bytes; }
const char *dtype_name(enum dtype t) { return types[t].name; }
bool dtype_floats(enum dtype t) { return types[t].floats; }

int64_t shape_count(const struct shape *s)
{
    int64_t n = 1;
    for (int i = 0; i < s->n; i++) n *= s->d[i];
    return n;
}

bool shape_equal(const struct shape *a, const struct shape *b)
{
    if (a->n != b->n) return false;
    for (int i = 0; i < a->n; i++) if (a->d[i] != b->d[i]) return false;
    return true;
}

char *shape_text(const struct shape *s, char buf[96])
{
    size_t n = 0;
    buf[0] = 0;
    if (!s->n) snprintf(buf, 96, "scalar");
    for (int i = 0; i < s->n && n < 90; i++)
        n += (size_t)snprintf(buf + n, 96 - n, "%s%lld", i ? "x" : "", (long long)s->d[i]);
    return buf;
}

/* ---- operators --------------------------------------------------------------------------------------------------- */

static int op_unknown(struct graph_builder *b, const char *node, const char *op)
{
    char what[300], hint[SUGGEST_TEXT];
    struct suggest near = suggest_begin(op, strlen(op));
    for (int i = 0; op_list[i]; i++) suggest_try(&near, op_list[i]->name, strlen(op_list[i]->name), 0);
    snprintf(what, sizeof what, "\"%.100s\"%s", op, suggest_text(&near, "", hint));
    return graph_fail(b, "%s: there is no operator %s", node, what);
}

/* ---- building ---------------------------------------------------------------------------------------------------- */

struct graph_builder *graph_begin(const char *name, const char *file)
{
    struct graph_builder *b = mem_alloc(sizeof *b);
    b->mem = arena_new();
    b->name = arena_strdup(b->mem, name);
    b->file = file ? arena_strdup(b->mem, file) : NULL;
    return b;
}

int graph_fail(struct graph_builder *b, const char *fmt, ...)
{
    char text[sizeof b->e.text];
    va_list ap;
    if (b->e.code) return -1;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    err_set(&b->e, b->file ? E_DATA : E_CONF, "%s", text);
    if (b->file) err_where(&b->e, "%s:%d", b->file, b->line);
    return -1;
}

int builder_tensor(const struct graph_builder *b, const char *name) { return name_table_find(&b->named, name); }

static int tensor_add(struct graph_builder *b, const struct tensor *t)
{
    *vec_push(&b->tensor) = *t;
    name_table_add(&b->named, t->name, b->tensor.n - 1);
    return b->tensor.n - 1;
}

/* Tensors have fewer than 2^31 elements, so that products of two sizes and sums over a network fit 64 bits
 * everywhere. */
static bool shape_small(const struct shape *s)
{
    int64_t n = 1;
    for (int i = 0; i < s->n; i++) {
        if (s->d[i] < 1 || s->d[i] > INT32_MAX / n) return false;
        n *= s->d[i];
    }
    return true;
}

int builder_first(const struct graph_builder *b, enum role role)
{
    for (int i = 0; i < b->input.n; i++) if (b->input.v[i].role == role) return b->input.v[i].tensor;
    return -1;
}

int graph_input(struct graph_builder *b, const char *name, enum role role, const struct shape *s, enum dtype t)
{
    if (b->e.code) return -1;
    assert(t != F64 && (s->n || t == I64));
    if (b->input.n == MAX_INPUTS) return graph_fail(b, "%s: the network has too many inputs", name);
    if (!shape_small(s)) return graph_fail(b, "\"%s\" has more than 2^31 elements a sample", name);
    if (builder_tensor(b, name) >= 0) return graph_fail(b, "there is already a tensor \"%s\"", name);
    const struct tensor x = {.name = arena_strdup(b->mem, name), .shape = *s, .type = t, .producer = -1};
    int i = tensor_add(b, &x);
    *vec_push(&b->input) = (struct input){.role = role, .tensor = i, .line = b->line};
    return i;
}

static void param_add(struct graph_builder *b, int node, int slot, const struct infer *f)
{
    struct param *p = vec_push(&b->param);
    *p = (struct param){.name = arena_printf(b->mem, "%s.%s", b->node.v[node].name, f->param[slot].suffix),
                        .shape = f->param[slot].shape,
                        .type = f->param[slot].type,
                        .kind = f->param[slot].kind,
                        .init = f->param[slot].init,
                        .scale = f->param[slot].scale,
                        .turned = f->param[slot].turned,
                        .lr_factor = 1,
                        .decay_factor = 1};
    b->node.v[node].param[slot] = b->param.n - 1;
}

/* "F32 or I64" */
static const char *types_text(uint32_t set, char out[64])
{
    size_t n = 0;
    for (int t = 0; t < DTYPES; set &= ~(1u << t), t++) {
        if (!(set >> t & 1)) continue;
        const char *before = !n ? "" : set >> t == 1 ? " or " : ", ";
        n += (size_t)snprintf(out + n, 64 - n, "%s%s", before, dtype_name((enum dtype)t));
    }
    return out;
}

static int types_check(const struct graph_builder *b, const struct node *n, struct err *e)
{
    char takes[64];
    for (int i = 0; i < n->n_in; i++) {
        const struct tensor *t = &b->tensor.v[n->in[i]];
        uint32_t set = op_takes(n->op, i);
        if (!(set >> t->type & 1))
            return err_set(e, E_CONF, "input \"%s\" is %s, and %s takes %s there", t->name, dtype_name(t->type),
                           n->op->name, types_text(set, takes));
    }
    return 0;
}

int op_infer(const struct node *n, const struct tensor *all, struct infer *f, struct err *e)
{
    const struct shape *in[MAX_IN];
    *f = (struct infer){.out = all[n->in[0]].shape};
    for (int i = 0; i < n->n_in; i++) {
        in[i] = &all[n->in[i]].shape;
        f->in_type[i] = all[n->in[i]].type;
    }
    return n->op->infer ? n->op->infer(n, in, f, e) : 0;
}

static int node_infer(struct graph_builder *b, int node, const char *const name[MAX_OUT], int given)
{
    struct node *n = &b->node.v[node];
    struct infer f;
    struct err e = {0};
    if (types_check(b, n, &e) || op_infer(n, b->tensor.v, &f, &e)) return graph_fail(b, "%s: %s", n->name, e.text);
    n->n_out = f.n_out ? f.n_out : 1;
    for (int i = 0; i < n->n_out; i++)
        if (!shape_small(&f.outs[i])) return graph_fail(b, "%s has more than 2^31 elements a sample", n->name);
    for (int i = 0; i < f.n_param; i++)
        if (!shape_small(&f.param[i].shape))
            return graph_fail(b, "%s.%s has more than 2^31 elements", n->name, f.param[i].suffix);
    if (given > 1 && given != n->n_out)
        return graph_fail(b, "%s: %s has %d outputs, not %d", n->name, n->op->name, n->n_out, given);
    n->n_param = f.n_param;
    for (int i = 0; i < f.n_param; i++) param_add(b, node, i, &f);
    for (int i = 0; i < n->n_out; i++) {
        const struct tensor t = {.name = name[i], .shape = f.outs[i], .type = f.types[i], .producer = node};
        n->outs[i] = tensor_add(b, &t);
    }
    return n->out;
}

/* Names of the outputs: all are given, or those behind the first are NAME.1, NAME.2 and so on. */
static int outputs_name(struct graph_builder *b, const struct graph_node *a, const struct node *n,
                        const char *name[MAX_OUT])
{
    int given = 1;
    while (given < MAX_OUT && a->more[given - 1]) given++;
    name[0] = n->name;
    for (int i = 1; i < MAX_OUT; i++) {
        name[i] = i < given ? arena_strdup(b->mem, a->more[i - 1]) : arena_printf(b->mem, "%s.%d", n->name, i);
        if (i < given && builder_tensor(b, name[i]) >= 0)
            return graph_fail(b, "there is already a tensor \"%s\"", name[i]);
        for (int j = 0; i < given && j < i; j++)
            if (!strcmp(name[i], name[j])) return graph_fail(b, "two outputs are called \"%s\"", name[i]);
    }
    return given;
}

int graph_add(struct graph_builder *b, const struct graph_node *a)
{
    struct err e = {0};
    if (b->e.code) return -1;
    const struct op_kind *k = op_find(a->op);
    if (!k) return op_unknown(b, a->name, a->op);
    if (builder_tensor(b, a->name) >= 0) return graph_fail(b, "there is already a tensor \"%s\"", a->name);
    if (b->node.n == MAX_NODES) return graph_fail(b, "%s: the network has too many nodes", a->name);
    if (a->n_in < op_min_in(k) || a->n_in > op_max_in(k))
        return graph_fail(b, "%s: wrong number of inputs for %s", a->name, a->op);
    struct node *n = vec_push(&b->node);
    *n = (struct node){.name = arena_strdup(b->mem, a->name),
                       .layer = a->layer ? arena_strdup(b->mem, a->layer) : NULL,
                       .op = k,
                       .n_in = a->n_in,
                       .line = b->line};
    for (int i = 0; i < a->n_in; i++) n->in[i] = a->in[i];
    if (attrs_parse(n, a->attrs, &e)) return graph_fail(b, "%s: %s", a->name, e.text);
    const char *name[MAX_OUT];
    int given = outputs_name(b, a, n, name);
    return given < 0 ? -1 : node_infer(b, b->node.n - 1, name, given);
}

int graph_add1(struct graph_builder *b, const char *op, const char *name, const char *layer, const char *attrs, int in)
{
    return graph_add(b, &(struct graph_node){op, name, layer, attrs, 1, {in}});
}

int graph_add2(struct graph_builder *b, const char *op, const char *name, int x, int y)
{
    return graph_add(b, &(struct graph_node){op, name, NULL, "", 2, {x, y}});
}

static struct node *node_by_name(struct graph_builder *b, const char *name)
{
    int t = builder_tensor(b, name), node = t < 0 ? -1 : b->tensor.v[t].producer;
    return node < 0 ? NULL : &b->node.v[node];
}

/* The name at creation: ties do not change it. */
static const char *param_own(const struct graph_builder *b, const struct node *n, int slot)
{
    int at = slot;
    for (const struct node *m = b->node.v; m < n; m++) at += m->n_param;
    return b->param.v[at].name;
}

static void tie_fail(struct graph_builder *b, const char *one, const char *two, const char *why)
{
    graph_fail(b, "cannot tie %s to %s: %s", one, two, why);
}

void graph_tie(struct graph_builder *b, const char *name, int k, const char *other, int k2)
{
    if (b->e.code) return;
    struct node *n = node_by_name(b, name), *o = node_by_name(b, other);
    if (!n || !o || k >= n->n_param || k2 >= o->n_param) {
        tie_fail(b, name, other, "no such parameter");
        return;
    }
    const char *one = param_own(b, n, k), *two = param_own(b, o, k2);
    int keep = o->param[k2], drop = n->param[k];
    if (keep > drop) { keep = n->param[k]; drop = o->param[k2]; }   /* the first use determines the name */
    struct param *p = &b->param.v[drop], *q = &b->param.v[keep];
    if (p == q) { tie_fail(b, one, two, "they are already tied"); return; }
    if (!shape_equal(&p->shape, &q->shape)) { tie_fail(b, one, two, "shapes differ"); return; }
    if (p->turned != q->turned) { tie_fail(b, one, two, "files store them differently"); return; }
    if (p->kind != PARAM_WEIGHT || q->kind != PARAM_WEIGHT) {
        tie_fail(b, one, two, "only weights can be tied");
        return;
    }
    q->frozen |= p->frozen;
    for (int i = 0; i < b->node.n; i++)                  /* others that shared p follow; graph_finish drops p */
        for (int s = 0; s < b->node.v[i].n_param; s++) if (b->node.v[i].param[s] == drop) b->node.v[i].param[s] = keep;
}

void graph_init(struct graph_builder *b, const char *name, int k, enum param_init init, double scale)
{
    if (b->e.code) return;
    struct node *n = node_by_name(b, name);
    if (!n || k >= n->n_param) { graph_fail(b, "%s has no such parameter", name); return; }
    b->param.v[n->param[k]].init = init;
    b->param.v[n->param[k]].scale = scale;
}

void graph_name(struct graph_builder *b, const char *name, int k, const char *param)
{
    if (b->e.code) return;
    struct node *n = node_by_name(b, name);
    if (!n || k >= n->n_param) { graph_fail(b, "%s has no such parameter", name); return; }
    for (int i = 0; i < b->param.n; i++)
        if (!strcmp(b->param.v[i].name, param)) { graph_fail(b, "there already is a parameter \"%s\"", param); return; }
    b->param.v[n->param[k]].name = arena_strdup(b->mem, param);
}

void graph_container(struct graph_builder *b, const char *name, const char *layer, int out)
{
    if (b->e.code) return;
    if (!b->node.n) { graph_fail(b, "container %s has no nodes", name); return; }
    struct container *c = vec_push(&b->container);
    *c = (struct container){arena_strdup(b->mem, name), arena_strdup(b->mem, layer), out, b->node.n};
}

const struct shape *graph_shape(struct graph_builder *b, int tensor)
{
    return b->e.code || tensor < 0 ? NULL : &b->tensor.v[tensor].shape;
}

/* ---- freezing ---------------------------------------------------------------------------------------------------- */

static void *freeze(struct arena *a, const void *v, int n, size_t size)
{
    void *p = arena_alloc(a, (size_t)(n + 1) * size);
    if (n) memcpy(p, v, (size_t)n * size);
    return p;
}

static void readers_list(struct graph *g)
{
    for (int pass = 0; pass < 2; pass++) {
        for (int t = 0; t < g->n_tensors; t++) {
            if (pass) g->tensor[t].reader = arena_alloc(g->mem, (size_t)(g->tensor[t].n_readers + 1) * sizeof(int));
            g->tensor[t].n_readers = 0;
        }
        for (int i = 0; i < g->n_nodes; i++)
            for (int k = 0; k < g->node[i].n_in; k++) {
                struct tensor *t = &g->tensor[g->node[i].in[k]];
                if (pass) t->reader[t->n_readers] = i;
                t->n_readers++;
            }
    }
}

/* Drops parameters that a tie replaced and renumbers the rest in order of first use. */
static void params_renumber(struct graph *g)
{
    int *to = mem_alloc((size_t)(g->n_params + 1) * sizeof *to), n = 0;
    struct param *fresh = arena_alloc(g->mem, (size_t)(g->n_params + 1) * sizeof *fresh);
    for (int i = 0; i < g->n_params; i++) to[i] = -1;
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->node[i].n_param; k++) {
            int *p = &g->node[i].param[k];
            if (to[*p] < 0) { fresh[n] = g->param[*p]; to[*p] = n++; }
            *p = to[*p];
        }
    g->param = fresh;
    g->n_params = n;
    free(to);
}

static void uses_list(struct graph *g)
{
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < g->n_params; i++) {
            struct param *p = &g->param[i];
            if (pass) {
                p->use_node = arena_alloc(g->mem, (size_t)(p->n_uses + 1) * sizeof(int));
                p->use_slot = arena_alloc(g->mem, (size_t)(p->n_uses + 1) * sizeof(int));
            }
            p->n_uses = 0;
        }
        for (int i = 0; i < g->n_nodes; i++)
            for (int k = 0; k < g->node[i].n_param; k++) {
                struct param *p = &g->param[g->node[i].param[k]];
                if (pass) { p->use_node[p->n_uses] = i; p->use_slot[p->n_uses] = k; }
                p->n_uses++;
            }
    }
}

static bool is_fixed(const struct graph *g, const struct node *n)
{
    int weights = 0, frozen = 0;
    for (int k = 0; k < n->n_param; k++) {
        weights += g->param[n->param[k]].kind == PARAM_WEIGHT;
        frozen += g->param[n->param[k]].frozen;
    }
    return n->op->stats && weights && frozen == weights;
}

/* Marks the tensors that the loss depends on along paths with gradients. */
static void reaching_mark(const struct graph *g, bool *reaches)
{
    reaches[g->loss] = true;
    for (int i = g->n_nodes - 1; i >= 0; i--) {
        const struct node *n = &g->node[i];
        bool any = false;
        for (int o = 0; o < n->n_out; o++) any |= reaches[n->outs[o]];
        for (int k = 0; any && k < n->n_in; k++) reaches[n->in[k]] |= op_grad_in(n->op) >> k & 1;
    }
}

/* R10: a tensor needs a gradient if a trained parameter is at or above its producer and the loss, if any, depends on
 * it. */
static void needs_grad_mark(struct graph *g)
{
    bool *reaches = mem_alloc((size_t)g->n_tensors + 1);
    if (g->loss >= 0) reaching_mark(g, reaches);
    for (int i = 0; i < g->n_nodes; i++) {
        const struct node *n = &g->node[i];
        bool need = false;
        for (int k = 0; k < n->n_param; k++)
            need |= g->param[n->param[k]].kind == PARAM_WEIGHT && !g->param[n->param[k]].frozen;
        for (int k = 0; k < n->n_in; k++) need |= (op_grad_in(n->op) >> k & 1) && g->tensor[n->in[k]].needs_grad;
        for (int o = 0; o < n->n_out; o++)
            g->tensor[n->outs[o]].needs_grad =
                need && dtype_floats(g->tensor[n->outs[o]].type) && (g->loss < 0 || reaches[n->outs[o]]);
    }
    free(reaches);
}

static void scores_of(const struct graph *g, const struct node *n, struct scores *s)
{
    const struct score_row *r = n->op->rows;
    for (int i = 0; i < op_rows(g, n) && s->n < MAX_SCORES; i++)
        s->of[s->n++] = (struct graph_score){r[i].name, n->out, r[i].numerator, r[i].denominator};
}

void graph_scores(const struct graph *g, struct scores *s)
{
    *s = (struct scores){0};
    if (g->loss >= 0) scores_of(g, &g->node[g->tensor[g->loss].producer], s);
    for (int i = 0; i < g->n_nodes; i++) if (g->node[i].out != g->loss) scores_of(g, &g->node[i], s);
}

struct graph *graph_finish(struct graph_builder *b, int output, int loss, struct err *e)
{
    if (!b->e.code && !b->node.n) graph_fail(b, "the network is empty");
    struct graph *g = NULL;
    if (!b->e.code) {
        g = arena_alloc(b->mem, sizeof *g);
        *g = (struct graph){.mem = b->mem,
                            .name = b->name,
                            .file = b->file,
                            .n_nodes = b->node.n,
                            .n_tensors = b->tensor.n,
                            .n_params = b->param.n,
                            .n_inputs = b->input.n,
                            .loss = loss,
                            .loss_op = loss >= 0 && b->tensor.v[loss].producer >= 0
                                           ? b->node.v[b->tensor.v[loss].producer].op : b->loss_op,
                            .output = output,
                            .n_containers = b->container.n};
        g->input = freeze(b->mem, b->input.v, b->input.n, sizeof *g->input);
        g->node = freeze(b->mem, b->node.v, b->node.n, sizeof *g->node);
        g->tensor = freeze(b->mem, b->tensor.v, b->tensor.n, sizeof *g->tensor);
        g->param = freeze(b->mem, b->param.v, b->param.n, sizeof *g->param);
        g->container = freeze(b->mem, b->container.v, b->container.n, sizeof *g->container);
        readers_list(g);
        params_renumber(g);
        uses_list(g);
        for (int i = 0; i < g->n_nodes; i++) g->node[i].fixed = is_fixed(g, &g->node[i]);
        needs_grad_mark(g);
        graph_check(b, g);
    }
    if (b->e.code) {
        err_set(e, b->e.code, "%s", b->e.text);
        arena_free(b->mem);
        g = NULL;
    }
    vec_free(&b->input); vec_free(&b->node); vec_free(&b->tensor); vec_free(&b->param); vec_free(&b->container);
    name_table_free(&b->named);
    free(b);
    return g;
}

void graph_free(struct graph *g) { if (g) arena_free(g->mem); }

int graph_tensor_find(const struct graph *g, const char *name)
{
    for (int i = 0; i < g->n_tensors; i++) if (!strcmp(g->tensor[i].name, name)) return i;
    return -1;
}

bool graph_wants_grad(const struct graph *g, const struct node *n)
{
    for (int o = 0; o < n->n_out; o++) if (g->tensor[n->outs[o]].needs_grad) return true;
    return false;
}

bool graph_generates(const struct graph *g)
{
    for (int i = 0; i < g->n_params; i++) if (g->param[i].kind == PARAM_CACHE) return true;
    return false;
}

size_t graph_param_bytes(const struct graph *g, int param)
{
    return (size_t)shape_count(&g->param[param].shape) * dtype_bytes(g->param[param].type);
}

int graph_node_find(const struct graph *g, const char *name)
{
    for (int i = 0; i < g->n_nodes; i++) if (!strcmp(g->node[i].name, name)) return i;
    return -1;
}

int graph_input_first(const struct graph *g, enum role role)
{
    for (int i = 0; i < g->n_inputs; i++) if (g->input[i].role == role) return g->input[i].tensor;
    return -1;
}

int graph_input_find(const struct graph *g, int tensor)
{
    for (int i = 0; i < g->n_inputs; i++) if (g->input[i].tensor == tensor) return i;
    return -1;
}

bool graph_input_is(const struct graph *g, int tensor, enum role role)
{
    int i = graph_input_find(g, tensor);
    return i >= 0 && g->input[i].role == role;
}

int64_t graph_input_range(const struct graph *g, int tensor)
{
    const struct tensor *t = &g->tensor[tensor];
    int64_t least = 0;
    for (int i = 0; i < t->n_readers; i++) {
        const struct node *n = &g->node[t->reader[i]];
        for (int k = 0; n->op->range && k < n->n_in; k++) {
            int64_t r = n->in[k] == tensor ? n->op->range(g, n, k) : 0;
            if (r && (!least || r < least)) least = r;
        }
    }
    return least;
}

int64_t graph_input_ignored(const struct graph *g, int tensor)
{
    const struct node *n = g->loss < 0 ? NULL : &g->node[g->tensor[g->loss].producer];
    return n && n->op->ignored && n->in[1] == tensor ? n->op->ignored(g, n) : 0;
}

uint64_t graph_flops(const struct graph *g, int node)
{
    const struct node *n = &g->node[node];
    return n->op->flops ? n->op->flops(g, n) : 0;
}
