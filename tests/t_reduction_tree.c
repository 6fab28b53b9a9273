/* Gradients that are added block by block (train.gradient_groups): the tree in the plan, and the resulting bits, which
 * depend on the number of blocks and on nothing else. */
#include <stdlib.h>
#include <string.h>
#include "base/rng.h"
#include "plan/cost.h"
#include "plan/sched.h"
#include "plan/sim.h"
#include "exec_rig.h"
#include "plan_rig.h"

/* ---- ways to run a plan: with W put off, with several stages a rank ---- */

static const struct way { const char *schedule; int stages, ranks; } ways[] = {
    {"naive", 3, 3}, {"gpipe", 3, 3}, {"1f1b", 3, 3}, {"zb-h1", 3, 3}, {"auto", 3, 3},
    {"interleaved", 4, 2}, {"zb-v", 4, 2}, {"auto", 4, 2},
};
enum { N_WAYS = sizeof ways / sizeof *ways };

static void way_map(const struct way *w, int rank_of[4])
{
    for (int i = 0; i < w->stages; i++) rank_of[i] = sched_rank_of(sched_find(w->schedule), i, w->ranks);
}

/* How replicas share the work out: a bucket for each weight, or one. */
static const struct sharing apart = {.bucket = 1}, at_once = {.bucket = 0},
                            shared_apart = {.bucket = 1, .weights = true}, shared_at_once = {.weights = true};

static struct placement_request way_place(const struct way *w, struct sharing x)
{
    static int rank_of[4];
    way_map(w, rank_of);
    return (struct placement_request){.n_stages = w->stages, .mesh = {{w->ranks}}, .rank_of = rank_of, .sharing = x};
}

static struct made way_make(const struct way *w, struct plan_request q)
{
    return made_cut(way_place(w, at_once), rig_graph(rig_skip), &rig_plain, q);
}

/* ---- the plan: played with numbers, against folds and a tree of the test's own ---- */

enum { MAX_MICRO = 24 };
static float fold(const float *x, int first, int end)
{
    float sum = x[first];
    for (int i = first + 1; i < end; i++) sum += x[i];
    return sum;
}

/* The first micro-batch whose place in the batch is not below block b of g. */
static int begins(int n, int g, int b)
{
    int i = 0;
    while (i * g < b * n) i++;
    return i;
}

/* Blocks [first, end); *any: has one of them a micro-batch? */
static float tree(const float *x, int n, int g, int first, int end, bool *any)
{
    int from = begins(n, g, first), to = begins(n, g, end);
    *any = to > from;
    if (!*any) return 0;
    if (end - first == 1) return fold(x, from, to);
    bool left, right;
    float l = tree(x, n, g, first, (first + end) / 2, &left), r = tree(x, n, g, (first + end) / 2, end, &right);
    return left && right ? l + r : left ? l : r;
}

/* What the accumulators of a stage hold in the end, of the gradients that B makes (op B) or W. */
static float played(const struct plan *p, int stage, enum act_op op, const float *x)
{
    float at[16];
    int r = p->stage[stage].rank, flag = op == ACT_B ? ACT_OF_B : ACT_OF_W;
    for (int i = 0; i < 16; i++) at[i] = -1e30f;
    for (int i = 0; i < p->row_n[r]; i++) {
        const struct act *a = &p->row[r][i];
        if (a->stage != stage) continue;
        if (a->op == op || a->op == ACT_D)
            for (int m = a->mb; m < a->mb + a->n_mb; m++)
                at[a->level] = (a->flags & ACT_FIRST) && m == a->mb ? x[m] : at[a->level] + x[m];
        if (a->op == ACT_A && (a->flags & flag)) at[a->level] += at[a->level + 1];
    }
    return at[0];
}

