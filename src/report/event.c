/* The table of events, their lines, and what the manual says of them. */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include "report/event.h"

#define OF(key, type, unit, text) {#key, FIELD_##type, offsetof(struct event, key), unit, text}
#define AS(key, type, member, unit, text) {key, FIELD_##type, offsetof(struct event, member), unit, text}
#define IN(key, unit, text) {key, FIELD_WITHIN, 0, unit, text}

#define BEGAN \
    OF(version, TEXT, "", "of the program"), OF(time, TEXT, "RFC 3339", "when it began"), \
    OF(ranks, WHOLE, "", "how many"), OF(stage_count, WHOLE, "", "how many stages"), \
    OF(numerics, TEXT, "", "everything that results depend on"), OF(plan, TEXT, "", "hash of the plan"), \
    OF(pid, WHOLE, "", "of rank 0")
#define BEGAN_MORE \
    AS("libraries", JSON, json, "", "backend and its library"), \
    OF(parameters, WHOLE, "", "weights of the network, tied ones once"), \
    OF(trained_parameters, WHOLE, "", "those that are not frozen"), \
    OF(context, WHOLE, "", "of a decoder: the longest sequence that its configuration permits"), \
    OF(flops_per_token, REAL, "", "of a decoder, in training: 2 for each weight of a product in the forward pass, in " \
       "the gradient of inputs and in that of weights, and 2 T d for each of them and each causal attention of d " \
       "channels; without frozen layers 6 N + 6 L T d"), \
    OF(planned_steps, WHOLE, "", "number of the step that ends the run"), \
    AS("settings", JSON, json, "", "what decides the bits of the run, as manifests of checkpoints name it"), \
    AS("config", JSON, json, "", "the whole configuration"), {0}
#define NONFINITE \
    OF(nonfinite, TEXT, "", "what was not finite: loss or gradient"), \
    OF(parameter, TEXT, "", "of a gradient, the first in network order")

static const struct event_field start[] = {BEGAN, BEGAN_MORE},
resume[] = {BEGAN, OF(step, WHOLE, "", "of the checkpoint, 0 for none"), BEGAN_MORE},
weights[] = {
    OF(file, TEXT, "", "file or folder"), OF(which, TEXT, "", "for a run directory: which of its weights"), {0}},
step[] = {
    OF(step, WHOLE, "", "from 1"), OF(epoch, WHOLE, "", "from 1"),
    AS("loss", SCORES, sums, "", "the exact mean over the samples of the step; other scores follow by name, null if "
       "undefined, as the Dice of an absent class"),
    IN("loss_bits", "", "its 64 bits"), IN("accuracy", "", "top-1"),
    OF(lr, EXACT, "", "learning rate"), OF(grad_norm, EXACT, "", "if gradients are clipped"),
    OF(grad_hash, TEXT, "", "digest of the squared norms of all weights' gradients, in network order; left out if one "
       "is not finite"),
    OF(samples, WHOLE, "", "how many"), OF(tokens, WHOLE, "", "of a decoder: how many"),
    OF(targets, WHOLE, "", "of a decoder: labels that count"),
    OF(skipped, FLAG, "", "true if a value was not finite and nothing was updated"),
    AS("step_seconds", SECONDS, ns, "s", "from order to last report"), OF(samples_per_second, REAL, "1/s", ""),
    OF(tokens_per_second, REAL, "1/s", "of a decoder"),
    OF(flops_per_second, REAL, "1/s", "of convolutions, products and attention: forward pass, and what the backward "
       "pass needs; recomputation does not count"),
    OF(mfu, REAL, "", "model FLOPs utilisation: of the speed of matrix products that all ranks measured at the start, "
       "at once; not on GPUs"),
    AS("stages", STAGES, result, "", "see below"), {0}},
skip[] = {
    OF(step, WHOLE, "", ""), NONFINITE, OF(in_a_row, WHOLE, "", "number of skipped steps in a row"), {0}},
rerun[] = {
    OF(step, WHOLE, "", ""), OF(damaged, WHOLE, "", "number of corrupted tensors"),
    OF(from, WHOLE, "rank", "of a single tensor"), OF(to, WHOLE, "rank", "of a single tensor"), {0}},
rollback[] = {
    OF(step, WHOLE, "", ""), NONFINITE, OF(to, WHOLE, "", "step of the checkpoint"),
    OF(position, WHOLE, "", "next sample in the order of samples, from 0"),
    OF(times, WHOLE, "", "how often this checkpoint was used"), {0}},
