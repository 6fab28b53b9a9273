/* Kernel selection by the device's kernel rows and rules. */
#include <stdlib.h>
#include <string.h>
#include "plan/select.h"

const char *const precision_name[PRECISIONS] = {[FP32] = "fp32", [TF32] = "tf32", [BFLOAT16] = "bf16"};

/* ---- groups ---------------------------------------------------------------------------------- */

static int only_reader(const struct graph *g, int node)
{
    const struct tensor *t = &g->tensor[g->node[node].out];
    bool single = g->node[node].n_out == 1 && t->n_readers == 1 && g->node[node].out != g->output;
    return single ? t->reader[0] : -1;
}

const struct pattern pattern_bn_relu = {
    .text = "bn+relu", .n = 2, .step = {{.category = OP_NORM}, {.category = OP_RELU, .inputs = 1}},
    .need_b = 1 << 0 | NEED_OUT | NEED_SAVED};
const struct pattern pattern_bn_add_relu = {
    .text = "bn+add+relu", .n = 3,
    .step = {{.category = OP_NORM}, {.category = OP_ADD, .inputs = 2}, {.category = OP_RELU, .inputs = 1}},
    .need_b = 1 << 0 | NEED_OUT | NEED_SAVED};

static bool gate_fits(const struct graph *g, const int *node)
{
    const struct node *times = &g->node[node[1]];
    return !(g->node[node[0]].op->need_b & NEED_OUT) &&
           shape_count(&g->tensor[times->in[0]].shape) == shape_count(&g->tensor[times->in[1]].shape);
}
const struct pattern pattern_gate = {
    .text = "unary+multiply", .n = 2, .step = {{.category = OP_UNARY}, {.op = "multiply", .inputs = 2}},
    .need_b = 1 << 0 | 1 << 1, .fits = gate_fits};

static bool step_matches(const struct pattern_step *p, const struct op_kind *op)
{
    return p->op ? !strcmp(p->op, op->name) : p->category == OP_OTHER || p->category == op->category;
}

/* Does the node read an output of the chain besides its first input, or a tensor that the chain reads already? The
 * gradients of two inputs would be one tensor, and no kernel adds to a tensor twice. */
static bool reads_twice(const struct graph *g, const int *chain, int n, const struct node *next)
{
    for (int i = 1; i < next->n_in; i++)
        for (int j = 0; j < n; j++) {
            const struct node *x = &g->node[chain[j]];
            if (next->in[i] == x->out) return true;
            for (int k = 0; k < x->n_in; k++) if (next->in[i] == x->in[k]) return true;
        }
    return false;
}

/* The nodes of a chain that begins here; their number, 0 if none does. */
static int chain_find(const struct graph *g, const struct pattern *p, int first, int node[MAX_GROUP])
{
    if (!step_matches(&p->step[0], g->node[first].op)) return 0;
    node[0] = first;
    for (int i = 1; i < p->n; i++) {
        if ((node[i] = only_reader(g, node[i - 1])) < 0) return 0;
        const struct node *n = &g->node[node[i]];
        if (!step_matches(&p->step[i], n->op) || n->n_in != p->step[i].inputs) return 0;
        if (n->in[0] != g->node[node[i - 1]].out || reads_twice(g, node, i, n)) return 0;
    }
    return !p->fits || p->fits(g, node) ? p->n : 0;
}

static double cost_of(const struct kernel_row *r) { return r->cost > 0 ? r->cost : 1; }

/* Cheapest first; equal ones stay in the order of the tables. */
static void rows_sort(struct selection *s)
{
    const struct kernel_row *const *table = s->dev.rules->rows;
    int n = 0;
    for (int i = 0; table && table[i]; i++) for (const struct kernel_row *r = table[i]; r->name; r++) n++;
    s->row = arena_alloc(s->mem, (size_t)(n + 1) * sizeof *s->row);
    for (int i = 0; table && table[i]; i++)
        for (const struct kernel_row *r = table[i]; r->name; r++) {
            int at = s->n_rows;
            if (r->isa && !(r->isa & s->dev.features)) continue;
            for (; at > 0 && cost_of(s->row[at - 1]) > cost_of(r); at--) s->row[at] = s->row[at - 1];
            s->row[at] = r;
            s->n_rows++;
        }
}

