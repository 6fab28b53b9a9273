/* mpstagectl why, list and verify: read why.json and checkpoints on disk; no run is needed. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "base/mem.h"
#include "base/text.h"
#include "ckpt/checkpoint.h"
#include "cluster/failure.h"
#include "ctl_say.h"

/* The steps to look at: all in a directory, or one of them. */
struct file_place { int fd; char *shown; uint64_t *step; int n; };

static void place_close(struct file_place *p)
{
    if (p->fd >= 0) close(p->fd);
    free(p->shown);
    free(p->step);
}

static char *path_join(const char *dir, const char *name)
{
    struct text t = {0};
    text_add(&t, "%s/%s", dir, name);
    return t.s;
}

/* Whether the name of dir is that of a checkpoint. The place is then its parent directory. */
static bool single(const char *dir, uint64_t *step, struct file_place *p)
{
    char *real = realpath(dir, NULL), *name = real ? strrchr(real, '/') : NULL;
    bool is = name && name > real && ckpt_step(name + 1, step);
    if (is) {
        *name = 0;
        p->shown = real;
        p->fd = open(real, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    } else free(real);
    return is;
}

/* dir: a checkpoint, a run directory, or a directory of checkpoints. */
static int place_open(const char *dir, struct file_place *p, struct err *e)
{
    uint64_t one;
    struct text folder = {0};
    *p = (struct file_place){.fd = -1};
    if (single(dir, &one, p)) {
        if (p->fd < 0) return err_set(e, E_NOINPUT, "%s: %s", p->shown, strerror(errno));
        p->step = mem_alloc(sizeof *p->step);
        p->step[p->n++] = one;
        return 0;
    }
    p->fd = ckpt_folder_open(-1, dir, &folder);
    p->shown = folder.s;
    if (p->fd < 0) {
        free(p->shown);
        p->shown = path_join(dir, ".");
        p->shown[strlen(dir)] = 0;
        p->fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    }
    if (p->fd < 0) return err_set(e, errno == EACCES ? E_PERM : E_NOINPUT, "%s: %s", dir, strerror(errno));
    return ckpt_list(p->fd, p->shown, &p->step, &p->n, e);
}

/* ---- one checkpoint ---------------------------------------------------------------------------------------------- */

struct found_run { uint64_t step, bytes; int files; struct ckpt c; struct err e; time_t time; };

static void found_read(const struct file_place *p, int i, bool files, struct found_run *f)
{
    char path[CKPT_NAME + 16], name[CKPT_NAME];
    struct stat st;
    *f = (struct found_run){.step = p->step[i]};
    int bad = files ? ckpt_verify(p->fd, p->shown, f->step, NULL, &f->c, &f->e)
                    : ckpt_read(p->fd, p->shown, f->step, &f->c, &f->e);
    for (int k = 0; !bad && k < f->c.n_files; k++) f->bytes += f->c.file[k].bytes;
    f->files = f->c.n_files + 1;                          /* plus the manifest, which does not list itself */
    snprintf(path, sizeof path, "%s/manifest.json", ckpt_name(f->step, name));
    if (fstatat(p->fd, path, &st, 0)) return;
    f->time = st.st_mtime;
    f->bytes += (uint64_t)st.st_size;
}

static const char *when(time_t t, char buf[32])
{
    struct tm tm;
    if (!t || !localtime_r(&t, &tm)) return "-";
    strftime(buf, 32, "%Y-%m-%d %H:%M:%S", &tm);
    return buf;
}

static json_t *found_json(const struct file_place *p, const struct found_run *f, const char *key)
{
    char name[CKPT_NAME], clean[2400], zone[32] = "";
    struct tm tm;
    char *path = path_join(p->shown, ckpt_name(f->step, name));
    json_t *o = json_pack("{s:I,s:s,s:b}", "step", (json_int_t)f->step, "directory",
                          text_printable(path, clean, sizeof clean), key, !f->e.code);
    free(path);
    if (f->time && gmtime_r(&f->time, &tm)) strftime(zone, sizeof zone, "%Y-%m-%dT%H:%M:%SZ", &tm);
    if (*zone) json_object_set_new(o, "time", json_string(zone));
    if (f->e.code) json_object_set_new(o, "error", json_string(text_printable(f->e.text, clean, sizeof clean)));
    else {
        json_object_set_new(o, "bytes", json_integer((json_int_t)f->bytes));
        json_object_set_new(o, "files", json_integer(f->files));
    }
    if (f->c.score)
        json_object_set_new(o, "score", json_pack("{s:s,s:f}", "name", f->c.score, "value", f->c.value));
    return o;
}

/* ---- list -------------------------------------------------------------------------------------------------------- */

static void row_print(const struct found_run *f, bool best)
{
    char bytes[32], date[32], score[60] = "-", line[200], clean[400];
    if (f->c.score) snprintf(score, sizeof score, "%.24s %.6g%s", f->c.score, f->c.value, best ? "  best" : "");
    if (f->e.code) snprintf(score, sizeof score, "%s", f->e.code == E_DATA ? "damaged"
                                 : f->e.code == E_CONF ? "of another version" : "unreadable");
    snprintf(line, sizeof line, "%12llu  %11s  %-19s  %s", (unsigned long long)f->step,
             f->e.code ? "-" : text_bytes(f->bytes, bytes), when(f->time, date), score);
    puts(text_printable(line, clean, sizeof clean));
}

/* The newest readable checkpoint knows the step of the best evaluation. */
static int list_print(const char *dir, const struct file_place *p, bool json)
{
    json_t *all = json_array(), *o;
    struct found_run f;
    uint64_t best = 0;
    if (!json && !p->n) ctl_said(dir, "no checkpoints");
    else if (!json) puts("        step         size  date                 score");
    for (int i = 0; i < p->n; i++) {
        found_read(p, i, false, &f);
        if (!best && *f.c.best.score) best = f.c.best.step;
        bool is_best = f.c.score && f.step == best && !strcmp(f.c.score, f.c.best.score);
        if (json) {
            json_array_append_new(all, o = found_json(p, &f, "readable"));
            if (f.c.score) json_object_set_new(o, "best", json_boolean(is_best));
        } else row_print(&f, is_best);
        ckpt_free(&f.c);
    }
    if (json) ctl_json_print(all, false);
    json_decref(all);
    return 0;
}

/* ---- verify ------------------------------------------------------------------------------------------------------ */

static int verify_print(const char *dir, const struct file_place *p, bool json)
{
    json_t *all = json_array();
    char name[CKPT_NAME], bytes[32];
    struct found_run f;
    int code = 0;
    for (int i = 0; i < p->n; i++) {
        found_read(p, i, true, &f);
        if (f.e.code) code = code ? code : f.e.code;
        if (json) json_array_append_new(all, found_json(p, &f, "valid"));
        else if (f.e.code) ctl_fail(f.e.code, "%s", f.e.text);
        else printf("%s: valid, %d files, %s\n", ckpt_name(f.step, name), f.files, text_bytes(f.bytes, bytes));
        ckpt_free(&f.c);
    }
    if (json) ctl_json_print(all, false);
    json_decref(all);
    return p->n ? code : ctl_fail(E_NOINPUT, "%s: no checkpoints", dir);
}

static int files_do(const char *dir, bool json, int (*print)(const char *dir, const struct file_place *p, bool json))
{
    struct file_place p;
    struct err e = {0};
    int code = place_open(dir, &p, &e) ? ctl_fail(e.code, "%s", e.text) : print(dir, &p, json);
    place_close(&p);
    return code;
}

int ctl_list(const char *dir, bool json) { return files_do(dir, json, list_print); }
int ctl_verify(const char *dir, bool json) { return files_do(dir, json, verify_print); }

/* ---- why --------------------------------------------------------------------------------------------------------- */

static void why_print(const struct failure *f, bool helps)
{
    char text[4 * sizeof f->e.text], host[4 * FAILURE_HOST], action[4 * FAILURE_ACTION];
    printf("status %d: %s\n", f->e.code, text_printable(f->e.text, text, sizeof text));
    text_printable(f->host, host, sizeof host);
    text_printable(f->action, action, sizeof action);
    if (f->rank >= 0) printf("rank %d%s%s%s%s\n", (int)f->rank, *host ? " on " : "", host, *action ? ": " : "", action);
    printf("a restart %s\n", helps ? "may help" : "ends in the same way");
}

int ctl_why(const char *dir, bool json)
{
    struct failure f;
    struct err e = {0};
    if (failure_read(dir, &f, &e)) {
        const bool none = e.code == E_NOINPUT && !access(dir, F_OK);
        return none ? ctl_fail(e.code, "%s: it has no " FAILURE_FILE ", which a run leaves that fails", dir)
                    : ctl_fail(e.code, "%s", e.text);
    }
    bool helps = failure_may_pass(f.e.code);
    char *path = path_join(dir, FAILURE_FILE);
    json_t *all = json ? json_load_file(path, 0, NULL) : NULL;
    if (all) ctl_json_print(all, false);
    else why_print(&f, helps);
    json_decref(all);
    free(path);
    return ctl_output_end(helps ? 0 : f.e.code);
}
