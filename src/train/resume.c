#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/out.h"
#include "ckpt/st.h"
#include "report/scores.h"
#include "train/setup.h"
#include "cluster/shutdown.h"
#include "cluster/heartbeat.h"
#include "conf/reload.h"
#include "train/resume.h"
#include "train/weights.h"
#include "cluster/sd_notify.h"
#include "optim/optim.h"

/* ---- the state of a checkpoint ----------------------------------------------------------------------------------- */

static bool goes_anyway(const struct setup *b) { return b->conf->run.resume == RESUME_FORCE; }

/* s NULL: only checks whether the state fits. told: NULL, or gets what differs. */
static int state_read(const struct setup *b, const struct ckpt *c, bool anyway, struct exec *s, struct text *notes,
                      struct err *e)
{
    struct text folder = {0};
    struct st **file;
    char name[CKPT_NAME];
    int n;
    text_add(&folder, "%s/%s/%s", b->conf->run.directory, CKPT_FOLDER, ckpt_name(c->step, name));
    int bad = ckpt_tensors_open(folder.s, c, &file, &n, e);
    if (!bad) bad = weights_resume(&(struct weights_state){folder.s, file, n, anyway}, b->job.pl, s, notes, e);
    for (int i = 0; i < n; i++) st_close(file[i]);
    free(file);
    text_free(&folder);
    return bad;
}

/* ---- the settings of this run ------------------------------------------------------------------------------------ */

static void setting_take(void *ctx, const char *key, const char *value) { ckpt_setting_add(ctx, key, value); }

static const char numerics_key[] = "the numerics line", network_key[] = "the network",
                  samples_key[] = "the digest of the training samples", base_key[] = "the digest of the base weights";
static const char last_batch[] = "train.last_batch";

static bool last_batch_decides(const struct job *j)
{
    const struct feed_order o = job_order(j);
    bool endless = j->data[DS_TRAIN] && j->data[DS_TRAIN]->endless;
    return o.count && !endless && o.count % (uint64_t)j->conf->train.batch_size;
}

/* Converts checkpoints from before train.last_batch existed: train.steps alone let batches continue into the next
 * epoch. */
static void last_batch_of_old(const struct job *j, struct ckpt *c)
{
    static const char old[] = "a batch over the end of an epoch";
    const char *is = NULL;
    for (int i = 0; i < c->n_settings; i++)
        if (!strcmp(c->setting[i].key, old)) is = c->setting[i].value ? "\"fill\"" : "\"short\"";
    if (is && last_batch_decides(j)) ckpt_setting_add(c, last_batch, is);
}

/* Adds settings that no option sets: the network, the number and digest of the samples. The numerics line is last, so
 * that an error names an option first. resume_begin adds the base weights. */
static void settings_beside(const struct setup *b, struct ckpt *c)
{
    struct text graph = {0}, last = {0};
    char hash[33], n[24] = "";
    conf_value(b->conf, last_batch, &last);
    graph_print(b->job.graph, &graph);
    text_hash(graph.s, graph.n, hash);
    text_free(&graph);
    if (b->conf->data.source != SOURCE_synthetic)
        snprintf(n, sizeof n, "%llu", (unsigned long long)b->job.count[DS_TRAIN]);
    ckpt_setting_add(c, network_key, hash);
    ckpt_setting_add(c, "the number of training samples", *n ? n : NULL);
    ckpt_setting_add(c, samples_key, *ds_digest(b->job.data[DS_TRAIN], hash) ? hash : NULL);
    ckpt_setting_add(c, last_batch, last_batch_decides(&b->job) ? last.s : NULL);
    ckpt_setting_add(c, numerics_key, b->numerics.s);
    text_free(&last);
}

static void settings_of(const struct conf *conf, const char *numerics, struct ckpt *c)
{
    struct text t = {0};
    char hash[33];
    conf_print(conf, &t);
    text_hash(t.s, t.n, hash);
    text_free(&t);
    *c = (struct ckpt){.seed = (uint64_t)conf->run.seed, .numerics = mem_strdup(numerics), .config = mem_strdup(hash)};
    conf_decides(conf, setting_take, c);
}

