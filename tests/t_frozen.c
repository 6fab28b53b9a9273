/* Frozen weights in bf16, on both kinds of processors with instructions for it: products read them as they are stored,
 * have no packed copies, and give the bits of the same weights if those are trained. */
#include <stdlib.h>
#include <string.h>
#include "net_rig.h"
#include "op_graphs.h"
#include "sure.h"

/* Sums in one part and in several, inputs with two readers, rows that fill no tile, more rows than a piece, columns
 * beyond a tile. A head has classes that fill no step. */
static const struct { const char *op, *text; int n; } shapes[] = {
    {NULL, "64; linear features=96; relu", 1030},
    {NULL, "96; linear features=32 bias=no; linear features=32 ^0; add @1", 7},
    {NULL, "1056; linear features=736; linear features=70", 40},
    {NULL, "40; linear features=50; linear features=33", 5},
    {"token_loss", "64 + class classes=77", 290},
    {"token_loss", "32 + class classes=2100", 40},
    {"token_loss", "20 + class classes=9", 3}};
static const enum dtype types[] = {F32, BF16, F16, I8};
static const char *const isa[] = {"ALL", "AVX512_CORE_BF16"};
enum { HEADS = 3, SHAPES = sizeof shapes / sizeof *shapes, TYPES = 4, ISAS = 2, THREADS = 2 };

static struct graph *shape_graph(int i)
{
    if (!shapes[i].op) return op_graph_chain(shapes[i].text);
    return op_graph_example(op_find(shapes[i].op), shapes[i].text);
}

static void params_share(struct net *from, struct net *to)
{
    struct err e = {0};
    for (int i = 0; i < from->g->n_params; i++) {
        ok(from->ops->param_export(from->b, i, to->param[i], from->pstore[i], &e), &e);
        ok(to->ops->param_import(to->b, i, to->pstore[i], to->param[i], &e), &e);
    }
}

static void gradients_set(struct net *t)
{
    struct err e = {0};
    for (int i = 0; i < t->g->n_tensors; i++)
        if (t->g->tensor[i].type == F32)
            ok(t->ops->tensor_import(t->b, i, t->n, t->gstore[i], t->gplain[i], &e), &e);
}

static void tensor_same(const struct net *x, const struct net *y, int i, bool grad)
{
    const size_t bytes = select_sample_bytes(x->s, i) * (size_t)x->n;
    sure(!memcmp(grad ? (void *)x->gstore[i] : x->store[i], grad ? (void *)y->gstore[i] : y->store[i], bytes),
         "%s of %s: other bits than those of trained weights", grad ? "gradient" : "value", x->g->tensor[i].name);
}

static void group_same(struct net *frozen, struct net *trained, int group)
{
    const struct group *k = &frozen->s->group[group];
    struct net *both[] = {frozen, trained};
    ck_assert_uint_eq(k->packed_bytes, 0);
    for (int i = 0; i < 2; i++) {
        group_memory(both[i], &both[i]->s->group[group], true);
        be_phase(both[i], group, PH_FWD, false);
        be_phase(both[i], group, PH_BWD_DATA, true);
        group_memory(both[i], &both[i]->s->group[group], false);
    }
    for (int i = 0; i < k->n_out; i++) tensor_same(frozen, trained, k->outs[i], false);
    if (k->grad_in & 1) tensor_same(frozen, trained, k->in[0], true);
}

/* _i: shape, type, threads, instructions. */
START_TEST(frozen_in_bf16)
{
    const int shape = _i % SHAPES, type = _i / SHAPES % TYPES, threads = _i / SHAPES / TYPES % THREADS ? 3 : 1;
    struct net frozen, trained;
    setenv("DNNL_MAX_CPU_ISA", isa[_i / SHAPES / TYPES / THREADS], 1);
    net_open_frozen(&frozen, shape_graph(shape), shapes[shape].n, types[type], threads);
    if (threads > 1) net_open_half_threads(&trained, shape_graph(shape), shapes[shape].n);
    else net_open_half(&trained, shape_graph(shape), shapes[shape].n);
    params_share(&frozen, &trained);
    gradients_set(&frozen);
    gradients_set(&trained);
    for (int i = 0; i < frozen.s->n_groups; i++) if (frozen.s->group[i].n_param) group_same(&frozen, &trained, i);
    net_close(&frozen);
    net_close(&trained);
}
END_TEST

/* Heads of own loops, against the reference. _i: shape, threads. */
START_TEST(heads_in_bf16)
{
    const int shape = SHAPES - HEADS + _i % HEADS;
    struct net t;
    if (_i / HEADS) net_open_half_threads(&t, shape_graph(shape), shapes[shape].n);
    else net_open_half(&t, shape_graph(shape), shapes[shape].n);
    group_compare(&t, 0);
    net_close(&t);
}
END_TEST

int main(void)
{
    TCase *c = suite_case("frozen", 120);
    suite_loop(c, frozen_in_bf16, SHAPES * TYPES * THREADS * ISAS, SANITIZED_EVERY(5));
    suite_loop(c, heads_in_bf16, HEADS * THREADS, EVERY(1));
    return suite_run("frozen", CK_FORK, c);
}
