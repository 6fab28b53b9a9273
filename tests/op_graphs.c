/* See op_graphs.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "op_graphs.h"

enum { MAX_T = 32 };

static void must(bool good, const char *text)
{
    if (good) return;
    fprintf(stderr, "op_graphs: %s\n", text);
    abort();
}

static struct graph *made(struct graph *g, const struct err *e)
{
    must(g != NULL, e->text);
    return g;
}

static int shape_read(const char *s, struct shape *out)
{
    int used = 0;
    out->n = 0;
    for (;;) {
        char *end;
        out->d[out->n++] = strtol(s + used, &end, 10);
        used = (int)(end - s);
        if (*end != 'x') return used;
        used++;
    }
}

struct graph *op_graph_example(const struct op_kind *op, const char *s)
{
    struct graph_builder *b = graph_begin("example", NULL);
    struct err e = {0};
    struct graph_node a = {op->name, "node"};
    char name[32];
    struct shape shape = {0}, none = {0};
    for (bool more = true; more; s += strspn(s, " +")) {
        enum dtype type = F32;
        if (*s == '=') {
            a.in[a.n_in++] = a.in[s[1] - '0'];
            more = strncmp(s += 2, " +", 2) == 0;
            continue;
        }
        bool vector = strncmp(s, "vector", 6) == 0, is_class = strncmp(s, "class", 5) == 0;
        if (is_class) type = I64, s += 5;
        else if (vector) s += 6;
        else s += shape_read(s, &shape);
        if (strncmp(s, " I64", 4) == 0) type = I64, s += 4;
        else if (strncmp(s, " I32", 4) == 0) type = I32, s += 4;
        else if (strncmp(s, " U8", 3) == 0) type = U8, s += 3;
        snprintf(name, sizeof name, "in%d", a.n_in);
        enum role role = op->rows && a.n_in ? ROLE_TARGET : ROLE_SAMPLE;
        a.in[a.n_in++] = graph_input(b, name, role, is_class ? &none : &shape, type);
        more = strncmp(s, " +", 2) == 0;
    }
    a.attrs = s;
    int out = graph_add(b, &a);
    return made(graph_finish(b, op->rows ? a.in[0] : out, op->is_loss ? out : -1, &e), &e);
}

int op_graph_first(const struct node *n, int k)
{
    int i = 0;
    while (n->in[i] != n->in[k]) i++;
    return i;
}

void op_graph_twice_add(const struct op_call *c, int k, size_t n)
{
    const int first = op_graph_first(c->node, k);
    if (first == k) return;
    for (size_t i = 0; i < n; i++) ((float *)c->gin[first])[i] += ((float *)c->gin[k])[i];
    free(c->gin[k]);
}

void op_graph_integers(const struct graph *g, int tensor, int step, size_t n, void *x)
{
    int64_t below = graph_input_range(g, tensor);
    if (!below) below = shape_count(&g->tensor[g->output].shape);
    for (size_t i = 0; i < n; i++) {
        int64_t v = (int64_t)((size_t)step * i + 1) % below;
        if (g->tensor[tensor].type == U8) ((uint8_t *)x)[i] = (uint8_t)v;
        else if (g->tensor[tensor].type == I32) ((int32_t *)x)[i] = (int32_t)v;
        else ((int64_t *)x)[i] = v;
    }
}

struct graph *op_graph_chain(const char *s)
{
    struct graph_builder *b = graph_begin("chain", NULL);
    struct err e = {0};
    struct shape shape;
    int tensor[MAX_T], n = 1, unread = -1;
    bool read[MAX_T] = {false};
    s += shape_read(s, &shape);
    tensor[0] = graph_input(b, "input", ROLE_SAMPLE, &shape, F32);
    while (*s) {
        char op[32], attrs[200] = "", name[32], item[64];
        int used, in[2] = {tensor[n - 1], -1};
        s += strspn(s, "; ");
        must(sscanf(s, "%31[a-z_0-9]%n", op, &used) == 1, s);
        for (s += used; *s && *s != ';'; s += used) {
            if (*s == ' ') { used = 1; continue; }
            must(sscanf(s, "%63[^ ;]%n", item, &used) == 1, s);
            int k = atoi(item + 1);
            if (item[0] == '@') in[1] = tensor[k], read[k] = true;
            else if (item[0] == '^') in[0] = tensor[k];
            else snprintf(attrs + strlen(attrs), sizeof attrs - strlen(attrs), "%s%s", *attrs ? " " : "", item);
        }
        snprintf(name, sizeof name, "n%d", n);
        for (int k = 0; k < n; k++) read[k] |= tensor[k] == in[0];
        tensor[n] = graph_add(b, &(struct graph_node){op, name, NULL, attrs, in[1] < 0 ? 1 : 2, {in[0], in[1]}});
        n++;
    }
    for (int k = 0; k < n - 1; k++) if (!read[k]) unread = tensor[k];
    if (unread >= 0) {                                   /* every tensor needs a reader */
        int flat0 = graph_add1(b, "flatten", "flat0", NULL, "", unread);
        int flat1 = graph_add1(b, "flatten", "flat1", NULL, "", tensor[n - 1]);
        tensor[n++] = graph_add2(b, "concat", "all", flat0, flat1);
    }
    return made(graph_finish(b, tensor[n - 1], -1, &e), &e);
}

