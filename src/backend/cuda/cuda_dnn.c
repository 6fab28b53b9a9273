/* dnn.h by cuDNN's graph interface and cuBLASLt. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "backend/cuda/cuda_device.h"
#include "backend/cuda/cuda_dnn_int.h"

static size_t aligned(size_t n) { return (n + WORK_ALIGN - 1) / WORK_ALIGN * WORK_ALIGN; }
static size_t beside(size_t max_work) { return max_work > WORK_ALIGN ? max_work - WORK_ALIGN : 0; }
/* The same request for cuBLASLt, within aligned workspace. */
static struct dnn_ask aligned_ask(struct dnn_ask ask) { ask.max_work = beside(ask.max_work); return ask; }
static size_t width(enum dnn_type type) { return type == DNN_BF16 ? 2 : 4; }

/* ---- open and close ------------------------------------------------------------------------------------ */

void libraries_text(struct text *out)
{
    size_t c = cudnnGetVersion();
    text_add(out, "cuDNN %zu.%zu.%zu, ", c / 10000, c % 10000 / 100, c % 100);
    if (blaslt_load(NULL)) {
        text_add(out, "no cuBLASLt");
        return;
    }
    size_t b = blaslt.GetVersion();
    text_add(out, "cuBLASLt %zu.%zu.%zu", b / 10000, b % 10000 / 100, b % 100);
}

/* cuDNN loads the compiler if an engine needs it, and takes another engine if the compiler is missing. */
void dnn_versions(struct text *libraries, struct text *beside)
{
    char name[32];
    int major, minor;
    snprintf(name, sizeof name, "libnvrtc.so.%d", CUDART_VERSION / 1000);
    void *lib = dlopen(name, RTLD_LAZY | RTLD_LOCAL), *found = lib ? dlsym(lib, "nvrtcVersion") : NULL;
    int (*version)(int *, int *);
    memcpy(&version, &found, sizeof version);
    libraries_text(libraries);
    if (found && version(&major, &minor) == 0) text_add(beside, "NVRTC %d.%d", major, minor);
    else text_add(beside, "no NVRTC");
    if (lib) dlclose(lib);
}

static int device_open(struct dnn *d, struct err *e)
{
    struct cuda_device c;
    if (cuda_device_get(d->device, &c, e)) return -1;
    snprintf(d->name, sizeof d->name, "%s", c.name);
    if (dnn_status(e, "no start", cudnnCreate(&d->handle)) ||
        dnn_status(e, "no stream", cudnnSetStream(d->handle, d->stream)))
        return -1;
    cublasStatus_t status = blaslt.Create(&d->blas);
    if (status == CUBLAS_STATUS_SUCCESS) return 0;
    return err_set(e, E_DEVICE, "cuBLASLt does not start: %s", blaslt.GetStatusName(status));
}

static int described_open(struct dnn *d, const char *properties, struct err *e)
{
    int64_t n = (int64_t)strlen(properties) + 1;
    snprintf(d->name, sizeof d->name, "a described device");
    d->properties = DESC(&d->pool, DEVICEPROP, "a described device", e,
                         SOME(DEVICEPROP_JSON_REPRESENTATION, CHAR, n, properties));
    return d->properties ? 0 : -1;
}

int dnn_open(int device, const char *properties, void *stream, const char *table, struct dnn **out, struct err *e)
{
    size_t version = cudnnGetVersion();
    if (version / 10000 != CUDNN_MAJOR)
        return err_set(e, E_DEVICE, "cuDNN %zu is installed, this program was built for cuDNN %d", version / 10000,
                       CUDNN_MAJOR);
    if (blaslt_load(e)) return -1;
    struct dnn *d = mem_alloc(sizeof *d);
    d->device = device;
    d->stream = stream;
    d->table = mem_strdup(table ? table : "");
    if ((device < 0 ? described_open(d, properties, e) : device_open(d, e)) || table_check(d, e)) {
        dnn_close(d);
        return -1;
    }
    *out = d;
    return 0;
}

