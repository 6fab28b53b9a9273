/* Finds settings without an effect: they are for GPUs, or for what this run does not do. */
#include <string.h>
#include "train/ineffective_options.h"

/* Adds one line about those of the n keys that do not have their default. */
static void keys_note(const struct conf *c, const char *const *key, int n, const char *why, struct text *out)
{
    int found = 0;
    for (int i = 0; i < n; i++)
        if (conf_differs(c, key[i])) {
            if (!found++) text_add(out, "note: no effect %s: %s", why, key[i]);
            else text_add(out, ", %s", key[i]);
        }
    if (found) text_add(out, "\n");
}
#define KEYS_NOTE(why, ...) \
    keys_note(c, (const char *const[]){__VA_ARGS__}, sizeof (const char *[]){__VA_ARGS__} / sizeof (char *), why, out)

static void gpu_report(const struct job *j, bool nccl, struct text *out)
{
    const struct conf *c = j->conf;
    if (!c->run.kernel_table) KEYS_NOTE("without run.kernel_table", "run.try_compiled", "run.kernel_candidates");
    else if (!j->measured)
        KEYS_NOTE("because run.kernel_table was measured before", "run.try_compiled", "run.kernel_candidates");
    if (!nccl) KEYS_NOTE("without nccl", "run.nccl_max_ctas", "run.transfer_timeout");
}

void ineffective_options_report(const struct job *j, bool nccl, struct text *out)
{
    const struct conf *c = j->conf;
    if (j->mesh.size[AXIS_DP] < 2)
        KEYS_NOTE("without replicas", "pipeline.reduce", "pipeline.shard_optimizer", "pipeline.bucket_kib",
                  "pipeline.read_in_place");
    else if (j->be->stream) KEYS_NOTE("on GPUs", "pipeline.read_in_place");
    if (conf_adapts(c) && !c->lora.merge)
        KEYS_NOTE("with adapters and without lora.merge", "model.save_dtype", "model.max_shard_size");
    if (!c->train.freeze.n && !conf_adapts(c)) KEYS_NOTE("without train.freeze", "train.frozen_type");
    if (j->be->stream) gpu_report(j, nccl, out);
    else
        KEYS_NOTE("on CPUs", "run.kernel_table", "run.try_compiled", "run.kernel_candidates", "run.graphs",
                  "run.kernel_times", "run.nccl_max_ctas", "run.transfer_timeout");
}
