/* Which kernels may take several micro-batches at once.
 *
 * oneDNN does not promise an order of its sums, and may choose another order for another number of samples. That order
 * depends on shapes, never on values, so a trial with arbitrary values can find out. It runs kernels of the joined and
 * of the single size on the same input, and compares every bit of the results. Two orders may agree in a single sum by
 * chance, and for short sums they often do. So trials with new values continue until thousands of outputs agreed.
 * Joining pays for convolutions and matrix products, whose weights are then read once a bundle. All other operators get
 * one call for each micro-batch. */
#include <stdlib.h>
#include <string.h>
#include "backend/cpu/cpu_int.h"
#include "base/rng.h"

struct batch_trial {
    const struct group *k;
    struct be_key key;                                   /* of all samples */
    int part;
    struct be_kernel *one, *rest, *all;
    size_t from_bytes, to_bytes;                         /* of a sample */
    bool adds;                                           /* to the old gradient */
    float *from, *to, *want, *param[MAX_PARAM];
    void *packed, *work;
};

/* Values whose pattern fits the size of no layer, different for each array and round. Denormals and zeros would hide
 * differences. */
static void values_fill(float *x, size_t bytes, int round, int array)
{
    enum { PERIOD = 16381 };
    size_t n = bytes / sizeof(float), known = n < PERIOD ? n : PERIOD;
    rng_fill_uniform((struct rng_at){1, RNG_TEST, (uint32_t)round, (uint32_t)array}, x, known);
    for (size_t i = 0; i < known; i++) x[i] -= 0.5f;
    for (; known < n; known *= 2) memcpy(x + known, x, (n - known < known ? n - known : known) * sizeof *x);
}

static int memory_take(struct be *b, struct batch_trial *t, struct err *e)
{
    size_t n = (size_t)t->key.samples;
    t->from = be_onednn.alloc(b, n * t->from_bytes, e);
    t->to = be_onednn.alloc(b, n * t->to_bytes, e);
    t->want = be_onednn.alloc(b, n * t->to_bytes, e);
    if (!t->from || !t->to || !t->want) return -1;
    for (int i = 0; i < t->k->n_param; i++)
        if (!(t->param[i] = be_onednn.alloc(b, graph_param_bytes(b->g, t->k->param[i]), e))) return -1;
    if (t->k->packed_bytes && !(t->packed = be_onednn.alloc(b, t->k->packed_bytes, e))) return -1;
    t->work = aligned_alloc(64, size_align64(group_workspace(t->k, (int)n)));   /* most of it is never touched */
    return t->work ? 0 : err_set(e, E_INTERNAL, "out of memory");
}

/* The old values that results are added to are the same for both. */
static void memory_fill(struct be *b, struct batch_trial *t, int round)
{
    enum { FROM, TO, PARAM };
    size_t n = (size_t)t->key.samples;
    values_fill(t->from, n * t->from_bytes, round, FROM);
    values_fill(t->to, n * t->to_bytes, round, TO);
    memcpy(t->want, t->to, n * t->to_bytes);
    for (int i = 0; i < t->k->n_param; i++)
        values_fill(t->param[i], graph_param_bytes(b->g, t->k->param[i]), round, PARAM + i);
}

static void memory_give(struct be *b, struct batch_trial *t)
{
    size_t n = (size_t)t->key.samples;
    be_onednn.free(b, t->from, n * t->from_bytes);
    be_onednn.free(b, t->to, n * t->to_bytes);
    be_onednn.free(b, t->want, n * t->to_bytes);
    for (int i = 0; i < t->k->n_param; i++) be_onednn.free(b, t->param[i], graph_param_bytes(b->g, t->k->param[i]));
    be_onednn.free(b, t->packed, t->k->packed_bytes);
    free(t->work);
}

/* Calls the kernel for the samples from `at` on; result: of all samples. */
static int call(struct be *b, const struct batch_trial *t, struct be_kernel *k, int at, float *result, struct err *e)
{
    float *from = (float *)((char *)t->from + (size_t)at * t->from_bytes),
          *to = (float *)((char *)result + (size_t)at * t->to_bytes);
    struct be_call c = {.n = k->key.samples, .packed = t->packed, .work = t->work};
    for (int i = 0; i < t->k->n_param; i++) c.param[i] = t->param[i];
    if (t->key.phase == PH_FWD) {
        c.in[0] = from;
        c.out = to;
    } else {
        c.gout = from;
        c.gin[0] = to;
        c.gin_acc = t->adds;
    }
    return k->run(b, k, &c, e);
}

static bool same(struct be *b, struct batch_trial *t, struct err *e)
{
    for (int at = 0; at < t->key.samples; at += t->part)
        if (call(b, t, t->key.samples - at < t->part ? t->rest : t->one, at, t->want, e)) return false;
    return !call(b, t, t->all, 0, t->to, e) && !memcmp(t->to, t->want, (size_t)t->key.samples * t->to_bytes);
}

