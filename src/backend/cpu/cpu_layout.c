/* Layouts of the onednn backend: descriptors for oneDNN and conversions from and to plain row-major. */
#include <string.h>
#include "base/half.h"
#include "backend/cpu/cpu_int.h"

int tensor_lanes(const struct be *b, int tensor)
{
    const struct format *f = &b->s->tensor[tensor];
    return f->layout == LAYOUT_LAST ? (int)b->g->tensor[tensor].shape.d[0] : format_lanes(f);
}

int64_t shape_points(const struct shape *s)
{
    int64_t points = 1;
    for (int i = 1; i < s->n; i++) points *= s->d[i];
    return points;
}

bool node_attr_is(const struct node *n, const char *name, int64_t value)
{
    const struct attr_value *v = &n->attr[op_attr(n->op, name)];
    for (int i = 0; i < v->n; i++) if (v->i[i] != value) return false;
    return true;
}

struct weight_form weight_form(const struct be *b, int param)
{
    const struct param *p = &b->g->param[param];
    struct weight_form f = {.out = p->shape.d[0],
                            .in = p->shape.n > 1 ? p->shape.d[1] : 1,
                            .points = 1,
                            .lanes = format_lanes(&b->s->param[param])};
    const bool last = b->s->param[param].layout == LAYOUT_LAST;
    for (int i = 2; i < p->shape.n; i++) f.points *= p->shape.d[i];
    if (last) f.lanes = (int)f.out;
    f.in_plain = last || (f.lanes > 1 && f.in % f.lanes != 0);
    return f;
}

/* ---- descriptors ----------------------------------------------------------------------------- */

/* Tags by number of spatial dimensions (1 to 3) and by block: plain, 8, 16. */
enum { SPACES = 3 };
struct tags { dnnl_format_tag_t of[3][SPACES]; };

static dnnl_format_tag_t tag_of(const struct tags *t, int lanes, int spatial)
{
    return t->of[lanes == 16 ? 2 : lanes == 8 ? 1 : 0][spatial - 1];
}

static const struct tags tensor_tags = {{{dnnl_abc, dnnl_abcd, dnnl_abcde},
                                         {dnnl_aBc8b, dnnl_aBcd8b, dnnl_aBcde8b},
                                         {dnnl_aBc16b, dnnl_aBcd16b, dnnl_aBcde16b}}};
static const struct tags weight_tags = {{{dnnl_abc, dnnl_abcd, dnnl_abcde},
                                         {dnnl_ABc8b8a, dnnl_ABcd8b8a, dnnl_ABcde8b8a},
                                         {dnnl_ABc16b16a, dnnl_ABcd16b16a, dnnl_ABcde16b16a}}};
static const struct tags in_plain_tags = {{{dnnl_abc, dnnl_abcd, dnnl_abcde},
                                           {dnnl_Acb8a, dnnl_Acdb8a, dnnl_Acdeb8a},
                                           {dnnl_Acb16a, dnnl_Acdb16a, dnnl_Acdeb16a}}};
static const struct tags turned_tags = {{{dnnl_abc, dnnl_abcd, dnnl_abcde},
                                         {dnnl_ABc8a8b, dnnl_ABcd8a8b, dnnl_ABcde8a8b},
                                         {dnnl_ABc16a16b, dnnl_ABcd16a16b, dnnl_ABcde16a16b}}};
static const struct tags in_first_tags = {
    {{0}, {0}, {dnnl_BAc16a16b, dnnl_BAcd16a16b, dnnl_BAcde16a16b}}};   /* 16 only: packed_in_first */
static const struct tags group_tags = {
    /* blocked: over planes only, conv_layout in dnnl_conv.c */
    {{dnnl_abcd, dnnl_abcde, dnnl_abcdef}, {0, dnnl_Abcde8a}, {0, dnnl_Abcde16a}}};

void form_tensor(const struct be *b, int tensor, int lanes, int n, struct form *f)
{
    const struct shape *s = &b->g->tensor[tensor].shape;
    *f = (struct form){.n = s->n + 1, .tag = tag_of(&tensor_tags, lanes, s->n - 1)};
    f->d[0] = n;
    for (int i = 0; i < s->n; i++) f->d[i + 1] = s->d[i];
}

void form_weight(const struct be *b, int param, int64_t groups, struct form *f)
{
    const struct shape *s = &b->g->param[param].shape;
    struct weight_form w = weight_form(b, param);
    int first = groups > 1, spatial = s->n - 2;
    *f = (struct form){.n = s->n + first,
                       .tag = tag_of(first        ? &group_tags
                                     : w.in_plain ? &in_plain_tags
                                                  : &weight_tags,
                                     w.lanes, spatial)};
    for (int i = 0; i < s->n; i++) f->d[i + first] = s->d[i];
    if (!first) return;
    f->d[0] = groups;
    f->d[1] /= groups;
}

void form_packed(const struct be *b, int param, bool transposed, struct form *f)
{
    const struct shape *s = &b->g->param[param].shape;
    struct weight_form w = weight_form(b, param);
    bool in_first = packed_in_first(&w, transposed);
    *f = (struct form){.n = s->n,
                       .tag = tag_of(transposed ? &weight_tags
                                     : in_first ? &in_first_tags
                                                : &turned_tags,
                                     w.lanes, s->n - 2)};
    for (int i = 0; i < s->n; i++) f->d[i] = s->d[i];
    if (!transposed) return;
    f->d[0] = s->d[1];
    f->d[1] = s->d[0];
}

bool packed_in_first(const struct weight_form *f, bool pointwise)
{
    return f->points == 1 && (pointwise || f->lanes == 16);
}

/* ---- conversions ----------------------------------------------------------------------------- */

