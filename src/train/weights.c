/* Reads initial weights by name, writes final weights with their hash. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/suggest.h"
#include "ckpt/checkpoint.h"
#include "ckpt/st_out.h"
#include "ckpt/weights.h"
#include "model/decoder.h"
#include "model/lora.h"
#include "model/onnx/onnx.h"
#include "report/scores.h"
#include "cluster/shutdown.h"
#include "train/model_folder.h"
#include "train/weights.h"

bool weights_has(const struct state_row *r, enum weights_what what)
{
    switch (what) {
    case WEIGHTS_ALL: return r->region == IN_PARAM && r->kind != STATE_CACHE && !r->base;
    case WEIGHTS_BASE: return r->region == IN_PARAM && r->kind != STATE_CACHE && r->base;
    case WEIGHTS_GRADIENTS: return r->region == IN_PARAM && r->trained;
    case WEIGHTS_OPTIMIZER: return r->region == IN_STATE;
    }
    return false;
}

struct weights_rows weights_rows(const struct placement *pl, enum weights_what what, int writer)
{
    struct weights_rows w = {.row = mem_alloc((size_t)pl->n_state * sizeof *w.row + 1),
                             .entry = mem_alloc((size_t)pl->n_state * sizeof *w.entry + 1)};
    for (int i = 0; i < pl->n_state; i++) {
        const struct state_row *r = &pl->state[i];
        if (!weights_has(r, what) || (writer >= 0 && placement_writer(pl, r) != writer)) continue;
        w.entry[w.n] = (struct st_entry){r->name, r->file.type, state_file_shape(r), r->turned};
        w.row[w.n++] = i;
    }
    return w;
}

void weights_rows_free(struct weights_rows *w)
{
    free(w->row);
    free(w->entry);
    *w = (struct weights_rows){0};
}

/* s NULL: rows are only checked, or if digest is set, only read for that. source: NULL, or gets their places. */
struct row_taker { const struct placement *pl; struct exec *s; char (*digest)[33]; struct weights_source *source; };

/* Codes of bitsandbytes have the order of the graph; the row's file has its two dimensions in the other order. */
static void codes_turn(const struct state_row *r, float *x)
{
    const int64_t n = r->shape.d[0], m = r->shape.d[1];
    float *own = mem_alloc(state_plain_bytes(r) + 1);
    memcpy(own, x, state_plain_bytes(r));
    for (int64_t i = 0; i < n; i++) for (int64_t j = 0; j < m; j++) x[j * n + i] = own[i * m + j];
    free(own);
}

/* 1: the executor reads the tensor itself when it needs it. */
static int row_stays(const struct row_taker *t, int row, struct weights_at at, struct err *e)
{
    const struct st_tensor *x = &at.file->t[at.tensor];
    struct exec_source from = {at.file->path, x->begin, (size_t)(x->end - x->begin), F32};
    if (!t->s || x->factors || x->values) return 0;
    if (!strcmp(x->dtype, "BF16")) from.type = BF16;
    else if (!strcmp(x->dtype, "F16")) from.type = F16;
    else if (strcmp(x->dtype, "F32")) return 0;
    return exec_state_from(t->s, row, &from, e);
}

static int row_values(const struct state_row *r, struct weights_at at, void *plain, struct err *e)
{
    const int bad = r->file.type == F32 ? st_read_float(at.file, at.tensor, plain, e)
                                        : st_read(at.file, at.tensor, plain, e);
    if (!bad && r->turned && at.file->t[at.tensor].factors) codes_turn(r, plain);
    return bad;
}

static int row_read(const struct row_taker *t, int row, struct weights_at at, struct err *e)
{
    const struct state_row *r = &t->pl->state[row];
    const int stays = row_stays(t, row, at, e);
    if (stays < 0 || (stays && !t->digest)) return stays < 0 ? -1 : 0;
    void *there = t->s ? exec_state_values(t->s, row) : NULL;
    void *plain = there ? there : mem_alloc(state_plain_bytes(r) + 1);
    int bad = row_values(r, at, plain, e);
    if (!bad && t->digest) text_hash(plain, state_plain_bytes(r), t->digest[row]);
    if (!bad && t->s && !there && !stays) bad = exec_state_set(t->s, row, plain, e);
    if (!there) free(plain);
    return bad ? -1 : 0;
}

