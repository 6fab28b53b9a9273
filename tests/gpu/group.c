/* See group.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../op_graphs.h"
#include "base/rng.h"
#include "group.h"

/* fp32 sums up to 4608 products in some other order: about sqrt(4608) roundings of 2^-24. TF32 keeps 10 bits, bfloat16
 * 7 of each factor and result. An engine may cut the other bits of TF32 off instead of rounding them: up to twice as
 * far, which is worth a word and no failure. */
static const double limit_of[PRECISIONS] = {[FP32] = 1e-5, [TF32] = 2e-3, [BFLOAT16] = 1e-2};
static const double expected_of[PRECISIONS] = {[FP32] = 1e-5, [TF32] = 1e-3, [BFLOAT16] = 1e-2};
double limit_given;
enum { CANARY = 256 };

/* ---- results --------------------------------------------------------------------------------- */

struct row {
    char op[40];
    const char *phase;
    enum precision p;
    double error, limit;
    int cases;
    char worst[200];
};
static VEC(struct row) rows;

void die(const char *what, const struct err *e)
{
    fprintf(stderr, "operators: %s: %s\n", what, e->text);
    exit(e->code ? e->code : 1);
}

static void note(const char *op, const char *phase, enum precision p, double error, double limit, const char *text)
{
    struct row *r = rows.v;
    int i = 0;
    if (!isfinite(error)) error = INFINITY;
    for (; i < rows.n && (strcmp(r->op, op) != 0 || strcmp(r->phase, phase) != 0 || r->p != p); i++) r++;
    if (i == rows.n) {
        r = vec_push(&rows);
        snprintf(r->op, sizeof r->op, "%s", op);
        r->phase = phase;
        r->p = p;
        r->limit = limit;
        r->error = -1;
    }
    r->cases++;
    if (error <= r->error) return;
    r->error = error;
    snprintf(r->worst, sizeof r->worst, "%s", text);
}

/* ---- one network, one group of it ------------------------------------------------------------ */

size_t count(const struct net *t, int tensor)
{
    return (size_t)t->n * (size_t)shape_count(&t->g->tensor[tensor].shape);
}
size_t bytes(const struct net *t, int tensor) { return (size_t)t->n * select_sample_bytes(t->s, tensor); }
size_t pcount(const struct net *t, int param) { return (size_t)shape_count(&t->g->param[param].shape); }
static double limit(const struct net *t) { return limit_given > 0 ? limit_given : limit_of[t->dev.precision]; }

void note_error(struct net *t, const char *phase, double error)
{
    note(t->op, phase, t->dev.precision, error, limit(t), t->text);
}
void note_same(struct net *t, const char *phase, bool same) { note(t->op, phase, t->dev.precision, !same, 0, t->text); }

void wait_done(struct net *t)
{
    struct err e = {0};
    int done;
    while (!(done = t->ops->done(t->b, &e))) continue;
    if (done < 0) die(t->text, &e);
}

void move(struct net *t, void *to, const void *from, size_t n)
{
    struct err e = {0};
    if (t->ops->copy(t->b, to, from, n, &e)) die("copy", &e);
    wait_done(t);
}

/* Backend memory with a canary behind it. */
void *memory(struct net *t, size_t n)
{
    struct err e = {0};
    char canary[CANARY];
    struct piece *p = vec_push(&t->piece);
    *p = (struct piece){t->ops->alloc(t->b, n + CANARY, &e), n};
    if (!p->at) die("memory", &e);
    memset(canary, 0x5a, CANARY);
    move(t, p->at + n, canary, CANARY);
    return p->at;
}

void memory_free(struct net *t)
{
    bool whole = true;
    for (int i = 0; i < t->piece.n; i++) {
        struct piece *p = &t->piece.v[i];
        char canary[CANARY];
        move(t, canary, p->at + p->bytes, CANARY);
        for (int k = 0; k < CANARY; k++) whole &= canary[k] == 0x5a;
        t->ops->free(t->b, p->at, p->bytes + CANARY);
    }
    t->piece.n = 0;
    note_same(t, "bounds", whole);
}

/* ---- layouts and types: our own, so that a backend that lays out and reads back wrongly is found ---- */

