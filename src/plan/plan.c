/* The driver: request -> schedule -> channels -> programs -> rows -> slots -> checked plan. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "plan/plan_int.h"
#include "plan/sched.h"

enum { MAX_MB = 65535 };                                 /* act.mb has 16 bits */

/* ---- schedule files: rows for the batch that they were written for ----------------------------------------------- */

/* The batch that the rows were written for. A batch with fewer micro-batches omits the actions of the missing ones; all
 * others keep their order. Legal rows stay legal: an action waits only for earlier actions of its row and for actions
 * of its own micro-batch. So the remaining actions have no new waits, and they still ascend. */
static struct portion full_batch(const struct plan *p)
{
    struct plan_request full = p->req;
    struct portion b;
    if (full.rows_micro > plan_micro_batches(p)) full.batch = full.rows_micro * full.split;
    batch_split(p->mem, &full, p->pl->mesh.size[AXIS_DP], 0, &b);   /* the first pipeline has the most */
    return b;
}

/* Rows are those of the first pipeline, which has the most micro-batches. */
static int full_error(const struct portion *f, int line, const struct sched_act *a, const char *why, struct err *e)
{
    char at[24] = "";
    if (line) snprintf(at, sizeof at, "%d:", line);
    return err_set(e, E_DATA, "rows:%s %d%s%d%s; a %s has %d micro-batch%s", at, a->stage, act_info[a->op].text, a->mb,
                   why, f->shared ? axis_word[AXIS_DP] : "batch", f->n_mb, f->n_mb == 1 ? "" : "es");
}

/* Line of the rank's last action; 0: it has none. */
static int row_line(const struct sched *s, int rank)
{
    int n = s->row[rank].n;
    return n ? s->row[rank].v[n - 1].line : 0;
}

static int rows_complete(const struct plan *p, const struct portion *f, const struct sched *s, const bool *seen,
                         struct err *e)
{
    size_t n = (size_t)p->n_stages * (size_t)f->n_mb;
    for (size_t i = 0; i < n; i++)
        for (enum act_op op = ACT_F; op <= ACT_W; op++) {
            struct sched_act a = {.op = (uint8_t)op, .stage = (uint16_t)(i / (size_t)f->n_mb),
                                  .mb = (uint16_t)(i % (size_t)f->n_mb)};
            if (seen[op * n + i]) continue;
            return full_error(f, row_line(s, p->stage[a.stage].rank), &a, " is missing", e);
        }
    return 0;
}

/* A file may contain anything. Lowering needs stages and micro-batches that exist, on the right rank, and each action
 * at most once. */
static int rows_check(const struct plan *p, const struct portion *f, const struct sched *s, struct err *e)
{
    size_t n = (size_t)p->n_stages * (size_t)f->n_mb;
    bool *seen = mem_alloc(n * ACT_COUNT);
    int bad = 0;
    for (int r = 0; r < s->n_ranks; r++)
        for (int i = 0; i < s->row[r].n && !bad; i++) {
            const struct sched_act *a = &s->row[r].v[i];
            const char *op = act_info[a->op].text, *why = NULL;
            if (a->mb >= f->n_mb) {
                bad = full_error(f, a->line, a, ": there is no such micro-batch", e);
                break;
            }
            if (a->stage >= p->n_stages) why = "there is no such stage";
            else if (p->stage[a->stage].rank != r) why = "the stage belongs to another rank";
            else if (seen[a->op * n + a->stage * (size_t)f->n_mb + a->mb]) why = "it is there twice";
            if (!why) seen[a->op * n + a->stage * (size_t)f->n_mb + a->mb] = true;
            else bad = err_set(e, E_DATA, "rows:%d: %d%s%d: %s", a->line, a->stage, op, a->mb, why);
        }
    bad = bad || rows_complete(p, f, s, seen, e);
    free(seen);
    return bad ? -1 : 0;
}

static void rows_shorten(const struct plan *p, struct sched *s)
{
    for (int r = 0; r < s->n_ranks; r++) {
        int n = 0;
        for (int i = 0; i < s->row[r].n; i++) if (s->row[r].v[i].mb < p->n_mb) s->row[r].v[n++] = s->row[r].v[i];
        s->row[r].n = n;
    }
}

static int rows_build(const struct plan *p, struct sched *s, struct err *e)
{
    if (p->req.mode != PLAN_TRAIN) return err_set(e, E_CONF, "schedule \"rows\" is for training");
    if (!p->req.rows) return err_set(e, E_CONF, "schedule \"rows\" has no rows");
    if (p->req.in_flight) return err_set(e, E_CONF, "the rows decide how many micro-batches are in flight");
    struct portion f = full_batch(p);
    if (sched_parse("rows", p->req.rows, strlen(p->req.rows), s, e) || rows_check(p, &f, s, e)) return -1;
    rows_shorten(p, s);
    return 0;
}

