/* The configuration: one open struct, filled from a file and from overrides by way of one option table (table.c).
 *
 * Pure: reads the named file, nothing else. Everybody from model upwards may read a struct conf; nobody writes it after
 * conf_finish and conf_expand: who wants another one makes a copy (conf_copy, or a struct on the stack). To add an
 * option: one field here, one row in table.c. Parser, range check, --print-config, manual and error texts come from the
 * row.
 *
 * This folder: the option table, parser, ranges and rules between options (rules.c), --print-config (print.c), the
 * command line (opts.c), the file read again during a run (reload.c). See docs/design/conf.md. */
#ifndef CONF_CONF_H
#define CONF_CONF_H
#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"
#include "base/mem.h"
#include "base/text.h"

#define CONF_LIST 16                                    /* longest list */
enum { MAX_REPLICAS = 64 };
struct conf_ints { int n; int64_t v[CONF_LIST]; };
struct conf_reals { int n; double v[CONF_LIST]; };
struct conf_texts { int n; const char *v[CONF_LIST]; };
struct conf_stage { const char *first, *last; int line; };

struct conf {
    struct arena *mem;                                  /* owns every string */
    const char *file;                                   /* as given; messages start with it */
    struct {
        const char *name, *directory, *device, *transport, *init_from, *dump_gradients, *trace, *kernel_table;
        const char *kernel_candidates, *resume;         /* resume: no, yes, force */
        const char *predict, *predict_tensor;           /* predict set: evaluate, too, but without labels */
        struct conf_texts init_rename, init_missing, init_extra;   /* rules and patterns (base/glob.h) */
        int64_t seed, threads, trace_steps, transfer_timeout, nccl_max_ctas, hang_timeout, verify_every;
        bool overwrite, evaluate, allow_shared_gpu, graphs, kernel_times, try_compiled, overlap_wgrad;
        bool over_predictions;                          /* no option: was run.overwrite set beside run.predict? */
    } run;
    struct {
        const char *network, *graph;                    /* exactly one is set */
        struct conf_ints input;                         /* shape of one sample, channels first */
        struct conf_ints hidden;                        /* mlp: widths of the hidden layers */
        int64_t classes;
        double dropout;                                 /* mlp */
        bool zero_init_residual, small_stem;
    } model;
    struct {
        const char *source, *labels;                    /* a format; onehot, class, vector */
        const char *train, *train_labels, *test, *test_labels;
        bool shuffle;
        struct conf_reals mean, std;                    /* one value, or one a channel */
        struct conf_ints resize, pad;                   /* height, width; resize also: the shorter side */
        const char *damaged; bool upright, scaled_decoding;   /* images; damaged: error, skip */
        struct conf_texts augment;                      /* entries of a list (data/augment.h) */
        /* volumes: millimetres and voxels along x, y and z; "37=1", "binary"; x, y, z; bytes */
        struct conf_reals spacing; struct conf_ints size; const char *intensity, *axes;
        struct conf_texts label_map, flip; double foreground; int64_t folds, fold; struct conf_ints cache;
        double validation;                              /* the share of training samples that is kept to test with */
        /* samples: of synthetic data, or a limit on files (0: all) */
        int64_t channels, samples, test_samples, prefetch, workers;
    } data;
    struct {
        int64_t batch_size, split_size, gradient_groups, steps, epochs, evaluate_every, evaluate_epochs;
        const char *last_batch;
        int64_t evaluate_batch_size;
        const char *loss, *optimizer, *schedule, *schedule_by, *batch_norm, *precision;
        const char *nonfinite; int64_t nonfinite_limit; /* stop, skip or rollback; how often in a row */
        int64_t dice_power; bool dice_background;
        double learning_rate, momentum, weight_decay, clip_norm, clip_value, beta1, beta2, epsilon, label_smoothing;
        double ema;                                     /* what an average of weights keeps at each step; 0: none */
        bool nesterov, evaluate;
        bool confusion;
        int64_t patience;                               /* evaluations; 0: any number */
        /* the schedule of the rate (optim/rate.h): milestones, step_size: by steps or epochs (schedule_by) */
        struct conf_ints milestones;
        double gamma, learning_rate_end, power, warmup_factor;
        int64_t step_size, warmup_steps, warmup_epochs;
        struct conf_texts scores;                       /* operators beside the loss */
        /* patterns; PATTERN=FACTOR (model/groups.c) */
        struct conf_texts freeze, learning_rate_factors, weight_decay_factors;
    } train;
    struct {
        const char *schedule, *partition, *rows, *backward, *profile;
        struct conf_ints profile_sizes;
        double profile_spread;
        int64_t stages, replicas, bucket_kib, bundle, ranks, cores, in_flight;
        const char *reduce, *shard_optimizer;
        bool read_in_place;
        struct conf_ints max_memory;                    /* bytes: one for all ranks, or one a rank; none: no limit */
        struct conf_reals speed;                        /* relative, one a rank; none: all alike */
        struct conf_texts no_split;
        const char *recompute;                          /* none, all, auto */
        struct conf_ints recompute_stages;
        struct conf_texts recompute_layers;
        /* training, weights: what the policies that go by bytes count */
        const char *count_bytes;
        struct conf_stage *stage; int n_stages;         /* manual: as written, in order */
    } pipeline;
    struct { int64_t every_steps, keep; double every_seconds; const char *best; } checkpoint;
    struct {
        const char *progress, *control; int64_t log_every; bool tensorboard; const char *metrics;
        int64_t metrics_every, stages_every;
    } service;
    int32_t *line;                                      /* per row of the table: line in the file, or: */
#define CONF_DEFAULT 0
#define CONF_OVERRIDE (-1)
#define CONF_DERIVED (-2)                               /* by conf_finish or conf_derive, from something else */
    const char **what;                                  /* per row: how messages call its override */
    bool expanded;                                      /* file names are as conf_expand leaves them */
};

