/* oneDNN primitives with pre-built arguments, and its matrix product. */
#include <stdio.h>
#include <string.h>
#include "backend/cpu/cpu_int.h"

int dnnl_fail(struct err *e, const char *what, dnnl_status_t status)
{
    static const char *const name[] = {"success",       "out of memory", "invalid arguments", "unimplemented",
                                       "iterator ends", "runtime error", "not required"};
    return err_set(e, E_DEVICE, "oneDNN: %s: %s", what,
                   (unsigned)status < sizeof name / sizeof *name ? name[status] : "unknown status");
}

/* form NULL: the scratchpad of pd */
static int arg_add(struct be *b, struct prim *p, const_dnnl_primitive_desc_t pd, struct prim_arg arg, struct err *e)
{
    dnnl_memory_t m;
    dnnl_status_t status = arg.form ? api_memory(b->engine, arg.form, &m) : api_scratch_memory(b->engine, pd, &m);
    if (status != dnnl_success) return dnnl_fail(e, "creating a memory object", status);
    p->arg[p->n++] = (dnnl_exec_arg_t){arg.arg, m};
    return 0;
}

int prim_make(struct be *b, struct prim *p, dnnl_primitive_desc_t pd, int n, const struct prim_arg *arg,
              struct err *e)
{
    memset(p, 0, sizeof *p);
    p->scratch = api_scratch(pd);
    snprintf(p->name, sizeof p->name, "%s", api_kernel(pd));
    if (b->asks) { dnnl_primitive_desc_destroy(pd); return 0; }
    int bad = p->scratch ? arg_add(b, p, pd, (struct prim_arg){DNNL_ARG_SCRATCHPAD, NULL}, e) : 0;
    for (int i = 0; i < n && !bad; i++) bad = arg_add(b, p, pd, arg[i], e);
    dnnl_status_t status = bad ? dnnl_success : dnnl_primitive_create(&p->p, pd);
    dnnl_primitive_desc_destroy(pd);
    if (status != dnnl_success) bad = dnnl_fail(e, "creating a primitive", status);
    if (bad) prim_free(p);
    return bad;
}

int prim_run(struct be *b, struct prim *p, void *scratch, void *const *ptr, struct err *e)
{
    int i = 0;
    dnnl_status_t status = dnnl_success;
    if (p->scratch) status = dnnl_memory_set_data_handle(p->arg[i++].memory, scratch);
    for (; i < p->n && status == dnnl_success; i++) status = dnnl_memory_set_data_handle(p->arg[i].memory, *ptr++);
    if (status == dnnl_success) status = dnnl_primitive_execute(p->p, b->stream, p->n, p->arg);
    return status == dnnl_success ? 0 : dnnl_fail(e, "running a primitive", status);
}

void prim_free(struct prim *p)
{
    for (int i = 0; i < p->n; i++) dnnl_memory_destroy(p->arg[i].memory);
    if (p->p) dnnl_primitive_destroy(p->p);
    memset(p, 0, sizeof *p);
}

int matmul_run(struct matmul g, float *c, int64_t ld, struct err *e)
{
    dnnl_status_t status = dnnl_sgemm(g.a.how, g.b.how, g.m, g.n, g.k, 1.0f, g.a.at, g.a.ld, g.b.at, g.b.ld,
                                      g.acc ? 1.0f : 0.0f, c, ld);
    return status == dnnl_success ? 0 : dnnl_fail(e, "sgemm", status);
}
