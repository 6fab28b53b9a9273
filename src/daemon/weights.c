/* Reading start weights by name, writing final weights with their hash. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>
#include "ckpt/weights.h"
#include "daemon/weights.h"

static int read_one(struct stage *s, const struct param *p, int param, struct weights_at at, struct err *e)
{
    void *plain = mem_alloc((size_t)shape_count(&p->shape) * dtype_bytes(p->type));
    int bad = p->type == F32 ? st_read_float(at.file, at.tensor, plain, e) : st_read(at.file, at.tensor, plain, e);
    if (!bad) bad = stage_param_set(s, param, plain, e);
    free(plain);
    return bad ? -1 : 0;
}

static int init_from(const char *path, struct st **file, int n, const struct graph *g, struct stage *s, struct err *e)
{
    struct weights_at *at = mem_alloc((size_t)g->n_params * sizeof *at);
    int bad = weights_match(path, g, file, n, at, e);
    for (int i = 0; s && i < g->n_params && !bad; i++)
        if (stage_holds(s, i)) bad = read_one(s, &g->param[i], i, at[i], e);
    free(at);
    return bad ? -1 : s ? stage_params_changed(s, e) : 0;
}

int weights_init(const char *path, const struct graph *g, struct stage *s, struct err *e)
{
    struct st **file;
    int n;
    if (st_open_all(path, &file, &n, e)) return -1;
    int bad = init_from(path, file, n, g, s, e);
    for (int i = 0; i < n; i++) st_close(file[i]);
    free(file);
    return bad;
}

static int file_hash(const char *path, char hash[33], struct err *e)
{
    enum { CHUNK = 1 << 16 };
    FILE *f = fopen(path, "rb");
    if (!f) return err_set(e, E_IO, "%s: %s", path, strerror(errno));
    XXH3_state_t *state = XXH3_createState();
    char *buf = mem_alloc(CHUNK);
    XXH3_128bits_reset(state);
    for (size_t n; (n = fread(buf, 1, CHUNK, f)) > 0;) XXH3_128bits_update(state, buf, n);
    XXH128_hash_t h = XXH3_128bits_digest(state);
    int bad = ferror(f) ? err_set(e, E_IO, "%s: %s", path, strerror(errno)) : 0;
    snprintf(hash, 33, "%016llx%016llx", (unsigned long long)h.high64, (unsigned long long)h.low64);
    free(buf);
    XXH3_freeState(state);
    fclose(f);
    return bad;
}

struct selected { int *param; int (*get)(void *ctx, int i, void *buf, struct err *e); void *ctx; };

static int get_selected(void *ctx, int i, void *buf, struct err *e)
{
    struct selected *s = ctx;
    return s->get(s->ctx, s->param[i], buf, e);
}

int weights_save(const char *path, enum weights_what what, const struct graph *g,
                 int (*get)(void *ctx, int i, void *buf, struct err *e), void *ctx,
                 char hash[33], struct err *e)
{
    struct st_entry *entry = mem_alloc((size_t)g->n_params * sizeof *entry + 1);
    struct selected s = {.param = mem_alloc((size_t)g->n_params * sizeof *s.param + 1), .get = get, .ctx = ctx};
    int n = 0;
    for (int i = 0; i < g->n_params; i++) {
        const struct param *p = &g->param[i];
        if (what == WEIGHTS_GRADIENTS && (p->kind != PARAM_WEIGHT || p->frozen)) continue;
        entry[n] = (struct st_entry){p->name, p->type, p->shape};
        s.param[n++] = i;
    }
    int bad = st_write(path, n, entry, get_selected, &s, e);
    free(entry);
    free(s.param);
    return bad ? -1 : file_hash(path, hash, e);
}

int weights_get(struct stage *s, enum weights_what what, int param, void *plain, struct err *e)
{
    return what == WEIGHTS_GRADIENTS ? stage_grad_get(s, param, plain, e) : stage_param_get(s, param, plain, e);
}
