/* See interim.h. */
#include <stdlib.h>
#include <string.h>
#include "job/interim.h"

/* The same run, but one that generates: without what is for training, or for other ranks and costs. */
static struct conf *interim_conf(const struct conf *from)
{
    struct conf *c = conf_copy(from);
    c->run.generate = "-";
    c->run.evaluate = true;
    c->train.confusion = false;
    c->run.trace = NULL;
    c->generate.every_steps = 0;
    c->pipeline.replicas = 1;
    c->pipeline.schedule = "1f1b";
    c->pipeline.rows = c->pipeline.profile = NULL;
    c->pipeline.recompute = RECOMPUTE_NONE;
    c->pipeline.recompute_layers.n = 0;
    c->pipeline.recompute_stages.n = c->pipeline.max_memory.n = 0;
    c->pipeline.host_memory.n = c->pipeline.speed.n = 0;
    c->pipeline.disk = NULL;
    return c;
}

int interim_model(struct job *j, struct err *e)
{
    if (!j->conf->generate.every_steps || j->conf->run.evaluate) return 0;
    struct job *g = j->interim = mem_alloc(sizeof *g);
    *g = (struct job){.conf = interim_conf(j->conf), .be = j->be, .dev = j->dev, .supposes = j->supposes};
    return job_model(g, e) || job_data(g, e) ? -1 : 0;
}

int interim_plan(struct job *j, struct err *e)
{
    struct job *g = j->interim;
    if (!g) return 0;
    if (j->be->stream && j->mesh.size[AXIS_PP] > 1)
        return conf_error(j->conf, "generate.every_steps", e, "is for CPUs, or for one GPU; use --generate with a "
                          "checkpoint");
    g->cut_as = j;
    g->dev = j->dev;                                      /* with the kernel table, which is read after job_model */
    return job_plan_only(g, j->mesh.size[AXIS_PP], e);
}

void interim_variant(const struct job *j, struct job *out)
{
    const struct job *from = j->interim;
    if (!from) return;
    out->interim = mem_alloc(sizeof *out->interim);
    *out->interim = (struct job){.conf = from->conf, .be = out->be, .dev = out->dev, .graph = from->graph,
                                 .prompts = from->prompts};
}

void interim_variant_free(struct job *out)
{
    if (!out->interim) return;
    out->interim->graph = NULL;                            /* these belong to another job */
    out->interim->prompts = NULL;
    interim_free(out);
}

void interim_free(struct job *j)
{
    if (j->interim) job_free(j->interim);
    free(j->interim);
    j->interim = NULL;
}
