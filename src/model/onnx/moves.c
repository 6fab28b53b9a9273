/* Operators that move elements: of known values and of views they change the axes alone. */
#include <stdio.h>
#include "model/onnx/value.h"

/* Scores of an attention, and what awaits a group norm's weight, stay what they are in other dimensions. */
static bool is_part(const struct value *v)
{
    return v->kind == V_SCORES || v->kind == V_CHANCES || (v->kind == V_NORM && v->code == N_GROUP);
}

static int movable(struct import *m, struct value *v) { return is_fixed(v) ? 0 : need_view(m, v); }

static const char apart[] = "it does not keep samples apart; a file with one sample, dimension 0, may";

/* sample: the axis that the samples then lie along. */
static int reshaped(struct import *m, struct value *v, int n, const int64_t *d, int sample, struct value **out)
{
    struct axes at;
    if (!is_part(v) && movable(m, v)) return -1;
    if (n > RANK) return import_fail(m, "more than %d dimensions", RANK);
    if (axes_reshape(&v->at, n, d, &at)) {
        if (!axes_sample(&v->at, &at, sample)) return import_fail(m, "%s", apart);
        *out = value_again(m, v, &at);
        return 0;
    }
    if (v->kind == V_VIEW && axes_count(&v->at) < shape_count(&m->b->tensor.v[v->tensor].shape))   /* cut first */
        return whole_of(m, v) < 0 ? -1 : reshaped(m, v, n, d, sample, out);
    if (is_fixed(v) && axes_count(&v->at)) {             /* known numbers can be put into another order */
        const double *c = fixed_numbers(m, v);
        int64_t count = 1;
        for (int i = 0; i < n; i++) count *= d[i];
        if (!c) return -1;
        if (count == axes_count(&v->at)) {
            *out = value_fixed(m, n, d, v->whole);
            (*out)->f64 = v->f64;
            memcpy((*out)->c, c, (size_t)count * sizeof *c);
            return 0;
        }
    }
    return import_fail(m, "it orders elements in a way that has no counterpart");
}

static int import_same(struct import *m, struct value **in, int n_in, struct value **out, int n_out)
{
    *out = in[0];
    return 0;
}

static int import_cast(struct import *m, struct value **in, int n_in, struct value **out, int n_out)
{
    const int64_t to = attr_int(m, "to", ONNX_F32);
    const bool f64 = to == ONNX_F64, whole = to != ONNX_F32 && !f64 && to != ONNX_F16 && to != ONNX_BF16;
    *out = in[0];
    if (!is_fixed(in[0])) return whole && !in[0]->wide ? import_fail(m, "activations become integers") : 0;
    if (whole == in[0]->whole && f64 == in[0]->f64 && to != ONNX_BOOL) return 0;
    if (in[0]->from && !whole && !in[0]->whole) {        /* it may be a weight */
        *out = value_again(m, in[0], &in[0]->at);
        (*out)->f64 = f64;
        return 0;
    }
    const double *c = fixed_numbers(m, in[0]);
    if (!c) return -1;
    *out = value_fixed(m, in[0]->at.n, in[0]->at.d, whole);
    (*out)->f64 = f64;
    for (int64_t i = 0; i < (*out)->count; i++)
        (*out)->c[i] = to == ONNX_BOOL ? c[i] != 0
                     : whole ? (double)integer_of(c[i]) : f64 ? c[i] : (double)(float)c[i];
    return 0;
}

static int import_cast_like(struct import *m, struct value **in, int n_in, struct value **out, int n_out)
{
    *out = in[0];
    const bool whole = is_fixed(in[1]) ? in[1]->whole : in[1]->wide;
    return whole == (is_fixed(in[0]) ? in[0]->whole : in[0]->wide) ? 0 : import_fail(m, "between floats and integers");
}