/* at.file NULL: the row is in no file. */
static int row_take(const struct row_taker *t, int row, struct weights_at at, struct err *e)
{
    const int stop = atomic_load(abort_code());
    if (stop) return err_set(e, stop, "stopped");
    if (t->s && !exec_holds(t->s, row)) return 0;
    if (at.file) return row_read(t, row, at, e);
    return t->s ? exec_state_begin(t->s, row, e) : 0;
}

struct weights_from { const char *path; struct st *const *file; int n; const struct weights_allow *allow; };

static int rows_take(const struct weights_from *f, const struct weights_rows *w, const struct row_taker *t,
                     struct weights_notes *notes, struct err *e)
{
    struct weights_at *at = mem_alloc((size_t)w->n * sizeof *at + 1);
    const bool reads = t->s || t->digest;
    int bad = weights_match(f->path, &(struct weights_want){w->entry, w->n, f->allow}, f->file, f->n, at, notes, e);
    for (int i = 0; t->source && i < w->n && !bad; i++) t->source->at[w->row[i]] = at[i];
    for (int i = 0; reads && i < w->n && !bad; i++) bad = row_take(t, w->row[i], at[i], e);
    free(at);
    return bad ? -1 : 0;
}

/* Sets them to their initial values. */
static int rows_begin(const struct placement *pl, enum weights_what what, struct exec *s, struct err *e)
{
    struct weights_rows w = weights_rows(pl, what, -1);
    const struct row_taker t = {pl, s, NULL, NULL};
    int bad = 0;
    for (int i = 0; s && i < w.n && !bad; i++) bad = row_take(&t, w.row[i], (struct weights_at){NULL, -1}, e);
    weights_rows_free(&w);
    return bad;
}

/* ---- initial weights --------------------------------------------------------------------------------------------- */

static int missing_check(const struct conf *c, const struct weights_rows *w, struct err *e)
{
    const struct conf_texts *p = &c->run.init_missing;
    for (int i = 0, k; i < p->n; i++) {
        struct suggest near = suggest_begin(p->v[i], glob_stem(p->v[i]));
        char hint[SUGGEST_TEXT];
        for (k = 0; k < w->n && !glob_names(p->v[i], w->entry[k].name); k++)
            layer_names_try(&near, w->entry[k].name);
        if (k == w->n)
            return conf_error(c, "run.init_missing", e, "\"%s\" matches no weight, nor a layer that has weights%s",
                              p->v[i], suggest_text(&near, "", hint));
    }
    return 0;
}

static int rules_read(const struct conf *c, struct glob_rule *rule, struct err *e)
{
    const struct conf_texts *p = &c->run.init_rename;
    for (int i = 0; i < p->n; i++)
        if (!glob_rule_parse(p->v[i], &rule[i]))
            return conf_error(c, "run.init_rename", e,
                              "\"%s\": expected \"PATTERN -> NAME\", such as \"backbone.* -> *\"",
                              p->v[i]);
    return 0;
}

/* A rule that renames nothing is the likely cause of missing tensors, so the error names the rule. */
static int init_idle_report(const struct conf *c, const struct weights_from *f, const char *pattern, struct err *e)
{
    struct suggest near = suggest_begin(pattern, glob_stem(pattern));
    char hint[SUGGEST_TEXT];
    for (int i = 0; i < f->n; i++)
        for (int k = 0; k < f->file[i]->n; k++) layer_names_try(&near, f->file[i]->t[k].name);
    if (e) *e = (struct err){0};
    return conf_error(c, "run.init_rename", e, "\"%s\" matches no tensor in %s, nor a layer that has tensors%s",
                      pattern, f->path, suggest_text(&near, "", hint));
}

static const char *const not_weights[] = {".attn.bias", ".attn.masked_bias", "rotary_emb.inv_freq", NULL};
static const struct weights_habits of_gpt2 = {"transformer.", not_weights, "lm_head.weight", "transformer.wte.weight"},
                                   of_llama = {"model.", not_weights, "lm_head.weight", "model.embed_tokens.weight"};

/* NULL: the network is no decoder. */
static const struct weights_habits *habits_of(const struct conf *c)
{
    struct decoder d;
    struct err none = {0};
    if (!decoder_is(c) || decoder_of(c, &d, &none)) return NULL;
    return d.family->gpt2 ? &of_gpt2 : &of_llama;
}

