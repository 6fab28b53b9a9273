/* --compare: tensors of checkpoints and of final weights, by name. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/file.h"
#include "base/half.h"
#include "ckpt/st.h"
#include "cli/compare_int.h"

struct named_tensor { const struct st *file; const struct st_tensor *t; int rank; bool seen; };
/* The tensors of a checkpoint, or of one file of weights; v is in the order of names. */
struct tensor_set { struct st **file; int n_files; VEC(struct named_tensor) v; };

static int by_tensor_name(const void *a, const void *b)
{
    const struct named_tensor *x = a, *y = b;
    return strcmp(x->t->name, y->t->name);
}

/* The rank that wrote a file. c NULL: unknown. */
static int rank_of_file(const struct ckpt *c, const struct st *file)
{
    for (int i = 0; c && i < c->n_files; i++)
        if (!strcmp(c->file[i].name, strrchr(file->path, '/') + 1)) return c->file[i].rank;
    return -1;
}

static void set_fill(struct tensor_set *s, const struct ckpt *c)
{
    for (int i = 0; i < s->n_files; i++)
        for (int k = 0; k < s->file[i]->n; k++)
            *vec_push(&s->v) = (struct named_tensor){s->file[i], &s->file[i]->t[k], rank_of_file(c, s->file[i]), false};
    if (s->v.n) qsort(s->v.v, (size_t)s->v.n, sizeof *s->v.v, by_tensor_name);
}

static void set_free(struct tensor_set *s)
{
    for (int i = 0; i < s->n_files; i++) st_close(s->file[i]);
    free(s->file);
    vec_free(&s->v);
}

static struct named_tensor *set_find(const struct tensor_set *s, const char *name)
{
    const struct st_tensor wanted = {.name = name};
    const struct named_tensor key = {.t = &wanted};
    return s->v.n ? bsearch(&key, s->v.v, (size_t)s->v.n, sizeof *s->v.v, by_tensor_name) : NULL;
}

/* ---- one tensor -------------------------------------------------------------------------------------------------- */

static bool float_value(const char *dtype, const void *p, double *x)
{
    float f;
    uint16_t half;
    memcpy(&half, p, sizeof half);
    if (!strcmp(dtype, "F64")) memcpy(x, p, sizeof *x);
    else if (!strcmp(dtype, "F32")) memcpy(&f, p, sizeof f), *x = (double)f;
    else if (!strcmp(dtype, "BF16")) *x = (double)bf16_widen(half);
    else if (!strcmp(dtype, "F16")) *x = (double)f16_widen(half);
    else return false;
    return true;
}

/* Whole numbers, and the bits of numbers that look alike: two NaN. */
static void element_text(const struct st_tensor *t, const char *p, size_t size, struct text *out)
{
    int64_t whole = 0;
    memcpy(&whole, p, size);
    if (!strcmp(t->dtype, "I64")) text_add(out, "%" PRId64, whole);
    else text_add(out, "0x%0*" PRIx64, (int)(2 * size), (uint64_t)whole);
}

static void elements_text(const struct st_tensor *t, const char *a, const char *b, size_t size, struct text value[2])
{
    double x, y;
    if (size > 1 && float_value(t->dtype, a, &x) && float_value(t->dtype, b, &y)) number_texts(x, y, value);
    if (value[0].n && strcmp(value[0].s, value[1].s) != 0) return;
    value[0].n = value[1].n = 0;
    element_text(t, a, size, &value[0]);
    element_text(t, b, size, &value[1]);
}

static bool same_form(const struct st_tensor *a, const struct st_tensor *b)
{
    bool same = !strcmp(a->dtype, b->dtype) && a->shape.n == b->shape.n;
    for (int i = 0; same && i < a->shape.n; i++) same = a->shape.d[i] == b->shape.d[i];
    return same;
}

static void form_text(const struct st_tensor *t, struct text *out)
{
    text_add(out, "%s [", t->dtype);
    for (int i = 0; i < t->shape.n; i++) text_add(out, "%s%" PRId64, i ? ", " : "", t->shape.d[i]);
    text_add(out, "]");
}

/* A piece of both tensors, whose bytes differ, from that byte of the tensor on. */
static void element_take(const struct st_tensor *t, const char *a, const char *b, uint64_t at, struct run_difference *d)
{
    const size_t size = (size_t)((t->end - t->begin) / (uint64_t)shape_count(&t->shape));
    size_t i = 0;
    while (a[i] == b[i]) i++;
    i -= i % size;
    d->element = (int64_t)((at + i) / size);
    elements_text(t, a + i, b + i, size, d->value);
}