START_TEST(blocks_are_added_as_a_tree)
{
    float x[MAX_MICRO];
    const struct way *way = &ways[_i];
    rng_fill_normal((struct rng_at){7, RNG_TEST, 1}, x, MAX_MICRO);
    int step = strcmp(way->schedule, "auto") ? 1 : 5;    /* which weighs many plans for each */
    for (int n = 1; n <= MAX_MICRO; n += step)
        for (int g = 1; g <= 16; g *= 2) {
            struct plan_request q = rig_request(way->schedule, 2 * n - 1, 2, n % 2 ? BACKWARD_SPLIT : BACKWARD_AUTO);
            q.groups = g;
            struct made m = way_make(way, q);
            bool any;
            sure(m.p != NULL, "%d micro-batches, %d blocks: %s", n, g, m.e.text);
            float want = tree(x, n, g, 0, g, &any);
            for (int s = 0; s < way->stages; s++)
                sure(played(m.p, s, ACT_B, x) == want && played(m.p, s, ACT_W, x) == want,
                     "%d micro-batches, %d blocks: another sum", n, g);
            int levels = plan_levels(g, &(struct mesh){{1, 1}}, (struct sharing){0});
            sure(m.p->n_levels <= levels, "%d levels", m.p->n_levels);
            sure(m.pl->grad_bytes[0] == (size_t)levels * m.pl->level_bytes[0], "bytes");
            made_free(&m);
        }
}
END_TEST

/* One thing wrong with what adds blocks: found. */
START_TEST(wrong_sums_are_found)
{
    struct plan_request q = rig_request(ways[_i].schedule, 13, 2, BACKWARD_SPLIT);
    q.groups = 4;
    struct made m = way_make(&ways[_i], q);
    int adds = 0;
    ck_assert_msg(m.p != NULL, "%s", m.e.text);
    for (int r = 0; r < ways[_i].ranks; r++)
        for (int i = 0; i < m.p->row_n[r]; i++) {
            struct act *row = m.p->row[r], *a = &row[i], was = *a;
            if (a->op != ACT_A && a->op != ACT_B && a->op != ACT_W) continue;
            a->level++;
            ck_assert(plan_check(m.p, NULL));
            *a = was;
            a->flags ^= a->op == ACT_A ? (ACT_OF_B | ACT_OF_W) : ACT_FIRST;
            ck_assert(plan_check(m.p, NULL));
            *a = was;
            if (a->op != ACT_A) continue;
            adds++;
            memmove(a, a + 1, (size_t)(m.p->row_n[r] - i - 1) * sizeof *a);
            m.p->row_n[r]--;
            ck_assert(plan_check(m.p, NULL));
            m.p->row_n[r]++;
            memmove(a + 1, a, (size_t)(m.p->row_n[r] - i - 1) * sizeof *a);
            *a = was;
        }
    ck_assert_int_eq(adds, ways[_i].stages * 2 * 3);     /* B and W, blocks but one */
    ck_assert(!plan_check(m.p, NULL));
    made_free(&m);
}
END_TEST

/* ---- replicas ---- */

/* Actions of the row that come before its last pass. */
static int before_last_pass(const struct plan *p, int rank, enum act_op op)
{
    int n = 0, found = 0;
    for (int i = 0; i < p->row_n[rank]; i++)
        if (act_info[p->row[rank][i].op].kind == KIND_PROGRAM) n = i;
    for (int i = 0; i < n; i++) found += p->row[rank][i].op == op;
    return found;
}

/* With a bucket for each weight all of them but the first layer's are under way before the last pass ends, on the rank
 * that ends last; with one bucket none is. */
START_TEST(gradients_go_when_they_are_final)
{
    struct plan_request q = rig_request(ways[_i].schedule, 13, 2, BACKWARD_AUTO);
    struct err e = {0};
    q.groups = 8;
    for (int n = 2; n <= 4; n *= 2)
        for (int how = 0; how < 4; how++) {
            const struct sharing *all[] = {&at_once, &apart, &shared_at_once, &shared_apart};
            struct control x;
            side_make(&x, way_place(&ways[_i], *all[how]), rig_skip, n, q);
            ck_assert_msg(!plan_check_dp(x.p, &e), "%s", e.text);
            for (int r = 0; r < n && ways[_i].stages == ways[_i].ranks; r++) {
                int pieces = x.p[r]->stage[0].n_pieces;
                ck_assert_int_eq(pieces > 1, all[how]->bucket > 0);
                int early = before_last_pass(x.p[r], 0, ACT_SG);
                if (how == 3) ck_assert_int_gt(early, 0);
                else if (all[how]->bucket) ck_assert_int_ge(early, pieces - 1);
                else ck_assert_int_eq(early, 0);
            }
            control_free(&x);
        }
}
END_TEST

static void rows_swap(struct act *a, struct act *b)
{
    struct act x = *a;
    *a = *b;
    *b = x;
}

