/* Products in bf16 (dnnl_half.h). */
#include <stdlib.h>
#include <string.h>
#include "backend/cpu/onednn/dnnl_half.h"

static struct form form_of(int64_t rows, int64_t columns, struct half_matrix m, bool half)
{
    return (struct form){.n = 2, .d = {rows, columns}, .half = half,
                         .stride = {m.how == 'T' ? 1 : m.ld, m.how == 'T' ? m.ld : 1}};
}

size_t half_scratch(int64_t m, int64_t n, int64_t k, int threads)
{
    return size_align64((size_t)(m * k) * 2) + size_align64((size_t)(k * n) * 2) + ((size_t)threads << 19);
}

int half_make(struct be *b, struct half_product *p, const struct half_shape *s, size_t space, struct err *e)
{
    struct product_shape shape = {.src = form_of(s->m, s->k, s->a, true), .wei = form_of(s->k, s->n, s->b, true),
                                  .dst = form_of(s->m, s->n, (struct half_matrix){'N', s->ld}, !s->wide),
                                  .add = s->acc};
    const struct prim_arg arg[] = {{DNNL_ARG_SRC, &shape.src}, {DNNL_ARG_WEIGHTS, &shape.wei},
                                   {DNNL_ARG_DST, &shape.dst}, {DNNL_ARG_BIAS, &shape.bias}};
    dnnl_primitive_desc_t pd;
    memset(p, 0, sizeof *p);
    if (s->bias) shape.bias = form_of(1, s->n, (struct half_matrix){'N', s->n}, false);
    if (api_product(b->engine, &shape, &pd) != dnnl_success) return err_set(e, E_CONF, "the library has no kernel");
    const bool slow = !strncmp(api_kernel(pd), "ref", 3), large = size_align64(api_scratch(pd)) > space;
    if (!slow && !large) return prim_make(b, &p->p, pd, s->bias ? 4 : 3, arg, e);
    dnnl_primitive_desc_destroy(pd);
    return err_set(e, E_CONF, "the library %s", slow ? "has no kernel" : "needs more memory than planned");
}

int half_run(struct be *b, struct half_product *p, const struct half_call *c, struct err *e)
{
    return prim_run(b, &p->p, c->scratch, (void *[]){(void *)c->a, (void *)c->b, c->c, (void *)c->bias}, e);
}

struct half_entry { struct half_shape shape; struct half_product product; };

static bool shape_same(const struct half_shape *x, const struct half_shape *y)
{
    return x->m == y->m && x->n == y->n && x->k == y->k && x->a.how == y->a.how && x->a.ld == y->a.ld &&
           x->b.how == y->b.how && x->b.ld == y->b.ld && x->ld == y->ld && x->wide == y->wide && x->acc == y->acc &&
           x->bias == y->bias;
}

struct half_product *half_shared(struct be *b, const struct half_shape *s, size_t space, struct err *e)
{
    for (int i = 0; i < b->half.n; i++) if (shape_same(&b->half.v[i]->shape, s)) return &b->half.v[i]->product;
    struct half_entry *x = mem_alloc(sizeof *x);
    x->shape = *s;
    if (half_make(b, &x->product, s, space, e)) { free(x); return NULL; }
    *vec_push(&b->half) = x;
    return &x->product;
}

void half_shared_free(struct be *b)
{
    for (int i = 0; i < b->half.n; i++) {
        prim_free(&b->half.v[i]->product.p);
        free(b->half.v[i]);
    }
    vec_free(&b->half);
}
