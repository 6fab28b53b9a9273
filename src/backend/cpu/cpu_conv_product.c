/* Convolutions in bf16 as products by AMX, where that is the better choice: on small planes, whose points of several
 * samples fill the tiles; input gradients with strides; kernels of one point; transposed convolutions.
 *
 * A pass reads `from` and writes `to`: outputs from inputs, or input gradients from output gradients. Points of `to` a
 * stride apart form a phase: they read the same positions of the kernel, each at a fixed distance (shift) in `from`.
 * What they read is gathered as rows, unless it lies so, and multiplied by the phase's packed weights. */
#include <stdlib.h>
#include <string.h>
#include "backend/cpu/cpu_amx.h"
#include "backend/cpu/cpu_amx_product.h"
#include "backend/cpu/cpu_conv_half.h"
#include "model/ops/window.h"

enum { ROWS = 256, SMALL = 16 };                         /* rows at a time; points of a small plane */

struct conv_tap { int64_t at, shift[3]; };                    /* position in the kernel */
struct conv_phase {
    int64_t size[3], first[3];                           /* points, and the first of them in `to` */
    int n; const struct conv_tap *tap;
    int64_t packed;                                      /* elements before its weights */
};

struct conv_products {
    bool back, rear;                                     /* input gradients of the node; of its window's convolution */
    int64_t from[3], to[3], from_step[3], to_step[3], channels, columns;   /* of `from` and of `to` */
    int n; struct conv_phase *phase;
    struct conv_tap *taps;                                    /* of all phases */
};

struct product_conv { struct be_kernel base; struct conv_products g; };

/* ---- geometry -------------------------------------------------------------------------------- */

/* Forward: one phase, and position k reads o s + k d - p. Rear: input i = j s + f is read by output (i + p - k d) / s.
 */
static bool tap_of(const struct window *w, bool rear, const int64_t first[3], const int64_t k[3], struct conv_tap *t)
{
    t->at = (k[0] * w->k[1] + k[1]) * w->k[2] + k[2];
    for (int d = 0; d < 3; d++) {
        const int64_t x = rear ? first[d] + w->p[d] - k[d] * w->d[d] : k[d] * w->d[d] - w->p[d];
        if (rear && x % w->s[d]) return false;
        t->shift[d] = rear ? x / w->s[d] : x;
    }
    return true;
}

static void phase_fill(struct conv_products *g, const struct window *w, struct conv_phase *p, struct conv_tap *tap)
{
    int64_t k[3];
    p->tap = tap;
    for (int d = 0; d < 3; d++) p->size[d] = (g->to[d] - p->first[d] + g->to_step[d] - 1) / g->to_step[d];
    for (k[0] = 0; k[0] < w->k[0]; k[0]++)
        for (k[1] = 0; k[1] < w->k[1]; k[1]++)
            for (k[2] = 0; k[2] < w->k[2]; k[2]++) p->n += tap_of(w, g->rear, p->first, k, &tap[p->n]);
}

static void products_make(struct conv_products *g, const struct selection *s, const struct node *n, bool back)
{
    const struct shape *in = &s->g->tensor[n->in[0]].shape;
    const int64_t out = s->g->tensor[n->out].shape.d[0], one[3] = {1, 1, 1};
    struct err none = {0};
    struct window w;
    const bool rear = back == (n->op->category == OP_CONV);
    window_of_product(n, in, &w, &none);
    *g = (struct conv_products){.back = back, .rear = rear,
                                .channels = back ? out : in->d[0], .columns = back ? in->d[0] : out};
    memcpy(g->from, rear ? w.out : w.in, sizeof g->from);
    memcpy(g->to, rear ? w.in : w.out, sizeof g->to);
    memcpy(g->from_step, rear ? one : w.s, sizeof g->from_step);
    memcpy(g->to_step, rear ? w.s : one, sizeof g->to_step);
    g->n = (int)window_size(g->to_step);
    g->phase = mem_alloc((size_t)g->n * sizeof *g->phase);
    g->taps = mem_alloc((size_t)(window_size(w.k) + 1) * sizeof *g->taps);
    struct conv_tap *tap = g->taps;
    int64_t packed = 0;
    for (int i = 0; i < g->n; i++) {
        struct conv_phase *p = &g->phase[i];
        p->first[0] = i / (g->to_step[1] * g->to_step[2]);
        p->first[1] = i / g->to_step[2] % g->to_step[1];
        p->first[2] = i % g->to_step[2];
        phase_fill(g, &w, p, tap);
        tap += p->n;
        p->packed = packed;
        packed += p->n * g->channels * ((g->columns + AMX_STEP - 1) / AMX_STEP * AMX_STEP);
    }
}