int resume_settings(struct setup *b, struct err *e)
{
    struct ckpt *c = &b->resume.now;
    (void)e;
    if (b->world->rank != 0) return 0;
    settings_of(b->conf, b->numerics.s, c);
    c->run = ckpt_run_make();
    settings_beside(b, c);
    return 0;
}

struct ckpt *resume_resettle(const struct ckpt *was, const struct conf *now)
{
    struct ckpt *c = mem_alloc(sizeof *c), all;
    settings_of(now, was->numerics, &all);
    *c = (struct ckpt){.seed = was->seed, .numerics = mem_strdup(was->numerics), .config = mem_strdup(all.config),
                       .run = mem_strdup(was->run)};
    for (int i = 0; i < was->n_settings; i++) {
        const struct ckpt_setting *s = &was->setting[i];
        for (int k = 0; k < all.n_settings; k++)
            if (!strcmp(all.setting[k].key, s->key) && conf_follows(s->key)) s = &all.setting[k];
        ckpt_setting_add(c, s->key, s->value);
    }
    ckpt_free(&all);
    return c;
}

static const char *spelled(const char *value) { return value ? value : "unset"; }

/* "KEY was VALUE and is VALUE now"; the numerics line has many words, so it is quoted. A hash tells users nothing. */
static char *changed_text(const struct ckpt_setting *s, const char *old)
{
    const char *quote = strcmp(s->key, numerics_key) ? "" : "\"";
    struct text t = {0};
    if (old && s->value && !strcmp(s->key, base_key)) text_add(&t, "the base weights are other ones now");
    else if (old && s->value && !strcmp(s->key, network_key)) text_add(&t, "%s is another one now", s->key);
    else if (old && s->value && !strcmp(s->key, samples_key)) text_add(&t, "the training samples are other ones now");
    else text_add(&t, "%s was %s%s%s and is %s%s%s now", s->key, quote, spelled(old), quote, quote, spelled(s->value),
                  quote);
    return t.s;
}

/* With run.resume = force: notes all differences. */
static void differences_report(struct setup *b)
{
    const struct ckpt_setting *s = NULL;
    for (const char *old; (s = ckpt_differs(&b->resume.from, &b->resume.now, conf_is_default, s, &old));) {
        if (!strcmp(s->key, "train.learning_rate")) b->resume.rate_anew = true;   /* replaces rates that were set */
        char *what = changed_text(s, old);
        text_add(&b->notes, "note: results differ from an uninterrupted run: %s\n", what);
        free(what);
    }
}

/* The difference that an error names. An option that decides bits only together with another one appears or disappears
 * with it, as train.steps does with train.schedule. Then the user changed the other one. */
static const struct ckpt_setting *difference(const struct setup *b, const char **old)
{
    const struct ckpt_setting *s = ckpt_differs(&b->resume.from, &b->resume.now, conf_is_default, NULL, old);
    while (s && conf_follows(s->key) && (!*old || !s->value))
        s = ckpt_differs(&b->resume.from, &b->resume.now, conf_is_default, s, old);
    return s ? s : ckpt_differs(&b->resume.from, &b->resume.now, conf_is_default, NULL, old);
}

/* A reload after the checkpoint applies as if its manifest contained it. */
static void setting_follow(void *ctx, const char *key)
{
    struct resume *r = ctx;
    const char *now = json_string_value(live_settings_value(&r->rates, key, UINT64_MAX));
    for (int i = 0; i < r->from.n_settings; i++) {
        struct ckpt_setting *s = &r->from.setting[i];
        if (strcmp(s->key, key) != 0) continue;
        free(s->value);
        s->value = now ? mem_strdup(now) : NULL;
    }
}

static int live_settings_take(struct setup *b, struct err *e)
{
    struct resume *r = &b->resume;
    const struct rate_from first = {.any = r->from.has_rate, .rate = r->from.rate};
    if (b->dir.fd < 0) return 0;
    if (live_settings_read(&r->rates, b->dir.fd, b->dir.path, r->from.step, &first, e)) return -1;
    live_settings_keys(&r->rates, setting_follow, r);
    return 0;
}

