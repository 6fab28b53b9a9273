/* Reads tensors of other floating-point types as F32. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
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
    return !strcmp(t->dtype, "F32") || !strcmp(t->dtype, "F16") || !strcmp(t->dtype, "BF16") ||
           !strcmp(t->dtype, "F64");
}

int st_read_float(struct st *s, int i, float *out, struct err *e)
{
    const struct st_tensor *t = &s->t[i];
    size_t bytes = (size_t)(t->end - t->begin);
    if (!strcmp(t->dtype, "F32")) return st_read(s, i, out, e);
    char *raw = mem_alloc(bytes + 1);
    int bad = st_read(s, i, raw, e) || widen(s, i, raw, (size_t)shape_count(&t->shape), out, e);
    free(raw);
    return bad ? -1 : 0;
}