/* What goes to other replicas moved before the pass that makes it final, pieces in another order, a bucket that is
 * another's: found. With several stages a rank what follows a piece may have been final before. */
START_TEST(wrong_exchanges_are_found)
{
    struct plan_request q = rig_request(ways[_i].schedule, 13, 2, BACKWARD_AUTO);
    struct control x;
    int early = 0, pieces = 0;
    q.groups = 4;
    side_make(&x, way_place(&ways[_i], apart), rig_skip, 2, q);
    ck_assert(!plan_check_dp(x.p, NULL));
    for (int r = 0; r < ways[_i].ranks; r++)
        for (int i = 1; i < x.p[0]->row_n[r]; i++) {
            struct act *a = &x.p[0]->row[r][i];
            bool goes = a->op == ACT_SG || a->op == ACT_RG;
            if (goes && a[-1].piece && ways[_i].stages == ways[_i].ranks) {
                rows_swap(a - 1, a);
                sure(plan_check_dp(x.p, NULL), "rank %d, action %d of kind %d", r, i - 1, a[-1].op);
                rows_swap(a - 1, a);
                early++;
            }
            if (a->piece < 2 || act_info[a->op].kind != KIND_PROGRAM) continue;
            a->piece--;
            ck_assert(plan_check(x.p[0], NULL));
            a->piece++;
            pieces++;
        }
    if (ways[_i].stages == ways[_i].ranks) {
        ck_assert_int_gt(early, 0);
        ck_assert_int_gt(pieces, 0);
    }
    for (int c = 0; c < x.p[0]->n_chan; c++) {
        if (!x.p[0]->chan[c].bucket) continue;
        for (int r = 0; r < 2; r++) x.p[r]->chan[c].bucket += 1;
        sure(plan_check_dp(x.p, NULL), "channel %d", c);
        for (int r = 0; r < 2; r++) x.p[r]->chan[c].bucket -= 1;
    }
    ck_assert(!plan_check_dp(x.p, NULL));
    control_free(&x);
}
END_TEST

/* Of tied weights whose uses lie on several ranks, what goes to other replicas waits for what comes from these ranks,
 * and nothing else does. */
START_TEST(exchanges_wait_for_tied_gradients)
{
    struct plan_request q = rig_request("1f1b", 13, 2, BACKWARD_AUTO);
    struct control x;
    int late = 0, others = 0;
    q.groups = 2;
    side_make(&x, (struct placement_request){.n_stages = 3, .mesh = {{3}}, .sharing = apart}, rig_tied, 2, q);
    struct plan **p = x.p;
    ck_assert(!plan_check_dp(p, NULL));
    for (int c = 0; c < p[0]->n_chan; c++) {
        if (!p[0]->chan[c].bucket) continue;
        if (!p[0]->chan[c].late) { others++; continue; }
        for (int r = 0; r < 2; r++) p[r]->chan[c].late = false;
        sure(plan_check_dp(p, NULL), "channel %d", c);
        for (int r = 0; r < 2; r++) p[r]->chan[c].late = true;
        late++;
    }
    ck_assert_int_gt(late, 0);
    ck_assert_int_gt(others, 0);
    control_free(&x);
}
END_TEST

/* More buckets than an action can name pieces, because tied weights lie between others: the last piece is larger. */
START_TEST(pieces_have_an_end)
{
    enum { LAYERS = 260 };
    struct text t = {0};
    text_add(&t, "graph many\ninput input 2\nlabels labels class\na0 = linear(input) features=2 bias=no\n");
    for (int i = 1; i < 2 * LAYERS; i++) text_add(&t, "a%d = linear(a%d) features=2 bias=no\n", i, i - 1);
    for (int i = 0; i < LAYERS; i++) text_add(&t, "tie a%d.weight a%d.weight\n", LAYERS + i, i);
    text_add(&t, "loss = softmax_cross_entropy(a%d, labels)\noutput a%d\nloss loss\n", 2 * LAYERS - 1, 2 * LAYERS - 1);
    struct plan_request q = rig_request("1f1b", 4, 2, BACKWARD_AUTO);
    struct err e = {0};
    struct control x;
    q.groups = 2;
    side_make(&x, (struct placement_request){.n_stages = 2, .mesh = {{2}}, .sharing = apart}, t.s, 2, q);
    ck_assert_msg(!plan_check_dp(x.p, &e), "%s", e.text);
    ck_assert_int_eq(x.p[0]->stage[0].n_pieces, UINT8_MAX);
    control_free(&x);
    text_free(&t);
}
END_TEST