void dnn_close(struct dnn *d)
{
    if (!d) return;
    for (int i = 0; i < d->plan.n; i++) dnn_plan_free(d->plan.v[i]);
    vec_free(&d->plan);
    for (int i = 0; i < d->attention.n; i++) attention_free(d->attention.v[i]);
    vec_free(&d->attention);
    pool_free(&d->pool);
    if (d->handle) cudnnDestroy(d->handle);
    if (d->blas) blaslt.Destroy(d->blas);
    free(d->table);
    free(d);
}

/* The JSON of a device descriptor; the first call gets its size. */
static char *json_of(desc device, struct err *e)
{
    const cudnnBackendAttributeName_t name = CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION;
    int64_t n = 0;
    if (dnn_status(e, "the device", cudnnBackendGetAttribute(device, name, CUDNN_TYPE_CHAR, 0, &n, NULL))) return NULL;
    char *out = mem_alloc((size_t)n + 1);
    if (!dnn_status(e, "the device", cudnnBackendGetAttribute(device, name, CUDNN_TYPE_CHAR, n, &n, out))) return out;
    free(out);
    return NULL;
}

char *dnn_properties(struct dnn *d, struct err *e)
{
    struct pool p = {0};
    desc device = d->properties;
    if (!device) device = DESC(&p, DEVICEPROP, "the device", e, ONE(DEVICEPROP_HANDLE, HANDLE, d->handle));
    char *out = device ? json_of(device, e) : NULL;
    pool_free(&p);
    return out;
}

/* ---- plans --------------------------------------------------------------------------------------------- */

static const char *const type_name[] = {[DNN_F32] = "fp32", [DNN_TF32] = "tf32", [DNN_BF16] = "bf16"};
static const char *const pass_name[] = {[DNN_FORWARD] = "forward", [DNN_DATA] = "data", [DNN_WEIGHTS] = "weights"};

void conv_key(const struct dnn_conv *c, const struct dnn_ask *ask, char out[CONV_KEY])
{
    const int *i = c->in, *o = c->out, *k = c->kernel, *s = c->stride, *p = c->pad, *d = c->dilation;
    snprintf(out, CONV_KEY, "%s %s%s n%d c%d>%d/%d %dx%dx%d>%dx%dx%d k%dx%dx%d s%dx%dx%d p%dx%dx%d d%dx%dx%d",
             type_name[c->type], pass_name[ask->pass], ask->acc ? "+" : "", c->n, c->c_in, c->c_out, c->groups, i[0],
             i[1], i[2], o[0], o[1], o[2], k[0], k[1], k[2], s[0], s[1], s[2], p[0], p[1], p[2], d[0], d[1], d[2]);
}

size_t conv_elements(const struct dnn_conv *c, int64_t id, enum dnn_pass pass)
{
    bool x = id == (pass == DNN_DATA ? ID_C : ID_A), w = id == (pass == DNN_WEIGHTS ? ID_C : ID_B);
    const int *space = w ? c->kernel : x ? c->in : c->out;
    size_t points = (size_t)space[0] * (size_t)space[1] * (size_t)space[2];
    return points * (size_t)(w ? c->c_out : c->n) * (size_t)(w ? c->c_in / c->groups : x ? c->c_in : c->c_out);
}

/* Sets l to the product that a convolution over single points is. false: it is none. */
static bool conv_is_product(const struct dnn_conv *c, struct dnn_linear *l)
{
    int64_t rows = c->n;
    for (int i = 0; i < 3; i++) {
        if (c->kernel[i] != 1 || c->stride[i] != 1 || c->pad[i]) return false;
        rows *= c->in[i];
    }
    if (c->groups != 1 || rows > INT32_MAX) return false;
    *l = (struct dnn_linear){.type = c->type, .n = (int)rows, .in = c->c_in, .out = c->c_out};
    return true;
}

int dnn_plan_product(struct dnn *d, const struct dnn_conv *c, struct dnn_plan *p, struct err *e)
{
    struct dnn_linear l;
    const struct dnn_ask ask = aligned_ask(p->ask);
    if (!d->blas || !conv_is_product(c, &l)) return err_set(e, E_DATA, "not a product for cuBLASLt");
    p->gemm = gemm_new(d, &l, &ask, e);
    return p->gemm ? 0 : -1;
}

/* Weight gradients in bfloat16 try FORM_APART first. Its engines are compiled already, and the pass over the weights
 * after them is short. Engines that add within the graph are compiled when they are planned, which takes seconds. */
