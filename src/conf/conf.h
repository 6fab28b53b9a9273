/* The configuration: one open struct, filled from a file and from overrides through one option table (table.c).
 *
 * Pure: reads only the named file. All code from model upwards may read a struct conf. No code writes it after
 * conf_finish and conf_expand: to change values, make a copy (conf_copy, or a struct on the stack). To add an option,
 * add a field here and a row in table.c. Parser, range check, --print-config, manual and error texts come from the row.
 *
 * This folder: the option table, parser, ranges and rules between options (rules.c), --print-config (print.c), the
 * command line (opts.c), reading the file again during a run (reload.c). See docs/design/conf.md. */
#ifndef CONF_CONF_H
#define CONF_CONF_H
#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"
#include "base/mem.h"
#include "base/text.h"
#include "conf/words.h"

#define CONF_LIST 16                                    /* longest list */
enum { MAX_DP = 64 };
struct conf_ints { int n; int64_t v[CONF_LIST]; };
struct conf_reals { int n; double v[CONF_LIST]; };
struct conf_texts { int n; const char *v[CONF_LIST]; };
struct conf_stage { const char *first, *last; int line; };

struct conf {
    struct arena *mem;                                  /* owns every string */
    const char *file;                                   /* as given; messages begin with it */
    struct {
        const char *name, *directory, *init_from, *dump_gradients, *trace, *kernel_table;
        enum device_word device; enum transport_word transport; enum kernel_candidates kernel_candidates;
        enum resume_mode resume;
        const char *predict, *predict_tensor;           /* predict implies evaluate, but needs no labels */
        struct conf_texts init_rename, init_missing, init_extra;   /* rules and patterns (base/glob.h) */
        int64_t seed, threads, trace_steps, transfer_timeout, nccl_max_ctas, hang_timeout, verify_every;
        int64_t stop_before_end;
        bool overwrite, evaluate, allow_shared_gpu, graphs, kernel_times, try_compiled;
        enum when emulate_bf16;
        const char *generate;                           /* implies evaluate, too; "-": standard output */
        bool exports;                                   /* not an option: --write-onnx, which implies evaluate */
        bool over_predictions;                          /* not an option: was run.overwrite set beside run.predict? */
    } run;
    struct {
        const char *prompts; struct conf_texts prompt, stop;
        int64_t every_steps, max_tokens, top_k, seed; double temperature, top_p; bool logprobs;
        int64_t slots, context;                         /* not options: of the cache, by the prompts (data/prompts.h) */
    } generate;
    struct {
        const char *network, *graph;                    /* exactly one is set */
        struct conf_ints input;                         /* shape of one sample, channels first */
        struct conf_ints hidden;                        /* mlp: widths of the hidden layers */
        int64_t classes;
        double dropout;                                 /* mlp */
        bool zero_init_residual, small_stem;
        enum when load_in_8bit;
        /* decoders (model/decoder.h): a folder or file of Hugging Face instead of a network; or sizes, 0: unset */
        const char *folder, *config;
        int64_t vocab_size, hidden_size, intermediate_size, num_hidden_layers, num_attention_heads;
        int64_t num_key_value_heads, head_dim, max_position_embeddings;
        double rms_norm_eps, rope_theta;
        enum tie_word tie_word_embeddings;
        enum save_type save_dtype; int64_t max_shard_size;   /* of RUN/model/ */
    } model;
    struct {
        enum data_source source; enum label_kind labels;
        const char *train, *train_labels, *test, *test_labels;
        bool shuffle;
        struct conf_reals mean, std;                    /* one value, or one a channel */
        struct conf_ints resize, pad;                   /* height, width; resize also: the shorter edge */
        enum damaged_policy damaged; bool upright, scaled_decoding;   /* images */
        struct conf_texts augment;                      /* entries of a list (data/augment.h) */
        /* volumes. spacing: millimetres along x, y, z; size: voxels; label_map: "37=1", "binary"; flip: x, y, z; cache:
         * bytes */
        struct conf_reals spacing; struct conf_ints size;
        enum intensity intensity; enum axes_order axes;
        struct conf_texts label_map, flip; double foreground; int64_t folds, fold; struct conf_ints cache;
        struct conf_texts train_text, test_text, train_jsonl, test_jsonl;
        enum packing_word packing; enum too_long too_long; const char *chat;
        struct conf_texts train_tokens, test_tokens;    /* files; tokens: */
        enum token_type token_type; enum documents documents; int64_t end_token;
        const char *tokenizer;
        double validation;                              /* fraction of the training samples reserved for testing */
        /* samples: number of synthetic samples, or a limit for files (0: all) */
        int64_t channels, samples, test_samples, prefetch, workers;
    } data;
    struct {
        int64_t batch_size, split_size, gradient_groups, steps, epochs, evaluate_every, evaluate_epochs;
        enum last_batch last_batch;
        enum stored_type frozen_type;
        int64_t evaluate_batch_size;
        enum loss_word loss; enum optimizer_word optimizer; enum rate_word schedule; enum norm_stats batch_norm;
        enum precision_word precision;
        enum schedule_by schedule_by;
        enum nonfinite_policy nonfinite; int64_t nonfinite_limit;   /* how many in a row */
        int64_t dice_power; bool dice_background;
        double learning_rate, momentum, weight_decay, clip_norm, clip_value, beta1, beta2, epsilon, label_smoothing;
        double ema;                                     /* decay of the weights' moving average; 0: none */
        bool nesterov, evaluate, winograd;
        bool confusion;
        int64_t patience;                               /* evaluations; 0: any number */
        /* the learning-rate schedule (optim/rate.h); unit of milestones, step_size: steps or epochs (schedule_by) */
        struct conf_ints milestones;
        double gamma, learning_rate_end, power, warmup_factor;
        int64_t step_size, warmup_steps, warmup_epochs;
        struct conf_texts scores;                       /* operators besides the loss */
        /* patterns; PATTERN=FACTOR (model/groups.c) */
        struct conf_texts freeze, learning_rate_factors, weight_decay_factors;
    } train;
    /* adapters (model/lora.h); on with a rank or a place to read them from. Unset values are those of that place */
    struct {
        int64_t rank; double alpha, dropout; bool rslora, merge, other_base;
        struct conf_texts targets; const char *init_from;
    } lora;
    struct {
        const char *schedule, *rows, *profile;          /* schedule: a word of sched_list, or "rows" with `rows` */
        enum partition_word partition; enum backward_mode backward;
        struct conf_ints profile_sizes;
        double profile_spread;
        int64_t stages, replicas, bucket_kib, ranks, cores, in_flight;
        enum reduce_by reduce; enum when shard_optimizer;
        bool read_in_place;
        struct conf_ints max_memory;                    /* bytes: one for all ranks, or one a rank; empty: no limit */
        const char *disk;                               /* folder for state that memory has no space for */
        enum when offload_optimizer;
        struct conf_reals speed;                        /* relative, one a rank; empty: all equal */
        struct conf_texts no_split;
        enum recompute_mode recompute;
        struct conf_ints recompute_stages;
        struct conf_texts recompute_layers;
        struct conf_ints host_memory;                   /* bytes for weights above max_memory: one size, of all ranks */
        enum count_bytes count_bytes;                   /* the bytes that partition policies by bytes count */
        struct conf_stage *stage; int n_stages;         /* manual: as written, in order */
    } pipeline;
    struct { int64_t every_steps, keep; double every_seconds; const char *best; } checkpoint;
    struct {
        enum when progress, control; int64_t log_every; bool tensorboard, csv; const char *metrics;
        int64_t metrics_every, stages_every;
        struct conf_texts mllog;                        /* "KEY=VALUE" */
    } service;
    int32_t *line;                                      /* per row of the table: line in the file, or: */
#define CONF_DEFAULT 0
#define CONF_OVERRIDE (-1)
#define CONF_DERIVED (-2)                               /* conf_finish or conf_derive set it from another value */
    const char **what;                                  /* per row: what messages call its override */
    bool expanded;                                      /* conf_expand has expanded the file names */
};

