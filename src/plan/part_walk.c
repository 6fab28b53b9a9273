/* Placement by bytes as Hugging Face's accelerate documents it (utils/modeling.py: infer_auto_device_map,
 * get_balanced_memory), for stages in a row. Two things differ. No CPU or disk follows the last rank, so space to bring
 * layers back is reserved only where weights alone are counted. Tied weights do not pull layers to an earlier rank,
 * because each stage that uses one has its copy. */
#include <stdlib.h>
#include <string.h>
#include "plan/part.h"

/* leaves below one name: the first len bytes of the name of leaf `first` */
struct walk_item { int first, end; size_t len; };
/* todo: a stack, the next item is the last */
struct walk { const struct part_model *m; VEC(struct walk_item) todo, largest; uint64_t reserve; };

/* ---- the tree of names ----------------------------------------------------------------------- */

static bool is_leaf(const struct part_model *m, struct walk_item x)
{
    return x.end == x.first + 1 && m->leaf[x.first].name[x.len] == 0;
}

/* The child of x that begins at leaf i: a layer with exactly that name, or all neighbours with the same next part of
 * the name. */
static struct walk_item child_at(const struct part_model *m, struct walk_item x, int i)
{
    const char *name = m->leaf[i].name;
    struct walk_item c = {i, i + 1, x.len};
    if (name[x.len] == 0) return c;
    c.len += x.len ? 1 : 0;
    c.len += strcspn(name + c.len, ".");
    while (c.end < x.end && !strncmp(m->leaf[c.end].name, name, c.len) &&
           (m->leaf[c.end].name[c.len] == 0 || m->leaf[c.end].name[c.len] == '.'))
        c.end++;
    return c;
}

static const char *class_of(const struct part_model *m, const char *name, size_t len)
{
    for (int i = 0; m->g && i < m->g->n_containers; i++)
        if (strlen(m->g->container[i].name) == len && !strncmp(m->g->container[i].name, name, len))
            return m->g->container[i].layer;
    return NULL;
}

/* Does the no_split entry name block x, or the class of x? */
static bool is_named(const struct part_model *m, struct walk_item x, const char *entry)
{
    const char *name = m->leaf[x.first].name, *class = class_of(m, name, x.len);
    return (strlen(entry) == x.len && !strncmp(entry, name, x.len)) || (class && !strcmp(class, entry));
}

static bool unsplittable(const struct part_model *m, struct walk_item x)
{
    if (is_leaf(m, x)) return true;
    for (int i = 0; m->no_split && i < m->no_split->n; i++) if (is_named(m, x, m->no_split->v[i])) return true;
    return false;
}

bool part_may_cut(const struct part_model *m, int leaf)
{
    const char *behind = m->leaf[leaf].name, *before = m->leaf[leaf - 1].name;
    for (size_t len = strcspn(behind, "."); ; len += 1 + strcspn(behind + len + 1, ".")) {
        if (strncmp(behind, before, len) || (before[len] && before[len] != '.')) return true;
        for (int i = 0; i < m->no_split->n; i++)
            if (is_named(m, (struct walk_item){leaf, leaf + 1, len}, m->no_split->v[i])) return false;
        if (!behind[len]) return true;
    }
}

uint64_t part_bytes(const struct part_model *m, int first, int end, int stage)
{
    uint64_t sum = 0;
    for (int i = first; i < end; i++) sum += m->leaf[i].fixed + m->leaf[i].kept * (uint64_t)m->in_flight[stage];
    return sum;
}

/* ---- the walk -------------------------------------------------------------------------------- */

static void children_push(const struct part_model *m, struct walk *w, struct walk_item x)
{
    int at = w->todo.n, end = x.first;
    while (end < x.end) { struct walk_item c = child_at(m, x, end); *vec_push(&w->todo) = c; end = c.end; }
    for (int i = at, j = w->todo.n - 1; i < j; i++, j--) {
        struct walk_item t = w->todo.v[i];
        w->todo.v[i] = w->todo.v[j];
        w->todo.v[j] = t;
    }
}