static int settings_fit(struct setup *b, const char *shown, struct err *e)
{
    struct ckpt *from = &b->resume.from;
    const char *old;
    char name[CKPT_NAME];
    last_batch_of_old(&b->job, from);
    const struct ckpt_setting *s = difference(b, &old);
    if (!s) return 0;
    ckpt_name(from->step, name);
    if (goes_anyway(b)) {
        differences_report(b);
        return 0;
    }
    struct err unfit = {0};
    struct text notes = {0};
    bool fits = !state_read(b, from, true, NULL, &notes, &unfit);
    char *what = changed_text(s, old);
    if (fits)
        err_set(e, E_CONF, "%s/%s: %s, which changes results; --resume=force resumes nevertheless%s%.400s", shown,
                name, what, notes.n ? ", with what fits: " : "", notes.n ? notes.s : "");
    else if (unfit.code != E_DATA) *e = unfit;
    else err_set(e, E_CONF, "%s/%s: %s, and its state is not this run's: %.500s", shown, name, what, unfit.text);
    free(what);
    text_free(&notes);
    return -1;
}

/* ---- choosing a checkpoint --------------------------------------------------------------------------------------- */

/* Reads a manifest and this rank's share of the files. hash: NULL, or gets the hash of the manifest; "": there is no
 * valid one. */
static int verify(struct setup *b, int dir, const char *shown, uint64_t step, struct ckpt *c, char *hash, struct err *e)
{
    struct text t = {0};
    int bad = ckpt_read(dir, shown, step, c, e);
    if (hash) *hash = '\0';
    if (hash && !bad) {
        ckpt_print(c, &t);
        text_hash(t.s, t.n, hash);
        text_free(&t);
    }
    if (b->world->rank == 0) notify_phase(NULL, NOTIFY_READS);
    for (int i = b->world->rank; !bad && i < c->n_files; i += b->world->size)
        bad = ckpt_file_verify(dir, shown, c, i, abort_code(), e);
    if (b->world->rank == 0) notify_others();
    return bad;
}

/* Whether this rank has another manifest than rank 0, or only one of the two has a valid one. Then its host has another
 * folder of that name, and ranks would resume from different checkpoints. Collective; -1 on all ranks; e is set on the
 * ranks that differ. */
static int same_verify(struct setup *b, const char *shown, uint64_t step, const char *mine, struct err *e)
{
    struct world *w = b->world;
    char first[33], name[CKPT_NAME];
    snprintf(first, sizeof first, "%s", mine);
    w->broadcast(w, 0, first, sizeof first);
    bool other = strcmp(first, mine) != 0;
    if (w->min(w, other ? w->rank : w->size) == w->size) return 0;
    if (other)
        err_set(e, E_CONF, "%s/%s: rank %d finds %s there, rank 0%s%s %s; all hosts need one shared folder", shown,
                ckpt_name(step, name), w->rank, *mine ? "another checkpoint" : "no valid one",
                *heartbeat_host(0) ? " on " : "", heartbeat_host(0), *first ? "a valid one" : "none");
    return -1;
}

/* A checkpoint that is damaged on one rank counts as damaged on all: 0, and rank 0 has the fault in the notes. If a
 * rank cannot read it, whether it is damaged is unknown: -1, and that rank has e. */
static int all_verify(struct setup *b, int dir, const char *shown, uint64_t step, struct ckpt *c, struct err *e)
{
    struct err why = {0};
    struct world *w = b->world;
    char hash[33];
    int bad = verify(b, dir, shown, step, c, hash, &why), damaged = bad && why.code == E_DATA;
    int unknown = w->min(w, bad && !damaged ? w->rank : w->size), lowest = w->min(w, bad ? w->rank : w->size);
    int other = unknown == w->size && same_verify(b, shown, step, hash, e);
    if (lowest == w->size && !other) return 1;
    ckpt_free(c);
    if (other) return -1;
    if (unknown < w->size) {
        const char *more = why.code == E_CONF ? "; nothing was changed: resume with that version, move this "
                                                "checkpoint away, or start anew with --overwrite" : "";
        if (bad && !damaged) err_set(e, why.code, "%.800s%s", why.text, more);
        return -1;
    }
    w->broadcast(w, lowest, &why, sizeof why);
    if (w->rank != 0) return 0;
    text_add(&b->notes, "note: skipping a damaged checkpoint: %s\n", why.text);
    if (!b->resume.passed) b->resume.passed = mem_strdup(why.text);
    return 0;
}