static int schedule_build(const struct plan *p, const struct plan_request *r, struct sched *s, struct err *e)
{
    const struct sched_kind *k = sched_find(p->req.schedule);
    s->n_ranks = p->n_ranks;
    s->row = mem_alloc((size_t)p->n_ranks * sizeof *s->row);
    if (!p->n_mb) return 0;                              /* a pipeline without micro-batches */
    if (p->req.rows) return rows_build(p, s, e);
    if (!k) return err_set(e, E_CONF, "there is no schedule \"%s\"", p->req.schedule);
    if (k->eval != (p->req.mode == PLAN_EVAL))
        return err_set(e, E_CONF, "schedule \"%s\" is for %s", k->name, k->eval ? "evaluation" : "training");
    return sched_ask(k, p, r, s, e);
}

static void batch_take(struct plan *p, struct plan_request *r)
{
    if (r->groups < 1) r->groups = 1;
    int n = p->pl->mesh.size[AXIS_DP];
    p->part = arena_alloc(p->mem, (size_t)n * sizeof *p->part);
    for (int i = 0; i < n; i++) batch_split(p->mem, r, n, i, &p->part[i]);
    const struct portion *b = &p->part[r->dp];
    p->n_mb = b->n_mb, p->mb_n = b->mb_n, p->mb_first = b->mb_first;
    p->max_n = r->split < r->batch ? r->split : r->batch;
}

static struct plan *plan_new(const struct selection *s, const struct placement *pl, const struct plan_request *r)
{
    struct arena *mem = arena_new();
    struct plan *p = arena_alloc(mem, sizeof *p);
    *p = (struct plan){.mem = mem, .sel = s, .pl = pl, .req = *r, .n_stages = pl->n_stages, .n_ranks = pl->map.n_ranks};
    p->req.schedule = arena_strdup(mem, r->schedule);
    p->req.rows = r->rows ? arena_strdup(mem, r->rows) : NULL;
    if (!r->backward) p->req.backward = BACKWARD_AUTO;
    if (!r->batch_norm) p->req.batch_norm = STATS_MICRO;
    p->req.output = NULL, p->req.n_outputs = 0;          /* the plan's list has them */
    plan_outputs_list(p, r);
    p->req.recompute = NULL;
    p->req.cost = NULL, p->req.limit = NULL;
    if (r->recompute && r->mode == PLAN_TRAIN) {
        bool *recompute = arena_alloc(mem, (size_t)s->n_groups * sizeof *recompute);
        memcpy(recompute, r->recompute, (size_t)s->n_groups * sizeof *recompute);
        p->req.recompute = recompute;
    }
    batch_take(p, &p->req);
    p->stage = arena_alloc(mem, (size_t)p->n_stages * sizeof *p->stage);
    for (int i = 0; i < p->n_stages; i++) {
        p->stage[i].rank = pl->map.rank_of[i];
        p->stage[i].first_group = pl->first_group[i];
        p->stage[i].n_groups = pl->first_group[i + 1] - pl->first_group[i];
    }
    p->row = arena_alloc(mem, (size_t)p->n_ranks * sizeof *p->row);
    p->row_n = arena_alloc(mem, (size_t)p->n_ranks * sizeof *p->row_n);
    size_t **bytes[] = {&p->slot_bytes, &p->tmp_bytes, &p->work_bytes, &p->load_bytes};
    for (int i = 0; i < 4; i++) *bytes[i] = arena_alloc(mem, (size_t)p->n_ranks * sizeof(size_t));
    return p;
}

/* R4: a batch norm that sees one value a channel has no variance to divide by. A frozen one uses its running
 * statistics. */
const struct node *plan_norm_of_one(const struct graph *g)
{
    for (int i = 0; i < g->n_nodes; i++) {
        const struct shape *s = &g->tensor[g->node[i].out].shape;
        if (g->node[i].op->category == OP_NORM && !g->node[i].fixed && shape_count(s) == s->d[0]) return &g->node[i];
    }
    return NULL;
}

/* A batch of one micro-batch cannot be split differently. */
static int batch_norm_check(const struct plan *p, struct err *e)
{
    const struct node *norm = plan_norm_of_one(p->sel->g);
    int n = (p->req.batch - 1) / p->req.split + 1, least = p->req.batch - (n - 1) * p->req.split;
    if (p->req.mode != PLAN_TRAIN || least > 1 || !norm) return 0;
    return err_set(e, E_CONF, "batch norm \"%s\" would see one value a channel in a micro-batch of 1 sample: choose "
                   "another train.%s", norm->name, n == 1 ? "batch_size" : "split_size");
}

