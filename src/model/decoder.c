/* Decoders from config.json and from settings. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/text.h"
#include "model/decoder.h"

const struct decoder_family decoder_families[] = {
    {.name = "llama", .architecture = "LlamaForCausalLM", .block = "LlamaDecoderLayer", .biases = {true, true}},
    {.name = "mistral", .architecture = "MistralForCausalLM", .block = "MistralDecoderLayer", .window = 4096},
    {.name = "qwen2", .architecture = "Qwen2ForCausalLM", .block = "Qwen2DecoderLayer", .qkv_bias = true,
     .asks_window = true},
    {.name = "qwen3", .architecture = "Qwen3ForCausalLM", .block = "Qwen3DecoderLayer", .qk_norm = true, .width = 128,
     .asks_window = true, .biases = {true, false}},
    {.name = "gpt2", .architecture = "GPT2LMHeadModel", .block = "GPT2Block", .gpt2 = true, .qkv_bias = true,
     .tied = true},
    {NULL}};

const struct decoder_family *decoder_family_find(const char *name)
{
    for (const struct decoder_family *f = decoder_families; f->name; f++) if (!strcmp(f->name, name)) return f;
    return NULL;
}

enum { MOST = 1 << 24, CONTEXT_MOST = 1 << 30 };
static const double EPS_LLAMA = 1e-6, EPS_GPT2 = 1e-5, THETA = 10000, RANGE = 0.02;

/* ---- checks of both sources ---------------------------------------------------------------------- */

/* The option that does not fit the others, and in e why; NULL: all fit. */
static const char *misfit(const struct decoder *d, int64_t points, struct err *e)
{
    if (d->heads % d->kv_heads) {
        err_set(e, E_CONF, "num_attention_heads %lld is not a multiple of num_key_value_heads %lld",
                (long long)d->heads, (long long)d->kv_heads);
        return "model.num_key_value_heads";
    }
    if (!d->family->gpt2 && d->head_dim % 2) {
        err_set(e, E_CONF, "head_dim %lld is odd: rotary positions need pairs", (long long)d->head_dim);
        return "model.head_dim";
    }
    if (points <= d->context) return NULL;
    err_set(e, E_CONF, "model.input is %lld, above the context, max_position_embeddings %lld", (long long)points,
            (long long)d->context);
    return "model.input";
}

/* ---- config.json ----------------------------------------------------------------------------------- */

/* An object of the file. bad: the first error is in e. */
struct keys { const char *file; const json_t *at; struct err *e; bool bad; };

