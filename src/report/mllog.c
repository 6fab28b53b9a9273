/* RUN/mllog.txt (service.mllog): the lines ":::MLLOG {...}" that MLPerf's compliance checker reads. Training between
 * evaluations is a block. Where steps run again, after a resume or a roll-back, the lines of their first time are
 * removed; the run's own interval goes on, so that its time counts what was lost. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "base/proc.h"
#include "cluster/thread_liveness.h"
#include "report/json_name.h"
#include "report/reporter.h"

static const char file_name[] = "mllog.txt", point[] = "POINT_IN_TIME", begins[] = "INTERVAL_START",
                  ends[] = "INTERVAL_END";

/* block: one has begun and not ended. evaluating: the same of an evaluation. samples: that were trained. ms: the time
 * of the newest line. */
struct mllog {
    struct out_records file;
    const struct job *job;
    struct scores scores;
    int64_t step, samples, epoch, ms;
    bool block, evaluating;
    struct text lines;                                    /* of an event; written together */
};

/* ---- what the configuration says --------------------------------------------------------------------------------- */

static json_t *train_samples(const struct job *j) { return json_integer((json_int_t)j->count[DS_TRAIN]); }
static json_t *eval_samples(const struct job *j) { return json_integer((json_int_t)j->count[DS_TEST]); }
static json_t *max_steps(const struct job *j) { return json_integer((json_int_t)job_steps(j)); }
static json_t *stages(const struct job *j) { return json_integer(j->mesh.size[AXIS_PP]); }
static json_t *one(const struct job *j) { (void)j; return json_integer(1); }
static json_t *optimizer(const struct job *j) { return json_string(conf_word(j->conf, "train.optimizer")); }
static json_t *config_file(const struct job *j) { return json_name(j->conf->file); }

static int64_t micro_batch_of(const struct job *j)
{
    const int64_t batch = j->conf->train.batch_size / j->mesh.size[AXIS_DP], split = j->conf->train.split_size;
    return split < batch ? split : batch;
}

static json_t *micro_batch(const struct job *j) { return json_integer(micro_batch_of(j)); }

static json_t *accumulation(const struct job *j)
{
    const int64_t samples = micro_batch_of(j) * j->mesh.size[AXIS_DP];
    return json_integer((j->conf->train.batch_size + samples - 1) / samples);
}

static json_t *sequence_length(const struct job *j)
{
    const int64_t n = job_tokens(j);
    return n ? json_integer(n) : NULL;
}

static json_t *precision(const struct job *j)
{
    const char *word = conf_word(j->conf, "train.precision");
    return json_string(strcmp(word, "bf16") ? word : "bfloat16");
}

static json_t *sent_precision(const struct job *j)
{
    return json_string(j->conf->train.precision == WANT_BF16 ? "bfloat16" : "fp32");
}

static json_t *schedule(const struct job *j)
{
    const bool warms = j->conf->train.warmup_steps || j->conf->train.warmup_epochs;
    return json_sprintf("%s%s", conf_word(j->conf, "train.schedule"), warms ? " with linear warmup" : "");
}

static bool rate_falls(const struct job *j)
{
    const enum rate_word kind = j->conf->train.schedule;
    return kind == RATE_cosine || kind == RATE_linear || kind == RATE_polynomial;
}

static json_t *end_rate(const struct job *j)
{
    return rate_falls(j) ? json_real(j->conf->train.learning_rate_end) : NULL;
}

static json_t *decay_steps(const struct job *j)
{
    if (!rate_falls(j) || j->conf->train.warmup_epochs) return NULL;
    return json_integer((json_int_t)job_steps(j) - j->conf->train.warmup_steps);
}

/* option: whose number it is; only: with this optimizer, 0: any. In an order in which the checker knows the batch and
 * the warm-up before what follows from them. */
