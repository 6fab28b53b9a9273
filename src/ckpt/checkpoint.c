/* Manifests of checkpoints: writes them, and reads them as untrusted input. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>
#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "ckpt/checkpoint.h"

static const char manifest[] = CKPT_MANIFEST;
enum { MANIFEST_MAX = 1 << 24 };

/* ---- names ------------------------------------------------------------------------------------------------------- */

int ckpt_folder_open(int dir, const char *run, struct text *shown)
{
    static const int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
    text_add(shown, "%s/%s", run, CKPT_FOLDER);
    return dir < 0 ? open(shown->s, flags) : openat(dir, CKPT_FOLDER, flags);
}

char *ckpt_name(uint64_t step, char name[CKPT_NAME])
{
    snprintf(name, CKPT_NAME, "step-%08llu", (unsigned long long)step % UINT64_C(1000000000000000000));
    return name;
}

bool ckpt_step(const char *name, uint64_t *step)
{
    char again[CKPT_NAME];
    if (strncmp(name, "step-", 5) || strlen(name) >= CKPT_NAME) return false;
    *step = strtoull(name + 5, NULL, 10);
    return strcmp(ckpt_name(*step, again), name) == 0;
}

static int newest_first(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x < y) - (x > y);
}

int ckpt_list(int dir, const char *shown, uint64_t **step, int *n, struct err *e)
{
    VEC(uint64_t) all = {0};
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : mem_got(fdopendir(fd));
    *step = NULL;
    *n = 0;
    if (!d) {
        if (fd >= 0) close(fd);
        return err_set(e, E_NOINPUT, "%s: %s", shown, strerror(errno));
    }
    for (struct dirent *f; errno = 0, (f = readdir(d));) {
        uint64_t s;
        struct stat st;
        if (ckpt_step(f->d_name, &s) && !fstatat(fd, f->d_name, &st, AT_SYMLINK_NOFOLLOW) && S_ISDIR(st.st_mode))
            *vec_push(&all) = s;
    }
    int why = errno;
    closedir(d);
    if (why) {                                            /* an entry not read may be the newest */
        vec_free(&all);
        return err_set(e, E_IO, "%s: %s", shown, strerror(why));
    }
    if (all.n) qsort(all.v, (size_t)all.n, sizeof *all.v, newest_first);
    *step = all.v;
    *n = all.n;
    return 0;
}

bool ckpt_is_of(const struct ckpt *c, const char *run) { return !c->run || !strcmp(c->run, run); }

int ckpt_list_of(int dir, const char *shown, const char *run, uint64_t **step, int *n, struct err *e)
{
    int all = 0;
    *n = 0;
    if (ckpt_list(dir, shown, step, &all, e)) return -1;
    for (int i = 0; i < all; i++) {
        struct ckpt c;
        struct err none = {0};
        if (ckpt_read(dir, shown, (*step)[i], &c, &none)) continue;
        if (ckpt_is_of(&c, run)) (*step)[(*n)++] = (*step)[i];
        ckpt_free(&c);
    }
    return 0;
}

