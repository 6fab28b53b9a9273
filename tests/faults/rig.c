#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "rig.h"

static const char shown[] = "checkpoints";
static const char *const kind[RIG_FILES] = {"model", "optimizer"};

static int file_write(const struct out_folder *f, int rank, int k, uint64_t step, struct ckpt_file *out, struct err *e)
{
    enum { BYTES = 1500 };
    char x[BYTES];
    struct out_place at;
    struct out o;
    for (int i = 0; i < BYTES; i++) x[i] = (char)(step * 31 + (uint64_t)(rank * 7 + k * 3 + i));
    snprintf(out->name, sizeof out->name, "%s-%05d-of-00002.safetensors", kind[k], rank + 1);
    out->bytes = BYTES;
    text_hash(x, BYTES, out->hash);
    if (out_place_in(f->fd, f->shown, out->name, &at, e)) return -1;
    int bad = out_begin(&o, &at, NULL, e);
    if (!bad) {
        bad = out_reserve(&o, BYTES, e) || out_write(&o, x, BYTES / 3, e) ||
              out_write(&o, x + BYTES / 3, BYTES - BYTES / 3, e);
        if (bad) out_drop(&o);
        else bad = out_commit(&o, true, e);
    }
    out_place_free(&at);
    return bad ? -1 : 0;
}

int rig_files_write(const struct out_folder *f, int rank, uint64_t step, struct ckpt_file out[RIG_FILES],
                    struct err *e)
{
    for (int k = 0; k < RIG_FILES; k++) if (file_write(f, rank, k, step, &out[k], e)) return -1;
    return 0;
}

int rig_checkpoints(int run, struct err *e)
{
    if (mkdirat(run, shown, 0777) && errno != EEXIST) return err_set(e, E_CANTCREAT, "%s: %s", shown, strerror(errno));
    if (fsync(run)) return err_set(e, E_IO, "%s: %s", shown, strerror(errno));
    int fd = openat(run, shown, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return err_set(e, E_CANTCREAT, "%s: %s", shown, strerror(errno));
    out_folder_sweep(fd, "step-");
    return fd;
}

static void say(const struct rig_save *s, const char *what)
{
    char line[64];
    snprintf(line, sizeof line, "%s %llu", what, (unsigned long long)s->step);
    if (s->said) s->said(line);
}

static int all_write(const struct rig_save *s, const struct out_folder *f, struct err *e)
{
    struct ckpt_file file[2 * RIG_FILES + 1], *index = &file[2 * RIG_FILES];
    const struct ckpt_tensor t[] = {{"fc.weight", file[0].name}, {"fc.bias", file[RIG_FILES].name}};
    struct ckpt c = {.step = s->step, .position = 8 * s->step, .seed = 1, .numerics = (char[]){"threads 1"},
                     .config = (char[]){"0123456789abcdef0123456789abcdef"}, .n_files = 2 * RIG_FILES + 1,
                     .file = file};
    return s->begun(s->ctx, f, e) || rig_files_write(f, 0, s->step, file, e) ||
           s->others(s->ctx, f, s->step, file + RIG_FILES, e) || ckpt_index_write(f, t, 2, 1500, index, e) ||
           ckpt_manifest_write(f, &c, e) ? -1 : 0;
}

static int older_remove(const struct rig_save *s, struct err *e)
{
    uint64_t *step;
    char name[CKPT_NAME];
    int n, bad = ckpt_list(s->dir, shown, &step, &n, e);
    for (int i = 0; !bad && i < n; i++)
        if (step[i] < s->step) bad = out_folder_remove(s->dir, shown, ckpt_name(step[i], name), e);
    free(step);
    return bad ? -1 : 0;
}

int rig_save(const struct rig_save *s, struct err *e)
{
    struct out_folder f;
    char name[CKPT_NAME];
    say(s, "begin");
    if (out_folder_begin(&f, s->dir, shown, ckpt_name(s->step, name), e) || all_write(s, &f, e)) {
        out_folder_drop(&f);
        return -1;
    }
    if (out_folder_commit(&f, e)) return -1;
    say(s, "committed");
    return older_remove(s, e);
}

static int nothing(void *ctx, const struct out_folder *f, struct err *e) { return 0; }

static int second(void *ctx, const struct out_folder *f, uint64_t step, struct ckpt_file out[RIG_FILES], struct err *e)
{
    return rig_files_write(f, 1, step, out, e);
}

int rig_save_alone(int dir, uint64_t step, struct err *e)
{
    const struct rig_save s = {.dir = dir, .step = step, .begun = nothing, .others = second};
    return rig_save(&s, e);
}

int rig_newest(int dir, uint64_t *step, struct err *e)
{
    uint64_t *all;
    struct ckpt c;
    int n;
    *step = 0;
    if (ckpt_list(dir, shown, &all, &n, e)) return -1;
    if (n) *step = all[0];
    int bad = 0;
    for (int i = 0; !bad && i < n; i++) {
        bad = ckpt_verify(dir, shown, all[i], NULL, &c, e);
        if (!bad) ckpt_free(&c);
    }
    free(all);
    return bad;
}