static int import_reshape(struct import *m, struct value **in, int n_in, struct value **out, int n_out)
{
    int64_t d[RANK], two[RANK], known = 1, all = 1;
    const struct axes *a = &in[0]->at;
    const int n = ints_of(m, "shape", n_in > 1 ? in[1] : NULL, d);
    int open = -1, sample = -1;
    if (n < 0 || twins_of(m, "shape", n_in > 1 ? in[1] : NULL, two) != n)
        return import_fail(m, "its shape is not known");
    for (int i = 0; i < n; i++) {
        if (!d[i] && !attr_int(m, "allowzero", 0) && i < a->n)
            d[i] = a->d[i], two[i] = d[i] * (1 + (a->sample == i + 1));
        if (d[i] == -1) open = i;
        else if (d[i] < 1 || __builtin_mul_overflow(known, d[i], &known))
            return import_fail(m, "dimension %d of its shape is %lld", i, (long long)d[i]);
    }
    if (open >= 0) d[open] = axes_count(a) / known;
    for (int i = 0; i < n; i++) if (i != open && __builtin_mul_overflow(all, two[i], &all)) all = 0;
    if (open >= 0) two[open] = all > 0 ? 2 * axes_count(a) / all : 0;
    for (int i = 0; i < n; i++) {
        if (two[i] == d[i]) continue;
        if (a->sample && (sample >= 0 || two[i] % 2 || two[i] / 2 != d[i])) return import_fail(m, "%s", apart);
        sample = i;
    }
    return reshaped(m, in[0], n, d, sample, out);
}

static int import_flatten(struct import *m, struct value **in, int n_in, struct value **out, int n_out)
{
    int64_t d[2] = {1, 1}, axis = attr_int(m, "axis", 1);
    if (axis < 0) axis += in[0]->at.n;
    if (axis < 0 || axis > in[0]->at.n) return import_fail(m, "there is no such axis");
    for (int i = 0; i < in[0]->at.n; i++) d[i >= axis] *= in[0]->at.d[i];
    return reshaped(m, in[0], 2, d, in[0]->at.sample > axis, out);
}

static int import_transpose(struct import *m, struct value **in, int n_in, struct value **out, int n_out)
{
    int64_t perm[RANK];
    int n = ints_of(m, "perm", NULL, perm);
    bool used[RANK] = {false};
    if (movable(m, in[0])) return -1;
    struct axes at = in[0]->at;
    if (!attribute(m, "perm")) for (n = 0; n < at.n; n++) perm[n] = at.n - 1 - n;
    if (n != at.n) return import_fail(m, "perm does not fit its input of %d dimensions", at.n);
    for (int i = 0; i < n; i++) {
        if (perm[i] < 0 || perm[i] >= n || used[perm[i]]) return import_fail(m, "perm is no permutation");
        used[perm[i]] = true;
        at.d[i] = in[0]->at.d[perm[i]], at.stride[i] = in[0]->at.stride[perm[i]], at.rep[i] = in[0]->at.rep[perm[i]];
        if (in[0]->at.sample == perm[i] + 1) at.sample = i + 1;
    }
    *out = value_again(m, in[0], &at);
    return 0;
}

static int import_unsqueeze(struct import *m, struct value **in, int n_in, struct value **out, int n_out)
{
    int64_t axes[RANK], d[RANK];
    const int more = ints_of(m, "axes", n_in > 1 ? in[1] : NULL, axes), n = in[0]->at.n + more;
    bool one[RANK] = {false};
    int sample = -1;
    if (more < 0 || n > RANK) return import_fail(m, "its axes are not known, or too many");
    for (int i = 0; i < more; i++) {
        const int64_t at = axes[i] < 0 ? axes[i] + n : axes[i];
        if (at < 0 || at >= n) return import_fail(m, "there is no axis %lld", (long long)axes[i]);
        one[at] = true;
    }
    for (int i = 0, k = 0; i < n; i++) {
        if (!one[i] && k == in[0]->at.n) return import_fail(m, "an axis is named twice");
        d[i] = one[i] ? 1 : in[0]->at.d[k++];
        if (!one[i] && in[0]->at.sample == k) sample = i;
    }
    return reshaped(m, in[0], n, d, sample, out);
}

