/* Graph text: the printed form of a graph and its exact inverse. One statement a line; # begins a comment:
 *
 *   graph NAME
 *   input NAME class | input NAME 3x32x32 [TYPE]        labels, of targets, likewise
 *   NAME[, NAME ...] = OPERATOR(TENSOR, ...) attribute=value ... [layer=Conv2d]
 *   tie PARAM PARAM      init PARAM zero|one|uniform SCALE|normal SCALE|constant VALUE
 *   name PARAM NEW       freeze PARAM
 *   container NAME CLASS TENSOR       output TENSOR        loss TENSOR
 *   block NAME(INPUT, ...) PARAMETER=VALUE ... {    statements with {PARAMETER}    }       (blocks.c)
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/suggest.h"
#include "model/text_int.h"

static const char *const init_word[] = {
    [INIT_ZERO] = "zero", [INIT_ONE] = "one", [INIT_UNIFORM] = "uniform", [INIT_NORMAL] = "normal",
    [INIT_CONSTANT] = "constant"};

static const char *const role_word[] = {[ROLE_SAMPLE] = "input", [ROLE_TARGET] = "labels"};
static const enum dtype input_type[] = {F32, BF16, U8, I32, I64};

/* ---- printing ---------------------------------------------------------------------------------------------------- */

/* Prints initial values that differ from the operator's own. */
static void init_print(const struct graph *g, const struct node *n, struct text *out)
{
    struct infer f;
    if (op_infer(n, g->tensor, &f, NULL)) return;
    for (int i = 0; i < n->n_param; i++) {
        const struct param *p = &g->param[n->param[i]];
        if (p->use_node[0] != (int)(n - g->node) || p->use_slot[0] != i) {
            text_add(out, "tie %s.%s %s\n", n->name, f.param[i].suffix, p->name);
            continue;
        }
        size_t len = strlen(n->name);
        bool own = !strncmp(p->name, n->name, len) && p->name[len] == '.' &&
                   !strcmp(p->name + len + 1, f.param[i].suffix);
        if (!own) text_add(out, "name %s.%s %s\n", n->name, f.param[i].suffix, p->name);
        if (p->init != f.param[i].init || p->scale != f.param[i].scale)
            text_add(out, "init %s %s %.17g\n", p->name, init_word[p->init], p->scale);
        if (p->frozen) text_add(out, "freeze %s\n", p->name);
    }
}

/* A single number is a class; other types than F32 are printed. */
static void input_print(const struct graph *g, const struct input *x, struct text *out)
{
    char s[96];
    const struct tensor *t = &g->tensor[x->tensor];
    text_add(out, "%s %s %s", role_word[x->role], t->name, t->shape.n ? shape_text(&t->shape, s) : "class");
    if (t->shape.n && t->type != F32) text_add(out, " %s", dtype_name(t->type));
    text_add(out, "\n");
}

void graph_print(const struct graph *g, struct text *out)
{
    text_add(out, "graph %s\n", g->name);
    for (int i = 0; i < g->n_inputs; i++) input_print(g, &g->input[i], out);
    int c = 0;
    for (int i = 0; i < g->n_nodes; i++) {
        const struct node *n = &g->node[i];
        for (int k = 0; k < n->n_out; k++) text_add(out, "%s%s", k ? ", " : "", g->tensor[n->outs[k]].name);
        text_add(out, " = %s(", n->op->name);
        for (int k = 0; k < n->n_in; k++) text_add(out, "%s%s", k ? ", " : "", g->tensor[n->in[k]].name);
        text_add(out, ")");
        attrs_print(n, out);
        if (n->layer) text_add(out, " layer=%s", n->layer);
        text_add(out, "\n");
        init_print(g, n, out);
        for (; c < g->n_containers && g->container[c].end == i + 1; c++)
            text_add(out, "container %s %s %s\n", g->container[c].name, g->container[c].layer,
                     g->tensor[g->container[c].out].name);
    }
    text_add(out, "output %s\n", g->tensor[g->output].name);
    if (g->loss >= 0) text_add(out, "loss %s\n", g->tensor[g->loss].name);
}

/* ---- parsing ----------------------------------------------------------------------------------------------------- */

