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

struct files { struct st *const *file; int n; };

static const char *first_name(const struct files *f)
{
    for (int i = 0; i < f->n; i++) if (f->file[i]->n) return f->file[i]->t[0].name;
    return "";
}

static struct weights_at find(struct st *const *file, int n, const char *name)
{
    for (int i = 0; i < n; i++) {
        int k = st_find(file[i], name);
        if (k >= 0) return (struct weights_at){file[i], k};
    }
    return (struct weights_at){NULL, -1};
}

static void tensor_check(const struct st_entry *p, struct weights_at at, struct faults *f)
{
    char has[96], want[96];
    if (!at.file) {
        fault_add(f, "tensor %.60s is missing", p->name);
        return;
    }
    const struct st_tensor *t = &at.file->t[at.tensor];
    if (p->type == F32 ? !st_is_float(t) : strcmp(t->dtype, dtype_name(p->type)))
        fault_add(f, "tensor %.60s has type %s, the model has %s", p->name, t->dtype, dtype_name(p->type));
    else if (!shape_equal(&t->shape, &p->shape))
        fault_add(f, "tensor %.60s has shape %s, the model has %s", p->name, shape_text(&t->shape, has),
                  shape_text(&p->shape, want));
}

static bool known(const struct weights_want *w, const char *name)
{
    for (int i = 0; i < w->n; i++) if (!strcmp(w->tensor[i].name, name)) return true;
    return false;
}

/* ---- names behind wrappers: data parallelism, torch.compile, a module that calls the network its model ----------- */

static bool all_have(const struct files *f, size_t at, const char *prefix)
{
    for (int i = 0; i < f->n; i++)
        for (int k = 0; k < f->file[i]->n; k++)
            if (strncmp(f->file[i]->t[k].name + at, prefix, strlen(prefix))) return false;
    return *first_name(f) != 0;
}

static bool any_known(const struct files *f, size_t at, const struct weights_want *w)
{
    for (int i = 0; i < f->n; i++)
        for (int k = 0; k < f->file[i]->n; k++) if (known(w, f->file[i]->t[k].name + at)) return true;
    return false;
}

/* How many bytes of every name are wrappers'. What the network itself calls so is none. */
static size_t wrapping(const struct files *f, const struct weights_want *w)
{
    static const char *const wrapper[] = {"module.", "_orig_mod.", "model."};
    size_t at = 0;
    for (size_t i = 0; i < sizeof wrapper / sizeof *wrapper; i++) {
        if (any_known(f, at, w)) return at;
        if (!all_have(f, at, wrapper[i])) continue;
        at += strlen(wrapper[i]);
        i = (size_t)-1;                                  /* from the first one again */
    }
    return any_known(f, at, w) ? at : 0;
}

static struct weights_at find_wrapped(const struct files *f, size_t wrapped, const char *name)
{
    struct text full = {0};
    text_add(&full, "%.*s%s", (int)wrapped, first_name(f), name);
    struct weights_at at = find(f->file, f->n, full.s);
    text_free(&full);
    return at;
}

int weights_match(const char *path, const struct weights_want *w, struct st *const *file, int n,
                  struct weights_at *at, struct err *e)
{
    struct faults f = {0};
    struct files all = {file, n};
    size_t wrapped = wrapping(&all, w);
    for (int i = 0; i < w->n; i++) {
        at[i] = find_wrapped(&all, wrapped, w->tensor[i].name);
        tensor_check(&w->tensor[i], at[i], &f);
    }
    for (int i = 0; i < n; i++)
        for (int k = 0; k < file[i]->n; k++)
            if (!known(w, file[i]->t[k].name + wrapped))
                fault_add(&f, "tensor %.60s is unexpected: the model has none", file[i]->t[k].name);
    if (f.n > LISTED) text_add(&f.t, "; and %d more", f.n - LISTED);
    if (f.n) err_set(e, E_DATA, "%s: %s", path, f.t.s);
    text_free(&f.t);
    return f.n ? -1 : 0;
}
