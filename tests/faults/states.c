#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/mem.h"
#include "base/text.h"
#include "states.h"

enum { NONE = 0, HALF, ALL };                            /* how much of a call arrived */
/* certain: the sync that makes it so, or the number of calls */
struct op { struct record r; const char *data; long certain; bool matters, metrics; };
struct entry { const char *name; uint64_t ino; };
struct node { bool is_folder; char *data; size_t size; VEC(struct entry) entries; };
struct tree { struct node *node; const unsigned char *got; int n_ops; uint64_t root; };

struct states {
    struct text file;
    VEC(struct op) op;
    uint64_t n_nodes, root;                              /* nodes have numbers of their own: inodes are used again */
    VEC(int) open;                                       /* calls that are not certain at this moment */
    unsigned char *got;                                  /* of each call, what arrived */
    VEC(uint64_t) seen;                                  /* a hash table of states */
    int n_seen;
    struct tree tree;
    struct states_count count;
    uint64_t random;
    bool last_first;
};

/* ---- reading ----------------------------------------------------------------------------------------------------- */

struct known { uint64_t ino, node; };
struct name_table { VEC(struct known) k; uint64_t next; };

static uint64_t node_new(struct name_table *n, uint64_t ino)
{
    for (int i = 0; i < n->k.n; i++)
        if (n->k.v[i].ino == ino) return n->k.v[i].node = ++n->next;
    *vec_push(&n->k) = (struct known){ino, ++n->next};
    return n->next;
}

static uint64_t node_of(const struct name_table *n, uint64_t ino)
{
    for (int i = 0; i < n->k.n; i++)
        if (n->k.v[i].ino == ino) return n->k.v[i].node;
    return 0;
}

static bool on_entry(const struct op *o)
{
    return o->r.kind == REC_MKDIR || o->r.kind == REC_LINK || o->r.kind == REC_RENAME || o->r.kind == REC_UNLINK ||
           (o->r.kind == REC_CREATE && o->r.dir);
}
static bool on_data(const struct op *o) { return o->r.kind == REC_WRITE || o->r.kind == REC_SIZE; }

/* Which sync after call i makes it certain. */
static long certain_at(const struct states *s, int i)
{
    const struct op *o = &s->op.v[i];
    bool first = false, second = o->r.kind != REC_RENAME || o->r.dir_to == o->r.dir;
    for (int k = i + 1; k < s->op.n && (on_entry(o) || on_data(o)); k++) {
        const struct op *y = &s->op.v[k];
        if (y->r.kind != REC_SYNC) continue;
        first |= y->r.ino == (on_data(o) ? o->r.ino : o->r.dir);
        second |= y->r.ino == o->r.dir_to;
        if (first && second) return k;
    }
    return on_entry(o) || on_data(o) ? s->op.n : -1;
}

static bool left_out(const struct states *s, uint64_t node, const char *without)
{
    bool folder = node == s->root, inner = false;
    for (int i = 0; i < s->op.n; i++) {
        const struct record *r = &s->op.v[i].r;
        if (r->kind == REC_MKDIR && r->ino == node) {
            folder = true;
            inner = !strncmp(r->name, "step-", 5);
        }
    }
    return !strcmp(without, !folder ? "files" : inner ? "inner" : "outer");
}

static void records_parse(struct states *s, const char *without)
{
    struct name_table names = {0};
    for (size_t at = 0; at + sizeof(struct record) <= s->file.n;) {
        struct op o = {.data = s->file.s + at + sizeof o.r};
        memcpy(&o.r, s->file.s + at, sizeof o.r);
        at += sizeof o.r + o.r.n;
        if (o.r.kind >= REC_KINDS || at > s->file.n) abort();
        bool makes = o.r.kind == REC_CREATE || o.r.kind == REC_MKDIR;
        bool again = o.r.kind == REC_ROOT && s->root;
        if (again) continue;
        o.r.dir = node_of(&names, o.r.dir);
        o.r.dir_to = node_of(&names, o.r.dir_to);
        o.r.ino = makes || o.r.kind == REC_ROOT ? node_new(&names, o.r.ino) : node_of(&names, o.r.ino);
        if (o.r.kind == REC_ROOT) s->root = o.r.ino;
        else if (o.r.kind != REC_SYNC || !left_out(s, o.r.ino, without)) *vec_push(&s->op) = o;
    }
    s->n_nodes = names.next;
    vec_free(&names.k);
}

