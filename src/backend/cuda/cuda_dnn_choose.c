/* Engines for an operation graph: requested, filtered by their notes, made into plans, named in the kernel table. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "backend/cuda/cuda_dnn_int.h"

enum { MAX_CHOICES = 64 };                               /* of one heuristics mode; the library has named 40 at most */

#define NOTE(name) (1u << CUDNN_NUMERICAL_NOTE_##name)

/* Engines whose results may differ from run to run are never used. In float there is no TF32, no rounding of operands,
 * and no algorithm whose error grows with the tile. */
bool choice_allowed(const struct choice *c, enum dnn_type type)
{
    unsigned never = NOTE(NONDETERMINISTIC) | NOTE(REDUCED_PRECISION_REDUCTION);
    if (type == DNN_F32) never |= NOTE(TENSOR_CORE) | NOTE(DOWN_CONVERT_INPUTS) | NOTE(FFT) | NOTE(WINOGRAD);
    return !(c->notes & never);
}

/* Reads the library's description of a configuration. */
static int choice_read(struct pool *p, struct choice *c, struct err *e)
{
    desc engine = desc_empty(p, CUDNN_BACKEND_ENGINE_DESCRIPTOR, e), knob[MAX_KNOBS];
    const cudnnBackendAttributeName_t knobs = CUDNN_ATTR_ENGINECFG_KNOB_CHOICES;
    cudnnBackendNumericalNote_t note[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    cudnnBackendBehaviorNote_t behaviour[CUDNN_BEHAVIOR_NOTE_TYPE_COUNT];
    if (!engine) return -1;
    if (desc_get(c->config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &engine) != 1 ||
        desc_get(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &c->engine.index) != 1)
        return err_set(e, E_DEVICE, "cuDNN: an engine without a number");
    int64_t n = desc_get(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                         CUDNN_NUMERICAL_NOTE_TYPE_COUNT, note);
    for (int64_t i = 0; i < n; i++) c->notes |= 1u << note[i];
    n = desc_get(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE, CUDNN_BEHAVIOR_NOTE_TYPE_COUNT,
                 behaviour);
    for (int64_t i = 0; i < n; i++) c->behaviour |= 1u << behaviour[i];
    n = desc_count(c->config, knobs, CUDNN_TYPE_BACKEND_DESCRIPTOR, MAX_KNOBS);
    for (int64_t i = 0; i < n; i++)
        if (!(knob[i] = desc_empty(p, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, e))) return -1;
    n = desc_get(c->config, knobs, CUDNN_TYPE_BACKEND_DESCRIPTOR, n, knob);
    for (int64_t i = 0; i < n; i++) {
        cudnnBackendKnobType_t type;
        if (desc_get(knob[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &type) != 1 ||
            desc_get(knob[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &c->engine.knob[i].value) != 1)
            return err_set(e, E_DEVICE, "cuDNN: engine %d: a knob without a value", (int)c->engine.index);
        c->engine.knob[i].type = type;
    }
    c->engine.n_knobs = (int)n;
    return 0;
}

static int mode_ask(struct dnn *d, struct pool *p, desc graph, cudnnBackendHeurMode_t mode, struct choices *out,
                    struct err *e)
{
    desc result[MAX_CHOICES];
    desc heur = DESC(p, ENGINEHEUR, "choosing an engine", e,
                     ONE(ENGINEHEUR_OPERATION_GRAPH, BACKEND_DESCRIPTOR, graph), ONE(ENGINEHEUR_MODE, HEUR_MODE, mode),
                     IF_SET(ENGINEHEUR_DEVICEPROP, BACKEND_DESCRIPTOR, d->properties));
    if (!heur) return -1;
    int64_t n = desc_count(heur, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, MAX_CHOICES);
    for (int64_t i = 0; i < n; i++)
        if (!(result[i] = desc_empty(p, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, e))) return -1;
    n = desc_get(heur, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, n, result);
    for (int64_t i = 0; i < n; i++) {
        struct choice c = {.config = result[i]};
        if (choice_read(p, &c, e)) return -1;
        if (choice_allowed(&c, out->type)) out->v[out->n++] = c;
    }
    return 0;
}

static bool engine_same(const struct engine *a, const struct engine *b)
{
    bool same = a->index == b->index && a->n_knobs == b->n_knobs;
    for (int i = 0; same && i < a->n_knobs; i++)
        same = a->knob[i].type == b->knob[i].type && a->knob[i].value == b->knob[i].value;
    return same;
}

/* Removes the choices from `from` on that also occur before. */
static void choices_merge(struct choices *c, int from)
{
    int n = from;
    for (int i = from; i < c->n; i++) {
        int k = 0;
        while (k < n && !engine_same(&c->v[k].engine, &c->v[i].engine)) k++;
        if (k == n) c->v[n++] = c->v[i];
    }
    c->n = n;
}

int choices_find(struct dnn *d, struct pool *p, desc graph, enum choice_list list, struct choices *out,
                 struct err *e)
{
    cudnnBackendHeurMode_t first = list == LIST_FALLBACK ? CUDNN_HEUR_MODE_FALLBACK : CUDNN_HEUR_MODE_A;
    out->v = mem_alloc(2 * MAX_CHOICES * sizeof *out->v);
    out->n = 0;
    int bad = mode_ask(d, p, graph, first, out, e), n = out->n;
    if (!bad && list == LIST_BOTH) {                     /* without a mode B, A's list is enough */
        if (mode_ask(d, p, graph, CUDNN_HEUR_MODE_B, out, NULL)) out->n = n;
        choices_merge(out, n);
    }
    if (!bad && out->n) return 0;
    free(out->v);
    out->v = NULL;
    return bad ? -1 : err_set(e, E_DEVICE, "cuDNN: no engine is deterministic and exact enough");
}

int choice_make(struct dnn *d, struct pool *p, struct choice *c, size_t max_work, struct err *e)
{
    int64_t work = 0;
    c->plan = DESC(p, EXECUTION_PLAN, "making a plan", e, IF_SET(EXECUTION_PLAN_HANDLE, HANDLE, d->handle),
                   IF_SET(EXECUTION_PLAN_DEVICEPROP, BACKEND_DESCRIPTOR, d->properties),
                   ONE(EXECUTION_PLAN_ENGINE_CONFIG, BACKEND_DESCRIPTOR, c->config));
    if (!c->plan) return -1;
    desc_get(c->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &work);
    c->work = (size_t)work;
    if (c->work <= max_work) return 0;
    return err_set(e, E_DATA, "cuDNN: engine %d needs %zu bytes of workspace, there are %zu", (int)c->engine.index,
                   c->work, max_work);
}

int choice_first(struct dnn *d, desc graph, const struct choice_wish *wish, struct pool *keep, struct choice *out,
                 struct err *e)
{
    struct choices all = {.type = wish->type};
    struct pool some = {0};
    struct err last = {0};
    int bad = choices_find(d, &some, graph, wish->list, &all, &last) ? -1 : 1;
    for (int i = 0; bad > 0 && i < all.n; i++) {
        struct err why = {0};
        *out = all.v[i];
        if (choice_make(d, &some, out, wish->max_work, &why)) last = why;
        else bad = 0;
        /* short of memory: no reason to choose another kernel than other ranks */
        if (why.code == E_INTERNAL) bad = -1;
    }
    free(all.v);
    if (!bad) pool_move(keep, &some, out->config);
    if (!bad) pool_move(keep, &some, out->plan);
    pool_free(&some);
    return bad ? err_set(e, last.code, "%s", last.text) : 0;
}

/* ---- names --------------------------------------------------------------------------------------------- */

int choice_named(struct dnn *d, struct pool *p, desc graph, const struct engine *g, struct choice *out, struct err *e)
{
    desc knob[MAX_KNOBS];
    desc engine = DESC(p, ENGINE, "an engine", e, ONE(ENGINE_OPERATION_GRAPH, BACKEND_DESCRIPTOR, graph),
                       ONE(ENGINE_GLOBAL_INDEX, INT64, g->index),
                       IF_SET(ENGINE_DEVICEPROP, BACKEND_DESCRIPTOR, d->properties));
    if (!engine) return -1;
    for (int i = 0; i < g->n_knobs; i++) {
        cudnnBackendKnobType_t type = (cudnnBackendKnobType_t)g->knob[i].type;
        knob[i] = DESC(p, KNOB_CHOICE, "a knob of an engine", e, ONE(KNOB_CHOICE_KNOB_TYPE, KNOB_TYPE, type),
                       ONE(KNOB_CHOICE_KNOB_VALUE, INT64, g->knob[i].value));
        if (!knob[i]) return -1;
    }
    *out = (struct choice){0};
    out->config = DESC(p, ENGINECFG, "an engine", e, ONE(ENGINECFG_ENGINE, BACKEND_DESCRIPTOR, engine),
                       SOME(ENGINECFG_KNOB_CHOICES, BACKEND_DESCRIPTOR, g->n_knobs, knob));
    return out->config ? choice_read(p, out, e) : -1;
}
