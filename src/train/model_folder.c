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
struct narrowing { struct st *from; enum dtype type; int n, *shard, at; int *index; struct st_entry *entry; };

static int narrowed(void *ctx, int i, void *buf, const void **at, struct err *e)
{
    const struct narrowing *w = ctx;
    const int k = w->index[i];
    const struct st_tensor *t = &w->from->t[k];
    const uint64_t n = (t->end - t->begin) / sizeof(float);
    if (w->type == F32) return st_read(w->from, k, buf, e);
    float *x = mem_alloc(t->end - t->begin + 1);
    int bad = st_read(w->from, k, x, e);
    for (uint64_t j = 0; j < n && !bad; j++) {
        const uint16_t h = w->type == BF16 ? bf16_narrow(x[j]) : f16_narrow(x[j]);
        if (isfinite(x[j]) && w->type == F16 && (h & 0x7c00) == 0x7c00)
            bad = err_set(e, E_DATA, "%s: %g is too large for fp16; use model.save_dtype = \"bf16\"", t->name, x[j]);
        ((uint16_t *)buf)[j] = h;
    }
    free(x);
    return bad;
}

/* Tensors in the order of the network fill shards; a tensor is not divided. Returns their number. */
static int shards_fill(struct narrowing *w, int64_t most)
{
    int64_t bytes = 0;
    int n = 1;
    for (int i = 0; i < w->n; i++) {
        const int64_t more = (int64_t)(shape_count(&w->from->t[i].shape) * (int64_t)dtype_bytes(w->type));
        if (bytes && bytes + more > most) n++, bytes = 0;
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
        w->entry[k++] = (struct st_entry){w->from->t[t].name, w->type, w->from->t[t].shape};
    }
    const struct st_body body = {k, w->entry, narrowed, w};
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
        json_object_set_new(map, w->from->t[t].name, json_string(name));
        total += shape_count(&w->from->t[t].shape) * (int64_t)dtype_bytes(w->type);
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

static int weights_write(const struct out_folder *f, int dir, const char *shown, const struct conf *c, enum dtype type,
                         const atomic_int *stop, struct err *e)
{
    struct text path = {0};
    text_add(&path, "%s/weights.safetensors", shown);
    struct st *from = st_open(path.s, e);
    text_free(&path);
    if (!from) return -1;
    struct narrowing w = {.from = from, .type = type, .n = from->n,
                          .shard = mem_alloc((size_t)from->n * sizeof *w.shard + 1),
                          .index = mem_alloc((size_t)from->n * sizeof *w.index + 1),
                          .entry = mem_alloc((size_t)from->n * sizeof *w.entry + 1)};
    const int n = shards_fill(&w, c->model.max_shard_size);
    int bad = n > 1 ? index_write(f, &w, n, e) : 0;
    if (n == 1 && type == F32 && !bad && !out_link(dir, "weights.safetensors", f->fd, "model.safetensors")) goto out;
    for (int i = 0; i < n && !bad; i++) bad = shard_write(f, &w, i, n, stop, e);
out:
    free(w.shard);
    free(w.index);
    free(w.entry);
    st_close(from);
    return bad;
}

/* ---- read at the start --------------------------------------------------------------------------------- */

struct model_file { const char *name; struct text text; };
struct model_files { enum dtype type; VEC(struct model_file) of; };

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

int model_files_read(const struct conf *c, struct model_files **out, struct err *e)
{
    struct model_files *f = mem_alloc(sizeof *f);
    *f = (struct model_files){.type = type_of(c)};
    *out = f;
    return others_take(f, c, e) || decoder_config(c, type_word(f->type), file_add(f, "config.json"), e) ? -1 : 0;
}

void model_files_free(struct model_files *f)
{
    if (!f) return;
    for (int i = 0; i < f->of.n; i++) text_free(&f->of.v[i].text);
    vec_free(&f->of);
    free(f);
}

static int files_write(const struct out_folder *f, const struct model_files *m, struct err *e)
{
    int bad = 0;
    for (int i = 0; i < m->of.n && !bad; i++) {
        struct out_place at = OUT_NOWHERE;
        bad = place_in(f, m->of.v[i].name, &at, e) || out_file(&at, &m->of.v[i].text, false, e);
        out_place_free(&at);
    }
    return bad ? -1 : 0;
}

int model_folder_write(int dir, const char *shown, const struct model_files *m, const struct conf *c,
                       const atomic_int *stop, struct err *e)
{
    struct out_folder f;
    const bool there = !faccessat(dir, MODEL_FOLDER, F_OK, AT_SYMLINK_NOFOLLOW);
    if (there && out_folder_remove(dir, shown, MODEL_FOLDER, e)) return -1;
    int bad = out_folder_begin(&f, dir, shown, MODEL_FOLDER, e) ||
              weights_write(&f, dir, shown, c, m->type, stop, e) || files_write(&f, m, e);
    if (bad) out_folder_drop(&f);
    else bad = out_folder_commit(&f, e);
    return bad ? -1 : 0;
}
