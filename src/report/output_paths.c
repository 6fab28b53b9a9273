#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "report/output_paths.h"

/* ---- inputs ------------------------------------------------------------------------------------------------------ */

struct spared_path { const struct stat *out, *folder; const char *key, *file; };

/* If an input is a folder, all files in it count. */
static void input_check(void *ctx, const char *key, const char *file)
{
    struct spared_path *s = ctx;
    struct stat st;
    if (s->key || stat(file, &st)) return;
    const struct stat *same = S_ISDIR(st.st_mode) ? s->folder : s->out;
    if (same->st_dev != st.st_dev || same->st_ino != st.st_ino) return;
    s->key = key;
    s->file = file;
}

static int spare(const struct conf *c, const char *what, const struct out_place *p, struct err *e)
{
    struct stat out, folder;
    struct spared_path s = {.out = &out, .folder = &folder};
    if (out_stat(p, &out, e)) return -1;
    if (!out.st_nlink || fstat(p->dir, &folder)) return 0;
    conf_inputs(c, input_check, &s);
    if (!s.key) return 0;
    return err_set(e, E_CANTCREAT, "%s: %s would overwrite what is read%s%s", p->path, what,
                   *s.key ? " as " : ": the configuration", s.key);
}

int output_paths_spare(const struct conf *c, const char *what, const char *path, struct err *e)
{
    struct out_place p;
    if (out_place(path, &p, e)) return -1;
    int bad = spare(c, what, &p, e);
    out_place_free(&p);
    return bad;
}

/* ---- the run directory, which may not exist yet ------------------------------------------------------------------ */

/* Returns the absolute path without links, "." or ".."; its last components need not exist. The caller frees it. */
static char *resolve(const char *path)
{
    char *s = mem_strdup(path), *real = NULL;
    size_t n = strlen(s);
    struct text t = {0};
    while (!(real = realpath(n ? s : ".", NULL)) && n) {
        while (n && s[n - 1] == '/') n--;
        while (n && s[n - 1] != '/') n--;
        s[n] = '\0';
    }
    text_add(&t, "%s", real && strcmp(real, "/") ? real : "");
    free(real);
    free(s);
    for (const char *at = path + n; *at;) {
        size_t k = strcspn(at, "/");
        char *slash = t.s ? strrchr(t.s, '/') : NULL;
        if (k == 2 && strncmp(at, "..", 2) == 0) {
            if (slash) t.n = (size_t)(slash - t.s), t.s[t.n] = '\0';
        } else if (k && !(k == 1 && *at == '.')) text_add(&t, "/%.*s", (int)k, at);
        at += k + (at[k] == '/');
    }
    return t.s;
}

static char *folder_of(const char *path)
{
    char *s = mem_strdup(path), *slash = strrchr(s, '/');
    if (!slash) strcpy(s, *s ? "." : "");
    else slash[slash == s] = '\0';
    return s;
}

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Whether path is the run directory or a folder above it; neither needs to exist. */
static bool above_run(const struct conf *c, const char *path)
{
    char *a = resolve(path), *b = resolve(c->run.directory);
    size_t n = strlen(a);
    bool above = strncmp(a, b, n) == 0 && (!b[n] || b[n] == '/');
    free(a);
    free(b);
    return above;
}

static bool in_run(const struct conf *c, const char *path)
{
    char *folder = folder_of(path), *a = resolve(folder), *b = resolve(c->run.directory);
    bool same = strcmp(a, b) == 0;
    free(folder);
    free(a);
    free(b);
    return same;
}

/* ---- the files --------------------------------------------------------------------------------------------------- */

