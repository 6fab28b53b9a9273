/* Groups of parameters by pattern: frozen ones, factors of the learning rate and of weight decay. Call it before
 * graph_finish, which then knows which gradients are needed. */
#include <stdlib.h>
#include <string.h>
#include "base/glob.h"
#include "model/graph_int.h"
#include "model/lora.h"

static bool word_matches(const char *pattern, const char *word)
{
    return word && glob_matches(pattern, word, strlen(word));
}

/* Matches the name, or the node's class (BatchNorm2d) or operator (batch_norm). */
static bool matches(const char *pattern, const struct node *n, const char *name)
{
    return glob_names(pattern, name) || word_matches(pattern, n->layer) || word_matches(pattern, n->op->name);
}

void layer_names_try(struct suggest *s, const char *name)
{
    for (size_t n = strlen(name); n; n--) if (!name[n] || name[n] == '.') suggest_try(s, name, n, 0);
}

int builder_each(struct graph_builder *b, const char *pattern, void (*f)(struct param *p, double value), double value)
{
    int found = 0;
    for (int i = 0, at = 0; i < b->node.n; i++) {
        const struct node *n = &b->node.v[i];
        for (int k = 0; k < n->n_param; k++, at++) {     /* the name before ties */
            struct param *p = &b->param.v[n->param[k]];
            if (p->kind != PARAM_WEIGHT || !matches(pattern, n, b->param.v[at].name)) continue;
            f(p, value);
            found++;
        }
    }
    return found;
}

void param_freeze(struct param *p, double value)
{
    (void)value;
    p->frozen = true;
}

/* An evaluation changes no weight. Under train.frozen_type only those that training freezes have that type. */
static void evaluation_freeze(struct graph_builder *b, const struct conf *c)
{
    if (!c->run.evaluate || conf_adapts(c) || conf_given(c, "train.frozen_type")) return;
    for (int i = 0; i < b->param.n; i++) if (b->param.v[i].kind == PARAM_WEIGHT) param_freeze(&b->param.v[i], 0);
}

static void rate_set(struct param *p, double value) { p->lr_factor = value; }
static void decay_set(struct param *p, double value) { p->decay_factor = value; }

const char *builder_nearest(const struct graph_builder *b, const char *pattern, char hint[SUGGEST_TEXT])
{
    struct suggest near = suggest_begin(pattern, glob_stem(pattern));
    for (int i = 0; i < b->param.n; i++)
        if (b->param.v[i].kind == PARAM_WEIGHT) layer_names_try(&near, b->param.v[i].name);
    for (int i = 0; i < b->node.n; i++)
        if (b->node.v[i].layer && b->node.v[i].n_param)
            suggest_try(&near, b->node.v[i].layer, strlen(b->node.v[i].layer), 0);
    return suggest_text(&near, "", hint);
}

static int unmatched(const struct graph_builder *b, const struct conf *c, const char *key, const char *pattern,
                     struct err *e)
{
    char hint[SUGGEST_TEXT];
    return conf_error(c, key, e, "\"%s\" matches no weight, nor a layer or class that has weights%s", pattern,
                      builder_nearest(b, pattern, hint));
}

/* PATTERN=FACTOR ... */
static int factors_apply(struct graph_builder *b, const struct conf *c, const char *key, const struct conf_texts *list,
                         void (*set)(struct param *p, double value), struct err *e)
{
    for (int i = 0; i < list->n; i++) {
        const char *eq = strrchr(list->v[i], '=');
        char *end = NULL, pattern[256];
        double factor = eq ? strtod(eq + 1, &end) : 0;
        if (!eq || eq == list->v[i] || (size_t)(eq - list->v[i]) >= sizeof pattern || end == eq + 1 || *end ||
            !(factor >= 0 && factor <= 1e6))
            return conf_error(c, key, e, "\"%s\": expected PATTERN=FACTOR, such as \"*.bias=0\"", list->v[i]);
        memcpy(pattern, list->v[i], (size_t)(eq - list->v[i]));
        pattern[eq - list->v[i]] = 0;
        if (!builder_each(b, pattern, set, factor)) return unmatched(b, c, key, pattern, e);
    }
    return 0;
}

int groups_apply(struct graph_builder *b, const struct conf *c, const char *head, int *output, struct err *e)
{
    bool trained = false;
    const int last = builder_head(b, head);
    const char *name = last < 0 ? NULL : b->node.v[last].name;
    if (lora_apply(b, c, head, output, e)) return -1;
    if (b->e.code) return 0;                             /* graph_finish reports the error */
    for (int i = 0; i < c->train.freeze.n; i++)
        if (!builder_each(b, c->train.freeze.v[i], param_freeze, 0))
            return unmatched(b, c, "train.freeze", c->train.freeze.v[i], e);
    if (!c->train.freeze.n) evaluation_freeze(b, c);     /* otherwise the layers that training had in 8 bits */
    if (codes_apply(b, c, name, e)) return -1;
    evaluation_freeze(b, c);
    for (int i = 0; i < b->param.n; i++) trained |= b->param.v[i].kind == PARAM_WEIGHT && !b->param.v[i].frozen;
    if (c->train.freeze.n && !trained && !c->run.evaluate)
        return conf_error(c, "train.freeze", e, "nothing is left to train");
    if (factors_apply(b, c, "train.learning_rate_factors", &c->train.learning_rate_factors, rate_set, e)) return -1;
    return factors_apply(b, c, "train.weight_decay_factors", &c->train.weight_decay_factors, decay_set, e);
}