/* If a tensor has several readers, all but one of them add to its gradient. */
static bool same_both(struct be *b, struct batch_trial *t, struct err *e)
{
    bool adds = t->key.phase == PH_BWD_DATA && b->g->tensor[t->k->in[0]].n_readers > 1;
    if (t->packed && be_onednn.pack(b, t->one->key.group, (void *const *)t->param, t->packed, e)) return false;
    for (int i = 0; i <= adds; i++) {
        t->adds = i;
        if (!same(b, t, e)) return false;
    }
    return true;
}

/* For sums of three products, about one in a hundred shows that two orders differ. */
static bool always_same(struct be *b, struct batch_trial *t, struct err *e)
{
    enum { ENOUGH = 1 << 16 };
    size_t outputs = (size_t)t->key.samples * t->to_bytes / sizeof(float);
    for (size_t agreed = 0, round = 0; agreed < ENOUGH; agreed += outputs, round++) {
        memory_fill(b, t, (int)round);
        if (!same_both(b, t, e)) return false;
    }
    return true;
}

static bool prepared(struct be *b, struct batch_trial *t, struct err *e)
{
    struct be_key one = t->key, rest = t->key;
    one.samples = t->part;
    rest.samples = t->key.samples % t->part;
    return !be_onednn.prepare(b, &one, &t->one, e) && !be_onednn.prepare(b, &t->key, &t->all, e) &&
           (!rest.samples || !be_onednn.prepare(b, &rest, &t->rest, e));
}

static bool tried(struct be *b, const struct be_key *key, int part)
{
    const struct group *k = &b->s->group[key->group];
    bool forward = key->phase == PH_FWD;
    struct err why = {0};
    struct batch_trial t = {.k = k,
                            .key = *key,
                            .part = part,
                            .from_bytes = tensor_bytes(b, forward ? k->in[0] : k->out, 1),
                            .to_bytes = tensor_bytes(b, forward ? k->out : k->in[0], 1)};
    if (!prepared(b, &t, &why)) return false;
    bool yes = !memory_take(b, &t, &why) && always_same(b, &t, &why);
    memory_give(b, &t);
    return yes;
}

bool cpu_alike(const struct be *b, const struct group *x, const struct group *y)
{
    const struct graph *g = b->g;
    const struct node *m = &g->node[x->node[0]], *n = &g->node[y->node[0]];
    if (m->op != n->op || m->n_param != n->n_param || x->packed_bytes != y->packed_bytes) return false;
    bool same = tensor_lanes(b, x->in[0]) == tensor_lanes(b, y->in[0]) &&
                tensor_lanes(b, x->out) == tensor_lanes(b, y->out) &&
                (g->tensor[x->in[0]].n_readers > 1) == (g->tensor[y->in[0]].n_readers > 1) &&
                shape_equal(&g->tensor[x->in[0]].shape, &g->tensor[y->in[0]].shape) &&
                shape_equal(&g->tensor[x->out].shape, &g->tensor[y->out].shape);
    same = same && x->n_in == y->n_in;
    for (int i = 1; i < x->n_in && same; i++) {
        same = shape_equal(&g->tensor[x->in[i]].shape, &g->tensor[y->in[i]].shape) &&
               tensor_lanes(b, x->in[i]) == tensor_lanes(b, y->in[i]);
        for (int j = 0; j < i; j++) same = same && (x->in[i] == x->in[j]) == (y->in[i] == y->in[j]);
    }
    for (int i = 0; i < m->n_param; i++)
        same = same && shape_equal(&g->param[m->param[i]].shape, &g->param[n->param[i]].shape);
    for (int i = 0; i < MAX_ATTR; i++)
        same = same && m->attr[i].n == n->attr[i].n && !memcmp(m->attr[i].i, n->attr[i].i, sizeof n->attr[i].i);
    return same;
}

bool cpu_may_batch(struct be *b, const struct be_key *key, int part)
{
    const struct group *k = &b->s->group[key->group];
    struct be_kernel *own;
    struct err why = {0};
    if (k->n_nodes > 1 || b->s->dev.precision == BFLOAT16 || group_narrows(b->s, k)) return false;
    if (!op_is_product(b->g->node[k->node[0]].op)) return false;
    if (key->phase == PH_BWD_WEIGHTS) return !be_onednn.prepare(b, key, &own, &why) && own->sums_in_order;
    for (int i = 0; i < b->join.n; i++) {
        const struct join *j = &b->join.v[i];
        bool same = j->key.phase == key->phase && j->part == part && j->key.samples == key->samples;
        if (same && cpu_alike(b, k, &b->s->group[j->key.group])) return j->yes;
    }
    bool yes = tried(b, key, part);
    *vec_push(&b->join) = (struct join){*key, part, yes};
    return yes;
}