static int tensor_named(struct parse *p, const char *name)
{
    struct graph_builder *b = p->b;
    int at = scope_tensor(p, name);
    const char *full = at < 0 ? scope_name(p, name) : NULL;
    if (at >= 0 || !full) return at;
    at = builder_tensor(b, full);
    if (at >= (p->scope ? p->scope->first : 0)) return at;
    if (p->scope) return graph_fail(b, "there is no tensor \"%s\" in this block", name);
    char hint[SUGGEST_TEXT];
    struct suggest near = suggest_begin(name, strlen(name));
    for (int i = 0; i < b->tensor.n; i++) suggest_try(&near, b->tensor.v[i].name, strlen(b->tensor.v[i].name), 0);
    for (int i = 0; i < p->alias.n; i++) suggest_try(&near, p->alias.v[i].name, strlen(p->alias.v[i].name), 0);
    return graph_fail(b, "there is no tensor \"%s\"%s", name, suggest_text(&near, "", hint));
}

/* "layer1.conv.weight" -> node and slot. The builder's parameters are in node order and keep their names, so a tied
 * parameter is still found by its own. */
static struct node *param_named(struct parse *p, const char *said, int *slot)
{
    struct graph_builder *b = p->b;
    const char *name = scope_name(p, said);
    if (!name) return NULL;
    for (int i = 0, at = 0; i < b->node.n; i++)
        for (int k = 0; k < b->node.v[i].n_param; k++, at++)
            if (!strcmp(b->param.v[at].name, name)) { *slot = k; return &b->node.v[i]; }
    char hint[SUGGEST_TEXT];
    struct suggest near = suggest_begin(name, strlen(name));
    for (int i = 0; i < b->param.n; i++) suggest_try(&near, b->param.v[i].name, strlen(b->param.v[i].name), 0);
    graph_fail(b, "there is no parameter \"%s\"%s", name, suggest_text(&near, "", hint));
    return NULL;
}

static int shape_parse(struct graph_builder *b, const char *s, struct shape *out)
{
    const char *at = s;
    char *end;
    out->n = 0;
    for (;; at = end + 1) {
        if (!isdigit((unsigned char)*at) || out->n == MAX_DIMS || strlen(at) > 90) break;
        out->d[out->n] = strtoll(at, &end, 10);
        if (out->d[out->n] < 1 || out->d[out->n] > 1 << 24) break;
        out->n++;
        if (!*end) return 0;
        if (*end != 'x') break;
    }
    return graph_fail(b, "\"%s\" is not a shape such as 3x32x32", s);
}

