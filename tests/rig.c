#include "plan/cost.h"
#include "optim/optim.h"
#include "rig.h"
#include "devices.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct world {
    const struct rig *q;
    struct rig_result *r;
    struct conf *c;
    struct graph *g;
    struct selection *sel;
    struct placement *pl;
    struct plan *plan[3], *more[8][3];   /* more: of each replica after the first */
    int n_plans, eval;         /* eval: index of that plan */
    int asked[3], n_asked;     /* tensors */
    struct tp *tp[16];
    atomic_int abort;
    void **plain;              /* of each copy and parameter, filled by its owner */
    int n_ranks, copies, n_tp, seat[16];
    pthread_mutex_t lock;
    pthread_barrier_t opened;
    char file[64];
    double *term[16];          /* of each rank of each copy, in a sum */
    pthread_barrier_t sum[8];  /* of each copy */
};
struct rank_arg { struct world *w; int rank, copy; struct tp *tp; const int *seat; };

void rig_rows_of(const struct rig *q, int n_mb, int n, struct sched *out)
{
    rig_rows(q->schedule, q->n_stages, q->n_ranks ? q->n_ranks : q->n_stages, q->rank_of, n_mb, n, out);
}

static int replicas_check(const struct world *w, int k, struct err *e)
{
    struct plan *all[8];
    for (int i = 0; i < w->q->replicas; i++) all[i] = w->more[i][k];
    return plan_check_dp(all, e);
}

static int plans_make(struct world *w, struct err *e)
{
    const struct rig *q = w->q;
    struct plan_request p = {.mode = PLAN_TRAIN, .schedule = q->schedule, .batch = (int)w->c->train.batch_size,
                             .split = (int)w->c->train.split_size, .groups = q->groups,
                             .backward = q->backward, .batch_norm = w->c->train.batch_norm,
                             .output = w->asked, .n_outputs = w->n_asked};
    bool *recompute = mem_alloc((size_t)w->sel->n_groups * sizeof *recompute);
    for (int i = 0; i < w->sel->n_groups; i++) recompute[i] = q->recompute >> i % 8 & 1;
    p.recompute = q->recompute ? recompute : NULL;
    int n_dp = w->pl->mesh.size[AXIS_DP];
    for (; !q->no_loss && p.dp < n_dp; p.dp++)
        w->more[p.dp][0] = plan_make_from(w->sel, w->pl, &p, q->rows, e);
    p.dp = 0;
    if (!q->no_loss) w->plan[w->n_plans++] = w->more[0][0];
    free(recompute);
    p.recompute = NULL;
    if (!q->no_loss && !w->plan[0]) return -1;
    if (n_dp > 1 && (!w->more[n_dp - 1][0] || replicas_check(w, 0, e))) return -1;
    for (int i = 0; !q->no_loss && i < w->plan[0]->n_stages; i++)
        w->r->recomputed += w->plan[0]->stage[i].prog[PROG_R].n;
    if (!q->evaluate) return 0;
    p.mode = PLAN_EVAL;
    p.schedule = "forward";
    p.batch = (int)w->c->data.test_samples;
    w->eval = w->n_plans++;
    for (; p.dp < n_dp; p.dp++)
        if (!(w->more[p.dp][w->eval] = plan_make(w->sel, w->pl, &p, e))) return -1;
    w->plan[w->eval] = w->more[0][w->eval];
    return n_dp > 1 ? replicas_check(w, w->eval, e) : 0;
}

/* The text as a file, so that the configured loss is appended as in a real run. assignment: "model.graph=FILE". */
static int graph_file(const char *graph, struct err *e, char assignment[64])
{
    char path[] = "/tmp/rig-XXXXXX";
    int fd = mkstemp(path);
    if (fd < 0 || write(fd, graph, strlen(graph)) != (ssize_t)strlen(graph))
        return err_set(e, E_IO, "cannot write %s", path);
    close(fd);
    snprintf(assignment, 64, "model.graph=%s", path);
    return 0;
}

