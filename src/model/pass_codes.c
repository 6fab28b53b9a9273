/* model.load_in_8bit: which weights are stored as codes with a factor for each row (plan/format.h). As in bitsandbytes:
 * frozen linear layers, but not the head. */
#include <string.h>
#include "model/graph_int.h"

static bool is_product(const struct node *n, const char *head)
{
    return n->op->category == OP_MATRIX && !(head && !strcmp(n->name, head));
}

/* A weight that something else than such a layer uses, too, stays as it is. */
static void codes_mark(struct graph_builder *b, const char *head, bool others)
{
    for (int i = 0; i < b->node.n; i++) {
        const struct node *n = &b->node.v[i];
        if (is_product(n, head) == others) continue;
        for (int k = 0; k < n->n_param && (others || !k); k++) {
            struct param *p = &b->param.v[n->param[k]];
            p->coded = !others && p->frozen;
        }
    }
}

int codes_apply(struct graph_builder *b, const struct conf *c, const char *head, struct err *e)
{
    const enum when want = c->model.load_in_8bit;
    bool any = false;
    if (b->e.code || want == WHEN_NO || (want != WHEN_YES && !b->coded)) return 0;
    codes_mark(b, head, false);
    codes_mark(b, head, true);
    for (int i = 0; i < b->param.n; i++) any |= b->param.v[i].coded;
    if (any) return 0;
    return conf_error(c, want == WHEN_YES ? "model.load_in_8bit" : "model.folder", e, "no linear layer is frozen, as 8 "
                      "bits need: use lora, train.freeze%s", want == WHEN_YES ? "" : ", or model.load_in_8bit = no");
}