evaluation[] = {
    OF(step, WHOLE, "", ""), OF(epoch, WHOLE, "", ""),
    AS("loss", SCORES, sums, "", "and other scores as above, over all test samples"),
    IN("loss_bits", "", ""), IN("accuracy", "", ""), IN("top5", "", "accuracy of the five most likely classes"),
    OF(perplexity, REAL, "", "of a decoder: e to the power of the loss"),
    OF(bits_per_byte, REAL, "", "of a decoder, where the bytes of the text are known: the loss in bits, divided by "
       "the mean number of bytes of the tokens that are tested"),
    OF(targets, WHOLE, "", "of a decoder: labels that count"),
    OF(samples, WHOLE, "", ""), AS("evaluation_seconds", SECONDS, ns, "s", ""), {0}},
prediction[] = {
    OF(samples, WHOLE, "", ""), OF(file, TEXT, "", "output"),
    AS("prediction_seconds", NUMBER, seconds, "s", ""), {0}},
generated[] = {
    OF(step, WHOLE, "", ""), AS("index", JSON, json, "", "of the prompt, from 0"),
    AS("prompt_tokens", JSON, json, "", "how many"), AS("ids", JSON, json, "", "tokens that were added"),
    AS("text", JSON, json, "", "the same as text, where there is a tokenizer"),
    AS("reason", JSON, json, "", "why it ends: eos, stop, length, context or nonfinite"),
    AS("logprobs", JSON, json, "", "with generate.logprobs"), {0}},
generation[] = {
    OF(step, WHOLE, "", "with generate.every_steps"),
    OF(prompts, WHOLE, "", "how many"), OF(tokens, WHOLE, "", "that were added to them"),
    OF(prefill_seconds, NUMBER, "s", "of batches with the prompts' tokens, but for the last of each"),
    OF(decode_seconds, NUMBER, "s", "of batches with one token a sequence"),
    OF(tokens_per_second, REAL, "1/s", "tokens / decode_seconds"), {0}},
account[] = {
    AS("counted_steps", JSON, json, "", "without the first, short last batches and those after a pause"),
    AS("costs", JSON, json, "", "the name of the profile, else those measured in the first steps, or estimated in runs "
       "without later steps"),
    AS("predicted", JSON, json, "", "by the plan"), AS("measured", JSON, json, "", ""),
    AS("error", JSON, json, "", "of the prediction: predicted / measured - 1"),
    AS("stages", JSON, json, "", "the same of each stage, with its parts"),
    IN("stage", "", ""), IN("seconds", "s", "of a step"),
    IN("bubble", "", "share of the step, which here includes waits between steps"),
    IN("bytes", "B", "Measured: growth of the process by allocation; for GPUs, threads of one process and plans below "
       "128 MiB, what the stage allocated. Predicted: plan_bytes, for a whole process plus samples read ahead and its "
       "growth while kernels were created"),
    IN("plan_bytes", "B", "of the plan alone"), IN("between_steps_seconds", "s", "until the next order"),
    IN("unaccounted", "", "share of wall time in no part, which is meaningless for a few steps"), {0}},
checkpoint[] = {
    OF(step, WHOLE, "", ""), OF(name, TEXT, "", "its folder"), OF(bytes, WHOLE, "B", "of weights and optimizer"),
    OF(seconds, NUMBER, "s", "since the end of the step"), {0}},
checkpoint_failed[] = {
    OF(step, WHOLE, "", ""), OF(code, WHOLE, "", "exit status that it would be"), OF(text, TEXT, "", "why"), {0}},
damaged[] = {
    OF(step, WHOLE, "", "the last one"),
    OF(samples, WHOLE, "", "each counted once, or once per replica"), OF(text, TEXT, "", "the first, and why"), {0}},
straggler[] = {
    OF(step, WHOLE, "", ""), OF(rank, WHOLE, "", ""), OF(who, TEXT, "", "its host and process"),
    OF(factor, NUMBER, "", "how many times its usual time"), OF(over, BOOL, "", "it is normal again"),
    OF(since, WHOLE, "", "step at which it was found slow"), {0}},
