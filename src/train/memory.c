/* Reads how much memory there is, as pools that ranks share (job/memory_limit.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include "train/sequencer.h"
#include "train/memory.h"
#include "train/ckpt_writer.h"
#include "exec/exec.h"

enum { FILE_MOST = 1 << 22 };

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static bool file_read(const char *root, const char *dir, const char *name, struct text *t)
{
    char path[4096];
    struct err none = {0};
    t->n = 0;
    int n = snprintf(path, sizeof path, "%s%s/%s", root, dir, name);
    return n < (int)sizeof path && !text_read_file(t, path, FILE_MOST, &none) && t->n;
}

/* The number after a word at the beginning of a line; 0: none. */
static uint64_t number_of(const char *s, const char *word)
{
    size_t n = strlen(word);
    for (; s; s = (s = strchr(s, '\n')) ? s + 1 : NULL)
        if (!strncmp(s, word, n) && (s[n] == ' ' || s[n] == '\t' || s[n] == ':'))
            return strtoull(s + n + strspn(s + n, ": \t"), NULL, 10);
    return 0;
}

/* Reads a file with one number; UINT64_MAX for "max", or if there is no file. */
static uint64_t file_number(const char *root, const char *dir, const char *name)
{
    struct text t = {0};
    char *end = NULL;
    uint64_t bytes = file_read(root, dir, name, &t) ? strtoull(t.s, &end, 10) : 0;
    bool any = end && end != t.s;
    text_free(&t);
    return any ? bytes : UINT64_MAX;
}

/* If the table is full, leaves out the pool with the most bytes. */
static struct memory_pool *pool_add(struct memory_info *w, uint64_t id, uint64_t bytes)
{
    int at = w->n;
    if (at == MEMORY_POOLS) {
        at = 0;
        for (int i = 1; i < w->n; i++) if (w->pool[i].bytes > w->pool[at].bytes) at = i;
        if (w->pool[at].bytes < bytes) return NULL;
    } else w->n++;
    w->pool[at] = (struct memory_pool){.id = id, .bytes = bytes};
    return &w->pool[at];
}

static uint64_t left(uint64_t limit, uint64_t used) { return limit > used ? limit - used : 0; }

static void host_read(const char *root, struct memory_info *w)
{
    struct text t = {0};
    bool there = file_read(root, "/proc", "meminfo", &t) && strstr(t.s, "MemAvailable:");
    struct memory_pool *p = there ? pool_add(w, 0, number_of(t.s, "MemAvailable") * 1024) : NULL;
    if (p) snprintf(p->name, sizeof p->name, "free memory of the host (MemAvailable)");
    text_free(&t);
}

/* ---- cgroups ----------------------------------------------------------------------------------------------------- */

/* The files of both cgroup versions. A limit of 2^60 or more means no limit. */
struct cg_kind { const char *limit, *high, *usage, *cache[3]; };
static const struct cg_kind CG_V2 = {"memory.max", "memory.high", "memory.current",
                                     {"inactive_file", "active_file", "slab_reclaimable"}};
static const struct cg_kind CG_V1 = {"memory.limit_in_bytes", NULL, "memory.usage_in_bytes",
                                     {"total_inactive_file", "total_active_file", NULL}};
static const uint64_t CG_NONE = UINT64_C(1) << 60;

/* Memory in use without pages of files, which the kernel drops before it kills a process. */
static uint64_t level_used(const char *root, const char *dir, const struct cg_kind *k)
{
    struct text t = {0};
    uint64_t used = file_number(root, dir, k->usage), files = 0;
    if (file_read(root, dir, "memory.stat", &t))
        for (int i = 0; i < 3 && k->cache[i]; i++) files += number_of(t.s, k->cache[i]);
    text_free(&t);
    return used == UINT64_MAX ? 0 : left(used, files);
}

