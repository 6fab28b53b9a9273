#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/out.h"
#include "report/confusion.h"
#include "cluster/log.h"

struct confusion {
    const struct rundir *dir;
    struct ds *data;
    int64_t n;
    int field;                                            /* of the data set: the target */
    bool is_class;
    const char *const *name;
    uint64_t all, *count;                                 /* samples; [class][predicted class] */
    void *target;                                         /* memory for one target */
};

/* The graph's target, which a loss compares with the output; -1: none. */
static int target_of(const struct graph *g)
{
    const struct node *loss = g->loss >= 0 ? &g->node[g->tensor[g->loss].producer] : NULL;
    return loss && loss->n_in > 1 ? loss->in[1] : -1;
}

int confusion_check(const struct job *j, struct err *e)
{
    const struct graph *g = j->graph;
    if (!j->conf->train.confusion || j->conf->run.predict) return 0;
    if (!j->count[DS_TEST]) return conf_error(j->conf, "train.confusion", e, "there are no test samples to evaluate");
    const struct shape *out = &g->tensor[g->output].shape;
    int t = target_of(g);
    bool class = t >= 0 && g->tensor[t].type == I64 && !g->tensor[t].shape.n;
    bool vector = t >= 0 && g->tensor[t].type == F32 && shape_equal(&g->tensor[t].shape, out) &&
                  j->conf->data.labels != LABELS_VECTOR;
    if (out->n == 1 && out->d[0] > 1 && out->d[0] <= 4096 && (class || vector)) return 0;
    return conf_error(j->conf, "train.confusion", e, "is for networks with one output a class, 2 to 4096 of them, and "
                      "classes as labels");
}

struct confusion *confusion_new(const struct job *j, const struct rundir *dir)
{
    const struct graph *g = j->graph;
    if (!j->conf->train.confusion || j->conf->run.predict) return NULL;
    struct confusion *c = mem_alloc(sizeof *c);
    int t = target_of(g);
    *c = (struct confusion){.dir = dir, .data = j->data[DS_TEST], .n = g->tensor[g->output].shape.d[0],
                            .is_class = g->tensor[t].type == I64, .all = j->count[DS_TEST]};
    c->field = c->data->of[graph_input_find(g, t)];
    c->name = c->data->n_classes == c->n ? c->data->class_name : NULL;
    c->count = mem_alloc((size_t)(c->n * c->n) * sizeof *c->count);
    c->target = mem_alloc(c->is_class ? sizeof(int64_t) : (size_t)c->n * sizeof(float));
    return c;
}

void confusion_free(struct confusion *c)
{
    if (!c) return;
    free(c->count);
    free(c->target);
    free(c);
}

/* ---- counting ---------------------------------------------------------------------------------------------------- */

/* The first of the largest values, as in the score top1 (ops/loss.h). */
static int64_t largest(const float *x, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++) if (x[i] > x[best]) best = i;
    return best;
}

static double share(const struct confusion *c, int64_t class, uint64_t *samples)
{
    *samples = 0;
    for (int64_t k = 0; k < c->n; k++) *samples += c->count[class * c->n + k];
    return *samples ? (double)c->count[class * c->n + class] / (double)*samples : 1;
}

static const char *called(const struct confusion *c, int64_t class, char buf[64])
{
    if (c->name) text_printable(c->name[class], buf, 64);
    else snprintf(buf, 64, "%lld", (long long)class);
    return buf;
}

/* Logs the three classes with the lowest accuracy, if there are more than three. */
static void worst_report(const struct confusion *c)
{
    enum { WORST = 3 };
    struct text t = {0};
    int64_t worst[WORST] = {-1, -1, -1};
    for (int w = 0; w < WORST && c->n > WORST; w++) {
        double least = 1;
        uint64_t samples;
        for (int64_t k = 0; k < c->n; k++) {
            double s = share(c, k, &samples);
            if (s < least && k != worst[0] && k != worst[1]) least = s, worst[w] = k;
        }
        char name[64];
        if (worst[w] >= 0) text_add(&t, "%s%s %.3f", t.n ? ", " : "", called(c, worst[w], name), least);
    }
    if (t.n) log_line("lowest accuracy: %s", t.s);
    text_free(&t);
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

static int file_write(const struct confusion *c, const char *name, const struct text *t, struct err *e)
{
    struct out_place at;
    if (out_place_in(c->dir->fd, c->dir->path, name, &at, e)) return -1;
    int bad = out_file(&at, t, false, e);
    out_place_free(&at);
    return bad;
}

static int files_write(const struct confusion *c, struct err *e)
{
    struct text csv = {0}, png = {0};
    confusion_csv(c->count, c->n, c->name, &csv);
    int bad = file_write(c, "confusion.csv", &csv, e) || confusion_png(c->count, c->n, c->name, &png, e) ||
              file_write(c, "confusion.png", &png, e);
    text_free(&csv);
    text_free(&png);
    return bad ? -1 : 0;
}

int confusion_rows(struct confusion *c, const float *x, int n, uint64_t first, struct err *e)
{
    if (!first) memset(c->count, 0, (size_t)(c->n * c->n) * sizeof *c->count);
    for (int i = 0; i < n; i++, x += c->n) {
        if (c->data->kind->read(c->data, first + (uint64_t)i, 0, c->field, c->target, e)) return -1;
        int64_t class = c->is_class ? *(const int64_t *)c->target : largest(c->target, c->n);
        c->count[class * c->n + largest(x, c->n)]++;
    }
    if (first + (uint64_t)n < c->all) return 0;
    worst_report(c);
    return files_write(c, e);
}

static void cell_add(struct text *t, const char *before, const char *const *name, int64_t k)
{
    const char *s = name ? name[k] : NULL;
    bool quoted = s && strpbrk(s, ",\"\r\n");
    text_add(t, quoted ? "\"%s" : "%s", before);
    if (!s) text_add(t, "%lld", (long long)k);
    for (; s && *s; s++) text_add(t, *s == '"' ? "\"%c" : "%c", *s);
    if (quoted) text_add(t, "\"");
}

void confusion_csv(const uint64_t *count, int64_t n, const char *const *name, struct text *out)
{
    text_add(out, "class,samples,accuracy");
    for (int64_t k = 0; k < n; k++) text_add(out, ","), cell_add(out, "as_", name, k);
    text_add(out, "\n");
    for (int64_t i = 0; i < n; i++) {
        uint64_t all = 0;
        for (int64_t k = 0; k < n; k++) all += count[i * n + k];
        cell_add(out, "", name, i);
        text_add(out, ",%llu,", (unsigned long long)all);
        if (all) text_add(out, "%.6f", (double)count[i * n + i] / (double)all);
        for (int64_t k = 0; k < n; k++) text_add(out, ",%llu", (unsigned long long)count[i * n + k]);
        text_add(out, "\n");
    }
}