/* The longest chain of a row's pattern that begins here. */
static const struct pattern *pattern_at(const struct selection *s, int first, int node[MAX_GROUP])
{
    const struct pattern *best = NULL;
    int found[MAX_GROUP];
    for (int i = 0; i < s->n_rows; i++) {
        const struct kernel_row *r = s->row[i];
        if (r->pattern->n < 2 || (best && r->pattern->n <= best->n) || !chain_find(s->g, r->pattern, first, found))
            continue;
        best = r->pattern;
        memcpy(node, found, sizeof found);
    }
    return best;
}

static int use_index(const struct graph *g, int param, int node, int slot)
{
    const struct param *p = &g->param[param];
    for (int u = 0; u < p->n_uses; u++) if (p->use_node[u] == node && p->use_slot[u] == slot) return u;
    return 0;
}

static void params_take(const struct graph *g, struct group *k, int node)
{
    const struct node *n = &g->node[node];
    k->n_param = n->n_param;
    for (int i = 0; i < n->n_param; i++) {
        k->param[i] = n->param[i];
        k->use[i] = use_index(g, n->param[i], node, i);
        const struct param *p = &g->param[n->param[i]];
        if (p->kind != PARAM_WEIGHT || p->frozen) continue;
        k->pgrad_in_b |= n->op->pgrad_in_b & 1u << i;
        k->pgrad_in_w |= op_pgrad_in_w(n->op) & 1u << i;
    }
}

/* Without inputs that the node does not have. */
static uint32_t needs_of(const struct node *n, uint32_t need)
{
    return need & (((1u << n->n_in) - 1) | NEED_OUT | NEED_SAVED);
}

/* Inputs of the chain: all of the first node, and those of the others that do not come from the chain. */
static void inputs_take(const struct graph *g, struct group *k)
{
    for (int i = 0; i < k->n_nodes; i++) {
        const struct node *n = &g->node[k->node[i]];
        for (int j = i > 0; j < n->n_in; j++) k->in[k->n_in++] = n->in[j];
    }
}

static void group_from(const struct graph *g, struct group *k, const struct pattern *pattern, int n, const int *node)
{
    const struct node *first = &g->node[node[0]], *last = &g->node[node[n - 1]];
    *k = (struct group){.pattern = pattern,
                        .n_nodes = n,
                        .n_out = last->n_out,
                        .need_b = pattern ? pattern->need_b : needs_of(first, first->op->need_b),
                        .need_w = pattern ? 0 : needs_of(first, first->op->need_w),
                        .is_loss = first->op->is_loss,
                        .has_stats = first->op->stats && !first->fixed,
                        .fixed = first->fixed,
                        .grad_over = -1};
    for (int i = 0; i < n; i++) k->node[i] = node[i];
    memcpy(k->outs, last->outs, sizeof k->outs);
    params_take(g, k, node[0]);
    inputs_take(g, k);
    k->grad_in = ((1u << k->n_in) - 1) & (pattern ? ~0u : op_grad_in(first->op));
    if (k->fixed) k->need_b &= ~(uint32_t)NEED_SAVED;
    for (int i = 0; i < k->n_in; i++) if (!g->tensor[k->in[i]].needs_grad) k->grad_in &= ~(1u << i);
    if (!k->is_loss && !graph_wants_grad(g, last)) k->grad_in = 0;   /* only a score reads the output */
}

struct found_chain { const struct pattern *pattern; int node[MAX_GROUP], head; bool inside; };

static void groups_make(struct selection *s)
{
    const struct graph *g = s->g;
    struct found_chain *at = mem_alloc((size_t)g->n_nodes * sizeof *at);
    for (int i = 0; i < g->n_nodes; i++) at[i].head = -1;
    for (int i = 0; i < g->n_nodes; i++) {               /* head: of the last node of a chain, its first node */
        const struct pattern *p = at[i].pattern = pattern_at(s, i, at[i].node);
        for (int k = 0; p && k < p->n; k++) at[at[i].node[k]].inside = true;
        if (p) at[at[i].node[p->n - 1]].head = i;
    }
    for (int i = 0; i < g->n_nodes; i++) {
        if (at[i].inside && at[i].head < 0) continue;
        const struct found_chain *c = at[i].head < 0 ? NULL : &at[at[i].head];
        struct group *k = &s->group[s->n_groups];
        group_from(g, k, c ? c->pattern : NULL, c ? c->pattern->n : 1, c ? c->node : &i);
        for (int j = 0; j < k->n_nodes; j++) s->group_of[k->node[j]] = s->n_groups;
        s->n_groups++;
    }
    free(at);
}

