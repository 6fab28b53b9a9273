#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "report/label_maps.h"
#include "report/json_name.h"
#include "report/predict.h"

enum { TOP = 5 };
struct predict {
    const struct ds *data;
    const struct tensor *tensor;
    int64_t width;                                        /* values per sample */
    /* NULL: the output is the result */
    void (*probabilities)(const float *output, int64_t n, double *p);
    const char *const *class_name;
    const struct output_form *form;
    struct label_maps *maps;                              /* NULL: writes a file of rows */
    struct out out;
    bool open;
    uint64_t count, rows, nonfinite;
    int n_top;
    int64_t top[TOP];
    double *p;                                            /* values of one sample */
    struct text t, name;
};
/* A form of file: the end of its name; head: writes the part before the rows; row: writes a row from p->p. */
struct output_form {
    const char *end;
    void (*head)(struct predict *p);
    void (*row)(struct predict *p, uint64_t sample);
};

static const char *name_of(struct predict *p, uint64_t sample)
{
    p->name.n = 0;
    if (p->data->kind->name_of) p->data->kind->name_of(p->data, sample, &p->name);
    return p->name.n ? p->name.s : NULL;
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

/* Nine digits distinguish all floats. */
static void number_add(struct text *t, double x, const char *none)
{
    if (isfinite(x)) text_add(t, "%.9g", x);
    else text_add(t, "%s", none ? none : isnan(x) ? "nan" : x > 0 ? "inf" : "-inf");
}

/* The most probable first; of equal ones the lower number; NaN last. */
static void top_find(struct predict *p)
{
    for (int k = 0; k < p->n_top; k++) {
        int64_t best = -1;
        for (int64_t i = 0; i < p->width; i++) {
            bool taken = false;
            for (int j = 0; j < k; j++) taken |= p->top[j] == i;
            if (!taken && (best < 0 || p->p[i] > p->p[best] || (isnan(p->p[best]) && !isnan(p->p[i])))) best = i;
        }
        p->top[k] = best;
    }
}

/* ---- CSV, by RFC 4180 -------------------------------------------------------------------------------------------- */

static void field_add(struct text *t, const char *before, const char *s)
{
    bool quoted = strpbrk(s, ",\"\r\n") != NULL;
    struct text all = {0};
    text_add(&all, "%s%s", before, s);
    if (quoted) text_add(t, "\"");
    for (const char *c = all.s; *c; c++) text_add(t, *c == '"' ? "\"%c" : "%c", *c);
    if (quoted) text_add(t, "\"");
    text_free(&all);
}

static void class_add(struct predict *p, const char *before, int64_t k)
{
    char number[24];
    snprintf(number, sizeof number, "%lld", (long long)k);
    field_add(&p->t, before, p->class_name ? p->class_name[k] : number);
}

static void csv_head(struct predict *p)
{
    text_add(&p->t, "sample");
    for (int k = 0; k < p->n_top; k++) text_add(&p->t, k ? ",class%d" : ",class", k + 1);
    for (int64_t i = 0; i < p->width; i++) {
        text_add(&p->t, ",");
        if (p->probabilities) class_add(p, "p_", i);
        else text_add(&p->t, "v%lld", (long long)i);
    }
    text_add(&p->t, "\n");
}

static void csv_row(struct predict *p, uint64_t sample)
{
    const char *name = name_of(p, sample);
    if (name) field_add(&p->t, "", name);
    else text_add(&p->t, "%llu", (unsigned long long)sample);
    for (int k = 0; k < p->n_top; k++) {
        text_add(&p->t, ",");
        class_add(p, "", p->top[k]);
    }
    for (int64_t i = 0; i < p->width; i++) {
        text_add(&p->t, ",");
        number_add(&p->t, p->p[i], NULL);
    }
    text_add(&p->t, "\n");
}

/* ---- JSON lines -------------------------------------------------------------------------------------------------- */

static void json_text_add(struct text *t, const char *s)
{
    json_t *o = json_name(s);
    char *line = json_dumps(o, JSON_ENCODE_ANY | JSON_COMPACT);
    text_add(t, "%s", line);
    free(line);
    json_decref(o);
}

static void class_json(struct predict *p, const char *key, int64_t k)
{
    text_add(&p->t, "\"%s\":%lld", key, (long long)k);
    if (!p->class_name) return;
    text_add(&p->t, ",\"%s_name\":", key);
    json_text_add(&p->t, p->class_name[k]);
}

static void json_head(struct predict *p) { (void)p; }

static void json_row(struct predict *p, uint64_t sample)
{
    const char *name = name_of(p, sample);
    text_add(&p->t, "{\"sample\":%llu", (unsigned long long)sample);
    if (name) text_add(&p->t, ",\"name\":"), json_text_add(&p->t, name);
    if (p->n_top) {
        text_add(&p->t, ",");
        class_json(p, "class", p->top[0]);
        text_add(&p->t, ",\"top%d\":[", TOP);
        for (int k = 0; k < p->n_top; k++) {
            text_add(&p->t, k ? ",{" : "{");
            class_json(p, "class", p->top[k]);
            text_add(&p->t, ",\"probability\":");
            number_add(&p->t, p->p[p->top[k]], "null");
            text_add(&p->t, "}");
        }
        text_add(&p->t, "]");
    }
    text_add(&p->t, p->probabilities ? ",\"probabilities\":[" : ",\"values\":[");
    for (int64_t i = 0; i < p->width; i++) {
        if (i) text_add(&p->t, ",");
        number_add(&p->t, p->p[i], "null");
    }
    text_add(&p->t, "]}\n");
}

/* ---- NumPy's array: F32, samples x the tensor's shape ------------------------------------------------------------ */

/* Version 1.0: magic, two bytes of length, a dictionary that is padded to 64 bytes and ends with a newline. */
static void npy_head(struct predict *p)
{
    enum { MAGIC = 10, ALIGN = 64 };
    struct text d = {0};
    text_add(&d, "{'descr': '<f4', 'fortran_order': False, 'shape': (%llu,", (unsigned long long)p->count);
    for (int i = 0; i < p->tensor->shape.n; i++) text_add(&d, " %lld,", (long long)p->tensor->shape.d[i]);
    text_add(&d, "), }");
    while ((MAGIC + d.n + 1) % ALIGN) text_add(&d, " ");
    text_add(&d, "\n");
    const unsigned char head[MAGIC] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (unsigned char)(d.n & 255),
                                       (unsigned char)(d.n >> 8)};
    text_add_bytes(&p->t, head, MAGIC);
    text_add_bytes(&p->t, d.s, d.n);
    text_free(&d);
}