/* 1: they differ, and d says where, unless it has an earlier one; 0: they are equal. */
static int bytes_compare(const struct named_tensor *a, const struct named_tensor *b, struct run_difference *d,
                         struct err *e)
{
    enum { PIECE = 1 << 20 };
    const uint64_t all = a->t->end - a->t->begin;
    char *x = mem_alloc(2 * PIECE), *y = x + PIECE;
    int is = 0;
    for (uint64_t at = 0; at < all && !is; at += PIECE) {
        const size_t n = all - at < PIECE ? (size_t)(all - at) : PIECE;
        if (st_read_part(a->file, a->t, at, x, n, e) || st_read_part(b->file, b->t, at, y, n, e)) is = -1;
        else if (memcmp(x, y, n) != 0) is = 1;
        if (is > 0 && !d->found) element_take(a->t, x, y, at, d);
    }
    free(x);
    return is;
}

/* a or b NULL: only the other run has it. Counts, and notes the first. */
static int pair_compare(struct named_tensor *a, struct named_tensor *b, struct run_difference *d, struct err *e)
{
    const struct named_tensor *both[] = {a, b};
    int is = 1;
    if (a) a->seen = true;
    if (b) b->seen = true;
    d->tensors++;
    if (!d->found) d->only = a && b ? -1 : !a, d->element = -1;
    if (a && b && same_form(a->t, b->t)) is = bytes_compare(a, b, d, e);
    else if (a && b && !d->found) form_text(a->t, &d->value[0]), form_text(b->t, &d->value[1]);
    if (is <= 0) return is;
    d->differ++;
    if (d->found) return 0;
    d->found = true;
    text_add(&d->what, "%s", (a ? a : b)->t->name);
    for (int i = 0; i < 2; i++) d->rank[i] = both[i] ? both[i]->rank : -1;
    return 0;
}

/* order: names in the order of the network, as keys of an object; all others follow by name. */
static int sets_compare(struct tensor_set *a, struct tensor_set *b, json_t *order, struct run_difference *d,
                        struct err *e)
{
    const char *name;
    json_t *v;
    int bad = 0;
    json_object_foreach(order, name, v) {
        struct named_tensor *x = set_find(a, name);
        if (x && !bad) bad = pair_compare(x, set_find(b, name), d, e);
    }
    for (int i = 0; i < a->v.n && !bad; i++)
        if (!a->v.v[i].seen) bad = pair_compare(&a->v.v[i], set_find(b, a->v.v[i].t->name), d, e);
    for (int i = 0; i < b->v.n && !bad; i++)
        if (!b->v.v[i].seen) bad = pair_compare(NULL, &b->v.v[i], d, e);
    return bad ? -1 : 0;
}

/* ---- checkpoints ------------------------------------------------------------------------------------------------- */

/* The checkpoints of a run, the newest first. dir -1: it has none. */
struct run_checkpoints { int dir, n; struct text shown; uint64_t *step; };

static int run_checkpoints_open(struct run_checkpoints *k, const char *run, struct err *e)
{
    k->dir = ckpt_folder_open(-1, run, &k->shown);
    if (k->dir >= 0) return ckpt_list(k->dir, k->shown.s, &k->step, &k->n, e);
    return errno == ENOENT ? 0 : file_missing(k->shown.s, e);
}

static void run_checkpoints_close(struct run_checkpoints *k)
{
    if (k->dir >= 0) close(k->dir);
    free(k->step);
    text_free(&k->shown);
}

static bool same_files(const struct ckpt *a, const struct ckpt *b)
{
    bool same = a->n_files == b->n_files;
    for (int i = 0; same && i < a->n_files; i++)
        same = !strcmp(a->file[i].name, b->file[i].name) && !strcmp(a->file[i].hash, b->file[i].hash);
    return same;
}

/* The map of an index, which has the order of the network. */
static json_t *order_read(const char *folder, struct err *e)
{
    enum { INDEX_MAX = 100000000 };
    struct text path = {0}, t = {0};
    json_t *o = NULL, *map;
    text_add(&path, "%s/model.safetensors.index.json", folder);
    if (!text_read_file(&t, path.s, INDEX_MAX, e)) o = json_loadb(t.s, t.n, 0, NULL);
    map = json_incref(json_object_get(o, "weight_map"));
    if (!map) err_set(e, E_DATA, "%s: is no index of weights", path.s);
    json_decref(o);
    text_free(&t);
    text_free(&path);
    return map;
}

static int tensors_compare(const struct run_checkpoints k[2], const struct ckpt c[2], struct run_difference *d,
                           struct err *e)
{
    struct tensor_set set[2] = {{0}, {0}};
    struct text folder[2] = {{0}, {0}};
    char name[CKPT_NAME];
    int bad = 0;
    for (int i = 0; i < 2 && !bad; i++) {
        text_add(&folder[i], "%s/%s", k[i].shown.s, ckpt_name(c[i].step, name));
        bad = ckpt_tensors_open(folder[i].s, &c[i], &set[i].file, &set[i].n_files, e);
        if (!bad) set_fill(&set[i], &c[i]);
    }
    json_t *order = bad ? NULL : order_read(folder[0].s, e);
    if (order) bad = sets_compare(&set[0], &set[1], order, d, e);
    json_decref(order);
    for (int i = 0; i < 2; i++) {
        set_free(&set[i]);
        text_free(&folder[i]);
    }
    return bad || !order ? -1 : 0;
}