/* Reads FILE. On failure: e->text is "FILE:LINE: message", code 78 (66 if the file is missing). */
struct conf *conf_load(const char *file, struct err *e);
/* Adds the text of FILE to t, for conf_parse; it may be a pipe, which can be read once. 78, 66. */
int conf_text_read(const char *file, struct text *t, struct err *e);
/* the same from memory; file is only named */
struct conf *conf_parse(const char *file, const char *text, size_t n, struct err *e);
/* "SECTION.KEY=VALUE" from -o; what = how messages call it ("-o train.steps=x", "--steps"). Texts need no quotes and
 * know no escapes. 78, or 64 if there is no such key. */
int conf_set(struct conf *c, const char *what, const char *assignment, struct err *e);
/* The value of SECTION.KEY as conf_value gives it; NULL: it has none. 78. */
int conf_put(struct conf *c, const char *key, const char *value, struct err *e);
void conf_stage_add(struct conf *c, struct conf_stage st);  /* one more stage section; the names are copied */
/* The key that somebody may have meant who wrote this, with its section; NULL if none is near. */
const char *conf_nearest(const char *name);
/* Rules between options, and what follows from others (directory from name, stages from sections). Call once after all
 * overrides. */
int conf_finish(struct conf *c, struct err *e);
/* Then, file names as they are meant: $NAME and ${NAME} are what get says (getenv), ~ at the beginning is HOME, $$ is $
 * itself. Once. 78 names the variable that is not set. */
int conf_expand(struct conf *c, char *(*get)(const char *name), struct err *e);
/* The same names for another process, which has read the same configuration, but may have another environment. */
void conf_files_give(const struct conf *c, struct text *out);
void conf_files_take(struct conf *c, const struct text *names);
/* Calls f with every file and folder that the configuration names to be read, and the key that names it; the
 * configuration itself first, with "". */
void conf_inputs(const struct conf *c, void (*f)(void *ctx, const char *key, const char *file), void *ctx);
/* The same values to change: fields, conf_set, conf_stage_add and conf_derive leave c as it is. Lives as long as c;
 * nobody frees it. */
struct conf *conf_copy(const struct conf *c);
/* Fills in, before anybody else has c, what follows from something else, or what a graph file decides: a value of the
 * option's own kind, which must live as long as c. A bug of the caller aborts. */
void conf_derive(struct conf *c, const char *key, const char *value);
/* Sets e to 78 with where SECTION.KEY was set: "FILE:LINE: KEY: ", the override's name, or "FILE: KEY: " for a default.
 * Returns -1. */
int conf_error(const struct conf *c, const char *key, struct err *e, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* The value of SECTION.KEY, which is a number, or yes (1) or no (0). A bug of the caller aborts. */
double conf_number(const struct conf *c, const char *key);
/* Has SECTION.KEY, which is no list, another value than its default? */
bool conf_differs(const struct conf *c, const char *key);
/* Calls f with every option that decides the bits of a run and its value as text, NULL where it has none: a run that
 * goes on from a checkpoint wants all of them as they were. */
void conf_decides(const struct conf *c, void (*f)(void *ctx, const char *key, const char *value), void *ctx);
bool conf_saves(const struct conf *c);                  /* does the run write checkpoints by itself? */
bool conf_rolls_back(const struct conf *c);             /* train.nonfinite = rollback */
bool conf_is_live(const char *key);                     /* may a run that goes on take another value of it? */
bool conf_follows(const char *key);                     /* may what conf_decides says of it change with such a one? */
/* Calls f with each key that has another value in b than in a, and whether a run that goes on may take it; stage
 * sections are "pipeline.stage". */
void conf_compare(const struct conf *a, const struct conf *b, void (*f)(void *ctx, const char *key, bool live),
                  void *ctx);
/* Adds the value of SECTION.KEY as it stands in a file; nothing if it has none. */
void conf_value(const struct conf *c, const char *key, struct text *out);
/* The effective configuration: text that conf_parse reads back to an equal struct; or JSON. */
void conf_print(const struct conf *c, struct text *out);
char *conf_json(const struct conf *c);                  /* free() it */
/* What a command line says of SECTION.KEY: the beginning of its text in the table, and its words. */
void conf_help(const char *key, struct text *out);
/* SECTION.KEY of the i-th option; NULL: there are no more. */
const char *conf_key(int i);
/* What a value of SECTION.KEY may be: adds its words, with spaces between, or nothing; *file: it names a file. */
void conf_words(const char *key, bool *file, struct text *out);
/* mdoc source of the option list in mpstaged.conf(5), made from the table. */
void conf_manual(struct text *out);
void conf_free(struct conf *c);

#endif