/* If the folder is the run directory and does not exist, *p stays empty. */
static int output_check(const struct conf *c, const char *key, const char *path, struct out_place *p, struct err *e)
{
    const char *name = name_of(path);
    if (!*path) return conf_error(c, key, e, "the name is empty");
    bool inside = in_run(c, path);
    if (above_run(c, path))
        return err_set(e, E_CANTCREAT, "%s: %s would take the place of the run directory, %s", path, key,
                       c->run.directory);
    if (inside && rundir_owns(name))
        return err_set(e, E_CANTCREAT, "%s: %s would overwrite a file of the run", path, key);
    if (strlen(name) > NAME_MAX) return err_set(e, E_CANTCREAT, "%s: cannot create: %s", path, strerror(ENAMETOOLONG));
    if (inside && access(c->run.directory, F_OK)) return 0;
    bool over = !strcmp(key, "run.predict") && c->run.over_predictions &&
                c->run.predict[strlen(c->run.predict) - 1] == '/';
    return (over ? out_place_over : out_place)(path, p, e) || spare(c, key, p, e) ? -1 : 0;
}

static bool same_name(const struct out_place *a, const char *a_path, const struct out_place *b, const char *b_path)
{
    if (a->path && b->path) return out_is_same(a, b);
    return !a->path && !b->path && strcmp(name_of(a_path), name_of(b_path)) == 0;
}

/* The name of predictions or generated texts, which may be a folder, without the slash at its end. */
static const char *predictions_name(const struct conf *c, char bare[PATH_MAX])
{
    const char *name = c->run.predict ? c->run.predict : c->run.generate;
    if (!name || conf_generates_aloud(c)) return NULL;
    snprintf(bare, PATH_MAX, "%s", name);
    for (size_t n = strlen(bare); n > 1 && bare[n - 1] == '/';) bare[--n] = 0;
    return bare;
}

int output_paths_check(struct outputs *keep, const struct conf *c, struct err *e)
{
    enum { TRACE, GRADIENTS, PREDICTIONS, TABLE, ALL };
    const char *const key[ALL] = {"run.trace", "run.dump_gradients",
                                   c->run.generate ? "run.generate" : "run.predict", "run.kernel_table"};
    bool measures = c->run.kernel_table && access(c->run.kernel_table, F_OK) && errno == ENOENT;
    char bare[PATH_MAX];
    const char *const path[ALL] = {c->run.trace, c->run.dump_gradients, predictions_name(c, bare),
                                   measures ? c->run.kernel_table : NULL};
    struct out_place p[ALL] = {OUT_NOWHERE, OUT_NOWHERE, OUT_NOWHERE, OUT_NOWHERE};
    int bad = 0;
    for (int i = 0; i < ALL && !bad; i++) if (path[i]) bad = output_check(c, key[i], path[i], &p[i], e);
    for (int i = 0; i < ALL && !bad; i++)
        for (int k = 0; k < i && !bad; k++)
            if (path[i] && path[k] && same_name(&p[i], path[i], &p[k], path[k]))
                bad = err_set(e, E_CANTCREAT, "%s: is the name of both %s and %s", path[i], key[k], key[i]);
    struct outputs o = {.trace = p[TRACE], .gradients = p[GRADIENTS], .predictions = p[PREDICTIONS],
                        .weights = OUT_NOWHERE};
    out_place_free(&p[TABLE]);
    if (keep) *keep = o;
    else output_paths_free(&o);
    return bad ? -1 : 0;
}

static int enter(const struct rundir *d, const char *path, struct out_place *p, struct err *e)
{
    if (!path || p->path) return 0;
    return out_place_in(d->fd, d->path, name_of(path), p, e);
}

int output_paths_enter(struct outputs *o, const struct conf *c, const struct rundir *d, struct err *e)
{
    char bare[PATH_MAX];
    return enter(d, c->run.trace, &o->trace, e) || enter(d, c->run.dump_gradients, &o->gradients, e) ||
           enter(d, predictions_name(c, bare), &o->predictions, e) ||
           out_place_in(d->fd, d->path, "weights.safetensors", &o->weights, e) || out_sync_try(&o->weights, e) ? -1 : 0;
}

void output_paths_free(struct outputs *o)
{
    out_place_free(&o->trace);
    out_place_free(&o->gradients);
    out_place_free(&o->predictions);
    out_place_free(&o->weights);
}