/* Collects the largest unsplittable blocks of x, all of them if several have the same size. */
static void largest_in(struct walk *w, struct walk_item x)
{
    if (!unsplittable(w->m, x)) {
        for (int i = x.first; i < x.end;) { struct walk_item c = child_at(w->m, x, i); largest_in(w, c); i = c.end; }
        return;
    }
    uint64_t bytes = part_bytes(w->m, x.first, x.end, 0);
    if (bytes < w->reserve || !bytes) return;
    if (bytes > w->reserve) w->largest.n = 0;
    w->reserve = bytes;
    *vec_push(&w->largest) = x;
}

static void largest_find(struct walk *w)
{
    w->largest.n = 0;
    w->reserve = 0;
    for (int i = w->todo.n - 1; i >= 0; i--) largest_in(w, w->todo.v[i]);
}

/* x is being placed, so the reserve is for the other blocks. */
static void largest_drop(struct walk *w, struct walk_item x)
{
    int n = 0;
    for (int i = 0; i < w->largest.n; i++)
        if (w->largest.v[i].first < x.first || w->largest.v[i].end > x.end) w->largest.v[n++] = w->largest.v[i];
    w->largest.n = n;
    if (!n) largest_find(w);
}

void part_walk(const struct part_model *m, int *stage)
{
    struct walk w = {.m = m};
    uint64_t used = 0;
    int at = 0;
    children_push(m, &w, (struct walk_item){0, m->n, 0});
    largest_find(&w);
    while (w.todo.n) {
        struct walk_item x = w.todo.v[--w.todo.n];
        largest_drop(&w, x);
        uint64_t keep = m->reserve && at == 0 ? w.reserve : 0, bytes = part_bytes(m, x.first, x.end, at);
        if (used + bytes + keep <= m->limit[at] || at == m->n_stages - 1) {
            for (int i = x.first; i < x.end; i++) stage[i] = at;
            used += bytes;
        } else if (!unsplittable(m, x)) {
            children_push(m, &w, x);
            largest_find(&w);
        } else {
            *vec_push(&w.todo) = x;
            used = 0;
            at++;
        }
    }
    vec_free(&w.todo); vec_free(&w.largest);
}

/* ---- balancing ------------------------------------------------------------------------------- */

static uint64_t bytes_mean(const struct part_model *m, int first, int end)
{
    uint64_t sum = 0;
    for (int r = 0; r < m->n_stages; r++) sum += part_bytes(m, first, end, r);
    return sum / (uint64_t)m->n_stages;
}

/* Bytes of the first block that the entry names, anywhere in the tree. */
static uint64_t named_bytes(const struct part_model *m, struct walk_item x, const char *entry)
{
    if (x.len && is_named(m, x, entry)) return bytes_mean(m, x.first, x.end);
    if (is_leaf(m, x)) return 0;
    for (int i = x.first; i < x.end;) {
        struct walk_item c = child_at(m, x, i);
        uint64_t bytes = named_bytes(m, c, entry);
        if (bytes) return bytes;
        i = c.end;
    }
    return 0;
}

static uint64_t buffer_bytes(const struct part_model *m)
{
    uint64_t sum = 0, n = 0, most = 0;
    for (int i = 0; i < m->n; i++) {
        uint64_t bytes = bytes_mean(m, i, i + 1);
        sum += bytes;
        n += bytes > 0;
    }
    if (n) most = sum / n;
    for (int i = 0; m->no_split && i < m->no_split->n; i++) {
        uint64_t bytes = named_bytes(m, (struct walk_item){0, m->n, 0}, m->no_split->v[i]);
        if (bytes > most) most = bytes;
    }
    return most + most / 4;
}

void part_balance(struct part_model *m, bool low_zero)
{
    int n = 0, last = 0;
    uint64_t total = bytes_mean(m, 0, m->n), others = 0;
    for (int r = 0; r < m->n_stages; r++) if (m->limit[r]) { n++; last = r; }
    if (n == 0) return;
    low_zero = low_zero && n > 1;
    uint64_t each = total / (uint64_t)(low_zero ? n - 1 : n) + buffer_bytes(m);
    for (int r = 0; r < last; r++)
        if (m->limit[r] > each && !(low_zero && r == 0)) m->limit[r] = each;
    if (!low_zero) return;
    for (int r = 1; r < n; r++) others += m->limit[r];
    uint64_t rest = total > others ? total - others : 0;
    if (m->limit[0] > rest) m->limit[0] = rest;
}