static int import_squeeze(struct import *m, struct value **in, int n_in, struct value **out, int n_out)
{
    int64_t axes[RANK], d[RANK];
    const bool all = !attribute(m, "axes") && n_in < 2;
    const int less = all ? 0 : ints_of(m, "axes", n_in > 1 ? in[1] : NULL, axes);
    bool gone[RANK] = {false};
    int n = 0, sample = -1;
    if (less < 0) return import_fail(m, "its axes are not known");
    for (int i = 0; i < less; i++) {
        const int at = axis_of(m, &in[0]->at, axes[i]);
        if (at < 0) return -1;
        gone[at] = true;
    }
    for (int i = 0; i < in[0]->at.n; i++) {
        const bool of_samples = in[0]->at.sample == i + 1;
        if (all ? in[0]->at.d[i] == 1 && !of_samples : gone[i]) continue;
        if (of_samples) sample = n;
        d[n++] = in[0]->at.d[i];
    }
    return reshaped(m, in[0], n, d, sample, out);
}

/* Elements [from, from + count * step) of an axis. */
static struct value *part(struct import *m, const struct value *v, int axis, int64_t from, int64_t count, int64_t step)
{
    struct axes at = v->at;
    at.offset += at.stride[axis] * from;
    at.stride[axis] *= step;
    at.d[axis] = count;
    return value_again(m, v, &at);
}

static int part_check(struct import *m, const struct value *v, int axis)
{
    if (v->at.sample == axis + 1) return import_fail(m, "it takes some of the samples");
    return v->at.rep[axis] == 1 ? 0 : import_fail(m, "it takes part of what was repeated");
}

static int import_slice(struct import *m, struct value **in, int n_in, struct value **out, int n_out)
{
    int64_t start[RANK], end[RANK], two[RANK], axes[RANK], step[RANK];
    const int n = ints_of(m, "starts", n_in > 1 ? in[1] : NULL, start),
              ends = ints_of(m, "ends", n_in > 2 ? in[2] : NULL, end);
    if (movable(m, in[0])) return -1;
    struct value *v = in[0];
    for (int i = 0; i < RANK; i++) axes[i] = i, step[i] = 1;
    const bool axes_said = attribute(m, "axes") || (n_in > 3 && in[3]), step_said = n_in > 4 && in[4];
    if ((axes_said && ints_of(m, "axes", n_in > 3 ? in[3] : NULL, axes) != n) ||
        (step_said && ints_of(m, NULL, in[4], step) != n) || n < 0 || ends != n ||
        twins_of(m, "ends", n_in > 2 ? in[2] : NULL, two) != n)
        return import_fail(m, "where it begins and ends is not known");
    for (int i = 0; i < n; i++) {
        const int axis = axis_of(m, &v->at, axes[i]);
        if (axis < 0) return -1;
        const int64_t d = v->at.d[axis];
        const bool all = two[i] == end[i] ? end[i] >= INT32_MAX : end[i] == d && two[i] == 2 * d;
        if (v->at.sample == axis + 1 && !start[i] && step[i] == 1 && all) continue;      /* all samples */
        if (part_check(m, v, axis)) return -1;
        if (end[i] != two[i]) return import_fail(m, "its end depends on the number of samples");
        if (step[i] == -1 && is_fixed(v) && (start[i] == -1 || start[i] >= d - 1) && end[i] < -d) {
            v = part(m, v, axis, d - 1, d, -1);          /* all of it, backwards */
            continue;
        }
        if (step[i] < 1) return import_fail(m, "a step of %lld", (long long)step[i]);
        int64_t a = start[i] < 0 ? start[i] + d : start[i], z = end[i] < 0 ? end[i] + d : end[i];
        a = a < 0 ? 0 : a > d ? d : a;
        z = z < a ? a : z > d ? d : z;
        v = part(m, v, axis, a, (z - a + step[i] - 1) / step[i], step[i]);
    }
    *out = v == in[0] ? value_again(m, v, &v->at) : v;
    return 0;
}

