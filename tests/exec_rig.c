#include <stdio.h>
#include <string.h>
#include "exec_rig.h"

const struct model_case cases[N_CASES] = {
    {"mlp with dropout", "input = {6} classes = 4", rig_mlp_dropout, "class", "cross_entropy", ""},
    {"small resnet with batch norm", "input = {3, 8, 8} classes = 5", rig_small_resnet, "onehot", "mse", "",
     rig_narrow_resnet},
    {"skip over two stages", "input = {6} classes = 4", rig_skip, "class", "cross_entropy", ""},
    {"tied weight", "input = {6} classes = 6", rig_tied, "class", "cross_entropy", ""},
    {"tensor with three readers", "input = {6} classes = 4", rig_three_readers, "class", "cross_entropy", ""},
    {"tied weight, clipped", "input = {6} classes = 6", rig_tied, "class", "cross_entropy", "clip_norm = 0.05"},
    {"small resnet, deferred statistics", "input = {3, 8, 8} classes = 5", rig_small_resnet, "class", "cross_entropy",
     "batch_norm = \"deferred\"", rig_narrow_resnet},
    {"tied weight, adamw", "input = {6} classes = 6", rig_tied, "class", "cross_entropy", "clip_norm = 0.05", NULL,
     "optimizer = adamw"},
    {"tied weight, lamb", "input = {6} classes = 6", rig_tied, "class", "cross_entropy", "ema = 0.75", NULL,
     "optimizer = lamb"},
    {"tied weight, rmsprop", "input = {6} classes = 6", rig_tied, "class", "cross_entropy", "momentum = 0.9", NULL,
     "optimizer = rmsprop"},
    {"embedding, tied", "input = {3, 4} classes = 9", rig_words, "class", "cross_entropy", ""},
    {"small resnet, partly frozen", "input = {3, 8, 8} classes = 5", rig_frozen_resnet, "class", "cross_entropy", "",
     rig_narrow_frozen},
    {"tied weight, averaged", "input = {6} classes = 6", rig_tied, "class", "cross_entropy", "ema = 0.75"},
};

char *case_conf(const struct model_case *m, int seed, int batch, int split)
{
    static char s[2048];
    snprintf(s, sizeof s,
             "run { name = \"t\" seed = %d }\nmodel { %s }\n"
             "data { source = \"synthetic\" labels = \"%s\" samples = 50 test_samples = 5 }\n"
             "train { batch_size = %d split_size = %d steps = 3 loss = \"%s\" learning_rate = 0.05 weight_decay = 0.01 "
             "%s %s }\n",
             seed, m->input, m->labels, batch, split, m->loss, m->optimizer ? m->optimizer : "momentum = 0.9", m->more);
    return s;
}

struct rig case_rig(const struct model_case *m, const char *backend)
{
    return (struct rig){.conf = case_conf(m, 1, 7, 3),
                        .graph = m->narrow && !strcmp(backend, "reference") ? m->narrow : m->graph, .backend = backend,
                        .n_stages = 1, .schedule = "1f1b", .steps = 3};
}

void case_run(const struct rig *q, struct rig_result *r)
{
    ck_assert_msg(!rig_run(q, r), "%s, %d stages: %s", q->schedule, q->n_stages, r->e.text);
}

void case_same(const struct rig *q, const struct rig_result *one, struct rig_result *r)
{
    case_run(q, r);
    bool same = !strcmp(r->hash, one->hash) && r->grad_norm == one->grad_norm && r->eval_loss == one->eval_loss &&
                r->eval_top1 == one->eval_top1 && r->eval_samples == one->eval_samples &&
                *one->last[0].grad_hash && !strcmp(r->last[0].grad_hash, one->last[0].grad_hash);
    for (int i = 0; i < q->steps; i++) same &= r->loss[i] == one->loss[i];
    ck_assert_msg(same, "%.*s on %s: %d stages on %d ranks%s, %s, backward %d, recomputing %x%s: other %s",
                  (int)strcspn(q->graph, "\n"), q->graph, q->backend, q->n_stages,
                  q->n_ranks ? q->n_ranks : q->n_stages, q->first_group ? " (uneven)" : "", q->schedule,
                  (int)q->backward, q->recompute, q->rows ? ", W of several" : "",
                  strcmp(r->hash, one->hash) ? "weights" : "numbers");
}
