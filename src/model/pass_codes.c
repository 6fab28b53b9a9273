/* model.load_in_8bit: which weights are stored as codes with a factor for each row (plan/format.h). As in bitsandbytes
 * those of linear layers but the head, among those that are frozen. */
#include "model/graph_int.h"

int codes_apply(struct graph_builder *b, const struct conf *c, const char *head, struct err *e)
{
    const bool fixed = c->run.evaluate && !conf_adapts(c) && !c->train.freeze.n;
    const int last = builder_head(b, head);
    int n = 0;
    if (b->e.code || (!c->model.load_in_8bit && !b->coded)) return 0;
    for (int i = 0; i < b->param.n && fixed; i++)
        if (b->param.v[i].kind == PARAM_WEIGHT) param_freeze(&b->param.v[i], 0);
    for (int i = 0; i < b->node.n; i++) {
        struct param *p = b->node.v[i].n_param ? &b->param.v[b->node.v[i].param[0]] : NULL;
        if (i == last || b->node.v[i].op->category != OP_MATRIX || !p->frozen) continue;
        p->coded = true;
        n++;
    }
    if (n) return 0;
    return conf_error(c, "model.load_in_8bit", e, "no linear layer is frozen: use lora, or train.freeze");
}
