/* Embedding: replaces each index by that row of a table, as torch.nn.Embedding does. Features come first, like
 * channels: indices of shape T give features x T, a single index gives a vector. An index without a row yields NaN and
 * no gradient; data sets refuse such samples earlier (range). */
#include <string.h>
#include "model/ops/embedding.h"

enum { A_COUNT, A_FEATURES };
static const struct attr_kind attrs[] = {
    {"count", A_INT, 0, 1, 1 << 24, "rows of the table: indices are 0 to count - 1"},
    {"features", A_INT, 0, 1, 1 << 24, "width of a row"},
    {NULL},
};

static int embedding_infer(const struct node *n, const struct shape *const *in, struct infer *f, struct err *e)
{
    int64_t rows = n->attr[A_COUNT].i[0], features = n->attr[A_FEATURES].i[0];
    char s[96];
    if (rows < 1 || features < 1) return err_set(e, E_CONF, "%s is missing", rows < 1 ? "count" : "features");
    if (in[0]->n == MAX_DIMS)
        return err_set(e, E_CONF, "the input %s cannot have another dimension", shape_text(in[0], s));
    f->out.n = in[0]->n + 1;
    f->out.d[0] = features;
    memcpy(&f->out.d[1], in[0]->d, (size_t)in[0]->n * sizeof *in[0]->d);
    f->n_param = 1;
    f->param[0] = (struct infer_param){"weight", {2, {rows, features}}, INIT_NORMAL, 1};
    return 0;
}

static int64_t range(const struct graph *g, const struct node *n, int in) { return n->attr[A_COUNT].i[0]; }

static void embedding_forward(const struct op_call *c)
{
    const struct embedding m = embedding_of(c->g, c->node, c->n, c->in[0]);
    embedding_take(&m, c->param[0], c->out);
}

/* In float, like PyTorch on CPUs. */
static void embedding_backward_weights(const struct op_call *c)
{
    const struct embedding m = embedding_of(c->g, c->node, c->n, c->in[0]);
    memset(c->pgrad[0], 0, (size_t)(m.rows * m.features) * sizeof(float));
    embedding_add(&m, c->gout, c->pgrad[0]);
}

static const char *const examples[] = {"5 I64 count=7 features=3", "2x3 I32 count=4 features=2",
                                       "class count=6 features=5", "9 I32 count=1 features=1",
                                       "4 I64 count=40 features=16", NULL};
const struct op_kind op_embedding = {
    .name = "embedding",
    .text = "rows of a table, by indices of any shape; the features become the first dimension",
    .takes = {TAKES(I64) | TAKES(I32)},
    .attr = attrs,
    .infer = embedding_infer,
    .range = range,
    .need_w = 1,
    .forward = embedding_forward,
    .backward_weights = embedding_backward_weights,
    .examples = examples,
};
