#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "report/label_maps.h"
#include "data/contact_sheet.h"
#include "data/slices.h"
#include "data/volumes.h"

static const char suffix[] = ".nii.gz", scores_name[] = "scores.csv", montage_name[] = "montage.png";

struct label_maps {
    const struct job *j;
    struct ds *d;
    const atomic_int *stop;
    struct out_folder folder;
    bool open, replaces;                                 /* the folder is open; it replaces an earlier one */
    char *shown;                                         /* the folder's path in texts */
    int64_t channels, side[3];                           /* of the output; its axes, in the sample's order */
    int classes;
    uint64_t volume;                                     /* the volume whose parts come now */
    uint8_t *whole;                                      /* its labels, as the network sees the volume */
    struct label_score all[NIFTI_LABELS];
    bool scored;                                         /* the labels of a volume are known */
    struct text scores;
    struct contact_sheet *sheet;
    int shows, height, width;
    uint8_t *rgb;
};

/* ---- scores ------------------------------------------------------------------------------------------------------ */

void label_score_add(struct label_score *s, int class, const uint8_t *truth, const uint8_t *guess, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        s->truth += truth[i] == class;
        s->guess += guess[i] == class;
        s->both += truth[i] == class && guess[i] == class;
    }
}

/* A field of CSV, by RFC 4180. */
static void field_add(struct text *t, const char *s)
{
    const bool quoted = strpbrk(s, ",\"\r\n") != NULL;
    if (quoted) text_add(t, "\"");
    for (; *s; s++) text_add(t, *s == '"' ? "\"%c" : "%c", *s);
    if (quoted) text_add(t, "\"");
}

static double dice_of(const struct label_score *s) { return 2 * (double)s->both / (double)(s->truth + s->guess); }

void label_score_line(const struct label_score *s, const char *volume, const char *class, struct text *out)
{
    field_add(out, volume);
    text_add(out, ",");
    field_add(out, class);
    text_add(out, ",%llu,%llu,%llu,%llu,", (unsigned long long)s->truth, (unsigned long long)s->both,
             (unsigned long long)(s->guess - s->both), (unsigned long long)(s->truth - s->both));
    if (s->truth) text_add(out, "%.9g", dice_of(s));
    text_add(out, "\n");
}