static void *vec_keep(struct arena *a, const void *v, int n, size_t size)
{
    void *p = arena_alloc(a, (size_t)(n + 1) * size);
    if (n) memcpy(p, v, (size_t)n * size);
    return p;
}

static void lower_close(struct lower *w)
{
    struct plan *p = w->p;
    p->cls = vec_keep(p->mem, w->cls.v, p->n_cls = w->cls.n, sizeof *p->cls);
    p->chan = vec_keep(p->mem, w->chan.v, p->n_chan = w->chan.n, sizeof *p->chan);
    p->opnd = vec_keep(p->mem, w->opnd.v, p->n_opnd = w->opnd.n, sizeof *p->opnd);
    for (int r = 0; r < p->n_ranks; r++) {
        p->row[r] = vec_keep(p->mem, w->row[r].v, p->row_n[r] = w->row[r].n, sizeof **p->row);
        vec_free(&w->row[r]);
    }
    vec_free(&w->cls); vec_free(&w->chan); vec_free(&w->opnd);
    free(w->row);
    free(w->recompute);
    free(w->recomputed);
    free(w->stage_of_group);
    free(w->home[HOME_ACT]); free(w->home[HOME_GRAD]); free(w->users);
    free(w->cls_at); free(w->chan_at); free(w->temp_at[0]); free(w->temp_at[1]);
}

static int lower(struct plan *p, const struct sched *s, bool sure, struct err *e)
{
    struct lower w = {.p = p, .g = p->sel->g, .max_n = p->max_n, .sure = sure};
    reduction_tree_make(p->mem, &p->part[p->req.dp], &w.sums);
    p->n_levels = w.sums.n_levels;
    bool comes = p->pl->mesh.size[AXIS_DP] > 1 && !p->pl->sharing.by_transport;   /* others' shares, at level 1 */
    if ((p->n_levels > p->pl->n_levels || (comes && p->pl->n_levels < 2)) && p->req.mode == PLAN_TRAIN)
        return err_set(e, E_INTERNAL, "%d levels of accumulators have no place", p->n_levels);
    w.stage_of_group = mem_alloc((size_t)p->sel->n_groups * sizeof(int));
    w.row = mem_alloc((size_t)p->n_ranks * sizeof *w.row);
    w.recompute = mem_alloc((size_t)p->sel->n_groups * sizeof *w.recompute);
    w.recomputed = mem_alloc((size_t)p->sel->n_groups * sizeof *w.recomputed);
    w.cls_at = mem_alloc((size_t)(p->n_stages + 1) * sizeof *w.cls_at);
    w.chan_at = mem_alloc((size_t)(w.g->n_tensors + 1) * sizeof *w.chan_at);
    w.users = mem_alloc((size_t)p->n_stages * sizeof *w.users);
    for (int i = 0; i < 2; i++) {
        size_t bytes = (size_t)w.g->n_tensors * (size_t)p->n_stages * sizeof(int);
        w.home[i] = memset(mem_alloc(bytes), 0xff, bytes);
    }
    for (int i = 0; i < 2; i++)
        w.temp_at[i] = mem_alloc((size_t)(w.g->n_tensors + p->sel->n_groups) * sizeof **w.temp_at);
    for (int i = 0; i < p->n_stages; i++)
        for (int g = 0; g < p->stage[i].n_groups; g++) w.stage_of_group[p->stage[i].first_group + g] = i;
    lower_channels(&w);
    lower_join(&w, s);
    int bad = lower_programs(&w, e);
    if (!bad) lower_dp(&w);
    bad = bad || lower_rows(&w, s, e);
    if (!bad) lower_fetch(&w);
    bad = bad || lower_slots(&w, e);
    lower_close(&w);
    return bad ? -1 : 0;
}

/* If the checker rejects the user's rows, the file is bad; that is no bug of the planner. */
static int rows_blame(const struct plan *p, const struct err *why, struct err *e)
{
    static const char ours[] = "illegal plan: ";
    size_t skip = sizeof ours - 1;
    if (!p->req.rows || strncmp(why->text, ours, skip))
        return err_set(e, why->code, "%s", why->text);
    return err_set(e, E_DATA, "rows: %s", why->text + skip);
}

/* A sent slot is free one micro-batch later, which costs at most one slot more. Ranks would wait for each other with
 * several stages a rank, or if a rank runs further ahead of its neighbour. Then a slot is free when its receive is
 * known to be posted. */