static int world_make(struct world *w, struct err *e)
{
    const struct rig *q = w->q;
    if (!(w->c = conf_parse("rig", q->conf, strlen(q->conf), e))) return -1;
    if (q->graph && graph_file(q->graph, e, w->file)) return -1;
    if (q->graph && conf_set(w->c, "rig", w->file, e)) return -1;
    if (conf_finish(w->c, e)) return -1;
    w->g = q->no_loss ? graph_parse("rig", q->graph, strlen(q->graph), e) : model_build(w->c, e);
    if (q->graph) unlink(strchr(w->file, '=') + 1);
    if (!w->g) return -1;
    if (q->change) q->change(w->g);
    for (; w->n_asked < 3 && q->output[w->n_asked]; w->n_asked++)
        w->asked[w->n_asked] = w->g->node[graph_node_find(w->g, q->output[w->n_asked])].out;
    const struct be_ops *be = be_find(q->backend);
    struct device d = {0};
    if (be->describe(0, &d, e)) return -1;
    d.threads = 1;
    d.precision = q->precision;
    d.frozen = q->frozen;
    if (!(w->sel = select_make(w->g, &d, (int)w->c->train.split_size, e))) return -1;
    w->r->n_groups = w->sel->n_groups;
    int cut[17];
    for (int i = 0; i <= q->n_stages; i++)
        cut[i] = q->first_group ? q->first_group[i] : i * w->sel->n_groups / q->n_stages;
    struct placement_request place = {.sel = w->sel, .n_stages = q->n_stages, .mesh = {{w->n_ranks, q->replicas}},
                                      .first_group = cut, .rank_of = q->rank_of, .buffers = optim_buffers(w->c),
                                      .groups = q->groups, .sharing = {q->bucket, q->shard}};
    if (!(w->pl = placement_make(&place, e))) return -1;
    if (plans_make(w, e) || tp_local_open(w->n_tp, w->tp, e)) return -1;
    w->plain = mem_alloc((size_t)(w->copies * w->g->n_params + 1) * sizeof *w->plain);
    return 0;
}

/* What this rank has of what was asked for. */
static int outputs_get(struct world *w, struct exec *s, int rank, int plan, int which, struct err *e)
{
    const struct plan *p = w->plan[plan];
    for (int i = 0; i < p->n_outputs; i++)
        for (int k = 0; k < w->n_asked; k++) {
            size_t n = (size_t)p->req.batch * (size_t)shape_count(&w->g->tensor[w->asked[k]].shape);
            if (p->output[i].tensor != w->asked[k] || p->output[i].rank != rank) continue;
            w->r->value[which][k].n = n;
            w->r->value[which][k].x = mem_alloc(n * sizeof(float));
            if (exec_output_get(s, plan, i, w->r->value[which][k].x, e)) return -1;
        }
    return 0;
}

static void scores_add(struct score_sum *sum, const struct report *r)
{
    for (int i = 0; i < MAX_SCORES; i++) {
        sum[i].numerator += r->score[i].numerator;
        sum[i].denominator += r->score[i].denominator;
    }
}

/* The k-th step's order and, in id, its samples. */
static struct order order_make(const struct world *w, const struct ds *data, int k, int64_t *id)
{
    struct feed_order o = {.seed = (uint64_t)w->c->run.seed, .count = (uint64_t)w->c->data.samples, .end = FEED_FILL};
    int batch = (int)w->c->train.batch_size;
    struct order ord = {.kind = STEP_TRAIN, .plan = 0, .step = (uint64_t)k,
                        .position = (uint64_t)(k - 1) * (uint64_t)batch, .learning_rate = w->c->train.learning_rate,
                        .n = batch};
    uint64_t epoch;
    feed_batch(&o, ord.position, batch, id, &epoch);
    ord.weight = ds_weight(data, NULL, 0, id, batch);
    return ord;
}

static int step_after(const struct rig *q, int k) { return k + 1 == q->omit ? k + 2 : k + 1; }