/* ---- layouts --------------------------------------------------------------------------------- */

/* Activations in the selected precision; targets as loaded, losses in double. */
static enum dtype type_of(const struct selection *s, int tensor)
{
    enum dtype t = s->g->tensor[tensor].type;
    return s->dev.precision == BFLOAT16 && t == F32 && !graph_input_is(s->g, tensor, ROLE_TARGET) ? BF16 : t;
}

static bool row_matches(const struct kernel_row *r, const struct group *k, const struct op_kind *op)
{
    return k->pattern ? r->pattern == k->pattern : r->pattern->n == 1 && step_matches(&r->pattern->step[0], op);
}

static enum layout layout_of(const struct selection *s, int tensor)
{
    int producer = s->g->tensor[tensor].producer;
    const struct node *n = producer < 0 ? NULL : &s->g->node[producer];
    for (int i = 0; n && i < s->n_rows; i++) {
        const struct kernel_row *r = s->row[i];
        enum layout l = r->layout && step_matches(&r->pattern->step[0], n->op) ? r->layout(s, n) : LAYOUT_NONE;
        if (l != LAYOUT_NONE) return l;
    }
    return s->dev.rules->layout ? s->dev.rules->layout(s, tensor) : LAYOUT_PLAIN;
}

static enum layout param_layout_of(const struct selection *s, const struct node *n, int slot)
{
    for (int i = 0; i < s->n_rows; i++) {
        const struct kernel_row *r = s->row[i];
        enum layout l = r->param_layout && step_matches(&r->pattern->step[0], n->op) ? r->param_layout(s, n, slot)
                                                                                      : LAYOUT_NONE;
        if (l != LAYOUT_NONE) return l;
    }
    return LAYOUT_PLAIN;
}

/* Blocks need a device that has them. */
static void format_set(const struct selection *s, struct format *f, enum layout l)
{
    f->layout = l == LAYOUT_BLOCKED && s->dev.block == 1 ? LAYOUT_PLAIN : l;
    f->block = f->layout == LAYOUT_BLOCKED ? s->dev.block : 1;
}

/* Biases, norms and statistics are few, and stay as they are. */
static void frozen_format(const struct selection *s, int param, struct format *f)
{
    const struct param *p = &s->g->param[param];
    if (!p->frozen || p->kind != PARAM_WEIGHT || p->type != F32 || p->shape.n < 2) return;
    if (s->dev.rules->narrow && !s->dev.rules->narrow(s, param)) return;
    f->type = p->coded ? I8 : s->dev.frozen;
    f->scale = f->type == I8 ? SCALE_ROW : SCALE_NONE;
}

static void formats_make(struct selection *s)
{
    const struct graph *g = s->g;
    const struct select_rules *r = s->dev.rules;
    for (int i = 0; i < g->n_tensors; i++) s->tensor[i] = format_plain(type_of(s, i));
    for (int i = 0; i < g->n_tensors; i++)
        if (g->tensor[i].producer < 0) format_set(s, &s->tensor[i], layout_of(s, i));
    for (int i = 0; i < g->n_nodes; i++)
        for (int o = 0; o < g->node[i].n_out; o++)
            format_set(s, &s->tensor[g->node[i].outs[o]], layout_of(s, g->node[i].outs[o]));
    for (int i = 0; i < g->n_tensors && r->padded; i++) {
        int multiple = r->padded(s, i);
        if (multiple) s->tensor[i].block = multiple;
    }
    for (int i = 0; i < g->n_params; i++) {
        s->param[i] = format_plain(g->param[i].type);
        frozen_format(s, i, &s->param[i]);
    }
    for (int i = 0; i < g->n_nodes; i++)
        for (int j = 0; j < g->node[i].n_param; j++) {
            enum layout l = param_layout_of(s, &g->node[i], j);
            if (l != LAYOUT_PLAIN) format_set(s, &s->param[g->node[i].param[j]], l);
        }
}