static void products_free(struct conv_products *g)
{
    free(g->phase);
    free(g->taps);
}

/* Do the rows of `from` lie as the product reads them? */
static bool straight(const struct conv_products *g, const struct conv_phase *p)
{
    bool yes = p->n == 1;
    for (int d = 0; d < 3 && yes; d++) yes = !p->tap->shift[d] && g->from_step[d] == 1 && p->size[d] == g->from[d];
    return yes;
}

static int64_t most_taps(const struct conv_products *g)
{
    int64_t most = 0;
    for (int i = 0; i < g->n; i++) most = g->phase[i].n > most ? g->phase[i].n : most;
    return most;
}

/* Does no kernel read some of the points of `to`? */
static bool gaps(const struct conv_products *g)
{
    for (int i = 0; i < g->n; i++) if (!g->phase[i].n) return true;
    return false;
}

/* Memory of a thread: gathered rows, results that are not stored at once, and the product's. */
static size_t rows_bytes(const struct conv_products *g)
{
    return size_align64((size_t)(ROWS * most_taps(g) * g->channels) * sizeof(uint16_t));
}
static size_t results_bytes(const struct conv_products *g)
{
    return size_align64((size_t)(ROWS * g->columns) * sizeof(uint16_t));
}
static size_t thread_bytes(const struct conv_products *g)
{
    const size_t product = amx_product_work(most_taps(g) * g->channels, g->columns, false, 1);
    return rows_bytes(g) + results_bytes(g) + size_align64(product);
}

/* ---- running --------------------------------------------------------------------------------- */

struct products_call {
    const struct conv_products *g; const struct conv_phase *p; const uint16_t *from, *packed; uint16_t *to;
    const float *bias;
    int64_t rows, each; bool acc; char *work;            /* each: rows at a time */
};

/* A row's sample, and its point of the phase. */
struct conv_place { int64_t sample, j[3]; };
static struct conv_place place_at(const struct conv_phase *p, int64_t row)
{
    const int64_t *s = p->size, points = window_size(s), at = row % points;
    return (struct conv_place){row / points, {at / (s[1] * s[2]), at / s[2] % s[1], at % s[2]}};
}

static void place_next(const struct conv_phase *p, struct conv_place *x)
{
    for (int d = 2; d >= 0; d--) {
        if (++x->j[d] < p->size[d]) return;
        x->j[d] = 0;
    }
    x->sample++;
}

static void gather(const struct products_call *c, int64_t from, int64_t to, uint16_t *rows)
{
    const struct conv_products *g = c->g;
    const size_t bytes = (size_t)g->channels * sizeof *rows;
    struct conv_place x = place_at(c->p, from);
    for (int64_t r = from; r < to; r++, place_next(c->p, &x))
        for (int t = 0; t < c->p->n; t++, rows += g->channels) {
            int64_t at = x.sample;
            bool inside = true;
            for (int d = 0; d < 3; d++) {
                const int64_t i = x.j[d] * g->from_step[d] + c->p->tap[t].shift[d];
                inside &= i >= 0 && i < g->from[d];
                at = at * g->from[d] + i;
            }
            if (inside) memcpy(rows, c->from + at * g->channels, bytes);
            else memset(rows, 0, bytes);
        }
}

