/* Kernels that compute on floats for tensors that are stored in bf16: each call widens what it reads, and rounds what
 * it writes. Both lie in the same order, so any layout will do. Kernels of pointwise rows do so for as many elements at
 * a time as the first cache holds; others get copies of whole tensors. Pieces of pointwise kernels, also of those that
 * need no copies, are spread over the threads. */
#include "backend/cpu/cpu_int.h"

enum { PIECE = 1024, PIECES = 2 * MAX_IN + 2 };          /* elements; of inputs and output, values and gradients */

struct half_kernel { struct be_kernel base; struct be_kernel *inner; size_t piece; };

static size_t values_of(const struct be *b, const struct be_kernel *k, int tensor)
{
    return tensor_bytes(b, tensor, k->key.samples) / sizeof(float);
}

static void *copy_take(const struct be *b, const struct be_kernel *k, int tensor, struct carve *w)
{
    return carve(w, tensor_bytes(b, tensor, k->key.samples));
}

static const void *wide(const struct be *b, const struct be_kernel *k, int tensor, const void *p, struct carve *w)
{
    if (!p || !cpu_is_half(b, tensor)) return p;
    float *copy = copy_take(b, k, tensor, w);
    b->vec->widen(copy, p, values_of(b, k, tensor));
    return copy;
}

static int half_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    struct be_kernel *k = ((struct half_kernel *)base)->inner;
    const struct group *g = k->k;
    const bool forward = k->key.phase == PH_FWD;
    struct be_call d = *c;
    struct carve w = {c->work, 0};
    for (int i = 0; i < g->n_in; i++) d.in[i] = wide(b, k, g->in[i], c->in[i], &w);
    for (int i = 0; i < g->n_out; i++) {
        d.gouts[i] = wide(b, k, g->outs[i], c->gouts[i], &w);
        if (!forward) d.outs[i] = (void *)wide(b, k, g->outs[i], c->outs[i], &w);
        else if (cpu_is_half(b, g->outs[i])) d.outs[i] = copy_take(b, k, g->outs[i], &w);
    }
    for (int i = 0; i < g->n_in; i++) {
        if (!c->gin[i] || !cpu_is_half(b, g->in[i])) continue;
        d.gin[i] = copy_take(b, k, g->in[i], &w);
        d.gin_acc &= (uint8_t)~(1u << i);
    }
    d.work = (char *)c->work + cpu_half_work(b, k);
    if (k->run(b, k, &d, e)) return -1;
    for (int i = 0; forward && i < g->n_out; i++)
        if (d.outs[i] != c->outs[i]) b->vec->narrow(c->outs[i], d.outs[i], values_of(b, k, g->outs[i]), false);
    for (int i = 0; i < g->n_in; i++)
        if (d.gin[i] != c->gin[i])
            b->vec->narrow(c->gin[i], d.gin[i], values_of(b, k, g->in[i]), c->gin_acc >> i & 1);
    return 0;
}

/* ---- some elements at a time --------------------------------------------------------------------------- */

struct half_pieces { float *next; size_t at, n; };

static const void *piece_wide(const struct be *b, int tensor, const void *p, struct half_pieces *w)
{
    float *to = w->next;
    if (!p) return NULL;
    if (!cpu_is_half(b, tensor)) return (const float *)p + w->at;
    w->next += PIECE;
    b->vec->widen(to, (const uint16_t *)p + w->at, w->n);
    return to;
}

static void *piece_take(const struct be *b, int tensor, void *p, struct half_pieces *w)
{
    float *to = w->next;
    if (!p || !cpu_is_half(b, tensor)) return p ? (float *)p + w->at : NULL;
    w->next += PIECE;
    return to;
}

