/* Rules between options, and defaults that follow from other options. Values that an override makes irrelevant are
 * dropped before any comparison. */
#include <string.h>
#include "base/address.h"
#include "conf/table.h"

static int32_t *line_of(const struct conf *c, const char *key) { return &c->line[opt_find(key, strlen(key))]; }
/* The command line has key, and only the file has other. */
static bool overrides(const struct conf *c, const char *key, const char *other)
{
    return *line_of(c, key) == CONF_OVERRIDE && *line_of(c, other) != CONF_OVERRIDE;
}

static void drop(struct conf *c, const char *key)
{
    opt_unset(c, opt_find(key, strlen(key)));
}

static int missing(const struct conf *c, struct err *e, const char *what)
{
    return err_set(e, E_CONF, "%s: %s is missing", c->file, what);
}

/* ---- options that apply only with one choice of another: opt.of --------------------------------- */

bool opt_of_holds(const struct conf *c, const char *of, const char **key, const char **value)
{
    int k = opt_find(of, strcspn(of, " "));
    const char *word = conf_word(c, opt_table[k].key);
    size_t n = word ? strlen(word) : 0;
    bool holds = !word;
    for (of += strcspn(of, " "); *of; of += strcspn(of, " ")) {
        of += strspn(of, " ");
        holds |= strcspn(of, " ") == n && !memcmp(of, word, n);
    }
    if (key) *key = opt_table[k].key;
    if (value) *value = word;
    return holds;
}

/* Row i applies to another choice than the current one; *key and *value are the current one. */
static bool of_other(const struct conf *c, int i, const char **key, const char **value)
{
    return opt_table[i].of && !opt_of_holds(c, opt_table[i].of, key, value);
}

static int of_rules(const struct conf *c, struct err *e)
{
    for (int i = 0; opt_table[i].key; i++) {
        const char *key, *value;
        struct text whose = {0};
        if (!of_other(c, i, &key, &value) || !conf_differs(c, opt_table[i].key)) continue;
        for (const char *s = strchr(opt_table[i].of, ' '); s; s = strchr(s + 1, ' '))
            text_add(&whose, "%s%.*s", whose.n ? " or " : "", (int)strcspn(s + 1, " "), s + 1);
        conf_error(c, opt_table[i].key, e, "is for %s = %s, not for %s", key, whose.s, value);
        text_free(&whose);
        return -1;
    }
    return 0;
}

/* Drops a key of the file that applies to something the command line replaced. */
static void drop_overridden(struct conf *c, const char *key, const char *other)
{
    if (overrides(c, key, other)) drop(c, other);
}

static void drop_ineffective(struct conf *c)
{
    static const char *const of_network[] = {"model.network", "model.input", "model.classes", "model.hidden",
                                             "model.dropout", "model.zero_init_residual",
                                             "model.small_stem"};
    for (size_t i = 0; i < sizeof of_network / sizeof *of_network; i++)
        drop_overridden(c, "model.graph", of_network[i]);
    for (int i = 0; opt_table[i].key; i++) {
        const char *key, *value;
        if (of_other(c, i, &key, &value)) drop_overridden(c, key, opt_table[i].key);
    }
    drop_overridden(c, "train.milestones", "train.step_size");
    drop_overridden(c, "train.step_size", "train.milestones");
    drop_overridden(c, "train.warmup_steps", "train.warmup_epochs");
    drop_overridden(c, "train.warmup_epochs", "train.warmup_steps");
    static const char *const origin[] = {"model.network", "model.graph", "model.folder", "model.config"};
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 4; k++) if (k != i) drop_overridden(c, origin[i], origin[k]);
    if (c->train.epochs && overrides(c, "train.epochs", "train.steps")) c->train.steps = 0;
    if (!conf_by_rows(c) && overrides(c, "pipeline.schedule", "pipeline.rows"))
        c->pipeline.rows = NULL;
}