struct states *states_open(const char *path, const char *without)
{
    struct err e = {0};
    struct states *s = mem_alloc(sizeof *s);
    if (text_read_bytes(&s->file, path, (size_t)1 << 30, &e)) {
        fprintf(stderr, "%s\n", e.text);
        free(s);
        return NULL;
    }
    records_parse(s, without);
    for (int i = 0; i < s->op.n; i++) s->op.v[i].certain = certain_at(s, i);
    s->got = mem_alloc((size_t)s->op.n);
    s->tree.node = mem_alloc((s->n_nodes + 1) * sizeof *s->tree.node);
    s->count.calls = (unsigned long)s->op.n;
    s->random = 1;
    s->last_first = *without;
    return s;
}

/* ---- one state --------------------------------------------------------------------------------------------------- */

static void entry_set(struct node *folder, const char *name, uint64_t ino)
{
    for (int i = 0; i < folder->entries.n; i++) {
        if (strcmp(folder->entries.v[i].name, name)) continue;
        if (ino) folder->entries.v[i].ino = ino;
        else folder->entries.v[i] = folder->entries.v[--folder->entries.n];
        return;
    }
    if (ino) *vec_push(&folder->entries) = (struct entry){name, ino};
}

static void size_set(struct node *f, uint64_t size)
{
    f->data = mem_resize(f->data, size + 1);
    if (size > f->size) memset(f->data + f->size, 0, size - f->size);
    f->size = size;
}

static void op_apply(struct tree *t, const struct op *o, int got)
{
    struct node *folder = &t->node[o->r.dir], *f = &t->node[o->r.ino];
    uint64_t n = got == HALF ? o->r.n / 2 : o->r.n;
    switch ((enum record_kind)o->r.kind) {
    case REC_MKDIR: entry_set(folder, o->r.name, o->r.ino); break;
    case REC_CREATE: if (o->r.dir) entry_set(folder, o->r.name, o->r.ino); break;
    case REC_LINK: entry_set(folder, o->r.name, o->r.ino); break;
    case REC_UNLINK: entry_set(folder, o->r.name, 0); break;
    case REC_RENAME:
        entry_set(folder, o->r.name, 0);
        entry_set(&t->node[o->r.dir_to], o->r.to, o->r.ino);
        break;
    case REC_SIZE: if (!o->r.grow || o->r.at > f->size) size_set(f, o->r.at); break;
    case REC_WRITE:
        if (o->r.at + n > f->size) size_set(f, o->r.at + n);
        memcpy(f->data + o->r.at, o->data, n);
        break;
    default: break;
    }
}

static void tree_of(struct states *s, int n_ops)
{
    struct tree *t = &s->tree;
    for (uint64_t i = 0; i <= s->n_nodes; i++) {
        t->node[i].size = 0;
        t->node[i].entries.n = 0;
        t->node[i].is_folder = i == s->root;
    }
    for (int i = 0; i < n_ops; i++) {
        if (s->op.v[i].r.kind == REC_MKDIR) t->node[s->op.v[i].r.ino].is_folder = true;
        if (s->got[i]) op_apply(t, &s->op.v[i], s->got[i]);
    }
    t->root = s->root;
    t->got = s->got;
    t->n_ops = n_ops;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct entry *)a)->name, ((const struct entry *)b)->name);
}

static void tree_text(const struct tree *t, uint64_t node, struct text *out)
{
    const struct node *f = &t->node[node];
    if (!f->is_folder) {
        text_add(out, "%zu:", f->size);
        if (f->size) text_add_bytes(out, f->data, f->size);
        return;
    }
    if (f->entries.n) qsort(f->entries.v, (size_t)f->entries.n, sizeof *f->entries.v, by_name);
    text_add(out, "{");
    for (int i = 0; i < f->entries.n; i++) {
        text_add(out, "%s=", f->entries.v[i].name);
        tree_text(t, f->entries.v[i].ino, out);
    }
    text_add(out, "}");
}

static void make(const struct tree *t, uint64_t node, int dir)
{
    const struct node *f = &t->node[node];
    for (int i = 0; i < f->entries.n; i++) {
        const struct entry *x = &f->entries.v[i];
        const struct node *y = &t->node[x->ino];
        if (y->is_folder && mkdirat(dir, x->name, 0777)) abort();
        int fd = openat(dir, x->name, y->is_folder ? O_RDONLY | O_DIRECTORY : O_WRONLY | O_CREAT | O_EXCL, 0666);
        if (fd < 0) abort();
        if (y->is_folder) make(t, x->ino, fd);
        else if (y->size && write(fd, y->data, y->size) != (ssize_t)y->size) abort();
        close(fd);
    }
}

void tree_make(const struct tree *t, int dir) { make(t, t->root, dir); }

/* ---- all of them ------------------------------------------------------------------------------------------------- */

static uint64_t *slot_of(struct states *s, uint64_t hash)
{
    uint64_t i = hash % (uint64_t)s->seen.n;
    while (s->seen.v[i] && s->seen.v[i] != hash) i = (i + 1) % (uint64_t)s->seen.n;
    return &s->seen.v[i];
}

