/* What happens in a run, as reporters are told (reporter.h), and the one table of what metrics.jsonl has of it. The
 * manual's section METRICS is made of that table, and tests/documented.sh compares it with what runs write. Pure. */
#ifndef REPORT_EVENT_H
#define REPORT_EVENT_H
#include <jansson.h>
#include "report/result.h"
#include "report/scores.h"

enum event_kind {
    /* a line of metrics.jsonl; START becomes RESUME where the file or a checkpoint has an earlier part of the run */
    EVENT_START, EVENT_RESUME, EVENT_WEIGHTS, EVENT_STEP, EVENT_SKIP, EVENT_RERUN, EVENT_ROLLBACK, EVENT_EVALUATION,
    EVENT_PREDICTION, EVENT_GENERATED, EVENT_GENERATION, EVENT_ACCOUNT, EVENT_CHECKPOINT, EVENT_CHECKPOINT_FAILED,
    EVENT_DAMAGED, EVENT_STRAGGLER, EVENT_PAUSE, EVENT_SET, EVENT_RELOAD, EVENT_FAILED, EVENT_DONE, EVENT_LINES,
    /* No line. PLANNED: the run now ends with `step`. BATCH: one of an evaluation; sums: of all so far. COSTS: numbers
     * of the first steps (warmup_costs.h). PAUSING: a pause begins, which PAUSE ends. TICK: now and then; `held` while
     * a pause lets nothing run. STATUS: add to `json` for mpstagectl; `held` unless something runs. PAGE: add to `page`
     * for Prometheus. END: the last step has ended, and before DONE or FAILED; text: lines for people, or NULL. */
    EVENT_PLANNED = EVENT_LINES, EVENT_BATCH, EVENT_COSTS, EVENT_PAUSING, EVENT_TICK, EVENT_STATUS, EVENT_PAGE,
    EVENT_END, EVENT_KINDS
};

/* Fields have the names of their keys. Which of them a kind has says its row. Sums are made once, by the sender. */
struct event {
    enum event_kind kind;
    const struct result *result;                          /* STEP, BATCH */
    const struct sums *sums;                              /* STEP, BATCH, EVALUATION */
    int64_t step, steps, epoch, samples, in_a_row, damaged, from, to, position, times, code, bytes, rank, since, pid;
    int64_t ranks, stage_count, planned_steps, trained_samples, tokens, targets, prompts, context;
    int64_t parameters, trained_parameters;
    double lr, grad_norm, samples_per_second, tokens_per_second, flops_per_second, mfu, perplexity, bits_per_byte;
    double flops_per_token, energy_joules, gpu_energy_joules, seconds, factor, value, prefill_seconds, decode_seconds;
    uint64_t ns;                                          /* how long it took */
    bool skipped, over, held;
    const char *text, *name, *who, *version, *time, *numerics, *plan, *nonfinite, *parameter, *file, *which, *reason;
    const char *weights_hash, *grad_hash, *key;
    json_t *json;                                         /* objects, by their keys; borrowed */
    const double *costs;
    const struct conf *conf;                              /* RELOAD: the new settings */
    struct text *page;
    bool openmetrics;                                     /* PAGE: which of the two formats */
};

/* How a value is printed. Left out are WHOLE, REAL and EXACT below 0, NULL, and flags that are not set. REAL and EXACT:
 * null if not finite. EXACT: reads back to the same bits, as do scores, but not the loss, which has loss_bits. NUMBER:
 * all its digits. SECONDS: of ns. SCORES: all scores of the network. STAGES: the account of each rank. JSON: of
 * event.json by the key. WITHIN: inside the value of the row before it, or beside it. */
enum field_type { FIELD_WHOLE, FIELD_REAL, FIELD_EXACT, FIELD_NUMBER, FIELD_SECONDS, FIELD_FLAG, FIELD_BOOL,
                  FIELD_TEXT, FIELD_SCORES, FIELD_STAGES, FIELD_JSON, FIELD_WITHIN };
struct event_field { const char *key; enum field_type type; size_t at; const char *unit, *text; };
struct event_row { const char *name, *text; const struct event_field *field; };   /* ends with a row without a key */
extern const struct event_row event_rows[EVENT_LINES];
extern const struct event_field event_stage[];            /* of an element of `stages` */

/* Prints the line of an event without its end. */
void event_line(const struct event *ev, const struct job *j, const struct scores *scores, struct text *t);
/* What the rates of a step need: model FLOPs of a sample (job_flops), FLOPs a second of all devices together, 0 if
 * nobody measured them, and the tokens of a sample, 0 if it has none (job_tokens). */
struct event_rates { double flops, peak; int64_t tokens; double label_bytes; };
/* The sums and rates of a step that all ranks have reported; s: the caller's. */
struct event event_of_step(const struct result *r, int n_ranks, const struct event_rates *k, struct sums *s);
/* The labels that count, and the perplexity of a decoder's evaluation. */
void event_of_tokens(struct event *ev, const struct event_rates *k);
/* Whether NULL or text: "gradient" or "loss", and the parameter. */
void event_nonfinite(struct event *ev, const struct graph *g, int what);
/* What the manual says of all that, as mdoc; as lines "EVENT KEY", those of stages with "stage". */
void event_manual(struct text *out);
void event_keys(struct text *out);
#endif
