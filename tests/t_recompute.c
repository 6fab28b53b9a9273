/* Recomputation in the planner: what is dropped and run again, memory, what the checker requires of R, and which blocks
 * auto chooses. t_exec tests that the bits stay the same. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "plan/cost.h"
#include "plan/recompute.h"
#include "plan/sim.h"
#include "rig_graphs.h"
#include "devices.h"
#include "sure.h"

static const char *const schedules[] = {"gpipe", "1f1b"};   /* naive keeps one micro-batch at a time: nothing to gain */

struct made {
    struct conf *c;
    struct graph *g;
    struct selection *s;
    struct placement *pl;
    struct plan *p;
    struct cost *k;
    bool recompute[512];
    struct err e;
};

/* model: section of the configuration; loss: train.loss */
static void network(struct made *m, const char *model, const char *loss, int stages)
{
    char text[512];
    int cut[9];
    snprintf(text, sizeof text, "%s\ndata { source = \"synthetic\" }\n"
             "train { steps = 1 batch_size = 32 loss = \"%s\" }\n"
             "pipeline { partition = \"uniform\" stages = 2 }\n", model, loss);
    *m = (struct made){0};
    m->c = conf_parse("test.conf", text, strlen(text), &m->e);
    ck_assert_msg(m->c && !conf_finish(m->c, &m->e), "%s", m->e.text);
    m->g = model_build(m->c, &m->e);
    ck_assert_msg(m->g != NULL, "%s", m->e.text);
    m->s = select_make(m->g, &rig_plain, 8, &m->e);
    ck_assert_msg(m->s != NULL, "%s", m->e.text);
    m->k = cost_estimate(m->s);
    for (int i = 0; i <= stages; i++) cut[i] = i * m->s->n_groups / stages;
    m->pl = placement_make(
        &(struct placement_request){.sel = m->s, .n_stages = stages, .mesh = {{stages}}, .first_group = cut}, &m->e);
}

static void resnet(struct made *m, int stages)
{
    network(m, "model { network = \"resnet18\" input = {3, 32, 32} }", "cross_entropy", stages);
}

static struct plan_request request(struct made *m, const char *schedule)
{
    return (struct plan_request){.mode = PLAN_TRAIN, .schedule = schedule, .batch = 32, .split = 8,
                                 .backward = BACKWARD_AUTO,
                                 .batch_norm = STATS_MICRO, .recompute = m->recompute};
}

static void planned(struct made *m, const char *schedule)
{
    struct plan_request r = request(m, schedule);
    plan_free(m->p);
    m->p = plan_make(m->s, m->pl, &r, &m->e);
    ck_assert_msg(m->p != NULL, "%s", m->e.text);
}

static void unmake(struct made *m)
{
    plan_free(m->p);
    cost_free(m->k);
    placement_free(m->pl);
    select_free(m->s);
    graph_free(m->g);
    conf_free(m->c);
}

static void mark_all(struct made *m, bool on) { for (int i = 0; i < m->s->n_groups; i++) m->recompute[i] = on; }

/* What goes past several ranks is taken long after it was sent, and its gradient, too: with slots for neighbours alone
 * the first rank would wait for the last one, which waits for those between them, and these for the first. */
START_TEST(long_skips)
{
    static const char model[] = "model { network = \"vnet_eisen\" input = {1, 16, 16, 16} classes = 1 }";
    for (int stages = 2; stages <= 8; stages++)
        for (size_t i = 0; i < sizeof schedules / sizeof *schedules; i++) {
            struct made m;
            network(&m, model, "dice", stages);
            for (int on = 0; on < 2; on++) {
                mark_all(&m, on);
                for (int split = 1; split <= 4; split *= 2) {
                    struct plan_request r = request(&m, schedules[i]);
                    r.split = split;
                    struct plan *p = plan_make(m.s, m.pl, &r, &m.e);
                    ck_assert_msg(p != NULL, "%d stages, %s, split %d: %s", stages, schedules[i], split, m.e.text);
                    plan_free(p);
                }
            }
            unmake(&m);
        }
}
END_TEST

static size_t kept(const struct plan *p, int stage, enum slot_writer writer)
{
    size_t sum = 0;
    for (int i = 0; i < p->n_cls; i++)
        if (p->cls[i].stage == stage && p->cls[i].writer == writer && p->cls[i].last != L_O)
            sum += p->cls[i].bytes * (size_t)p->cls[i].n_slots;
    return sum;
}

