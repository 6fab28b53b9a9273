/* What a run prints before its first step and after its end. */
#include "config.h"
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>
#include "base/launched.h"
#include "model/lora.h"
#include "cluster/heartbeat.h"
#include "cluster/log.h"
#include "report/predict.h"
#include "report/data_report.h"
#include "train/setup.h"
#include "train/sequencer.h"
#include "cluster/hosts.h"
#include "train/ineffective_options.h"
#include "plan/render.h"

/* Reports pipelines that get no work from a full batch. */
static void idle_report(const struct job *j)
{
    int full = j->plan_of[PLAN_FULL], idle = 0;
    for (int r = 0; r < j->mesh.size[AXIS_DP] && full >= 0; r++) idle += !j->plan[full]->part[r].n_mb;
    if (idle)
        log_line("note: %d of %d %ss have no micro-batch of a batch: use a smaller train.split_size",
                 idle, j->mesh.size[AXIS_DP], axis_word[AXIS_DP]);
}

static void decoder_report(const struct job *j)
{
    char all[32], trained[32], flops[32];
    if (!job_tokens(j) || j->conf->run.evaluate) return;
    log_line("%s parameters, %s trained; training on a token takes %sFLOP: 6 N + 6 L T d without frozen layers, with N "
             "weights of products and L causal attentions of d channels over T positions",
             text_count((double)job_parameters(j, false), all), text_count((double)job_parameters(j, true), trained),
             text_count(job_token_flops(j), flops));
}

void setup_hello(struct setup *b)
{
    const struct job *j = &b->job;
    char of[32];
    int ranks_here = b->world->here;
    long cores = sysconf(_SC_NPROCESSORS_ONLN), used = ranks_here * (long)b->conf->run.threads;
    bool same = strncasecmp(j->dev.library, j->be->name, strlen(j->be->name)) == 0;
    const bool half = j->dev.precision == BFLOAT16 && !j->be->stream;
    const char *bf16 = !half ? "" : j->dev.bf16 ? j->dev.bf16 : "fp32";
    log_line("mpstaged %s: %s, %s%d stage%s, %s%s%s %s%s%s, results in %s", PACKAGE_VERSION, j->graph->name,
             mesh_pipelines(&j->mesh, of), j->n_stages, j->n_stages == 1 ? "" : "s", same ? "" : j->be->name,
             same ? "" : " ", j->dev.library, j->dev.isa, half ? ", bf16 by " : "", bf16, b->dir.path);
    if (b->resume.found) {
        unsigned long long step = b->resume.from.step, last = job_steps(j);
        log_line("resuming from %s/step-%08llu%s", CKPT_FOLDER, step, step < last ? "" : ": no step is left to train");
    }
    if ((b->conf->run.evaluate || b->used.which.n) && b->used.path.n)
        log_line("weights: %s%s%s%s", b->used.path.s, b->used.which.n ? " (" : "",
                 b->used.which.n ? b->used.which.s : "", b->used.which.n ? ")" : "");
    if (rundir_keeps(&b->dir, b->conf))
        log_line("note: earlier weights stay as weights.safetensors.old until new ones are written");
    if (b->dir.adds)
        log_line("note: %s has metrics of an earlier run, which left neither checkpoints nor weights: this one adds to "
                 "them", b->dir.path);
    decoder_report(j);
    data_report_hello(j);
    if (j->no_gpu.code) log_line("note: computing on the CPU: %s", j->no_gpu.text);
    ineffective_options_report(j, b->nccl, &b->notes);
    job_notes(j, &b->notes);
    int n = j->mesh.size[AXIS_PP];
    if (j->n_merged)
        log_line("note: %d stages on %d rank%s: schedule %s runs one stage a rank, so the network is cut into %d",
                 j->n_merged, n, n == 1 ? "" : "s", j->conf->pipeline.schedule, j->n_stages);
    if (j->mesh.size[AXIS_DP] > 1) idle_report(j);
    memory_notes(j, &b->notes);
    struct text slow = {0};
    plan_slow_text(j->sel, &slow);
    if (slow.n) log_lines(slow.s);
    text_free(&slow);
    if (!b->conf->run.evaluate && !b->conf->pipeline.profile)
        log_line("note: planned with estimated costs; --profile measures them on this machine");
    cost_doubt(j->cost->spread, j->cost->origin, &b->notes);
    if (!b->conf->run.evaluate && sequencer_only_warms(j))
        log_line("note: the warm-up is as long as the run or longer: the learning rate never reaches its full value");
    if (used < cores && !j->be->stream)
        log_line("note: %d rank%s here with %lld thread%s each leave%s %ld of %ld cores unused", ranks_here,
                 ranks_here == 1 ? "" : "s",
                 (long long)b->conf->run.threads, b->conf->run.threads == 1 ? "" : "s", ranks_here == 1 ? "s" : "",
                 cores - used, cores);
    hosts_report(b->host, b->world->size, j->mesh.size[AXIS_PP], j->pl->map.rank_of, j->pl->n_stages, &b->notes);
    heartbeat_report(&b->notes);
    launched_outer(b->world->size, &b->notes);
    if (b->notes.n) log_lines(b->notes.s);
}

void setup_end(const struct setup *b)
{
    const bool generates = b->conf->run.generate, all = generates && generation_complete(b->generation);
    const char *more = (b->predict && predict_complete(b->predict)) || all ? b->files.predictions.path
                     : b->conf->run.evaluate ? NULL : b->files.weights.path;
    uint64_t odd = b->predict ? predict_nonfinite(b->predict) : 0;
    if (odd)
        log_line("warning: the network's output is not finite for %llu samples", (unsigned long long)odd);
    if (b->predict && !predict_complete(b->predict)) log_line("stopped before the last sample: no predictions");
    if (generates && !all) log_line("stopped before the last prompt was done");
    const bool trained = !b->conf->run.evaluate, model = trained && lora_leaves_model(b->conf),
               adapter = trained && conf_adapts(b->conf);
    log_line("done: %s/metrics.jsonl%s%s%s%s%s%s%s%s", b->dir.path, more ? ", " : "", more ? more : "",
             adapter ? ", " : "", adapter ? b->dir.path : "", adapter ? "/adapter/" : "",
             model ? ", " : "", model ? b->dir.path : "", model ? "/model/" : "");
}