static const char *class_name(const struct label_maps *m, int k, char number[16])
{
    snprintf(number, 16, "%d", k);
    return m->d->class_name && k < m->d->n_classes ? m->d->class_name[k] : number;
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static const char *base_of(const struct volume *v)
{
    const char *slash = strrchr(v->image.path, '/');
    return slash ? slash + 1 : v->image.path;
}

/* "imagesTs/a.nii" becomes "a.nii.gz" */
static char *file_name(const struct volume *v)
{
    struct text t = {0};
    const char *base = base_of(v);
    size_t n = strlen(base);
    if (n > 3 && !strcmp(base + n - 3, ".gz")) n -= 3;
    if (n > 4 && !strncmp(base + n - 4, ".nii", 4)) n -= 4;
    text_add(&t, "%.*s%s", (int)n, base, suffix);
    return t.s;
}

static int order(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static int names_check(const struct label_maps *m, struct err *e)
{
    const uint64_t n = volumes_count(m->d);
    char **name = mem_alloc(n * sizeof *name);
    int bad = 0;
    for (uint64_t i = 0; i < n; i++) name[i] = file_name(volumes_at(m->d, i));
    qsort(name, n, sizeof *name, order);
    for (uint64_t i = 1; i < n && !bad; i++)
        if (!strcmp(name[i - 1], name[i]))
            bad = err_set(e, E_CANTCREAT, "%s: two volumes would be %s", m->shown, name[i]);
    for (uint64_t i = 0; i < n; i++) free(name[i]);
    free(name);
    return bad;
}

static int shape_check(struct label_maps *m, struct err *e)
{
    char s[96];
    const struct shape *out = &m->j->graph->tensor[m->j->output].shape, *in = NULL;
    for (int i = 0; i < m->d->n_fields; i++) if (m->d->field[i].role == ROLE_SAMPLE) in = &m->d->field[i].shape;
    if (!volumes_count(m->d) || !in)
        return conf_error(m->j->conf, "run.predict", e, "a folder is for label maps, and samples are not volumes: "
                          "expected FILE.csv, FILE.jsonl or FILE.npy");
    bool fits = out->n == 4 && out->d[0] <= NIFTI_LABELS;
    for (int i = 1; i < 4 && fits; i++) fits = out->d[i] == in->d[i];
    if (!fits)
        return conf_error(m->j->conf, "run.predict", e, "a folder is for label maps, and the network's output is %s: "
                          "expected FILE.csv, FILE.jsonl or FILE.npy", shape_text(out, s));
    m->channels = out->d[0];
    m->classes = m->channels > 1 ? (int)m->channels : 2;
    for (int i = 0; i < 3; i++) m->side[i] = out->d[1 + i];
    return 0;
}

/* Makes a picture for each volume, as many as fit, all of the size of the largest one. */
static void contact_sheet_make(struct label_maps *m)
{
    const uint64_t n = volumes_count(m->d);
    char title[100];
    bool truth = false;
    for (uint64_t i = 0; i < n; i++) {
        const struct volume *v = volumes_at(m->d, i);
        if (v->grid.size[0] > m->width) m->width = (int)v->grid.size[0];
        if (v->grid.size[1] > m->height) m->height = (int)v->grid.size[1];
        truth |= v->label.path != NULL;
    }
    m->shows = contact_sheet_takes((int64_t)n, m->height, m->width);
    if (!m->shows) return;
    m->sheet = contact_sheet_new(m->shows, m->height, m->width);
    m->rgb = mem_alloc((size_t)m->height * (size_t)m->width * 3);
    snprintf(title, sizeof title, "%d of %llu volumes: %spredicted red", m->shows, (unsigned long long)n,
             truth ? "truth green, both yellow, " : "");
    contact_sheet_title(m->sheet, title);
}

/* Whether a prediction wrote this map. The name does not tell: a user's images and labels have such names, too. */
static bool map_check(int folder, const char *name)
{
    const size_t n = strlen(name), tail = sizeof suffix - 1;
    struct stat st;
    if (n <= tail || strcmp(name + n - tail, suffix)) return false;
    int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    bool own = fd >= 0 && !fstat(fd, &st) && S_ISREG(st.st_mode) && nifti_is_added(fd, name);
    if (fd >= 0) close(fd);
    return own;
}

/* With run.overwrite an earlier prediction may be replaced, but no folder that has other files. */
static int earlier_check(const struct out_place *at, struct err *e)
{
    int fd = openat(at->dir, at->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), bad = 0;
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    bool files = false, maps = false;
    if (!d && fd >= 0) close(fd);
    if (!d) return err_set(e, E_CANTCREAT, "%s: cannot open: %s", at->path, strerror(errno));
    for (struct dirent *f; !bad && (f = readdir(d));) {
        if (!strcmp(f->d_name, ".") || !strcmp(f->d_name, "..")) continue;
        const bool map = map_check(fd, f->d_name);
        files = true;
        maps |= map;
        if (!map && strcmp(f->d_name, scores_name) && strcmp(f->d_name, montage_name))
            bad = err_set(e, E_CANTCREAT, "%s/%s: is not a file of a prediction, so its folder is not replaced",
                          at->path, f->d_name);
    }
    closedir(d);
    if (bad || !files || maps) return bad;
    return err_set(e, E_CANTCREAT, "%s: is not the map of a prediction, so it is not replaced", at->path);
}

static int folder_begin(struct label_maps *m, const struct out_place *at, struct err *e)
{
    const size_t n = strlen(at->path) - strlen(at->name);
    struct text above = {0};
    struct stat st;
    char aside[sizeof m->folder.aside];
    if (strlen(at->name) >= sizeof m->folder.name)
        return err_set(e, E_CANTCREAT, "%s: the name is too long", at->path);
    bool there = !fstatat(at->dir, at->name, &st, AT_SYMLINK_NOFOLLOW);
    m->replaces = there && S_ISDIR(st.st_mode) && m->j->conf->run.over_predictions;
    if (m->replaces ? earlier_check(at, e) : out_stat(at, &st, e)) return -1;
    if (there && !m->replaces) return err_set(e, E_CANTCREAT, "%s: is there already", at->path);
    snprintf(aside, sizeof aside, "%s.tmp", at->name);  /* out_folder_begin would empty it */
    if (!fstatat(at->dir, aside, &st, AT_SYMLINK_NOFOLLOW))
        return err_set(e, E_CANTCREAT, "%s.tmp: is in the way, perhaps of a prediction that was killed: remove it",
                       at->path);
    snprintf(aside, sizeof aside, "%s" OUT_FOLDER_ASIDE, at->name);
    if (m->replaces && !fstatat(at->dir, aside, &st, AT_SYMLINK_NOFOLLOW))
        return err_set(e, E_CANTCREAT, "%s" OUT_FOLDER_ASIDE ": is in the way: remove it", at->path);
    text_add(&above, "%.*s", n > 1 ? (int)n - 1 : (int)n, at->path);
    int bad = out_folder_try(at->dir, n ? above.s : ".", e);
    if (!bad) {
        m->open = true;
        bad = out_folder_begin(&m->folder, at->dir, n ? above.s : ".", at->name, e);
    }
    text_free(&above);
    return bad;
}

int label_maps_open(const struct job *j, const struct out_place *at, const atomic_int *stop, struct label_maps **out,
                    struct err *e)
{
    struct label_maps *m = mem_alloc(sizeof *m);
    *m = (struct label_maps){.j = j, .d = j->data[DS_TEST], .stop = stop, .shown = mem_strdup(at->path)};
    *out = m;
    if (shape_check(m, e) || names_check(m, e) || volumes_classes(m->d, j->conf, m->classes, e) ||
        folder_begin(m, at, e)) return -1;
    uint64_t most = 0;
    for (uint64_t i = 0; i < volumes_count(m->d); i++) {
        uint64_t n = volume_count(volumes_at(m->d, i)->grid.size);
        if (n > most) most = n;
    }
    m->whole = mem_alloc(most);
    text_add(&m->scores, "volume,class,voxels,true_positive,false_positive,false_negative,dice\n");
    contact_sheet_make(m);
    return 0;
}

/* ---- volumes ----------------------------------------------------------------------------------------------------- */

static int file_write(const struct label_maps *m, const char *name, const struct text *t, struct err *e)
{
    struct out_place at = OUT_NOWHERE;
    struct out o;
    int bad = out_place_in(m->folder.fd, m->shown, name, &at, e) || out_begin(&o, &at, m->stop, e);
    if (!bad) {
        bad = out_write(&o, t->s, t->n, e);
        if (bad) out_drop(&o);
        else bad = out_commit(&o, true, e);
    }
    out_place_free(&at);
    return bad ? -1 : 0;
}

/* Adds the scores of a volume. Returns the mean Dice of the classes that it has; -1: it has none. */
static double scores_add(struct label_maps *m, const struct volume *v, const uint8_t *truth, const uint8_t *guess)
{
    double sum = 0;
    int n = 0;
    m->scored = true;
    for (int k = 1; k < m->classes; k++) {
        struct label_score s = {0};
        char number[16];
        label_score_add(&s, k, truth, guess, nifti_voxels(&v->image));
        label_score_line(&s, v->image.path, class_name(m, k, number), &m->scores);
        m->all[k] = (struct label_score){m->all[k].truth + s.truth, m->all[k].guess + s.guess, m->all[k].both + s.both};
        if (!s.truth) continue;
        sum += dice_of(&s);
        n++;
    }
    return n ? sum / n : -1;
}

static int picture_add(struct label_maps *m, const struct volume *v, double dice, struct err *e)
{
    struct slices s = {.guess = m->whole, .size = {v->grid.size[0], v->grid.size[1], v->grid.size[2]}};
    if (m->volume >= (uint64_t)m->shows) return 0;
    s.values = volumes_values_take(m->d, m->volume, e);
    if (!s.values) return -1;
    s.truth = v->label.path ? volumes_labels_take(m->d, m->volume, e) : NULL;
    const bool bad = v->label.path && !s.truth;
    if (!bad) {
        struct text t = {0};
        text_add(&t, "%s\n", base_of(v));
        if (dice >= 0) text_add(&t, "Dice %.3f", dice);
        slices_draw(&s, slices_best(&s), m->rgb, m->height, m->width);
        contact_sheet_put(m->sheet, (int)m->volume, m->rgb, t.s);
        text_free(&t);
    }
    volumes_values_give(m->d, m->volume);
    if (s.truth) volumes_labels_give(m->d, m->volume);
    return bad ? -1 : 0;
}

/* Finishes a volume after all its parts have come. */
static int volume_end(struct label_maps *m, const struct volume *v, struct err *e)
{
    const uint64_t n = nifti_voxels(&v->image);
    uint8_t *guess = mem_alloc(n), *truth = mem_alloc(n);
    struct text file = {0};
    double dice = -1;
    volume_back(&v->grid, m->whole, guess);
    nifti_add(&file, &v->image, guess);
    char *name = file_name(v);
    int bad = v->label.path ? volumes_stored_labels(m->d, m->volume, truth, e) : 0;
    if (!bad) bad = file_write(m, name, &file, e);
    if (!bad && v->label.path) dice = scores_add(m, v, truth, guess);
    free(name);
    text_free(&file);
    free(guess);
    free(truth);
    return bad || picture_add(m, v, dice, e) ? -1 : 0;
}

/* from: lowest value of class 1 for a single channel */
static uint8_t label_of(const float *x, int64_t channels, int64_t step, float from)
{
    int best = 0;
    if (channels == 1) return *x >= from;
    for (int64_t k = 1; k < channels; k++) if (x[k * step] > x[best * step]) best = (int)k;
    return (uint8_t)best;
}

int label_maps_add(struct label_maps *m, const float *x, uint64_t sample, struct err *e)
{
    int64_t corner[3], i[3], at[3];
    const struct volume *v = volumes_find(m->d, sample, corner);
    const struct op_kind *loss = m->j->graph->loss_op;
    const float from = loss && loss->logits && !m->j->conf->run.predict_tensor ? 0 : 0.5f;
    const int64_t *size = v->grid.size, n = m->side[0] * m->side[1] * m->side[2];
    for (int64_t k = 0; k < n; k++) {
        i[0] = k / m->side[2] / m->side[1];
        i[1] = k / m->side[2] % m->side[1];
        i[2] = k % m->side[2];
        for (int a = 0; a < 3; a++) at[volumes_axis(m->d, a)] = i[a] + corner[volumes_axis(m->d, a)];
        m->whole[(at[0] * size[1] + at[1]) * size[2] + at[2]] = label_of(x + k, m->channels, n, from);
    }
    if (sample + 1 < v->first + (uint64_t)(v->tiles[0] * v->tiles[1] * v->tiles[2])) return 0;
    if (volume_end(m, v, e)) return -1;
    m->volume++;
    return 0;
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

static int scores_write(struct label_maps *m, struct err *e)
{
    for (int k = 1; k < m->classes && m->scored; k++) {
        char number[16];
        label_score_line(&m->all[k], "all", class_name(m, k, number), &m->scores);
    }
    return m->scored ? file_write(m, scores_name, &m->scores, e) : 0;
}

static int montage_write(struct label_maps *m, struct err *e)
{
    struct text png = {0};
    if (!m->sheet) return 0;
    int bad = contact_sheet_png(m->sheet, &png, e) || file_write(m, montage_name, &png, e);
    text_free(&png);
    return bad ? -1 : 0;
}

/* Removes an earlier prediction after the new one has its name. */
static int folder_commit(struct label_maps *m, struct err *e)
{
    struct text shown = {0}, path = {0};
    char old[sizeof m->folder.name + sizeof OUT_FOLDER_ASIDE];
    if (!m->replaces) return out_folder_commit(&m->folder, e);
    int dir = dup(m->folder.dir);
    snprintf(old, sizeof old, "%s" OUT_FOLDER_ASIDE, m->folder.name);
    text_add(&shown, "%s", m->folder.shown);
    text_add(&path, "%s/%s", shown.s, m->folder.name);
    struct out_place earlier = {.dir = dir, .path = path.s, .name = m->folder.name};
    int bad = earlier_check(&earlier, e);                  /* checked again: a user may have added a file */
    if (bad) err_where(e, "the new maps are in %s/%s", shown.s, m->folder.aside);
    else bad = out_folder_aside(dir, shown.s, m->folder.name, e) < 0;
    if (bad) out_folder_close(&m->folder);
    else bad = out_folder_commit(&m->folder, e) || out_folder_remove(dir, shown.s, old, e);
    text_free(&shown);
    text_free(&path);
    close(dir);
    return bad ? -1 : 0;
}

int label_maps_commit(struct label_maps *m, struct err *e)
{
    if (scores_write(m, e) || montage_write(m, e)) return -1;
    m->open = false;
    return folder_commit(m, e);
}

void label_maps_free(struct label_maps *m)
{
    if (!m) return;
    if (m->open) out_folder_drop(&m->folder);
    contact_sheet_free(m->sheet);
    text_free(&m->scores);
    free(m->rgb);
    free(m->whole);
    free(m->shown);
    free(m);
}
