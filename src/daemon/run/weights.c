/* Reading start weights by name, writing final weights with their hash. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ckpt/st_out.h"
#include "ckpt/weights.h"
#include "daemon/run/weights.h"

bool weights_has(const struct state_row *r, enum weights_what what)
{
    switch (what) {
    case WEIGHTS_ALL: return r->region == IN_PARAM;
    case WEIGHTS_GRADIENTS: return r->region == IN_PARAM && r->trained;
    case WEIGHTS_OPTIMIZER: return r->region == IN_STATE;
    }
    return false;
}

struct weights_rows weights_rows(const struct placement *pl, enum weights_what what, int owner)
{
    struct weights_rows w = {.row = mem_alloc((size_t)pl->n_state * sizeof *w.row + 1),
                             .entry = mem_alloc((size_t)pl->n_state * sizeof *w.entry + 1)};
    for (int i = 0; i < pl->n_state; i++) {
        const struct state_row *r = &pl->state[i];
        if (!weights_has(r, what) || (owner >= 0 && r->owner != owner)) continue;
        w.entry[w.n] = (struct st_entry){r->name, r->type, r->shape};
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

static int read_one(struct exec *s, const struct state_row *r, int row, struct weights_at at, struct err *e)
{
    void *plain = mem_alloc(state_plain_bytes(r) + 1);
    int bad = r->type == F32 ? st_read_float(at.file, at.tensor, plain, e) : st_read(at.file, at.tensor, plain, e);
    if (!bad) bad = exec_state_set(s, row, plain, e);
    free(plain);
    return bad ? -1 : 0;
}

/* s NULL: only checks. */
static int rows_read(const char *path, struct st *const *file, int n, const struct placement *pl,
                     const struct weights_rows *w, struct exec *s, struct err *e)
{
    struct weights_at *at = mem_alloc((size_t)w->n * sizeof *at + 1);
    int bad = weights_match(path, &(struct weights_want){w->entry, w->n}, file, n, at, e);
    for (int i = 0; s && i < w->n && !bad; i++)
        if (exec_holds(s, w->row[i])) bad = read_one(s, &pl->state[w->row[i]], w->row[i], at[i], e);
    free(at);
    return bad ? -1 : s ? exec_state_changed(s, e) : 0;
}

int weights_init(const char *path, const struct placement *pl, struct exec *s, struct err *e)
{
    struct st **file;
    int n;
    if (st_open_all(path, &file, &n, e)) return -1;
    struct weights_rows w = weights_rows(pl, WEIGHTS_ALL, -1);
    int bad = rows_read(path, file, n, pl, &w, s, e) || (s && exec_averages_begin(s, e));
    weights_rows_free(&w);
    for (int i = 0; i < n; i++) st_close(file[i]);
    free(file);
    return bad ? -1 : 0;
}

int weights_resume(const char *shown, struct st *const *file, int n, const struct placement *pl, struct exec *s,
                   struct err *e)
{
    if (exec_averages_use(s, false, e)) return -1;
    struct weights_rows all = weights_rows(pl, WEIGHTS_ALL, -1), more = weights_rows(pl, WEIGHTS_OPTIMIZER, -1);
    for (int i = 0; i < more.n; i++, all.n++) {           /* both have room for all rows */
        all.row[all.n] = more.row[i];
        all.entry[all.n] = more.entry[i];
    }
    int bad = rows_read(shown, file, n, pl, &all, s, e);
    weights_rows_free(&more);
    weights_rows_free(&all);
    return bad;
}

struct selected { const int *row; int (*get)(void *ctx, int i, void *buf, struct err *e); void *ctx; };

static int get_selected(void *ctx, int i, void *buf, struct err *e)
{
    struct selected *s = ctx;
    return s->get(s->ctx, s->row[i], buf, e);
}

int weights_save(const struct weights_file *f, const struct placement *pl,
                 int (*get)(void *ctx, int i, void *buf, struct err *e), void *ctx, char hash[33], struct err *e)
{
    struct weights_rows w = weights_rows(pl, f->what, -1);
    struct selected s = {w.row, get, ctx};
    struct st_body b = {w.n, w.entry, get_selected, &s};
    struct st_out out;
    int bad = st_out_write(&out, f->at, f->stop, &b, e) || st_out_commit(&out, hash, e);
    weights_rows_free(&w);
    return bad ? -1 : 0;
}

int weights_get(struct exec *s, enum weights_what what, int row, void *plain, struct err *e)
{
    if (exec_averages_use(s, what == WEIGHTS_ALL, e)) return -1;
    return what == WEIGHTS_GRADIENTS ? exec_grad_get(s, row, plain, e) : exec_state_get(s, row, plain, e);
}