/* Does the run write generated texts to standard output? */
static inline bool conf_generates_aloud(const struct conf *c)
{
    return c->run.generate && c->run.generate[0] == '-' && !c->run.generate[1];
}
/* Are adapters trained or used, instead of all weights? */
static inline bool conf_adapts(const struct conf *c) { return c->lora.rank || c->lora.init_from; }
/* Is only the output of the network wanted, without a loss? */
static inline bool conf_predicts(const struct conf *c)
{
    return c->run.predict || c->run.generate || c->run.exports;
}

/* Reads FILE. On failure: e->text is "FILE:LINE: message", code 78 (66 if the file is missing). */
struct conf *conf_load(const char *file, struct err *e);
/* Appends the text of FILE to t, for conf_parse. FILE may be a pipe, which can be read only once. 78, 66. */
int conf_text_read(const char *file, struct text *t, struct err *e);
/* the same from memory; only messages use file */
struct conf *conf_parse(const char *file, const char *text, size_t n, struct err *e);
/* Sets "SECTION.KEY=VALUE" from -o. what: its name in messages ("-o train.steps=x", "--steps"). Texts need no quotes
 * and have no escapes. 78, or 64 if there is no such key. */
int conf_set(struct conf *c, const char *what, const char *assignment, struct err *e);
/* Sets a list of at most CONF_LIST texts; what: as of conf_set, lives as long as c. 78. */
int conf_set_texts(struct conf *c, const char *what, const char *key, const char *const *text, int n, struct err *e);
/* Sets SECTION.KEY to a value as conf_value prints it; NULL: unset. 78. */
int conf_put(struct conf *c, const char *key, const char *value, struct err *e);
void conf_stage_add(struct conf *c, struct conf_stage st);  /* appends a stage section; copies the names */
/* The key, with its section, that the user may have meant; NULL if none is near. */
const char *conf_nearest(const char *name);
/* Checks rules between options, and derives values from others (directory from name, stages from sections). Call once
 * after all overrides. */