static bool is_new(struct states *s, const struct moment *m)
{
    char hex[33];
    struct text t = {0};
    text_add(&t, "%llu %llu", (unsigned long long)m->begun, (unsigned long long)m->committed);
    tree_text(&s->tree, s->root, &t);
    text_hash(t.s, t.n, hex);
    text_free(&t);
    hex[16] = '\0';
    if (2 * s->n_seen >= s->seen.n) {
        VEC(uint64_t) old = {s->seen.v, s->seen.n, s->seen.cap};
        s->seen.n = s->seen.cap = old.n ? 4 * old.n : 1 << 12;
        s->seen.v = mem_alloc((size_t)s->seen.n * sizeof *s->seen.v);
        for (int i = 0; i < old.n; i++) if (old.v[i]) *slot_of(s, old.v[i]) = old.v[i];
        vec_free(&old);
    }
    uint64_t hash = strtoull(hex, NULL, 16) | 1, *at = slot_of(s, hash);
    bool first = !*at;
    *at = hash;
    s->n_seen += first;
    return first;
}

struct run { struct states *s; int n_ops; const struct moment *m; void *ctx;
             int (*each)(void *, const struct moment *, const struct tree *); };

static int try(const struct run *r)
{
    struct states *s = r->s;
    tree_of(s, r->n_ops);
    s->count.states++;
    if (!is_new(s, r->m)) return 0;
    s->count.distinct++;
    return r->each(r->ctx, r->m, &s->tree);
}

static int ways_of(const struct op *o) { return o->r.kind == REC_WRITE && o->r.n > 1 ? 3 : 2; }

/* What arrived, of choice w of its ways: the first is nothing, the last all. */
static unsigned char got_of(const struct op *o, int w) { return (unsigned char)(w + 1 == ways_of(o) ? ALL : w); }

static int all_of(const struct run *r, int from)
{
    struct states *s = r->s;
    if (from == s->open.n) return try(r);
    const struct op *o = &s->op.v[s->open.v[from]];
    for (int w = 0; w < ways_of(o); w++) {
        s->got[s->open.v[from]] = got_of(o, w);
        int bad = all_of(r, from + 1);
        if (bad) return bad;
    }
    return 0;
}

static void all_set(struct states *s, unsigned char got)
{
    for (int i = 0; i < s->open.n; i++) s->got[s->open.v[i]] = got;
}

/* All but two calls have `most`, these two whatever they may. */
static int two_of(const struct run *r, unsigned char most)
{
    struct states *s = r->s;
    int bad = 0;
    for (int a = 0; !bad && a < s->open.n; a++)
        for (int b = a; !bad && b < s->open.n; b++)
            for (int w = 0; !bad && w < 9; w++) {
                const struct op *x = &s->op.v[s->open.v[a]], *y = &s->op.v[s->open.v[b]];
                if (w % 3 >= ways_of(x) || w / 3 >= ways_of(y)) continue;
                all_set(s, most);
                s->got[s->open.v[a]] = got_of(x, w % 3);
                s->got[s->open.v[b]] = got_of(y, w / 3);
                bad = try(r);
            }
    return bad;
}

static int some_of(const struct run *r, unsigned long limit)
{
    struct states *s = r->s;
    unsigned long until = s->count.states + limit;
    int bad = two_of(r, ALL) || two_of(r, NONE);
    for (int n = 0; !bad && n <= s->open.n; n++) {
        all_set(s, NONE);
        for (int i = 0; i < n; i++) s->got[s->open.v[i]] = ALL;
        bad = try(r);
    }
    while (!bad && s->count.states < until) {
        for (int i = 0; i < s->open.n; i++) {
            const struct op *o = &s->op.v[s->open.v[i]];
            s->random = s->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            s->got[s->open.v[i]] = got_of(o, (int)((s->random >> 33) % (uint64_t)ways_of(o)));
        }
        bad = try(r);
    }
    return bad;
}

static bool is_step(const char *name) { return !strncmp(name, "step-", 5); }
static bool is_metrics(const struct op *o) { return on_entry(o) && !strcmp(o->r.name, "metrics.jsonl"); }

/* Whether a call writes to metrics.jsonl. */
static bool writes_metrics(const struct states *s, const struct op *o)
{
    for (int i = 0; i < s->op.n && on_data(o); i++)
        if (is_metrics(&s->op.v[i]) && s->op.v[i].r.kind == REC_CREATE && s->op.v[i].r.ino == o->r.ino) return true;
    return false;
}

