/* Finds the fastest engine for a convolution pass: tries them on the device and writes the kernel table. */
#include <stdlib.h>
#include <string.h>
#include "backend/cuda/cuda_dnn_int.h"

/* Engines tried of each form. Engines that are compiled when they are planned cost seconds each, so only a user's
 * request includes them. */
enum { TRIED = 8, TRIED_COMPILED = 2, WARM = 2, TIMES = 5 };
/* longer than the host needs to enqueue a trial, so launching is not measured */
enum { HOLD_NS = 100000 };

struct measure_trial {
    struct dnn *d;
    const struct dnn_conv *c;
    struct dnn_ask ask;
    unsigned tries;
    void *a, *b, *out, *work;
    cudaEvent_t from, to;
    float best;                                          /* milliseconds */
    struct text what;                                    /* the fastest one's text in the table */
};

static int cuda_status(struct err *e, const char *what, cudaError_t status)
{
    return status == cudaSuccess ? 0 : err_set(e, E_DEVICE, "%s: %s", what, cudaGetErrorString(status));
}

/* Small values without a special form: operands of zeros are faster than real ones. */
static int operand_new(struct measure_trial *t, int64_t id, void **out, struct err *e)
{
    size_t bytes = conv_elements(t->c, id, t->ask.pass) * sizeof(float);
    if (cuda_status(e, "memory to try kernels", cudaMalloc(out, bytes))) return -1;
    return cuda_status(e, "memory to try kernels", cudaMemsetAsync(*out, 0x3c, bytes, t->d->stream));
}

static int trial_open(struct measure_trial *t, struct err *e)
{
    if (operand_new(t, ID_A, &t->a, e) || operand_new(t, ID_B, &t->b, e) || operand_new(t, ID_C, &t->out, e) ||
        cuda_status(e, "memory to try kernels", cudaMalloc(&t->work, t->ask.max_work + 1)) ||
        cuda_status(e, "an event", cudaEventCreate(&t->from)) || cuda_status(e, "an event", cudaEventCreate(&t->to)))
        return -1;
    return 0;
}

static void trial_close(struct measure_trial *t)
{
    cudaFree(t->a);
    cudaFree(t->b);
    cudaFree(t->out);
    cudaFree(t->work);
    if (t->from) cudaEventDestroy(t->from);
    if (t->to) cudaEventDestroy(t->to);
    text_free(&t->what);
}

static int ascending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* The median of some runs. */
static int time_of(struct measure_trial *t, struct dnn_plan *p, float *ms, struct err *e)
{
    float took[TIMES];
    const struct dnn_operands o = {t->a, t->b, t->out, t->work, NULL};
    for (int i = -WARM; i < TIMES; i++) {
        if (cuda_status(e, "timing", (cudaError_t)k_hold(t->d->stream, HOLD_NS)) ||
            cuda_status(e, "timing", cudaEventRecord(t->from, t->d->stream)) ||
            dnn_run(t->d, p, &o, e) ||
            cuda_status(e, "timing", cudaEventRecord(t->to, t->d->stream)) ||
            cuda_status(e, "timing", cudaEventSynchronize(t->to)))
            return -1;
        if (i >= 0 && cuda_status(e, "timing", cudaEventElapsedTime(&took[i], t->from, t->to))) return -1;
    }
    qsort(took, TIMES, sizeof *took, ascending);
    *ms = took[TIMES / 2];
    return 0;
}

/* Between engines within a few hundredths the library's order decides, so tables of equal devices differ less. */
static int compare(struct measure_trial *t, struct dnn_plan *p, struct err *e)
{
    float ms;
    if (time_of(t, p, &ms, e)) return -1;
    if (t->what.n && ms > 0.97f * t->best) return 0;
    t->best = ms;
    text_free(&t->what);
    if (p->gemm) text_add(&t->what, "cublaslt");
    else {
        text_add(&t->what, "%s ", form_name[p->form]);
        engine_text(&p->choice.engine, &t->what);
    }
    return 0;
}

static struct dnn_plan *tried_new(const struct measure_trial *t)
{
    struct dnn_plan *p = mem_alloc(sizeof *p);
    p->type = t->c->type;
    p->ask = t->ask;
    conv_key(t->c, &t->ask, p->key);
    return p;
}

/* Skips engines that cannot be made or do not run, because others can. */
static bool engine_try(struct measure_trial *t, enum form form, const struct engine *engine)
{
    struct dnn_plan *p = tried_new(t);
    bool ran = dnn_plan_make(t->d, t->c, form, engine, p, NULL) == 0 && compare(t, p, NULL) == 0;
    dnn_plan_free(p);
    return ran;
}

static int form_try(struct measure_trial *t, enum form form, struct err *e)
{
    struct pool pool = {0};
    struct choices all = {.type = t->c->type};
    const struct graph_ask ask = {t->c, t->ask.pass, t->ask.acc && form != FORM_APART, form};
    desc graph = graph_conv(t->d, &pool, &ask, NULL);
    bool every = t->tries & DNN_TRY_ALL;
    bool some = graph && choices_find(t->d, &pool, graph, every ? LIST_BOTH : LIST_A, &all, NULL) == 0;
    int compiled = 0, most = t->tries & DNN_TRY_COMPILED ? TRIED_COMPILED : 0;
    for (int i = 0, tried = 0; some && i < all.n && (every || tried < TRIED); i++) {
        if (all.v[i].behaviour >> CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION & 1 && ++compiled > most) continue;
        tried += engine_try(t, form, &all.v[i].engine);
    }
    free(all.v);
    pool_free(&pool);
    return cuda_status(e, "trying kernels", cudaStreamSynchronize(t->d->stream));
}

static int product_try(struct measure_trial *t, struct err *e)
{
    struct dnn_plan *p = tried_new(t);
    if (dnn_plan_product(t->d, t->c, p, NULL) == 0) compare(t, p, NULL);
    dnn_plan_free(p);
    return cuda_status(e, "trying kernels", cudaStreamSynchronize(t->d->stream));
}

int dnn_measure(struct dnn *d, const struct dnn_conv *c, const struct dnn_ask *ask, unsigned tries,
                struct text *table, struct err *e)
{
    struct measure_trial t = {.d = d, .c = c, .ask = *ask, .tries = tries};
    enum form form[FORMS];
    char key[CONV_KEY];
    conv_key(c, ask, key);
    if (d->device < 0) return err_set(e, E_INTERNAL, "a described device cannot run kernels");
    char *known = table_find(table->n ? table->s : "", key);
    free(known);
    if (known) return 0;
    int bad = trial_open(&t, e) || product_try(&t, e);
    for (int i = 0, n = forms_of(c, ask, form); i < n && !bad; i++) bad = form_try(&t, form[i], e);
    cudaGetLastError();                                  /* errors of earlier tries are no error of the next call */
    if (!bad && !t.what.n) bad = err_set(e, E_DEVICE, "none of the kernels that were tried runs");
    if (!bad && !table->n) dnn_table_head(d, table);
    if (!bad) text_add(table, "%s: %s\n", key, t.what.s);
    trial_close(&t);
    return bad ? err_where(e, "%s", key) : 0;
}