static int fail(struct keys *k, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static int fail(struct keys *k, const char *fmt, ...)
{
    char text[300];
    va_list ap;
    if (k->bad) return -1;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    k->bad = true;
    return err_set(k->e, E_CONF, "%s: %s", k->file, text);
}

/* A key's value as JSON, shortened. */
static const char *value_text(const json_t *v, char buf[80])
{
    char *s = v ? json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    snprintf(buf, 80, "%.79s", s ? s : "absent");
    free(s);
    return buf;
}

static int unsupported(struct keys *k, const char *key)
{
    char v[80];
    return fail(k, "%s %s is not supported", key, value_text(json_object_get(k->at, key), v));
}

/* NULL: absent, or null. */
static const json_t *there(const struct keys *k, const char *key)
{
    const json_t *v = json_object_get(k->at, key);
    return json_is_null(v) ? NULL : v;
}

/* fallback 0: the key must be there. */
static int64_t size_key(struct keys *k, const char *key, int64_t fallback, int64_t most)
{
    const json_t *v = there(k, key);
    char text[80];
    if (!v && fallback) return fallback;
    if (!v) fail(k, "%s is missing", key);
    else if (!json_is_integer(v) || json_integer_value(v) < 1 || json_integer_value(v) > most)
        fail(k, "%s %s is no whole number from 1 to %lld", key, value_text(v, text), (long long)most);
    else return json_integer_value(v);
    return 1;
}

static double real_key(struct keys *k, const char *key, double fallback, double least)
{
    const json_t *v = there(k, key);
    char text[80];
    if (!v) return fallback;
    if (json_is_number(v) && json_number_value(v) >= least && isfinite(json_number_value(v)))
        return json_number_value(v);
    fail(k, "%s %s is no number from %g", key, value_text(v, text), least);
    return fallback;
}

static bool flag_key(struct keys *k, const char *key, bool fallback)
{
    const json_t *v = there(k, key);
    char text[80];
    if (v && !json_is_boolean(v)) fail(k, "%s %s is neither true nor false", key, value_text(v, text));
    return v ? json_is_true(v) : fallback;
}

/* The value must be this word, or absent. */
static void word_must(struct keys *k, const char *key, const char *word)
{
    const json_t *v = there(k, key);
    if (v && (!json_is_string(v) || strcmp(json_string_value(v), word))) unsupported(k, key);
}
static void flag_must(struct keys *k, const char *key, bool value)
{
    const json_t *v = there(k, key);
    if (v && json_is_true(v) != value) unsupported(k, key);
}

/* ---- rotary positions --------------------------------------------------------------------------------- */

/* `type` is an older name of rope_type. */
static const char *rope_type(struct keys *k)
{
    const json_t *v = there(k, "rope_type");
    if (!v) v = there(k, "type");
    if (v && !json_is_string(v)) fail(k, "rope_type is no word");
    return v && json_is_string(v) ? json_string_value(v) : "default";
}

/* One of the two forms: an object with the type and its numbers. d has what stands outside: theta, and old or 0. */
static void rope_object(struct keys *k, struct decoder *d)
{
    static const char *const word[] = {[ROPE_DEFAULT] = "default", [ROPE_LINEAR] = "linear", [ROPE_LLAMA3] = "llama3"};
    const char *type = rope_type(k);
    int i = 0;
    while (i <= ROPE_LLAMA3 && strcmp(type, word[i])) i++;
    if (i > ROPE_LLAMA3) {
        fail(k, "rope_type \"%.40s\" is not supported, only default, linear and llama3", type);
        return;
    }
    d->rope = (enum decoder_rope)i;
    if (real_key(k, "partial_rotary_factor", 1, 0) != 1) unsupported(k, "partial_rotary_factor");
    if (d->rope == ROPE_DEFAULT) return;
    if (!there(k, "factor")) fail(k, "rope_type %s without factor", type);
    d->factor = real_key(k, "factor", 1, 1);
    if (d->rope != ROPE_LLAMA3) return;
    const int64_t above = d->old;
    if (!there(k, "low_freq_factor")) fail(k, "low_freq_factor is missing");
    if (!there(k, "high_freq_factor")) fail(k, "high_freq_factor is missing");
    d->low = real_key(k, "low_freq_factor", 1, 1e-3);
    d->high = real_key(k, "high_freq_factor", 4, 1e-3);
    d->old = size_key(k, "original_max_position_embeddings", above ? above : d->context, CONTEXT_MOST);
    if (above && d->old != above)
        fail(k, "original_max_position_embeddings %lld contradicts %lld", (long long)d->old, (long long)above);
    if (d->high <= d->low) fail(k, "high_freq_factor %g is not above low_freq_factor %g", d->high, d->low);
}

static bool rope_same(const struct decoder *a, const struct decoder *b)
{
    return a->theta == b->theta && a->rope == b->rope && a->factor == b->factor && a->low == b->low &&
           a->high == b->high && a->old == b->old;
}

static const char *rope_text(const struct decoder *d, char buf[80])
{
    snprintf(buf, 80, "theta %g, type %d, factor %g", d->theta, (int)d->rope, d->factor);
    return buf;
}

/* transformers 4: rope_theta and rope_scaling; 5: rope_parameters. transformers 5 reads both and takes the new one. */
static void rope_keys(struct keys *k, struct decoder *d)
{
    const json_t *older = there(k, "rope_scaling"), *newer = there(k, "rope_parameters");
    struct decoder old = *d, new;
    char a[80], b[80];
    if (older && !json_is_object(older)) { unsupported(k, "rope_scaling"); return; }
    if (newer && !json_is_object(newer)) { unsupported(k, "rope_parameters"); return; }
    old.theta = real_key(k, "rope_theta", THETA, 1);
    if (there(k, "original_max_position_embeddings"))
        old.old = size_key(k, "original_max_position_embeddings", 0, CONTEXT_MOST);
    new = old;
    struct keys of = {k->file, older, k->e, k->bad};
    if (older) {
        old.theta = real_key(&of, "rope_theta", old.theta, 1);
        rope_object(&of, &old);
        if (there(k, "rope_theta") && old.theta != new.theta)
            fail(&of, "rope_theta %g contradicts rope_theta %g of rope_scaling", new.theta, old.theta);
    }
    of.at = newer;
    if (newer) {
        new.theta = real_key(&of, "rope_theta", old.theta, 1);
        rope_object(&of, &new);
        const double theta = there(k, "rope_theta") ? old.theta : new.theta;
        if (!older) old = new;
        old.theta = theta;
        if (!rope_same(&old, &new))
            fail(&of, "rope_theta and rope_scaling (%s) contradict rope_parameters (%s)", rope_text(&old, a),
                 rope_text(&new, b));
    }
    k->bad |= of.bad;
    *d = newer ? new : old;
}

/* ---- families ------------------------------------------------------------------------------------------ */

/* A size that has two names in transformers' classes (attribute_map). */
static int64_t size_either(struct keys *k, const char *key, const char *other, int64_t most)
{
    const json_t *a = there(k, key), *b = there(k, other);
    if (a && b && !json_equal(a, b)) fail(k, "%s and %s contradict each other", key, other);
    return size_key(k, a || !b ? key : other, 0, most);
}

static void gpt2_keys(struct keys *k, struct decoder *d)
{
    d->vocab_size = size_key(k, "vocab_size", 0, MOST);
    d->hidden_size = size_either(k, "n_embd", "hidden_size", MOST);
    d->layers = size_either(k, "n_layer", "num_hidden_layers", 1 << 12);
    d->heads = d->kv_heads = size_either(k, "n_head", "num_attention_heads", 1 << 16);
    d->intermediate_size = size_key(k, "n_inner", 4 * d->hidden_size, MOST);
    d->context = size_either(k, "n_positions", "max_position_embeddings", CONTEXT_MOST);
    d->eps = real_key(k, "layer_norm_epsilon", EPS_GPT2, 1e-12);
    if (!k->bad && d->hidden_size % d->heads)
        fail(k, "n_embd %lld is not a multiple of n_head %lld", (long long)d->hidden_size, (long long)d->heads);
    d->head_dim = d->hidden_size / d->heads;
    word_must(k, "activation_function", "gelu_new");
    flag_must(k, "scale_attn_weights", true);
    flag_must(k, "scale_attn_by_inverse_layer_idx", false);
    flag_must(k, "reorder_and_upcast_attn", false);
    flag_must(k, "add_cross_attention", false);
    d->o_bias = d->mlp_bias = true;
}

static void window_keys(struct keys *k, const struct decoder *d, int64_t points)
{
    const json_t *v = json_object_get(k->at, "sliding_window");
    if (d->family->asks_window && !flag_key(k, "use_sliding_window", false)) return;
    if (d->family->asks_window) { unsupported(k, "use_sliding_window"); return; }
    if (!d->family->window || json_is_null(v)) return;
    if (v && !json_is_integer(v)) { unsupported(k, "sliding_window"); return; }
    const int64_t window = v ? json_integer_value(v) : d->family->window;
    if (window < points)
        fail(k, "sliding_window %lld, below the %lld positions of a sequence, is not supported", (long long)window,
             (long long)points);
}

static void llama_keys(struct keys *k, struct decoder *d, int64_t points)
{
    d->vocab_size = size_key(k, "vocab_size", 0, MOST);
    d->hidden_size = size_key(k, "hidden_size", 0, MOST);
    d->intermediate_size = size_key(k, "intermediate_size", 0, MOST);
    d->layers = size_key(k, "num_hidden_layers", 0, 1 << 12);
    d->heads = size_key(k, "num_attention_heads", 0, 1 << 16);
    d->kv_heads = size_key(k, "num_key_value_heads", d->heads, 1 << 16);
    d->context = size_key(k, "max_position_embeddings", 0, CONTEXT_MOST);
    d->eps = real_key(k, "rms_norm_eps", EPS_LLAMA, 1e-12);
    const int64_t width = d->family->width ? d->family->width : d->hidden_size / d->heads;
    if (!k->bad && !there(k, "head_dim") && !d->family->width && d->hidden_size % d->heads)
        fail(k, "hidden_size %lld is not a multiple of num_attention_heads %lld", (long long)d->hidden_size,
             (long long)d->heads);
    d->head_dim = size_key(k, "head_dim", width ? width : 1, MOST);
    d->o_bias = d->family->biases.attention && flag_key(k, "attention_bias", false);
    d->qkv_bias = d->o_bias || d->family->qkv_bias;
    d->mlp_bias = d->family->biases.mlp && flag_key(k, "mlp_bias", false);
    word_must(k, "hidden_act", "silu");
    if (there(k, "pretraining_tp") && size_key(k, "pretraining_tp", 1, MOST) > 1) unsupported(k, "pretraining_tp");
    window_keys(k, d, points);
    rope_keys(k, d);
}

/* transformers 4: torch_dtype; 5: dtype. */
static void stored_key(struct keys *k, struct decoder *d)
{
    const char *key = there(k, "dtype") ? "dtype" : "torch_dtype";
    const json_t *v = there(k, key);
    const char *word = json_is_string(v) ? json_string_value(v) : "";
    d->stored = !strcmp(word, "bfloat16") ? BF16 : !strcmp(word, "float16") ? F16 : F32;
    if (v && d->stored == F32 && strcmp(word, "float32")) unsupported(k, key);
}

static void layer_types_must(struct keys *k)
{
    const json_t *list = there(k, "layer_types"), *v;
    size_t i;
    if (!json_is_array(list)) return;
    json_array_foreach(list, i, v)
        if (!json_is_string(v) || strcmp(json_string_value(v), "full_attention")) {
            unsupported(k, "layer_types");
            return;
        }
}

/* bitsandbytes' codes of 8 bits. */
static void quantization_key(struct keys *k, struct decoder *d)
{
    const json_t *q = there(k, "quantization_config");
    const char *method = json_string_value(json_object_get(q, "quant_method"));
    d->coded = json_is_true(json_object_get(q, "load_in_8bit")) && (!method || !strcmp(method, "bitsandbytes"));
    if (q && !d->coded) unsupported(k, "quantization_config");
    const json_t *skips = json_object_get(q, "llm_int8_skip_modules"), *v;
    size_t i;
    json_array_foreach(skips, i, v) {
        const char *name = json_string_value(v);
        if (!name || strcmp(name, "lm_head")) unsupported(k, "quantization_config");
    }
}

static int root_read(struct keys *k, int64_t points, struct decoder *d)
{
    const json_t *type = there(k, "model_type");
    const struct decoder_family *f = json_is_string(type) ? decoder_family_find(json_string_value(type)) : NULL;
    if (!type) return fail(k, "model_type is missing: this is no configuration of a network");
    char v[80];
    if (!f) return fail(k, "model_type %s is not supported, only llama, mistral, qwen2, qwen3 and gpt2",
                        value_text(type, v));
    *d = (struct decoder){.family = f, .theta = THETA, .factor = 1, .low = 1, .high = 4};
    if (f->gpt2) gpt2_keys(k, d);
    else llama_keys(k, d, points);
    d->tied = flag_key(k, "tie_word_embeddings", f->tied);
    d->initializer_range = real_key(k, "initializer_range", RANGE, 0);
    stored_key(k, d);
    quantization_key(k, d);
    layer_types_must(k);
    return k->bad ? -1 : misfit(d, points, k->e) ? err_where(k->e, "%s", k->file) : 0;
}

static bool is_folder(const char *path)
{
    struct stat st;
    return !stat(path, &st) && S_ISDIR(st.st_mode);
}

/* The object in a file; NULL: e. */
static json_t *object_load(const char *file, struct err *e)
{
    struct text t = {0};
    json_error_t why;
    json_t *root = NULL;
    if (!text_read_file(&t, file, 16 << 20, e)) {
        root = json_loadb(t.s ? t.s : "", t.n, 0, &why);
        if (!root) err_set(e, E_CONF, "%s:%d: %s", file, why.line, why.text);
        else if (!json_is_object(root)) {
            err_set(e, E_CONF, "%s: no object of settings", file);
            json_decref(root);
            root = NULL;
        }
    }
    text_free(&t);
    return root;
}

/* A missing path without a dot may be a name in a hub. */
static void fetch_hint(const char *path, struct err *e)
{
    if (!e || e->code != E_NOINPUT || is_folder(path) || *path == '/' || text_ends(path, ".json")) return;
    const struct err why = *e;
    *e = (struct err){0};
    err_set(e, why.code, "%s; nothing is downloaded: fetch the folder first", why.text);
}

struct json_t *decoder_object(const char *path, struct err *e)
{
    struct text name = {0};
    text_add(&name, is_folder(path) ? "%s/config.json" : "%s", path);
    json_t *root = object_load(name.s, e);
    text_free(&name);
    return root;
}

int decoder_read(const char *path, int64_t points, struct decoder *d, struct err *e)
{
    struct text name = {0};
    text_add(&name, is_folder(path) ? "%s/config.json" : "%s", path);
    json_t *root = object_load(name.s, e);
    if (!root) fetch_hint(path, e);
    struct keys k = {.file = name.s, .at = root, .e = e};
    const int bad = root ? root_read(&k, points, d) : -1;
    json_decref(root);
    text_free(&name);
    return bad;
}

/* A number, a list of numbers, or null. */
static int ends_take(const char *file, const json_t *v, int64_t **id, int *n, struct err *e)
{
    const size_t count = json_is_array(v) ? json_array_size(v) : json_is_null(v) || !v ? 0 : 1;
    *id = mem_alloc((count + 1) * sizeof **id);
    for (size_t i = 0; i < count; i++) {
        const json_t *one = json_is_array(v) ? json_array_get(v, i) : v;
        if (!json_is_integer(one)) return err_set(e, E_CONF, "%s: eos_token_id: expected token numbers", file);
        (*id)[(*n)++] = json_integer_value(one);
    }
    return 0;
}

int decoder_ends(const char *path, int64_t **id, int *n, struct err *e)
{
    static const char *const files[] = {"%s/generation_config.json", "%s/config.json"};
    int bad = 0;
    *n = 0;
    *id = NULL;
    for (size_t i = 0; i < 2 && !*id && !bad; i++) {
        struct text name = {0};
        text_add(&name, is_folder(path) ? files[i] : "%s", path);
        json_t *root = access(name.s, F_OK) ? NULL : object_load(name.s, e);
        bad = !root && e->code ? -1 : 0;
        const json_t *v = json_object_get(root, "eos_token_id");
        if (v && !bad) bad = ends_take(name.s, v, id, n, e);
        json_decref(root);
        text_free(&name);
    }
    return bad;
}

/* ---- settings of model ------------------------------------------------------------------------------------ */

const char *decoder_setting(const struct conf *c)
{
    static const char *const keys[] = {
        "model.vocab_size", "model.hidden_size", "model.intermediate_size", "model.num_hidden_layers",
        "model.num_attention_heads", "model.num_key_value_heads", "model.head_dim", "model.rms_norm_eps",
        "model.rope_theta", "model.tie_word_embeddings", "model.max_position_embeddings"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) if (conf_differs(c, keys[i])) return keys[i];
    return NULL;
}

static int decoder_from_conf(const struct conf *c, const struct decoder_family *f, int64_t points, struct decoder *d,
                             struct err *e)
{
    const struct { const char *key; int64_t value; } must[] = {
        {"model.vocab_size", c->model.vocab_size}, {"model.hidden_size", c->model.hidden_size},
        {"model.num_hidden_layers", c->model.num_hidden_layers},
        {"model.num_attention_heads", c->model.num_attention_heads},
        {"model.intermediate_size", f->gpt2 ? 1 : c->model.intermediate_size}};
    for (size_t i = 0; i < sizeof must / sizeof *must; i++)
        if (!must[i].value) return conf_error(c, must[i].key, e, "missing, and %s needs it", f->name);
    const int64_t hidden = c->model.hidden_size, heads = c->model.num_attention_heads;
    if (!c->model.head_dim && !f->width && hidden % heads)
        return conf_error(c, "model.hidden_size", e, "%lld is not a multiple of num_attention_heads %lld",
                          (long long)hidden, (long long)heads);
    *d = (struct decoder){
        .family = f, .vocab_size = c->model.vocab_size, .hidden_size = hidden,
        .intermediate_size = c->model.intermediate_size ? c->model.intermediate_size : 4 * hidden,
        .layers = c->model.num_hidden_layers, .heads = heads,
        .kv_heads = c->model.num_key_value_heads ? c->model.num_key_value_heads : heads,
        .head_dim = c->model.head_dim ? c->model.head_dim : f->width ? f->width : hidden / heads,
        .context = c->model.max_position_embeddings ? c->model.max_position_embeddings : points,
        .eps = c->model.rms_norm_eps > 0 ? c->model.rms_norm_eps : f->gpt2 ? EPS_GPT2 : EPS_LLAMA,
        .initializer_range = RANGE, .theta = c->model.rope_theta > 0 ? c->model.rope_theta : THETA, .factor = 1,
        .low = 1, .high = 4, .qkv_bias = f->qkv_bias, .o_bias = f->gpt2, .mlp_bias = f->gpt2,
        .tied = c->model.tie_word_embeddings ? c->model.tie_word_embeddings == TIE_YES : f->tied};
    if (f->gpt2 && (d->kv_heads != heads || d->head_dim * heads != hidden))
        return conf_error(c, "model.num_key_value_heads", e, "gpt2 has as many as num_attention_heads, and hidden_size "
                          "%lld is head_dim %lld times %lld", (long long)hidden, (long long)d->head_dim,
                          (long long)heads);
    struct err own = {0};
    const char *key = misfit(d, points, &own);
    return key ? conf_error(c, key, e, "%s", own.text) : 0;
}

bool decoder_is(const struct conf *c)
{
    return c->model.folder || c->model.config || (c->model.network && decoder_family_find(c->model.network));
}

/* Where a decoder comes from: a family by name, or a file of Hugging Face. */
int decoder_of(const struct conf *c, struct decoder *d, struct err *e)
{
    const struct decoder_family *f = c->model.network ? decoder_family_find(c->model.network) : NULL;
    const char *path = c->model.folder ? c->model.folder : c->model.config, *extra = decoder_setting(c);
    const int64_t points = c->model.input.n == 1 ? c->model.input.v[0] : 0;
    if (path && extra) return conf_error(c, extra, e, "config.json decides with model.%s",
                                         c->model.folder ? "folder" : "config");
    if (path ? decoder_read(path, points, d, e) : decoder_from_conf(c, f, points, d, e)) return -1;
    if (path && c->run.generate) return decoder_read(path, decoder_cached(d, c), d, e);   /* checks the window */
    if (c->model.input.n == 1) return 0;
    if (!d->context) return conf_error(c, "model.input", e, "missing: a decoder needs the length of a sequence");
    return conf_error(c, "model.input", e, "%s: a decoder needs the length of a sequence, at most its context %lld",
                      c->model.input.n ? "more than one number" : "missing", (long long)d->context);
}