/* Opens the folder of checkpoints. -1 on every rank: there is none, or a rank cannot open it, which has e. */
static int folder_open(struct setup *b, struct text *shown, struct err *e)
{
    struct world *w = b->world;
    int dir = ckpt_folder_open(-1, b->conf->run.directory, shown), why = dir < 0 ? errno : 0, none = why == ENOENT;
    w->broadcast(w, 0, &none, sizeof none);
    if (dir < 0 && !none)
        err_set(e, why == EACCES ? E_PERM : E_NOINPUT, "rank %d: %s: %s", w->rank, shown->s, strerror(why));
    if (w->min(w, e->code ? w->rank : w->size) == w->size && !none) return dir;
    if (dir >= 0) close(dir);
    return -1;
}

/* Sends rank 0's list to all ranks, which go through it together. */
static int list_share(struct setup *b, int dir, const char *shown, uint64_t **step, int *n, struct err *e)
{
    struct world *w = b->world;
    *step = NULL;
    *n = 0;
    int bad = w->rank == 0 && ckpt_list(dir, shown, step, n, e);
    w->broadcast(w, 0, n, sizeof *n);
    if (w->rank != 0) *step = mem_alloc((size_t)*n * sizeof **step + 1);
    if (*n) w->broadcast(w, 0, *step, (size_t)*n * sizeof **step);
    return bad ? -1 : 0;
}

static void best_find(struct setup *b, int dir, const char *shown, const uint64_t *step, int n)
{
    struct resume *r = &b->resume;
    const char *key = b->conf->checkpoint.best;
    for (int i = 0; key && i < n; i++) {
        struct ckpt c;
        struct err none = {0};
        if (step[i] > r->from.step || ckpt_read(dir, shown, step[i], &c, &none)) continue;
        bool scored = ckpt_is_of(&c, r->now.run) && c.score && !strcmp(c.score, key);
        if (scored && (!r->any || score_better(key, c.value, r->best)))
            r->any = true, r->best = c.value;
        ckpt_free(&c);
    }
}

/* Notes names of newer checkpoints that are no folders: a user may have moved one and left a link. */
static void strangers_report(struct setup *b, int dir, const char *shown)
{
    const struct resume *r = &b->resume;
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d && fd >= 0) close(fd);
    for (struct dirent *f; d && (f = readdir(d));) {
        uint64_t step;
        struct stat st;
        if (!ckpt_step(f->d_name, &step) || (r->found && step < r->from.step)) continue;
        if (fstatat(fd, f->d_name, &st, AT_SYMLINK_NOFOLLOW) || S_ISDIR(st.st_mode)) continue;
        struct text what = {0};
        text_add(&what, "%s/%s: is %s, not a directory", shown, f->d_name, out_kind(st.st_mode));
        text_add(&b->notes, "note: skipping %s\n", what.s);
        if (!b->resume.passed) b->resume.passed = what.s;
        else text_free(&what);
    }
    if (d) closedir(d);
}

/* Refuses to start from the beginning, which was not requested, if that would lose checkpoints or weights. */
static int beginning_refuse(const struct setup *b, const char *shown, int n, struct err *e)
{
    static const char anew[] = "use --overwrite to replace it, or another --run-dir";
    static const char weights[] = "weights.safetensors";
    const char *dir = b->conf->run.directory;
    if (b->resume.passed)
        return err_set(e, E_DATA, "%s: none of its checkpoints can be used (%d checkpoint%s); nothing was changed: "
                                  "%.600s; %s", shown, n, n == 1 ? "" : "s", b->resume.passed, anew);
    if (b->dir.fd < 0 || faccessat(b->dir.fd, weights, F_OK, AT_SYMLINK_NOFOLLOW)) return 0;
    return err_set(e, E_CONF, "%s: there is no checkpoint to resume from, but %s of an earlier run; nothing was "
                   "changed; %s; %s; section checkpoint sets when a run writes checkpoints", dir, weights, anew,
                   conf_adapts(b->conf) ? "lora.init_from starts from its adapters"
                                        : "--init-from starts from its weights");
}

