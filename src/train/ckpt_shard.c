/* Checkpoints: the files of a rank. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "ckpt/st_out.h"
#include "train/ckpt_writer_int.h"

const enum weights_what save_file_what[SAVE_FILES] = {WEIGHTS_ALL, WEIGHTS_OPTIMIZER};
const char *const save_file_word[SAVE_FILES] = {"model", "optimizer"};

static bool has_rows(const struct save *s, int rank, int file)
{
    const struct placement *pl = s->q.job->pl;
    for (int i = 0; i < pl->n_state; i++)
        if (placement_writer(pl, &pl->state[i]) == rank && weights_has(&pl->state[i], save_file_what[file]))
            return true;
    return false;
}

void save_file_name(const struct save *s, int rank, int file, char name[64])
{
    int k = 0, n = 0;
    for (int i = 0; i < save_ranks(s); i++) {
        bool has = has_rows(s, i, file);
        n += has;
        k += has && i <= rank;
    }
    snprintf(name, 64, "%s-%05d-of-%05d.safetensors", save_file_word[file], k, n);
}

struct shard_part { struct save *s; int file; };

static int part_data(void *ctx, int i, void *buf, const void **at, struct err *e)
{
    const struct shard_part *p = ctx;
    int row = p->s->rows[p->file].row[i];
    atomic_fetch_add(&p->s->hold.moved, 1);
    if (!p->s->staging) return exec_state_get(p->s->q.exec, row, buf, e);
    *at = p->s->staging[row];
    return 0;
}

int save_folder_open(const struct save *s, struct text *shown, struct err *e)
{
    int fd = ckpt_folder_open(s->q.rank ? -1 : s->lead.dir, s->q.dir, shown);
    if (fd < 0) err_set(e, E_CANTCREAT, "%s: %s", shown->s, strerror(errno));
    return fd;
}

static int files_write(struct save *s, const struct out_folder *f, struct err *e)
{
    struct st_out out[SAVE_FILES] = {{.open = false}, {.open = false}};
    struct out_place at[SAVE_FILES] = {OUT_NOWHERE, OUT_NOWHERE};
    struct text shown = {0};
    int bad = 0;
    text_add(&shown, "%s/%s", f->shown, f->name);
    for (int i = 0; i < SAVE_FILES && !bad; i++) {
        const struct weights_rows *r = &s->rows[i];
        struct shard_part p = {s, i};
        struct st_body b = {r->n, r->entry, part_data, &p, i == SAVE_MODEL ? s->q.base : NULL};
        char name[64];
        if (!r->n) continue;
        save_file_name(s, s->q.rank, i, name);
        bad = out_place_in(f->fd, shown.s, name, &at[i], e) || st_out_write(&out[i], &at[i], s->q.stop, &b, e);
    }
    atomic_store(&s->hold.on, false);                        /* all state was read: the next optimizer action may run */
    for (int i = 0; i < SAVE_FILES; i++) {
        struct ckpt_file *file = &s->mine.file[s->mine.n];
        if (out[i].open && !bad) {
            snprintf(file->name, sizeof file->name, "%s", at[i].name);
            bad = st_out_commit(&out[i], file->hash, e);
            file->bytes = out[i].bytes;
            s->mine.n += !bad;
        }
        st_out_drop(&out[i]);
        out_place_free(&at[i]);
    }
    text_free(&shown);
    return bad ? -1 : 0;
}

int ckpt_shard_write(struct save *s, struct err *e)
{
    struct text shown = {0};
    struct out_folder f = {.dir = -1, .fd = -1};
    char name[CKPT_NAME];
    int dir = save_folder_open(s, &shown, e);
    int bad = dir < 0 || out_folder_join(&f, dir, shown.s, ckpt_name(s->o.step, name), e) || files_write(s, &f, e);
    out_folder_close(&f);
    if (dir >= 0) close(dir);
    text_free(&shown);
    return bad ? -1 : 0;
}
