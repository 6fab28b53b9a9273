/* Reads tensors of other floating-point types as F32. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/file.h"
#include "base/half.h"
#include "ckpt/st.h"

static int of_double(const struct st *s, int i, double x, float *out, struct err *e)
{
    *out = (float)x;
    if (!isinf(*out) || isinf(x)) return 0;
    return err_set(e, E_DATA, "%s: tensor %.60s: %g is too large for F32", s->path, s->t[i].name, x);
}

static int widen(const struct st *s, int i, const char *raw, size_t n, float *out, struct err *e)
{
    const char *type = s->t[i].dtype;
    int bad = 0;
    for (size_t k = 0; k < n && !bad; k++) {
        uint16_t half;
        double x;
        if (!strcmp(type, "F64")) {
            memcpy(&x, raw + 8 * k, sizeof x);
            bad = of_double(s, i, x, &out[k], e);
        } else {
            memcpy(&half, raw + 2 * k, sizeof half);
            out[k] = !strcmp(type, "BF16") ? bf16_widen(half) : f16_widen(half);
        }
    }
    return bad;
}

bool st_is_float(const struct st_tensor *t)
{
    return t->factors || !strcmp(t->dtype, "F32") || !strcmp(t->dtype, "F16") || !strcmp(t->dtype, "BF16") ||
           !strcmp(t->dtype, "F64");
}

static int read_at(const struct st *s, const struct st_tensor *t, void *out, struct err *e)
{
    return st_read_part(s, t, 0, out, (size_t)(t->end - t->begin), e);
}

static int codes_fail(const struct st *s, const struct st_tensor *t, int64_t row, const char *what, double value,
                      struct err *e)
{
    return err_set(e, E_DATA, "%s: tensor %.60s: the %s %g in row %lld", s->path, t->name, what, value, (long long)row);
}

/* Codes of rows, by their factors: what plan/format.h says of I8. */
static int codes_read(struct st *s, int i, float *out, struct err *e)
{
    const struct st_tensor *t = &s->t[i];
    const int64_t n = shape_count(&t->shape), rows = t->shape.d[0], each = rows ? n / rows : 0;
    int8_t *code = mem_alloc((size_t)n + 1);
    float *factor = mem_alloc((size_t)rows * sizeof *factor + 1);
    int bad = read_at(s, t, code, e) || read_at(t->factors_in, t->factors, factor, e);
    for (int64_t r = 0, k = 0; r < rows && !bad; r++) {
        const float unit = factor[r] / 127;
        bool none = false;
        if (!(factor[r] >= 0 && isfinite(factor[r]))) bad = codes_fail(s, t, r, "factor", (double)factor[r], e);
        for (const int64_t end = k + each; k < end && !bad; k++) {
            out[k] = (float)code[k] * unit;
            none |= code[k] == INT8_MIN;
        }
        if (none) bad = codes_fail(s, t, r, "code", INT8_MIN, e);
    }
    free(code);
    free(factor);
    return bad;
}

/* The tensor that has the name of t with another end; NULL: there is none. */
static struct st_tensor *companion(struct st *const *file, int n, const char *name, const char *end, struct st **in)
{
    const size_t stem = strlen(name) - strlen("weight");
    for (int i = 0; i < n; i++)
        for (int k = 0; k < file[i]->n; k++) {
            struct st_tensor *t = &file[i]->t[k];
            if (strncmp(t->name, name, stem) || strcmp(t->name + stem, end)) continue;
            *in = file[i];
            return t;
        }
    return NULL;
}

static int join(struct st *const *file, int n, struct st *s, struct st_tensor *t, struct err *e)
{
    struct st *in = NULL;
    struct st_tensor *factors = companion(file, n, t->name, "SCB", &in), *form;
    uint8_t order = 0;
    if (!factors || strcmp(factors->dtype, "F32") || t->shape.n != 2 || factors->shape.n != 1 ||
        factors->shape.d[0] != t->shape.d[0])
        return err_set(e, E_DATA, "%s: tensor %.60s: codes need factors, SCB, of type F32, one for each row", s->path,
                       t->name);
    t->factors_in = in;
    t->factors = factors;
    form = companion(file, n, t->name, "weight_format", &in);
    const bool fits = !form || (!strcmp(form->dtype, "U8") && form->end - form->begin == 1);
    if (fits && form && read_at(in, form, &order, e)) return -1;
    if (fits && !order) return 0;
    if (!fits) return err_set(e, E_DATA, "%s: tensor %.60s is not one U8", in->path, form->name);
    return err_set(e, E_DATA, "%s: tensor %.60s: codes in the order %d, not row by row", s->path, t->name, order);
}

static bool ends(const char *name, const char *end)
{
    const size_t n = strlen(name), m = strlen(end);
    return n > m && !strcmp(name + n - m, end) && name[n - m - 1] == '.';
}

/* Removes factors and orders from the list; pointers to them stay valid. */
static void companions_hide(struct st *s)
{
    struct st_tensor *all = arena_alloc(s->mem, (size_t)(s->n + 1) * sizeof *all);
    int n = 0;
    for (int k = 0; k < s->n; k++)
        if (!ends(s->t[k].name, "SCB") && !ends(s->t[k].name, "weight_format")) all[n++] = s->t[k];
    s->t = all;
    s->n = n;
}

int st_codes_join(struct st *const *file, int n, struct err *e)
{
    int joined = 0;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < file[i]->n; k++) {
            struct st_tensor *t = &file[i]->t[k];
            if (strcmp(t->dtype, "I8") || !ends(t->name, "weight")) continue;
            if (join(file, n, file[i], t, e)) return -1;
            joined++;
        }
    for (int i = 0; i < n && joined; i++) companions_hide(file[i]);
    return 0;
}

int st_read_float(struct st *s, int i, float *out, struct err *e)
{
    const struct st_tensor *t = &s->t[i];
    size_t bytes = (size_t)(t->end - t->begin);
    if (t->factors) return codes_read(s, i, out, e);
    if (!strcmp(t->dtype, "F32")) return st_read(s, i, out, e);
    char *raw = mem_alloc(bytes + 1);
    int bad = st_read(s, i, raw, e) || widen(s, i, raw, (size_t)shape_count(&t->shape), out, e);
    free(raw);
    return bad ? -1 : 0;
}