static int import_split(struct import *m, struct value **in, int n_in, struct value **out, int n_out)
{
    int64_t size[RANK], at = 0;
    if (movable(m, in[0])) return -1;
    const int axis = axis_of(m, &in[0]->at, attr_int(m, "axis", 0));
    if (axis < 0 || part_check(m, in[0], axis)) return -1;
    const int64_t d = in[0]->at.d[axis];
    const bool said = attribute(m, "split") || (n_in > 1 && in[1]);
    if (n_out > RANK) return import_fail(m, "more than %d parts", RANK);
    if (said && ints_of(m, "split", n_in > 1 ? in[1] : NULL, size) != n_out)
        return import_fail(m, "the sizes of its parts are not known");
    for (int i = 0; i < n_out; i++, at += size[i - 1]) {
        const int64_t each = (d + n_out - 1) / n_out;
        if (!said) size[i] = at + each > d ? d - at : each;
        if (size[i] < 0 || size[i] > d - at) return import_fail(m, "its parts are larger than its input");
        out[i] = part(m, in[0], axis, at, size[i], 1);
    }
    return 0;
}

static int import_expand(struct import *m, struct value **in, int n_in, struct value **out, int n_out)
{
    int64_t d[RANK], two[RANK];
    const int n = ints_of(m, NULL, n_in > 1 ? in[1] : NULL, d);
    if (movable(m, in[0])) return -1;
    const struct axes *a = &in[0]->at;
    if (n < 0 || a->n > RANK || twins_of(m, NULL, in[1], two) != n)
        return import_fail(m, "its shape is not known");
    if (!is_fixed(in[0]) && !twins_fit(a, n, d, two))
        return import_fail(m, "its shape depends on the number of samples");
    struct axes at = {.n = n > a->n ? n : a->n, .offset = a->offset};
    for (int i = 0; i < at.n; i++) {
        const int of = i - (at.n - a->n), to = i - (at.n - n);
        const int64_t has = of < 0 ? 1 : a->d[of], wants = to < 0 || d[to] == -1 ? 1 : d[to];
        if (has != 1 && wants != 1 && has != wants) return import_fail(m, "its shape does not fit its input");
        at.d[i] = has == 1 ? wants : has;
        at.stride[i] = of < 0 || has != at.d[i] ? 0 : a->stride[of];
        at.rep[i] = of < 0 || has != at.d[i] ? 1 : a->rep[of];
        if (of >= 0 && a->sample == of + 1) at.sample = i + 1, at.outer = a->outer;
        if (at.sample == i + 1 && has != at.d[i]) return import_fail(m, "it repeats samples");
    }
    *out = value_again(m, in[0], &at);
    return 0;
}

/* All channels several times. */
static int import_tile(struct import *m, struct value **in, int n_in, struct value **out, int n_out)
{
    int64_t times[RANK];
    char attrs[40];
    if (need_view(m, in[0])) return -1;
    const int n = in[0]->at.n;
    bool channels = n > 1 && ints_of(m, NULL, in[1], times) == n;
    for (int i = 0; channels && i < n; i++) channels = times[i] == 1 || (i == 1 && times[i] > 1);
    if (!channels) return import_fail(m, "it repeats more than channels");
    int t = channels_of(m, in[0], 1);
    snprintf(attrs, sizeof attrs, "count=%lld", (long long)times[1]);
    if (t >= 0) t = emit(m, "repeat", NULL, attrs, t);
    if (t < 0) return -1;
    const struct axes at = axes_with(&in[0]->at, 1, in[0]->at.d[1] * times[1]);
    *out = value_view(m, t, &at);
    return 0;
}

