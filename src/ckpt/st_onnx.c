/* Weights of ONNX files, as if they were files of safetensors: those in the file itself stay in memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/file.h"
#include "ckpt/st.h"
#include "model/onnx/onnx.h"

static bool lies_in(const struct onnx_weight *w, const char *file)
{
    return w->in ? file && !strcmp(w->in, file) : !file;
}

/* The tensors of one file; NULL: the ONNX file's own. */
static struct st *part_open(const struct onnx_weights *all, const char *path, const char *file, struct err *e)
{
    struct arena *mem = arena_new();
    struct st *s = arena_alloc(mem, sizeof *s);
    *s = (struct st){.path = arena_strdup(mem, file ? file : path), .fd = -1, .mem = mem, .any_ones = true};
    s->t = arena_alloc(mem, (size_t)all->n * sizeof *s->t + 1);
    for (int i = 0; i < all->n; i++) {
        const struct onnx_weight *w = &all->of[i];
        if (!lies_in(w, file)) continue;
        struct st_tensor *t = &s->t[s->n++];
        *t = (struct st_tensor){.name = arena_strdup(mem, w->name), .shape = w->shape, .begin = w->at,
                                .end = w->at + w->bytes, .values = w->values};
        snprintf(t->dtype, sizeof t->dtype, "%s", w->type);
    }
    s->fd = file ? file_open(file, &s->size, e) : -1;
    bool bad = file && s->fd < 0;
    for (int i = 0; i < s->n && file && !bad; i++)
        if (s->t[i].end > s->size || s->t[i].begin > s->t[i].end)
            bad = err_set(e, E_DATA, "%s: tensor %.60s ends behind the file", file, s->t[i].name) != 0;
    if (!bad) return s;
    st_close(s);
    return NULL;
}

int st_onnx_open(const char *path, struct st ***out, int *n, struct err *e)
{
    struct onnx_weights *all = mem_alloc(sizeof *all);
    if (onnx_weights_open(path, all, e)) {
        free(all);
        return -1;
    }
    *out = mem_alloc(((size_t)all->n + 1) * sizeof **out);
    struct st *own = part_open(all, path, NULL, e);
    (*out)[(*n)++] = own;
    own->onnx = all;
    for (int i = 0; i < all->n; i++) {
        bool seen = !all->of[i].in;
        for (int k = 0; k < i && !seen; k++) seen = lies_in(&all->of[i], all->of[k].in);
        if (seen) continue;
        struct st *s = part_open(all, path, all->of[i].in, e);
        if (!s) return -1;                               /* the caller closes the others */
        (*out)[(*n)++] = s;
    }
    return 0;
}
