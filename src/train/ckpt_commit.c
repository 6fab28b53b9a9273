/* Checkpoints: what rank 0 adds to the files of all ranks, the commit, and the removal of old ones. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/clock.h"
#include "report/scores.h"
#include "cluster/heartbeat.h"
#include "report/reporter.h"
#include "report/result.h"
#include "train/ckpt_writer_int.h"

static void index_add(const struct save *s, struct ckpt_tensor *t, char (*name)[64], int *n, uint64_t *total)
{
    const struct placement *pl = s->q.job->pl;
    for (int i = 0; i < save_ranks(s); i++) save_file_name(s, i, SAVE_MODEL, name[i]);
    for (int i = 0; i < pl->n_state; i++) {
        const struct state_row *r = &pl->state[i];
        if (!weights_has(r, WEIGHTS_ALL)) continue;
        t[(*n)++] = (struct ckpt_tensor){r->name, name[placement_writer(pl, r)]};
        *total += state_plain_bytes(r);
    }
}

static int index_write(const struct save *s, const struct out_folder *f, struct ckpt_file *is, struct err *e)
{
    struct ckpt_tensor *t = mem_alloc((size_t)s->q.job->pl->n_state * sizeof *t + 1);
    char (*name)[64] = mem_alloc((size_t)save_ranks(s) * sizeof *name);
    uint64_t total = 0;
    int n = 0;
    index_add(s, t, name, &n, &total);
    int bad = ckpt_index_write(f, t, n, total, is, e);
    free(name);
    free(t);
    return bad;
}

static int manifest_write(struct save *s, const struct out_folder *f, const struct ckpt_file *index,
                          const struct saved *part, uint64_t *bytes, struct err *e)
{
    struct ckpt c = *s->head;
    char when[32];
    c.step = s->o.step;
    c.position = s->o.position;
    c.evaluate = s->o.what & CHECKPOINT_EVALUATES;
    c.generate = s->o.what & CHECKPOINT_GENERATES;
    c.skipped = s->skipped;
    c.updates = c.step - s->past.n_skipped;
    c.before = s->past.before;
    c.best = s->so_far;
    c.has_rate = s->o.learning_rate >= 0;
    c.rate = s->o.learning_rate;
    c.score = *s->score ? (char *)s->score : NULL;
    c.value = s->value;
    c.written = clock_rfc3339(when);
    c.n_files = 0;
    c.file = mem_alloc(((size_t)save_ranks(s) * SAVE_FILES + 1) * sizeof *c.file);
    c.file[c.n_files++] = *index;
    *bytes = index->bytes;
    for (int k = 0; k < SAVE_FILES; k++)                       /* models first */
        for (int i = 0; i < save_ranks(s); i++)
            for (int j = 0; j < part[i].n; j++) {
                const struct ckpt_file *file = &part[i].file[j];
                if (strncmp(file->name, save_file_word[k], strlen(save_file_word[k]))) continue;
                *bytes += file->bytes;
                c.file[c.n_files] = *file;
                c.file[c.n_files++].rank = i;
            }
    int bad = ckpt_manifest_write(f, &c, e);
    free(c.file);
    return bad;
}

/* Whether a checkpoint is better than the best so far, by the score that checkpoint.best names. */
static bool better(const char *score, const struct ckpt *a, bool any, double best)
{
    if (!a->score || strcmp(a->score, score)) return false;
    return !any || score_better(score, a->value, best);
}

/* The step of the best one up to this step; 0: none has that score. The list begins with the newest and is read from
 * its end. So of equal scores the first one wins, as in the run itself (so_far_take). */
static uint64_t best_of(const struct save *s, int dir, const char *shown, const uint64_t *step, int n)
{
    uint64_t found = 0;
    double best = 0;
    for (int i = n - 1; i >= 0 && *s->best; i--) {
        struct ckpt k;
        struct err none = {0};
        if (step[i] > s->o.step || ckpt_read(dir, shown, step[i], &k, &none)) continue;
        if (better(s->best, &k, found != 0, best)) found = step[i], best = k.value;
        ckpt_free(&k);
    }
    return found;
}

int save_old_remove(const struct save *s, int dir, const char *shown, struct err *e)
{
    uint64_t *step;
    int n, kept = 0, bad = ckpt_list_of(dir, shown, s->head->run, &step, &n, e);
    uint64_t best = bad ? 0 : best_of(s, dir, shown, step, n);
    for (int i = 0; i < n && !bad; i++) {
        char name[CKPT_NAME];
        if (step[i] > s->o.step || kept++ < s->keep || step[i] == best) continue;
        bad = out_folder_remove(dir, shown, ckpt_name(step[i], name), e);
    }
    free(step);
    return bad ? -1 : 0;
}

/* Checks that a file that another rank reported is in rank 0's folder: that rank's host may have a local folder of the
 * same name. Opening the file makes a network file system ask its server. */
static int part_check(const struct save *s, const struct out_folder *f, int rank, const struct ckpt_file *is,
                     struct err *e)
{
    struct stat st;
    int fd = openat(f->fd, is->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    int why = fd < 0 || fstat(fd, &st) ? errno : 0;
    if (fd >= 0) close(fd);
    if (!why && S_ISREG(st.st_mode) && (uint64_t)st.st_size == is->bytes) return 0;
    char size[64] = "";
    const char *host = heartbeat_host(rank);
    if (!why) snprintf(size, sizeof size, "it has %lld bytes, not %llu", (long long)st.st_size,
                       (unsigned long long)is->bytes);
    return err_set(e, E_IO, "%s/%s/%s/%s: rank %d%s%s has written it, but here: %s; all hosts need one shared folder",
                   s->q.dir, CKPT_FOLDER, f->aside, is->name, rank, *host ? " on " : "", host,
                   why ? strerror(why) : size);
}

static int parts_check(const struct save *s, const struct out_folder *f, const struct saved *part, struct err *e)
{
    for (int i = 0; i < save_ranks(s); i++)
        for (int j = 0; j < part[i].n; j++) if (part_check(s, f, i, &part[i].file[j], e)) return -1;
    return 0;
}

int ckpt_commit(struct save *s, int dir, const char *shown, const struct saved *part, uint64_t *bytes,
                  struct err *e)
{
    struct out_folder f;
    struct ckpt_file index;
    char name[CKPT_NAME];
    int bad = out_folder_join(&f, dir, shown, ckpt_name(s->o.step, name), e);
    if (!bad) bad = parts_check(s, &f, part, e);
    if (!bad) bad = index_write(s, &f, &index, e) || manifest_write(s, &f, &index, part, bytes, e);
    if (!bad && s->lead.reporters) bad = reporters_sync(s->lead.reporters, e);
    if (!bad) return out_folder_commit(&f, e);
    out_folder_drop(&f);
    return -1;
}