const char *const op_graph_convs[OP_GRAPH_CONVS] = {
    "3x19x19; conv channels=32 kernel=7 stride=2 padding=3 bias=no",
    "64x8x8; conv channels=64 kernel=1 bias=no; add ^0 @1",
    "32x7x7; conv channels=32 kernel=3 padding=1 bias=no; add ^0 @1",
    "32x4x4; conv channels=32 kernel=3 padding=1; add ^0 @1",
    "32x7x7; conv channels=64 kernel=3 stride=2 padding=1 bias=no; relu ^0; conv channels=64 kernel=1 stride=2 "
    "bias=no; add @1",
    "64x8x8; conv channels=128 kernel=1 stride=2 bias=no; relu ^0",
    "64x1x1; conv channels=64 kernel=3 padding=1 bias=no; add ^0 @1",
    "16x8x9; conv channels=32 kernel=3 padding=2 dilation=2 bias=no; relu ^0",
    "32x8x8; conv channels=16 kernel=5 padding=2; relu ^0",
    "32x6x6; conv channels=32 kernel=3 padding=1 groups=2; add ^0 @1",
    "32x6x6; conv channels=32 kernel=3 padding=1 groups=32 bias=no; add ^0 @1",
    "24x6x6; conv channels=40 kernel=3 padding=1; relu ^0",
    "16x5x5; relu; conv channels=24 kernel=3 padding=1; relu; conv channels=32 kernel=3 padding=1; relu",
    "6x9x7; conv channels=10 kernel=3x2 stride=2x1 padding=1x0; relu ^0",
    "16x20; conv channels=32 kernel=5 stride=2 padding=2 bias=no; relu ^0",
    "16x3x4x4; conv channels=32 kernel=3 padding=1 bias=no; relu ^0",
    "3x4x4x4; conv channels=16 kernel=3 padding=1; relu ^0",
};

const char *const op_graph_norms[OP_GRAPH_NORMS] = {
    "32x6x6; conv channels=32 kernel=1; batch_norm; relu",
    "32x6x6; conv channels=32 kernel=1; batch_norm",
    "32x9x9; conv channels=32 kernel=1; batch_norm; add @0; relu; add ^0 @1",
    "64x4x4; conv channels=64 kernel=3 padding=1; batch_norm eps=0.001; relu; conv channels=64 kernel=1; batch_norm; "
    "add @0; relu; relu ^0",
    "10x6x6; conv channels=12 kernel=3 padding=1; batch_norm; relu; conv channels=10 kernel=1; batch_norm; add @0; "
    "relu",
    "16x13x11; conv channels=16 kernel=1; batch_norm; relu; max_pool kernel=3 stride=2 padding=1; relu; "
    "global_avg_pool; flatten; linear features=5",
    "16x3x5x7; conv channels=16 kernel=1; batch_norm; relu; global_avg_pool; flatten; linear features=3",
    "32x5x5; conv channels=32 kernel=1; batch_norm; flatten; linear features=7; relu; dropout p=0.5",
    "20; linear features=32; batch_norm; relu; linear features=4",
};