static const struct mllog_row {
    const char *key, *option; enum optimizer_word only; json_t *(*of)(const struct job *j);
} mllog_rows[] = {
    {"seed", "run.seed"}, {"config_filename", .of = config_file},
    {"train_samples", .of = train_samples}, {"eval_samples", .of = eval_samples}, {"max_steps", .of = max_steps},
    {"global_batch_size", "train.batch_size"}, {"micro_batch_size", .of = micro_batch},
    {"gradient_accumulation_steps", .of = accumulation}, {"max_sequence_length", .of = sequence_length},
    {"pipeline_parallelism", .of = stages}, {"tensor_parallelism", .of = one}, {"context_parallelism", .of = one},
    {"expert_parallelism", .of = one}, {"lowest_numerical_precision_in_linear", .of = precision},
    {"lowest_numerical_precision_in_attn", .of = precision},
    {"lowest_numerical_precision_in_comm", .of = sent_precision},
    {"opt_name", .of = optimizer}, {"opt_base_learning_rate", "train.learning_rate"},
    {"opt_end_learning_rate", .of = end_rate},
    {"opt_learning_rate_warmup_steps", "train.warmup_steps"},
    {"opt_learning_rate_warmup_epochs", "train.warmup_epochs"},
    {"opt_learning_rate_decay_schedule", .of = schedule}, {"opt_learning_rate_decay_steps", .of = decay_steps},
    {"opt_weight_decay", "train.weight_decay"}, {"opt_gradient_clip_norm", "train.clip_norm"},
    {"opt_adamw_weight_decay", "train.weight_decay", OPTIM_adamw}, {"opt_adamw_beta_1", "train.beta1", OPTIM_adamw},
    {"opt_adamw_beta_2", "train.beta2", OPTIM_adamw}, {"opt_adamw_epsilon", "train.epsilon", OPTIM_adamw},
    {"opt_adam_beta_1", "train.beta1", OPTIM_adam}, {"opt_adam_beta_2", "train.beta2", OPTIM_adam},
    {"opt_adam_epsilon", "train.epsilon", OPTIM_adam},
    {"opt_lamb_weight_decay_rate", "train.weight_decay", OPTIM_lamb}, {"opt_lamb_beta_1", "train.beta1", OPTIM_lamb},
    {"opt_lamb_beta_2", "train.beta2", OPTIM_lamb}, {"opt_lamb_epsilon", "train.epsilon", OPTIM_lamb},
};
/* Those of events, which are made below. */
static const char *const event_keys_of[] = {"init_start", "init_stop", "run_start", "run_stop", "block_start",
    "block_stop", "eval_start", "eval_stop", "eval_accuracy"};
#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

static json_t *row_value(const struct mllog_row *r, const struct job *j)
{
    if (r->only && r->only != j->conf->train.optimizer) return NULL;
    if (r->of) return r->of(j);
    const double x = conf_number(j->conf, r->option);
    return x == floor(x) ? json_integer((json_int_t)x) : json_real(x);
}

/* ---- what the user says ------------------------------------------------------------------------------------------ */

static size_t key_length(const char *entry) { return strspn(entry, "abcdefghijklmnopqrstuvwxyz0123456789_"); }

static bool same_key(const char *entry, const char *key)
{
    const size_t n = key_length(entry);
    return n == strlen(key) && !strncmp(entry, key, n);
}

static bool is_own(const char *entry)
{
    for (int i = 0; i < COUNT(mllog_rows); i++) if (same_key(entry, mllog_rows[i].key)) return true;
    for (int i = 0; i < COUNT(event_keys_of); i++) if (same_key(entry, event_keys_of[i])) return true;
    return false;
}

static int mllog_check(const struct rundir *d, const struct conf *c, struct err *e)
{
    (void)d;
    for (int i = 0; i < c->service.mllog.n; i++) {
        const char *s = c->service.mllog.v[i];
        const size_t n = key_length(s);
        if (!n || s[n] != '=' || !s[n + 1])
            return conf_error(c, "service.mllog", e, "expected KEY=VALUE, as in submission_org=NAME, not %.60s", s);
        if (is_own(s)) return conf_error(c, "service.mllog", e, "the run itself writes %.*s", (int)n, s);
        for (int k = 0; k < i; k++)
            if (!strncmp(s, c->service.mllog.v[k], n + 1))
                return conf_error(c, "service.mllog", e, "%.*s is given twice", (int)n, s);
    }
    return 0;
}