static int train(struct world *w, struct exec *s, const struct ds *data, int rank, struct err *e)
{
    int64_t *id = mem_alloc((size_t)w->c->train.batch_size * sizeof *id);
    int bad = 0, known = 0;
    for (int k = step_after(w->q, 0), next; k <= w->q->steps && !bad; k = next) {
        struct report rep;
        next = step_after(w->q, k);
        for (int i = k; w->q->ahead && i <= next && i <= w->q->steps && !bad; i++) {
            if (i <= known || i == w->q->omit) continue;
            struct order coming = order_make(w, data, known = i, id);
            bad = exec_prefetch(s, &coming, id, e);
        }
        struct order ord = order_make(w, data, k, id);
        if (w->q->omit && k > w->q->omit) exec_past_set(s, &(struct exec_past){.n_skipped = 1});
        ord.n_skipped = exec_past(s).n_skipped;
        bad = bad || exec_step(s, &ord, id, &rep, e);
        if (bad) break;
        pthread_mutex_lock(&w->lock);
        if (rep.samples) w->r->loss[(k - 1) % 64] = rep.score[0].numerator / rep.score[0].denominator;
        if (rep.grad_norm >= 0) w->r->grad_norm = rep.grad_norm;
        if (rank >= 0) w->r->last[rank] = rep;
        if (rank >= 0 && k <= 8) w->r->nonfinite[rank][k - 1] = rep.nonfinite;
        if (k == w->q->steps) scores_add(w->r->score, &rep);
        if (w->q->profile) spent_add(&w->r->spent[rank], s, 0, &rep);
        pthread_mutex_unlock(&w->lock);
    }
    free(id);
    if (!bad && w->q->steps) bad = outputs_get(w, s, rank, 0, 0, e);
    return bad ? -1 : 0;
}

static int costs(struct world *w, struct exec *s, int rank, struct err *e)
{
    struct cost *k = w->r->cost[rank] = cost_new("measured", w->sel->n_groups, 1);
    k->size[0] = (int)w->c->train.split_size;
    w->r->kernels_ns[rank] = exec_profile_sums(s, 0).all;
    return costs_links_measure(s, k, e) || costs_gather(s, 0, &w->r->spent[rank], k, e) ? -1 : 0;
}

static int evaluate(struct world *w, struct exec *s, const struct ds *data, int rank, struct err *e)
{
    int n = (int)w->c->data.test_samples;
    int64_t *id = mem_alloc((size_t)n * sizeof *id);
    for (int i = 0; i < n; i++) id[i] = i;
    struct order ord = {.kind = STEP_EVAL, .plan = (uint32_t)w->eval, .step = (uint64_t)w->q->steps + 1, .n = n};
    ord.weight = ds_weight(data, NULL, 0, id, n);
    struct report rep;
    int bad = exec_step(s, &ord, id, &rep, e);
    if (!bad && rep.samples) {
        w->r->eval_loss = rep.score[0].numerator / rep.score[0].denominator;
        w->r->eval_top1 = (int64_t)rep.score[1].numerator;
        w->r->eval_samples = rep.samples;
    }
    pthread_mutex_lock(&w->lock);
    scores_add(w->r->eval_score, &rep);
    pthread_mutex_unlock(&w->lock);
    if (!bad) bad = outputs_get(w, s, rank, w->eval, 1, e);
    free(id);
    return bad;
}

/* Of a copy: all that its ranks have, whoever speaks for it. */
static int params_export(struct world *w, struct exec *s, int rank, void **plain, struct err *e)
{
    if (exec_averages_use(s, false, e)) return -1;
    for (int i = 0; i < w->g->n_params; i++) {
        const struct param *p = &w->g->param[i];
        if (w->pl->state[i].owner != rank) continue;
        plain[i] = mem_alloc((size_t)shape_count(&p->shape) * dtype_bytes(p->type));
        if (exec_state_get(s, i, plain[i], e)) return -1;
    }
    return 0;
}

static int data_open(const struct world *w, enum ds_part part, struct ds **out, struct err *e)
{
    if (!w->q->data) return ds_open(w->c, part, w->g, out, e);
    *out = w->q->data(part);
    return ds_match(*out, w->g, e);
}

/* A data set that is like another, but its samples weigh something, or are changed when they have been read. */
struct like { struct ds_kind kind; const struct ds_kind *other; const struct rig *q; };