pause[] = {OF(step, WHOLE, "", "the last one before"), AS("pause_seconds", NUMBER, seconds, "s", ""), {0}},
set[] = {
    OF(step, WHOLE, "", "the first one with it"), OF(key, TEXT, "", ""), OF(value, NUMBER, "", ""), {0}},
reload[] = {
    OF(step, WHOLE, "", "the first one with them"), AS("changed", JSON, json, "", "the new values as texts"), {0}},
failed[] = {OF(code, WHOLE, "", "exit status"), OF(text, TEXT, "", "the message"), {0}},
done[] = {
    OF(steps, WHOLE, "", ""), OF(weights_hash, TEXT, "", "if weights were written"),
    AS("weights_ranks", JSON, json, "", "which ranks held them: pairs of a rank and how many tensors, in the order of "
       "the file"),
    OF(reason, TEXT, "", "finished, stopped or patience (train.patience)"),
    OF(energy_joules, REAL, "J", "of the processor packages of rank 0's host during this process, with all that ran "
       "there; left out if not available, see MONITORING"),
    OF(gpu_energy_joules, REAL, "J", "the same of this run's GPUs on that host"),
    OF(trained_samples, WHOLE, "", "of the whole run"), AS("total_seconds", SECONDS, ns, "s", "of this process"), {0}};

const struct event_field event_stage[] = {
    IN("stage", "", "the first of the rank"), IN("rank", "", ""),
    IN("forward_seconds", "s", "forward pass"),
    IN("input_grad_seconds", "s", "the half of the backward pass for gradients of inputs"),
    IN("weight_grad_seconds", "s", "its half for gradients of weights"),
    IN("recompute_seconds", "s", "recomputation"),
    IN("optimizer_seconds", "s", "updating weights and statistics"),
    IN("transfer_seconds", "s", "moving tensors while nothing else could run"),
    IN("wait_upstream_seconds", "s", "waiting for an activation of an earlier stage"),
    IN("wait_downstream_seconds", "s", "waiting for a gradient of a later stage or another replica"),
    IN("checkpoint_seconds", "s", "waiting until a checkpoint has read the state that the optimizer will change"),
    IN("load_seconds", "s", "waiting for data.workers to read samples, or reading them without workers, and copying "
       "them to the device"),
    IN("weights_wait_seconds", "s", "waiting for weights or optimizer state from pipeline.disk or "
       "pipeline.host_memory"),
    IN("other_seconds", "s", "measured bookkeeping, not the remainder"),
    IN("bubble", "", "share of the step spent waiting"),
    IN("peak_bytes", "B", "memory the stage holds: on a GPU as allocated by the driver, elsewhere the buffers of its "
       "plans"),
    {0}};

const struct event_row event_rows[EVENT_LINES] = {
    [EVENT_START] = {"start", "A run begins.", start},
    [EVENT_RESUME] = {"resume", "A run is continued.", resume},
    [EVENT_WEIGHTS] = {"weights", "Of an evaluation or prediction: the weights it uses.", weights},
    [EVENT_STEP] = {"step", "A step has ended.", step},
    [EVENT_SKIP] = {"skip", "With train.nonfinite=skip, after the line of such a step.", skip},
    [EVENT_RERUN] = {"rerun", "After the line of a step that was repeated because of corrupted tensors.", rerun},
    [EVENT_ROLLBACK] = {"rollback", "With train.nonfinite=rollback, when all ranks are back. Steps after it follow "
                        "again with other samples; the later lines count.", rollback},
    [EVENT_EVALUATION] = {"evaluation", "An evaluation has ended.", evaluation},
    [EVENT_PREDICTION] = {"prediction", "A run that predicts has its output.", prediction},
    [EVENT_GENERATED] = {"generated", "With generate.every_steps: the text of a prompt.", generated},
    [EVENT_GENERATION] = {"generation", "All texts are there.", generation},
    [EVENT_ACCOUNT] = {"account", "Once, at the end: plan and measurement. The log has the same table.", account},
    [EVENT_CHECKPOINT] = {"checkpoint", "A checkpoint is on disk.", checkpoint},
    [EVENT_CHECKPOINT_FAILED] = {"checkpoint_failed", "A checkpoint could not be written.", checkpoint_failed},
    [EVENT_DAMAGED] = {"damaged", "So many samples could not be decoded and were skipped. Written for the first, at "
                       "each doubling, and at the end.", damaged},
    [EVENT_STRAGGLER] = {"straggler", "A rank became slow, or normal again.", straggler},
    [EVENT_PAUSE] = {"pause", "A pause has ended.", pause},
    [EVENT_SET] = {"set", "A setting was changed by mpstagectl set.", set},
    [EVENT_RELOAD] = {"reload", "Settings were changed by mpstagectl reload.", reload},
    [EVENT_FAILED] = {"failed", "The run failed.", failed},
    [EVENT_DONE] = {"done", "The run succeeded.", done},
};