char *ckpt_run_make(void)
{
    uint64_t r[2];
    char name[33];
    if (getrandom(r, sizeof r, 0) != sizeof r)
        r[0] = (uint64_t)getpid() << 32 ^ (uint64_t)(uintptr_t)name, r[1] = clock_ns();
    snprintf(name, sizeof name, "%016llx%016llx", (unsigned long long)r[0], (unsigned long long)r[1]);
    return mem_strdup(name);
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* Takes ownership of o. */
static void json_text(json_t *o, struct text *t)
{
    char *s = json_dumps(o, JSON_INDENT(1) | JSON_PRESERVE_ORDER);
    json_decref(o);
    text_add(t, "%s\n", s);
    free(s);
}

/* The file must not exist yet. is: NULL, or receives the file's entry. */
static int json_file(const struct out_folder *f, const char *name, json_t *o, struct ckpt_file *is, struct err *e)
{
    struct out_place at;
    struct text t = {0};
    json_text(o, &t);
    if (is) {
        *is = (struct ckpt_file){.bytes = t.n, .rank = -1};
        snprintf(is->name, sizeof is->name, "%s", name);
        text_hash(t.s, t.n, is->hash);
    }
    int bad = out_place_in(f->fd, f->shown, name, &at, e);
    if (!bad) {
        bad = out_file(&at, &t, true, e);
        out_place_free(&at);
    }
    text_free(&t);
    return bad ? -1 : 0;
}

json_t *ckpt_settings_json(const struct ckpt *c)
{
    json_t *o = json_object();
    for (int i = 0; i < c->n_settings; i++)
        json_object_set_new(o, c->setting[i].key,
                            c->setting[i].value ? json_string(c->setting[i].value) : json_null());
    return o;
}

static json_t *files_json(const struct ckpt *c)
{
    json_t *files = json_array();
    for (int i = 0; i < c->n_files; i++) {
        const struct ckpt_file *f = &c->file[i];
        json_t *o = json_pack("{s:s,s:I,s:s}", "name", f->name, "bytes", (json_int_t)f->bytes, "xxh3_128", f->hash);
        if (f->rank >= 0) json_object_set_new(o, "rank", json_integer(f->rank));
        json_array_append_new(files, o);
    }
    return files;
}

/* A manifest contains the hash of its other contents, so that damage cannot turn it into another checkpoint. */
static const char own_hash[] = "manifest_xxh3_128";

static void json_hash(const json_t *o, char hash[33])
{
    char *s = json_dumps(o, JSON_COMPACT | JSON_PRESERVE_ORDER);
    text_hash(s, strlen(s), hash);
    free(s);
}

static json_t *manifest_json(const struct ckpt *c)
{
    char seed[24], hash[33];
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)c->seed);   /* 64 bits, which JSON readers may round */
    json_t *o = json_pack("{s:i,s:I,s:I,s:s,s:s,s:s,s:o}", "version", CKPT_VERSION, "step", (json_int_t)c->step,
                          "position", (json_int_t)c->position, "seed", seed, "numerics", c->numerics, "configuration",
                          c->config, "files", files_json(c));
    json_object_set_new(o, "settings", ckpt_settings_json(c));
    if (c->run) json_object_set_new(o, "run", json_string(c->run));
    if (c->evaluate) json_object_set_new(o, "evaluation_due", json_true());
    if (c->generate) json_object_set_new(o, "generation_due", json_true());
    json_object_set_new(o, "updates", json_integer((json_int_t)c->updates));
    if (c->before) json_object_set_new(o, "updates_of_other_optimizers", json_integer((json_int_t)c->before));
    if (c->skipped) json_object_set_new(o, "skipped_in_a_row", json_integer((json_int_t)c->skipped));
    if (c->has_rate) json_object_set_new(o, "learning_rate", json_real(c->rate));
    if (c->score) json_object_set_new(o, "score", json_pack("{s:s,s:f}", "name", c->score, "value", c->value));
    if (*c->best.score)
        json_object_set_new(o, "best", json_pack("{s:s,s:f,s:I,s:I}", "score", c->best.score, "value", c->best.value,
                                                 "step", (json_int_t)c->best.step, "evaluations_since",
                                                 (json_int_t)c->best.waited));
    if (c->written) json_object_set_new(o, "written", json_string(c->written));
    json_hash(o, hash);
    json_object_set_new(o, own_hash, json_string(hash));
    return o;
}

int ckpt_manifest_write(const struct out_folder *f, const struct ckpt *c, struct err *e)
{
    return json_file(f, manifest, manifest_json(c), NULL, e);
}

void ckpt_print(const struct ckpt *c, struct text *out) { json_text(manifest_json(c), out); }