static int model_rules(struct conf *c, struct err *e)
{
    static const char *const origin[] = {"model.network", "model.graph", "model.folder", "model.config"};
    const char *of = NULL;
    for (size_t i = 0; i < sizeof origin / sizeof *origin; i++) {
        if (!conf_differs(c, origin[i])) continue;
        if (of) return conf_error(c, origin[i], e, "%s is set, too: use one of the two", of);
        of = origin[i];
    }
    if (!of) return missing(c, e, "model.network (or model.graph, model.folder, model.config)");
    const char *extra = c->model.hidden.n ? "model.hidden" : c->model.dropout > 0 ? "model.dropout"
                      : c->model.zero_init_residual ? "model.zero_init_residual"
                      : c->model.small_stem ? "model.small_stem" : NULL;
    if (c->model.graph && extra)
        return conf_error(c, extra, e, "is for model.network; with model.graph, the graph decides");
    const bool onnx = c->model.graph && text_ends(c->model.graph, ".onnx");
    const char *weights = onnx ? c->model.graph : c->model.folder;
    if (weights && !c->run.init_from && (!conf_predicts(c) || conf_adapts(c)))
        conf_derive(c, "run.init_from", weights);
    if ((!c->model.graph || onnx) && !c->train.loss) conf_derive(c, "train.loss", "cross_entropy");
    return 0;
}

/* run.init_from has the base weights. */
static int lora_rules(const struct conf *c, struct err *e)
{
    static const char *const needs[] = {"lora.alpha", "lora.rslora", "lora.dropout", "lora.targets",
                                        "lora.other_base", "lora.merge"};
    if (conf_adapts(c) && c->train.freeze.n)
        return conf_error(c, "train.freeze", e, "with lora all but the adapters is frozen");
    for (size_t i = 0; i < sizeof needs / sizeof *needs && !conf_adapts(c); i++)
        if (conf_differs(c, needs[i])) return conf_error(c, needs[i], e, "needs lora.rank or lora.init_from");
    return 0;
}

static bool images_read(const struct conf *c)
{
    return c->data.source == SOURCE_images || c->data.source == SOURCE_cifar;
}

/* Whether data.augment has an entry that mixes samples, and so their labels. */
static bool labels_mixed(const struct conf *c)
{
    static const char *const mixes[] = {
#define MIX(name) #name,
#include "registry.inc"
        NULL
    };
    for (int i = 0; i < c->data.augment.n; i++)
        for (int k = 0; mixes[k]; k++) {
            const char *s = c->data.augment.v[i] + strspn(c->data.augment.v[i], " \t\n");
            if (strcspn(s, " \t\n") == strlen(mixes[k]) && !strncmp(s, mixes[k], strlen(mixes[k]))) return true;
        }
    return false;
}

static int volumes_rules(struct conf *c, struct err *e)
{
    if (c->data.cache.n > 1) return conf_error(c, "data.cache", e, "expected one size");
    if (c->data.folds == 1) return conf_error(c, "data.folds", e, "1 leaves nothing to train: use at least 2, or 0");
    if (c->data.fold && c->data.fold >= c->data.folds)
        return conf_error(c, "data.fold", e, "%lld: folds are 0 to data.folds - 1", (long long)c->data.fold);
    if (c->data.folds && c->data.test)
        return conf_error(c, "data.test", e, "data.folds is set, too: use one of the two");
    return 0;
}

static const char *train_key(const struct conf *c)
{
    return c->data.source == SOURCE_tokens ? "data.train_tokens"
           : c->data.source == SOURCE_text ? "data.train_text"
           : c->data.source == SOURCE_jsonl ? "data.train_jsonl" : "data.train";
}
static bool trains(const struct conf *c)
{
    return c->data.train || c->data.train_tokens.n || c->data.train_text.n || c->data.train_jsonl.n;
}

static int validation_rules(struct conf *c, struct err *e)
{
    const bool tokens = c->data.test_tokens.n || c->data.test_text.n || c->data.test_jsonl.n;
    const char *key = c->data.test ? "data.test" : c->data.test_text.n ? "data.test_text"
                    : c->data.test_jsonl.n ? "data.test_jsonl" : tokens ? "data.test_tokens"
                    : c->data.test_labels ? "data.test_labels" : c->data.test_samples ? "data.test_samples" : NULL;
    if (c->run.evaluate && (c->data.test || tokens)) c->data.validation = 0;   /* no training: only the test counts */
    if (!(c->data.validation > 0)) return 0;
    if (key) return conf_error(c, key, e, "data.validation is set, too: use one of the two");
    return trains(c) ? 0 : missing(c, e, train_key(c));
}