static int newest_find(struct setup *b, int dir, const char *shown, struct err *e)
{
    struct resume *r = &b->resume;
    uint64_t *step;
    int n, is = 0, bad = list_share(b, dir, shown, &step, &n, e);
    for (int i = 0; i < n && !is; i++) is = all_verify(b, dir, shown, step[i], &r->from, e);
    r->found = is > 0;
    if (b->world->rank == 0) strangers_report(b, dir, shown);
    if (!r->found && !is && !bad && b->world->rank == 0) bad = beginning_refuse(b, shown, n, e);
    if (r->found && b->world->rank == 0) {
        if (r->from.run) {
            free(r->now.run);
            r->now.run = mem_strdup(r->from.run);
        }
        bad |= live_settings_take(b, e) || settings_fit(b, shown, e);
        best_find(b, dir, shown, step, n);
    }
    free(step);
    return bad || is < 0 ? -1 : 0;
}

int resume_find(struct setup *b, struct err *e)
{
    struct text shown = {0};
    if (b->conf->run.resume == RESUME_NO) return 0;
    int dir = folder_open(b, &shown, e), bad = dir >= 0 ? newest_find(b, dir, shown.s, e) : e->code ? -1 : 0;
    if (!bad && dir < 0 && b->world->rank == 0) bad = beginning_refuse(b, shown.s, 0, e);
    if (!bad && !b->resume.found && b->world->rank == 0) bad = live_settings_take(b, e);
    if (!bad && !b->resume.found && b->world->rank == 0)
        text_add(&b->notes, "note: there is no checkpoint to resume from in %s: starting anew\n",
                 b->conf->run.directory);
    if (dir >= 0) close(dir);
    text_free(&shown);
    return bad;
}

/* ---- changes made during the run --------------------------------------------------------------------------------- */

/* now: gets the values that the file changes at that step. differs: the file has changed since. */
struct comparison { struct setup *b; uint64_t step; json_t *now; bool differs; };

static json_t *value_now(const struct setup *b, const char *key)
{
    struct text t = {0};
    conf_value(b->conf, key, &t);
    json_t *v = t.n ? json_string(t.s) : json_null();
    text_free(&t);
    return v;
}

/* A run that starts again may also have the file of the first start; it then repeats that run's changes. */
static void key_compare(void *ctx, const char *key)
{
    struct comparison *t = ctx;
    const struct live_settings *r = &t->b->resume.rates;
    if (!conf_is_live(key)) return;                       /* settings_fit handles it */
    json_t *now = value_now(t->b, key), *was = json_deep_copy(live_settings_value(r, key, t->step));
    bool last = json_equal(now, live_settings_value(r, key, UINT64_MAX)),
        first = json_equal(now, live_settings_value(r, key, 0));
    t->differs |= !last && !(first && !t->b->resume.found);
    json_object_set_new(t->now, key, json_pack("[o,o]", was, now));
}

struct made { const struct live_settings *r; uint64_t step; struct conf *c; struct err *e; };

static void key_put(void *ctx, const char *key)
{
    struct made *m = ctx;
    struct err why = {0};
    if (!conf_is_live(key) || !conf_put(m->c, key, json_string_value(live_settings_value(m->r, key, m->step)),
                                        &why)) return;
    err_set(m->e, E_DATA, LIVE_SETTINGS_FILE ": %s: %s", key, why.text);
}

/* The settings of a step. */
static const struct conf *conf_make(struct setup *b, uint64_t step, struct err *e)
{
    struct live_settings *r = &b->resume.rates;
    struct made m = {r, step, reload_make(b->opts, b->file.n ? b->file.s : "", b->file.n, e), e};
    if (!m.c) return NULL;
    *vec_push(&r->own) = m.c;
    live_settings_keys(r, key_put, &m);
    return e->code ? NULL : job_conf(&b->job, m.c);
}

