/* The best candidate as a configuration. */
#include <string.h>
#include "job/memory_limit.h"
#include "job/search_int.h"

/* Writes the cut as stage sections, so that later measurements do not change it. Stage sections cannot express a cut
 * between layers that kernels run in another order. Then partition auto stays set and finds the cut again. */
static int stages_set(const struct search *s, struct conf *c, struct err *e)
{
    const struct found *x = &s->best[0];
    struct conf trial = *c;
    struct job v, w = {0};
    struct err none = {0};
    search_candidate(&trial, x);
    int bad = limit_variant(s->j, &trial, x->at.ranks, &v, e);
    for (int i = 0; !bad && i < v.n_stages; i++) {
        const char *first, *last;
        plan_stage_ends(v.plan[0], i, &first, &last);
        conf_stage_add(c, (struct conf_stage){.first = first, .last = last});
    }
    trial = *c;
    trial.pipeline.partition = PART_manual;
    trial.pipeline.stages = x->at.ranks * x->chunks;
    bool same = !bad && !limit_variant(s->j, &trial, x->at.ranks, &w, &none) &&
                !memcmp(v.first_group, w.first_group, (size_t)v.n_stages * sizeof *v.first_group);
    if (!same) c->pipeline.n_stages = 0;
    limit_variant_free(&w);
    limit_variant_free(&v);
    return bad;
}

/* Values for each rank of a pipeline do not apply to a rank that computes the whole network. */
static void alone_set(struct conf *c, const struct found *x)
{
    if (x->at.ranks > 1) return;
    if (c->pipeline.speed.n > 1) c->pipeline.speed.n = 0;
    if (c->pipeline.max_memory.n > 1) c->pipeline.max_memory.n = 1;
}

static int best_set(const struct search *s, struct conf *c, struct err *e)
{
    const struct found *x = &s->best[0];
    struct text t = {0};
    c->pipeline.n_stages = 0;
    c->pipeline.rows = NULL;
    alone_set(c, x);
    text_add(&t, "pipeline.schedule=%s\npipeline.recompute=%s\ntrain.split_size=%d\npipeline.stages=%d\n"
             "pipeline.ranks=%d\npipeline.replicas=%d\ntrain.gradient_groups=%d\nrun.threads=%d", x->schedule,
             search_recompute(x), x->split, x->at.ranks * x->chunks, x->at.ranks, x->at.dp,
             search_groups(c, x->at.dp), x->at.threads);
    int bad = 0;
    for (char *save = NULL, *set = strtok_r(t.s, "\n", &save); set && !bad; set = strtok_r(NULL, "\n", &save))
        bad = conf_set(c, "--plan=search", set, e);
    text_free(&t);
    return bad || stages_set(s, c, e) ||
                   conf_set(c, "--plan=search",
                            c->pipeline.n_stages ? "pipeline.partition=manual" : "pipeline.partition=auto", e)
               ? -1
               : 0;
}

static void changed(struct text *t, const char *key, long long before, long long now)
{
    if (before != now) text_add(t, "# %s was %lld: results differ from those of that value.\n", key, before);
}

int search_best(const struct search *s, const char *origin, struct text *t, struct err *e)
{
    char b[32];
    const struct conf *before = s->j->conf;
    const struct found *x = &s->best[0];
    struct conf *c = conf_copy(before);
    if (best_set(s, c, e)) return -1;
    text_add(t, "# Found by mpstaged --plan=search: step %s (%s costs).\n# ", text_seconds(x->seconds, b), origin);
    search_command(s, x, t);
    text_add(t, "\n");
    if (!c->pipeline.n_stages) {
        text_add(t, "# Its cut, before ");
        search_cut(x, t);
        text_add(t, ", cannot be written as stage sections: auto finds it again.\n");
    }
    changed(t, "split_size", before->train.split_size, x->split);
    changed(t, "threads", before->run.threads, x->at.threads);
    changed(t, "gradient_groups", before->train.gradient_groups, search_groups(before, x->at.dp));
    conf_print(c, t);
    return 0;
}