static void level_read(const char *root, const char *dir, const struct cg_kind *k, struct memory_info *w)
{
    char path[4096];
    struct stat st;
    const char *const file[] = {k->limit, k->high};
    snprintf(path, sizeof path, "%s%s", root, dir);
    for (int soft = 0; soft < 2 && file[soft]; soft++) {
        uint64_t limit = file_number(root, dir, file[soft]);
        if (limit >= CG_NONE || stat(path, &st)) continue;
        struct memory_pool *p = pool_add(w, 2 * (uint64_t)st.st_ino + (uint64_t)soft,
                                         left(limit, level_used(root, dir, k)));
        if (!p) continue;
        size_t n = strlen(dir);                           /* the end of a long path is more specific */
        p->soft = soft;
        snprintf(p->name, sizeof p->name, "the cgroup's %s (%s%.56s)", file[soft], n > 56 ? "..." : "",
                 n > 56 ? dir + n - 56 : dir);
    }
}

/* Version 1: whether the usage of the groups below counts here. Its file contains 0 if not. */
static bool counts_below(const char *root, const char *dir)
{
    return file_number(root, dir, "memory.use_hierarchy") != 0;
}

/* Reads all levels from dir up to the mount point. */
static void levels_read(const char *root, char *dir, size_t mount, const struct cg_kind *k, struct memory_info *w)
{
    for (bool first = true;; first = false) {
        if (!first && k == &CG_V1 && !counts_below(root, dir)) return;
        level_read(root, dir, k, w);
        char *slash = strrchr(dir, '/');
        if (strlen(dir) <= mount || !slash) return;
        *slash = '\0';
    }
}

/* Whether a word is in a list with commas. */
static bool list_has(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (; list; list = (list = strchr(list, ',')) ? list + 1 : NULL)
        if (!strncmp(list, word, n) && (!list[n] || list[n] == ',')) return true;
    return false;
}

/* Fields of mountinfo have spaces and similar characters as three octal digits. */
static void unescape(char *s)
{
    char *to = s;
    for (; *s; s++, to++) {
        bool octal = s[0] == '\\' && strspn(s + 1, "01234567") >= 3;
        *to = octal ? (char)((s[1] - '0') << 6 | (s[2] - '0') << 3 | (s[3] - '0')) : *s;
        if (octal) s += 3;
    }
    *to = '\0';
}

/* Parses a line of mountinfo: the group that is mounted, and where. False: no cgroup mount with memory. */
static bool mount_parse(const char *line, bool *v2, char *from, char *at)
{
    char type[32], options[512];
    const char *rest = strstr(line, " - ");
    if (!rest || sscanf(line, "%*s %*s %*s %2047s %2047s", from, at) != 2) return false;
    if (sscanf(rest, " - %31s %*s %511s", type, options) != 2) return false;
    unescape(from);
    unescape(at);
    *v2 = !strcmp(type, "cgroup2");
    return *v2 || (!strcmp(type, "cgroup") && list_has(options, "memory"));
}

/* The group of this process, from /proc/self/cgroup; false: none. */
static bool group_find(const char *text, bool v2, char *out, size_t n)
{
    for (const char *s = text; s; s = (s = strchr(s, '\n')) ? s + 1 : NULL) {
        char names[256] = "";
        const char *first = strchr(s, ':'), *second = first ? strchr(first + 1, ':') : NULL, *end = strchr(s, '\n');
        if (!second || (end && second > end)) continue;
        snprintf(names, sizeof names, "%.*s", (int)(second - first - 1), first + 1);
        if (v2 ? *names != '\0' : !list_has(names, "memory")) continue;
        snprintf(out, n, "%.*s", end ? (int)(end - second - 1) : (int)strlen(second + 1), second + 1);
        return true;
    }
    return false;
}

/* A container's mount may begin at its own group; the path is then below that. */
static void mount_read(const char *root, const char *line, const char *groups, struct memory_info *w)
{
    char from[2048], at[2048], group[2048], dir[4200];
    bool v2;
    if (!mount_parse(line, &v2, from, at) || !group_find(groups, v2, group, sizeof group)) return;
    size_t n = strcmp(from, "/") ? strlen(from) : 0, mount = strlen(at);
    bool below = !strncmp(group, from, n) && (group[n] == '/' || !group[n]) && !strstr(group, "/..");
    const char *path = below && strcmp(group + n, "/") ? group + n : "";
    snprintf(dir, sizeof dir, "%s%s", at, path);
    levels_read(root, dir, mount, v2 ? &CG_V2 : &CG_V1, w);
}

