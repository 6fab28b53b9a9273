/* See model_folder.h. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/half.h"
#include "base/out.h"
#include "ckpt/st_out.h"
#include "data/chat.h"
#include "model/decoder.h"
#include "model/lora.h"
#include "train/model_codes.h"
#include "train/model_folder.h"

/* ---- the type of the weights --------------------------------------------------------------------------- */

static enum dtype type_of(const struct conf *c)
{
    struct decoder d;
    struct err none = {0};
    if (c->model.save_dtype == SAVE_BF16) return BF16;
    if (c->model.save_dtype == SAVE_FP16) return F16;
    if (c->model.save_dtype == SAVE_FP32 || !c->model.folder) return F32;
    return decoder_of(c, &d, &none) ? F32 : d.stored;
}

static const char *type_word(enum dtype t) { return t == BF16 ? "bfloat16" : t == F16 ? "float16" : "float32"; }

/* ---- places -------------------------------------------------------------------------------------------- */

/* Messages name the file that it becomes. */
static int place_in(const struct out_folder *f, const char *name, struct out_place *at, struct err *e)
{
    struct text shown = {0};
    text_add(&shown, "%s/%s", f->shown, f->name);
    int bad = out_place_in(f->fd, shown.s, name, at, e);
    text_free(&shown);
    return bad;
}

/* ---- weights ------------------------------------------------------------------------------------------- */

/* shard: of each tensor */
struct narrowing {
    const struct st_body *from; enum dtype type; int n, *shard, at; int *index; struct st_entry *entry;
};

static enum dtype narrow_type(const struct narrowing *w, int i)
{
    const struct st_entry *t = &w->from->entry[i];
    return t->type == F32 && !model_codes_are_factors(t->name) ? w->type : t->type;
}

static int narrowed(void *ctx, int i, void *buf, const void **at, struct err *e)
{
    const struct narrowing *w = ctx;
    const int k = w->index[i];
    const struct st_entry *t = &w->from->entry[k];
    const int64_t n = shape_count(&t->shape);
    if (narrow_type(w, k) == t->type) return w->from->data(w->from->ctx, k, buf, at, e);
    float *own = mem_alloc((size_t)n * sizeof *own + 1);
    const void *there = own;
    int bad = w->from->data(w->from->ctx, k, own, &there, e);
    const float *x = there;
    for (int64_t j = 0; j < n && !bad; j++) {
        const uint16_t h = w->type == BF16 ? bf16_narrow(x[j]) : f16_narrow(x[j]);
        if (isfinite(x[j]) && w->type == F16 && (h & 0x7c00) == 0x7c00)
            bad = err_set(e, E_DATA, "%s: %g is too large for fp16; use model.save_dtype = \"bf16\"", t->name, x[j]);
        ((uint16_t *)buf)[j] = h;
    }
    free(own);
    return bad;
}

static int64_t narrow_bytes(const struct narrowing *w, int i)
{
    return shape_count(&w->from->entry[i].shape) * (int64_t)dtype_bytes(narrow_type(w, i));
}

/* Tensors in the order of the network fill shards; a tensor is not divided, nor are codes from their factors. Returns
 * their number. */
static int shards_fill(struct narrowing *w, int64_t most)
{
    int64_t bytes = 0;
    int n = 1;
    for (int i = 0; i < w->n; i++) {
        const int64_t more = narrow_bytes(w, i);
        if (bytes && bytes + more > most && !model_codes_follows(w->from->entry[i].name)) n++, bytes = 0;
        bytes += more;
        w->shard[i] = n - 1;
    }
    return n;
}

static void shard_name(int i, int n, char name[64])
{
    if (n == 1) snprintf(name, 64, "model.safetensors");
    else snprintf(name, 64, "model-%05d-of-%05d.safetensors", i + 1, n);
}

