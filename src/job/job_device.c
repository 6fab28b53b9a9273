/* The device of a job: which backend, its precision, and how it stores weights that do not change. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "ckpt/st.h"
#include "job/job.h"
#include "model/decoder.h"

/* The GPU if one works; otherwise the CPU, and j->no_gpu has the reason. */
static const struct be_ops *device_auto(struct job *j)
{
    const struct be_ops *gpu = be_find("cuda");
    if (gpu && gpu->describe(0, &j->dev, &j->no_gpu) == 0) return gpu;
    return be_find("onednn");
}

static int precision_find(struct job *j, struct err *e)
{
    j->dev.precision = (enum precision)(j->conf->train.precision - WANT_FP32);
    const enum when emulate = j->conf->run.emulate_bf16;
    const bool bf16 = j->dev.precision == BFLOAT16, allowed = emulate == WHEN_YES || j->conf->run.generate,
               missing = bf16 && !strcmp(j->dev.rules->hardware, "cpu") && !j->dev.bf16 && !allowed;
    if (j->dev.bf16_slow && emulate != WHEN_NO) j->dev.bf16 = NULL;
    if (j->dev.precise[j->dev.precision] && !missing) return 0;
    if (!j->dev.precise[j->dev.precision])
        return conf_error(j->conf, "train.precision", e, "%s%s: the %s backend computes in %s",
                          precision_name[j->dev.precision], bf16 ? "" : " is for GPUs", j->dev.backend,
                          j->dev.precise[BFLOAT16] ? "fp32 and bf16" : "fp32");
    return conf_error(j->conf, "train.precision", e, "bf16: this processor (%s) has no instructions for it, "
                      "avx512_bf16 or amx_bf16; run.emulate_bf16 = yes computes it in fp32", j->dev.isa);
}

static int winograd_find(struct job *j, struct err *e)
{
    const struct device *d = &j->dev;
    j->dev.winograd = j->conf->train.winograd;
    if (!d->winograd || (d->features & ISA_AVX2 && d->precision == FP32)) return 0;
    return conf_error(j->conf, "train.winograd", e, "it is for fp32 on CPUs with AVX2; this is %s on the %s backend"
                      "%s%s", precision_name[d->precision], d->backend, *d->isa ? ", " : "", d->isa);
}

/* Do all matrices of a folder have this type? Its config.json may say otherwise. Without files: yes. */
static bool stored_all(const char *folder, enum dtype type)
{
    struct st **file;
    struct err none = {0};
    int n = 0, others = 0;
    if (st_open_all(folder, &file, &n, &none)) return true;
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < file[i]->n; k++)
            others += file[i]->t[k].shape.n > 1 && strcmp(file[i]->t[k].dtype, "I8") &&
                      strcmp(file[i]->t[k].dtype, type == BF16 ? "BF16" : "F16");
        st_close(file[i]);
    }
    free(file);
    return !others;
}

static bool folder_has(const char *folder, const char *name)
{
    struct text path = {0};
    text_add(&path, "%s/%s", folder, name);
    const bool there = !access(path.s, F_OK);
    text_free(&path);
    return there;
}

/* The folder of Hugging Face with all the weights that do not change: the base of adapters, or what is evaluated. NULL:
 * they come from elsewhere, such as a run. */
static const char *unchanged_folder(const struct job *j)
{
    const struct conf *c = j->conf;
    const bool given = conf_given(c, "run.init_from");
    const char *from = given || !c->model.folder ? c->run.init_from : c->model.folder, *run = c->run.init_from;
    if (!c->model.folder || j->cut_as || (!conf_adapts(c) && !c->run.evaluate)) return NULL;
    if (conf_adapts(c)) return given ? NULL : from;
    if (!given && run && (folder_has(run, "checkpoints") || folder_has(run, "weights.safetensors"))) return NULL;
    return folder_has(from, "model.safetensors") || folder_has(from, "model.safetensors.index.json") ? from : NULL;
}

/* Weights that do not change stay in the type of their folder, if nothing else is said and the device can: that changes
 * no bit. */
static enum dtype frozen_as_stored(const struct job *j)
{
    const struct conf *c = j->conf;
    const char *from = unchanged_folder(j);
    struct decoder d;
    struct err none = {0};
    if (!from || conf_given(c, "train.frozen_type") || decoder_of(c, &d, &none)) return F32;
    return j->dev.rules->frozen >> d.stored & 1 && stored_all(from, d.stored) ? d.stored : F32;
}

static int frozen_find(struct job *j, struct err *e)
{
    static const enum dtype type[] = {[STORED_BF16] = BF16, [STORED_FP16] = F16, [STORED_INT8] = I8};
    enum stored_type want = j->conf->train.frozen_type;
    j->dev.frozen = frozen_as_stored(j);
    if (want <= STORED_FP32) return 0;
    j->dev.frozen = type[want];
    if (j->dev.rules->narrow && want == STORED_BF16 && j->dev.precision != BFLOAT16)
        return conf_error(j->conf, "train.frozen_type", e, "bf16 needs train.precision = \"bf16\" on the %s backend",
                          j->dev.backend);
    if (j->dev.rules->frozen >> j->dev.frozen & 1) return 0;
    return conf_error(j->conf, "train.frozen_type", e, "the %s backend does not take it", j->dev.backend);
}

int job_device(struct job *j, struct err *e)
{
    const enum device_word want = j->conf->run.device;
    const char *word = conf_word(j->conf, "run.device");
    j->be = want == DEVICE_auto ? device_auto(j) : be_find(want == DEVICE_cpu ? "onednn" : word);
    if (!j->be) return err_set(e, E_DEVICE, "run.device = \"%s\": this mpstaged is built without it", word);
    return job_unit(j, 0, e);
}

int job_unit(struct job *j, int unit, struct err *e)
{
    const bool any = j->conf->run.device == DEVICE_auto;
    if (j->supposes && !any && j->be->suppose) {
        struct err none = {0};
        if (j->be->describe(unit, &j->dev, &none)) j->be->suppose(&j->dev);
    } else if (j->be->describe(unit, &j->dev, e))
        return any ? -1 : err_where(e, "run.device = \"%s\"", conf_word(j->conf, "run.device"));
    j->dev.threads = (int)j->conf->run.threads;
    j->dev.try_compiled = j->conf->run.try_compiled;
    j->dev.try_all = j->conf->run.kernel_candidates == CANDIDATES_ALL;
    return precision_find(j, e) || winograd_find(j, e) || frozen_find(j, e) ? -1 : 0;
}
