/* Writes safetensors with the bytes of the reference writer. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include "ckpt/st.h"

struct turn { const struct st_entry *e; int i; };

/* The reference writer's order: types from last to first (U64, I64, F64, F32, ..., U8, BOOL), then names by bytes. */
static int type_rank(enum dtype t) { return t == I64 ? 0 : t == F64 ? 1 : t == F32 ? 2 : 3; }

static int by_type_and_name(const void *a, const void *b)
{
    const struct turn *x = a, *y = b;
    int d = type_rank(x->e->type) - type_rank(y->e->type);
    return d ? d : strcmp(x->e->name, y->e->name);
}

static size_t entry_bytes(const struct st_entry *t) { return (size_t)shape_count(&t->shape) * dtype_bytes(t->type); }

static void header_make(const struct turn *o, int n, const char *base, struct text *h)
{
    uint64_t at = 0;
    text_add(h, "{\"__metadata__\":{");
    if (base && *base) text_add(h, "\"" ST_BASE "\":\"%s\",", base);
    text_add(h, "\"format\":\"pt\"}");                     /* some readers require it: layouts are PyTorch's */
    for (int i = 0; i < n; i++) {
        json_t *name = json_string(o[i].e->name);
        char *quoted = json_dumps(name, JSON_ENCODE_ANY);
        text_add(h, ",%s:{\"dtype\":\"%s\",\"shape\":[", quoted, dtype_name(o[i].e->type));
        for (int k = 0; k < o[i].e->shape.n; k++) text_add(h, "%s%lld", k ? "," : "", (long long)o[i].e->shape.d[k]);
        text_add(h, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)at,
                 (unsigned long long)(at + entry_bytes(o[i].e)));
        at += entry_bytes(o[i].e);
        free(quoted);
        json_decref(name);
    }
    text_add(h, "}");
    while (h->n % 8) text_add(h, " ");
}

static int body_write(const struct st_sink *to, const struct turn *o, const struct st_body *b, struct err *e)
{
    struct text h = {0};
    size_t largest = 0;
    const int n = b->n;
    header_make(o, n, b->base, &h);
    uint64_t length = h.n;
    int bad = to->put(to->sink, &length, 8, e) || to->put(to->sink, h.s, h.n, e);
    text_free(&h);
    for (int i = 0; i < n; i++) if (entry_bytes(o[i].e) > largest) largest = entry_bytes(o[i].e);
    void *buf = mem_alloc(largest);                       /* pages that nobody touches take no memory */
    for (int i = 0; i < n && !bad; i++) {
        const void *at = buf;
        bad = b->data(b->ctx, o[i].i, buf, &at, e) || to->put(to->sink, at, entry_bytes(o[i].e), e);
    }
    free(buf);
    return bad ? -1 : 0;
}

static struct turn *turns(int n, const struct st_entry *entry)
{
    struct turn *o = mem_alloc((size_t)n * sizeof *o + 1);
    for (int i = 0; i < n; i++) o[i] = (struct turn){&entry[i], i};
    if (n) qsort(o, (size_t)n, sizeof *o, by_type_and_name);
    return o;
}

int *st_order(int n, const struct st_entry *entry)
{
    struct turn *o = turns(n, entry);
    int *order = mem_alloc((size_t)n * sizeof *order + 1);
    for (int i = 0; i < n; i++) order[i] = o[i].i;
    free(o);
    return order;
}

uint64_t st_size(const struct st_body *b)
{
    struct turn *o = turns(b->n, b->entry);
    struct text h = {0};
    header_make(o, b->n, b->base, &h);
    uint64_t size = 8 + h.n;
    for (int i = 0; i < b->n; i++) size += entry_bytes(&b->entry[i]);
    text_free(&h);
    free(o);
    return size;
}

int st_write(const struct st_sink *to, const struct st_body *b, struct err *e)
{
    struct turn *o = turns(b->n, b->entry);
    int bad = body_write(to, o, b, e);
    free(o);
    return bad;
}