static uint16_t to_bf16(float x)
{
    uint32_t u;
    memcpy(&u, &x, 4);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static float from_bf16(uint16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    float x;
    memcpy(&x, &u, 4);
    return x;
}

/* Where element (sample, channel, point) lies. */
static size_t place(enum layout l, size_t sample, size_t ch, size_t pt, size_t channels, size_t points)
{
    return l == LAYOUT_LAST ? (sample * points + pt) * channels + ch : (sample * channels + ch) * points + pt;
}

static void extent(const struct net *t, int tensor, size_t *channels, size_t *points)
{
    const struct shape *s = &t->g->tensor[tensor].shape;
    *channels = s->n ? (size_t)s->d[0] : 1;
    *points = *channels ? (size_t)shape_count(s) / *channels : 0;
}

/* In a form that only the backend knows. */
static bool blocked(const struct net *t, int tensor)
{
    const struct shape *s = &t->g->tensor[tensor].shape;
    bool padded = s->n && select_channels(t->s, tensor) != s->d[0];
    return t->s->tensor[tensor].layout == LAYOUT_BLOCKED || padded;
}

/* Row-major values to the backend; what the type rounds is rounded in `plain` too. */
void put(struct net *t, int tensor, void *to, void *plain)
{
    struct err e = {0};
    size_t ch, pts, n = count(t, tensor);
    if (blocked(t, tensor)) {
        if (t->ops->tensor_import(t->b, tensor, t->n, to, plain, &e)) die("import", &e);
        for (size_t i = 0; t->s->tensor[tensor].type == BF16 && i < n; i++)
            ((float *)plain)[i] = from_bf16(to_bf16(((float *)plain)[i]));
        return;
    }
    if (t->g->tensor[tensor].type != F32) { move(t, to, plain, n * dtype_bytes(t->g->tensor[tensor].type)); return; }
    extent(t, tensor, &ch, &pts);
    bool half = t->s->tensor[tensor].type == BF16;
    float *x = plain, *wide = malloc(n * 4 + 1);
    uint16_t *narrow = malloc(n * 2 + 1);
    for (size_t i = 0; i < n; i++) {
        size_t at = place(t->s->tensor[tensor].layout, i / (ch * pts), i / pts % ch, i % pts, ch, pts);
        narrow[at] = to_bf16(x[i]);
        if (half) x[i] = from_bf16(narrow[at]);
        wide[at] = x[i];
    }
    move(t, to, half ? (void *)narrow : wide, n * (half ? 2 : 4));
    free(wide);
    free(narrow);
}

float *get(struct net *t, int tensor, const void *from)
{
    struct err e = {0};
    size_t ch, pts, n = count(t, tensor);
    float *x = malloc(n * 4 + 1);
    if (blocked(t, tensor)) {
        if (t->ops->tensor_export(t->b, tensor, t->n, x, from, &e)) die("export", &e);
        return x;
    }
    extent(t, tensor, &ch, &pts);
    bool half = t->s->tensor[tensor].type == BF16;
    void *raw = malloc(n * 4 + 1);
    move(t, raw, from, n * (half ? 2 : 4));
    for (size_t i = 0; i < n; i++) {
        size_t at = place(t->s->tensor[tensor].layout, i / (ch * pts), i / pts % ch, i % pts, ch, pts);
        x[i] = half ? from_bf16(((uint16_t *)raw)[at]) : ((float *)raw)[at];
    }
    free(raw);
    return x;
}

double distance(const float *x, const float *want, const float *plus, size_t n)
{
    double d = 0, norm = 0;
    for (size_t i = 0; i < n; i++) {
        double y = (double)want[i] + (plus ? plus[i] : 0);
        if (!isfinite(x[i])) return INFINITY;
        d += (x[i] - y) * (x[i] - y);
        norm += y * y;
    }
    return norm > 0 ? sqrt(d / norm) : d > 0 ? INFINITY : 0;
}

/* ---- the reference: the group's nodes one by one --------------------------------------------- */

static struct op_call ref_call(struct net *t, int node)
{
    const struct node *n = &t->g->node[node];
    struct op_call c = {.g = t->g,
                        .node = n,
                        .n = t->n,
                        .train = t->train,
                        .block = &t->block,
                        .sample = t->sample,
                        .saved = t->saved[node]};
    for (int i = 0; i < n->n_in; i++) c.in[i] = t->value[n->in[i]];
    for (int i = 0; i < n->n_param; i++) c.param[i] = t->param[n->param[i]];
    for (int i = 0; i < n->n_out; i++) c.outs[i] = t->value[n->outs[i]];
    return c;
}

void ref_forward(struct net *t)
{
    for (int i = 0; i < t->k->n_nodes; i++) {
        struct op_call c = ref_call(t, t->k->node[i]);
        c.node->op->forward(&c);
    }
}

/* The gradient of a tensor that a node reads more than once is the sum of what each of its inputs gets. */
void ref_backward(struct net *t)
{
    for (int i = t->k->n_nodes - 1; i >= 0; i--) {
        struct op_call c = ref_call(t, t->k->node[i]);
        const struct op_kind *op = c.node->op;
        for (int j = 0; j < c.node->n_out && !op->is_loss; j++) c.gouts[j] = t->grad[c.node->outs[j]];
        for (int j = 0; j < c.node->n_in; j++)
            if (op_grad_in(op) >> j & 1)
                c.gin[j] = op_graph_first(c.node, j) < j ? calloc(count(t, c.node->in[j]), sizeof(float))
                                                         : t->grad[c.node->in[j]];
        for (int j = 0; j < c.node->n_param; j++)
            if ((op->pgrad_in_b | op_pgrad_in_w(op)) >> j & 1) c.pgrad[j] = t->pgrad[c.node->param[j]];
        if (op->backward_weights) op->backward_weights(&c);
        if (op->backward_data) op->backward_data(&c);
        for (int j = 0; j < c.node->n_in; j++) if (c.gin[j]) op_graph_twice_add(&c, j, count(t, c.node->in[j]));
    }
}

/* ---- the backend ----------------------------------------------------------------------------- */

/* The first of the group's inputs that is the same tensor. */
static int first_in(const struct group *k, int i)
{
    int j = 0;
    while (k->in[j] != k->in[i]) j++;
    return j;
}

/* One kernel. 0, or -1: the backend has none, noted. */
int be_phase(struct net *t, enum phase ph, int how)
{
    const struct group *k = t->k;
    struct be_kernel *kernel;
    struct be_graph *graph;
    struct err e = {0};
    struct be_call c = {.n = t->n,
                        .block = t->block_at,
                        .sample = t->sample_at,
                        .saved = t->kept,
                        .work = t->work,
                        .packed = t->packed,
                        .pgrad_acc = how & ADD};
    uint32_t needs = ph == PH_FWD ? ~0u : ph == PH_BWD_DATA ? k->need_b : k->need_w;
    for (int i = 0; i < k->n_in; i++) {
        c.in[i] = needs >> i & 1 ? t->in[i] : NULL;
        if (ph == PH_BWD_DATA && k->grad_in >> i & 1)
            c.gin[i] = how & OVER && t->gin[i] == t->gin[k->grad_over] ? t->gouts[0] : t->gin[i];
        bool adds = first_in(k, i) < i || (how & ADD && t->g->tensor[k->in[i]].n_readers > 1);
        if (c.gin[i] && adds) c.gin_acc |= (uint8_t)(1u << i);
    }
    for (int i = 0; i < k->n_param; i++) {
        c.param[i] = t->p[i];
        if (ph != PH_FWD && (ph == PH_BWD_DATA ? k->pgrad_in_b : k->pgrad_in_w) >> i & 1) c.pgrad[i] = t->pg[i];
    }
    for (int i = 0; i < k->n_out; i++) {
        c.outs[i] = needs & NEED_OUT ? t->outs[i] : NULL;
        if (ph != PH_FWD && !k->is_loss) c.gouts[i] = t->gouts[i];
    }
    bool bad = t->ops->prepare(t->b, &(struct be_key){t->group, ph, t->n, t->train}, &kernel, &e);
    if (!bad && how & RECORD) {
        /* what a first call sets up is no part of a recording */
        if (t->ops->run(t->b, kernel, &c, &e)) die(t->text, &e);
        wait_done(t);
        bad = t->ops->capture_begin(t->b, &e) || t->ops->run(t->b, kernel, &c, &e) ||
              t->ops->capture_end(t->b, &graph, &e) || t->ops->replay(t->b, graph, &e);
    } else if (!bad) bad = t->ops->run(t->b, kernel, &c, &e);
    if (bad) {
        fprintf(stderr, "operators: %s: %s\n", t->text, e.text);
        note_error(t, ph == PH_FWD ? "forward" : ph == PH_BWD_DATA ? "data" : "weights", INFINITY);
        return -1;
    }
    wait_done(t);
    return 0;
}

/* ---- values ---------------------------------------------------------------------------------- */

void value_make(struct net *t, int tensor)
{
    size_t n = count(t, tensor);
    if (t->value[tensor]) return;
    t->value[tensor] = calloc(n + 1, 8);
    t->grad[tensor] = calloc(n + 1, 8);
    if (t->g->tensor[tensor].type == F32)
        rng_fill_normal((struct rng_at){7, RNG_TEST, (uint32_t)tensor}, t->value[tensor], n);
    rng_fill_normal((struct rng_at){7, RNG_TEST, (uint32_t)tensor, 1}, t->grad[tensor], n);
    if (!dtype_floats(t->g->tensor[tensor].type)) op_graph_integers(t->g, tensor, 7, n, t->value[tensor]);
}

/* Weights around zero, batch norms' (and variances) between zero and one. */
static void params_make(struct net *t)
{
    struct err e = {0};
    for (int i = 0; i < t->k->n_param; i++) {
        int q = t->k->param[i];
        size_t n = pcount(t, q);
        t->param[q] = calloc(n + 1, 8);
        t->pgrad[q] = calloc(n + 1, sizeof(float));
        if (t->g->param[q].type == F32) rng_fill_uniform((struct rng_at){7, RNG_TEST, (uint32_t)q, 2}, t->param[q], n);
        if (t->g->param[q].shape.n > 1) for (size_t j = 0; j < n; j++) ((float *)t->param[q])[j] -= 0.5f;
        t->p[i] = memory(t, n * 8);
        t->pg[i] = memory(t, n * sizeof(float));
        if (t->ops->param_import(t->b, q, t->p[i], t->param[q], &e)) die("import", &e);
    }
}

void group_open(struct net *t, int group)
{
    struct err e = {0};
    const struct group *k = t->k = &t->s->group[group];
    t->group = group;
    t->train = true;
    for (int i = 0; i < k->n_in; i++) {
        const int first = first_in(k, i);
        t->in[i] = t->in[first];
        t->gin[i] = t->gin[first];
        if (first < i) continue;
        value_make(t, k->in[i]);
        t->in[i] = memory(t, bytes(t, k->in[i]));
        t->gin[i] = memory(t, bytes(t, k->in[i]));
        put(t, k->in[i], t->in[i], t->value[k->in[i]]);
    }
    for (int i = 0; i < k->n_nodes; i++) {
        const struct node *n = &t->g->node[k->node[i]];
        for (int o = 0; o < n->n_out; o++) value_make(t, n->outs[o]);
        if (n->op->saved_bytes) t->saved[k->node[i]] = calloc(1, n->op->saved_bytes(t->g, n, t->n));
    }
    for (int i = 0; i < k->n_out; i++) {
        t->outs[i] = memory(t, bytes(t, k->outs[i]));
        t->gouts[i] = memory(t, bytes(t, k->outs[i]));
        put(t, k->outs[i], t->gouts[i], t->grad[k->outs[i]]);
    }
    params_make(t);
    t->kept = group_saved(k, t->n) ? memory(t, group_saved(k, t->n)) : NULL;
    t->work = group_workspace(k, t->n) ? memory(t, group_workspace(k, t->n)) : NULL;
    t->packed = k->packed_bytes ? memory(t, k->packed_bytes) : NULL;
    t->block_at = memory(t, sizeof t->block);
    t->sample_at = memory(t, sizeof t->sample);
    move(t, t->block_at, &t->block, sizeof t->block);
    move(t, t->sample_at, t->sample, sizeof t->sample);
    if (t->packed && t->ops->pack(t->b, group, t->p, t->packed, &e)) die("derive", &e);
}

void group_close(struct net *t)
{
    memory_free(t);
    for (int i = 0; i < t->g->n_tensors; i++) {
        free(t->value[i]);
        free(t->grad[i]);
        t->value[i] = NULL;
        t->grad[i] = NULL;
    }
    for (int i = 0; i < t->g->n_params; i++) {
        free(t->param[i]);
        free(t->pgrad[i]);
        t->param[i] = NULL;
        t->pgrad[i] = NULL;
    }
    for (int i = 0; i < t->g->n_nodes; i++) { free(t->saved[i]); t->saved[i] = NULL; }
}

bool results_print(void)
{
    bool bad = false;
    for (const struct row *r = rows.v; r < rows.v + rows.n; r++) {
        bool high = limit_given <= 0 && r->limit > 0 && r->error > expected_of[r->p];
        const char *word = !(r->error <= r->limit) ? " BEYOND" : high ? " HIGH" : "";
        printf("%s %s %s %.3g %g %d %s%s\n", r->op, r->phase, precision_name[r->p], r->error, r->limit, r->cases,
               r->worst, word);
        bad |= !(r->error <= r->limit);
    }
    return bad;
}
