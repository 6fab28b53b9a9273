/* Reading start weights by name, writing final weights with their hash. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#include "ckpt/weights.h"
#include "daemon/run/weights.h"

static int read_one(struct exec *s, const struct param *p, int row, struct weights_at at, struct err *e)
{
    void *plain = mem_alloc((size_t)shape_count(&p->shape) * dtype_bytes(p->type));
    int bad = p->type == F32 ? st_read_float(at.file, at.tensor, plain, e) : st_read(at.file, at.tensor, plain, e);
    if (!bad) bad = exec_state_set(s, row, plain, e);
    free(plain);
    return bad ? -1 : 0;
}

static int init_from(const char *path, struct st **file, int n, const struct graph *g, struct exec *s, struct err *e)
{
    struct weights_at *at = mem_alloc((size_t)g->n_params * sizeof *at);
    int bad = weights_match(path, g, file, n, at, e);
    for (int i = 0; s && i < g->n_params && !bad; i++)
        if (exec_holds(s, i)) bad = read_one(s, &g->param[i], i, at[i], e);
    free(at);
    return bad ? -1 : s ? exec_state_changed(s, e) : 0;
}

int weights_init(const char *path, const struct graph *g, struct exec *s, struct err *e)
{
    struct st **file;
    int n;
    if (st_open_all(path, &file, &n, e)) return -1;
    int bad = init_from(path, file, n, g, s, e);
    for (int i = 0; i < n; i++) st_close(file[i]);
    free(file);
    return bad;
}

struct selected { int *row; int (*get)(void *ctx, int i, void *buf, struct err *e); void *ctx; };

static int get_selected(void *ctx, int i, void *buf, struct err *e)
{
    struct selected *s = ctx;
    return s->get(s->ctx, s->row[i], buf, e);
}

/* The file and the hash of what is in it so far. */
struct growing { struct out out; XXH3_state_t *hash; };

static int grow(void *ctx, const void *p, size_t n, struct err *e)
{
    struct growing *g = ctx;
    XXH3_128bits_update(g->hash, p, n);
    return out_write(&g->out, p, n, e);
}

static int file_write(const struct weights_file *f, int n, const struct st_entry *entry, struct selected *s,
                      char hash[33], struct err *e)
{
    struct growing g = {.hash = XXH3_createState()};
    struct st_sink to = {grow, &g};
    int bad = out_begin(&g.out, f->at, f->stop, e);
    XXH3_128bits_reset(g.hash);
    if (!bad && st_write(&to, n, entry, get_selected, s, e)) {
        out_drop(&g.out);
        bad = -1;
    }
    if (!bad) bad = out_commit(&g.out, false, e);
    XXH128_hash_t h = XXH3_128bits_digest(g.hash);
    snprintf(hash, 33, "%016llx%016llx", (unsigned long long)h.high64, (unsigned long long)h.low64);
    XXH3_freeState(g.hash);
    return bad;
}

static bool holds(enum weights_what what, const struct state_row *r)
{
    return r->region == IN_PARAM && (what == WEIGHTS_ALL || r->trained);
}

int weights_save(const struct weights_file *f, const struct placement *pl,
                 int (*get)(void *ctx, int i, void *buf, struct err *e), void *ctx, char hash[33], struct err *e)
{
    struct st_entry *entry = mem_alloc((size_t)pl->n_state * sizeof *entry + 1);
    struct selected s = {.row = mem_alloc((size_t)pl->n_state * sizeof *s.row + 1), .get = get, .ctx = ctx};
    int n = 0;
    for (int i = 0; i < pl->n_state; i++) {
        const struct state_row *r = &pl->state[i];
        if (!holds(f->what, r)) continue;
        entry[n] = (struct st_entry){r->name, r->type, r->shape};
        s.row[n++] = i;
    }
    int bad = file_write(f, n, entry, &s, hash, e);
    free(entry);
    free(s.row);
    return bad;
}

int weights_get(struct exec *s, enum weights_what what, int row, void *plain, struct err *e)
{
    return what == WEIGHTS_GRADIENTS ? exec_grad_get(s, row, plain, e) : exec_state_get(s, row, plain, e);
}