static int shard_write(const struct out_folder *f, struct narrowing *w, int i, int n, const atomic_int *stop,
                       struct err *e)
{
    struct out_place at = OUT_NOWHERE;
    struct st_out out = {.open = false};
    char name[64], hash[33];
    int k = 0;
    for (int t = 0; t < w->n; t++) {
        if (w->shard[t] != i) continue;
        w->index[k] = t;
        w->entry[k++] = (struct st_entry){w->from->entry[t].name, narrow_type(w, t), w->from->entry[t].shape};
    }
    const struct st_body body = {k, w->entry, narrowed, w, NULL};
    shard_name(i, n, name);
    int bad = place_in(f, name, &at, e) || st_out_write(&out, &at, stop, &body, e) ||
              st_out_commit(&out, hash, e);
    out_place_free(&at);
    return bad ? -1 : 0;
}

static int index_write(const struct out_folder *f, const struct narrowing *w, int n, struct err *e)
{
    json_t *map = json_object();
    int64_t total = 0;
    char name[64];
    for (int t = 0; t < w->n; t++) {
        shard_name(w->shard[t], n, name);
        json_object_set_new(map, w->from->entry[t].name, json_string(name));
        total += narrow_bytes(w, t);
    }
    json_t *o = json_pack("{s:{s:I},s:o}", "metadata", "total_size", (json_int_t)total, "weight_map", map);
    char *s = json_dumps(o, JSON_INDENT(2) | JSON_SORT_KEYS);
    struct text t = {0};
    struct out_place at = OUT_NOWHERE;
    text_add(&t, "%s\n", s);
    int bad = place_in(f, "model.safetensors.index.json", &at, e) || out_file(&at, &t, false, e);
    out_place_free(&at);
    text_free(&t);
    free(s);
    json_decref(o);
    return bad ? -1 : 0;
}

/* link: they may be a second name of the run's weights. */
static int weights_write(const struct out_folder *f, int link, const struct conf *c, enum dtype type,
                         const struct st_body *from, const atomic_int *stop, struct err *e)
{
    struct narrowing w = {.from = from, .type = type, .n = from->n,
                          .shard = mem_alloc((size_t)from->n * sizeof *w.shard + 1),
                          .index = mem_alloc((size_t)from->n * sizeof *w.index + 1),
                          .entry = mem_alloc((size_t)from->n * sizeof *w.entry + 1)};
    const int n = shards_fill(&w, c->model.max_shard_size);
    int bad = n > 1 ? index_write(f, &w, n, e) : 0;
    const bool plain = n == 1 && type == F32 && link >= 0 && !bad;
    if (plain && !out_link(link, RUN_WEIGHTS, f->fd, "model.safetensors")) goto out;
    for (int i = 0; i < n && !bad; i++) bad = shard_write(f, &w, i, n, stop, e);
out:
    free(w.shard);
    free(w.index);
    free(w.entry);
    return bad;
}

/* ---- the weights of the run, as they are in its directory ------------------------------------------------ */

struct run_weights { struct st *file; struct st_entry *entry; };

static int run_weights_data(void *ctx, int i, void *buf, const void **at, struct err *e)
{
    return st_read(((const struct run_weights *)ctx)->file, i, buf, e);
}

static void run_weights_close(struct run_weights *w)
{
    if (w->file) st_close(w->file);
    free(w->entry);
}

static int run_weights_open(const char *shown, struct run_weights *w, struct st_body *b, struct err *e)
{
    struct text path = {0};
    text_add(&path, "%s/" RUN_WEIGHTS, shown);
    w->file = st_open(path.s, e);
    text_free(&path);
    if (!w->file) return -1;
    w->entry = mem_alloc((size_t)w->file->n * sizeof *w->entry + 1);
    for (int i = 0; i < w->file->n; i++) {
        const struct st_tensor *t = &w->file->t[i];
        w->entry[i] = (struct st_entry){t->name, strcmp(t->dtype, dtype_name(I64)) ? F32 : I64, t->shape};
    }
    *b = (struct st_body){w->file->n, w->entry, run_weights_data, w, w->file->base};
    return 0;
}

/* ---- read at the start --------------------------------------------------------------------------------- */

struct model_file { const char *name; struct text text; };
struct model_files { const struct graph *g; enum dtype type; VEC(struct model_file) of; struct text adapter; };

static struct text *file_add(struct model_files *f, const char *name)
{
    struct model_file *x = vec_push(&f->of);
    *x = (struct model_file){.name = name};
    return &x->text;
}

