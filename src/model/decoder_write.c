/* A decoder's config.json, as transformers 4 and 5, vLLM and llama.cpp's converter read it. */
#include <jansson.h>
#include <string.h>
#include <sys/stat.h>
#include "base/text.h"
#include "model/decoder.h"

static void set(json_t *o, const char *key, json_t *v) { json_object_set_new(o, key, v); }
static json_t *whole(int64_t n) { return json_integer(n); }

/* transformers 4 reads rope_theta and rope_scaling, 5 reads rope_parameters; llama.cpp reads the old context at the top
 * level. */
static void rope_write(json_t *o, const struct decoder *d)
{
    static const char *const word[] = {[ROPE_DEFAULT] = "default", [ROPE_LINEAR] = "linear", [ROPE_LLAMA3] = "llama3"};
    json_t *r = json_pack("{s:s}", "rope_type", word[d->rope]);
    if (d->rope != ROPE_DEFAULT) set(r, "factor", json_real(d->factor));
    if (d->rope == ROPE_LLAMA3) {
        set(r, "low_freq_factor", json_real(d->low));
        set(r, "high_freq_factor", json_real(d->high));
        set(r, "original_max_position_embeddings", whole(d->old));
        set(o, "original_max_position_embeddings", whole(d->old));
    }
    set(o, "rope_theta", json_real(d->theta));
    set(o, "rope_scaling", d->rope == ROPE_DEFAULT ? json_null() : json_deep_copy(r));
    set(r, "rope_theta", json_real(d->theta));
    set(o, "rope_parameters", r);
}

/* Sizes by the names that every reader knows; llama.cpp's converter wants n_ctx, too. */
static void gpt2_sizes(json_t *o, const struct decoder *d)
{
    set(o, "n_embd", whole(d->hidden_size));
    set(o, "n_layer", whole(d->layers));
    set(o, "n_head", whole(d->heads));
    set(o, "n_positions", whole(d->context));
    set(o, "n_ctx", whole(d->context));
    set(o, "layer_norm_epsilon", json_real(d->eps));
}

static void gpt2_write(json_t *o, const struct decoder *d, double dropout)
{
    static const char *const dropouts[] = {"resid_pdrop", "embd_pdrop", "attn_pdrop"};
    set(o, "n_inner", whole(d->intermediate_size));
    set(o, "activation_function", json_string("gelu_new"));
    for (int i = 0; i < 3; i++) set(o, dropouts[i], json_real(i < 2 ? dropout : 0));
}

static void llama_write(json_t *o, const struct decoder *d)
{
    set(o, "hidden_size", whole(d->hidden_size));
    set(o, "intermediate_size", whole(d->intermediate_size));
    set(o, "num_hidden_layers", whole(d->layers));
    set(o, "num_attention_heads", whole(d->heads));
    set(o, "num_key_value_heads", whole(d->kv_heads));
    set(o, "head_dim", whole(d->head_dim));
    set(o, "max_position_embeddings", whole(d->context));
    set(o, "rms_norm_eps", json_real(d->eps));
    set(o, "hidden_act", json_string("silu"));
    if (!d->family->asks_window) set(o, "mlp_bias", json_boolean(d->mlp_bias));
    if (!d->family->qkv_bias) set(o, "attention_bias", json_boolean(d->o_bias));
    if (d->family->window) set(o, "sliding_window", json_null());
    if (d->family->asks_window) set(o, "use_sliding_window", json_false());
}

/* Of a network that is trained from scratch. */
static json_t *config_new(const struct decoder *d, const struct conf *c)
{
    json_t *o = json_pack("{s:s,s:I,s:f,s:b}", "model_type", d->family->name, "vocab_size", (json_int_t)d->vocab_size,
                          "initializer_range", d->initializer_range, "tie_word_embeddings", d->tied);
    set(o, "bos_token_id", json_null());
    set(o, "eos_token_id", c->data.end_token >= 0 ? whole(c->data.end_token) : json_null());
    if (d->family->gpt2) gpt2_write(o, d, c->model.dropout);
    else llama_write(o, d);
    return o;
}

/* With as few digits as give the same numbers when they are read. The caller frees it. */
static char *shortest(const json_t *o)
{
    for (size_t digits = 6;; digits++) {
        char *s = json_dumps(o, JSON_INDENT(2) | JSON_REAL_PRECISION(digits));
        json_t *back = json_loads(s, 0, NULL);
        const bool same = json_equal(o, back);
        json_decref(back);
        if (same || digits == 17) return s;
        free(s);
    }
}

int decoder_config(const struct conf *c, const char *dtype, struct text *out, struct err *e)
{
    struct decoder d;
    const char *from = c->model.folder ? c->model.folder : c->model.config;
    if (decoder_of(c, &d, e)) return -1;
    json_t *o = from ? decoder_object(from, e) : config_new(&d, c);
    if (!o) return -1;
    set(o, "architectures", json_pack("[s]", d.family->architecture));
    set(o, "dtype", json_string(dtype));
    set(o, "torch_dtype", json_string(dtype));
    json_object_del(o, "quantization_config");
    if (c->model.save_dtype == SAVE_INT8)
        set(o, "quantization_config", json_pack("{s:s,s:b,s:b,s:f}", "quant_method", "bitsandbytes", "load_in_8bit", 1,
                                                "load_in_4bit", 0, "llm_int8_threshold", 6.0));
    if (d.family->gpt2) gpt2_sizes(o, &d);
    else rope_write(o, &d);
    char *s = shortest(o);
    text_add(out, "%s\n", s);
    free(s);
    json_decref(o);
    return 0;
}