static enum weights_what base_of(const struct conf *c) { return conf_adapts(c) ? WEIGHTS_BASE : WEIGHTS_ALL; }

static int init_take(const struct conf *c, struct weights_from *f, const struct row_taker *t, struct text *notes,
                     struct err *e)
{
    struct glob_rule rule[CONF_LIST];
    const struct weights_allow allow = {rule, c->run.init_rename.n,
                                        {c->run.init_missing.v, c->run.init_missing.n},
                                        {c->run.init_extra.v, c->run.init_extra.n}, .habits = habits_of(c),
                                        .spare = c->model.graph && !strcmp(f->path, c->model.graph)};
    struct weights_rows w = weights_rows(t->pl, base_of(c), -1);
    struct weights_notes came = {.idle = -1};
    f->allow = &allow;
    int bad = rules_read(c, rule, e) || missing_check(c, &w, e) || rows_take(f, &w, t, &came, e);
    if (came.idle >= 0) bad = init_idle_report(c, f, rule[came.idle].from, e);
    if (!bad && came.notes.n) text_add(notes, "%s\n", came.notes.s);
    text_free(&came.notes);
    weights_rows_free(&w);
    return bad ? -1 : 0;
}

/* Without the setting a prediction reads the run's own directory (conf/rules.c); the error explains that. */
static int weights_absent(const struct conf *c, const char *key, struct err *e)
{
    if (!e) return -1;
    const struct err why = *e;
    if (why.code != E_NOINPUT || !conf_predicts(c) || conf_given(c, key)) return -1;
    *e = (struct err){0};
    return err_set(e, why.code, "%s; %s needs the weights of a run that has trained, or %s", why.text,
                   c->run.generate ? "a generation" : c->run.exports ? "an ONNX file" : "a prediction", key);
}

/* ---- choosing a run's weights ------------------------------------------------------------------------------------ */

static bool has(const char *dir, const char *name)
{
    struct text path = {0};
    text_add(&path, "%s/%s", dir, name);
    bool there = !access(path.s, F_OK);
    text_free(&path);
    return there;
}

/* Chooses a run's checkpoint with the best value of that score, or for NULL the newest, of those with a valid manifest.
 * False: there is none. */
static bool checkpoint_choose(const char *run, const char *score, struct text *folder, struct ckpt *chosen)
{
    struct err none = {0};
    uint64_t *step = NULL;
    char name[CKPT_NAME];
    bool any = false;
    int n = 0, dir = ckpt_folder_open(-1, run, folder);
    if (dir >= 0) ckpt_list(dir, folder->s, &step, &n, &none);
    for (int i = n - 1; i >= 0; i--) {                    /* of equal ones the first, as the run itself does */
        struct ckpt k;
        none = (struct err){0};
        if (ckpt_read(dir, folder->s, step[i], &k, &none)) continue;
        bool takes = !score || (k.score && !strcmp(k.score, score) &&
                                (!any || score_better(score, k.value, chosen->value)));
        if (takes && any) ckpt_free(chosen);
        if (takes) *chosen = k, any = true;
        else ckpt_free(&k);
    }
    if (any) text_add(folder, "/%s", ckpt_name(chosen->step, name));
    if (dir >= 0) close(dir);
    free(step);
    return any;
}

static bool is_average(const char *name)
{
    size_t n = strlen(name);
    return n > 4 && !strcmp(name + n - 4, ".ema");
}

static bool is_optimizers(const struct st *s) { return strstr(s->path, "/optimizer-") != NULL; }

static bool averaged(struct st *const *file, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        for (int k = 0; is_optimizers(file[i]) && k < file[i]->n; k++) {
            const char *of = file[i]->t[k].name;
            if (is_average(of) && !strncmp(of, name, strlen(of) - 4) && strlen(name) == strlen(of) - 4) return true;
        }
    return false;
}