static int confs_make(struct setup *b, struct err *e)
{
    struct live_settings *r = &b->resume.rates;
    if (!r->w.n) return 0;
    if (!(r->before = conf_make(b, r->w.v[0].step - 1, e))) return -1;
    for (int i = 0; i < r->w.n; i++) if (!(r->w.v[i].conf = conf_make(b, r->w.v[i].step, e))) return -1;
    return 0;
}

static void live_settings_report(struct setup *b)
{
    const struct live_settings *r = &b->resume.rates;
    for (int i = 0; i < r->v.n; i++) {
        const struct rate_from *f = &r->v.v[i];
        if (f->any)
            text_add(&b->notes, "note: train.learning_rate is %.9g again from step %llu on, as it was set (%s/%s)\n",
                     f->rate, (unsigned long long)f->step, b->dir.path, LIVE_SETTINGS_FILE);
    }
    for (int i = 0; i < r->w.n; i++) {
        const char *key, *now;
        json_t *both;
        json_object_foreach(r->w.v[i].changed, key, both) {
            if (!conf_is_live(key)) continue;
            now = json_string_value(json_array_get(both, 1));
            text_add(&b->notes, "note: %s is %s again from step %llu on, as it was reloaded (%s/%s)\n", key,
                     spelled(now), (unsigned long long)r->w.v[i].step, b->dir.path, LIVE_SETTINGS_FILE);
        }
    }
}

int resume_rates(struct setup *b, struct err *e)
{
    struct resume *r = &b->resume;
    struct comparison t = {.b = b, .step = r->from.step};
    const struct rate_from none = {.step = t.step + 1};
    if (b->conf->run.resume == RESUME_NO || b->conf->run.evaluate) return 0;
    t.now = json_object();
    live_settings_keys(&r->rates, key_compare, &t);
    bool unset = r->rate_anew && (r->rates.first.any || r->rates.v.n);
    const struct rate_change file = {.step = t.step + 1, .changed = t.differs ? json_incref(t.now) : NULL};
    json_decref(t.now);
    if (!unset && !t.differs) live_settings_report(b);
    else if (live_settings_note(&r->rates, b->dir.fd, b->dir.path, unset ? &none : NULL, t.differs ? &file : NULL, e))
        return -1;
    return confs_make(b, e);
}

/* ---- reading a checkpoint ------------------------------------------------------------------------------------- */

/* A checkpoint that was removed counts as damaged. */
static int still_there(int dir, const char *shown, uint64_t step, struct err *e)
{
    char name[CKPT_NAME];
    if (!faccessat(dir, ckpt_name(step, name), F_OK, 0) || errno != ENOENT) return 0;
    return err_set(e, E_DATA, "%s/%s: %s", shown, name, strerror(ENOENT));
}

/* Ranks that are threads take turns, because they share the limit of open files. */
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

/* Whether the optimizer can continue with the buffers in that checkpoint. */
static bool optimizer_goes_on(const struct conf *conf, const struct ckpt *c)
{
    const char *is = optim_list[optim_of(conf)]->buffer[0];
    for (int i = 0; i < c->n_settings; i++) {
        char was[24] = "";
        if (strcmp(c->setting[i].key, "train.optimizer") != 0 || !c->setting[i].value) continue;
        sscanf(c->setting[i].value, "\"%23[^\"]", was);
        int k = optim_find(was);
        return k >= 0 && !strcmp(optim_list[k]->buffer[0], is);
    }
    return true;
}

static void past_set(const struct setup *b, const struct ckpt *c)
{
    uint64_t before = optimizer_goes_on(b->conf, c) ? c->before : c->updates;
    exec_past_set(b->exec, &(struct exec_past){c->step - c->updates, before});
}