static int files_rules(struct conf *c, struct err *e)
{
    if (!trains(c) && !c->run.evaluate) return missing(c, e, train_key(c));
    if (c->data.train_labels && !c->data.train) return missing(c, e, "data.train");
    if (c->data.test_labels && !c->data.test) return missing(c, e, "data.test");
    if (validation_rules(c, e)) return -1;
    bool labelled = c->data.source == SOURCE_idx || images_read(c), volumes = c->data.source == SOURCE_nifti;
    bool classes = labelled && c->train.loss != LOSS_MSE;
    bool mixed = labels_mixed(c);
    if (volumes && volumes_rules(c, e)) return -1;
    if (classes) c->data.labels = mixed ? LABELS_ONEHOT : LABELS_CLASS;   /* files have no others */
    if (mixed && !c->data.labels) c->data.labels = LABELS_ONEHOT;
    return 0;
}

static int data_rules(struct conf *c, struct err *e)
{
    if (!c->data.source) return c->run.generate ? 0 : missing(c, e, "data.source");
    if (c->data.source != SOURCE_synthetic && files_rules(c, e)) return -1;
    bool shorter = images_read(c) || c->data.source == SOURCE_npy;
    if (c->data.resize.n > 2 || (c->data.resize.n == 1 && !shorter))
        return conf_error(c, "data.resize", e, "expected {height, width}%s", shorter ? " or the shorter side" : "");
    if (c->data.pad.n && c->data.pad.n != 2) return conf_error(c, "data.pad", e, "expected {height, width}");
    if (c->data.mean.n && !c->data.std.n) return conf_error(c, "data.mean", e, "needs data.std");
    if (c->data.std.n && !c->data.mean.n) return conf_error(c, "data.std", e, "needs data.mean");
    bool map = c->train.loss == LOSS_DICE || c->train.loss == LOSS_DICE_CE || c->data.source == SOURCE_nifti;
    if (!c->data.labels) c->data.labels = c->train.loss == LOSS_MSE ? LABELS_ONEHOT : map ? LABELS_MAP : LABELS_CLASS;
    if (!conf_given(c, "data.shuffle")) {
        c->data.shuffle = images_read(c) || c->data.source == SOURCE_idx || c->data.source == SOURCE_nifti ||
                          c->data.source == SOURCE_tokens || c->data.source == SOURCE_text ||
                          c->data.source == SOURCE_jsonl;
        *line_of(c, "data.shuffle") = CONF_DERIVED;
    }
    return 0;
}

static int batch_rules(struct conf *c, struct err *e)
{
    if (c->data.packing == PACKING_FIRST_FIT && conf_given(c, "train.last_batch") &&
        c->train.last_batch != LAST_BATCH_FILL)
        return conf_error(c, "train.last_batch", e, "with data.packing, only fill: epochs differ in their samples");
    if (c->data.packing == PACKING_FIRST_FIT) conf_derive(c, "train.last_batch", "fill");
    if (!c->train.split_size) c->train.split_size = c->train.batch_size;
    if (c->train.split_size > c->train.batch_size)
        return conf_error(c, "train.split_size", e, "%lld is larger than the batch of %lld",
                          (long long)c->train.split_size, (long long)c->train.batch_size);
    if (c->train.gradient_groups & (c->train.gradient_groups - 1))
        return conf_error(c, "train.gradient_groups", e, "expected a power of two, not %lld",
                          (long long)c->train.gradient_groups);
    if (!c->train.evaluate_batch_size) c->train.evaluate_batch_size = c->train.batch_size;
    return 0;
}

static int train_rules(struct conf *c, struct err *e)
{
    if (!c->train.steps && !c->train.epochs && !c->run.evaluate) return missing(c, e, "train.steps (or train.epochs)");
    if (c->train.nesterov && !(c->train.momentum > 0))
        return conf_error(c, "train.nesterov", e, "needs train.momentum");
    bool kept = c->checkpoint.every_steps || c->checkpoint.every_seconds > 0 || c->checkpoint.best;
    if (c->train.nonfinite == NONFINITE_ROLLBACK && !kept && !c->run.evaluate)
        return conf_error(c, "train.nonfinite", e, "rollback needs checkpoints: checkpoint.every_steps, for example");
    return 0;
}