int forms_of(const struct dnn_conv *c, const struct dnn_ask *ask, enum form out[FORMS])
{
    int n = 0;
    bool narrow = c->type == DNN_BF16 && ask->pass == DNN_WEIGHTS;
    if (!narrow) out[n++] = FORM_PLAIN;
    if (narrow || ask->acc) out[n++] = FORM_APART;
    if (narrow) out[n++] = FORM_ADD;
    return n;
}

int dnn_plan_make(struct dnn *d, const struct dnn_conv *c, enum form form, const struct engine *engine,
                  struct dnn_plan *p, struct err *e)
{
    /* with FORM_APART the own kernel adds */
    const struct graph_ask ask = {c, p->ask.pass, p->ask.acc && form != FORM_APART, form};
    size_t max_work = p->ask.max_work;
    struct err last = {0};
    p->form = form;
    p->out = conv_elements(c, ID_C, ask.pass);
    p->apart = form == FORM_APART ? aligned(p->out * width(c->type)) : 0;
    if (beside(max_work) < p->apart) return err_set(e, E_DATA, "%zu bytes of workspace are too few", max_work);
    size_t space = beside(max_work) - p->apart;
    desc graph = graph_conv(d, &p->pool, &ask, e);
    if (!graph) return -1;
    if (engine && choice_named(d, &p->pool, graph, engine, &p->choice, e)) return -1;
    if (engine && !choice_allowed(&p->choice, p->type))
        return err_set(e, E_DATA, "the kernel table names engine %d, which is not deterministic or not exact enough",
                       (int)engine->index);
    if (engine) return choice_make(d, &p->pool, &p->choice, space, e);
    struct choice_wish wish = {LIST_A, p->type, space};
    if (choice_first(d, graph, &wish, &p->pool, &p->choice, &last) == 0) return 0;
    wish.list = LIST_FALLBACK;
    if (last.code != E_INTERNAL && choice_first(d, graph, &wish, &p->pool, &p->choice, NULL) == 0) return 0;
    return err_set(e, last.code, "%s", last.text);
}

void dnn_plan_free(struct dnn_plan *p)
{
    for (int i = 0; i < p->pack.n; i++) cudnnBackendDestroyDescriptor(p->pack.v[i].d);
    vec_free(&p->pack);
    pool_free(&p->pool);
    gemm_free(p->gemm);
    free(p);
}

static struct dnn_plan *plan_new(enum dnn_type type, const struct dnn_ask *ask)
{
    struct dnn_plan *p = mem_alloc(sizeof *p);
    p->type = type;
    p->ask = *ask;
    p->origin = "heuristics";
    return p;
}

/* Layers of one shape share a plan: frees p, and *out becomes the existing plan. */
static bool plan_known(struct dnn *d, struct dnn_plan *p, struct dnn_plan **out)
{
    for (int i = 0; i < d->plan.n; i++) {
        struct dnn_plan *k = d->plan.v[i];
        if (strcmp(k->key, p->key) || k->ask.max_work != p->ask.max_work || k->bias != p->bias) continue;
        dnn_plan_free(p);
        *out = k;
        return true;
    }
    return false;
}

static int plan_keep(struct dnn *d, struct dnn_plan *p, int bad, struct dnn_plan **out)
{
    if (d->device >= 0) cudaGetLastError();              /* errors of earlier tries are no error of the next call */
    if (bad) { dnn_plan_free(p); return -1; }
    *vec_push(&d->plan) = p;
    *out = p;
    return 0;
}

/* Without a table no user named the missing kernel, so the code is the device's. */
static int untabled(int code) { return code == E_DATA ? E_DEVICE : code; }

/* Makes the plan that the kernel table names for a pass. */
static int plan_named(struct dnn *d, const struct dnn_conv *c, const char *what, struct dnn_plan *p, struct err *e)
{
    struct engine engine;
    enum form named, form[FORMS];
    p->origin = "kernel table";
    if (strcmp(what, "cublaslt") == 0) return dnn_plan_product(d, c, p, e);
    int n = forms_of(c, &p->ask, form), i = 0;
    if (kernel_read(what, &named, &engine)) return err_set(e, E_DATA, "\"%s\" is not a kernel", what);
    while (i < n && form[i] != named) i++;
    if (i == n) return err_set(e, E_DATA, "this pass has no form \"%s\"", form_name[named]);
    return dnn_plan_make(d, c, named, &engine, p, e);
}

