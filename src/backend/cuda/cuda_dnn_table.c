/* The kernel table: text, measured on one GPU, that names the kernel for each pass of each convolution.
 *
 *     kernels of NVIDIA H200, cuDNN 9.19.0, cuBLASLt 13.1.0
 *     bf16 forward n20 c64>64/1 1x32x32>1x32x32 k1x3x3 s1x1x1 p0x1x1 d1x1x1: plain 62 2=3 5=1
 *     bf16 weights+ n20 c64>256/1 1x32x32>1x32x32 k1x1x1 s1x1x1 p0x0x0 d1x1x1: cublaslt
 *
 * A line has a pass, then its form (enum form) and cuDNN's engine with its knobs. Engine numbers are valid only within
 * one version of the library, so the first line must match. The text comes from a file and may be anything. */
#include <stdlib.h>
#include <string.h>
#include "backend/cuda/cuda_dnn_int.h"

const char *const form_name[FORMS] = {[FORM_PLAIN] = "plain", [FORM_APART] = "apart", [FORM_ADD] = "add"};

void engine_text(const struct engine *g, struct text *out)
{
    text_add(out, "%lld", (long long)g->index);
    for (int i = 0; i < g->n_knobs; i++)
        text_add(out, " %lld=%lld", (long long)g->knob[i].type, (long long)g->knob[i].value);
}

static bool number(const char **s, int64_t *out)
{
    char *end;
    if (**s != '-' && (**s < '0' || **s > '9')) return false;   /* strtoll skips blanks */
    *out = strtoll(*s, &end, 10);
    if (end == *s) return false;
    *s = end;
    return true;
}

static int engine_read(const char *s, struct engine *out)
{
    *out = (struct engine){0};
    if (!number(&s, &out->index) || out->index < 0) return -1;
    while (*s) {
        int64_t type, value;
        if (out->n_knobs == MAX_KNOBS || *s++ != ' ') return -1;
        if (!number(&s, &type) || *s++ != '=' || !number(&s, &value) || type < 0 || type >= MAX_KNOBS) return -1;
        out->knob[out->n_knobs].type = type;
        out->knob[out->n_knobs++].value = value;
    }
    return 0;
}

int kernel_read(const char *s, enum form *form, struct engine *engine)
{
    for (int i = 0; i < FORMS; i++) {
        size_t n = strlen(form_name[i]);
        if (strncmp(s, form_name[i], n) || s[n] != ' ') continue;
        *form = (enum form)i;
        return engine_read(s + n + 1, engine);
    }
    return -1;
}

char *table_find(const char *table, const char *key)
{
    size_t n = strlen(key);
    for (const char *s = table; *s;) {
        const char *end = s + strcspn(s, "\n");
        if ((size_t)(end - s) > n + 2 && memcmp(s, key, n) == 0 && memcmp(s + n, ": ", 2) == 0) {
            size_t len = (size_t)(end - s) - n - 2;
            char *what = mem_alloc(len + 1);
            memcpy(what, s + n + 2, len);
            return what;
        }
        s = *end ? end + 1 : end;
    }
    return NULL;
}

void dnn_table_head(const struct dnn *d, struct text *out)
{
    text_add(out, "kernels of %s, ", d->name);
    libraries_text(out);
    text_add(out, "\n");
}

static bool line_good(const char *s, size_t n)
{
    struct engine engine;
    enum form form;
    char *line = mem_alloc(n + 1), *what;
    memcpy(line, s, n);
    what = strstr(line, ": ");
    bool good = what && what > line && (strcmp(what + 2, "cublaslt") == 0 || !kernel_read(what + 2, &form, &engine));
    free(line);
    return good;
}

/* The length of the line at s that a message shows. */
static int shown(const char *s)
{
    size_t n = strcspn(s, "\n");
    return n < 200 ? (int)n : 200;
}

static int head_check(const struct dnn *d, size_t *head, struct err *e)
{
    struct text want = {0};
    int bad = 0;
    dnn_table_head(d, &want);
    *head = want.n;
    if (strncmp(d->table, want.s, want.n) != 0)
        bad = err_set(e, E_DATA, "the kernel table begins with \"%.*s\" instead of \"%.*s\": measure a new one",
                      shown(d->table), d->table, (int)want.n - 1, want.s);
    text_free(&want);
    return bad;
}

int table_check(const struct dnn *d, struct err *e)
{
    size_t head;
    if (!*d->table) return 0;
    if (head_check(d, &head, e)) return -1;
    const char *s = d->table + head;
    for (int line = 2; *s; line++) {
        size_t n = strcspn(s, "\n");
        if (!line_good(s, n))
            return err_set(e, E_DATA, "kernel table, line %d: not a kernel: \"%.*s\"", line, shown(s), s);
        s += n + (s[n] == '\n');
    }
    return 0;
}