static int import_shape(struct import *m, struct value **in, int n_in, struct value **out, int n_out)
{
    const int n = in[0]->at.n;
    int64_t from = attr_int(m, "start", 0), to = attr_int(m, "end", n);
    if (from < 0) from += n;
    if (to < 0) to += n;
    from = from < 0 ? 0 : from > n ? n : from;
    to = to < from ? from : to > n ? n : to;
    *out = value_fixed(m, 1, (int64_t[]){to - from}, true);
    for (int64_t i = from; i < to; i++) (*out)->c[i - from] = (double)in[0]->at.d[i];
    if (in[0]->at.sample <= from || in[0]->at.sample > to) return 0;
    (*out)->twin = value_fixed(m, 1, (int64_t[]){to - from}, true);
    for (int64_t i = from; i < to; i++)
        (*out)->twin->c[i - from] = (double)(in[0]->at.d[i] * (1 + (in[0]->at.sample == i + 1)));
    return 0;
}

/* ---- Gather ------------------------------------------------------------------------------------------------------ */

/* Rows of a table by tokens: features come first in our tensors. */
static int embedding(struct import *m, struct value *table, struct value *index, struct value **out)
{
    char attrs[80];
    const struct axes *a = &index->at;
    const char *name = node_name(m, table);
    const struct axes all = axes_of(a->n, a->d);
    if (index->scale != 1 || !axes_same(a, &all) || axes_count(a) != shape_count(&m->b->tensor.v[index->tensor].shape))
        return import_fail(m, "its indices are not the tokens as they are");
    if (table->at.n != 2) return import_fail(m, "a table of %d dimensions", table->at.n);
    const int64_t width = table->at.d[1], points = axes_count(a);
    snprintf(attrs, sizeof attrs, "count=%lld features=%lld", (long long)table->at.d[0], (long long)width);
    const int t = emit(m, "embedding", name, attrs, index->tensor);
    if (t < 0 || take_weight(m, table, name, 0)) return -1;
    struct axes at = *a;
    if (at.n == RANK) return import_fail(m, "more than %d dimensions", RANK);
    at.d[at.n] = width, at.stride[at.n] = points, at.rep[at.n++] = 1;
    *out = value_view(m, t, &at);
    return 0;
}

static bool counts_up(struct import *m, struct value *index, int64_t n)
{
    const double *c = axes_count(&index->at) == n ? fixed_numbers(m, index) : NULL;
    for (int64_t i = 0; c && i < n; i++) if (c[i] != (double)i) return false;
    return c != NULL;
}

/* Indices that depend on the number of samples, of an activation: all elements of all samples in their order, as
 * torch.export writes as_strided. 0: others. */
static int gather_all(struct import *m, struct value *v, struct value *index, struct value **out)
{
    const struct value *two = index->twin;
    const int64_t all = axes_count(&v->at);
    struct axes at = axes_of(index->at.n, index->at.d);
    if (v->at.n != 1 || v->at.sample != 1 || v->at.outer != 1 || at.n < 1 || two->at.n != at.n) return 0;
    for (int i = 0; i < at.n; i++) if (two->at.d[i] != at.d[i] * (i ? 1 : 2)) return 0;
    if (at.d[0] != 1 || !counts_up(m, index, all) || !counts_up(m, index->twin, 2 * all)) return 0;
    for (int i = 0; i < at.n; i++) at.stride[i] *= v->at.stride[0];
    at.offset = v->at.offset, at.sample = 1, at.outer = 1;
    *out = value_again(m, v, &at);
    return 1;
}