/* Both ways between two replicas at once: a message of the first exchange begins before the other one has ended. */
START_TEST(ways_share_no_link)
{
    struct plan_request q = rig_request("1f1b", 8, 2, BACKWARD_AUTO);
    q.groups = 2;
    struct placement_request where = {.n_stages = 2, .mesh = {{2, 2}}};
    struct made m = made_cut(where, rig_graph(rig_skip), &rig_plain, q);
    ck_assert_msg(m.p != NULL, "%s", m.e.text);
    struct cost *k = cost_estimate(m.s);
    k->bytes_per_ns = 0.001;
    struct sim *s = plan_simulate(m.p, k, &m.e);
    struct sim_wire way[2][2] = {0};                     /* of each rank, from each replica */
    for (int i = 0; i < s->n_wires; i++) {
        const struct channel *c = &m.p->chan[s->wire[i].chan];
        if (c->kind == CHAN_SUM) way[c->from.at[AXIS_PP]][c->from.at[AXIS_DP]] = s->wire[i];
    }
    for (int r = 0; r < 2; r++)
        for (int i = 0; i < 2; i++)
            ck_assert(way[r][i].end > 0 && way[r][i].start < way[r][!i].end);
    sim_free(s);
    cost_free(k);
    made_free(&m);
}
END_TEST

/* Of 64 replicas each sends to all others what each of ten stages keeps: more channels than fit 15 bits. */
START_TEST(many_channels)
{
    enum { STAGES = 10, REPLICAS = 64 };
    struct text t = {0};
    text_add(&t, "graph norms\ninput input 2x2x2\nlabels labels class\n");
    for (int i = 0; i < STAGES; i++) {
        if (i) text_add(&t, "n%d = batch_norm(n%d)\n", i, i - 1);
        else text_add(&t, "n0 = batch_norm(input)\n");
    }
    text_add(&t, "flat = flatten(n%d)\nloss = mse(flat, labels)\nloss loss\noutput flat\n", STAGES - 1);
    struct plan_request q = rig_request("1f1b", REPLICAS, 1, BACKWARD_AUTO);
    q.groups = REPLICAS;
    q.dp = 1;
    struct placement_request where = {.n_stages = STAGES, .mesh = {{STAGES, REPLICAS}}};
    struct made m = made_cut(where, rig_graph(t.s), &rig_plain, q);
    ck_assert_msg(m.p != NULL, "%s", m.e.text);
    ck_assert(m.p->n_chan > 32768);
    made_free(&m);
    text_free(&t);
}
END_TEST

/* ---- runs ---- */

static void hash_of(const struct model_case *c, const char *backend, int batch, int split, int groups, char hash[33])
{
    struct rig q = case_rig(c, backend);
    struct rig_result r;
    q.conf = case_conf(c, 1, batch, split);
    q.groups = groups;
    case_run(&q, &r);
    memcpy(hash, r.hash, 33);
    rig_free(&r);
}

/* Where the tree is a fold, the bits are those of a fold; four micro-batches in two blocks are no fold. */
START_TEST(folds_and_trees)
{
    char one[33], two[33], four[33];
    const struct model_case *c = &cases[CASE_RESNET];
    hash_of(c, "reference", 8, 3, 1, one);               /* three micro-batches: (0 + 1) + 2 */
    hash_of(c, "reference", 8, 3, 2, two);
    hash_of(c, "reference", 8, 3, 4, four);
    ck_assert_str_eq(one, two);
    ck_assert_str_eq(one, four);
    hash_of(c, "reference", 8, 2, 1, one);
    hash_of(c, "reference", 8, 2, 2, two);               /* four: (0 + 1) + (2 + 3) */
    hash_of(c, "reference", 8, 2, 4, four);
    ck_assert_str_ne(one, two);
    ck_assert_str_eq(two, four);
    hash_of(c, "reference", 8, 2, 64, four);             /* blocks without any */
    ck_assert_str_eq(two, four);
}
END_TEST

