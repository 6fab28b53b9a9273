#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "conf/table.h"

#define AT(field) offsetof(struct conf, field)
#define BIG 9e15                                         /* below 2^53: exact in a double */

const struct opt opt_table[] = {
    {"run.name", OPT_STRING, AT(run.name), "\"run\"", 0, 0, NULL, "name of the run"},
    {"run.seed", OPT_INT, AT(run.seed), "1", 0, BIG, NULL, "seed of initialisation, sample order, dropout and synthetic data"},
    {"run.directory", OPT_STRING, AT(run.directory), NULL, 0, 0, NULL, "run directory; the default is runs/NAME"},
    {"run.device", OPT_WORD, AT(run.device), "auto", 0, 0, "auto cpu cuda reference", "device: auto takes the best there is; reference is the slow plain C backend"},
    {"run.transport", OPT_WORD, AT(run.transport), "auto", 0, 0, "auto mpi local !nccl", "how ranks exchange tensors: mpi between processes, local between threads of one process"},
    {"run.threads", OPT_INT, AT(run.threads), "1", 1, 1024, NULL, "threads a rank; part of the numerics line, never derived from the machine"},
    {"run.init_from", OPT_STRING, AT(run.init_from), NULL, 0, 0, NULL, "weights to begin with: a safetensors file, or a folder with model.safetensors or its index"},
    {"run.resume", OPT_BOOL, AT(run.resume), "no", 0, 0, NULL, "go on with the newest checkpoint of the run directory"},
    {"run.overwrite", OPT_BOOL, AT(run.overwrite), "no", 0, 0, NULL, "use a run directory that already holds a run"},
    {"run.evaluate", OPT_BOOL, AT(run.evaluate), "no", 0, 0, NULL, "evaluate only"},
    {"run.dump_gradients", OPT_STRING, AT(run.dump_gradients), NULL, 0, 0, NULL, "write the first step's gradients to this safetensors file"},
    {"model.network", OPT_STRING, AT(model.network), NULL, 0, 0, NULL, "toy, mlp, resnet18, resnet34, resnet50, resnet101 or resnet152"},
    {"model.graph", OPT_STRING, AT(model.graph), NULL, 0, 0, NULL, "file with graph text, instead of a network"},
    {"model.input", OPT_INTS, AT(model.input), NULL, 1, 1 << 24, NULL, "shape of one sample, channels first; the default is the network's own"},
    {"model.classes", OPT_INT, AT(model.classes), NULL, 1, 1 << 24, NULL, "width of the output; the default is the network's own"},
    {"model.hidden", OPT_INTS, AT(model.hidden), NULL, 1, 1 << 24, NULL, "mlp: widths of the hidden layers"},
    {"model.dropout", OPT_REAL, AT(model.dropout), "0", 0, 0.999, NULL, "mlp: dropout after each hidden layer"},
    {"model.zero_init_residual", OPT_BOOL, AT(model.zero_init_residual), "no", 0, 0, NULL, "ResNets: the last batch norm of each block begins at zero"},
    {"data.source", OPT_WORD, AT(data.source), NULL, 0, 0, "synthetic idx npy", "where samples come from"},
    {"data.labels", OPT_WORD, AT(data.labels), NULL, 0, 0, "class onehot vector", "what targets are: a class (the default for files), one-hot vectors, or vectors of values"},
    {"data.train_images", OPT_STRING, AT(data.train_images), NULL, 0, 0, NULL, "file of training samples"},
    {"data.train_labels", OPT_STRING, AT(data.train_labels), NULL, 0, 0, NULL, "file of training targets"},
    {"data.test_images", OPT_STRING, AT(data.test_images), NULL, 0, 0, NULL, "file of test samples"},
    {"data.test_labels", OPT_STRING, AT(data.test_labels), NULL, 0, 0, NULL, "file of test targets"},
    {"data.shuffle", OPT_BOOL, AT(data.shuffle), NULL, 0, 0, NULL, "a new order every epoch; the default is yes for idx, otherwise no"},
    {"data.mean", OPT_REALS, AT(data.mean), NULL, -1e9, 1e9, NULL, "subtracted from every pixel: one value, or one a channel"},
    {"data.std", OPT_REALS, AT(data.std), NULL, 1e-12, 1e9, NULL, "every pixel is divided by it: one value, or one a channel"},
    {"data.pad", OPT_INTS, AT(data.pad), NULL, 1, 65536, NULL, "pad images with zeros to this height and width"},
    {"data.channels", OPT_INT, AT(data.channels), NULL, 1, 4096, NULL, "repeat a single channel so often"},
    {"data.samples", OPT_INT, AT(data.samples), "0", 0, BIG, NULL, "how many training samples; 0 means all of a file, or as many as a synthetic run needs"},
    {"data.test_samples", OPT_INT, AT(data.test_samples), "0", 0, BIG, NULL, "how many test samples; 0 means all of a file, and no synthetic test set"},
    {"data.prefetch", OPT_INT, AT(data.prefetch), "2", 1, 4096, NULL, "micro-batches read ahead"},
    {"train.batch_size", OPT_INT, AT(train.batch_size), "32", 1, 1 << 24, NULL, "samples a step"},
    {"train.split_size", OPT_INT, AT(train.split_size), "0", 0, 1 << 24, NULL, "samples a micro-batch; 0 means the whole batch"},
    {"train.steps", OPT_INT, AT(train.steps), "0", 0, BIG, NULL, "how many steps; wins over epochs"},
    {"train.epochs", OPT_INT, AT(train.epochs), "0", 0, BIG, NULL, "how many passes over the training samples"},
    {"train.evaluate_every", OPT_INT, AT(train.evaluate_every), "0", 0, BIG, NULL, "evaluate on the test set every so many steps; 0 means at the end only"},
    {"train.evaluate_batch_size", OPT_INT, AT(train.evaluate_batch_size), "0", 0, 1 << 24, NULL, "samples an evaluation step; 0 means batch_size"},
    {"train.loss", OPT_WORD, AT(train.loss), "cross_entropy", 0, 0, "mse cross_entropy", "loss function"},
    {"train.optimizer", OPT_WORD, AT(train.optimizer), "sgd", 0, 0, "sgd !adamw", "optimizer; sgd is torch.optim.SGD's formula"},
    {"train.learning_rate", OPT_REAL, AT(train.learning_rate), "0.01", 0, 1e6, NULL, "learning rate"},
    {"train.momentum", OPT_REAL, AT(train.momentum), "0", 0, 1, NULL, "momentum"},
    {"train.nesterov", OPT_BOOL, AT(train.nesterov), "no", 0, 0, NULL, "Nesterov momentum"},
    {"train.weight_decay", OPT_REAL, AT(train.weight_decay), "0", 0, 1e6, NULL, "weight decay, on all parameters"},
    {"train.clip_norm", OPT_REAL, AT(train.clip_norm), "0", 0, 1e9, NULL, "gradients are scaled down to this global norm; 0 means never"},
    {"train.schedule", OPT_WORD, AT(train.schedule), "constant", 0, 0, "constant step !cosine !warmup", "learning rate schedule"},
    {"train.milestones", OPT_INTS, AT(train.milestones), NULL, 1, BIG, NULL, "schedule step: after these steps the learning rate is multiplied by gamma"},
    {"train.gamma", OPT_REAL, AT(train.gamma), "0.1", 0, 1, NULL, "schedule step: factor of the learning rate"},
    {"train.batch_norm", OPT_WORD, AT(train.batch_norm), "micro", 0, 0, "micro deferred frozen", "running statistics: updated by every micro-batch, once a step, or never"},
    {"train.precision", OPT_WORD, AT(train.precision), "fp32", 0, 0, "fp32 !tf32 !bf16 !fp16", "arithmetic"},
    {"pipeline.schedule", OPT_WORD, AT(pipeline.schedule), "1f1b", 0, 0, "naive gpipe 1f1b rows !interleaved !zb-h1 !zb-v", "pipeline schedule"},
    {"pipeline.rows", OPT_STRING, AT(pipeline.rows), NULL, 0, 0, NULL, "schedule rows: file with one row of actions a rank, see mpstaged-schedule(5)"},
    {"pipeline.partition", OPT_WORD, AT(pipeline.partition), NULL, 0, 0, "manual uniform !auto !balanced !balanced_low_0 !sequential",
     "how layers go to stages; the default is manual where there are stage sections, otherwise uniform"},
    {"pipeline.stages", OPT_INT, AT(pipeline.stages), NULL, 1, 4096, NULL, "how many stages; the default is the number of stage sections, or the number of ranks"},
    {"pipeline.backward", OPT_WORD, AT(pipeline.backward), "auto", 0, 0, "auto joined split", "gradients of inputs and weights in one pass, or apart so that the former are sent early"},
    {"pipeline.replicas", OPT_INT, AT(pipeline.replicas), "1", 1, 1, NULL, "data-parallel copies of the whole pipeline; more than 1 is not built"},
    {"service.progress", OPT_WORD, AT(service.progress), "auto", 0, 0, "auto yes no", "progress line; auto shows it on a terminal"},
    {"service.log_every", OPT_INT, AT(service.log_every), "1", 0, BIG, NULL, "a log line every so many steps; 0 means none"},
    {NULL},
};