/* Makes a plan in the library's ranking. Weight gradients over single points go to cuBLASLt, which adds products of
 * bfloat16 in float. */
static int plan_ranked(struct dnn *d, const struct dnn_conv *c, struct dnn_plan *p, struct err *e)
{
    enum form form[FORMS];
    struct err why = {0};
    if (c->type == DNN_BF16 && p->ask.pass == DNN_WEIGHTS && dnn_plan_product(d, c, p, NULL) == 0) return 0;
    for (int i = 0, n = forms_of(c, &p->ask, form); i < n; i++)
        if (dnn_plan_make(d, c, form[i], NULL, p, &why) == 0) return 0;
    return err_set(e, why.code, "%s", why.text);
}

int dnn_conv_plan(struct dnn *d, const struct dnn_conv *c, const struct dnn_ask *ask, struct dnn_plan **out,
                  struct err *e)
{
    struct dnn_plan *p = plan_new(c->type, ask);
    conv_key(c, ask, p->key);
    if (plan_known(d, p, out)) return 0;
    char *what = table_find(d->table, p->key);
    struct err why = {0};
    int bad = what ? plan_named(d, c, what, p, &why) : plan_ranked(d, c, p, &why);
    /* Another kernel would compute other bits under the table's name. */
    if (bad && what && why.code == E_DATA)
        err_set(e, E_DATA, "kernel table: %s: %s; measure a new table", p->key, why.text);
    else if (bad) err_set(e, untabled(why.code), "%s: %s", p->key, why.text);
    free(what);
    return plan_keep(d, p, bad, out);
}

/* If cuBLASLt is missing (no device) or has no algorithm, a linear layer is a convolution over one point. */
int dnn_linear_plan(struct dnn *d, const struct dnn_linear *l, const struct dnn_ask *ask, struct dnn_plan **out,
                    struct err *e)
{
    struct dnn_plan *p = plan_new(l->type, ask);
    const struct dnn_ask inner = aligned_ask(*ask);
    struct dnn_conv c = {.type = l->type, .n = l->n, .c_in = l->in, .c_out = l->out, .groups = 1, .in = {1, 1, 1},
                         .out = {1, 1, 1}, .kernel = {1, 1, 1}, .stride = {1, 1, 1}, .dilation = {1, 1, 1}};
    snprintf(p->key, sizeof p->key, "%s %s%s linear n%d %d>%d%s", type_name[l->type], pass_name[ask->pass],
             ask->acc ? "+" : "", l->n, l->in, l->out, l->wide ? " to fp32" : "");
    if (l->line) snprintf(p->key + strlen(p->key), sizeof p->key - strlen(p->key), " in %d", l->line);
    p->biased = (struct k_shape){l->type == DNN_BF16 ? K_BF16 : K_F32, l->n, 1, l->out};
    p->bias = l->bias && ask->pass == DNN_FORWARD;
    if (plan_known(d, p, out)) return 0;
    struct err why = {0};
    if (d->blas && (p->gemm = gemm_new(d, l, &inner, &why))) return plan_keep(d, p, 0, out);
    const bool only = l->line || l->wide;                /* cuDNN has no such form */
    if (only && !d->blas) err_set(&why, E_DEVICE, "only cuBLASLt has this form, and there is no device");
    if (!only) why = (struct err){0};
    int bad = only ? -1 : plan_ranked(d, &c, p, &why);
    if (bad) err_set(e, untabled(why.code), "%s: %s", p->key, why.text);
    return plan_keep(d, p, bad, out);
}

size_t dnn_plan_work(const struct dnn_plan *p)
{
    size_t work = p->gemm ? gemm_work(p->gemm) : p->apart + p->choice.work;
    return work ? work + WORK_ALIGN : 0;
}

/* ---- running ------------------------------------------------------------------------------------------- */

static int kernel_status(struct err *e, const char *what, int status)
{
    return status ? err_set(e, E_DEVICE, "%s: %s", what, cudaGetErrorString((cudaError_t)status)) : 0;
}