/* Eleven samples, in micro-batches of 2 and one of 1 (batch norm gets more values from images), in four blocks. */
START_TEST(the_same_bits_however_it_is_run)
{
    struct rig q = case_rig(ON_BOTH(_i));
    struct rig_result one, r;
    q.conf = case_conf(&cases[_i / 2], 1, 11, 2);
    q.groups = 4;
    case_run(&q, &one);
    for (int stages = 1; stages <= 3; stages += STAGES_STEP)
        for (int k = 0; k < N_SCHEDULES; k++) {
            q.n_stages = stages;
            q.schedule = rig_schedules[k];
            q.backward = rig_backwards[(k + stages) % 3];
            q.recompute = k == 1 ? 5 : 0;
            case_same(&q, &one, &r);
            rig_free(&r);
        }
    rig_free(&one);
}
END_TEST

/* Replicas share the blocks out, and the last one has less; all end with the weights of one. */
START_TEST(the_same_bits_with_replicas)
{
    static const struct { int batch, split, groups; } shape[] = {{11, 2, 4}, {7, 3, 4}, {20, 2, 8}};
    for (int k = 0; k < 3; k++) {
        struct rig q = case_rig(ON_BOTH(_i));
        struct rig_result one, r;
        q.conf = case_conf(&cases[_i / 2], 1, shape[k].batch, shape[k].split);
        q.groups = shape[k].groups;
        q.evaluate = k == 1;
        case_run(&q, &one);
        for (q.replicas = 2; q.replicas <= q.groups && q.replicas <= 4; q.replicas *= 2)
            for (int stages = 1; stages <= 3; stages += STAGES_STEP) {
                q.shard = (stages + q.replicas / 2 + k) % 2;
                q.n_stages = stages;
                q.schedule = rig_schedules[(k + stages) % N_SCHEDULES];
                q.backward = rig_backwards[(k + q.replicas) % 3];
                q.recompute = stages == 2 ? 5 : 0;
                q.bucket = k == 2 ? 0 : (size_t)64 << 4 * k;   /* one a weight, few, all at once */
                case_same(&q, &one, &r);
                for (int i = 1; i < q.replicas; i++) ck_assert_str_eq(r.copy_hash[i], one.hash);
                rig_free(&r);
            }
        rig_free(&one);
    }
}
END_TEST

/* Two replicas under every schedule, also with several stages a rank; each network tries one of these, on one backend
 * or the other. */
START_TEST(the_same_bits_in_every_way)
{
    struct rig q = case_rig(ON_BOTH(2 * _i + _i % 2));
    struct rig_result one, r;
    const struct way *w = &ways[_i % N_WAYS];
    int rank_of[4];
    way_map(w, rank_of);
    q.conf = case_conf(&cases[_i], 1, 11, 2);
    q.groups = 4;
    case_run(&q, &one);
    q.replicas = 2;
    q.schedule = w->schedule;
    q.n_stages = w->stages;
    q.n_ranks = w->ranks;
    q.rank_of = rank_of;
    for (int shard = 0; shard < 2; shard++) {
        q.shard = shard;
        case_same(&q, &one, &r);
        ck_assert_str_eq(r.copy_hash[1], one.hash);
        rig_free(&r);
    }
    rig_free(&one);
}
END_TEST

int main(void)
{
    TCase *t = suite_case("sums", 600);
    tcase_add_loop_test(t, blocks_are_added_as_a_tree, 0, N_WAYS);
    tcase_add_loop_test(t, wrong_sums_are_found, 0, N_WAYS);
    tcase_add_test(t, ways_share_no_link);
    tcase_add_test(t, many_channels);
    tcase_add_loop_test(t, gradients_go_when_they_are_final, 0, N_WAYS);
    tcase_add_loop_test(t, wrong_exchanges_are_found, 0, N_WAYS);
    tcase_add_test(t, exchanges_wait_for_tied_gradients);
    tcase_add_test(t, pieces_have_an_end);
    tcase_add_test(t, folds_and_trees);
    suite_loop(t, the_same_bits_however_it_is_run, N_BOTH, cases_of(i_ % 4 == 0, 1, 1));
    suite_loop(t, the_same_bits_with_replicas, N_BOTH, cases_of(i_ % 4 == 0, 1, 1));
    suite_loop(t, the_same_bits_in_every_way, N_CASES, cases_of(i_ % 4 == 0, 1, 1));
    return suite_run("sums", CK_FORK, t);
}
