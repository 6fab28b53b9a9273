/* Which frozen weights lie in files. A slot is as large as the largest stage in a file, so large stages stay in memory
 * first; of the others, those in files are spread evenly over the rank's stages, because reading one then has the time
 * that the stages before it compute. */
#include <stdlib.h>
#include <string.h>
#include "job/memory_limit.h"
#include "job/tiers.h"
#include "optim/optim.h"
#include "plan/part.h"

static bool has_host(const struct job *j) { return j->be->stream && j->conf->pipeline.host_memory.n; }

/* For a CPU, pipeline.host_memory is a map that only --plan takes. */
static bool has_outside(const struct job *j)
{
    return has_host(j) || (j->conf->pipeline.disk && !j->conf->pipeline.host_memory.n);
}

uint64_t tiers_host(const struct job *j)
{
    return has_host(j) ? (uint64_t)j->conf->pipeline.host_memory.v[0] : 0;
}

uint64_t tiers_outside(const struct job *j)
{
    uint64_t bytes = 0;
    for (int r = 0; r < j->mesh.size[AXIS_PP]; r++) bytes += j->pl->outside_bytes[r];
    return bytes;
}

int tiers_check(const struct job *j, struct err *e)
{
    const uint64_t outside = tiers_outside(j), host = tiers_host(j);
    char b[2][32];
    if (j->conf->pipeline.disk || outside <= host) return 0;
    return conf_error(j->conf, "pipeline.host_memory", e, "%s lie outside the GPUs, %s more than this memory; raise it "
                      "or pipeline.max_memory, or set pipeline.disk", text_bytes(outside, b[0]),
                      text_bytes(outside - host, b[1]));
}

bool tiers_needed(const struct job *j)
{
    uint64_t need;
    if (!has_outside(j)) return false;
    if (!j->conf->pipeline.max_memory.n) return limit_pool_short(j, false, &need);
    uint64_t *limit = tiers_limits(j, NULL);
    const bool over = limit && !tiers_fit(j, limit);
    free(limit);
    return over;
}

bool tiers_fit(const struct job *j, const uint64_t *limit)
{
    bool fits = true;
    for (int r = 0; r < j->mesh.size[AXIS_PP]; r++) fits &= limit_bytes(j, r) <= limit[r];
    return fits;
}

uint64_t *tiers_limits(const struct job *j, struct err *e)
{
    uint64_t *limit = mem_alloc((size_t)j->mesh.size[AXIS_PP] * sizeof *limit);
    if (!j->conf->pipeline.max_memory.n) limit_share(j, true, limit);
    else if (part_limits(j->conf, NULL, j->mesh.size[AXIS_PP], limit, e)) {
        free(limit);
        return NULL;
    }
    return limit;
}

/* May the weight lie in a file? Its bytes there, with those of its gradient; otherwise 0. */
static uint64_t row_bytes(const struct job *j, const struct state_row *r)
{
    const bool may = r->region == IN_PARAM && placement_may_file(j->sel, r) && j->graph->param[r->param].n_uses == 1;
    if (!may || (r->trained && j->offloads < OFFLOADS_WEIGHTS)) return 0;
    return r->trained ? 2 * r->bytes : r->bytes;
}

static int offload_check(const struct job *j, struct err *e)
{
    static const char key[] = "pipeline.offload_optimizer";
    const struct conf *c = j->conf;
    if (!has_outside(j))
        return conf_error(c, key, e, "needs pipeline.disk, a folder for the optimizer's state%s",
                          j->be->stream ? ", or pipeline.host_memory" : "");
    if (c->pipeline.replicas > 1)
        return conf_error(c, key, e, "is for one replica; with several, pipeline.shard_optimizer shares out the state");
    if (!optim_buffers(c).n)
        return conf_error(c, key, e, "train.optimizer = \"%s\" keeps no state here", conf_word(c, "train.optimizer"));
    return 0;
}

int offload_range(const struct job *j, enum offloads *least, enum offloads *most, struct err *e)
{
    const struct conf *c = j->conf;
    const enum when wants = c->pipeline.offload_optimizer;
    struct err why = {0};
    *least = *most = OFFLOADS_NOTHING;
    if (c->run.evaluate || wants == WHEN_NO) return 0;
    if (offload_check(j, wants == WHEN_YES ? e : &why)) return wants == WHEN_YES ? -1 : 0;
    if (wants == WHEN_YES) *least = OFFLOADS_STATE;
    *most = c->train.gradient_groups > 1 || c->train.ema > 0 ? OFFLOADS_STATE : OFFLOADS_WEIGHTS;
    return 0;
}

int tiers_stages(const struct job *j, const uint64_t *limit)
{
    enum { PART_OF_MEMORY = 8 };                          /* a slot's part of it */
    const int p = j->mesh.size[AXIS_PP];
    uint64_t bytes = 0, memory = 0, least = PART_NO_LIMIT;
    if (j->conf->pipeline.stages > p) return (int)j->conf->pipeline.stages;
    for (int i = 0; i < j->pl->n_state; i++) bytes += row_bytes(j, &j->pl->state[i]);
    for (int r = 0; r < p; r++) {
        memory += limit[r] / (uint64_t)p;
        least = limit[r] < least ? limit[r] : least;
    }
    if (!j->tiers_by_limit) memory = least;
    uint64_t each = PART_OF_MEMORY * (bytes / (uint64_t)p) / (memory + 1) + 4;
    each += each % 2;                                     /* with two slots, such a number comes round without a wait */
    while (each > 2 && each * (uint64_t)p > (uint64_t)j->sel->n_groups) each--;
    return (int)each * p;
}