static int like_read(struct ds *d, uint64_t sample, uint64_t visit, int field, void *out, struct err *e)
{
    const struct like *own = (const struct like *)d->kind;
    if (own->other->read(d, sample, visit, field, out, e)) return -1;
    own->q->spoil(sample, field, out);
    return 0;
}

static void like_make(const struct world *w, struct ds *d, bool spoils, struct like *own)
{
    if (!d) return;
    *own = (struct like){.kind = *d->kind, .other = d->kind, .q = w->q};
    if (w->q->weight) own->kind.weight = w->q->weight;
    if (w->q->spoil && spoils) own->kind.read = like_read;
    d->kind = &own->kind;
}

static void *rank_main(void *p)
{
    struct rank_arg *a = p;
    struct world *w = a->w;
    struct err e = {0};
    struct ds *train_set = NULL, *test_set = NULL;
    struct exec *s = NULL;
    struct like own[2];
    int at = w->q->replicas > 1 && a->copy ? -1 : a->rank;   /* -1: none that tells anything */
    bool bad = data_open(w, DS_TRAIN, &train_set, &e) || (w->q->evaluate && data_open(w, DS_TEST, &test_set, &e));
    like_make(w, train_set, true, &own[0]);
    like_make(w, test_set, false, &own[1]);
    struct exec_request q = {.conf = w->c,
                              .sel = w->sel,
                              .pl = w->pl,
                              .plan = w->q->replicas > 1 ? w->more[a->copy] : w->plan,
                              .n_plans = w->n_plans,
                              .be = be_find(w->q->backend),
                              .tp = a->tp,
                              .rank = a->rank,
                              .tp_rank = w->q->replicas > 1 ? w->seat : a->seat,
                              .train = train_set,
                              .test = test_set,
                              .abort = &w->abort,
                              .unit = a->rank,
                              .graphs = w->q->graphs,
                              .links = w->q->profile,
                              .hold = w->q->hold,
                              .hold_ns = w->q->hold_ns};
    bad = bad || exec_open(&q, &s, &e) || exec_bind(s, &e);
    if (w->q->over) pthread_barrier_wait(&w->opened);     /* exec_connect wants all of them */
    bad = bad || exec_connect(s, &e);
    if (!bad && !a->copy) {
        w->r->bytes[a->rank] = exec_bytes(s);
        w->r->planned[a->rank] = plan_rank_bytes(w->plan[0], a->rank);
    }
    if (!bad && w->q->profile) exec_profile(s, 1000);
    bad = bad || train(w, s, train_set, at, &e) || (w->q->profile && costs(w, s, a->rank, &e)) ||
          (w->q->evaluate && evaluate(w, s, test_set, at, &e)) ||
          params_export(w, s, a->rank, w->plain + a->copy * w->g->n_params, &e);
    if (!bad && !a->copy && w->q->taken) w->r->taken[a->rank] = w->q->taken(a->rank);
    if (bad) {
        pthread_mutex_lock(&w->lock);
        err_set(&w->r->e, e.code, "%s", e.text);
        pthread_mutex_unlock(&w->lock);
        a->tp->ops->abort(a->tp, e.code);
    }
    exec_close(s);
    if (train_set) ds_close(train_set);
    if (test_set) ds_close(test_set);
    return NULL;
}

/* ---- sums over the ranks of one copy, where the transport has others -------------------------------------------- */

static struct world *grouped;
static struct tp_ops group_ops;

static int group_reduce(struct tp *t, double *x, int n, struct err *e)
{
    struct world *w = grouped;
    int me = 0;
    while (w->tp[w->seat[me]] != t) me++;
    int copy = me / w->n_ranks;
    double *sum = mem_alloc((size_t)n * sizeof *sum);
    w->term[me] = x;
    pthread_barrier_wait(&w->sum[copy]);
    for (int r = 0; r < w->n_ranks; r++) for (int i = 0; i < n; i++) sum[i] += w->term[copy * w->n_ranks + r][i];
    pthread_barrier_wait(&w->sum[copy]);
    memcpy(x, sum, (size_t)n * sizeof *x);
    free(sum);
    return 0;
}