/* A number, true, false or null as such; all else is text. */
static json_t *user_value(const char *text)
{
    json_t *v = json_loads(text, JSON_DECODE_ANY, NULL);
    if (v && !json_is_object(v) && !json_is_array(v)) return v;
    json_decref(v);
    return json_name(text);
}

/* ---- lines ------------------------------------------------------------------------------------------------------- */

/* Takes value and meta, which may be NULL. Times never fall: the clock may be set back, and a duration that is
 * subtracted from the time may begin before the line before. */
static void line_add(struct mllog *m, const char *type, const char *key, int64_t ms, json_t *value, json_t *meta)
{
    if (m->ms < ms) m->ms = ms;
    json_t *o = json_pack("{s:s,s:I,s:s,s:s,s:o,s:o}", "namespace", "", "time_ms", (json_int_t)m->ms, "event_type",
                          type, "key", key, "value", value ? value : json_null(), "metadata",
                          meta ? meta : json_object());
    char *s = json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(15));
    text_add(&m->lines, ":::MLLOG %s\n", s);
    free(s);
    json_decref(o);
}

static void step_add(struct mllog *m, const char *type, const char *key, int64_t ms, json_t *value)
{
    const bool block = !strncmp(key, "block", 5);
    line_add(m, type, key, ms, value, json_pack("{s:I,s:I,s:I}", block ? "first_epoch_num" : "epoch_num",
                                                (json_int_t)m->epoch, "samples_count", (json_int_t)m->samples,
                                                "step_num", (json_int_t)m->step));
}

static int lines_write(struct mllog *m, bool last, struct err *e)
{
    if (!m->lines.n) return 0;
    const char *before = liveness_wait_file(file_name);
    int bad = out_records_add(&m->file, m->lines.s, m->lines.n, last, e);
    liveness_wait_file(before);
    return bad;
}

static void block_end(struct mllog *m, int64_t ms)
{
    if (m->block) step_add(m, ends, "block_stop", ms, NULL);
    m->block = false;
}

static void header_lines(struct mllog *m)
{
    const struct conf_texts *given = &m->job->conf->service.mllog;
    const int64_t now = clock_unix_ms();
    const double start = proc_own_start() * 1000;
    bool clears = false;
    line_add(m, begins, "init_start", start > 0 && start < (double)now ? (int64_t)start : now, NULL, NULL);
    for (int i = 0; i < given->n; i++) {
        const char *s = given->v[i];
        char *key = strndup(s, key_length(s));
        clears |= same_key(s, "cache_clear");
        line_add(m, point, key, now, user_value(s + strlen(key) + 1), NULL);
        free(key);
    }
    if (!clears) line_add(m, point, "cache_clear", now, json_false(), NULL);
    for (int i = 0; i < COUNT(mllog_rows); i++) {
        json_t *v = row_value(&mllog_rows[i], m->job);
        if (v) line_add(m, point, mllog_rows[i].key, now, v, NULL);
    }
    line_add(m, ends, "init_stop", now, NULL, NULL);
    line_add(m, begins, "run_start", now, NULL, NULL);
}

/* ---- steps that run again ---------------------------------------------------------------------------------------- */

/* again: so will the evaluation after the step. block, ms: of the last line that is kept. */
struct mllog_cut { int64_t step, ms; bool again, block; };

static bool has_key(const char *line, const char *key)
{
    const char *at = strstr(line, "\"key\":\"");
    return at && !strncmp(at + strlen("\"key\":\""), key, strlen(key));
}

static bool is_dropped(void *ctx, const char *line, bool first)
{
    struct mllog_cut *c = ctx;
    const char *at = strstr(line, "\"step_num\":");
    const int64_t step = at ? strtoll(at + strlen("\"step_num\":"), NULL, 10) : -1;
    const bool unended = has_key(line, "run_stop") || has_key(line, "eval_start") || has_key(line, "eval_accuracy");
    /* a block that begins with the step itself follows its evaluation */
    const bool after = c->again && step == c->step && step > 0 && !has_key(line, "block_stop");
    const char *time = strstr(line, "\"time_ms\":");
    c->ms = time ? strtoll(time + strlen("\"time_ms\":"), NULL, 10) : 0;
    c->block = has_key(line, "block_start");
    return !first && (unended || step > c->step || after);
}

