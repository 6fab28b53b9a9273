/* What the executor returns: requested outputs, and scores with weights of samples. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "exec_rig.h"

/* Asked for by name, in training and in evaluation: the same bits from every cut, and nothing else changes. */
static void outputs_on(const char *backend, const struct model_case *m, const char *const *name)
{
    static const unsigned patterns[] = {0, 0xff, 0x55};
    struct rig q = case_rig(m, backend);
    struct rig_result none, one, r;
    q.evaluate = true;
    case_run(&q, &none);
    memcpy(q.output, name, sizeof q.output);
    case_same(&q, &none, &one);
    for (int p = 1; p <= 3; p++)
        for (int k = 0; k < 9; k++) {
            q.n_stages = p;
            q.schedule = rig_schedules[k % 3];
            q.backward = rig_backwards[(k + p) % 3];
            q.recompute = patterns[k / 3];
            case_same(&q, &one, &r);
            for (int i = 0; i < 6; i++) {
                size_t n = one.value[i / 3][i % 3].n;
                ck_assert_msg(n > 0 && n == r.value[i / 3][i % 3].n &&
                              !memcmp(r.value[i / 3][i % 3].x, one.value[i / 3][i % 3].x, n * sizeof(float)),
                              "%s on %s: %d stages, %s: another \"%s\"", m->name, backend, p, q.schedule, name[i % 3]);
            }
            rig_free(&r);
        }
    for (int i = 0; i < 2 && !strcmp(name[1], "relu1"); i++)   /* of fc1 */
        for (size_t k = 0; k < one.value[i][0].n; k++)
            ck_assert(one.value[i][1].x[k] == fmaxf(one.value[i][0].x[k], 0));
    rig_free(&one);
}

static const char *const inner[][3] = {{"fc1", "relu1", "fc3"}, {"pool", "a.relu2", "fc"}};

START_TEST(outputs) { outputs_on(_i % 2 ? "onednn" : "reference", &cases[_i / 2], inner[_i / 2]); }
END_TEST

/* What a network computes without a loss is what it computes with one; such a network is not trained. */
START_TEST(outputs_without_a_loss)
{
    char text[1024];
    const char *loss = strstr(rig_skip, "loss = "), *labels = strstr(rig_skip, "labels labels"),
               *rest = strchr(labels, '\n') + 1;
    struct rig q = case_rig(&cases[CASE_SKIP], "onednn");
    struct rig_result with, r;
    q.steps = 0;
    q.evaluate = true;
    q.output[0] = "g";
    q.output[1] = "fc";
    snprintf(text, sizeof text, "%.*s%.*soutput fc\n", (int)(labels - rig_skip), rig_skip, (int)(loss - rest), rest);
    case_run(&q, &with);
    q.graph = text;
    q.no_loss = true;
    for (q.n_stages = 1; q.n_stages <= 3; q.n_stages++) {
        case_run(&q, &r);
        ck_assert_int_eq(r.eval_samples, 5);
        for (int k = 0; k < 2; k++) {
            size_t n = with.value[1][k].n;
            ck_assert(n && n == r.value[1][k].n && !memcmp(r.value[1][k].x, with.value[1][k].x, n * sizeof(float)));
        }
        rig_free(&r);
    }
    rig_free(&with);
}
END_TEST

/* ---- scores ---------------------------------------------------------------------------------- */

/* A mean squared error of the targets that are at least 0, and how many they are; a score of two more columns, and one
 * that the samples' weights divide. */
static void masked_forward(const struct op_call *c)
{
    int64_t count = shape_count(&c->g->tensor[c->node->in[0]].shape);
    for (int n = 0; n < c->n; n++) {
        double *out = (double *)c->out + 5 * n;
        const float *x = (const float *)c->in[0] + n * count, *y = (const float *)c->in[1] + n * count;
        memset(out, 0, 5 * sizeof *out);
        for (int64_t i = 0; i < count; i++) {
            if (y[i] >= 0) out[1]++, out[0] += (x[i] - y[i]) * (double)(x[i] - y[i]);
            out[2] += 2 * fabs((double)x[i] * y[i]);
            out[3] += (double)x[i] * x[i] + (double)y[i] * y[i];
            out[4] += x[i];
        }
    }
}
static void masked_backward(const struct op_call *c)
{
    int64_t count = shape_count(&c->g->tensor[c->node->in[0]].shape) * c->n;
    const float *x = c->in[0], *y = c->in[1];
    for (int64_t i = 0; i < count; i++)
        ((float *)c->gin[0])[i] = y[i] >= 0 ? (float)(2 * (x[i] - y[i]) * c->block->inv_weight) : 0;
}