/* ---- rows ------------------------------------------------------------------------------------ */

bool group_has_phase(const struct group *k, enum phase ph)
{
    return ph == PH_FWD || (ph == PH_BWD_DATA ? k->grad_in || k->pgrad_in_b : k->pgrad_in_w != 0);
}

static uint32_t types_of(const struct kernel_row *r) { return r->types ? r->types : TAKES(F32); }

bool select_widens(const struct selection *s, const struct kernel_row *r, const struct group *k)
{
    for (int i = -k->n_out; i < k->n_in; i++) {
        const int t = i < 0 ? k->outs[-1 - i] : k->in[i];
        if (s->g->tensor[t].type == F32 && !(types_of(r) & TAKES(s->tensor[t].type))) return true;
    }
    return false;
}

bool select_relays(const struct selection *s, const struct kernel_row *r, const struct group *k)
{
    for (int i = -k->n_out; i < k->n_in; i++) {
        const int t = i < 0 ? k->outs[-1 - i] : k->in[i];
        if (!r->layouts && s->g->tensor[t].type == F32 && s->dev.rules->relaid & ROW_LAYOUT(s->tensor[t].layout))
            return true;
    }
    return false;
}

/* Why a row does not take the group's tensors as they are stored; NULL: it does. */
static const char *formats_refuse(const struct selection *s, const struct kernel_row *r, const struct group *k)
{
    const uint32_t types = types_of(r), device = s->dev.rules->layouts;
    const uint32_t copied = types & TAKES(F32) ? s->dev.rules->widened : 0;
    const uint32_t layouts = r->layouts ? r->layouts : device ? device | s->dev.rules->relaid : ROW_ANY_LAYOUT;
    const struct format *out = &s->tensor[k->out];
    for (int i = -k->n_out; i < k->n_in; i++) {
        const int t = i < 0 ? k->outs[-1 - i] : k->in[i];
        const struct format *f = &s->tensor[t];
        if (s->g->tensor[t].type != F32) continue;
        if (!(types & TAKES(f->type)) && !(copied >> f->type & 1)) return "no kernel for this precision";
        if (!(layouts & ROW_LAYOUT(f->layout))) return "no kernel for this layout";
        if (r->same_layout && f->layout != out->layout) return "input and output in different layouts";
    }
    return NULL;
}

const struct kernel_row *select_row(const struct selection *s, const struct group *k, enum phase ph,
                                    const struct kernel_row *after, const char **why)
{
    const struct op_kind *op = s->g->node[k->node[0]].op;
    int i = 0;
    while (after && s->row[i++] != after) { }
    for (; i < s->n_rows; i++) {
        const struct kernel_row *r = s->row[i];
        if (!row_matches(r, k, op) || (r->phases && !(r->phases & ROW_PHASE(ph)))) continue;
        const char *no = formats_refuse(s, r, k);
        if (!no && r->refuses) no = r->refuses(s, k, ph);
        if (!no) return r;
        if (why && *no) *why = no;
    }
    return NULL;
}

static const char *const pass_name[PH_COUNT] = {
    [PH_FWD] = "output", [PH_BWD_DATA] = "input gradient", [PH_BWD_WEIGHTS] = "weight gradient"};

void group_explain(struct selection *s, struct group *k, const char *const why[PH_COUNT])
{
    struct text t = {0};
    const char *reason = NULL, *what = NULL;
    int n = 0, all = 0;
    k->slow = false;
    k->fallback = NULL;
    for (int ph = 0; ph < PH_COUNT; ph++) {
        const struct kernel_row *r = k->row[ph];
        all += r != NULL;
        k->slow |= r && r->slow;
        const bool widens = r && select_widens(s, r, k) && !r->pointwise, relays = r && select_relays(s, r, k);
        if (!r || !(r->fallback || widens || relays)) continue;
        text_add(&t, "%s%s", n++ ? ", " : "", pass_name[ph]);
        if (!what) what = r->fallback ? r->fallback : widens ? "copies in fp32" : "copies in another layout";
        if (!reason) reason = why[ph] ? why[ph] : r->why;
    }
    if (n) k->fallback = arena_printf(s->mem, "%s%s%s%s%s%s", what, n < all ? " (" : "", n < all ? t.s : "",
                                      n < all ? ")" : "", reason ? ": " : "", reason ? reason : "");
    text_free(&t);
}