/* Leaves the tensors that evaluations of the run used: averages, if it had them, under the names of the weights. */
static void averages_take(struct st **file, int n)
{
    for (int i = 0; i < n; i++) {
        int left = 0;
        for (int k = 0; !is_optimizers(file[i]) && k < file[i]->n; k++)
            if (!averaged(file, n, file[i]->t[k].name)) file[i]->t[left++] = file[i]->t[k];
        if (!is_optimizers(file[i])) file[i]->n = left;
    }
    for (int i = 0; i < n; i++) {
        int left = 0;
        for (int k = 0; is_optimizers(file[i]) && k < file[i]->n; k++) {
            struct st_tensor t = file[i]->t[k];
            if (!is_average(t.name)) continue;
            t.name = arena_printf(file[i]->mem, "%.*s", (int)strlen(t.name) - 4, t.name);
            file[i]->t[left++] = t;
        }
        if (is_optimizers(file[i])) file[i]->n = left;
    }
}

/* Of the files with weights that a checkpoint has: are their hashes those of its manifest? 65. */
static int hashes_check(const char *run, const struct ckpt *c, struct err *e)
{
    struct text shown = {0};
    const int dir = ckpt_folder_open(-1, run, &shown);
    int bad = dir < 0 ? err_set(e, E_NOINPUT, "%s: %m", shown.s) : 0;
    for (int i = 0; i < c->n_files && !bad; i++)
        if (text_ends(c->file[i].name, ".safetensors")) bad = ckpt_file_verify(dir, shown.s, c, i, abort_code(), e);
    if (dir >= 0) close(dir);
    text_free(&shown);
    return bad;
}

static int checkpoint_open(const char *folder, const struct ckpt *c, struct st ***out, int *n, struct err *e)
{
    if (ckpt_tensors_open(folder, c, out, n, e)) return -1;
    averages_take(*out, *n);
    return 0;
}

/* A prediction without run.init_from takes the weights of the run, or of model.folder if the run has not trained. */
static const char *source_of(const struct conf *c)
{
    const char *run = c->run.init_from;
    const bool trained = has(run, CKPT_FOLDER) || has(run, "weights.safetensors");
    const char *model = c->model.graph && onnx_is(c->model.graph) ? c->model.graph : c->model.folder;
    return model && !conf_given(c, "run.init_from") && !trained ? model : run;
}

/* Opens weights, or adapters of a run. For an evaluation of a run the best checkpoint comes first if checkpoint.best is
 * set, then the final weights, then the newest checkpoint. used: gets the file or folder, and which of these it is. */
static int source_open(const struct conf *c, const char *from, struct st ***file, int *n, struct weights_used *used,
                       struct err *e)
{
    const char *best = c->checkpoint.best;
    struct text folder = {0};
    struct ckpt k = {0};
    bool run = c->run.evaluate && has(from, CKPT_FOLDER) && !has(from, "model.safetensors") &&
               !has(from, "model.safetensors.index.json"), final = has(from, "weights.safetensors");
    bool is_best = run && best && checkpoint_choose(from, best, &folder, &k);
    folder.n = is_best ? folder.n : 0;
    bool chosen = is_best || (run && !final && checkpoint_choose(from, NULL, &folder, &k));
    int bad = chosen && used ? hashes_check(from, &k, e) : 0;
    if (!bad) bad = chosen ? checkpoint_open(folder.s, &k, file, n, e) : st_open_all(from, file, n, e);
    if (!bad && !chosen && st_codes_join(*file, *n, e)) {
        for (int i = 0; i < *n; i++) st_close((*file)[i]);
        free(*file);
        bad = -1;
    }
    if (!bad && used) {
        text_add(&used->path, "%s%s", chosen ? folder.s : from, !chosen && final ? "/weights.safetensors" : "");
        if (is_best) text_add(&used->which, "the best checkpoint: %s %.6g", best, k.value);
        else if (chosen) text_add(&used->which, "the newest checkpoint");
        else if (final) text_add(&used->which, "final weights");
        if (!is_best && run && best) text_add(&used->which, ", as no checkpoint has a score of %s", best);
    }
    ckpt_free(&k);
    text_free(&folder);
    return bad;
}

void weights_used_free(struct weights_used *u)
{
    text_free(&u->path);
    text_free(&u->which);
}

static void files_close(struct st **file, int n)
{
    for (int i = 0; i < n; i++) st_close(file[i]);
    free(file);
}

/* keep: who needs them longer; NULL: nobody. */
static void files_end(struct st **file, int n, struct weights_source *keep)
{
    const int i = keep && keep->file[0];
    if (!keep) files_close(file, n);
    else keep->file[i] = file, keep->n[i] = n;
}