/* Patience counts evaluations between steps; the best of these is saved. */
static int evaluation_rules(struct conf *c, struct err *e)
{
    if (c->run.evaluate) return 0;
    const char *needs = c->train.patience ? "train.patience" : c->checkpoint.best ? "checkpoint.best"
                      : c->train.confusion ? "train.confusion" : NULL;
    if (needs && !c->train.evaluate) return conf_error(c, needs, e, "needs evaluations, but train.evaluate is no");
    if (!c->train.patience) return 0;
    if (!c->train.evaluate_every && !c->train.evaluate_epochs)
        return conf_error(c, "train.patience", e, "needs train.evaluate_epochs or train.evaluate_every");
    if (!c->checkpoint.best) conf_derive(c, "checkpoint.best", "loss");
    return 0;
}

static int rate_rules(struct conf *c, struct err *e)
{
    bool step = c->train.schedule == RATE_step, by_epoch = c->train.schedule_by == SCHEDULE_BY_EPOCH;
    if (step && !c->train.milestones.n && !c->train.step_size)
        return conf_error(c, "train.schedule", e, "step needs train.milestones or train.step_size");
    if (c->train.milestones.n && c->train.step_size)
        return conf_error(c, "train.step_size", e, "train.milestones is set, too: use one of the two");
    if (step && !conf_given(c, "train.gamma")) conf_derive(c, "train.gamma", "0.1");
    for (int i = 1; i < c->train.milestones.n; i++)
        if (c->train.milestones.v[i] <= c->train.milestones.v[i - 1])
            return conf_error(c, "train.milestones", e, "must ascend");
    if (c->train.warmup_steps && c->train.warmup_epochs)
        return conf_error(c, "train.warmup_epochs", e, "train.warmup_steps is set, too: use one of the two");
    if (c->train.warmup_steps && by_epoch)
        return conf_error(c, "train.warmup_steps", e, "with train.schedule_by = epoch, use train.warmup_epochs");
    return 0;
}

static int pipeline_rules(struct conf *c, struct err *e)
{
    if (!c->pipeline.partition) c->pipeline.partition = c->pipeline.n_stages ? PART_manual : PART_uniform;
    bool manual = c->pipeline.partition == PART_manual;
    if (manual && !c->pipeline.n_stages) return conf_error(c, "pipeline.partition", e, "manual needs stage sections");
    if (manual && conf_given(c, "pipeline.stages") && c->pipeline.stages != c->pipeline.n_stages)
        return conf_error(
            c, "pipeline.stages", e,
            "expected %d stage%s, as many as stage sections, not %lld (another partition, such as auto, takes any "
            "number)",
            c->pipeline.n_stages, c->pipeline.n_stages == 1 ? "" : "s", (long long)c->pipeline.stages);
    int64_t replicas = c->pipeline.replicas;
    if (replicas & (replicas - 1))
        return conf_error(c, "pipeline.replicas", e, "expected a power of two, not %lld", (long long)replicas);
    if (c->train.gradient_groups % replicas)
        return conf_error(c, "pipeline.replicas", e, "%lld replicas do not divide train.gradient_groups = %lld: set "
                                                     "train.gradient_groups to a multiple of %lld, which changes "
                                                     "results", (long long)replicas,
                          (long long)c->train.gradient_groups, (long long)replicas);
    if (c->pipeline.host_memory.n && !c->pipeline.max_memory.n)
        return conf_error(c, "pipeline.host_memory", e, "needs pipeline.max_memory");
    if (c->pipeline.host_memory.n > 1)
        return conf_error(c, "pipeline.host_memory", e, "expected one size, for all ranks");
    if (conf_by_rows(c) && !c->pipeline.rows)
        return conf_error(c, "pipeline.schedule", e, "rows needs pipeline.rows");
    if (c->pipeline.rows && c->pipeline.in_flight)
        return conf_error(c, "pipeline.in_flight", e, "the rows decide how many micro-batches are in flight");
    if (c->pipeline.rows && !conf_by_rows(c))
        return conf_error(c, "pipeline.rows", e, "needs pipeline.schedule = \"rows\"");
    return 0;
}

/* A prediction is an evaluation without labels. Its directory lies beside that of the run whose weights it loads, and
 * it replaces existing files. */