/* -1, with the node in e: a group without a kernel. */
static int rows_make(struct selection *s, struct err *e)
{
    for (int i = 0; i < s->n_groups && s->dev.rules->rows; i++) {
        struct group *k = &s->group[i];
        const struct node *n = &s->g->node[k->node[0]];
        const char *why[PH_COUNT] = {NULL};
        for (int ph = 0; ph < PH_COUNT; ph++) {
            if (!group_has_phase(k, (enum phase)ph)) continue;
            if ((k->row[ph] = select_row(s, k, (enum phase)ph, NULL, &why[ph]))) continue;
            return err_set(e, E_CONF, "%s: the %s backend has no operator %s%s%s", n->name, s->dev.backend, n->op->name,
                           why[ph] ? ": " : "", why[ph] ? why[ph] : "");
        }
        k->grad_over = k->row[k->row[PH_BWD_DATA] ? PH_BWD_DATA : PH_FWD]->grad_over - 1;
        group_explain(s, k, why);
    }
    return 0;
}

/* ---- sizes ----------------------------------------------------------------------------------- */

size_t select_sample_bytes(const struct selection *s, int tensor)
{
    return format_bytes(&s->tensor[tensor], &s->g->tensor[tensor].shape);
}

int select_channels(const struct selection *s, int tensor)
{
    return (int)format_channels(&s->tensor[tensor], &s->g->tensor[tensor].shape);
}

size_t select_load_bytes(const struct selection *s, int tensor)
{
    const struct tensor *t = &s->g->tensor[tensor];
    return (size_t)s->max_samples * (size_t)shape_count(&t->shape) * dtype_bytes(t->type);
}

bool select_pads(const struct selection *s, const struct group *k)
{
    const struct shape *shape = &s->g->tensor[k->in[0]].shape;
    return shape->n && select_channels(s, k->in[0]) > shape->d[0];
}

bool select_narrows(const struct selection *s, int param) { return s->param[param].type != s->g->param[param].type; }

bool group_narrows(const struct selection *s, const struct group *k)
{
    for (int i = 0; i < k->n_param; i++) if (select_narrows(s, k->param[i])) return true;
    return false;
}

size_t select_param_bytes(const struct selection *s, int param)
{
    return size_align64(format_bytes(&s->param[param], &s->g->param[param].shape));
}

static void sizes_make(struct selection *s)
{
    const struct graph *g = s->g;
    for (int i = 0; i < s->n_groups; i++) {
        struct group *k = &s->group[i];
        const struct node *n = &g->node[k->node[0]];
        size_t beside = 0;
        k->packed_bytes = 0;
        k->share = 0;
        for (int ph = 0; ph < PH_COUNT; ph++) {
            const struct kernel_row *r = k->row[ph];
            size_t work = r && r->workspace ? r->workspace(s, k) : 0, packed = r && r->packed ? r->packed(s, k) : 0;
            beside = work > beside ? work : beside;
            k->packed_bytes = packed > k->packed_bytes ? packed : k->packed_bytes;
            k->share = r && r->share && !k->share ? r->share(s, k) : k->share;
        }
        s->dev.rules->sizes(s, k, beside);
        if (n->op->saved_bytes && !k->fixed) {
            size_t one = n->op->saved_bytes(g, n, 1), two = n->op->saved_bytes(g, n, 2);
            k->saved_bytes[1] = two - one;
            k->saved_bytes[0] = one - k->saved_bytes[1];
        }
        k->packed_apart = k->packed_bytes && select_pads(s, k);
    }
}

