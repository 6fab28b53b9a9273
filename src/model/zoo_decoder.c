/* Decoder language models: LLaMA, Mistral, Qwen 2 and 3, and GPT-2, with the names of Hugging Face's transformers, so
 * that weights map without a table. Tokens are the points of a sequence with channels first. Sizes and traits come from
 * a config.json or from settings (model/decoder.h). */
#include <math.h>
#include <stdio.h>
#include "model/decoder.h"
#include "model/graph_int.h"
#include "model/zoo.h"

/* A decoder being built. positions: the input with the place of each token in its document; -1: none. slots: the input
 * with the place of each token's sequence in caches, if it generates; -1: it does not. */
struct build { const struct decoder *d; const struct conf *c; double dropout; int positions, slots; };

static int linear(const struct zoo_at *z, int in, const char *name, const struct decoder *d, int64_t features,
                  bool bias)
{
    int t = zoo_add(z, in, "linear", name, "features=%lld points=yes bias=%s%s", (long long)features,
                    bias ? "yes" : "no", d->family->gpt2 ? " stored=in_out" : "");
    zoo_init(z, name, 0, INIT_NORMAL, d->initializer_range);
    if (bias) zoo_init(z, name, 1, INIT_ZERO, 0);
    return t;
}

static int norm(const struct zoo_at *z, int in, const char *name, const struct decoder *d)
{
    return zoo_add(z, in, d->family->gpt2 ? "layer_norm" : "rms_norm", name, "eps=%.17g", d->eps);
}

static int dropout(const struct zoo_at *z, int in, const char *name, double p)
{
    return p > 0 ? zoo_add(z, in, "dropout", name, "p=%.17g", p) : in;
}

static int node_add(const struct zoo_at *z, struct graph_node n, const char *name)
{
    char full[256];
    snprintf(full, sizeof full, "%s%s", z->prefix, name);
    n.name = full;
    return graph_add(z->b, &n);
}

static int rotary(const struct zoo_at *z, int in, const char *name, const struct build *m, int64_t heads)
{
    const struct decoder *d = m->d;
    struct text attrs = {0};
    text_add(&attrs, "heads=%lld theta=%.17g", (long long)heads, d->theta);
    if (d->rope == ROPE_LINEAR) text_add(&attrs, " type=linear factor=%.17g", d->factor);
    if (d->rope == ROPE_LLAMA3)
        text_add(&attrs, " type=llama3 factor=%.17g low=%.17g high=%.17g old=%lld", d->factor, d->low, d->high,
                 (long long)d->old);
    const struct graph_node n = {.op = "rotary", .attrs = attrs.s, .n_in = 1 + (m->positions >= 0),
                                 .in = {in, m->positions}};
    const int t = node_add(z, n, name);
    text_free(&attrs);
    return t;
}

/* Queries or keys: a product, with Qwen 3 a norm of each head, and the rotation. */
static int turned(const struct zoo_at *z, int in, const char *which, const struct build *m, int64_t heads)
{
    const struct decoder *d = m->d;
    char name[64];
    snprintf(name, sizeof name, "self_attn.%s_proj", which);
    int t = linear(z, in, name, d, heads * d->head_dim, d->qkv_bias);
    snprintf(name, sizeof name, "self_attn.%s_norm", which);
    if (d->family->qk_norm)
        t = zoo_add(z, t, "rms_norm", name, "eps=%.17g heads=%lld", d->eps, (long long)heads);
    snprintf(name, sizeof name, "self_attn.%s_rotary", which);
    return rotary(z, t, name, m, heads);
}