void weights_source_close(struct weights_source *s)
{
    for (int i = 0; i < 2; i++) files_close(s->file[i], s->n[i]);
    free(s->at);
    *s = (struct weights_source){0};
}

int weights_source_get(void *ctx, int row, void *buf, const void **at, struct err *e)
{
    const struct weights_source *s = ctx;
    const struct state_row *r = &s->pl->state[row];
    *at = buf;
    return s->at[row].file ? row_values(r, s->at[row], buf, e)
                           : err_set(e, E_DATA, "%s is in no file: a run would draw it", r->name);
}

/* The weights of run.init_from: all of the network, or with adapters base weights. */
static int base_take(const struct conf *c, const struct row_taker *t, struct weights_used *used, struct text *notes,
                     struct err *e)
{
    struct st **file;
    struct weights_from from = {.path = source_of(c)};
    if (has(from.path, ADAPTER_FOLDER) && (has(from.path, RUN_WEIGHTS) || has(from.path, CKPT_FOLDER)))
        return conf_error(c, "run.init_from", e, "%s is a run of adapters: lora.init_from reads these%s", from.path,
                          has(from.path, MODEL_FOLDER) ? ", and its folder model has the sums" : "");
    if (source_open(c, from.path, &file, &from.n, used, e)) return weights_absent(c, "run.init_from", e);
    from.file = file;
    int bad = init_take(c, &from, t, notes, e);
    files_end(file, from.n, t->source);
    return bad;
}

/* ---- adapters ---------------------------------------------------------------------------------------------------- */

/* A folder of peft, whose names get the model's form; otherwise a run. */
static int adapters_open(const struct conf *c, struct st ***file, int *n, struct weights_used *used, struct err *e)
{
    const char *from = c->lora.init_from;
    struct text path = {0};
    if (!has(from, ADAPTER_CONFIG)) return source_open(c, from, file, n, used, e);
    text_add(&path, "%s/" ADAPTER_WEIGHTS, from);
    int bad = st_open_all(path.s, file, n, e);
    for (int i = 0; !bad && i < (*file)[0]->n; i++) {
        const char **name = &(*file)[0]->t[i].name;
        if (!strncmp(*name, ADAPTER_PREFIX, strlen(ADAPTER_PREFIX))) *name += strlen(ADAPTER_PREFIX);
    }
    if (!bad && used) text_add(&used->path, "%s", path.s);
    text_free(&path);
    return bad;
}

static int adapters_init(struct weights_begin *q, struct weights_used *used, struct err *e)
{
    const struct conf *c = q->conf;
    struct st **file;
    struct weights_from from = {.path = c->lora.init_from};
    const struct row_taker t = {q->pl, q->exec, NULL, q->source};
    if (!c->lora.init_from) return rows_begin(q->pl, WEIGHTS_ALL, q->exec, e);
    if (adapters_open(c, &file, &from.n, used, e)) return weights_absent(c, "lora.init_from", e);
    from.file = file;
    struct weights_rows w = weights_rows(q->pl, WEIGHTS_ALL, -1);
    int bad = rows_take(&from, &w, &t, NULL, e);
    if (from.n && file[0]->base) snprintf(q->adapts_to, sizeof q->adapts_to, "%s", file[0]->base);
    weights_rows_free(&w);
    files_end(file, from.n, q->source);
    return bad;
}

static bool has_base(const struct conf *c) { return c->run.init_from && *c->run.init_from; }

int weights_init(struct weights_begin *q, struct weights_used *used, struct text *notes, struct err *e)
{
    const struct conf *c = q->conf;
    const struct row_taker t = {q->pl, q->exec, q->digest, q->source};
    const bool tells = !conf_adapts(c) || !c->lora.init_from;       /* otherwise the adapters' place is told */
    if (q->source) {
        q->source->pl = q->pl;
        q->source->at = mem_alloc((size_t)q->pl->n_state * sizeof *q->source->at + 1);
    }
    int bad = has_base(c) ? base_take(c, &t, tells ? used : NULL, notes, e)
                          : rows_begin(q->pl, base_of(c), q->exec, e);
    if (!bad && !has_base(c))
        text_add(notes, "note: base weights are drawn at random: neither run.init_from nor model.folder is set\n");
    if (!bad && q->all && conf_adapts(c)) bad = adapters_init(q, used, e);
    if (!bad && q->all && q->exec) bad = exec_averages_begin(q->exec, e);
    return bad || (q->exec && q->all && exec_state_changed(q->exec, e)) ? -1 : 0;
}