static int lines_cut(struct mllog *m, int64_t step, uint64_t position, bool again, struct err *e)
{
    struct mllog_cut c = {.step = step, .again = again};
    const struct feed_order o = job_order(m->job);
    if (out_records_cut(&m->file, is_dropped, &c, e)) return -1;
    m->step = step;
    m->samples = (int64_t)feed_taken(&o, position, (int)m->job->conf->train.batch_size);
    m->block = c.block;
    m->ms = c.ms;
    m->evaluating = false;
    return 0;
}

static int mllog_open(const struct report_run *q, void **self, struct err *e)
{
    bool had;
    if (!q->job->conf->service.mllog.n || q->job->conf->run.evaluate) return 0;
    struct mllog *m = *self = mem_alloc(sizeof *m);
    m->job = q->job;
    m->epoch = 1;
    graph_scores(q->job->graph, &m->scores);
    if (out_records_append(&m->file, q->dir->fd, q->dir->path, file_name, &had, e)) return -1;
    const struct ckpt *from = q->from;
    return lines_cut(m, from ? (int64_t)from->step : 0, from ? from->position : 0, from && from->evaluate, e);
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

static void step_take(struct mllog *m, const struct event *ev)
{
    m->epoch = ev->epoch;
    if (!m->block) step_add(m, begins, "block_start", clock_unix_ms() - (int64_t)(ev->ns / 1000000), NULL);
    m->block = true;
    m->step = ev->step;
    m->samples += ev->samples;
}

static void batch_take(struct mllog *m, const struct result *r)
{
    const int64_t began = clock_unix_ms() - (int64_t)(r->ns / 1000000);
    if (m->evaluating) return;
    block_end(m, began);
    step_add(m, begins, "eval_start", began, NULL);
    m->evaluating = true;
}

/* Of a language model it is the loss, as in MLPerf's own logs. */
static void evaluation_take(struct mllog *m, const struct event *ev)
{
    const int64_t now = clock_unix_ms();
    m->epoch = ev->epoch;
    step_add(m, point, "eval_accuracy", now, json_real(score_mean(ev->sums->score, scores_leading(&m->scores))));
    step_add(m, ends, "eval_stop", now, NULL);
    m->evaluating = false;
}

static void end_take(struct mllog *m, const struct event *ev)
{
    const bool good = ev->kind == EVENT_DONE && strcmp(ev->reason, "stopped");
    const int64_t now = clock_unix_ms();
    block_end(m, now);
    line_add(m, ends, "run_stop", now, NULL,
             json_pack("{s:s,s:I,s:I}", "status", good ? "success" : "aborted", "samples_count",
                       (json_int_t)m->samples, "step_num", (json_int_t)m->step));
}

static int mllog_on(void *self, const struct event *ev, struct err *e)
{
    struct mllog *m = self;
    m->lines.n = 0;
    switch (ev->kind) {
    case EVENT_START: if (!m->file.size) header_lines(m); break;
    case EVENT_STEP: step_take(m, ev); break;
    case EVENT_BATCH: batch_take(m, ev->result); break;
    case EVENT_EVALUATION: evaluation_take(m, ev); break;
    case EVENT_ROLLBACK: return lines_cut(m, ev->to, (uint64_t)ev->position, false, e);
    case EVENT_FAILED: case EVENT_DONE: end_take(m, ev); break;
    default: break;
    }
    return lines_write(m, ev->kind == EVENT_FAILED || ev->kind == EVENT_DONE, e);
}

static const struct out_records *mllog_file(const void *self) { return &((const struct mllog *)self)->file; }

static void mllog_close(void *self)
{
    struct mllog *m = self;
    out_records_close(&m->file);
    text_free(&m->lines);
    free(m);
}

const struct reporter reporter_mllog = {.name = "mllog", .required = true, .check = mllog_check, .open = mllog_open,
                                        .on = mllog_on, .file = mllog_file, .close = mllog_close};