static struct plan *plan_lowered(const struct selection *s, const struct placement *pl, const struct plan_request *r,
                                 const struct sched *rows, struct err *e)
{
    bool several = pl->n_stages > pl->mesh.size[AXIS_PP];
    for (int sure = several; sure <= 1; sure++) {
        struct err why = {0};
        struct plan *p = plan_new(s, pl, r);
        bool bad = lower(p, rows, sure, e);
        if (!bad && !plan_check(p, &why)) return p;
        if (!bad && sure) rows_blame(p, &why, e);
        plan_free(p);
        if (bad) break;
    }
    return NULL;
}

struct plan *plan_make(const struct selection *s, const struct placement *pl, const struct plan_request *r,
                       struct err *e)
{
    return plan_make_from(s, pl, r, NULL, e);
}

struct plan *plan_make_from(const struct selection *s, const struct placement *pl, const struct plan_request *r,
                            const struct sched *rows, struct err *e)
{
    if (r->batch < 1 || r->split < 1) {
        err_set(e, E_CONF, "a batch of %d in micro-batches of %d", r->batch, r->split);
        return NULL;
    }
    if ((r->batch - 1) / r->split >= MAX_MB) {
        err_set(e, E_CONF, "a batch of %d in micro-batches of %d: more than %d micro-batches", r->batch, r->split,
                MAX_MB);
        return NULL;
    }
    if (r->groups < 0 || (r->groups & (r->groups - 1))) {
        err_set(e, E_CONF, "%d blocks of micro-batches are not a power of two", r->groups);
        return NULL;
    }
    int n_dp = pl->mesh.size[AXIS_DP];
    if (n_dp > 1 && (n_dp & (n_dp - 1) || r->groups % n_dp || r->dp >= n_dp)) {
        err_set(e, E_CONF, "%d %ss of %d blocks", n_dp, axis_word[AXIS_DP], r->groups);
        return NULL;
    }
    if (r->in_flight < 0) { err_set(e, E_CONF, "%d micro-batches in flight", r->in_flight); return NULL; }
    if (plan_outputs_check(s, r, e)) return NULL;
    struct plan *asked = plan_new(s, pl, r), *p = NULL;   /* what a schedule must know about the plan */
    struct sched built = {0};
    bool bad = asked->max_n > s->max_samples
                   ? err_set(e, E_INTERNAL, "kernels were selected for %d samples", s->max_samples)
                   : 0;
    bad = bad || batch_norm_check(asked, e) || (!rows && schedule_build(asked, r, &built, e));
    if (!bad) p = plan_lowered(s, pl, r, rows ? rows : &built, e);
    sched_free(&built);
    plan_free(asked);
    return p;
}

int act_samples(const struct plan *p, const struct act *a)
{
    int n = 0;
    for (int i = 0; i < a->n_mb; i++) n += p->mb_n[a->mb + i];
    return n;
}

const struct prog *act_prog(const struct plan *p, const struct act *a)
{
    const struct act_info *i = &act_info[a->op];
    return i->kind == KIND_PROGRAM ? &p->stage[a->stage].prog[i->prog] : NULL;
}

int act_calls(const struct plan *p, const struct act *a)
{
    const struct prog *g = act_prog(p, a);
    int n = 0, first, end;
    act_groups(p, a, &first, &end);
    for (int i = 0; g && i < g->n; i++) n += g->k[i].group >= first && g->k[i].group < end;
    return n * a->n_mb;
}

void act_groups(const struct plan *p, const struct act *a, int *first, int *end)
{
    const struct stage_plan *st = &p->stage[a->stage];
    *first = a->piece ? st->piece[a->piece - 1] : st->first_group;
    *end = a->piece > 1 ? st->piece[a->piece - 2] : st->first_group + st->n_groups;
}

int plan_micro_batches(const struct plan *p) { return (p->req.batch - 1) / p->req.split + 1; }

size_t act_bytes(const struct plan *p, const struct act *a)
{
    return p->chan[a->chan].bytes_per_sample * (act_info[a->op].has_mb ? (size_t)act_samples(p, a) : 1);
}

size_t plan_rank_bytes(const struct plan *p, int rank)
{
    const struct placement *pl = p->pl;
    return pl->param_bytes[rank] + pl->grad_bytes[rank] + pl->state_bytes[rank] + pl->packed_bytes[rank] +
           p->slot_bytes[rank] + p->tmp_bytes[rank] + p->work_bytes[rank] + p->load_bytes[rank];
}

bool plan_rank_loads(const struct plan *p, int rank, int tensor)
{
    for (int s = 0; s < p->n_stages; s++)
        for (int i = 0; i < p->stage[s].n_load && p->stage[s].rank == rank; i++)
            if (p->stage[s].load[i] == tensor) return true;
    return false;
}

void plan_free(struct plan *p) { if (p) arena_free(p->mem); }