/* The pack for these pointers, made at their first use. NULL: e. */
static desc pack_find(struct dnn_plan *p, const struct dnn_operands *o, struct err *e)
{
    for (int i = 0; i < p->pack.n; i++) {
        const struct pack *k = &p->pack.v[i];
        if (k->a == o->a && k->b == o->b && k->c == o->c && k->work == o->work) return k->d;
    }
    int64_t id[] = {ID_A, ID_B, ID_C, ID_SUM};
    const void *at[] = {o->a, o->b, o->c, o->c};
    int64_t n = p->form == FORM_ADD ? 4 : 3;
    struct pool one = {0};
    struct err why = {0};
    desc d = DESC(&one, VARIANT_PACK, "operands", &why, SOME(VARIANT_PACK_UNIQUE_IDS, INT64, n, id),
                  SOME(VARIANT_PACK_DATA_POINTERS, VOID_PTR, n, at), ONE(VARIANT_PACK_WORKSPACE, VOID_PTR, o->work));
    if (!d) {
        err_set(e, untabled(why.code), "%s", why.text);
        pool_free(&one);
        return NULL;
    }
    vec_free(&one.d);                                    /* d stays in the list of packs */
    *vec_push(&p->pack) = (struct pack){o->a, o->b, o->c, o->work, d};
    return d;
}

static int conv_run(struct dnn *d, struct dnn_plan *p, const struct dnn_operands *o, struct err *e)
{
    enum ktype type = p->type == DNN_BF16 ? K_BF16 : K_F32;
    bool acc = p->ask.acc;
    void *c = o->c, *to = p->form == FORM_APART ? o->work : c;
    int status = 0;
    void *work = p->choice.work ? (char *)o->work + p->apart : NULL;
    desc pack = pack_find(p, &(struct dnn_operands){o->a, o->b, to, work, NULL}, e);
    if (!pack) return -1;
    if (p->form == FORM_ADD && !acc) status = (int)cudaMemsetAsync(c, 0, p->out * sizeof(float), d->stream);
    if (kernel_status(e, "clearing a gradient", status) ||
        dnn_status(e, p->key, cudnnBackendExecute(d->handle, p->choice.plan, pack)))
        return -1;
    bool widens = type == K_BF16 && p->ask.pass == DNN_WEIGHTS;
    if (p->form == FORM_APART && widens) status = k_from_bf16(d->stream, p->out, to, c, acc);
    else if (p->form == FORM_APART) status = k_copy(d->stream, type, p->out, to, c, acc);
    if (p->bias) status = k_bias(d->stream, &p->biased, o->bias, c);
    return kernel_status(e, p->bias ? "bias" : "adding a gradient", status);
}

int dnn_run(struct dnn *d, struct dnn_plan *p, const struct dnn_operands *o, struct err *e)
{
    if (d->device < 0) return err_set(e, E_INTERNAL, "a described device cannot run kernels");
    struct dnn_operands at = *o;
    at.work = (char *)o->work + (WORK_ALIGN - (uintptr_t)o->work % WORK_ALIGN) % WORK_ALIGN;
    return p->gemm ? gemm_run(d, p->gemm, &at, e) : conv_run(d, p, &at, e);
}

void dnn_plan_text(const struct dnn_plan *p, struct text *out)
{
    static const char *const note[] = {
        [CUDNN_NUMERICAL_NOTE_TENSOR_CORE] = "tensor cores",
        [CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS] = "operands rounded",
        [CUDNN_NUMERICAL_NOTE_FFT] = "FFT", [CUDNN_NUMERICAL_NOTE_WINOGRAD] = "Winograd"};
    char work[32];
    text_add(out, "%s: ", p->key);
    if (p->gemm) gemm_text(p->gemm, out);
    else {
        text_add(out, "cuDNN %s ", form_name[p->form]);
        engine_text(&p->choice.engine, out);
        for (size_t i = 0; i < sizeof note / sizeof *note; i++)
            if (note[i] && p->choice.notes >> i & 1) text_add(out, ", %s", note[i]);
        if (p->choice.behaviour >> CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION & 1) text_add(out, ", compiled here");
    }
    text_add(out, "; %s of workspace, by %s", text_bytes(dnn_plan_work(p), work), p->origin);
}