static void scatter(const struct products_call *c, int64_t from, int64_t to, const uint16_t *results)
{
    const struct conv_products *g = c->g;
    struct conv_place x = place_at(c->p, from);
    for (int64_t r = from; r < to; r++, place_next(c->p, &x), results += g->columns) {
        int64_t at = x.sample;
        for (int d = 0; d < 3; d++) at = at * g->to[d] + x.j[d] * g->to_step[d] + c->p->first[d];
        if (c->acc) half_add(c->to + at * g->columns, results, (size_t)g->columns);
        else memcpy(c->to + at * g->columns, results, (size_t)g->columns * sizeof *results);
    }
}

static void rows_run(const struct products_call *c, int64_t from, int64_t to, char *work)
{
    const struct conv_products *g = c->g;
    const bool lies = straight(g, c->p), whole = g->n == 1;
    uint16_t *rows = (uint16_t *)work, *results = (uint16_t *)(work + rows_bytes(g));
    const int64_t k = c->p->n * g->channels;
    if (!lies) gather(c, from, to, rows);
    const struct amx_product p = {
        .m = to - from, .k = k, .n = g->columns, .a_line = k, .c_line = g->columns,
        .a = lies ? c->from + from * k : rows, .packed = c->packed + c->p->packed, .bias = c->bias,
        .c = whole ? c->to + from * g->columns : results, .acc = whole && c->acc, .threads = 1};
    amx_product_run(&p, work + rows_bytes(g) + results_bytes(g));
    if (!whole) scatter(c, from, to, results);
}

/* About as many for each thread. */
static int64_t rows_together(int64_t rows, int threads)
{
    const int64_t most = ROWS * threads, turns = (rows + most - 1) / most * threads, each = (rows + turns - 1) / turns;
    return (each + AMX_STEP - 1) / AMX_STEP * AMX_STEP;
}

static void some_rows_run(const void *data, int thread, int64_t from, int64_t to)
{
    const struct products_call *c = data;
    char *work = c->work + (size_t)thread * thread_bytes(c->g);
    for (int64_t i = from; i < to; i++)
        rows_run(c, i * c->each, (i + 1) * c->each < c->rows ? (i + 1) * c->each : c->rows, work);
}

static int product_conv_run(struct be *b, struct be_kernel *base, const struct be_call *c, struct err *e)
{
    const struct conv_products *g = &((const struct product_conv *)base)->g;
    const char *packed = (const char *)c->packed + (g->back ? conv_half_way_bytes(b->g, base->node) : 0);
    struct products_call d = {.g = g, .from = g->back ? c->gout : c->in[0], .packed = (const uint16_t *)packed,
                              .to = g->back ? c->gin[0] : c->out, .bias = g->back ? NULL : c->param[1],
                              .acc = g->back && c->gin_acc & 1, .work = c->work};
    if (gaps(g) && !d.acc)
        memset(d.to, 0, (size_t)(base->key.samples * window_size(g->to) * g->columns) * sizeof *d.to);
    for (d.p = g->phase; d.p < g->phase + g->n; d.p++) {
        d.rows = base->key.samples * window_size(d.p->size);
        if (!d.p->n || !d.rows) continue;                      /* a plane smaller than the stride has no such points */
        d.each = rows_together(d.rows, b->s->dev.threads);
        cpu_each(b->s->dev.threads, (d.rows + d.each - 1) / d.each, some_rows_run, &d);
    }
    return 0;
}

static int product_pack(struct be *b, const struct group *k, enum phase ph, void *const *param, void *packed,
                        struct err *e)
{
    const struct node *n = group_node(b->s, k);
    const bool back = ph == PH_BWD_DATA;
    uint16_t *to = (uint16_t *)((char *)packed + (back ? conv_half_way_bytes(b->g, n) : 0));
    struct conv_products g;
    products_make(&g, b->s, n, back);
    /* k are the columns of the matrix as it is stored, or its rows, which then follow each other in all positions */
    const bool of_columns = g.rear == conv_half_last(b->s, k->param[0]);
    const int64_t line = of_columns ? g.channels : g.columns;
    for (int i = 0; i < g.n; i++)
        for (int t = 0, each = g.rear ? 1 : g.phase[i].n; t < g.phase[i].n; t += each) {
            const float *from = (const float *)param[0] + g.phase[i].tap[t].at * g.channels * g.columns;
            amx_pack(&(struct amx_matrix){from, each * g.channels, g.columns, of_columns ? 1 : line,
                                          of_columns ? line : 1, t * g.channels, g.phase[i].n * g.channels,
                                          b->s->dev.threads},
                     to + g.phase[i].packed);
        }
    products_free(&g);
    return 0;
}