/* Has a run that goes on removed it meanwhile (checkpoint.keep)? */
static bool is_removed(const struct run_checkpoints k[2], uint64_t step)
{
    char name[CKPT_NAME];
    ckpt_name(step, name);
    return faccessat(k[0].dir, name, F_OK, 0) || faccessat(k[1].dir, name, F_OK, 0);
}

/* Verifies every byte of both first: a damaged file says nothing of the run. */
static int checkpoint_compare(struct run_comparison *c, const struct run_checkpoints k[2], uint64_t step, struct err *e)
{
    struct ckpt manifest[2] = {{0}, {0}};
    struct run_difference *d = &c->tensors;
    int bad = 0;
    for (int i = 0; i < 2 && !bad; i++) bad = ckpt_verify(k[i].dir, k[i].shown.s, step, NULL, &manifest[i], e);
    if (!bad && !same_files(&manifest[0], &manifest[1])) bad = tensors_compare(k, manifest, d, e);
    if (!bad && d->found) {
        d->step = step;
        d->in = "checkpoint";
    } else if (!bad) {
        d->tensors = 0;
        c->checkpoints++;
        c->last_checkpoint = step;
    }
    for (int i = 0; i < 2; i++) ckpt_free(&manifest[i]);
    if (!bad || !is_removed(k, step)) return bad ? -1 : 0;
    *e = (struct err){0};
    c->removed++;
    return 0;
}

/* Those of steps that both runs have done, from the oldest on. */
int checkpoints_compare(struct run_comparison *c, struct err *e)
{
    struct run_checkpoints k[2] = {{.dir = -1}, {.dir = -1}};
    const uint64_t last = c->run[0].last < c->run[1].last ? c->run[0].last : c->run[1].last;
    int bad = run_checkpoints_open(&k[0], c->run[0].dir, e) || run_checkpoints_open(&k[1], c->run[1].dir, e);
    for (int i = k[0].n - 1; i >= 0 && !bad && !c->tensors.found; i--)
        for (int j = k[1].n - 1; j >= 0 && !bad; j--)
            if (k[0].step[i] == k[1].step[j] && k[0].step[i] <= last)
                bad = checkpoint_compare(c, k, k[0].step[i], e);
    for (int i = 0; i < 2; i++) run_checkpoints_close(&k[i]);
    return bad ? -1 : 0;
}

/* ---- final weights ----------------------------------------------------------------------------------------------- */

/* ranks: pairs of a rank and how many tensors, in the order of the file. False: they are not of this file. */
static bool ranks_take(struct tensor_set *s, const json_t *ranks)
{
    const struct st *f = s->file[0];
    int at = 0;
    size_t i;
    json_t *pair;
    json_array_foreach(ranks, i, pair) {
        const int rank = (int)json_integer_value(json_array_get(pair, 0));
        for (json_int_t n = json_integer_value(json_array_get(pair, 1)); n > 0 && at < f->n; n--, at++)
            set_find(s, f->t[at].name)->rank = rank;
    }
    return at == f->n;
}

static int weights_open(const struct compared_run *r, struct tensor_set *s, struct err *e)
{
    struct text path = {0};
    text_add(&path, "%s/weights.safetensors", r->dir);
    s->file = mem_alloc(sizeof *s->file);
    s->file[0] = st_open(path.s, e);
    s->n_files = s->file[0] != NULL;
    text_free(&path);
    set_fill(s, NULL);
    if (s->n_files && !ranks_take(s, r->ranks)) for (int i = 0; i < s->v.n; i++) s->v.v[i].rank = -1;
    return s->n_files ? 0 : -1;
}

int final_weights_compare(struct run_comparison *c, struct err *e)
{
    const struct compared_run *a = &c->run[0], *b = &c->run[1];
    struct run_difference *d = &c->tensors;
    struct tensor_set set[2] = {{0}, {0}};
    if (d->found || a->last != b->last || (!a->done && !b->done)) return 0;
    d->step = a->last;
    d->in = "weights";
    d->only = a->done && b->done ? -1 : !a->done;
    d->found = d->only >= 0;
    if (d->found) return 0;
    int bad = weights_open(a, &set[0], e) || weights_open(b, &set[1], e) ||
              sets_compare(&set[0], &set[1], NULL, d, e);
    for (int i = 0; i < 2; i++) set_free(&set[i]);
    c->weights = !bad && !d->found;
    return bad ? -1 : 0;
}