static void npy_row(struct predict *p, uint64_t sample)
{
    (void)sample;
    for (int64_t i = 0; i < p->width; i++) {
        float v = (float)p->p[i];
        text_add_bytes(&p->t, &v, sizeof v);
    }
}

/* ---- open and close ---------------------------------------------------------------------------------------------- */

static const struct output_form forms[] = {
    {".csv", csv_head, csv_row}, {".jsonl", json_head, json_row}, {".npy", npy_head, npy_row}, {0}};

/* conf_finish has checked the name: a name with none of these ends is a folder of label maps. */
static const struct output_form *form_of(const char *file)
{
    const struct output_form *f = forms;
    size_t n = strlen(file);
    while (f->end && (n < strlen(f->end) || strcmp(file + n - strlen(f->end), f->end))) f++;
    return f;
}

static int flush(struct predict *p, struct err *e)
{
    int bad = p->t.n ? out_write(&p->out, p->t.s, p->t.n, e) : 0;
    p->t.n = 0;
    return bad;
}

int predict_open(const struct job *j, const struct out_place *at, const atomic_int *stop, struct predict **out,
                 struct err *e)
{
    struct predict *p = mem_alloc(sizeof *p);
    const struct graph *g = j->graph;
    *p = (struct predict){.data = j->data[DS_TEST], .tensor = &g->tensor[j->output], .count = j->count[DS_TEST],
                          .form = form_of(j->conf->run.predict)};
    p->width = shape_count(&p->tensor->shape);
    p->p = mem_alloc((size_t)p->width * sizeof *p->p);
    if (g->loss_op && p->tensor->shape.n == 1 && !j->conf->run.predict_tensor)
        p->probabilities = g->loss_op->probabilities;
    if (p->probabilities) p->n_top = p->width < TOP ? (int)p->width : TOP;
    if (p->data->n_classes == p->width) p->class_name = p->data->class_name;
    *out = p;
    if (!p->form->end) return label_maps_open(j, at, stop, &p->maps, e);
    if (out_begin(&p->out, at, stop, e)) return -1;
    p->open = true;
    p->form->head(p);
    return flush(p, e);
}

static int maps_add(struct predict *p, const float *x, int n, uint64_t first, struct err *e)
{
    for (int i = 0; i < n; i++, x += p->width) {
        bool finite = true;
        for (int64_t k = 0; k < p->width; k++) finite &= isfinite(x[k]) != 0;
        p->nonfinite += !finite;
        p->rows++;
        if (label_maps_add(p->maps, x, first + (uint64_t)i, e)) return -1;
    }
    return 0;
}

int predict_rows(struct predict *p, const float *x, int n, uint64_t first, struct err *e)
{
    if (p->maps) return maps_add(p, x, n, first, e);
    for (int i = 0; i < n; i++, x += p->width) {
        bool finite = true;
        if (p->probabilities) p->probabilities(x, p->width, p->p);
        for (int64_t k = 0; k < p->width; k++) {
            /* rounded, so that all forms of files have the same values */
            p->p[k] = p->probabilities ? (float)p->p[k] : x[k];
            finite &= isfinite(x[k]) != 0;
        }
        p->nonfinite += !finite;
        p->rows++;
        top_find(p);
        p->form->row(p, first + (uint64_t)i);
    }
    return flush(p, e);
}

bool predict_complete(const struct predict *p) { return p->rows == p->count; }

int predict_commit(struct predict *p, struct err *e)
{
    if (p->maps) return label_maps_commit(p->maps, e);
    p->open = false;
    return out_commit(&p->out, false, e);
}

uint64_t predict_nonfinite(const struct predict *p) { return p->nonfinite; }

void predict_free(struct predict *p)
{
    if (!p) return;
    if (p->open) out_drop(&p->out);
    label_maps_free(p->maps);
    text_free(&p->t);
    text_free(&p->name);
    free(p->p);
    free(p);
}