/* Files of a folder as they are; one that it lacks is left out. */
static int folder_take(struct model_files *f, const char *folder, const char *const *name, struct err *e)
{
    int bad = 0;
    for (; *name && !bad; name++) {
        struct text path = {0};
        text_add(&path, "%s/%s", folder, *name);
        if (!access(path.s, F_OK)) bad = text_read_file(file_add(f, *name), path.s, 1 << 30, e);
        text_free(&path);
    }
    return bad;
}

/* The token that ends a template's answers ends texts, too. */
static int generation_end(struct model_files *f, const struct conf *c, struct err *e)
{
    struct tokenizer *t;
    struct text *file = NULL;
    int64_t id, *end = NULL;
    int n = 0;
    if (!c->data.chat || !tokenizer_known(c)) return 0;
    if (tokenizer_of(c, &t, e)) return -1;
    int bad = chat_end_of(c->data.chat, t, &id, e) ||
              (c->model.folder && decoder_ends(c->model.folder, &end, &n, e));
    tokenizer_close(t);
    for (int i = 0; i < n; i++) if (end[i] == id) id = -1;
    if (!bad && id >= 0) {
        for (int i = 0; i < f->of.n; i++)
            if (!strcmp(f->of.v[i].name, "generation_config.json")) file = &f->of.v[i].text;
        json_t *o = file ? json_loadb(file->s, file->n, 0, NULL) : json_object(), *ids = json_array();
        for (int i = 0; i < n; i++) json_array_append_new(ids, json_integer(end[i]));
        json_array_append_new(ids, json_integer(id));
        json_object_set_new(o, "eos_token_id", ids);
        char *made = json_dumps(o, JSON_INDENT(2));
        json_decref(o);
        if (!file) file = file_add(f, "generation_config.json");
        file->n = 0;
        text_add(file, "%s\n", made);
        free(made);
    }
    free(end);
    return bad ? -1 : 0;
}

/* The tokenizer's files are those of data.tokenizer, otherwise of model.folder. A file tokenizer.json alone gets the
 * class in transformers that takes it as it is. */
static int others_take(struct model_files *f, const struct conf *c, struct err *e)
{
    static const char *const generation[] = {"generation_config.json", NULL};
    static const char *const tokenizer[] = {
        "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja",
        "tokenizer.model", "vocab.json", "merges.txt", "added_tokens.json", NULL};
    const char *from = tokenizer_bytes(c) ? NULL : c->data.tokenizer ? c->data.tokenizer : c->model.folder;
    struct stat st;
    if ((c->model.folder && folder_take(f, c->model.folder, generation, e)) || generation_end(f, c, e)) return -1;
    if (!from || stat(from, &st)) return 0;
    if (S_ISDIR(st.st_mode)) return folder_take(f, from, tokenizer, e);
    text_add(file_add(f, "tokenizer_config.json"), "{\"tokenizer_class\": \"PreTrainedTokenizerFast\"}\n");
    return text_read_file(file_add(f, "tokenizer.json"), from, 1 << 30, e);
}

int model_files_read(const struct conf *c, const struct graph *g, struct model_files **out, struct err *e)
{
    struct model_files *f = mem_alloc(sizeof *f);
    *f = (struct model_files){.g = g, .type = type_of(c)};
    *out = f;
    if (conf_adapts(c) && lora_config(c, g, &f->adapter, e)) return -1;
    if (!lora_leaves_model(c) || !decoder_is(c)) return 0;
    return others_take(f, c, e) || decoder_config(c, type_word(f->type), file_add(f, "config.json"), e) ? -1 : 0;
}

void model_files_free(struct model_files *f)
{
    if (!f) return;
    for (int i = 0; i < f->of.n; i++) text_free(&f->of.v[i].text);
    vec_free(&f->of);
    text_free(&f->adapter);
    free(f);
}

/* ---- written at the end ---------------------------------------------------------------------------------- */

static int text_write(const struct out_folder *f, const char *name, const struct text *t, struct err *e)
{
    struct out_place at = OUT_NOWHERE;
    const int bad = place_in(f, name, &at, e) || out_file(&at, t, false, e);
    out_place_free(&at);
    return bad ? -1 : 0;
}

