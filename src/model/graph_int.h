/* The builder's internals. For this folder only. */
#ifndef MODEL_GRAPH_INT_H
#define MODEL_GRAPH_INT_H
#include "base/name_table.h"
#include "base/suggest.h"
#include "model/graph.h"
#include "model/op.h"

/* limits the time for hostile text: parameters are searched linearly */
enum { MAX_NODES = 1 << 13 };

struct graph_builder {
    struct arena *mem;                                   /* passed to the graph */
    const char *name, *file;
    int line;                                            /* of graph text being read */
    VEC(struct input) input;
    VEC(struct node) node;
    VEC(struct tensor) tensor;
    struct name_table named;                             /* tensors by name */
    VEC(struct param) param;
    VEC(struct container) container;
    /* losses, scores and targets are left out, so some tensors may have no reader; loss_op: the loss left out */
    bool predicts; const struct op_kind *loss_op;
    bool coded;                                          /* the folder's weights are in 8 bits */
    struct err e;
};

/* Sets the builder's error once: 65 with FILE:LINE for graph text, otherwise 78. fmt takes two strings. Returns -1. */
int graph_fail(struct graph_builder *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* graph_check.c: the last step of graph_finish. Returns -1 with the builder's error set. */
int graph_check(struct graph_builder *b, const struct graph *g);

/* The tensor of this name; -1: none so far. */
int builder_tensor(const struct graph_builder *b, const char *name);
/* The tensor of the first input with this role; -1: none so far. */
int builder_first(const struct graph_builder *b, enum role role);

/* The configured end of a network: operators; the attributes of the loss. */
struct graph_ends { const char *loss, *attrs; bool labels_class, labels_map; const struct conf_texts *scores; };

/* Adds adapters (model/lora.h), and applies train.freeze and the lists of factors to the weights added so far. head,
 * *output: as of lora_apply. 78 if a pattern matches none. */
int groups_apply(struct graph_builder *b, const struct conf *c, const char *head, int *output, struct err *e);
/* Marks weights for model.load_in_8bit (pass_codes.c). head: the name of that node; NULL: none. 78 if no linear layer
 * is frozen. */
int codes_apply(struct graph_builder *b, const struct conf *c, const char *head, struct err *e);
/* The node that is the head: a decoder's by this name, as training has a loss in its place; with NULL the last linear
 * layer, unless the loss is the head. -1: none. */
int builder_head(const struct graph_builder *b, const char *head);
/* Calls f with every weight that a pattern matches: by its name or leading components, or by the class or operator of
 * its layer; * and ? as in file names. Returns their number. */
int builder_each(struct graph_builder *b, const char *pattern, void (*f)(struct param *p, double value), double value);
void param_freeze(struct param *p, double value);       /* for builder_each */
/* " (did you mean ...?)" with weights and layers, or "" */
const char *builder_nearest(const struct graph_builder *b, const char *pattern, char hint[SUGGEST_TEXT]);

/* Adds "loss", which reads the output and the first target. If there is no target, adds "labels": a class, one at each
 * point of the output, or a vector like the output. Before the loss, adds missing scores under their operators' names,
 * with the same inputs. Returns the loss tensor, -1 on error. */
int graph_loss(struct graph_builder *b, const struct graph_ends *ends, int output);
/* The same, but for a network that only predicts it stores the loss operator and returns -1. */
int graph_end(struct graph_builder *b, const struct graph_ends *ends, int output);

/* Like graph_parse, but a text without a loss gets these ends, and the configuration's groups are applied. NULL: none.
 * 78 without a place if the ends do not fit, 78 with a place in `groups` if the groups do not. */
struct graph_given { const char *file, *s; size_t n; const struct graph_ends *ends; const struct conf *conf; };
struct graph *graph_parse_given(const struct graph_given *q, struct err *groups, struct err *e);
/* Attributes of a node with an operator (attrs.c): from "kernel=3 bias=no", with the operator's defaults, 78; back to
 * the same, without defaults. */
int attrs_parse(struct node *n, const char *s, struct err *e);
void attrs_print(const struct node *n, struct text *out);

#endif