/* Whether a call changes a checkpoint, or the way to it. */
static bool matters(const struct states *s, const struct op *o)
{
    if (on_entry(o) && (o->r.kind == REC_MKDIR || is_step(o->r.name) || is_step(o->r.to))) return true;
    if (is_metrics(o)) return true;
    for (int i = 0; i < s->op.n; i++) {
        const struct op *x = &s->op.v[i];
        if (x->r.kind == REC_MKDIR && is_step(x->r.name) && on_entry(o) && x->r.ino == o->r.dir) return true;
        if (on_data(o) && on_entry(x) && x->r.ino == o->r.ino && matters(s, x)) return true;
    }
    return false;
}

/* Whether a file has got a name by then: what has none is gone after a crash. */
static bool has_name(const struct states *s, uint64_t node, int n_ops)
{
    for (int i = 0; i < n_ops; i++) {
        const struct op *o = &s->op.v[i];
        if (on_entry(o) && o->r.kind != REC_UNLINK && o->r.ino == node) return true;
    }
    return false;
}

/* metrics: whether what is written to metrics.jsonl, but not synced, arrives. */
static int moment_try(const struct run *r, unsigned long limit, bool metrics)
{
    struct states *s = r->s;
    unsigned long ways = 1;
    s->open.n = 0;
    for (int i = 0; i < r->n_ops; i++) {
        const struct op *o = &s->op.v[i];
        bool open = o->matters && o->certain >= r->n_ops && (!on_data(o) || has_name(s, o->r.ino, r->n_ops));
        s->got[i] = open && o->metrics && !metrics ? NONE : ALL;
        if (!open || o->metrics) continue;
        *vec_push(&s->open) = i;
        if (ways <= limit) ways *= (unsigned long)ways_of(o);
    }
    s->count.moments++;
    s->count.bounded += ways > limit;
    return ways > limit ? some_of(r, limit) : all_of(r, 0);
}

static void moment_next(struct moment *m, const struct op *o)
{
    static const char event[] = "\"event\":\"checkpoint\",\"step\":";
    uint64_t n = 0;
    if (o->r.kind == REC_MARK) {
        sscanf(o->r.name, "begin %lu", &m->begun);
        sscanf(o->r.name, "committed %lu", &m->committed);
    } else if (o->r.kind == REC_MKDIR && sscanf(o->r.name, "step-%lu.tmp", &n) == 1 && n > m->begun)
        m->begun = n;
    if (is_metrics(o)) {
        m->metrics = o->r.kind != REC_UNLINK;
        if (!m->metrics) m->committed = 0;
    }
    const char *said = o->r.kind == REC_WRITE ? memmem(o->data, o->r.n, event, sizeof event - 1) : NULL;
    if (said) m->committed = strtoull(said + sizeof event - 1, NULL, 10);
}

int states_each(struct states *s, unsigned long limit, int (*each)(void *ctx, const struct moment *m,
                const struct tree *t), void *ctx)
{
    struct moment *m = mem_alloc(((size_t)s->op.n + 1) * sizeof *m);
    int bad = 0;
    for (int i = 0; i < s->op.n; i++) {
        s->op.v[i].matters = matters(s, &s->op.v[i]);
        s->op.v[i].metrics = writes_metrics(s, &s->op.v[i]);
        m[i + 1] = m[i];
        moment_next(&m[i + 1], &s->op.v[i]);
    }
    for (int i = 0; !bad && i <= s->op.n; i++) {
        int n = s->last_first ? s->op.n - i : i;
        struct run r = {s, n, &m[n], ctx, each};
        bad = moment_try(&r, limit, true) || moment_try(&r, limit, false);
    }
    free(m);
    return bad;
}

struct states_count states_count(const struct states *s) { return s->count; }

void states_print(const struct states *s, const struct tree *t)
{
    static const char *const kind[] = {"root", "create", "mkdir", "write", "size", "sync", "link", "rename", "unlink",
                                       "mark"};
    static const char *const got[] = {"lost", "half", "there"};
    for (int i = 0; i < t->n_ops; i++) {
        const struct record *r = &s->op.v[i].r;
        printf("# %3d rank %u %-6s %s%s%s node %lu in %lu, %lu bytes: %s\n", i, r->rank, kind[r->kind], r->name,
               *r->to ? " to " : "", r->to, r->ino, r->dir, r->n, s->op.v[i].certain < 0 ? "" : got[t->got[i]]);
    }
}

void states_close(struct states *s)
{
    for (uint64_t i = 0; i <= s->n_nodes; i++) {
        free(s->tree.node[i].data);
        vec_free(&s->tree.node[i].entries);
    }
    free(s->tree.node);
    free(s->got);
    vec_free(&s->op);
    vec_free(&s->open);
    vec_free(&s->seen);
    text_free(&s->file);
    free(s);
}