static void cgroups_read(const char *root, struct memory_info *w)
{
    struct text groups = {0}, mounts = {0};
    char *save = NULL;
    if (file_read(root, "/proc/self", "cgroup", &groups) && file_read(root, "/proc/self", "mountinfo", &mounts))
        for (char *line = strtok_r(mounts.s, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
            mount_read(root, line, groups.s, w);
    text_free(&groups);
    text_free(&mounts);
}

/* ---- limits of the process --------------------------------------------------------------------------------------- */

/* Stacks of threads take address space, used or not. The daemon has a few threads besides those that compute. */
static uint64_t stacks_bytes(int threads)
{
    enum { OTHERS = 8 };
    const rlim_t usual = 8 << 20;
    struct rlimit r;
    bool known = !getrlimit(RLIMIT_STACK, &r) && r.rlim_cur != RLIM_INFINITY;
    return (uint64_t)(threads + OTHERS) * (known ? r.rlim_cur : usual);
}

static void limits_read(const char *root, int threads, struct memory_info *w)
{
    static const struct { int which; const char *line, *name; } kind[] = {
        {RLIMIT_AS, "VmSize", "the process's address space (ulimit -v)"},
        {RLIMIT_DATA, "VmData", "the process's data (ulimit -d)"},
    };
    struct text t = {0};
    struct rlimit r;
    bool there = file_read(root, "/proc/self", "status", &t);
    for (size_t i = 0; i < sizeof kind / sizeof *kind; i++) {
        if (getrlimit(kind[i].which, &r) || r.rlim_cur == RLIM_INFINITY) continue;
        uint64_t used = there ? number_of(t.s, kind[i].line) * 1024 : 0;
        struct memory_pool *p = pool_add(w, 0, left(r.rlim_cur, used + stacks_bytes(threads)));
        if (!p) continue;
        p->own = true;
        snprintf(p->name, sizeof p->name, "%s", kind[i].name);
    }
    text_free(&t);
}

void memory_read(const char *root, int threads, struct memory_info *w)
{
    *w = (struct memory_info){0};
    limits_read(root, threads, w);
    host_read(root, w);
    cgroups_read(root, w);
}

/* ---- pools of ranks ---------------------------------------------------------------------------------------------- */

/* What a rank takes besides its plan and its reading: generated kernel code, packed operands, stacks and tables.
 * Measured: 9 MiB of an MLP's rank, 29 to 47 MiB of ranks of ResNets and of a ViT, whatever their size. */
static const uint64_t RANK_LEAST = 16 << 20, RANK_MORE = 32 << 20;

static bool reads(const struct job *j, struct plan *const *plan, int rank)
{
    return exec_feed_bytes(j->conf, plan, j->n_plans, job_coord(j, rank).at[AXIS_PP]) > 0;
}

static struct plan *const *plans_of(const struct job *j, int rank)
{
    return j->more && !j->first_only ? job_plans(j, rank) : j->plan;
}

/* State is initialised and written one tensor at a time. Rank 0 writes the tensors of all ranks, which send them as
 * messages. So sender and receiver each have a copy; in one process one copy serves both. */
static uint64_t tensor_largest(const struct job *j, int rank)
{
    uint64_t most = 0;
    for (int i = 0; i < j->pl->n_state; i++) {
        const struct state_row *r = &j->pl->state[i];
        bool passes = !rank || r->off[job_coord(j, rank).at[AXIS_PP]] != STATE_NOWHERE;
        if (passes && state_plain_bytes(r) > most) most = state_plain_bytes(r);
    }
    return job_world(j) > 1 && (rank || !j->host->threads) ? 2 * most : most;
}

/* fit_host.beside. In one process the first rank that reads counts the cache of files. */
static uint64_t rank_beside(const struct job *j, int rank)
{
    const struct fit_host *h = j->host;
    uint64_t plan = limit_bytes(j, job_coord(j, rank).at[AXIS_PP]), more = plan / 4 < RANK_MORE ? plan / 4 : RANK_MORE;
    uint64_t feed = exec_feed_bytes(j->conf, plans_of(j, rank), j->n_plans, job_coord(j, rank).at[AXIS_PP]);
    uint64_t bytes = RANK_LEAST + more + feed + tensor_largest(j, rank);
    bool counts = reads(j, plans_of(j, rank), rank);
    if (counts) bytes += h->reader;
    for (int r = 0; r < rank && counts && h->threads; r++) counts = !reads(j, plans_of(j, r), r);
    if (counts) bytes += h->cache;
    return bytes + (conf_saves(j->conf) ? save_staging_bytes(j, rank) : 0);
}

/* The pool of that id that an earlier rank of the host has; NULL: none. */
static struct fit_pool *pool_shared(const struct memory *m, const struct memory_info *w, const struct memory_pool *p)
{
    for (int i = 0; i < m->host.n && !p->own; i++) {
        const struct memory_pool *other = m->from[i];
        int first = 0;
        while (!m->pool[i].of[first]) first++;
        if (!other->own && other->id == p->id && m->word[first].host == w->host) return &m->pool[i];
    }
    return NULL;
}

/* words 1: all ranks are in that process. */
static void pool_take(struct memory *m, int word, const struct memory_pool *p, int words)
{
    struct fit_pool *to = pool_shared(m, &m->word[word], p);
    if (!to) {
        m->from[m->host.n] = p;
        to = &m->pool[m->host.n];
        *to = (struct fit_pool){.bytes = p->bytes, .name = p->name, .n_of = words, .soft = p->soft,
                                .of = m->of + (size_t)m->host.n++ * (size_t)words};
    }
    m->of[(size_t)(to - m->pool) * (size_t)words + (size_t)word] = true;
    if (p->bytes < to->bytes) to->bytes = p->bytes;
}

void memory_make(struct memory_info *word, int words, bool threads, struct memory *m)
{
    size_t most = (size_t)words * MEMORY_POOLS;
    *m = (struct memory){.word = word, .pool = mem_alloc(most * sizeof *m->pool),
                         .from = mem_alloc(most * sizeof *m->from), .of = mem_alloc(most * (size_t)words)};
    for (int i = 0; i < words; i++)
        for (int k = 0; k < word[i].n; k++) pool_take(m, i, &word[i].pool[k], words);
    m->host.pool = m->pool;
    m->host.beside = rank_beside;
    m->host.threads = threads;
}

void memory_all(struct memory *m, int n, bool own)
{
    m->of = mem_resize(m->of, (size_t)n * sizeof *m->of + 1);
    for (int i = 0; i < n; i++) m->of[i] = true;
    for (int i = 0; i < m->host.n; i++) {
        m->pool[i].each = own && m->from[i]->own;
        m->pool[i].of = n ? m->of : NULL;
        m->pool[i].n_of = n;
    }
}

void memory_reads(struct memory *m, const struct job *j)
{
    for (int part = DS_TRAIN; part <= DS_TEST; part++) {
        const struct ds *d = j->data[part];
        if (d) memory_reads_add(m, j, d->kind->kept > d->each ? d->kind->kept : d->each, d->shared);
    }
}

void memory_reads_add(struct memory *m, const struct job *j, size_t each, size_t shared)
{
    uint64_t all = (uint64_t)each * (uint64_t)(j->conf->data.workers > 1 ? j->conf->data.workers : 1);
    if (all > m->host.reader) m->host.reader = all;
    m->host.cache += shared;
}

void memory_free(struct memory *m)
{
    free(m->word);
    free(m->pool);
    free(m->from);
    free(m->of);
    *m = (struct memory){0};
}

void memory_notes(const struct job *j, struct text *out)
{
    uint64_t need = 0;
    char b[2][32];
    const struct fit_pool *p = limit_pool_short(j, true, &need);
    if (!p) return;
    text_add(out, "note: the run needs %s, more than the %s of %s: the system will slow it down\n",
             text_bytes(need, b[0]), text_bytes(p->bytes, b[1]), p->name);
}
