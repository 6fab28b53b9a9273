#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ckpt/weights.h"

enum { LISTED = 8 };
struct faults { struct text t; int n; };

__attribute__((format(printf, 2, 3))) static void fault_add(struct faults *f, const char *fmt, ...)
{
    char what[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    if (f->n++ < LISTED) text_add(&f->t, "%s%s", f->n > 1 ? "; " : "", what);
}

static struct weights_at find(struct st *const *file, int n, const char *name)
{
    for (int i = 0; i < n; i++) {
        int k = st_find(file[i], name);
        if (k >= 0) return (struct weights_at){file[i], k};
    }
    return (struct weights_at){NULL, -1};
}

static void param_check(const struct param *p, struct weights_at at, struct faults *f)
{
    char has[96], want[96];
    if (!at.file) {
        fault_add(f, "tensor %.60s is missing", p->name);
        return;
    }
    const struct st_tensor *t = &at.file->t[at.tensor];
    if (strcmp(t->dtype, dtype_name(p->type)))
        fault_add(f, "tensor %.60s has type %s, the model has %s", p->name, t->dtype, dtype_name(p->type));
    else if (!shape_equal(&t->shape, &p->shape))
        fault_add(f, "tensor %.60s has shape %s, the model has %s", p->name, shape_text(&t->shape, has),
                  shape_text(&p->shape, want));
}

static bool known(const struct graph *g, const char *name)
{
    for (int i = 0; i < g->n_params; i++) if (!strcmp(g->param[i].name, name)) return true;
    return false;
}

int weights_match(const char *path, const struct graph *g, struct st *const *file, int n, struct weights_at *at,
                  struct err *e)
{
    struct faults f = {0};
    for (int i = 0; i < g->n_params; i++) {
        at[i] = find(file, n, g->param[i].name);
        param_check(&g->param[i], at[i], &f);
    }
    for (int i = 0; i < n; i++)
        for (int k = 0; k < file[i]->n; k++)
            if (!known(g, file[i]->t[k].name))
                fault_add(&f, "tensor %.60s is unexpected: the model has none", file[i]->t[k].name);
    if (f.n > LISTED) text_add(&f.t, "; and %d more", f.n - LISTED);
    if (f.n) err_set(e, E_DATA, "%s: %s", path, f.t.s);
    text_free(&f.t);
    return f.n ? -1 : 0;
}
