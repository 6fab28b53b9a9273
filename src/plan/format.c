/* Formats: bytes, and conversions from and to floats. */
#include <math.h>
#include "base/half.h"
#include "base/mem.h"
#include "plan/format.h"

const char *format_layout_name(const struct format *f)
{
    return f->layout == LAYOUT_LAST      ? "last"
           : f->layout == LAYOUT_BLOCKED ? f->block == 16 ? "blocked16" : "blocked8"
                                         : "plain";
}

int64_t format_channels(const struct format *f, const struct shape *s)
{
    int64_t c = s->n ? s->d[0] : 1;
    return (c + f->block - 1) / f->block * f->block;
}

static int64_t rows_of(const struct shape *s) { return s->n ? s->d[0] : 1; }

size_t format_bytes(const struct format *f, const struct shape *s)
{
    int64_t n = shape_count(s);
    if (s->n && s->d[0]) n = n / s->d[0] * format_channels(f, s);
    size_t values = (size_t)n * dtype_bytes(f->type);
    return f->scale == SCALE_NONE ? values : size_align64(values) + (size_t)rows_of(s) * sizeof(float);
}

/* ---- rows with factors ------------------------------------------------------------------------------------------- */

const float *format_factors(const struct format *f, const struct shape *s, const void *stored)
{
    return (const float *)((const char *)stored + size_align64((size_t)shape_count(s) * dtype_bytes(f->type)));
}

static void codes_widen(const struct format *f, const struct shape *s, const int8_t *q, float *to)
{
    const float *factor = format_factors(f, s, q);
    const int64_t rows = rows_of(s), n = rows ? shape_count(s) / rows : 0, lanes = format_lanes(f);
    for (int64_t r = 0; r < rows; r++) {
        const float unit = format_code_unit(factor[r]);
        const int64_t at = r / lanes * lanes * n + r % lanes;
        if (lanes == 1) for (int64_t i = at; i < at + n; i++) to[i] = (float)q[i] * unit;
        else for (int64_t i = 0; i < n; i++) to[at + i * lanes] = (float)q[at + i * lanes] * unit;
    }
}

enum { F16_MOST = 65504 };

/* n values, `step` apart, of a row: their codes and their factor. */
static float code_row(const float *x, int64_t n, int64_t step, int8_t *q)
{
    float most = 0;
    for (int64_t i = 0; i < n; i++) {
        const float abs = fabsf(x[i * step]);
        most = !isfinite(abs) ? NAN : abs > most ? abs : most;
    }
    const bool fits = most <= F16_MOST;
    const float factor = fits ? f16_widen(f16_narrow(most)) : most, by = factor > 0 ? 1 / factor * 127 : 0;
    for (int64_t i = 0; i < n; i++) {
        const float w = fits ? f16_widen(f16_narrow(x[i * step])) : x[i * step];
        q[i * step] = (int8_t)(by > 0 ? rintf(w * by) : 0);
    }
    return factor;
}

/* In blocks, the values of `block` rows take turns. */
static void codes_narrow(const struct format *f, const struct shape *s, const float *x, int8_t *q)
{
    const int64_t rows = rows_of(s), n = rows ? shape_count(s) / rows : 0, lanes = format_lanes(f);
    float *factor = (float *)(uintptr_t)format_factors(f, s, q);
    for (int64_t r = 0; r < rows; r++) {
        const int64_t at = r / lanes * lanes * n + r % lanes;
        factor[r] = code_row(x + at, n, lanes, q + at);
    }
}

/* ---- all types --------------------------------------------------------------------------------------------------- */

void format_widen(const struct format *f, const struct shape *s, const void *stored, float *to)
{
    const uint16_t *half = stored;
    const int64_t n = shape_count(s);
    if (f->type == I8) codes_widen(f, s, stored, to);
    else if (f->type == F32) memcpy(to, stored, (size_t)n * sizeof *to);
    else for (int64_t i = 0; i < n; i++) to[i] = f->type == F16 ? f16_widen(half[i]) : bf16_widen(half[i]);
}

static int64_t halves_narrow(enum dtype type, int64_t n, const float *x, uint16_t *half)
{
    int64_t bad = -1;
    for (int64_t i = 0; i < n; i++) {
        half[i] = type == F16 ? f16_narrow(x[i]) : bf16_narrow(x[i]);
        if (bad < 0 && isfinite(x[i]) && isinf(type == F16 ? f16_widen(half[i]) : bf16_widen(half[i]))) bad = i;
    }
    return bad;
}

int64_t format_narrow(const struct format *f, const struct shape *s, const float *from, void *stored)
{
    if (f->type == BF16 || f->type == F16) return halves_narrow(f->type, shape_count(s), from, stored);
    if (f->type == I8) codes_narrow(f, s, from, stored);
    else memcpy(stored, from, (size_t)shape_count(s) * sizeof *from);
    return -1;
}