/* Attention of queries, keys and values; with a cache if the network generates. */
static int attend(const struct zoo_at *z, const struct build *m, const int qkv[3], const char *name)
{
    const struct decoder *d = m->d;
    struct text attrs = {0};
    struct graph_node n = {.op = "attention", .n_in = 3, .in = {qkv[0], qkv[1], qkv[2]}};
    if (m->positions >= 0) n.in[n.n_in++] = m->positions;
    text_add(&attrs, "heads=%lld", (long long)d->heads);
    if (d->kv_heads != d->heads) text_add(&attrs, " kv_heads=%lld", (long long)d->kv_heads);
    if (m->slots >= 0) {
        n.op = "cached_attention";
        n.in[n.n_in++] = m->slots;
        text_add(&attrs, " context=%lld slots=%lld", (long long)decoder_cached(d, m->c),
                 (long long)m->c->generate.slots);
    } else text_add(&attrs, " causal=yes");
    n.attrs = attrs.s;
    const int t = node_add(z, n, name);
    text_free(&attrs);
    return t;
}

static int attention(const struct zoo_at *z, int in, const struct build *m)
{
    const struct decoder *d = m->d;
    const int q = turned(z, in, "q", m, d->heads), k = turned(z, in, "k", m, d->kv_heads),
              v = linear(z, in, "self_attn.v_proj", d, d->kv_heads * d->head_dim, d->qkv_bias);
    return linear(z, attend(z, m, (int[]){q, k, v}, "self_attn"), "self_attn.o_proj", d, d->hidden_size, d->o_bias);
}

/* down(silu(gate) up) */
static int mlp(const struct zoo_at *z, int in, const struct decoder *d)
{
    int gate = zoo_add(z, linear(z, in, "mlp.gate_proj", d, d->intermediate_size, d->mlp_bias), "silu", "mlp.act_fn",
                       " ");
    int t = zoo_add2(z, "multiply", "mlp.product", gate,
                     linear(z, in, "mlp.up_proj", d, d->intermediate_size, d->mlp_bias));
    return linear(z, t, "mlp.down_proj", d, d->hidden_size, d->mlp_bias);
}

static int llama_layer(const struct zoo_at *z, int in, const struct build *m)
{
    int t = attention(z, norm(z, in, "input_layernorm", m->d), m);
    t = zoo_add2(z, "add", "add.1", in, dropout(z, t, "self_attn.dropout", m->dropout));
    int inner = mlp(z, norm(z, t, "post_attention_layernorm", m->d), m->d);
    return zoo_add2(z, "add", "add.2", t, dropout(z, inner, "mlp.dropout", m->dropout));
}

/* One product gives queries, keys and values. With positions they are parts of their own. */
static int gpt2_attention(const struct zoo_at *z, int in, const struct build *m)
{
    const long long heads = m->d->heads, width = m->d->hidden_size;
    char attrs[80], names[3][256];
    int t = linear(z, in, "attn.c_attn", m->d, 3 * width, true);
    if (m->positions < 0) return zoo_add(z, t, "attention", "attn", "heads=%lld causal=yes", heads);
    static const char *const part[] = {"q", "k", "v"};
    for (int i = 0; i < 3; i++) snprintf(names[i], sizeof names[i], "%sattn.%s", z->prefix, part[i]);
    snprintf(attrs, sizeof attrs, "sizes=%lldx%lldx%lld", width, width, width);
    const int q = graph_add(z->b, &(struct graph_node){"split", names[0], NULL, attrs, 1, {t}, {names[1], names[2]}});
    return attend(z, m, (int[]){q, q + 1, q + 2}, "attn");
}