/* ---- lines ------------------------------------------------------------------------------------------------------- */

static void add_seconds(struct text *t, const char *key, uint64_t ns)
{
    text_add(t, ",\"%s\":%llu.%09llu", key, (unsigned long long)(ns / 1000000000),
             (unsigned long long)(ns % 1000000000));
}

static void add_real(struct text *t, const char *key, double x)
{
    if (isfinite(x)) text_add(t, ",\"%s\":%.9g", key, x);
    else text_add(t, ",\"%s\":null", key);
}

static void add_exact(struct text *t, const char *key, double x)
{
    char digits[32];
    if (isfinite(x)) text_add(t, ",\"%s\":%s", key, text_exact(x, digits));
    else text_add(t, ",\"%s\":null", key);
}

/* Adds values as decimals that read back, and of the loss the bits besides, which are for people who compare runs. */
static void add_scores(const struct scores *scores, const struct sums *s, bool test, struct text *t)
{
    for (int i = 0; i < scores->n; i++) {
        const struct score_style k = score_style(scores->of[i].name);
        double mean = score_mean(s->score, i);
        uint64_t bits;
        memcpy(&bits, &mean, sizeof bits);
        if (k.tests_only && !test) continue;
        if (!k.bits) add_exact(t, k.key, mean);
        else add_real(t, k.key, mean);
        if (k.bits) text_add(t, ",\"%s_bits\":\"0x%016llx\"", k.key, (unsigned long long)bits);
    }
}

/* Adds the account of each rank, named by the first of its stages. */
static void add_stages(const struct result *r, const struct job *j, struct text *t)
{
    text_add(t, ",\"stages\":[");
    for (int i = 0; i < job_world(j); i++) {
        uint64_t part[ACC_COUNT];
        double waited = account_of(&r->rep[i], r->ns, part);
        text_add(t, "%s{\"stage\":%d,\"rank\":%d", i ? "," : "", job_stage(j, i), i);
        for (int k = 0; k < ACC_COUNT; k++) add_seconds(t, account_name[k], part[k]);
        add_real(t, "bubble", waited);
        text_add(t, ",\"peak_bytes\":%llu}", (unsigned long long)r->rep[i].allocated_bytes);
    }
    text_add(t, "]");
}

static void add_json(struct text *t, const char *key, json_t *value)
{
    char *s = value ? json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    if (s) text_add(t, ",\"%s\":%s", key, s);
    free(s);
}

static void add_own(struct text *t, const char *key, json_t *value)
{
    add_json(t, key, value);
    json_decref(value);
}

/* Names of files and hosts may not be UTF-8, which JSON requires. */
static void add_text(struct text *t, const char *key, const char *s)
{
    if (!s) return;
    size_t n = 4 * strlen(s) + 1;
    char *clean = mem_alloc(n);
    add_own(t, key, json_string(text_printable(s, clean, n)));
    free(clean);
}

static void add_field(const struct event *ev, const struct event_field *f, const struct job *j,
                      const struct scores *scores, struct text *t)
{
    const void *at = (const char *)ev + f->at;
    switch (f->type) {
    case FIELD_WHOLE:
        if (*(const int64_t *)at >= 0) text_add(t, ",\"%s\":%lld", f->key, (long long)*(const int64_t *)at);
        break;
    case FIELD_REAL: if (*(const double *)at >= 0) add_real(t, f->key, *(const double *)at); break;
    case FIELD_EXACT: if (*(const double *)at >= 0) add_exact(t, f->key, *(const double *)at); break;
    case FIELD_NUMBER: add_own(t, f->key, json_real(*(const double *)at)); break;
    case FIELD_SECONDS: add_seconds(t, f->key, *(const uint64_t *)at); break;
    case FIELD_FLAG: if (*(const bool *)at) text_add(t, ",\"%s\":true", f->key); break;
    case FIELD_BOOL: text_add(t, ",\"%s\":%s", f->key, *(const bool *)at ? "true" : "false"); break;
    case FIELD_TEXT: add_text(t, f->key, *(const char *const *)at); break;
    case FIELD_SCORES: add_scores(scores, ev->sums, ev->kind == EVENT_EVALUATION, t); break;
    case FIELD_STAGES: if (ev->result) add_stages(ev->result, j, t); break;
    case FIELD_JSON: add_json(t, f->key, json_object_get(ev->json, f->key)); break;
    case FIELD_WITHIN: break;
    }
}