static const struct score_row masked_rows[] = {{"loss", 0, 1}, {"dice", 2, 3}, {"sum", 4, -1}, {0}};
static struct op_kind masked;

static void use_masked(struct graph *g)
{
    struct node *n = &g->node[g->tensor[g->loss].producer];
    masked = *n->op;
    masked.rows = masked_rows;
    masked.forward = masked_forward;
    masked.backward_data = masked_backward;
    n->op = &masked;
    g->tensor[g->loss].shape.d[0] = 5;
}

static double weight_of(const struct ds *d, uint64_t index, uint64_t visit) { return 0.1 * (double)(1 + index % 5); }
static double weight_two(const struct ds *d, uint64_t index, uint64_t visit) { return 2; }

/* A text without a loss of its own gets the configured one, with a target as long as the output. */
static const char *masked_graph(void)
{
    static char text[1024];
    const char *labels = strstr(rig_mlp_dropout, "labels labels"), *loss = strstr(rig_mlp_dropout, "loss = "),
               *rest = strchr(labels, '\n') + 1;
    snprintf(text, sizeof text, "%.*s%.*soutput fc3\n", (int)(labels - rig_mlp_dropout), rig_mlp_dropout,
             (int)(loss - rest), rest);
    return text;
}

static struct rig masked_rig(void)
{
    static struct model_case m = {"masked", "input = {6} classes = 4", NULL, "vector", "mse", ""};
    m.graph = masked_graph();
    return case_rig(&m, "reference");
}

/* Sums of the first step and of an evaluation: however the batch is split and the network is cut. */
START_TEST(scores_of_every_split)
{
    struct rig q = masked_rig();
    char *at = strstr(q.conf, "split_size = 3") + strlen("split_size = ");
    struct rig_result eval, step, r;
    double weight[2] = {0, 0};
    q.evaluate = true;
    q.change = use_masked;
    q.weight = weight_of;
    q.steps = 0;
    case_run(&q, &eval);
    q.steps = 1;
    case_run(&q, &step);
    for (uint64_t i = 0; i < 7; i++) {
        const double w = weight_of(NULL, i, 0);
        weight[0] += w;
        weight[1] += i < 5 ? w : 0;
    }
    ck_assert(step.score[2].denominator == weight[0] && eval.eval_score[2].denominator == weight[1]);
    ck_assert(step.score[0].denominator > 0 && step.score[0].denominator < 28 && step.score[1].denominator > 0);
    for (int split = 1; split <= 7; split++)
        for (q.n_stages = 1; q.n_stages <= 3; q.n_stages++) {
            *at = (char)('0' + split);
            q.steps = 0;
            case_run(&q, &r);
            ck_assert(!memcmp(r.eval_score, eval.eval_score, sizeof r.eval_score));
            q.steps = 1;
            case_run(&q, &r);
            ck_assert_msg(!memcmp(r.score, step.score, sizeof r.score), "split %d, %d stages", split, q.n_stages);
        }
}
END_TEST

/* A score operator apart from the loss, which nobody reads: it takes the place of a node that `last` read. */
static void top_forward(const struct op_call *c)
{
    const float *x = c->in[0];
    for (int n = 0; n < c->n; n++) ((double *)c->out)[n] = fmaxf(fmaxf(x[4 * n], x[4 * n + 1]), x[4 * n + 2]);
}
static const struct score_row top_rows[] = {{"top", 0, -1}, {0}};
static struct op_kind top;

static void use_top(struct graph *g)
{
    struct node *score = &g->node[graph_node_find(g, "score")], *last = &g->node[graph_node_find(g, "last")];
    struct tensor *t = &g->tensor[score->out];
    top = *score->op;
    top = (struct op_kind){.name = top.name, .text = "", .infer = top.infer, .rows = top_rows, .forward = top_forward};
    score->op = &top;
    last->op = op_find("relu");
    last->n_in = 1;
    t->type = F64;
    t->shape = (struct shape){1, {1}};
    t->n_readers = 0;
    t->needs_grad = false;
}