/* The last products of both branches begin smaller, as in GPT-2. */
static int gpt2_layer(const struct zoo_at *z, int in, const struct build *m)
{
    const struct decoder *d = m->d;
    const double scale = d->initializer_range / sqrt(2 * (double)d->layers);
    int t = gpt2_attention(z, norm(z, in, "ln_1", d), m);
    t = linear(z, t, "attn.c_proj", d, d->hidden_size, true);
    zoo_init(z, "attn.c_proj", 0, INIT_NORMAL, scale);
    t = zoo_add2(z, "add", "add.1", in, dropout(z, t, "attn.resid_dropout", m->dropout));
    int inner = linear(z, norm(z, t, "ln_2", d), "mlp.c_fc", d, d->intermediate_size, true);
    inner = zoo_add(z, inner, "gelu", "mlp.act", "form=tanh");
    inner = linear(z, inner, "mlp.c_proj", d, d->hidden_size, true);
    zoo_init(z, "mlp.c_proj", 0, INIT_NORMAL, scale);
    return zoo_add2(z, "add", "add.2", t, dropout(z, inner, "mlp.dropout", m->dropout));
}

static int embedding(const struct zoo_at *z, int in, const char *name, int64_t count, const struct decoder *d)
{
    int t = zoo_add(z, in, "embedding", name, "count=%lld features=%lld", (long long)count, (long long)d->hidden_size);
    zoo_init(z, name, 0, INIT_NORMAL, d->initializer_range);
    return t;
}

/* The network up to its last norm. */
static int body(struct zoo_at *z, const struct build *m, int tokens, int places)
{
    const struct decoder *d = m->d;
    const bool gpt2 = d->family->gpt2;
    int t = embedding(z, tokens, decoder_embedding(d), d->vocab_size, d);
    if (gpt2) t = zoo_add2(z, "add", "transformer.add", t, embedding(z, places, "transformer.wpe", d->context, d));
    t = dropout(z, t, gpt2 ? "transformer.drop" : "model.drop", m->dropout);
    for (int64_t i = 0; i < d->layers; i++) {
        zoo_under(z, gpt2 ? "transformer.h.%lld." : "model.layers.%lld.", (long long)i);
        t = gpt2 ? gpt2_layer(z, t, m) : llama_layer(z, t, m);
        zoo_container(z, d->family->block, t);
    }
    zoo_under(z, "%s", "");
    return norm(z, t, gpt2 ? "transformer.ln_f" : "model.norm", d);
}

int64_t decoder_cached(const struct decoder *d, const struct conf *c)
{
    return d->context < c->generate.context ? d->context : c->generate.context;
}

const char *decoder_embedding(const struct decoder *d)
{
    return d->family->gpt2 ? "transformer.wte" : "model.embed_tokens";
}

int decoder_build(struct graph_builder *b, const struct decoder *d, const struct conf *c, int64_t points, int *loss)
{
    struct zoo_at z = {b, ""};
    char attrs[80];
    const struct shape s = {1, {points}};
    const bool cached = c->run.generate, apart = c->data.documents == DOCUMENTS_APART ||
                                                 c->data.packing == PACKING_FIRST_FIT || cached;
    const int tokens = graph_input(b, "tokens", ROLE_SAMPLE, &s, I64),
              places = d->family->gpt2 || apart ? graph_input(b, "positions", ROLE_SAMPLE, &s, I32) : -1,
              slots = cached ? graph_input(b, "slots", ROLE_SAMPLE, &s, I32) : -1;
    const struct build m = {d, c, cached ? 0 : c->model.dropout, apart ? places : -1, slots};
    const int out = body(&z, &m, tokens, places);
    int head = out;
    *loss = -1;
    if (b->predicts) {
        head = zoo_add(&z, out, "linear", "lm_head", "features=%lld points=yes bias=no", (long long)d->vocab_size);
        b->loss_op = op_find("token_loss");
    } else {
        const int labels = graph_input(b, "labels", ROLE_TARGET, &s, I64);
        snprintf(attrs, sizeof attrs, "classes=%lld", (long long)d->vocab_size);
        *loss = graph_add(b, &(struct graph_node){"token_loss", "lm_head", NULL, attrs, 2, {out, labels}});
    }
    if (d->tied) graph_tie(b, "lm_head", 0, decoder_embedding(d), 0);
    else zoo_init(&z, "lm_head", 0, INIT_NORMAL, d->initializer_range);
    return head;
}
