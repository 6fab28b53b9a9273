/* What freezing weights saves: the same configuration is planned again without freezing. */
#include "job/memory_limit.h"
#include "job/freeze_savings.h"
#include "plan/sim.h"

static uint64_t most_bytes(const struct job *j)
{
    uint64_t most = 0;
    for (int r = 0; r < j->mesh.size[AXIS_PP]; r++) if (limit_bytes(j, r) > most) most = limit_bytes(j, r);
    return most;
}

static double step_seconds(const struct job *j)
{
    struct sim *s = plan_simulate(j->plan[j->plan_of[PLAN_FULL]], j->cost, NULL);
    double seconds = s ? s->wall_ns * 1e-9 : 0;
    sim_free(s);
    return seconds;
}

static void weights_count(const struct graph *g, int64_t *frozen, int64_t *all)
{
    *frozen = *all = 0;
    for (int i = 0; i < g->n_params; i++) {
        if (g->param[i].kind != PARAM_WEIGHT) continue;
        *all += shape_count(&g->param[i].shape);
        if (g->param[i].frozen) *frozen += shape_count(&g->param[i].shape);
    }
}

static int thawed_plan(const struct job *j, struct conf *c, struct job *out, struct err *e)
{
    c->train.freeze.n = 0;
    c->lora.rank = 0;
    c->lora.init_from = NULL;
    c->model.load_in_8bit = WHEN_NO;
    c->pipeline.host_memory.n = 0;
    c->pipeline.offload_optimizer = WHEN_NO;
    if (j->map) c->pipeline.no_split.n = 0;             /* modules of the map need not be in the graph */
    c->pipeline.disk = c->pipeline.profile = NULL;       /* a profile is of the graph with frozen weights */
    *out = (struct job){.conf = c, .be = j->be, .dev = j->dev, .count = {j->count[0], j->count[1]},
                         .host = j->host};
    return job_model(out, e) || job_plan_only(out, j->mesh.size[AXIS_PP], e) ? -1 : 0;
}

int freeze_savings_text(const struct job *j, struct text *out, struct err *e)
{
    struct job whole;
    int64_t frozen, all;
    char b[4][32];
    if ((!j->conf->train.freeze.n && !conf_adapts(j->conf)) || j->plan_of[PLAN_FULL] < 0) return 0;
    int bad = thawed_plan(j, conf_copy(j->conf), &whole, e);
    if (!bad) {
        weights_count(j->graph, &frozen, &all);
        uint64_t most = most_bytes(&whole), now = most_bytes(j);
        double step = step_seconds(&whole), less = step - step_seconds(j);
        text_add(out, "\nfrozen: %lld of %lld weights, which saves\n%s of %s on the largest rank", (long long)frozen,
                 (long long)all, text_bytes(most > now ? most - now : 0, b[0]), text_bytes(most, b[1]));
        /* a profile has no times of passes that did not run */
        if (!j->conf->pipeline.profile)
            text_add(out, ", %s of %s a step", text_seconds(less > 0 ? less : 0, b[2]), text_seconds(step, b[3]));
        text_add(out, "\n");
    }
    job_free(&whole);
    return bad;
}