/* The share of the weights that stages before s have: even, or in proportion to the limits of their ranks. */
static double share_until(const struct job *j, const uint64_t *limit, int s)
{
    const int p = j->mesh.size[AXIS_PP];
    double all = 0, until = 0;
    for (int i = 0; i < j->n_stages; i++) {
        const double own = j->tiers_by_limit ? (double)limit[j->rank_of ? j->rank_of[i] : i % p] : 1;
        all += own;
        if (i < s) until += own;
    }
    return all > 0 ? until / all : (double)s / j->n_stages;
}

int tiers_cut(struct job *j, struct err *e)
{
    const int n = j->sel->n_groups;
    uint64_t *limit = j->tiers_by_limit ? tiers_limits(j, e) : NULL;   /* pipeline.max_memory: needs no plan */
    if (j->tiers_by_limit && !limit) return -1;
    struct arena *mem = arena_new();
    struct state_row *row;
    const struct state_buffers none = {.fixed = true};
    uint64_t *sum = mem_alloc((size_t)(n + 1) * sizeof *sum);
    state_rows_make(mem, j->sel, &none, &row);
    for (int g = 0; g < n; g++) {
        const struct group *k = &j->sel->group[g];
        sum[g + 1] = sum[g] + 1;                          /* groups without weights count, too */
        for (int i = 0; i < k->n_param; i++) sum[g + 1] += row_bytes(j, &row[k->param[i]]);
    }
    for (int s = 1, g = 0; s < j->n_stages; s++) {
        const uint64_t want = (uint64_t)((double)sum[n] * share_until(j, limit, s));
        while (g < n - (j->n_stages - s) && (g <= j->first_group[s - 1] || sum[g] + sum[g + 1] <= 2 * want)) g++;
        j->first_group[s] = g;
    }
    j->first_group[j->n_stages] = n;
    arena_free(mem);
    free(limit);
    free(sum);
    return 0;
}

void tiers_all(struct job *j)
{
    j->in_file = mem_alloc((size_t)j->n_stages * sizeof *j->in_file);
    for (int i = 0; i < j->n_stages; i++) j->in_file[i] = true;
}

/* ---- what stays in memory ---------------------------------------------------------------------------------------- */

/* The stages of a rank with weights in a file, in their order; and what of them lies in files. */
struct tier { const int *stage; int n; const size_t *bytes; bool *in_file; };

/* Of those up to `largest`, n in files, evenly spread. Returns the bytes that stay in memory, slots included. */
static uint64_t tier_spread(const struct tier *t, size_t largest, int n, size_t slot)
{
    int fit = 0, k = 0;
    uint64_t bytes = 0;
    for (int i = 0; i < t->n; i++) fit += t->bytes[t->stage[i]] && t->bytes[t->stage[i]] <= largest;
    for (int i = 0; i < t->n; i++) {
        const size_t own = t->bytes[t->stage[i]];
        const bool small = own && own <= largest;
        const bool takes = small && (int64_t)(k + 1) * n / fit > (int64_t)k * n / fit;
        t->in_file[t->stage[i]] = takes;
        k += small;
        if (!takes) bytes += own;
    }
    return bytes + (uint64_t)slot * (n < TIER_SLOTS ? n : TIER_SLOTS);
}

static uint64_t file_bytes(const struct tier *t)
{
    uint64_t sum = 0;
    for (int i = 0; i < t->n; i++) sum += t->in_file[t->stage[i]] ? t->bytes[t->stage[i]] : 0;
    return sum;
}

/* Stages up to `largest` bytes of which n lie in files; what then lies in memory, slots included, and in files. */
struct tier_choice { size_t largest; int n; uint64_t memory, files; };

/* What fits is better than what does not; then, what leaves less in files; or, where neither fits, in memory. */
static bool choice_better(const struct tier_choice *a, const struct tier_choice *b, uint64_t space)
{
    const bool fits = a->memory <= space, other = b->memory <= space;
    if (fits != other) return fits;
    return fits ? a->files < b->files : a->memory < b->memory;
}

/* Tries each size of slots, with more and more stages in files until they fit. Returns the bytes in memory. */
static uint64_t tier_choose(const struct tier *t, uint64_t space)
{
    struct tier_choice best = {.memory = tier_spread(t, 0, 0, 0)};
    for (int i = 0; i < t->n; i++) {
        struct tier_choice x = {.largest = t->bytes[t->stage[i]]};
        int fit = 0;
        for (int k = 0; k < t->n; k++) fit += t->bytes[t->stage[k]] && t->bytes[t->stage[k]] <= x.largest;
        do {
            x.n++;
            x.memory = tier_spread(t, x.largest, x.n, x.largest);
            x.files = file_bytes(t);
            if (x.n <= fit && choice_better(&x, &best, space)) best = x;
        } while (x.n < fit && x.memory > space);
    }
    tier_spread(t, best.largest, best.n, 0);
    return best.memory;
}

bool tiers_choose(struct job *j, const uint64_t *limit)
{
    bool fits = true;
    size_t *bytes = mem_alloc((size_t)j->n_stages * sizeof *bytes);
    for (int s = 0; s < j->n_stages; s++) bytes[s] = j->pl->slot_used[s] + j->pl->slot_grads[s];
    for (int r = 0; r < j->mesh.size[AXIS_PP]; r++) {
        const struct weight_slots *of = &j->pl->slots[r];
        const uint64_t other = limit_bytes(j, r) - (uint64_t)of->n * (of->bytes + of->grad_bytes);
        const struct tier t = {j->pl->map.stages_of[r], j->pl->map.n_stages_of[r], bytes, j->in_file};
        fits &= other + tier_choose(&t, limit[r] > other ? limit[r] - other : 0) <= limit[r];
    }
    free(bytes);
    return fits;
}
