#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ckpt/weights.h"

enum { LISTED = 8 };
/* A list of which a line shows the first entries. */
struct listed { struct text t; int n; };

__attribute__((format(printf, 3, 4))) static void list_add(struct listed *l, const char *between, const char *fmt, ...)
{
    char what[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    if (l->n++ < LISTED) text_add(&l->t, "%s%s", l->n > 1 ? between : "", what);
}

static void list_end(struct listed *l, const char *between)
{
    if (l->n > LISTED) text_add(&l->t, "%sand %d more", between, l->n - LISTED);
}

/* ---- the tensors of all files ------------------------------------------------------------------------------------ */

/* own: the possible name in the model: after renaming, without wrappers' prefixes */
struct weight_item { const char *name, *own; struct weights_at at; bool used; };
struct items { struct arena *mem; struct weight_item *of, **sorted; int n, idle; };

static const char *renamed(struct items *t, const struct weights_allow *a, const char *name, bool *did)
{
    for (int i = 0; a && i < a->n_rename; i++) {
        struct text s = {0};
        if (!glob_rename(&a->rename[i], name, &s)) continue;
        did[i] = true;
        name = arena_strdup(t->mem, s.s);
        text_free(&s);
        break;
    }
    return name;
}

static int item_order(const void *a, const void *b)
{
    return strcmp((*(const struct weight_item *const *)a)->own, (*(const struct weight_item *const *)b)->own);
}

static void items_read(struct items *t, struct st *const *file, int n, const struct weights_allow *a)
{
    int rules = a ? a->n_rename : 0;
    bool *did = mem_alloc((size_t)rules + 1);
    *t = (struct items){.mem = arena_new(), .idle = -1};
    for (int i = 0; i < n; i++) t->n += file[i]->n;
    t->of = mem_alloc(((size_t)t->n + 1) * sizeof *t->of);
    t->sorted = mem_alloc(((size_t)t->n + 1) * sizeof *t->sorted);
    for (int i = 0, k = 0; i < n; i++)
        for (int j = 0; j < file[i]->n; j++, k++) {
            const char *name = file[i]->t[j].name;
            t->of[k] = (struct weight_item){name, renamed(t, a, name, did), {file[i], j}, false};
            t->sorted[k] = &t->of[k];
        }
    for (int i = rules; i-- > 0;) if (!did[i]) t->idle = i;
    if (t->n) qsort(t->sorted, (size_t)t->n, sizeof *t->sorted, item_order);
    free(did);
}

static void items_free(struct items *t)
{
    free(t->of);
    free(t->sorted);
    arena_free(t->mem);
}

static struct weight_item *item_find(const struct items *t, const char *own)
{
    const struct weight_item key = {.own = own}, *at = &key;
    struct weight_item **found = t->n ? bsearch(&at, t->sorted, (size_t)t->n, sizeof *t->sorted, item_order) : NULL;
    return found ? *found : NULL;
}

/* ---- prefixes of wrappers: data parallelism, torch.compile, a module that calls the network its model
 * ------------- */

static bool all_have(const struct items *t, const char *prefix)
{
    for (int i = 0; i < t->n; i++) if (strncmp(t->of[i].own, prefix, strlen(prefix))) return false;
    return t->n > 0;
}

static bool any_known(const struct items *t, const struct weights_want *w)
{
    for (int i = 0; i < w->n; i++) if (item_find(t, w->tensor[i].name)) return true;
    return false;
}

/* Removes the first n bytes of all names, which preserves their order. */
static void strip(struct items *t, int n)
{
    for (int i = 0; i < t->n; i++) t->of[i].own += n;
}

/* Removes wrappers' prefixes from all names, unless the network itself uses them. */
static void unwrap(struct items *t, const struct weights_want *w)
{
    static const char *const wrapper[] = {"module.", "_orig_mod.", "model."};
    int off = 0;
    for (size_t i = 0; i < sizeof wrapper / sizeof *wrapper && !any_known(t, w); i++) {
        if (!all_have(t, wrapper[i])) continue;
        strip(t, (int)strlen(wrapper[i]));
        off += (int)strlen(wrapper[i]);
        i = (size_t)-1;                                  /* start with the first prefix again */
    }
    if (!any_known(t, w)) strip(t, -off);
}

/* ---- matching ---------------------------------------------------------------------------------------------------- */

/* hint, hint_extra: layers with missing or unexpected tensors, to show how to permit these; n_twice: tensors whose name
 * another one has taken */
struct match { const struct weights_want *w; struct listed fault, fresh, extra; struct text hint, hint_extra;
               int n_hint, n_extra, read, n_twice; };

static bool allowed(const struct weights_patterns *p, const char *name)
{
    for (int i = 0; i < p->n; i++) if (glob_names(p->v[i], name)) return true;
    return false;
}

/* Adds a tensor's layer to a list of patterns, unless it is the last entry. */
static void hint_add(struct text *t, int *n, const char *name)
{
    const char *dot = strrchr(name, '.');
    char layer[80];
    snprintf(layer, sizeof layer, "\"%.*s\"", dot ? (int)(dot - name) : (int)strlen(name), name);
    size_t m = strlen(layer);
    if (t->n >= m && !memcmp(t->s + t->n - m, layer, m)) return;
    if ((*n)++ < 3) text_add(t, "%s%s", t->n ? ", " : "", layer);
}

/* Records a problem of a wanted tensor: a fault, or permitted, so that the tensor is initialised. */
__attribute__((format(printf, 4, 5)))
static void wanted_fault(struct match *m, const struct st_entry *p, const char *beside, const char *fmt, ...)
{
    char what[200];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    if (m->w->allow && (m->w->allow->any || allowed(&m->w->allow->missing, p->name))) {
        list_add(&m->fresh, ", ", "%.60s%s", p->name, beside);
        return;
    }
    list_add(&m->fault, "; ", "tensor %.60s %s", p->name, what);
    hint_add(&m->hint, &m->n_hint, p->name);
}

static bool same_but_ones(const struct shape *a, const struct shape *b)
{
    int i = 0, k = 0;
    for (;; i++, k++) {
        while (i < a->n && a->d[i] == 1) i++;
        while (k < b->n && b->d[k] == 1) k++;
        if (i == a->n || k == b->n) return i == a->n && k == b->n;
        if (a->d[i] != b->d[k]) return false;
    }
}

static struct weights_at wanted_check(struct match *m, const struct st_entry *p, struct weight_item *item)
{
    const struct weights_at none = {NULL, -1};
    char has[96], want[96], beside[120];
    if (!item) {
        if (!m->w->allow || p->type != I64) wanted_fault(m, p, "", "is missing");
        return none;
    }
    const struct st_tensor *t = &item->at.file->t[item->at.tensor];
    item->used = true;
    snprintf(beside, sizeof beside, " (%s there)", shape_text(&t->shape, has));
    if (p->type == F32 ? !st_is_float(t) : strcmp(t->dtype, dtype_name(p->type))) {
        wanted_fault(m, p, "", "has type %s, the model has %s", t->dtype, dtype_name(p->type));
        return none;
    }
    struct shape shape = t->shape;
    if (t->factors && p->turned) shape.d[0] = t->shape.d[1], shape.d[1] = t->shape.d[0];
    if (item->at.file->any_ones ? !same_but_ones(&shape, &p->shape) : !shape_equal(&shape, &p->shape)) {
        wanted_fault(m, p, beside, "has shape %s, the model has %s", has, shape_text(&p->shape, want));
        return none;
    }
    m->read++;
    return item->at;
}

/* An ONNX file has equal vectors of several layers once: the model's NAME.2 is NAME there. */
static struct weight_item *item_of(const struct items *t, const char *name)
{
    struct weight_item *item = item_find(t, name);
    size_t n = strlen(name);
    while (n && name[n - 1] >= '0' && name[n - 1] <= '9') n--;
    if (item || n < 2 || !name[n] || name[n - 1] != '.') return item;
    char *first = strndup(name, n - 1);
    item = item_find(t, first);
    free(first);
    return item && item->at.file->any_ones ? item : NULL;
}

/* Checks the unused tensors: unknown ones, and second ones for the same name. The latter are never permitted, because
 * it is unknown which one counts. */
static void rest_check(struct match *m, const struct items *t)
{
    const struct weights_allow *a = m->w->allow;
    for (int i = 0; i < t->n; i++) {
        const struct weight_item *k = &t->of[i], *first = item_find(t, k->own);
        if (k->used) continue;
        if (first && first->used && first != k) {
            if (!m->n_twice++)
                list_add(&m->fault, "; ", "tensors %.60s and %.60s both become %.60s", first->name, k->name, k->own);
        } else if (a && a->spare) continue;
        else if (a && (a->any || allowed(&a->extra, k->own))) list_add(&m->extra, ", ", "%.60s", k->name);
        else {
            list_add(&m->fault, "; ", "tensor %.60s is unexpected: the model has none", k->name);
            hint_add(&m->hint_extra, &m->n_extra, k->own);
        }
    }
    if (m->n_twice > 1) list_add(&m->fault, "; ", "%d more tensors become one of the same name", m->n_twice - 1);
}

/* How many of the model's tensors are in the files with the first `n` bytes of `of` as a prefix. */
static int known_behind(const struct items *t, const struct weights_want *w, const char *of, int n)
{
    struct text name = {0};
    int found = 0;
    for (int i = 0; i < w->n; i++) {
        name.n = 0;
        text_add(&name, "%.*s%s", n, of, w->tensor[i].name);
        found += item_find(t, name.s) != NULL;
    }
    text_free(&name);
    return found;
}

/* A set of weights in the files: at least half of the model's tensors have this prefix of n bytes. It ends with a dot,
 * or n is 0. found: their number. */
struct set { const char *before; int n, found; };
enum { SETS = 3, TRIED = 32 };
struct sets { struct set of[SETS], tried[TRIED]; int n, n_tried; };

/* The prefix before a name of the model at the end of `name`. False: no such name. */
static bool before_find(const struct weights_want *w, const char *name, struct set *out)
{
    const size_t n = strlen(name);
    size_t most = 0;
    for (int i = 0; i < w->n; i++) {
        const char *own = w->tensor[i].name;
        const size_t k = strlen(own);
        if (k > most && k <= n && (k == n || name[n - k - 1] == '.') && !strcmp(name + n - k, own)) most = k;
    }
    *out = (struct set){.before = name, .n = (int)(n - most)};
    return most > 0;
}

static int longest_first(const void *a, const void *b)
{
    return ((const struct set *)b)->n - ((const struct set *)a)->n;
}

static void sets_find(const struct items *t, const struct weights_want *w, struct sets *s)
{
    struct set at;
    for (int i = 0; i < t->n && s->n < SETS && s->n_tried < TRIED; i++) {
        bool known = !before_find(w, t->of[i].name, &at);
        for (int k = 0; k < s->n_tried && !known; k++)
            known = s->tried[k].n == at.n && !memcmp(s->tried[k].before, at.before, (size_t)at.n);
        if (known) continue;
        s->tried[s->n_tried++] = at;
        at.found = known_behind(t, w, at.before, at.n);
        if (2 * at.found >= w->n) s->of[s->n++] = at;
    }
    qsort(s->of, (size_t)s->n, sizeof *s->of, longest_first);
}

/* Shows how to take one set and ignore the others: names of the others become unused.*. Longer prefixes come first,
 * because they may begin with shorter ones. */
static void set_hint(const struct sets *s, const struct set *take, struct text *out)
{
    if (take->n) text_add(out, " \"%.*s*\"", take->n, take->before);
    else text_add(out, " the names without a prefix");
    text_add(out, " by -o 'run.init_rename={");
    for (int i = 0, any = 0; i < s->n; i++) {
        const struct set *k = &s->of[i];
        if (k == take && !k->n) continue;
        text_add(out, "%s\"%.*s* -> %s*\"", any++ ? ", " : "", k->n, k->before, k == take ? "" : "unused.");
    }
    text_add(out, "}' -o 'run.init_extra={\"unused\"}'");
}

/* Uses the files' names, to which run.init_rename applies. False: no hint about sets. */
static bool hint_sets(const struct match *m, struct st *const *file, int n, struct text *out)
{
    struct sets s = {0};
    struct items plain;
    const bool few = 2 * m->read < m->w->n;
    items_read(&plain, file, n, NULL);
    sets_find(&plain, m->w, &s);
    const bool several = s.n > 1 && (few || m->n_twice || m->n_extra), one = s.n == 1 && s.of[0].n && few;
    if (several) text_add(out, "; there are %d sets of weights: take", s.n);
    for (int i = 0; i < s.n && several; i++) {
        if (i) text_add(out, ", or");
        set_hint(&s, &s.of[i], out);
    }
    if (one)
        text_add(out, "; run.init_rename = {\"%.*s* -> *\"} gives %d of them the model's names", s.of[0].n,
                 s.of[0].before, s.of[0].found);
    items_free(&plain);
    return several || one;
}

/* Adds the options that would permit the differences, if the list is short. */
static void hints_add(const struct match *m, struct st *const *file, int n, struct text *out)
{
    if (!m->w->allow || hint_sets(m, file, n, out)) return;
    if (m->n_twice) text_add(out, "; rename one of them by a rule of run.init_rename");
    if (m->hint.n && m->n_hint <= 3)
        text_add(out, "; run.init_missing = {%s} initialises these anew", m->hint.s);
    if (m->hint_extra.n && m->n_extra <= 3)
        text_add(out, "; run.init_extra = {%s} ignores what the model lacks", m->hint_extra.s);
    if (m->n_hint > 3 || m->n_extra > 3)
        text_add(out, "; see run.init_rename, run.init_missing and run.init_extra");
}

/* Whether the pattern names a tensor of the file that the model does not have. */
static bool names_unused(const struct items *t, const char *pattern)
{
    for (int i = 0; i < t->n; i++) if (!t->of[i].used && glob_names(pattern, t->of[i].own)) return true;
    return false;
}

static void tell(struct match *m, const char *path, const struct items *t, struct weights_notes *notes)
{
    const struct weights_patterns *extra = m->w->allow ? &m->w->allow->extra : NULL;
    const char *idle = NULL;
    for (int i = 0; extra && i < extra->n && !idle; i++) if (!names_unused(t, extra->v[i])) idle = extra->v[i];
    list_end(&m->fresh, ", ");
    list_end(&m->extra, ", ");
    if (!m->fresh.n && !m->extra.n && !idle) return;
    text_add(&notes->notes, "%s: %d of %d tensors are read", path, m->read, t->n);
    if (m->fresh.n) text_add(&notes->notes, "; new: %s", m->fresh.t.s);
    if (m->extra.n) text_add(&notes->notes, "; left out: %s", m->extra.t.s);
    if (idle) text_add(&notes->notes, "; run.init_extra: \"%s\" leaves out nothing", idle);
}

/* ---- habits of language models --------------------------------------------------------------------------------- */

static bool wanted(const struct weights_want *w, const char *name)
{
    for (int i = 0; i < w->n; i++) if (!strcmp(w->tensor[i].name, name)) return true;
    return false;
}

static void prefix_add(struct items *t, const struct weights_want *w, const char *prefix)
{
    for (int i = 0; i < t->n; i++) if (!strncmp(t->of[i].own, prefix, strlen(prefix))) return;
    for (int i = 0; i < t->n; i++) {
        const char *full = arena_printf(t->mem, "%s%s", prefix, t->of[i].own);
        if (wanted(w, full)) t->of[i].own = full;
    }
}

static bool ends_with(const char *s, const char *end)
{
    const size_t n = strlen(s), m = strlen(end);
    return n >= m && !strcmp(s + n - m, end);
}

/* 1: the same type, shape and bytes; -1: e. */
static int same_values(const struct weights_at *a, const struct weights_at *b, struct err *e)
{
    const struct st_tensor *s = &a->file->t[a->tensor], *t = &b->file->t[b->tensor];
    const bool codes = s->factors || t->factors;
    const size_t n = codes ? (size_t)shape_count(&s->shape) * sizeof(float) : s->end - s->begin;
    if (!s->factors != !t->factors) return 0;
    if (strcmp(s->dtype, t->dtype) || !shape_equal(&s->shape, &t->shape)) return 0;
    char *x = mem_alloc(n + 1), *y = mem_alloc(n + 1);
    const int bad = codes ? st_read_float(a->file, a->tensor, (float *)(void *)x, e) ||
                                st_read_float(b->file, b->tensor, (float *)(void *)y, e)
                          : st_read(a->file, a->tensor, x, e) || st_read(b->file, b->tensor, y, e),
              same = !bad && !memcmp(x, y, n);
    free(x);
    free(y);
    return bad ? -1 : same;
}

static int habits_apply(struct match *m, struct items *t, const struct weights_habits *h, struct err *e)
{
    prefix_add(t, m->w, h->prefix);
    for (int i = 0; i < t->n; i++)
        for (int k = 0; h->ignored[k]; k++)
            t->of[i].used |= ends_with(t->of[i].own, h->ignored[k]) && !wanted(m->w, t->of[i].own);
    if (t->n) qsort(t->sorted, (size_t)t->n, sizeof *t->sorted, item_order);
    struct weight_item *head = wanted(m->w, h->head) ? NULL : item_find(t, h->head),
                       *embedding = item_find(t, h->embedding);
    if (!head) return 0;
    const int same = embedding ? same_values(&head->at, &embedding->at, e) : 0;
    if (same < 0) return -1;
    head->used = embedding != NULL;
    if (embedding && !same)
        list_add(&m->fault, "; ", "%.60s and %.60s differ, and the model has one tensor for both", head->name,
                 embedding->name);
    if (embedding) return 0;
    head->own = h->embedding;
    qsort(t->sorted, (size_t)t->n, sizeof *t->sorted, item_order);
    return 0;
}

int weights_match(const char *path, const struct weights_want *w, struct st *const *file, int n,
                  struct weights_at *at, struct weights_notes *notes, struct err *e)
{
    struct match m = {.w = w};
    struct items t;
    items_read(&t, file, n, w->allow);
    unwrap(&t, w);
    int bad = w->allow && w->allow->habits ? habits_apply(&m, &t, w->allow->habits, e) : 0;
    for (int i = 0; i < w->n; i++) at[i] = wanted_check(&m, &w->tensor[i], item_of(&t, w->tensor[i].name));
    rest_check(&m, &t);
    list_end(&m.fault, "; ");
    if (m.fault.n) hints_add(&m, file, n, &m.fault.t);
    if (!bad && m.fault.n) bad = err_set(e, E_DATA, "%s: %s", path, m.fault.t.s);
    if (!bad && w->n && !m.read) bad = err_set(e, E_DATA, "%s: none of its tensors has a name of the model's", path);
    if (notes) *notes = (struct weights_notes){.idle = t.idle};
    if (!bad && notes) tell(&m, path, &t, notes);
    items_free(&t);
    text_free(&m.fault.t);
    text_free(&m.fresh.t);
    text_free(&m.extra.t);
    text_free(&m.hint);
    text_free(&m.hint_extra);
    return bad ? -1 : 0;
}