struct selection *select_make(const struct graph *g, const struct device *dev, int max_samples, struct err *e)
{
    if (max_samples < 1) { err_set(e, E_INTERNAL, "selection for %d samples", max_samples); return NULL; }
    if (dev->frozen != F32 && !(dev->rules->frozen >> dev->frozen & 1)) {
        err_set(e, E_CONF, "the %s backend stores no frozen weights as %s", dev->backend, dtype_name(dev->frozen));
        return NULL;
    }
    struct arena *mem = arena_new();
    struct selection *s = arena_alloc(mem, sizeof *s);
    *s = (struct selection){.mem = mem, .g = g, .dev = *dev, .max_samples = max_samples};
    s->group = arena_alloc(mem, (size_t)g->n_nodes * sizeof *s->group);
    s->tensor = arena_alloc(mem, (size_t)g->n_tensors * sizeof *s->tensor);
    s->param = arena_alloc(mem, (size_t)(g->n_params + 1) * sizeof *s->param);
    s->group_of = arena_alloc(mem, (size_t)g->n_nodes * sizeof *s->group_of);
    rows_sort(s);
    groups_make(s);
    formats_make(s);
    if (rows_make(s, e)) { select_free(s); return NULL; }
    sizes_make(s);
    if (dev->rules->ask) dev->rules->ask(s);
    if (dev->precision == BFLOAT16) sizes_make(s);       /* rows that replace others may compute on copies */
    return s;
}

void select_free(struct selection *s) { if (s) arena_free(s->mem); }

static size_t sized(const size_t b[2], int samples) { return b[0] + b[1] * (size_t)samples; }
size_t group_saved(const struct group *k, int samples) { return sized(k->saved_bytes, samples); }
size_t group_workspace(const struct group *k, int samples) { return sized(k->workspace_bytes, samples); }

/* ---- text ------------------------------------------------------------------------------------ */

void select_print(const struct selection *s, struct text *out)
{
    for (int i = 0; i < s->n_groups; i++) {
        const struct group *k = &s->group[i];
        text_add(out, "group %d%s%s", i, k->pattern ? " " : "", k->pattern ? k->pattern->text : "");
        for (int j = 0; j < k->n_nodes; j++) text_add(out, " %s", s->g->node[k->node[j]].name);
        if (k->fixed) text_add(out, " fixed");
        if (select_pads(s, k)) text_add(out, " input in %d channels", select_channels(s, k->in[0]));
        text_add(out, " %s keep b %x w %x extra %zu+%zu work %zu+%zu derived %zu\n",
                 format_layout_name(&s->tensor[k->out]), k->need_b, k->need_w, k->saved_bytes[0], k->saved_bytes[1],
                 k->workspace_bytes[0], k->workspace_bytes[1], k->packed_bytes);
    }
    for (int i = 0; i < s->g->n_params; i++)
        if (select_narrows(s, i))
            text_add(out, "weight %s %s\n", s->g->param[i].name, dtype_name(s->param[i].type));
}

const char *select_precision(const struct device *d)
{
    return d->winograd ? "fp32 with Winograd" : precision_name[d->precision];
}

/* With the instructions of a processor for bf16. */
static const char *precision_text(const struct device *d)
{
    static const char *const by[] = {"bf16 by amx_bf16", "bf16 by avx512_bf16"};
    for (size_t i = 0; d->precision == BFLOAT16 && d->bf16 && i < sizeof by / sizeof *by; i++)
        if (strstr(by[i], d->bf16)) return by[i];
    return select_precision(d);
}

void numerics_line(const struct selection *s, const struct conf *c, struct text *out)
{
    struct text t = {0};
    char hash[33];
    select_print(s, &t);
    if (s->dev.kernels) text_add(&t, "%s", s->dev.kernels);
    text_hash(t.s, t.n, hash);
    text_free(&t);
    hash[8] = 0;
    text_add(out,
             "device %s, backend %s, isa %s, library %s%s%s, precision %s, kernels %s, threads %d, micro-batch %lld, "
             "weight-group 1, ",
             s->dev.rules->hardware, s->dev.backend, s->dev.isa, s->dev.library,
             *s->dev.beside ? ", " : "", s->dev.beside, precision_text(&s->dev), hash, s->dev.threads,
             (long long)c->train.split_size);
    /* for one block: the words of checkpoints from before there were blocks */
    if (c->train.gradient_groups > 1) text_add(out, "gradient groups %lld", (long long)c->train.gradient_groups);
    else text_add(out, "replicas 1");
    if (c->pipeline.replicas > 1 && c->pipeline.reduce == REDUCE_NCCL)
        text_add(out, ", those of %lld replicas added by NCCL in buckets of %lld KiB", (long long)c->pipeline.replicas,
                 (long long)c->pipeline.bucket_kib);
}