static void groups_make(struct world *w)
{
    if (w->n_tp == w->n_ranks || w->q->replicas > 1) return;
    grouped = w;
    group_ops = *w->tp[0]->ops;
    group_ops.reduce = group_reduce;
    for (int i = 0; i < w->copies; i++) pthread_barrier_init(&w->sum[i], NULL, (unsigned)w->n_ranks);
    for (int i = 0; i < w->n_tp; i++) w->tp[i]->ops = &group_ops;
}

static void groups_free(struct world *w)
{
    bool made = w->n_tp != w->n_ranks && w->q->replicas < 2;
    for (int i = 0; i < w->copies && made; i++) pthread_barrier_destroy(&w->sum[i]);
}

static void params_hash(struct world *w, int copy, char hash[33])
{
    void **plain = w->plain + copy * w->g->n_params;
    struct text t = {0};
    for (int i = 0; i < w->g->n_params; i++) {
        const struct param *p = &w->g->param[i];
        if (!plain[i]) { err_set(&w->r->e, E_INTERNAL, "nobody owns %s", p->name); break; }
        text_add_bytes(&t, plain[i], (size_t)shape_count(&p->shape) * dtype_bytes(p->type));
    }
    text_hash(t.s, t.n, hash);
    text_free(&t);
}

void rig_free(struct rig_result *r)
{
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 3; k++) free(r->value[i][k].x);
}

int rig_run(const struct rig *q, struct rig_result *r)
{
    struct world w = {.q = q, .r = r, .lock = PTHREAD_MUTEX_INITIALIZER, 
                      .copies = q->replicas > 1 ? q->replicas : q->copies ? q->copies : 1,
                      .n_ranks = q->n_ranks ? q->n_ranks : q->n_stages};
    int n = w.copies * w.n_ranks;
    w.n_tp = q->n_tp ? q->n_tp : n;
    for (int i = 0; i < n; i++) w.seat[i] = q->seat ? q->seat[i] : i;
    memset(r, 0, sizeof *r);
    r->grad_norm = -1;
    int bad = world_make(&w, &r->e);
    for (int i = 0; !bad && q->over && i < w.n_tp; i++) bad = q->over->over(w.tp[i], NULL, &w.tp[i], &r->e);
    if (!bad) {
        pthread_t t[16];
        struct rank_arg a[16];
        pthread_barrier_init(&w.opened, NULL, (unsigned)n);
        groups_make(&w);
        for (int i = 0; i < n; i++) {
            if (q->delay_us) tp_local_delay(w.tp[i], 7, 0, q->delay_us);
            if (q->late_us && q->late == i) tp_local_delay(w.tp[i], 7, q->late_us, q->late_us);
            a[i] = (struct rank_arg){.w = &w, .rank = i % w.n_ranks, .copy = i / w.n_ranks, .tp = w.tp[w.seat[i]],
                                     .seat = w.seat + i / w.n_ranks * w.n_ranks};
            pthread_create(&t[i], NULL, rank_main, &a[i]);
        }
        for (int i = 0; i < n; i++) pthread_join(t[i], NULL);
        pthread_barrier_destroy(&w.opened);
        groups_free(&w);
        for (int i = 0; i < w.copies && !r->e.code; i++) params_hash(&w, i, r->copy_hash[i]);
        memcpy(r->hash, r->copy_hash[0], sizeof r->hash);
        for (int i = 0; i < w.n_tp; i++) w.tp[i]->ops->close(w.tp[i]);
        for (int i = 0; i < w.copies * w.g->n_params; i++) free(w.plain[i]);
        free(w.plain);
    }
    for (int i = 0; i < w.n_plans && q->replicas < 2; i++) plan_free(w.plan[i]);
    for (int i = 0; i < 8 && q->replicas > 1; i++) for (int k = 0; k < 3; k++) plan_free(w.more[i][k]);
    placement_free(w.pl);
    select_free(w.sel);
    graph_free(w.g);
    conf_free(w.c);
    return r->e.code ? -1 : 0;
}
