/* Shows the progress of a run to people: plain lines every service.log_every steps, or one rewritten line while
 * somebody watches a terminal: the reporter "progress". */
#ifndef REPORT_PROGRESS_H
#define REPORT_PROGRESS_H
#include <jansson.h>
#include "cluster/terminal.h"
#include "job/job.h"
#include "report/scores.h"

struct progress {
    const struct job *job;
    const struct conf *conf;
    const struct terminal *screen;
    int columns;                                          /* of the terminal at the last tick; 0: nobody watches */
    uint64_t steps, step, began, samples;
    uint64_t epochs, epoch;                               /* epochs: of the whole run; 0: unknown */
    uint64_t done, seconds_ns;                            /* steps that this process has run, and their durations */
    uint64_t heard;                                       /* clock_ns of the last result, or of the start */
    struct scores scores;
    double score[MAX_SCORES], test_score[MAX_SCORES];     /* of the last step, of the last evaluation */
    double rate;
    bool tested;
    /* samples of the running evaluation; test_done 0: none runs */
    uint64_t test_done, test_all, test_ns;
    uint64_t last_ns;                                     /* duration of the last step or batch of an evaluation */
    /* of the last step; ACC_COUNT for each stage, which add up to step_ns */
    uint64_t step_ns, *part, *bytes;                      /* bytes: for each stage, peak_bytes of metrics.jsonl */
    bool paused;                                          /* no result is expected */
};
/* Prints the progress line in at most that many columns: shortens fields that do not fit, then leaves them out. now:
 * clock_ns. */
void progress_line(const struct progress *p, uint64_t now, int columns, char *buf, size_t n);
/* Adds how far the run is, in few words; brief: without the samples of an evaluation. */
void progress_words(const struct progress *p, bool brief, struct text *t);
/* For how long no step or batch has ended, if that is much longer than usual; otherwise 0. now: clock_ns. */
uint64_t progress_idle_ns(const struct progress *p, uint64_t now);
/* Adds epoch, scores, rate, account, eta if known, and the progress of an evaluation. awaited: steps or batches are
 * running. If none has ended for long, that time replaces rate and eta. */
void progress_json(const struct progress *p, bool awaited, json_t *o);
#endif