int opt_count(void)
{
    int n = 0;
    while (opt_table[n].key) n++;
    return n;
}

int opt_find(const char *key, size_t n)
{
    for (int i = 0; opt_table[i].key; i++) if (strlen(opt_table[i].key) == n && !memcmp(opt_table[i].key, key, n)) return i;
    return -1;
}

bool opt_section(const char *name, size_t n)
{
    for (int i = 0; opt_table[i].key; i++) if (strcspn(opt_table[i].key, ".") == n && !memcmp(opt_table[i].key, name, n)) return true;
    return (n == 10 && !memcmp(name, "checkpoint", 10));
}

/* Levenshtein distance, for short keys. */
static size_t distance(const char *a, size_t n, const char *b, size_t m)
{
    size_t row[64];
    if (m > 60) return 99;
    for (size_t j = 0; j <= m; j++) row[j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t diag = row[0];
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t up = row[j], best = diag + (a[i - 1] != b[j - 1]);
            if (up + 1 < best) best = up + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            diag = up;
            row[j] = best;
        }
    }
    return row[m];
}

const char *opt_nearest(const char *key, size_t n)
{
    size_t least = 4;
    const char *found = NULL;
    if (n > 60) return NULL;
    for (int i = 0; opt_table[i].key; i++) {
        size_t d = distance(key, n, opt_table[i].key, strlen(opt_table[i].key));
        if (d < least) { least = d; found = opt_table[i].key; }
    }
    return found;
}