static int predict_rules(struct conf *c, struct err *e)
{
    const char *beside = c->run.predict ? "-predict" : "-generate";
    const char *file = c->run.predict;
    if (c->run.predict_tensor && !file) return conf_error(c, "run.predict_tensor", e, "needs run.predict");
    if (file && c->run.generate) return conf_error(c, "run.generate", e, "cannot be combined with run.predict");
    const bool between = c->generate.every_steps && !c->run.evaluate;
    if (between && !c->generate.prompts && !c->generate.prompt.n)
        return conf_error(c, "generate.every_steps", e, "needs generate.prompts or generate.prompt");
    const char *draws = conf_differs(c, "generate.top_k") ? "generate.top_k"
                        : conf_differs(c, "generate.top_p") ? "generate.top_p" : NULL;
    if ((between || c->run.generate) && draws && !(c->generate.temperature > 0))
        return conf_error(c, draws, e, "nothing is drawn at generate.temperature = 0");
    for (int i = 0; i < c->generate.stop.n; i++)
        if (!*c->generate.stop.v[i]) return conf_error(c, "generate.stop", e, "an empty text is in every text");
    if (!conf_predicts(c)) return 0;
    const bool folder = file && c->data.source == SOURCE_nifti && text_ends(file, "/");
    if (file && !text_ends(file, ".csv") && !text_ends(file, ".jsonl") && !text_ends(file, ".npy") && !folder)
        return conf_error(c, "run.predict", e, "expected FILE.csv, FILE.jsonl or FILE.npy%s, not %s",
                          c->data.source == SOURCE_nifti ? ", or FOLDER/ for label maps" : "", file);
    if (c->run.generate && !conf_generates_aloud(c) && !text_ends(c->run.generate, ".jsonl"))
        return conf_error(c, "run.generate", e, "expected FILE.jsonl or -, not %s", c->run.generate);
    if (!c->run.init_from && !conf_adapts(c)) conf_derive(c, "run.init_from", c->run.directory);
    if (!c->lora.init_from && conf_adapts(c)) conf_derive(c, "lora.init_from", c->run.directory);
    if (c->run.exports) return 0;
    size_t n = strlen(c->run.directory);
    while (n > 1 && c->run.directory[n - 1] == '/') n--;
    const char *dir = arena_printf(c->mem, "%.*s", (int)n, c->run.directory);
    if (!text_ends(dir, beside)) c->run.directory = arena_printf(c->mem, "%s%s", dir, beside);
    c->run.over_predictions = c->run.overwrite;
    c->run.overwrite = true;
    return 0;
}

static int run_rules(struct conf *c, struct err *e)
{
    if (strchr(c->run.name, '/') || c->run.name[0] == '.')
        return conf_error(c, "run.name", e, "must not contain a slash nor begin with a dot: it names a directory");
    if (c->run.resume != RESUME_NO && c->run.overwrite)
        return conf_error(c, "run.resume", e, "resumes a run; run.overwrite would remove it");
    if (c->run.resume != RESUME_NO && c->run.evaluate)
        return conf_error(c, "run.resume", e, "is for training, not for %s", c->run.predict ?
                          "run.predict, which takes the weights of the run directory by itself" :
                          c->run.generate ? "run.generate" : "run.evaluate");
    if (!c->run.directory) c->run.directory = arena_printf(c->mem, "runs/%s", c->run.name);
    return predict_rules(c, e);
}

static int service_rules(struct conf *c, struct err *e)
{
    struct address a;
    if (c->service.metrics && !strcmp(c->service.metrics, "no")) c->service.metrics = NULL;
    if (!c->service.metrics || !address_parse(c->service.metrics, &a)) return 0;
    return conf_error(c, "service.metrics", e, "expected a numeric address and a port, such as \"127.0.0.1:9464\"");
}

int conf_finish(struct conf *c, struct err *e)
{
    drop_ineffective(c);
    c->run.evaluate |= conf_predicts(c);
    if (c->run.generate) c->pipeline.replicas = 1;        /* a sequence's cache is in one of them */
    if (model_rules(c, e) || lora_rules(c, e) || of_rules(c, e) || data_rules(c, e) || batch_rules(c, e)) return -1;
    if (train_rules(c, e) || evaluation_rules(c, e) || rate_rules(c, e) || pipeline_rules(c, e)) return -1;
    return run_rules(c, e) || service_rules(c, e) ? -1 : 0;
}