int ckpt_index_write(const struct out_folder *f, const struct ckpt_tensor *t, int n, uint64_t total,
                     struct ckpt_file *is, struct err *e)
{
    json_t *map = json_object();
    for (int i = 0; i < n; i++) json_object_set_new(map, t[i].name, json_string(t[i].file));
    json_t *o = json_pack("{s:{s:I},s:o}", "metadata", "total_size", (json_int_t)total, "weight_map", map);
    return json_file(f, "model.safetensors.index.json", o, is, e);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

struct manifest_reader { const char *shown; char name[CKPT_NAME]; struct err *e; };

/* A missing file is damage; one that cannot be read may be intact. */
static int code_of(int why) { return why == ENOENT || why == ELOOP || why == ENXIO ? E_DATA : E_IO; }

static int wrong(const struct manifest_reader *r, const char *what)
{
    return err_set(r->e, E_DATA, "%s/%s/%s: %s", r->shown, r->name, manifest, what);
}

static bool number_of(const json_t *o, const char *key, uint64_t *out)
{
    const json_t *v = json_object_get(o, key);
    *out = json_is_integer(v) ? (uint64_t)json_integer_value(v) : 0;
    return json_is_integer(v) && json_integer_value(v) >= 0;
}

static bool text_of(const json_t *o, const char *key, char **out)
{
    const json_t *v = json_object_get(o, key);
    if (json_is_string(v)) *out = mem_strdup(json_string_value(v));
    return json_is_string(v);
}

static bool is_hash(const char *s)
{
    return strlen(s) == 32 && strspn(s, "0123456789abcdef") == 32;
}

/* A name without a folder, and not the manifest's: hostile manifests may name any file. */
static bool is_name(const char *s)
{
    return *s && *s != '.' && strlen(s) < sizeof ((struct ckpt_file *)0)->name && strspn(s,
        "abcdefghijklmnopqrstuvwxyz0123456789.-_") == strlen(s) && strcmp(s, manifest) != 0;
}

static bool file_parse(const json_t *o, struct ckpt_file *f)
{
    const char *name = json_string_value(json_object_get(o, "name"));
    const char *hash = json_string_value(json_object_get(o, "xxh3_128"));
    uint64_t rank;
    if (!name || !hash || !is_name(name) || !is_hash(hash) || !number_of(o, "bytes", &f->bytes)) return false;
    f->rank = number_of(o, "rank", &rank) && rank <= INT_MAX ? (int)rank : -1;
    snprintf(f->name, sizeof f->name, "%s", name);
    snprintf(f->hash, sizeof f->hash, "%s", hash);
    return true;
}

static int files_parse(const struct manifest_reader *r, const json_t *all, struct ckpt *c)
{
    if (!json_is_array(all) || !json_array_size(all)) return wrong(r, "it names no files");
    c->file = mem_alloc(json_array_size(all) * sizeof *c->file);
    json_t *seen = json_object();
    int bad = 0;
    for (size_t i = 0; i < json_array_size(all) && !bad; i++) {
        if (!file_parse(json_array_get(all, i), &c->file[i])) bad = wrong(r, "a file has no name, size or hash");
        else if (json_object_get(seen, c->file[i].name)) bad = wrong(r, "it names a file twice");
        else json_object_set_new(seen, c->file[c->n_files++].name, json_true());
    }
    json_decref(seen);
    return bad;
}

static int score_parse(const struct manifest_reader *r, const json_t *o, struct ckpt *c)
{
    const json_t *v = json_object_get(o, "value");
    if (!o) return 0;
    if (!json_is_number(v) || !text_of(o, "name", &c->score)) return wrong(r, "its score has no name or value");
    c->value = json_number_value(v);
    return 0;
}

static int best_parse(const struct manifest_reader *r, const json_t *o, struct ckpt_best *b)
{
    const json_t *v = json_object_get(o, "value");
    const char *score = json_string_value(json_object_get(o, "score"));
    if (!o) return 0;
    if (!score || !*score || strlen(score) >= sizeof b->score || !json_is_number(v) ||
        !number_of(o, "step", &b->step) || !number_of(o, "evaluations_since", &b->waited))
        return wrong(r, "its best evaluation has no score, value, step or number of evaluations since");
    snprintf(b->score, sizeof b->score, "%s", score);
    b->value = json_number_value(v);
    return 0;
}

static int settings_parse(const struct manifest_reader *r, json_t *o, struct ckpt *c)
{
    const char *key;
    json_t *v;
    if (!json_is_object(o)) return wrong(r, "settings are missing");
    json_object_foreach(o, key, v) {
        if (!json_is_string(v) && !json_is_null(v)) return wrong(r, "a setting is not text");
        ckpt_setting_add(c, key, json_string_value(v));
    }
    return 0;
}

static int rest_parse(const struct manifest_reader *r, const json_t *o, struct ckpt *c)
{
    const json_t *rate = json_object_get(o, "learning_rate");
    c->evaluate = json_is_true(json_object_get(o, "evaluation_due"));
    c->generate = json_is_true(json_object_get(o, "generation_due"));
    if (rate && !(json_is_number(rate) && json_number_value(rate) >= 0))
        return wrong(r, "learning_rate is not a number from 0");
    if (json_object_get(o, "skipped_in_a_row") && !number_of(o, "skipped_in_a_row", &c->skipped))
        return wrong(r, "skipped_in_a_row is not a number from 0");
    c->updates = c->step;                                 /* older versions did not count updates and used the step */
    if (json_object_get(o, "updates") && (!number_of(o, "updates", &c->updates) || c->updates > c->step))
        return wrong(r, "updates is not a number from 0 to its step");
    if (json_object_get(o, "updates_of_other_optimizers") &&
        (!number_of(o, "updates_of_other_optimizers", &c->before) || c->before > c->updates))
        return wrong(r, "updates_of_other_optimizers is not a number from 0 to updates");
    c->has_rate = rate != NULL;
    c->rate = json_number_value(rate);
    text_of(o, "run", &c->run);
    text_of(o, "written", &c->written);
    if (best_parse(r, json_object_get(o, "best"), &c->best)) return -1;
    return settings_parse(r, json_object_get(o, "settings"), c);
}

static int manifest_parse(const struct manifest_reader *r, const json_t *o, uint64_t step, struct ckpt *c)
{
    uint64_t version;
    char *seed = NULL, *end;
    if (!number_of(o, "version", &version) || !version) return wrong(r, "it has no version");
    if (version != CKPT_VERSION)                          /* not damage: that version can read it */
        return err_set(r->e, E_CONF, "%s/%s: it was written by another version of mpstaged (its manifest has version "
                       "%llu, this program reads %d)", r->shown, r->name, (unsigned long long)version, CKPT_VERSION);
    if (!number_of(o, "step", &c->step) || c->step != step) return wrong(r, "its step is not that of its folder");
    bool whole = number_of(o, "position", &c->position) && text_of(o, "numerics", &c->numerics) &&
                 text_of(o, "configuration", &c->config) && text_of(o, "seed", &seed);
    if (whole) {
        errno = 0;
        c->seed = strtoull(seed, &end, 10);
        whole = strspn(seed, "0123456789") == strlen(seed) && end != seed && !errno;
    }
    free(seed);
    if (!whole) return wrong(r, "position, seed, numerics or configuration is missing");
    if (rest_parse(r, o, c) || files_parse(r, json_object_get(o, "files"), c)) return -1;
    return score_parse(r, json_object_get(o, "score"), c);
}

static int own_hash_check(const struct manifest_reader *r, json_t *o)
{
    char is[33], was[33];
    const char *s = json_string_value(json_object_get(o, own_hash));
    if (!s || !is_hash(s)) return wrong(r, "it has no hash of its own");
    snprintf(was, sizeof was, "%s", s);
    json_object_del(o, own_hash);
    json_hash(o, is);
    return strcmp(is, was) ? wrong(r, "its own hash does not match") : 0;
}

/* whole: false skips its own hash */
static int text_parse(const struct manifest_reader *r, uint64_t step, bool whole, const struct text *t, struct ckpt *c)
{
    json_error_t why;
    json_t *o = t->n ? json_loadb(t->s, t->n, JSON_REJECT_DUPLICATES, &why) : NULL;
    int bad = json_is_object(o) ? manifest_parse(r, o, step, c) : wrong(r, "it is not a JSON object");
    if (!bad && whole) bad = own_hash_check(r, o);
    json_decref(o);
    return bad;
}

int ckpt_parse(const char *shown, uint64_t step, const char *text, size_t n, struct ckpt *c, struct err *e)
{
    struct manifest_reader r = {.shown = shown, .e = e};
    *c = (struct ckpt){0};
    ckpt_name(step, r.name);
    if (!text_parse(&r, step, false, &(struct text){.s = (char *)(uintptr_t)text, .n = n}, c)) return 0;
    ckpt_free(c);
    return -1;
}

static int folder_open(const struct manifest_reader *r, int dir)
{
    int fd = openat(dir, r->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) err_set(r->e, E_NOINPUT, "%s/%s: %s", r->shown, r->name, strerror(errno));
    return fd;
}

static int manifest_read(const struct manifest_reader *r, int folder, uint64_t step, struct ckpt *c)
{
    struct text t = {0}, path = {0};
    int fd = openat(folder, manifest, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return err_set(r->e, code_of(errno), "%s/%s/%s: %s", r->shown, r->name, manifest, strerror(errno));
    text_add(&path, "%s/%s/%s", r->shown, r->name, manifest);
    struct stat st;
    bool file = !fstat(fd, &st) && S_ISREG(st.st_mode);
    int bad = !file ? wrong(r, "it is not a regular file") : text_read_fd(&t, fd, path.s, MANIFEST_MAX, r->e);
    close(fd);
    if (!bad) bad = text_parse(r, step, true, &t, c);
    text_free(&t);
    text_free(&path);
    return bad ? -1 : 0;
}

static int file_wrong(const struct manifest_reader *r, const struct ckpt_file *f, const char *what)
{
    return err_set(r->e, E_DATA, "%s/%s/%s: %s", r->shown, r->name, f->name, what);
}

/* Adds the file to the hash. -1: e; otherwise the number of bytes. */
static int64_t hash_add(const struct manifest_reader *r, const struct ckpt_file *f, int fd, const atomic_int *stop,
                        XXH3_state_t *hash)
{
    enum { PIECE = 1 << 20 };
    char *piece = mem_alloc(PIECE);
    int64_t sum = 0;
    for (;;) {
        ssize_t k = read(fd, piece, PIECE);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) sum = err_set(r->e, E_IO, "%s/%s/%s: %s", r->shown, r->name, f->name, strerror(errno));
        if (k <= 0) break;
        XXH3_128bits_update(hash, piece, (size_t)k);
        sum += k;
        file_count((size_t)k);
        if (stop && atomic_load(stop)) { sum = err_set(r->e, E_STOPPED, "stopped"); break; }
    }
    free(piece);
    return sum;
}

static int file_verify(const struct manifest_reader *r, int folder, const struct ckpt_file *f, const atomic_int *stop)
{
    char is[33];
    struct stat st;
    int fd = openat(folder, f->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return err_set(r->e, code_of(errno), "%s/%s/%s: %s", r->shown, r->name, f->name, strerror(errno));
    XXH3_state_t *hash = mem_got(XXH3_createState());
    XXH3_128bits_reset(hash);
    bool size = !fstat(fd, &st) && S_ISREG(st.st_mode) && (uint64_t)st.st_size == f->bytes;
    int64_t n = size ? hash_add(r, f, fd, stop, hash) : file_wrong(r, f, "its size differs from the manifest");
    XXH128_hash_t h = XXH3_128bits_digest(hash);
    snprintf(is, sizeof is, "%016llx%016llx", (unsigned long long)h.high64, (unsigned long long)h.low64);
    XXH3_freeState(hash);
    close(fd);
    if (n < 0) return -1;
    return (uint64_t)n == f->bytes && !strcmp(is, f->hash) ? 0
                                                          : file_wrong(r, f, "its hash differs from the manifest");
}

static int read_at(int dir, struct manifest_reader *r, uint64_t step, bool files, const atomic_int *stop,
                   struct ckpt *c)
{
    *c = (struct ckpt){0};
    ckpt_name(step, r->name);
    int folder = folder_open(r, dir);
    if (folder < 0) return -1;
    int bad = manifest_read(r, folder, step, c);
    for (int i = 0; files && !bad && i < c->n_files; i++) bad = file_verify(r, folder, &c->file[i], stop);
    close(folder);
    if (bad) ckpt_free(c);
    return bad ? -1 : 0;
}

int ckpt_read(int dir, const char *shown, uint64_t step, struct ckpt *c, struct err *e)
{
    struct manifest_reader r = {.shown = shown, .e = e};
    return read_at(dir, &r, step, false, NULL, c);
}

int ckpt_file_verify(int dir, const char *shown, const struct ckpt *c, int i, const atomic_int *stop, struct err *e)
{
    struct manifest_reader r = {.shown = shown, .e = e};
    ckpt_name(c->step, r.name);
    int folder = folder_open(&r, dir);
    if (folder < 0) return -1;
    int bad = file_verify(&r, folder, &c->file[i], stop);
    close(folder);
    return bad ? -1 : 0;
}

int ckpt_verify(int dir, const char *shown, uint64_t step, const atomic_int *stop, struct ckpt *c, struct err *e)
{
    struct manifest_reader r = {.shown = shown, .e = e};
    return read_at(dir, &r, step, true, stop, c);
}

void ckpt_setting_add(struct ckpt *c, const char *key, const char *value)
{
    c->setting = mem_resize(c->setting, (size_t)(c->n_settings + 1) * sizeof *c->setting);
    c->setting[c->n_settings++] = (struct ckpt_setting){mem_strdup(key), value ? mem_strdup(value) : NULL};
}

static const struct ckpt_setting *setting_of(const struct ckpt *c, const char *key)
{
    for (int i = 0; i < c->n_settings; i++) if (!strcmp(c->setting[i].key, key)) return &c->setting[i];
    return NULL;
}

const struct ckpt_setting *ckpt_differs(const struct ckpt *was, const struct ckpt *now, ckpt_default_fn *is_default,
                                        const struct ckpt_setting *after, const char **old)
{
    for (int i = after ? (int)(after - now->setting) + 1 : 0; i < now->n_settings; i++) {
        const struct ckpt_setting *n = &now->setting[i], *w = setting_of(was, n->key);
        *old = w ? w->value : NULL;
        if (!w && n->value && is_default && is_default(n->key, n->value)) continue;
        if (!n->value != !*old || (n->value && strcmp(n->value, *old))) return n;
    }
    return NULL;
}

void ckpt_free(struct ckpt *c)
{
    for (int i = 0; i < c->n_settings; i++) {
        free(c->setting[i].key);
        free(c->setting[i].value);
    }
    free(c->setting);
    free(c->written);
    free(c->numerics);
    free(c->config);
    free(c->run);
    free(c->score);
    free(c->file);
    *c = (struct ckpt){0};
}