static int import_gather(struct import *m, struct value **in, int n_in, struct value **out, int n_out)
{
    struct value *v = in[0], *index = in[1];
    if (!is_fixed(index)) {
        if (is_fixed(v) && index->kind == V_VIEW && index->wide && !attr_int(m, "axis", 0))
            return embedding(m, v, index, out);
        return import_fail(m, "its indices are not known");
    }
    if (movable(m, v)) return -1;
    const int axis = axis_of(m, &v->at, attr_int(m, "axis", 0));
    if (axis < 0) return -1;
    if (index->twin && !is_fixed(v) && !same_numbers(m, index))
        return gather_all(m, v, index, out) ? 0 : import_fail(m, "its input 1 depends on the number of samples");
    if (part_check(m, v, axis)) return -1;
    const double *c = fixed_numbers(m, index);
    if (!c || !index->whole) return c ? import_fail(m, "its indices are no integers") : -1;
    const int64_t n = axes_count(&index->at), d = v->at.d[axis], first = n ? integer_of(c[0]) + (c[0] < 0 ? d : 0) : 0;
    bool row = n > 0;
    for (int64_t i = 0; i < n; i++) {
        if (!(c[i] < (double)d && c[i] >= -(double)d))
            return import_fail(m, "an index of %g, of %lld", c[i], (long long)d);
        row &= integer_of(c[i]) + (c[i] < 0 ? d : 0) == first + i;
    }
    if (!row)
        return is_fixed(v) ? import_fold(m, in, n_in, out, n_out) : import_fail(m, "indices that are not in a row");
    const struct axes idx = axes_of(index->at.n, index->at.d);
    struct axes at = {.offset = v->at.offset + first * v->at.stride[axis]};
    if (v->at.n - 1 + idx.n > RANK) return import_fail(m, "more than %d dimensions", RANK);
    for (int i = 0; i < v->at.n; i++) {
        for (int k = 0; i == axis && k < idx.n; k++)
            at.d[at.n] = idx.d[k], at.rep[at.n] = 1, at.stride[at.n++] = idx.stride[k] * v->at.stride[axis];
        if (i != axis && v->at.sample == i + 1) at.sample = at.n + 1, at.outer = v->at.outer;
        if (i != axis) at.d[at.n] = v->at.d[i], at.rep[at.n] = v->at.rep[i], at.stride[at.n++] = v->at.stride[i];
    }
    *out = value_again(m, v, &at);
    return 0;
}

/* ---- Concat ------------------------------------------------------------------------------------------------------ */

/* Learned points before those of a sequence. */
static int prepend(struct import *m, struct value **in, int axis, struct value **out)
{
    char attrs[40];
    struct value *v = in[1];
    const int last = v->at.n - 1;
    int t = axis == last ? -1 : channels_of(m, v, last);
    if (axis == last) return import_fail(m, "it joins known numbers with channels");
    if (t < 0) return -1;
    if (m->b->tensor.v[t].shape.n > 2 && (t = emit(m, "flatten", NULL, "first=1", t)) < 0) return -1;
    if (v->at.stride[axis] != 1) return import_fail(m, "its axis is not that of the points");
    const char *name = node_name(m, NULL);
    snprintf(attrs, sizeof attrs, "count=%lld", (long long)in[0]->at.d[axis]);
    t = emit(m, "prepend", name, attrs, t);
    if (t < 0 || take_weight(m, in[0], name, 0)) return -1;
    struct axes at = v->at;
    at.d[axis] += in[0]->at.d[axis];
    at.stride[last] = at.d[axis];
    *out = value_view(m, t, &at);
    return 0;
}

