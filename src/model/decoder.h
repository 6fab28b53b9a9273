/* Decoder language models: what a config.json of Hugging Face, or settings of model, say about one. zoo_decoder.c
 * builds the graph. */
#ifndef MODEL_DECODER_H
#define MODEL_DECODER_H
#include "base/err.h"
#include "base/text.h"
#include "conf/conf.h"
#include "model/graph.h"

/* Traits of a family. block: the class of a layer in transformers. width: default channels of a head; 0: hidden /
 * heads. window: default of sliding_window; 0: none. biases: attention_bias and mlp_bias count. */
struct decoder_family {
    const char *name, *architecture, *block;
    bool gpt2, qkv_bias, qk_norm, tied, asks_window;
    struct { bool attention, mlp; } biases;
    int64_t width, window;
};
extern const struct decoder_family decoder_families[];   /* ends with name NULL */
const struct decoder_family *decoder_family_find(const char *name);

enum decoder_rope { ROPE_DEFAULT, ROPE_LINEAR, ROPE_LLAMA3 };

/* Sizes under config.json's names. context: max_position_embeddings; old: original_max_position_embeddings. */
struct decoder {
    const struct decoder_family *family;
    int64_t vocab_size, hidden_size, intermediate_size, layers, heads, kv_heads, head_dim, context;
    double eps, initializer_range;
    enum decoder_rope rope; double theta, factor, low, high; int64_t old;
    bool tied, qkv_bias, o_bias, mlp_bias;
    enum dtype stored;                                   /* type of the folder's weights; F32 if no file says so */
    bool coded;                                          /* linear layers but the head in 8 bits (bitsandbytes) */
};

/* Reads FOLDER/config.json, or a file. 66: it is missing. 78: not a decoder, a family or setting that is not supported,
 * or sizes that do not fit; the text begins with the file's name. points: length of a sequence (model.input). */
int decoder_read(const char *path, int64_t points, struct decoder *d, struct err *e);
/* The tokens that end a text: eos_token_id of FOLDER/generation_config.json, otherwise of FOLDER/config.json or the
 * file; the caller frees *id. 78. */
int decoder_ends(const char *path, int64_t **id, int *n, struct err *e);
/* The object of FOLDER/config.json or a file, which the caller frees (jansson); NULL: e, as decoder_read. */
struct json_t *decoder_object(const char *path, struct err *e);
bool decoder_is(const struct conf *c);                   /* does the configuration name a decoder? */
/* The decoder that it names. 66, 78. */
int decoder_of(const struct conf *c, struct decoder *d, struct err *e);
/* Its config.json, with weights of this type in transformers' spelling: config.json of model.folder or model.config
 * with changed keys, or a new one. 66, 78. */
int decoder_config(const struct conf *c, const char *dtype, struct text *out, struct err *e);
/* Adds a decoder for sequences of this length; returns its output, and in *loss the loss, -1 if it predicts
 * (zoo_decoder.c). Inputs: tokens, labels, and of gpt2 positions. With run.generate a sample is one token: inputs
 * tokens, positions, slots, attention with caches. */
struct graph_builder;
int decoder_build(struct graph_builder *b, const struct decoder *d, const struct conf *c, int64_t points, int *loss);
int64_t decoder_cached(const struct decoder *d, const struct conf *c);   /* positions of a cache (run.generate) */
const char *decoder_embedding(const struct decoder *d);  /* the node whose weight a tied head shares */
/* The key of model that only decoders take and that is set; NULL: none. */
const char *decoder_setting(const struct conf *c);

#endif
