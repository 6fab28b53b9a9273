/* Decoders as trees of modules: those of transformers, in the order in which its classes make them. Some hold no
 * weights (activations, dropouts), and the rotary positions hold two buffers of frequencies. */
#include <stdio.h>
#include <string.h>
#include "model/decoder.h"
#include "model/modules.h"

/* item: bytes of a value of a weight; product: in a linear layer. classes: "Llama". at: the modules above. */
struct decoder_tree { struct modules *m; const struct decoder *d; uint64_t item, product; char classes[32], at[96]; };

static int leaf(struct decoder_tree *t, const char *name, const char *layer, uint64_t bytes)
{
    char full[192];
    snprintf(full, sizeof full, "%s%s", t->at, name);
    return modules_add(t->m, full, layer, bytes);
}

/* A class of the family: "LlamaMLP". */
static int of_family(struct decoder_tree *t, const char *name, const char *layer, uint64_t bytes)
{
    char full[64];
    snprintf(full, sizeof full, "%s%s", t->classes, layer);
    return leaf(t, name, full, bytes);
}

static void product(struct decoder_tree *t, const char *name, int64_t in, int64_t out, bool bias)
{
    leaf(t, name, t->d->family->gpt2 ? "Conv1D" : "Linear",
         (uint64_t)in * (uint64_t)out * t->product + (bias ? (uint64_t)out * t->item : 0));
}

static void norm_of(struct decoder_tree *t, const char *name, int64_t width)
{
    if (t->d->family->gpt2) leaf(t, name, "LayerNorm", 2 * (uint64_t)width * t->item);
    else of_family(t, name, "RMSNorm", (uint64_t)width * t->item);
}

static void gpt2_modules(struct decoder_tree *t)
{
    const int64_t width = t->d->hidden_size, inner = t->d->intermediate_size;
    norm_of(t, "ln_1", width);
    of_family(t, "attn", "Attention", 0);
    product(t, "attn.c_attn", width, 3 * width, true);
    product(t, "attn.c_proj", width, width, true);
    leaf(t, "attn.attn_dropout", "Dropout", 0);
    leaf(t, "attn.resid_dropout", "Dropout", 0);
    norm_of(t, "ln_2", width);
    of_family(t, "mlp", "MLP", 0);
    product(t, "mlp.c_fc", width, inner, true);
    product(t, "mlp.c_proj", inner, width, true);
    leaf(t, "mlp.act", "NewGELUActivation", 0);
    leaf(t, "mlp.dropout", "Dropout", 0);
}

static void llama_modules(struct decoder_tree *t)
{
    const struct decoder *d = t->d;
    const int64_t width = d->hidden_size, inner = d->intermediate_size, all = d->heads * d->head_dim,
                  kv = d->kv_heads * d->head_dim;
    of_family(t, "self_attn", "Attention", 0);
    product(t, "self_attn.q_proj", width, all, d->qkv_bias);
    product(t, "self_attn.k_proj", width, kv, d->qkv_bias);
    product(t, "self_attn.v_proj", width, kv, d->qkv_bias);
    product(t, "self_attn.o_proj", all, width, d->o_bias);
    if (d->family->qk_norm) norm_of(t, "self_attn.q_norm", d->head_dim);
    if (d->family->qk_norm) norm_of(t, "self_attn.k_norm", d->head_dim);
    of_family(t, "mlp", "MLP", 0);
    product(t, "mlp.gate_proj", width, inner, d->mlp_bias);
    product(t, "mlp.up_proj", width, inner, d->mlp_bias);
    product(t, "mlp.down_proj", inner, width, d->mlp_bias);
    leaf(t, "mlp.act_fn", "SiLUActivation", 0);
    norm_of(t, "input_layernorm", width);
    norm_of(t, "post_attention_layernorm", width);
}

static void layers_add(struct decoder_tree *t)
{
    const bool gpt2 = t->d->family->gpt2;
    leaf(t, gpt2 ? "transformer.h" : "model.layers", "ModuleList", 0);
    for (int64_t i = 0; i < t->d->layers; i++) {
        snprintf(t->at, sizeof t->at, gpt2 ? "transformer.h.%lld" : "model.layers.%lld", (long long)i);
        leaf(t, "", t->d->family->block, 0);
        strcat(t->at, ".");
        if (gpt2) gpt2_modules(t);
        else llama_modules(t);
    }
    *t->at = '\0';
}

static void decoder_tree_fill(struct decoder_tree *t)
{
    const struct decoder *d = t->d;
    const bool gpt2 = d->family->gpt2;
    const uint64_t table = (uint64_t)d->vocab_size * (uint64_t)d->hidden_size * t->item;
    of_family(t, gpt2 ? "transformer" : "model", "Model", 0);
    leaf(t, decoder_embedding(d), "Embedding", table);
    if (gpt2) leaf(t, "transformer.wpe", "Embedding", (uint64_t)d->context * (uint64_t)d->hidden_size * t->item);
    if (gpt2) leaf(t, "transformer.drop", "Dropout", 0);
    layers_add(t);
    norm_of(t, gpt2 ? "transformer.ln_f" : "model.norm", d->hidden_size);
    if (!gpt2) of_family(t, "model.rotary_emb", "RotaryEmbedding", (uint64_t)(d->head_dim / 2) * 2 * sizeof(float));
    const int head = leaf(t, "lm_head", "Linear", d->tied ? 0 : table);
    if (!d->tied) return;
    t->m->module[head].shares = modules_find(t->m, decoder_embedding(d));
    t->m->module[head].shared = table;
}

struct modules *decoder_modules(const struct conf *c, struct err *e)
{
    struct decoder d;
    if (decoder_of(c, &d, e)) return NULL;
    const enum when want = c->model.load_in_8bit;
    const bool coded = want == WHEN_YES || (want != WHEN_NO && d.coded);
    const size_t item = dtype_bytes(d.stored), n = strlen(d.family->block);
    struct decoder_tree t = {.m = modules_new(d.family->architecture), .d = &d, .item = item,
                             .product = coded ? 1 : item};
    snprintf(t.classes, sizeof t.classes, "%.*s",
             (int)(n - strlen(d.family->gpt2 ? "Block" : "DecoderLayer")), d.family->block);
    decoder_tree_fill(&t);
    modules_finish(t.m);
    return t.m;
}