static int import_concat(struct import *m, struct value **in, int n_in, struct value **out, int n_out)
{
    const int axis = axis_of(m, &in[0]->at, attr_int(m, "axis", 0));
    bool known = true;
    if (axis < 0) return -1;
    for (int i = 0; i < n_in; i++) known &= is_fixed(in[i]);
    if (known) return import_fold(m, in, n_in, out, n_out);
    for (int i = 0; i < n_in; i++)
        if (in[i]->at.sample == axis + 1) return import_fail(m, "it joins samples");
    if (n_in == 1) { *out = in[0]; return 0; }
    const int rotated = rotary_concat(m, in, n_in, axis, out);
    if (rotated) return rotated < 0 ? -1 : 0;
    if (n_in == 2 && is_fixed(in[0]) && need_view(m, in[1])) return -1;
    if (n_in == 2 && is_fixed(in[0])) return prepend(m, in, axis, out);
    if (n_in > MAX_IN) return import_fail(m, "it joins more than %d tensors", MAX_IN);
    struct graph_node n = {"concat", NULL, NULL, "", n_in, {0}, {NULL}};
    struct axes at = {0};
    for (int i = 0; i < n_in; i++) {
        if (is_fixed(in[i])) return import_fail(m, "it joins known numbers with activations");
        if ((n.in[i] = channels_of(m, in[i], axis)) < 0) return -1;
        const int64_t d = i ? at.d[axis] + in[i]->at.d[axis] : in[i]->at.d[axis];
        const struct axes one = axes_with(&in[0]->at, axis, 2), other = axes_with(&in[i]->at, axis, 2);
        if (!axes_same(&one, &other) || !axes_aligned(&one, &other))
            return import_fail(m, "it joins tensors of different orders");
        at = axes_with(&in[i]->at, axis, d);
    }
    n.name = node_name(m, NULL);                         /* behind the nodes that its inputs needed */
    const int t = graph_add(m->b, &n);
    if (t < 0) return import_fail(m, "%s", m->b->e.text);
    *out = value_view(m, t, &at);
    return 0;
}

/* ---- others ------------------------------------------------------------------------------------------------------ */

static int import_constant(struct import *m, struct value **in, int n_in, struct value **out, int n_out)
{
    const Onnx__Attribute *t = attribute(m, "value"), *f = attribute(m, "value_float"), *i = attribute(m, "value_int"),
                          *fs = attribute(m, "value_floats"), *is = attribute(m, "value_ints");
    if (t && t->t) {
        struct onnx_weight w;
        if (onnx_place(m->file, t->t, &w, m->e)) return -1;
        const struct axes at = axes_of(w.shape.n, w.shape.d);
        *out = value_again(m, &(struct value){.kind = V_FIXED, .tensor = -1, .scale = 1, .from = t->t, .constant = true,
                                              .count = axes_count(&at), .whole = !onnx_floats(t->t),
                                              .f64 = t->t->data_type == ONNX_F64}, &at);
        return 0;
    }
    const int64_t n = fs ? (int64_t)fs->n_floats : is ? (int64_t)is->n_ints : 1;
    if (!f && !i && !fs && !is) return import_fail(m, "a constant that is no number");
    *out = value_fixed(m, fs || is ? 1 : 0, &n, i || is);
    for (int64_t k = 0; k < n; k++)
        (*out)->c[k] = f ? (double)f->f : i ? (double)i->i : fs ? (double)fs->floats[k] : (double)is->ints[k];
    return 0;
}

/* Identity, but for training. */
static int import_dropout(struct import *m, struct value **in, int n_in, struct value **out, int n_out)
{
    double ratio = attr_real(m, "ratio", 0.5), training = 0;
    char attrs[40];
    *out = in[0];
    if (n_in > 1 && in[1] && !fixed_single(m, in[1], &ratio)) return import_fail(m, "its ratio is not known");
    if (n_in > 2 && in[2] && !fixed_single(m, in[2], &training)) return import_fail(m, "its mode is not known");
    if (!training || ratio == 0) return 0;
    if (is_part(in[0])) return import_fail(m, "dropout within an attention: export it with none");
    const int x = whole_of(m, in[0]);
    if (x < 0) return -1;
    snprintf(attrs, sizeof attrs, "p=%.9g", ratio);
    const int t = emit(m, "dropout", NULL, attrs, x);
    if (t < 0) return -1;
    *out = value_view(m, t, &in[0]->at);
    return 0;
}