/* Names are used in messages, JSON and weight files. */
bool name_ok(const char *s)
{
    return *s && !s[strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-")];
}

/* The type that a word means, if inputs may have it; -1: none. */
static int type_parse(const char *word)
{
    for (size_t i = 0; i < sizeof input_type / sizeof *input_type; i++)
        if (!strcmp(dtype_name(input_type[i]), word)) return (int)input_type[i];
    return -1;
}

static void input_parse(struct parse *p, enum role role, char **w, int n)
{
    struct shape s = {0};
    bool is_class = n >= 3 && !strcmp(w[2], "class");
    int type = n == 4 ? type_parse(w[3]) : is_class ? I64 : F32;
    if (n < 3 || n > 4) graph_fail(p->b, "expected: %s NAME SHAPE [TYPE]", w[0]);
    else if (type < 0) graph_fail(p->b, "\"%s\" is not a type: expected F32, BF16, U8, I32 or I64", w[3]);
    else if (is_class && type != I64) graph_fail(p->b, "a class is one number of type I64, not %s", w[3]);
    else if (!name_ok(w[1])) graph_fail(p->b, "\"%s\" is not a name", w[1]);
    else if (is_class || !shape_parse(p->b, w[2], &s)) graph_input(p->b, w[1], role, &s, (enum dtype)type);
}

static void init_parse(struct parse *p, char **w, int n)
{
    int slot, kind = -1;
    char *end = NULL;
    double scale = n == 4 ? strtod(w[3], &end) : 0;
    for (int i = 0; n >= 3 && i < N_INITS; i++) if (!strcmp(w[2], init_word[i])) kind = i;
    bool bad = kind < 0 || n > 4 || (n == 3 && kind >= INIT_UNIFORM) || (end && (end == w[3] || *end)) ||
               !(scale >= 0 && scale <= 1e9);
    if (bad) {
        graph_fail(p->b, "expected: init PARAMETER zero|one|uniform SCALE|normal SCALE|constant VALUE");
        return;
    }
    struct node *node = param_named(p, w[1], &slot);
    if (!node) return;
    if (p->b->param.v[node->param[slot]].kind == PARAM_COUNTER) {
        graph_fail(p->b, "%s is a counter and begins at zero", w[1]);
        return;
    }
    graph_init(p->b, node->name, slot, (enum param_init)kind, scale);
}

/* name PARAMETER NEW: the new name belongs to no layer. */
static void name_parse(struct parse *p, char **w, int n)
{
    int slot;
    if (n != 3 || !name_ok(w[2])) { graph_fail(p->b, "expected: name PARAMETER NAME"); return; }
    struct node *node = param_named(p, w[1], &slot);
    const char *to = node ? scope_name(p, w[2]) : NULL;
    if (to) graph_name(p->b, node->name, slot, to);
}

static void tie_parse(struct parse *p, char **w, int n)
{
    int a, b;
    if (n != 3) { graph_fail(p->b, "expected: tie PARAMETER PARAMETER"); return; }
    struct node *x = param_named(p, w[1], &a), *y = x ? param_named(p, w[2], &b) : NULL;
    if (y) graph_tie(p->b, x->name, a, y->name, b);
}

/* Freezes weights added so far. */
static void freeze_parse(struct parse *p, const char *pattern)
{
    char hint[SUGGEST_TEXT];
    if (p->b->e.code || builder_each(p->b, pattern, param_freeze, 0)) return;
    for (int i = 0; i < p->b->param.n; i++)
        if (!strcmp(p->b->param.v[i].name, pattern)) {
            graph_fail(p->b, "%s is not a weight: only weights are frozen", pattern);
            return;
        }
    graph_fail(p->b, "there is no parameter \"%s\"%s", pattern, builder_nearest(p->b, pattern, hint));
}

static bool is_target(const struct graph_builder *b, int tensor)
{
    for (int i = 0; i < b->input.n; i++)
        if (b->input.v[i].tensor == tensor) return b->input.v[i].role == ROLE_TARGET;
    return false;
}

/* A network that only predicts leaves out losses and scores; its loss determines the output. */
static bool left_out(struct parse *p, const struct graph_node *a)
{
    const struct op_kind *k = op_find(a->op);
    if (!p->b->predicts || !k || !k->rows || !a->n_in) return false;
    if (k->is_loss) p->b->loss_op = k, p->read = a->in[0];
    return true;
}

/* The names of further outputs, as their scope has them. */
static int more_scope(struct parse *p, struct graph_node *a)
{
    for (int i = 0; i < MAX_OUT - 1 && a->more[i]; i++) {
        if (scope_tensor(p, a->more[i]) >= 0) return graph_fail(p->b, "there is already a tensor \"%s\"", a->more[i]);
        if (!(a->more[i] = scope_name(p, a->more[i]))) return -1;
    }
    return 0;
}

/* Adds an operator under its name, or a block under a name or a range of names. */
static void node_add(struct parse *p, const char *name, struct graph_node *a)
{
    int block = op_find(a->op) ? -1 : block_find(p, a->op);
    if (block >= 0 && a->more[0]) {
        graph_fail(p->b, "%s: a block has one output", name);
    } else if (block >= 0) {
        struct block_use u = {.name = name, .args = a->attrs, .layer = a->layer, .block = block, .n_in = a->n_in};
        memcpy(u.in, a->in, sizeof a->in);
        block_expand(p, &u);
    } else if ((a->name = scope_name(p, name)) && !more_scope(p, a)) {
        if (scope_tensor(p, name) >= 0) graph_fail(p->b, "there is already a tensor \"%s\"", name);
        graph_add(p->b, a);
    }
}

/* Parses NAME = OP(A, B) attributes. s is the text after '='; more: further outputs. */
static void node_parse(struct parse *p, const char *name, const char *const *more, char *s)
{
    char *open = strchr(s, '('), *close = open ? strchr(open, ')') : NULL;
    struct graph_node a = {0};
    memcpy(a.more, more, sizeof a.more);
    if (!close || close[1] > ' ') {
        graph_fail(p->b, "expected: NAME = OPERATOR(TENSOR, ...) attribute=value ...");
        return;
    }
    *open = *close = 0;
    a.op = s += strspn(s, " \t");
    s[strcspn(s, " \t")] = 0;
    for (char *save, *t = strtok_r(open + 1, ", \t", &save); t; t = strtok_r(NULL, ", \t", &save)) {
        if (a.n_in == MAX_IN) { graph_fail(p->b, "%s: too many inputs", name); return; }
        if ((a.in[a.n_in++] = tensor_named(p, t)) < 0) return;
    }
    for (int i = 0; i < a.n_in; i++)
        if (is_target(p->b, a.in[i]) && !(i >= 1 && op_find(s) && op_find(s)->rows)) {
            graph_fail(p->b, "%s: only a loss or score reads labels", name);
            return;
        }
    if (left_out(p, &a)) return;
    char *attrs = close + 1;
    a.attrs = attrs;
    char *at = strstr(attrs, " layer=");
    if (at) {                                            /* blank it, keeping the attributes around it */
        size_t len = strcspn(at + 7, " ");
        if (!len) { graph_fail(p->b, "%s: layer= names no layer", name); return; }
        a.layer = arena_printf(p->b->mem, "%.*s", (int)len, at + 7);
        memset(at, ' ', len + 7);
    }
    node_add(p, name, &a);
}

/* Parses statements in a block, which concern its own nodes. */
static void inner_words_parse(struct parse *p, char **w, int n)
{
    if (!strcmp(w[0], "tie")) tie_parse(p, w, n);
    else if (!strcmp(w[0], "init")) init_parse(p, w, n);
    else if (!strcmp(w[0], "name")) name_parse(p, w, n);
    else if (!strcmp(w[0], "output") && n == 2 && p->scope->output < 0) p->scope->output = tensor_named(p, w[1]);
    else graph_fail(p->b, "\"%s\" does not begin a statement of a block, has the wrong number of words, or comes "
                          "twice", w[0]);
}

static void words_parse(struct parse *p, char **w, int n)
{
    if (!strcmp(w[0], "graph") && n == 2) p->b->name = arena_strdup(p->b->mem, w[1]);
    else if (!strcmp(w[0], role_word[ROLE_SAMPLE])) input_parse(p, ROLE_SAMPLE, w, n);
    else if (!strcmp(w[0], role_word[ROLE_TARGET])) input_parse(p, ROLE_TARGET, w, n);
    else if (!strcmp(w[0], "tie")) tie_parse(p, w, n);
    else if (!strcmp(w[0], "init")) init_parse(p, w, n);
    else if (!strcmp(w[0], "name")) name_parse(p, w, n);
    else if (!strcmp(w[0], "freeze") && n == 2) freeze_parse(p, w[1]);
    else if (!strcmp(w[0], "container") && n == 4) {
        int t = tensor_named(p, w[3]);
        if (t >= 0) graph_container(p->b, w[1], w[2], t);
    } else if (!strcmp(w[0], "output") && n == 2 && p->output < 0) p->output = tensor_named(p, w[1]);
    else if (!strcmp(w[0], "loss") && n == 2 && p->loss < 0 && p->read >= 0) return;   /* its operator was left out */
    else if (!strcmp(w[0], "loss") && n == 2 && p->loss < 0) p->loss = tensor_named(p, w[1]);
    else graph_fail(p->b, "\"%s\" does not begin a statement, has the wrong number of words, or comes twice", w[0]);
}

/* "A" or "A, B, C": up to MAX_OUT names, then NULL. */
static int names_parse(struct graph_builder *b, char *list, const char **name)
{
    char *end;
    for (int n = 0;; list = end + 1) {
        end = list + strcspn(list, ",");
        const char after = *end;
        *end = 0;
        list += strspn(list, " \t");
        for (char *last = list + strlen(list); last > list && strchr(" \t", last[-1]);) *--last = 0;
        if (!name_ok(list)) return graph_fail(b, "\"%s\" is not a name", list);
        if (n == MAX_OUT) return graph_fail(b, "more than %d outputs", MAX_OUT);
        name[n++] = list;
        if (!after) return 0;
    }
}

void statement_parse(struct parse *p, char *line)
{
    char *w[6], *save, *eq;
    int n = 0;
    if (!p->scope && strpbrk(line, "{}")) {
        graph_fail(p->b, "braces outside of a block: only blocks compute");
        return;
    }
    if ((eq = strstr(line, " = "))) {
        *eq = 0;
        const char *name[MAX_OUT + 1] = {NULL};
        if (!names_parse(p->b, line, name)) node_parse(p, name[0], name + 1, eq + 3);
        return;
    }
    for (char *t = strtok_r(line, " \t\r", &save); t; t = strtok_r(NULL, " \t\r", &save)) {
        if (n == 5) { graph_fail(p->b, "too many words after \"%s\"", w[0]); return; }
        w[n++] = t;
    }
    if (n && p->scope) inner_words_parse(p, w, n);
    else if (n) words_parse(p, w, n);
}

static void line_parse(struct parse *p, char *line)
{
    char *hash = strchr(line, '#');
    if (hash) *hash = 0;
    size_t end = strlen(line);
    if (end && line[end - 1] == '\r') line[end - 1] = 0;
    for (const char *c = line; *c; c++)
        if (*c != '\t' && (*c < ' ' || *c > '~')) {
            graph_fail(p->b, "a byte is not a printable ASCII character");
            return;
        }
    for (char *c = line; *c; c++) if (*c == '\t') *c = ' ';
    char *first = line + strspn(line, " ");
    if (p->defining) block_take(p, line);
    else if (!strncmp(first, "block", 5) && strchr(" \t", first[5]) && first[5]) block_begin(p, first + 5);
    else statement_parse(p, line);
}

/* Fills in what the text leaves out. The loss is a loss operator at the end. The output is the loss's input, or else
 * the last node's output. */
static void ends_find(struct parse *p, const struct graph_ends *ends)
{
    struct graph_builder *b = p->b;
    if (b->e.code || !b->node.n) return;
    const struct node *last = &b->node.v[b->node.n - 1];
    if (p->loss < 0 && last->op->is_loss) p->loss = last->out;
    if (p->output < 0) p->output = p->read;
    if (p->output < 0) p->output = p->loss >= 0 && p->loss == last->out ? last->in[0] : last->out;
    const char *file = b->file;
    b->file = NULL;                                     /* errors in the configuration's additions are not the text's */
    if (p->loss < 0 && p->read < 0 && ends) p->loss = graph_end(b, ends, p->output);
    b->file = file;
}

struct graph *graph_parse(const char *file, const char *s, size_t n, struct err *e)
{
    return graph_parse_given(&(struct graph_given){.file = file, .s = s, .n = n}, NULL, e);
}

struct graph *graph_parse_given(const struct graph_given *q, struct err *groups, struct err *e)
{
    struct parse p = {.b = graph_begin("graph", q->file), .output = -1, .loss = -1, .read = -1};
    p.b->predicts = q->conf && conf_predicts(q->conf);
    if (memchr(q->s, 0, q->n)) graph_fail(p.b, "this is not text: it has a NUL byte");
    char *copy = mem_alloc(q->n + 1), *next;
    memcpy(copy, q->s, q->n);
    for (char *line = copy; line && !p.b->e.code; line = next) {
        next = strchr(line, '\n');
        if (next) *next++ = 0;
        p.b->line++;
        line_parse(&p, line);
    }
    if (p.defining) graph_fail(p.b, "block %s does not end: } is missing", p.block.v[p.block.n - 1].name);
    if (!p.b->e.code && builder_first(p.b, ROLE_SAMPLE) < 0) graph_fail(p.b, "there is no input");
    ends_find(&p, q->ends);
    free(copy);
    blocks_free(&p);
    if (q->conf) groups_apply(p.b, q->conf, NULL, &p.output, groups);
    return graph_finish(p.b, p.output, p.loss, e);
}