/* ---- making ---------------------------------------------------------------------------------- */

static void product_close(struct be_kernel *base) { products_free(&((struct product_conv *)base)->g); }

static struct be_kernel *product_conv_make(struct be *b, const struct be_kernel *like, struct err *e)
{
    if (!amx_ready()) { err_set(e, E_CONF, "the system gives no AMX registers"); return NULL; }
    const bool back = like->key.phase == PH_BWD_DATA;
    if (!like->k->packed_bytes || (back && !(like->k->grad_in & 1))) {
        err_set(e, E_CONF, "no packed weights are planned");
        return NULL;
    }
    struct product_conv *k = kernel_new(like, sizeof *k);
    products_make(&k->g, b->s, like->node, back);
    k->base.run = product_conv_run;
    k->base.close = product_close;
    if (!kernel_workspace(b, like, (size_t)b->s->dev.threads * thread_bytes(&k->g), e)) return &k->base;
    kernel_free(&k->base);
    return NULL;
}

static struct be_kernel *product_row(struct be *b, const struct be_kernel *like, struct err *e)
{
    return conv_half_on_last(b, like, product_conv_make, e);
}

static bool strided(const struct conv_products *g) { return window_size(g->to_step) > 1; }

static const char *product_refuses(const struct selection *s, const struct group *k, enum phase ph)
{
    const struct node *n = group_node(s, k);
    if (!s->dev.bf16 || strcmp(s->dev.bf16, "amx_bf16") || !conv_half(s, n)) return "";
    struct conv_products g;
    products_make(&g, s, n, ph == PH_BWD_DATA);
    const bool turned = n->op->category == OP_CONV_TRANSPOSED,
               wanted = turned || strided(&g) || window_size(g.to) <= SMALL,
               fits = (g.rear ? 1 : most_taps(&g)) * g.channels % AMX_STEP == 0 && (g.back || !gaps(&g));
    products_free(&g);
    return wanted && fits ? NULL : "";
}

static size_t product_workspace(const struct selection *s, const struct group *k)
{
    size_t most = 0;
    for (int back = 0; back < 2; back++) {
        struct conv_products g;
        products_make(&g, s, group_node(s, k), back);
        const size_t bytes = CPU_WORK + (size_t)s->dev.threads * thread_bytes(&g);
        products_free(&g);
        most = bytes > most ? bytes : most;
    }
    return most;
}

const struct kernel_row cpu_rows_conv_product[] = {
    {.name = "amx", .pattern = PATTERN_OP("conv"), .phases = ROW_PHASE(PH_FWD) | ROW_PHASE(PH_BWD_DATA),
     .types = TAKES(BF16), .layouts = ROW_ANY_LAYOUT, .cost = 0.3, .refuses = product_refuses,
     .workspace = product_workspace, .packed = conv_half_packed, .asks = true, .make = product_row,
     .pack = product_pack},
    {.name = "amx", .pattern = PATTERN_OP("conv_transpose"), .phases = ROW_PHASE(PH_FWD) | ROW_PHASE(PH_BWD_DATA),
     .types = TAKES(BF16), .layouts = ROW_ANY_LAYOUT, .cost = 0.3, .refuses = product_refuses,
     .layout = conv_half_layout, .param_layout = conv_half_param_layout, .workspace = product_workspace,
     .packed = conv_half_packed, .asks = true, .make = product_row, .pack = product_pack},
    {0}};