/* Each rank has the digests of the rows that it holds; all get those of all ranks. Collective. */
static void digests_share(struct world *w, char (*digest)[33], int n)
{
    char (*all)[33] = mem_alloc((size_t)w->size * (size_t)n * sizeof *all + 1);
    memcpy(all + (size_t)w->rank * (size_t)n, digest, (size_t)n * sizeof *digest);
    w->allgather(w, all, (size_t)n * sizeof *all);
    for (size_t i = 0; i < (size_t)w->size * (size_t)n; i++)
        if (*all[i]) memcpy(digest[i % (size_t)n], all[i], sizeof *all);
    free(all);
}

/* Rank 0: checkpoints get the base weights, and must have the same ones. */
static int base_fits(struct setup *b, struct err *e)
{
    struct resume *r = &b->resume;
    char name[CKPT_NAME];
    const char *old = NULL;
    if (b->world->rank != 0 || b->conf->run.evaluate) return 0;
    ckpt_setting_add(&r->now, base_key, *r->base ? r->base : NULL);
    const struct ckpt_setting *last = &r->now.setting[r->now.n_settings - 1];
    if (!r->found || !ckpt_differs(&r->from, &r->now, NULL, last - 1, &old)) return 0;
    char *what = changed_text(last, old);
    if (goes_anyway(b)) text_add(&b->notes, "note: results differ from an uninterrupted run: %s\n", what);
    else err_set(e, E_CONF, "%s/" CKPT_FOLDER "/%s: %s, which changes results; --resume=force resumes nevertheless",
                 b->conf->run.directory, ckpt_name(r->from.step, name), what);
    free(what);
    return e->code ? -1 : 0;
}

int resume_begin(struct setup *b, struct err *e)
{
    const char *from = b->conf->run.init_from;
    const int n = b->job.pl->n_state;
    bool found = b->resume.found, adapts = conf_adapts(b->conf);
    struct text notes = {0};
    struct weights_begin q = {b->conf, b->job.pl, b->exec, !found, .digest = NULL};
    if (!found && !adapts && (!from || !*from)) return 0;
    if (adapts) q.digest = mem_alloc((size_t)n * sizeof *q.digest + 1);
    pthread_mutex_lock(&turn);
    int bad = adapts || !found ? weights_init(&q, b->world->rank ? NULL : &b->used, &b->notes, e) : 0;
    if (!bad && found) bad = state_read(b, &b->resume.from, goes_anyway(b), b->exec, &notes, e);
    pthread_mutex_unlock(&turn);
    if (notes.n) text_add(&b->notes, "note: state differs from an uninterrupted run: %s\n", notes.s);
    text_free(&notes);
    if (adapts) digests_share(b->world, q.digest, n);
    if (adapts) weights_base_digest(b->conf, b->job.pl, q.digest, b->resume.base);
    free(q.digest);
    if (!bad && adapts) bad = weights_base_check(b->conf, q.adapts_to, b->resume.base, e) || base_fits(b, e);
    if (!bad && found) past_set(b, &b->resume.from);
    return bad ? -1 : 0;
}

int resume_back(void *ctx, uint64_t step, struct err *e)
{
    struct setup *b = ctx;
    struct text shown = {0};
    struct ckpt c = {0};
    pthread_mutex_lock(&turn);
    int dir = -1, bad = b->world->rank == 0 && rundir_named(b->dir.fd, b->conf->run.directory, e);
    if (!bad && (dir = ckpt_folder_open(-1, b->conf->run.directory, &shown)) < 0)
        bad = err_set(e, errno == ENOENT ? E_DATA : E_NOINPUT, "%s: %s", shown.s, strerror(errno));
    if (!bad) bad = still_there(dir, shown.s, step, e) || verify(b, dir, shown.s, step, &c, NULL, e);
    if (!bad) bad = state_read(b, &c, goes_anyway(b), b->exec, NULL, e);
    if (!bad) past_set(b, &c);
    if (dir >= 0) close(dir);
    pthread_mutex_unlock(&turn);
    ckpt_free(&c);
    text_free(&shown);
    return bad ? -1 : 0;
}

void resume_free(struct resume *r)
{
    free(r->passed);
    live_settings_free(&r->rates);
    ckpt_free(&r->from);
    ckpt_free(&r->now);
}