static void copy_or_add(float *dst, const float *src, size_t n, bool acc)
{
    if (!acc) memcpy(dst, src, n * sizeof *dst);
    else for (size_t i = 0; i < n; i++) dst[i] += src[i];
}

struct blocks tensor_blocks(const struct be *b, int tensor, int n)
{
    const struct shape *s = &b->g->tensor[tensor].shape;
    return (struct blocks){n, s->d[0], shape_points(s), tensor_lanes(b, tensor)};
}

/* If both layouts are equal. */
static bool copied(float *dst, const float *src, const struct blocks *s, bool acc)
{
    if (s->lanes > 1 && s->points > 1) return false;
    copy_or_add(dst, src, (size_t)(s->n * s->channels * s->points), acc);
    return true;
}

void to_blocked(float *dst, const float *src, struct blocks s, bool acc)
{
    const int64_t points = s.points;
    const int lanes = s.lanes;
    if (copied(dst, src, &s, acc)) return;
    for (int64_t block = 0; block < s.n * (s.channels / lanes); block++, src += points * lanes)
        for (int64_t p = 0; p < points; p++)
            for (int l = 0; l < lanes; l++, dst++) *dst = (acc ? *dst : 0) + src[l * points + p];
}

void to_plain(float *dst, const float *src, struct blocks s, bool acc)
{
    const int64_t points = s.points;
    const int lanes = s.lanes;
    if (copied(dst, src, &s, acc)) return;
    for (int64_t block = 0; block < s.n * (s.channels / lanes); block++, src += points * lanes)
        for (int l = 0; l < lanes; l++)
            for (int64_t p = 0; p < points; p++, dst++) *dst = (acc ? *dst : 0) + src[p * lanes + l];
}

static inline void run_add(char *to, const char *from, int64_t n, size_t element)
{
    for (int64_t i = 0; i < n && element == sizeof(float); i++) ((float *)to)[i] += ((const float *)from)[i];
    for (int64_t i = 0; i < n && element == sizeof(uint16_t); i++) {
        uint16_t *x = (uint16_t *)to + i;
        *x = bf16_narrow(bf16_widen(*x) + bf16_widen(((const uint16_t *)from)[i]));
    }
}

INLINE void relay_of(char *dst, const char *src, const struct blocks *s, int lanes, size_t element, bool acc)
{
    const int64_t run = s->lanes < lanes ? s->lanes : lanes;    /* one divides the other, or the channels are all */
    for (int64_t n = 0; n < s->n; n++, src += s->channels * s->points * (int64_t)element)
        for (int64_t c = 0; c < s->channels; c += lanes)
            for (int64_t p = 0; p < s->points; p++)
                for (int64_t l = c; l < c + lanes; l += run, dst += run * (int64_t)element) {
                    const int64_t at = (l / s->lanes * s->points + p) * s->lanes + l % s->lanes;
                    if (acc) run_add(dst, src + at * (int64_t)element, run, element);
                    else memcpy(dst, src + at * (int64_t)element, (size_t)run * element);
                }
}

void relay(void *dst, const void *src, struct blocks s, int lanes, size_t element, bool acc)
{
    if (element == sizeof(float) && acc) relay_of(dst, src, &s, lanes, sizeof(float), true);
    else if (element == sizeof(float)) relay_of(dst, src, &s, lanes, sizeof(float), false);
    else if (acc) relay_of(dst, src, &s, lanes, sizeof(uint16_t), true);
    else relay_of(dst, src, &s, lanes, sizeof(uint16_t), false);
}

/* Index in the blocked form of plain element (o, i, p). */
static size_t weight_at(const struct weight_form *f, int64_t o, int64_t i, int64_t p)
{
    int64_t l = f->lanes;
    if (f->in_plain) return (size_t)((((o / l) * f->points + p) * f->in + i) * l + o % l);
    return (size_t)(((((o / l) * (f->in / l) + i / l) * f->points + p) * l + i % l) * l + o % l);
}

void weight_to_blocked(float *dst, const float *src, const struct weight_form *f, bool acc)
{
    for (int64_t o = 0; o < f->out; o++)
        for (int64_t i = 0; i < f->in; i++)
            for (int64_t p = 0; p < f->points; p++) {
                float *to = &dst[weight_at(f, o, i, p)];
                *to = (acc ? *to : 0) + *src++;
            }
}

void weight_to_plain(float *dst, const float *src, const struct weight_form *f)
{
    for (int64_t o = 0; o < f->out; o++)
        for (int64_t i = 0; i < f->in; i++)
            for (int64_t p = 0; p < f->points; p++) *dst++ = src[weight_at(f, o, i, p)];
}

struct turning { float *dst; const float *src; const struct weight_form *f; bool swap; };

/* Some of the [out block][in block]. */
static void blocks_turn(const void *data, int thread, int64_t from, int64_t end)
{
    const struct turning *t = data;
    const struct weight_form *f = t->f;
    const int64_t l = f->lanes, n_out = f->out / l, n_in = f->in / l;
    const float *src = t->src + from * f->points * l * l;
    for (int64_t i = from; i < end; i++)
        for (int64_t p = 0; p < f->points; p++, src += l * l) {
            float *to = t->dst + ((t->swap ? i % n_in * n_out + i / n_in : i) * f->points + p) * l * l;
            for (int64_t a = 0; a < l; a++)
                for (int64_t c = 0; c < l; c++) to[c * l + a] = src[a * l + c];
        }
}

void weight_transpose(float *dst, const float *src, const struct weight_form *f, bool swap, int threads)
{
    cpu_each(threads, f->out / f->lanes * (f->in / f->lanes), blocks_turn, &(struct turning){dst, src, f, swap});
}