/* Takes the padding of each axis of a node Pad: before each, then behind each. */
static int pads_of(struct import *m, struct value **in, int n_in, int64_t *pads)
{
    int64_t axes[RANK];
    const Onnx__Attribute *a = attribute(m, "pads");
    const double *c = n_in > 1 && is_fixed(in[1]) ? fixed_numbers(m, in[1]) : NULL;
    struct value *named = n_in > 3 ? in[3] : NULL;
    const struct axes *at = &in[0]->at;
    const int n = named ? ints_of(m, NULL, named, axes) : at->n;
    const int64_t has = a ? (int64_t)a->n_ints : c ? axes_count(&in[1]->at) : -1;
    bool used[RANK] = {false};
    if (n < 0 || has != 2 * n) return import_fail(m, "its padding is not known");
    for (int i = 0; i < n; i++) {
        const int axis = named ? axis_of(m, at, axes[i]) : i;
        if (axis < 0) return -1;
        if (used[axis]) return import_fail(m, "an axis is named twice");
        used[axis] = true;
        for (int behind = 0; behind < 2; behind++) {
            const int k = i + behind * n;
            const int64_t pad = a ? a->ints[k] : integer_of(c[k]);
            if (pad && (axis < 2 || at->sample == axis + 1)) return import_fail(m, "padding of more than points");
            if (pad < -WINDOW_MOST || pad > WINDOW_MOST) return import_fail(m, "padding of %lld", (long long)pad);
            pads[axis + behind * at->n] = pad;
        }
    }
    return 0;
}

/* Zeros around the points, which the convolution behind takes for its own. Padding below zero takes a part. */
static int import_pad(struct import *m, struct value **in, int n_in, struct value **out, int n_out)
{
    int64_t *pads = arena_alloc(m->file->mem, 2 * RANK * sizeof *pads);
    double fill = attr_real(m, "value", 0);
    const int n = in[0]->at.n;
    bool any = false;
    memset(pads, 0, 2 * RANK * sizeof *pads);
    if (pads_of(m, in, n_in, pads)) return -1;
    for (int i = 0; i < 2 * n; i++) any |= pads[i] != 0;
    *out = in[0];
    if (!any) return 0;
    if (n_in > 2 && in[2] && !fixed_single(m, in[2], &fill)) return import_fail(m, "its value is not known");
    if (strcmp(attr_word(m, "mode", "constant"), "constant") || fill != 0)
        return import_fail(m, "padding with other values than zero");
    if (need_view(m, in[0])) return -1;
    struct value *v = in[0];
    struct axes at = v->at;
    for (int i = 2; i < n; i++) {
        const int64_t less = pads[i] < 0 ? -pads[i] : 0, more = pads[i + n] < 0 ? -pads[i + n] : 0;
        if (less + more >= v->at.d[i]) return import_fail(m, "it cuts off all points");
        if (less + more && part_check(m, v, i)) return -1;
        if (less + more) v = part(m, v, i, less, v->at.d[i] - less - more, 1);
        pads[i] += less, pads[i + n] += more;
        at.d[i] = v->at.d[i] + pads[i] + pads[i + n];
    }
    *out = value_again(m, v, &at);
    **out = (struct value){.kind = V_PADDED, .at = at, .tensor = -1, .scale = 1, .a = v, .pads = pads};
    return 0;
}

const struct import_row import_moves[] = {
    {"Identity", import_same, 1, 0}, {"Cast", import_cast, 1, 0}, {"CastLike", import_cast_like, 2, 0},
    {"Reshape", import_reshape, 1, 1}, {"Flatten", import_flatten, 1, 0}, {"Transpose", import_transpose, 1, 0},
    {"Unsqueeze", import_unsqueeze, 1, 0}, {"Squeeze", import_squeeze, 1, 0}, {"Slice", import_slice, 1, 2},
    {"Split", import_split, 1, 0}, {"Expand", import_expand, 2, 1}, {"Tile", import_tile, 2, 0},
    {"Shape", import_shape, 1, 0}, {"Gather", import_gather, 2, 1}, {"Concat", import_concat, ALL, BROADCASTS},
    {"Constant", import_constant, 0, 0}, {"Dropout", import_dropout, 1, 0}, {"Pad", import_pad, 1, 0},
    {NULL, NULL, 0, 0}};