/* Of names and values in fp32. */
void weights_base_digest(const struct conf *c, const struct placement *pl, char (*digest)[33], char hash[33])
{
    struct text all = {0};
    *hash = '\0';
    for (int i = 0; has_base(c) && i < pl->n_state; i++)
        if (weights_has(&pl->state[i], WEIGHTS_BASE)) text_add(&all, "%s %s\n", pl->state[i].name, digest[i]);
    if (all.n) text_hash(all.s, all.n, hash);
    text_free(&all);
}

int weights_base_check(const struct conf *c, const char *adapts_to, const char *base, struct err *e)
{
    if (!*adapts_to || !strcmp(adapts_to, base) || c->lora.other_base) return 0;
    return conf_error(c, "lora.init_from", e, "%s belongs to other base weights than %s%s; lora.other_base = yes takes "
                      "it nevertheless", c->lora.init_from,
                      has_base(c) ? "those of " : "these, which are drawn at random: run.init_from is not set",
                      has_base(c) ? source_of(c) : "");
}

int weights_resume(const struct weights_state *f, const struct placement *pl, struct exec *s, struct text *notes,
                   struct err *e)
{
    static const struct weights_allow any = {.any = true};
    struct weights_notes came = {.idle = -1};
    if (s && exec_averages_use(s, false, e)) return -1;
    struct weights_rows all = weights_rows(pl, WEIGHTS_ALL, -1), more = weights_rows(pl, WEIGHTS_OPTIMIZER, -1);
    for (int i = 0; i < more.n; i++, all.n++) {           /* both have space for all rows */
        all.row[all.n] = more.row[i];
        all.entry[all.n] = more.entry[i];
    }
    const struct weights_from from = {f->shown, f->file, f->n, f->anyway ? &any : NULL};
    const struct row_taker t = {pl, s, NULL, NULL};
    int bad = rows_take(&from, &all, &t, &came, e) || (s && exec_state_changed(s, e));
    if (!bad && notes && came.notes.n) text_add(notes, "%s", came.notes.s);
    text_free(&came.notes);
    weights_rows_free(&more);
    weights_rows_free(&all);
    return bad ? -1 : 0;
}

struct selected { const int *row; st_data get; void *ctx; };

static int get_selected(void *ctx, int i, void *buf, const void **at, struct err *e)
{
    struct selected *s = ctx;
    return s->get(s->ctx, s->row[i], buf, at, e);
}

int weights_save(const struct weights_file *f, const struct placement *pl, st_data get, void *ctx, char hash[33],
                 struct err *e)
{
    struct weights_rows w = weights_rows(pl, f->what, -1);
    struct selected s = {w.row, get, ctx};
    struct st_body b = {w.n, w.entry, get_selected, &s, f->base};
    struct st_out out;
    int bad = st_out_write(&out, f->at, f->stop, &b, e) || st_out_commit(&out, hash, e);
    weights_rows_free(&w);
    return bad ? -1 : 0;
}

json_t *weights_ranks(const struct placement *pl)
{
    struct weights_rows w = weights_rows(pl, WEIGHTS_ALL, -1);
    int *order = st_order(w.n, w.entry);
    json_t *all = json_array();
    for (int i = 0, n = 0, rank; i < w.n; i++) {
        rank = placement_writer(pl, &pl->state[w.row[order[i]]]);
        n++;
        if (i + 1 < w.n && placement_writer(pl, &pl->state[w.row[order[i + 1]]]) == rank) continue;
        json_array_append_new(all, json_pack("[i,i]", rank, n));
        n = 0;
    }
    free(order);
    weights_rows_free(&w);
    return all;
}

int weights_get(struct exec *s, enum weights_what what, int row, void *plain, const void **at, struct err *e)
{
    if (exec_averages_use(s, what == WEIGHTS_ALL, e)) return -1;
    const void *there = what == WEIGHTS_GRADIENTS ? NULL : exec_state_values(s, row);
    *at = there ? there : plain;
    if (there) return 0;
    return what == WEIGHTS_GRADIENTS ? exec_grad_get(s, row, plain, e) : exec_state_get(s, row, plain, e);
}