/* With everything recomputed the stage keeps what comes in for every micro-batch in flight, and the rest for one. */
START_TEST(frees_memory)
{
    struct made m;
    resnet(&m, 2);
    planned(&m, "gpipe");
    size_t before = plan_rank_bytes(m.p, 0), f = kept(m.p, 0, W_F);
    ck_assert(kept(m.p, 0, W_R) == 0 && m.p->stage[0].prog[PROG_R].n == 0);
    mark_all(&m, true);
    planned(&m, "gpipe");
    ck_assert_uint_lt(plan_rank_bytes(m.p, 0), before);
    ck_assert_uint_lt(kept(m.p, 0, W_F), f / 4);
    ck_assert_uint_gt(kept(m.p, 0, W_R), 0);
    for (int i = 0; i < m.p->n_cls; i++)
        if (m.p->cls[i].writer == W_R && m.p->stage[m.p->cls[i].stage].joined) ck_assert_int_eq(m.p->cls[i].n_slots, 1);
    struct sim *s = plan_simulate(m.p, m.k, NULL);
    ck_assert(s != NULL);
    const double *part = s->rank[0].part;
    ck_assert(part[ACC_RECOMPUTE] > 0 && part[ACC_RECOMPUTE] < part[ACC_FORWARD]);   /* what nobody needs is not run */
    sim_free(s);
    unmake(&m);
}
END_TEST

/* 1f1b's last stage runs each backward pass right after its forward pass: nothing is dropped there. */
START_TEST(keeps_what_comes_at_once)
{
    struct made m;
    resnet(&m, 2);
    mark_all(&m, true);
    planned(&m, "1f1b");
    ck_assert_int_gt(m.p->stage[0].prog[PROG_R].n, 0);
    ck_assert_int_eq(m.p->stage[1].prog[PROG_R].n, 0);
    for (int i = 0; i < m.p->row_n[1]; i++) ck_assert_int_ne(m.p->row[1][i].op, ACT_R);
    unmake(&m);
}
END_TEST

/* R stands before the backward pass, which waits for the gradient: it needs nothing that comes from elsewhere. */
START_TEST(starts_before_the_gradient)
{
    struct made m;
    int seen = 0;
    resnet(&m, 2);
    mark_all(&m, true);
    planned(&m, schedules[_i]);
    for (int i = 0; i + 1 < m.p->row_n[0]; i++) {
        const struct act *a = &m.p->row[0][i];
        if (a->op != ACT_R) continue;
        seen++;
        for (int k = 0; k < a->n_opnd; k++) {
            const struct slot_class *c = &m.p->cls[m.p->opnd[a->opnd + k].cls];
            ck_assert(c->writer != W_RB && c->writer != W_B);
        }
        const struct act *next = a + 1;
        while (act_is_post(next->op)) next++;
        ck_assert((next->op == ACT_B || next->op == ACT_D) && next->mb == a->mb);
    }
    ck_assert_int_eq(seen, 4);
    unmake(&m);
}
END_TEST

/* The checker wants R exactly once where something is to be recomputed, after F and before B. */
START_TEST(checker_wants_r)
{
    struct made m;
    int tried = 0;
    resnet(&m, 2);
    mark_all(&m, true);
    planned(&m, schedules[_i]);
    for (int i = 0; i < m.p->row_n[0]; i++) {
        struct act *row = m.p->row[0], saved = row[i];
        if (saved.op != ACT_R) continue;
        tried++;
        row[i].op = ACT_F;
        ck_assert(plan_check(m.p, NULL));
        row[i] = saved;
        row[i].mb = (uint16_t)((saved.mb + 1) % 4);
        ck_assert(plan_check(m.p, NULL));
        row[i] = saved;
        int b = i + 1;
        while (act_is_post(row[b].op)) b++;
        row[i] = row[b];
        row[b] = saved;
        ck_assert(plan_check(m.p, NULL));
        row[b] = row[i];
        row[i] = saved;
        struct opnd *o = &m.p->opnd[saved.opnd], first = o[0];
        for (int k = 0; k < saved.n_opnd; k++) {
            struct opnd gone = o[k];
            o[k] = o[saved.n_opnd - 1];
            row[i].n_opnd--;
            ck_assert_msg(plan_check(m.p, NULL), "operand %d of R may be left out", k);
            row[i].n_opnd++;
            o[k] = gone;
        }
        o[0] = first;
        ck_assert(!plan_check(m.p, NULL));
    }
    ck_assert_int_eq(tried, 4);
    unmake(&m);
}
END_TEST

