/* Low-rank adapters beside layers (Hu and others 2021, arXiv:2106.09685), in the form of Hugging Face's peft:
 * y = W x + scale B (A x), where W is frozen, A begins uniform in +-1 / sqrt(inputs) and B zero. scale is alpha / rank,
 * or alpha / sqrt(rank) (arXiv:2312.03732). lora.c reads and writes the settings, pass_lora.c changes the graph.
 * Base weights: W and all other parameters but A and B. */
#ifndef MODEL_LORA_H
#define MODEL_LORA_H
#include "base/err.h"
#include "base/text.h"
#include "conf/conf.h"
#include "model/graph.h"

#define ADAPTER_CONFIG "adapter_config.json"
#define ADAPTER_WEIGHTS "adapter_model.safetensors"
#define ADAPTER_PREFIX "base_model.model."               /* of peft's names of tensors */

struct lora { int64_t rank; double alpha, dropout; bool rslora; int n_targets; const char *const *target; };

/* Settings of section lora; what is not set comes from ADAPTER_CONFIG of lora.init_from, if it has one. Texts live as
 * long as the configuration and mem. 65, 66, 78: settings of peft that are not supported, or contradict those that are
 * set; the text names the key. */
int lora_of(const struct conf *c, struct arena *mem, struct lora *l, struct err *e);
double lora_scale(const struct lora *l);
/* ADAPTER_CONFIG in lora.init_from, or in the folder adapter of a run there. False: neither has one. */
bool lora_config_find(const struct conf *c, struct text *path);
bool lora_leaves_model(const struct conf *c);            /* does training leave the folder model in its directory? */

/* The adapter beside a layer of the graph: indices in graph->param of A [rank][inputs] and B [outputs][rank], with
 * further dimensions of a convolution's window. */
struct lora_pair { int a, b; double scale; };
bool lora_beside(const struct graph *g, int node, struct lora_pair *p);   /* false: the layer has none */
/* The adapter that changes a weight of one layer. False: it has none. */
bool lora_pair_find(const struct graph *g, int param, struct lora_pair *p);
/* The text of ADAPTER_CONFIG for this graph. 78. */
int lora_config(const struct conf *c, const struct graph *g, struct text *out, struct err *e);

/* Adds adapters to the graph that is built so far: beside a node NODE the nodes NODE.lora_dropout (if any),
 * NODE.lora_A, NODE.lora_scale (unless it is 1), NODE.lora_B and their sum NODE.lora, which all readers of NODE then
 * read. Freezes and marks (param.base) all other parameters. head: a layer that never gets one; NULL: none. *output:
 * the network's output, and then its sum. 78 with the target that names no layer. */
struct graph_builder;
int lora_apply(struct graph_builder *b, const struct conf *c, const char *head, int *output, struct err *e);

#endif