/* ---- setting -------------------------------------------------------------------------------------------------------------------- */

static int word_check(const char *words, const char *v, struct err *e)
{
    size_t n = strlen(v);
    for (const char *w = words; *w; w += strcspn(w, " "), w += strspn(w, " ")) {
        bool unbuilt = *w == '!';
        if (strcspn(w + unbuilt, " ") != n || strncmp(w + unbuilt, v, n)) continue;
        return unbuilt ? err_set(e, E_CONF, "\"%s\" is not built", v) : 0;
    }
    struct text list = {0};
    for (const char *w = words; *w; w += strcspn(w, " "), w += strspn(w, " "))
        if (*w != '!') text_add(&list, "%s%.*s", list.n ? ", " : "", (int)strcspn(w, " "), w);
    err_set(e, E_CONF, "\"%.60s\" is none of %s", v, list.s ? list.s : "");
    text_free(&list);
    return -1;
}

static int number(const struct opt *o, const char *v, bool whole, double *out, struct err *e)
{
    char *end;
    errno = 0;
    double x = strtod(v, &end);
    bool text = end == v || *end || !strncasecmp(v, "0x", 2);
    if (text || !isfinite(x)) return err_set(e, E_CONF, "\"%.60s\" is no %s", v, whole ? "whole number" : "finite number");
    if (whole && (x != floor(x) || strpbrk(v, ".eE"))) return err_set(e, E_CONF, "\"%.60s\" is no whole number", v);
    if (x < o->lo || x > o->hi) {
        if (o->lo == o->hi) return err_set(e, E_CONF, "%.60s: only %.15g is built", v, o->lo);
        return err_set(e, E_CONF, "%.60s is not in %.15g to %.15g", v, o->lo, o->hi);
    }
    *out = x;
    return 0;
}

static int boolean(const char *v, bool *out, struct err *e)
{
    bool yes = !strcmp(v, "yes") || !strcmp(v, "true"), no = !strcmp(v, "no") || !strcmp(v, "false");
    if (!yes && !no) return err_set(e, E_CONF, "\"%.60s\" is none of yes, no, true, false", v);
    *out = yes;
    return 0;
}