static int files_write(const struct out_folder *f, const struct model_files *m, struct err *e)
{
    for (int i = 0; i < m->of.n; i++) if (text_write(f, m->of.v[i].name, &m->of.v[i].text, e)) return -1;
    return 0;
}

/* Begins a folder in place of an earlier one. */
static int folder_begin(struct out_folder *f, int dir, const char *shown, const char *name, struct err *e)
{
    const bool there = !faccessat(dir, name, F_OK, AT_SYMLINK_NOFOLLOW);
    *f = (struct out_folder){.dir = -1, .fd = -1};
    return (there && out_folder_remove(dir, shown, name, e)) || out_folder_begin(f, dir, shown, name, e) ? -1 : 0;
}

static int folder_end(struct out_folder *f, int bad, struct err *e)
{
    if (!bad) return out_folder_commit(f, e);
    out_folder_drop(f);
    return -1;
}

int model_folder_write(int dir, const char *shown, const struct model_files *m, const struct conf *c,
                       const struct st_body *merged, const atomic_int *stop, struct err *e)
{
    struct out_folder f;
    const bool codes = c->model.save_dtype == SAVE_INT8;
    struct run_weights own = {NULL, NULL};
    struct model_codes coded = {NULL};
    struct st_body b = {0};
    int bad = folder_begin(&f, dir, shown, MODEL_FOLDER, e) || (!merged && run_weights_open(shown, &own, &b, e));
    const struct st_body *from = merged ? merged : &b;
    const struct st_body body = bad || !codes ? *from : model_codes_body(&coded, from, m->g);
    bad = bad || weights_write(&f, merged || codes ? -1 : dir, c, m->type, &body, stop, e) || files_write(&f, m, e);
    model_codes_free(&coded);
    run_weights_close(&own);
    return folder_end(&f, bad, e);
}

static bool adapter_is_there(const char *shown, const struct model_files *m)
{
    struct text path = {0}, had = {0};
    struct err none = {0};
    text_add(&path, "%s/" ADAPTER_FOLDER "/" ADAPTER_CONFIG, shown);
    const bool same = !access(path.s, F_OK) && !text_read_file(&had, path.s, 1 << 20, &none) && had.n == m->adapter.n &&
                      !memcmp(had.s, m->adapter.s, had.n);
    text_free(&path);
    text_free(&had);
    return same;
}

int adapter_folder_begin(int dir, const char *shown, const struct model_files *m, struct err *e)
{
    struct out_folder f;
    if (!m->adapter.n || adapter_is_there(shown, m)) return 0;
    const int bad = folder_begin(&f, dir, shown, ADAPTER_FOLDER, e) || text_write(&f, ADAPTER_CONFIG, &m->adapter, e);
    return folder_end(&f, bad, e);
}

/* Names as in peft. */
static int adapter_weights_write(const struct out_folder *f, const struct st_body *b, const atomic_int *stop,
                                 struct err *e)
{
    struct arena *mem = arena_new();
    struct out_place at = OUT_NOWHERE;
    struct st_out out = {.open = false};
    struct st_entry *entry = arena_alloc(mem, (size_t)b->n * sizeof *entry + 1);
    char hash[33];
    for (int i = 0; i < b->n; i++) {
        entry[i] = b->entry[i];
        entry[i].name = arena_printf(mem, ADAPTER_PREFIX "%s", b->entry[i].name);
    }
    const struct st_body body = {b->n, entry, b->data, b->ctx, b->base};
    const int bad = place_in(f, ADAPTER_WEIGHTS, &at, e) || st_out_write(&out, &at, stop, &body, e) ||
                    st_out_commit(&out, hash, e);
    out_place_free(&at);
    arena_free(mem);
    return bad ? -1 : 0;
}

int adapter_folder_write(int dir, const char *shown, const struct model_files *m, const atomic_int *stop, struct err *e)
{
    struct out_folder f;
    struct run_weights own = {NULL, NULL};
    struct st_body b;
    int bad = folder_begin(&f, dir, shown, ADAPTER_FOLDER, e) || run_weights_open(shown, &own, &b, e) ||
              adapter_weights_write(&f, &b, stop, e) || text_write(&f, ADAPTER_CONFIG, &m->adapter, e);
    run_weights_close(&own);
    return folder_end(&f, bad, e);
}
