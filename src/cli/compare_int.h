/* Shared by compare.c (the answer), compare_metrics.c (steps and settings) and compare_tensors.c (checkpoints and
 * weights). */
#ifndef CLI_COMPARE_INT_H
#define CLI_COMPARE_INT_H
#include "base/mem.h"
#include "base/text.h"
#include "ckpt/checkpoint.h"
#include "report/event.h"

/* The line of a step or an evaluation: where it lies in metrics.jsonl, and its bytes. */
struct run_record { uint64_t step; enum event_kind kind; uint64_t at; size_t bytes; };
/* What a start or a resumption computes, after that step. settings.n_settings 0: written before lines had settings, and
 * numbers all their digits. */
struct run_part { uint64_t step; struct ckpt settings; };
struct compared_run {
    const char *dir;
    char *path; int fd;                                   /* its metrics.jsonl */
    VEC(struct run_record) record;                        /* that count, ascending by step and kind */
    VEC(struct run_part) part;                            /* ascending by step */
    uint64_t last;                                        /* step */
    int64_t every;                                        /* service.metrics_every */
    bool ended, done;                                     /* ended: last is its last one; done: with weights */
    json_t *ranks;                                        /* of these: weights_ranks of its last line, NULL: unknown */
};

/* The first place where two runs have other bits. */
struct run_difference {
    bool found;
    uint64_t step;
    const char *in;                                       /* "step", "evaluation", "checkpoint", "weights" */
    struct text what;                                     /* the key of metrics.jsonl, or the tensor */
    int only;                                             /* which run alone has it; -1: both have */
    int64_t element;                                      /* of the tensor, row-major from 0; -1: its shape or type */
    struct text value[2];
    int rank[2];                                          /* that owns the tensor; -1: unknown */
    int differ, tensors;                                  /* how many tensors differ, of how many */
};
/* A setting that decides bits, from that step on. Borrowed from the parts; NULL: unset. */
struct setting_difference { uint64_t step; const char *key, *value[2]; };

struct run_comparison {
    struct compared_run run[2];
    VEC(struct setting_difference) setting;
    struct run_difference metrics, tensors;
    int64_t steps, evaluations, checkpoints;              /* how many are equal, each up to its first difference */
    int64_t removed;                                      /* checkpoints that a run has removed meanwhile */
    uint64_t last_checkpoint;
    bool weights;
};

/* Two numbers that differ, with as few digits as show it. */
void number_texts(double a, double b, struct text value[2]);
void run_difference_free(struct run_difference *d);
/* Opens metrics.jsonl and notes where its records lie. 65, 66, 74, 77. After a failure too, close. */
int compared_run_open(struct compared_run *r, const char *dir, struct err *e);
void compared_run_close(struct compared_run *r);
int records_compare(struct run_comparison *c, struct err *e);
void settings_compare(struct run_comparison *c);
int checkpoints_compare(struct run_comparison *c, struct err *e);
int final_weights_compare(struct run_comparison *c, struct err *e);
#endif