int conf_finish(struct conf *c, struct err *e);
/* Expands file names: $NAME and ${NAME} become the result of get (getenv), a leading ~ HOME, $$ a single $. Call once,
 * after conf_finish. 78 names the variable that is not set. */
int conf_expand(struct conf *c, char *(*get)(const char *name), struct err *e);
/* Pass expanded file names to a process that read the same configuration but may have another environment. */
void conf_files_give(const struct conf *c, struct text *out);
void conf_files_take(struct conf *c, const struct text *names);
/* Calls f with every file and folder that the configuration reads, and the key that names it. The configuration file
 * itself comes first, with key "". */
void conf_inputs(const struct conf *c, void (*f)(void *ctx, const char *key, const char *file), void *ctx);
/* A copy to modify: fields, conf_set, conf_stage_add and conf_derive leave c unchanged. It lives as long as c; do not
 * free it. */
struct conf *conf_copy(const struct conf *c);
/* Sets a value that follows from another one, or that a graph file decides, before other code has c. The value must
 * have the option's type and live as long as c. A caller's bug aborts. */
void conf_derive(struct conf *c, const char *key, const char *value);
/* Sets e to 78 and prepends where SECTION.KEY was set: "FILE:LINE: KEY: ", the override's name, or "FILE: KEY: " for a
 * default. Returns -1. */
int conf_error(const struct conf *c, const char *key, struct err *e, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* If the error is of a file that is missing or may not be read (66, 77), and an option names the file or its folder,
 * prepends the option's place. Returns -1 always. */
int conf_where(const struct conf *c, struct err *e);
/* The value of SECTION.KEY: a number, or yes (1) or no (0). A caller's bug aborts. */
double conf_number(const struct conf *c, const char *key);
/* The word of an option that is an enum (conf/words.h), NULL if unset; lives as long as c. For messages. A caller's bug
 * aborts. */
const char *conf_word(const struct conf *c, const char *key);
bool conf_by_rows(const struct conf *c);                /* pipeline.schedule = rows; pipeline.rows is then set */
/* Does SECTION.KEY, not a list, differ from its default? */
bool conf_differs(const struct conf *c, const char *key);
bool conf_given(const struct conf *c, const char *key); /* did the file or the command line set it? */
/* Calls f with every option that decides the bits of a run, and its value as text, NULL if unset. A resumed run needs
 * the same values. */
void conf_decides(const struct conf *c, void (*f)(void *ctx, const char *key, const char *value), void *ctx);
bool conf_saves(const struct conf *c);                  /* does the run write checkpoints automatically? */
bool conf_rolls_back(const struct conf *c);             /* train.nonfinite = rollback */
bool conf_is_live(const char *key);                     /* may its value change during a run? */
bool conf_follows(const char *key);                     /* may its value in conf_decides change with a live option? */
/* Calls f with each key whose value differs in a and b, and whether it may change during a run. Stage sections are
 * "pipeline.stage". */
void conf_compare(const struct conf *a, const struct conf *b, void (*f)(void *ctx, const char *key, bool live),
                  void *ctx);
/* Appends the value of SECTION.KEY in the syntax of the file; nothing if unset. */
void conf_value(const struct conf *c, const char *key, struct text *out);
/* Is that text, as conf_value prints it, the default of SECTION.KEY? */
bool conf_is_default(const char *key, const char *value);
/* The effective configuration, as text that conf_parse reads back to an equal struct, or as JSON. */
void conf_print(const struct conf *c, struct text *out);
char *conf_json(const struct conf *c);                  /* free() it */
/* Help for a command line option that sets SECTION.KEY: the beginning of the row's text, and its words. */
void conf_help(const char *key, struct text *out);
/* SECTION.KEY of the i-th option; NULL after the last. */
const char *conf_key(int i);
/* Appends the words that SECTION.KEY accepts, separated by spaces, or nothing; *file: it names a file. */
void conf_words(const char *key, bool *file, struct text *out);
/* mdoc source of the option list in mpstaged.conf(5), made from the table. */
void conf_manual(struct text *out);
void conf_free(struct conf *c);

#endif