void event_line(const struct event *ev, const struct job *j, const struct scores *scores, struct text *t)
{
    const struct event_row *r = &event_rows[ev->kind];
    text_add(t, "{\"event\":\"%s\"", r->name);
    for (const struct event_field *f = r->field; f->key; f++) add_field(ev, f, j, scores, t);
    text_add(t, "}");
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

struct event event_of_step(const struct result *r, int n_ranks, const struct event_rates *k, struct sums *s)
{
    *s = (struct sums){0};
    sums_add(s, r, n_ranks);
    double rate = r->ns ? (double)s->samples * 1e9 / (double)r->ns : 0, flops = rate * k->flops;
    const double tokens = r->o.tokens > 0 ? r->o.tokens : (double)(k->tokens * s->samples);
    struct event ev = {.kind = EVENT_STEP, .result = r, .sums = s, .step = (int64_t)r->o.step, .ns = r->ns,
                          .epoch = (int64_t)r->epoch, .lr = r->o.learning_rate, .grad_norm = r->rep[0].grad_norm,
                          .grad_hash = *r->rep[0].grad_hash ? r->rep[0].grad_hash : NULL,
                          .samples = s->samples, .skipped = r->rep[0].nonfinite,
                          .samples_per_second = rate, .flops_per_second = flops > 0 ? flops : -1,
                          .mfu = flops > 0 && k->peak > 0 ? flops / k->peak : -1,
                          .tokens = k->tokens ? (int64_t)tokens : -1,
                          .tokens_per_second = k->tokens && r->ns ? tokens * 1e9 / (double)r->ns : -1};
    event_of_tokens(&ev, k);
    return ev;
}

void event_of_tokens(struct event *ev, const struct event_rates *k)
{
    ev->targets = k->tokens ? (int64_t)ev->sums->score[0].denominator : -1;
    ev->perplexity = k->tokens ? exp(score_mean(ev->sums->score, 0)) : -1;
    ev->bits_per_byte = k->tokens && k->label_bytes > 0 ? score_mean(ev->sums->score, 0) / log(2) / k->label_bytes : -1;
}

void event_nonfinite(struct event *ev, const struct graph *g, int what)
{
    ev->nonfinite = what == NONFINITE_LOSS ? "loss" : "gradient";
    if (what != NONFINITE_LOSS) ev->parameter = g->param[what - NONFINITE_GRADIENT].name;
}

/* ---- the manual -------------------------------------------------------------------------------------------------- */

static void fields_manual(const struct event_field *f, struct text *out)
{
    static const char *const type[] = {"integer", "number", "number", "number", "number", "true", "true or false",
                                       "text", "number", "list", "value", "number"};
    text_add(out, ".Bl -tag -width padding -compact\n");
    for (; f->key; f++)
        text_add(out, ".It Cm %s\n\\&%s%s%s%s%s.\n", f->key, type[f->type], *f->unit ? ", " : "", f->unit,
                 *f->text ? ": " : "", f->text);
    text_add(out, ".El\n");
}

void event_manual(struct text *out)
{
    text_add(out, ".Bl -tag -width Ds\n");
    for (int i = 0; i < EVENT_LINES; i++) {
        text_add(out, ".It Cm %s\n%s\n", event_rows[i].name, event_rows[i].text);
        fields_manual(event_rows[i].field, out);
    }
    text_add(out, ".El\n.Pp\nEach element of\n.Cm stages\nhas times that do not overlap and add up to\n"
             ".Cm step_seconds :\n");
    fields_manual(event_stage, out);
}

static void fields_keys(const char *event, const struct event_field *f, struct text *out)
{
    for (; f->key; f++) text_add(out, "%s %s\n", event, f->key);
}

void event_keys(struct text *out)
{
    for (int i = 0; i < EVENT_LINES; i++) fields_keys(event_rows[i].name, event_rows[i].field, out);
    fields_keys("stage", event_stage, out);
}