/* auto: fits, marks nothing that may be left out, and never marks where there is room. */
START_TEST(auto_is_frugal)
{
    struct made m;
    struct err e = {0};
    resnet(&m, 2);
    planned(&m, schedules[_i]);
    uint64_t most = plan_rank_bytes(m.p, 0), limit[] = {most, UINT64_MAX};
    struct plan_request r = request(&m, schedules[_i]);
    struct recompute_request q = {m.s, m.pl, &r, m.k, limit};
    ck_assert(!recompute_auto(&q, m.recompute, &e));
    for (int i = 0; i < m.s->n_groups; i++) ck_assert(!m.recompute[i]);
    mark_all(&m, true);
    planned(&m, schedules[_i]);
    uint64_t least = plan_rank_bytes(m.p, 0);
    ck_assert_uint_lt(least, most);
    int n_last = 0;
    for (int step = 1; step < 4; step++) {
        int n = 0;
        limit[0] = most - (most - least) * (uint64_t)step / 5;
        mark_all(&m, false);
        ck_assert(!recompute_auto(&q, m.recompute, &e));
        planned(&m, schedules[_i]);
        ck_assert_uint_le(plan_rank_bytes(m.p, 0), limit[0]);
        for (int i = 0; i < m.s->n_groups; i++) n += m.recompute[i];
        for (int i = m.pl->first_group[1]; i < m.s->n_groups; i++) ck_assert(!m.recompute[i]);
        ck_assert_int_gt(n, 0);
        ck_assert_int_ge(n + 2, n_last);
        n_last = n;
    }
    unmake(&m);
}
END_TEST

static const struct { const char *set, *says; } wrong[] = {
    {"pipeline.recompute_layers={layer1, layer9}",
     "pipeline.recompute_layers:|\"layer9\"|layer4?)"},
    {"pipeline.recompute_layers={layer4.0.conv9}",
     "pipeline.recompute_layers:|\"layer4.0.conv9\"|layer4.0.conv"},
    {"pipeline.recompute_stages={0, 2}", "pipeline.recompute_stages:|2|2"},
};

START_TEST(names_are_checked)
{
    struct made m;
    struct err e = {0};
    resnet(&m, 2);
    ck_assert(!conf_set(m.c, "-o", wrong[_i].set, &e));
    ck_assert(recompute_named(m.c, m.s, m.recompute, &e) || recompute_stages(m.c, m.pl, m.recompute, &e));
    ck_assert_msg(e.code == 78 && says(e.text, strchr(wrong[_i].says, ':')), "%s", e.text);
    unmake(&m);
}
END_TEST

START_TEST(names_mark_what_lies_below)
{
    struct made m;
    resnet(&m, 2);
    ck_assert(!conf_set(m.c, "-o", "pipeline.recompute_layers={layer1.0}", &m.e) &&
              !recompute_named(m.c, m.s, m.recompute, &m.e));
    for (int i = 0; i < m.s->n_groups; i++)
        ck_assert_int_eq(m.recompute[i], !strncmp(m.g->node[m.s->group[i].node[0]].name, "layer1.0.", 9));
    ck_assert(!conf_set(m.c, "-o", "pipeline.recompute_stages={1}", &m.e) &&
              !recompute_stages(m.c, m.pl, m.recompute, &m.e));
    ck_assert(m.recompute[m.s->n_groups - 1] && !m.recompute[0]);
    unmake(&m);
}
END_TEST

int main(void)
{
    TCase *t = suite_case("recompute", 60);
    tcase_add_test(t, frees_memory);
    tcase_add_test(t, long_skips);
    tcase_add_test(t, keeps_what_comes_at_once);
    tcase_add_loop_test(t, starts_before_the_gradient, 0, 2);
    tcase_add_loop_test(t, checker_wants_r, 0, 2);
    tcase_add_loop_test(t, auto_is_frugal, 0, 2);
    tcase_add_loop_test(t, names_are_checked, 0, 2);
    tcase_add_test(t, names_mark_what_lies_below);
    return suite_run("recompute", CK_FORK, t);
}