static int list_set(struct conf *c, const struct opt *o, int n, const char *const *value, struct err *e)
{
    double x[CONF_LIST];
    if (n > CONF_LIST) return err_set(e, E_CONF, "a list of more than %d values", CONF_LIST);
    for (int i = 0; i < n; i++) if (number(o, value[i], o->type == OPT_INTS, &x[i], e)) return -1;
    char *at = (char *)c + o->offset;
    if (o->type == OPT_INTS) {
        struct conf_ints *l = (struct conf_ints *)at;
        l->n = n;
        for (int i = 0; i < n; i++) l->v[i] = (int64_t)x[i];
    } else {
        struct conf_reals *l = (struct conf_reals *)at;
        l->n = n;
        for (int i = 0; i < n; i++) l->v[i] = x[i];
    }
    return 0;
}

int opt_set(struct conf *c, int i, int n, const char *const *value, bool quoted, bool list, struct err *e)
{
    const struct opt *o = &opt_table[i];
    char *at = (char *)c + o->offset;
    double x;
    if (o->type == OPT_INTS || o->type == OPT_REALS) return list_set(c, o, n, value, e);
    if (list) return err_set(e, E_CONF, "want one value, not a list");
    switch (o->type) {
    case OPT_STRING:
        if (!*value[0]) return err_set(e, E_CONF, "the text is empty");
        *(const char **)at = arena_strdup(c->mem, value[0]);
        return 0;
    case OPT_WORD:
        if (word_check(o->words, value[0], e)) return -1;
        *(const char **)at = arena_strdup(c->mem, value[0]);
        return 0;
    case OPT_BOOL: return quoted ? err_set(e, E_CONF, "want yes or no without quotes") : boolean(value[0], (bool *)at, e);
    case OPT_INT: case OPT_REAL:
        if (quoted) return err_set(e, E_CONF, "want a number without quotes");
        if (number(o, value[0], o->type == OPT_INT, &x, e)) return -1;
        if (o->type == OPT_INT) *(int64_t *)at = (int64_t)x;
        else *(double *)at = x;
        return 0;
    default: return -1;
    }
}

bool opt_is_set(const struct conf *c, int i)
{
    const struct opt *o = &opt_table[i];
    const char *at = (const char *)c + o->offset;
    if (o->type == OPT_STRING || o->type == OPT_WORD) return *(const char *const *)at != NULL;
    if (o->type == OPT_INTS) return ((const struct conf_ints *)at)->n > 0;
    if (o->type == OPT_REALS) return ((const struct conf_reals *)at)->n > 0;
    return o->def || c->line[i] != 0;
}

static void string_print(const char *s, struct text *out)
{
    text_add(out, "\"");
    for (; *s; s++) {
        if (*s == '"' || *s == '\\') text_add(out, "\\%c", *s);
        else if (*s == '\n') text_add(out, "\\n");
        else if (*s == '\t') text_add(out, "\\t");
        else text_add(out, "%c", *s);
    }
    text_add(out, "\"");
}

static void real_print(double x, struct text *out)
{
    char s[40];
    for (int digits = 6; digits <= 17; digits++) {        /* the shortest form that reads back equal */
        snprintf(s, sizeof s, "%.*g", digits, x);
        if (strtod(s, NULL) == x) break;
    }
    text_add(out, "%s", s);
}

void opt_print(const struct conf *c, int i, struct text *out)
{
    const struct opt *o = &opt_table[i];
    const char *at = (const char *)c + o->offset;
    if (!opt_is_set(c, i)) return;
    switch (o->type) {
    case OPT_STRING: case OPT_WORD: string_print(*(const char *const *)at, out); break;
    case OPT_INT: text_add(out, "%lld", (long long)*(const int64_t *)at); break;
    case OPT_REAL: real_print(*(const double *)at, out); break;
    case OPT_BOOL: text_add(out, "%s", *(const bool *)at ? "yes" : "no"); break;
    case OPT_INTS: case OPT_REALS: {
        const struct conf_ints *l = (const struct conf_ints *)at;
        const struct conf_reals *r = (const struct conf_reals *)at;
        int n = o->type == OPT_INTS ? l->n : r->n;
        text_add(out, "{");
        for (int k = 0; k < n; k++) {
            if (k) text_add(out, ", ");
            if (o->type == OPT_INTS) text_add(out, "%lld", (long long)l->v[k]);
            else real_print(r->v[k], out);
        }
        text_add(out, "}");
    }
    }
}