START_TEST(scores_beside_the_loss)
{
    static const char tail[] = "score = relu(fc3)\nlast = add(fc3, score)\noutput last\n";
    struct text graph = {0};
    const char *end = strstr(masked_graph(), "output fc3");
    text_add(&graph, "%.*s%s", (int)(end - masked_graph()), masked_graph(), tail);
    struct rig q = case_rig(&cases[CASE_DROPOUT], "reference");
    struct rig_result one, r;
    q.graph = graph.s;
    q.steps = 2;
    q.change = use_top;
    q.output[0] = "fc3";
    double sum = 0;
    case_run(&q, &one);
    for (int n = 0; n < 7; n++) {
        const float *x = one.value[0][0].x + 4 * n;
        sum += fmaxf(fmaxf(x[0], x[1]), x[2]);
    }
    ck_assert(one.score[3].numerator == sum && one.score[3].denominator == 7 && one.score[0].denominator == 7);
    for (q.n_stages = 2; q.n_stages <= 4; q.n_stages++) {
        case_same(&q, &one, &r);
        ck_assert(!memcmp(r.score, one.score, sizeof r.score));
        rig_free(&r);
    }
    rig_free(&one);
    text_free(&graph);
}
END_TEST

/* Branches that only a score reads, with frozen weights or none, take no part in training, wherever they are. */
START_TEST(branches_to_a_score)
{
    static const char branches[][100] = {
        "score = mean_absolute_error(relu1, labels)\n",
        "freeze side.weight\nfreeze side.bias\nscore = mean_absolute_error(side, labels)\n",
        "side2 = relu(side)\nfreeze side.weight\nfreeze side.bias\nscore = mean_absolute_error(side2, labels)\n"};
    const char *loss = strstr(rig_mlp_dropout, "loss = ");
    struct rig q = case_rig(&cases[CASE_DROPOUT], "reference");
    struct rig_result none, r;
    q.graph = rig_mlp_dropout;
    case_run(&q, &none);
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 12; k++) {
            struct text graph = {0};
            text_add(&graph, "%.*s%s%s%s", (int)(loss - rig_mlp_dropout), rig_mlp_dropout,
                     i ? "side = linear(relu1) features=5\n" : "", branches[i], loss);
            q.graph = graph.s;
            q.n_stages = 1 + k / 3;
            q.schedule = rig_schedules[k % 3];
            q.backward = rig_backwards[(i + k) % 3];
            case_run(&q, &r);
            ck_assert_msg(!memcmp(r.loss, none.loss, 3 * sizeof *r.loss), "%s, %d stages, %s: another loss",
                          branches[i], q.n_stages, q.schedule);
            ck_assert(i || !strcmp(r.hash, none.hash));
            text_free(&graph);
        }
}
END_TEST

/* Twice the weight of every sample is half the gradient: which twice the learning rate makes up for, to the bit. */
START_TEST(weights_divide_gradients)
{
    struct rig q = masked_rig();
    char *rate = strstr(q.conf, "learning_rate = 0.05"), *decay = strstr(q.conf, "weight_decay = 0.01");
    char *momentum = strstr(q.conf, "momentum = 0.9");
    struct rig_result ones, twos, same;
    ck_assert(rate && decay && momentum);
    memcpy(decay, "weight_decay = 0.00", 19);
    memcpy(momentum, "momentum = 0.0", 14);
    q.n_stages = 2;
    case_run(&q, &ones);
    q.weight = weight_two;
    case_run(&q, &same);
    memcpy(rate, "learning_rate = 0.10", 20);
    case_run(&q, &twos);
    ck_assert_str_eq(ones.hash, twos.hash);
    ck_assert_str_ne(ones.hash, same.hash);
    ck_assert(ones.loss[2] == 2 * twos.loss[2]);
}
END_TEST

int main(void)
{
    TCase *t = suite_case("scores", 240);
    tcase_add_loop_test(t, outputs, 0, 4);
    tcase_add_test(t, outputs_without_a_loss);
    tcase_add_test(t, scores_of_every_split);
    tcase_add_test(t, scores_beside_the_loss);
    tcase_add_test(t, branches_to_a_score);
    tcase_add_test(t, weights_divide_gradients);
    return suite_run("scores", CK_NOFORK, t);
}