static int piece_run(struct be *b, struct be_kernel *k, const struct be_call *c, struct half_pieces w, struct err *e)
{
    const struct group *g = k->k;
    const bool forward = k->key.phase == PH_FWD;
    struct be_call d = *c;
    for (int i = 0; i < g->n_in; i++) d.in[i] = piece_wide(b, g->in[i], c->in[i], &w);
    d.gout = piece_wide(b, g->out, c->gout, &w);
    d.out = forward ? piece_take(b, g->out, c->out, &w) : (void *)piece_wide(b, g->out, c->out, &w);
    for (int i = 0; i < g->n_in; i++) {
        d.gin[i] = piece_take(b, g->in[i], c->gin[i], &w);
        if (cpu_is_half(b, g->in[i])) d.gin_acc &= (uint8_t)~(1u << i);
    }
    if (k->run(b, k, &d, e)) return -1;
    if (forward && cpu_is_half(b, g->out)) b->vec->narrow((uint16_t *)c->out + w.at, d.out, w.n, false);
    for (int i = 0; i < g->n_in; i++)
        if (c->gin[i] && cpu_is_half(b, g->in[i]))
            b->vec->narrow((uint16_t *)c->gin[i] + w.at, d.gin[i], w.n, c->gin_acc >> i & 1);
    return 0;
}

/* Pieces of one size, which the kernel has as its number of elements. */
struct half_call_pieces { struct be *b; struct half_kernel *k; const struct be_call *c; size_t size, begin; };

static void some_pieces_run(const void *data, int thread, int64_t from, int64_t to)
{
    const struct half_call_pieces *h = data;
    _Alignas(64) float memory[PIECES * PIECE];
    struct half_pieces w = {.next = memory, .n = h->size};
    struct err none;                                      /* loops do not fail */
    for (int64_t i = from; i < to; i++) {
        w.at = h->begin + (size_t)i * h->size;
        piece_run(h->b, h->k->inner, h->c, w, &none);
    }
}

static int pieces_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    struct half_kernel *k = (struct half_kernel *)base;
    const size_t whole = base->elements / k->piece;
    struct half_call_pieces h = {b, k, c, k->piece, 0};
    k->inner->elements = h.size;
    cpu_each(b->s->dev.threads, (int64_t)whole, some_pieces_run, &h);
    h.begin = whole * k->piece;
    h.size = k->inner->elements = base->elements - h.begin;
    if (h.size) some_pieces_run(&h, 0, 0, 1);
    return 0;
}

/* ---- making ------------------------------------------------------------------------------------------ */

static void half_close(struct be_kernel *base) { kernel_free(((struct half_kernel *)base)->inner); }

/* As if every pointer were given. */
size_t cpu_half_work(const struct be *b, const struct be_kernel *k)
{
    const struct group *g = k->k;
    const size_t in = k->key.phase == PH_BWD_DATA ? 2 : 1, out = k->key.phase == PH_FWD ? 1 : 2;
    size_t bytes = 0;
    for (int i = 0; i < g->n_in; i++)
        if (cpu_is_half(b, g->in[i])) bytes += in * size_align64(tensor_bytes(b, g->in[i], k->key.samples));
    for (int i = 0; i < g->n_out; i++)
        if (cpu_is_half(b, g->outs[i])) bytes += out * size_align64(tensor_bytes(b, g->outs[i], k->key.samples));
    return bytes;
}

struct be_kernel *cpu_half_make(struct be *b, struct be_kernel *inner)
{
    struct half_kernel *k = kernel_new(inner, sizeof *k);
    const size_t each = (inner->elements / (size_t)b->s->dev.threads + PIECE - 1) / PIECE * PIECE;
    k->inner = inner;
    k->piece = select_widens(b->s, inner->row, inner->k) || !each ? PIECE : each;
    k->base.run = inner->elements ? pieces_run : half_run;
    k->base.close = half_close;
    return &k->base;
}

const char *cpu_half_refuses(const struct selection *s, const struct group *k, enum phase ph)
{
    return s->dev.bf16 ? NULL : "";
}
