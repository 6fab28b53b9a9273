/* Reading start weights by name, writing final weights with their hash. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#include "ckpt/weights.h"
#include "daemon/run/weights.h"

/* The rows of the registry that a file holds, as it spells them. */
struct chosen { int n, *row; struct st_entry *entry; };

static struct chosen choose(const struct placement *pl, enum weights_what what)
{
    struct chosen c = {.row = mem_alloc((size_t)pl->n_state * sizeof *c.row + 1),
                       .entry = mem_alloc((size_t)pl->n_state * sizeof *c.entry + 1)};
    for (int i = 0; i < pl->n_state; i++) {
        const struct state_row *r = &pl->state[i];
        if (r->region != IN_PARAM || (what == WEIGHTS_GRADIENTS && !r->trained)) continue;
        c.entry[c.n] = (struct st_entry){r->name, r->type, r->shape};
        c.row[c.n++] = i;
    }
    return c;
}

static void chosen_free(struct chosen *c)
{
    free(c->row);
    free(c->entry);
}

static int read_one(struct exec *s, const struct state_row *r, int row, struct weights_at at, struct err *e)
{
    void *plain = mem_alloc(state_plain_bytes(r) + 1);
    int bad = r->type == F32 ? st_read_float(at.file, at.tensor, plain, e) : st_read(at.file, at.tensor, plain, e);
    if (!bad) bad = exec_state_set(s, row, plain, e);
    free(plain);
    return bad ? -1 : 0;
}

static int init_from(const char *path, struct st **file, int n, const struct placement *pl, struct exec *s,
                     struct err *e)
{
    struct chosen c = choose(pl, WEIGHTS_ALL);
    struct weights_at *at = mem_alloc((size_t)c.n * sizeof *at + 1);
    int bad = weights_match(path, &(struct weights_want){c.entry, c.n}, file, n, at, e);
    for (int i = 0; s && i < c.n && !bad; i++)
        if (exec_holds(s, c.row[i])) bad = read_one(s, &pl->state[c.row[i]], c.row[i], at[i], e);
    free(at);
    chosen_free(&c);
    return bad ? -1 : s ? exec_state_changed(s, e) : 0;
}

int weights_init(const char *path, const struct placement *pl, struct exec *s, struct err *e)
{
    struct st **file;
    int n;
    if (st_open_all(path, &file, &n, e)) return -1;
    int bad = init_from(path, file, n, pl, s, e);
    for (int i = 0; i < n; i++) st_close(file[i]);
    free(file);
    return bad;
}

struct selected { const int *row; int (*get)(void *ctx, int i, void *buf, struct err *e); void *ctx; };

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

int weights_save(const struct weights_file *f, const struct placement *pl,
                 int (*get)(void *ctx, int i, void *buf, struct err *e), void *ctx, char hash[33], struct err *e)
{
    struct chosen c = choose(pl, f->what);
    struct selected s = {c.row, get, ctx};
    int bad = file_write(f, c.n, c.entry, &s, hash, e);
    chosen_free(&c);
    return bad;
}

int weights_get(struct exec *s, enum weights_what what, int row, void *plain, struct err *e)
{
    return what == WEIGHTS_GRADIENTS ? exec_grad_get(s, row, plain, e) : exec_state_get(s, row, plain, e);
}
