/* Graph text: an error is one line with a place. An accepted text prints as a text that parses to the same text, has a
 * summary, and, if it is small, runs forward and backward without touching memory that is not its own. */
#include <stdlib.h>
#include <string.h>
#include "../graph_eval.h"
#include "depth.h"
#include "round_trip.h"

static void must(bool right) { if (!right) abort(); }

static void error_check(const struct err *e)
{
    must(e->code == E_DATA && !strncmp(e->text, "fuzz.graph:", 11));
    for (const char *s = e->text; *s; s++) must((unsigned char)*s >= 0x20);
}

static void summaries(const struct graph *g)
{
    struct text t = {0};
    graph_summary(g, NULL, 80, &t);
    char *json = graph_summary_json(g, NULL);
    must(t.n > 0 && json != NULL);
    free(json);
    text_free(&t);
}

static bool is_small(const struct graph *g)
{
    int64_t elements = 0;
    uint64_t flops = 0;
    for (int i = 0; i < g->n_tensors; i++) elements += shape_count(&g->tensor[i].shape);
    for (int i = 0; i < g->n_params; i++) elements += shape_count(&g->param[i].shape);
    for (int i = 0; i < g->n_nodes; i++) {
        const struct node *n = &g->node[i];
        flops += graph_flops(g, i);
        for (int k = 0; n->op->attr && n->op->attr[k].name; k++)
            for (int d = 0; d < n->attr[k].n; d++)
                if (!strcmp(n->op->attr[k].name, "kernel") && n->attr[k].i[d] > 5) return false;
    }
    return elements < 10000 && flops < 500000;
}

static void evaluate(const struct graph *g)
{
    struct graph_eval *v = graph_eval_new(g, 2, true);
    graph_eval_init(v, 1);
    graph_eval_forward(v);
    graph_eval_backward(v);
    graph_eval_free(v);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err e = {0};
    struct graph *g = graph_parse("fuzz.graph", (const char *)data, size, &e);
    if (!g) { error_check(&e); return 0; }
    if (goes_deep()) {
        round_trip(g);
        summaries(g);
        if (is_small(g)) evaluate(g);
    }
    graph_free(g);
    return 0;
}
