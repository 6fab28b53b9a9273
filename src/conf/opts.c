/* Command line options: a table, getopt_long, and texts made from the table. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/suggest.h"
#include "conf/opts.h"

struct long_option {
    const char *name, *arg;                                /* arg NULL: a flag */
    char letter;
    const char *key;                                       /* the configuration value it sets, or NULL */
    int mode;                                              /* MODE_* it selects, or -1 */
    const char *help;                                      /* NULL: the help of the configuration table */
};

static const struct long_option options[] = {
    {"stage-config", "FILE", 'c', NULL, -1, "configuration file, see mpstaged.conf(5)"},
    {"set", "SECTION.KEY=VALUE", 'o', NULL, -1, "override one configuration value; may be repeated"},
    {"steps", "N", 0, "train.steps", -1, NULL},
    {"epochs", "N", 0, "train.epochs", -1, NULL},
    {"batch-size", "N", 0, "train.batch_size", -1, NULL},
    {"split-size", "N", 0, "train.split_size", -1, NULL},
    {"learning-rate", "RATE", 0, "train.learning_rate", -1, NULL},
    {"schedule", "NAME", 0, "pipeline.schedule", -1, NULL},
    {"partition", "NAME", 0, "pipeline.partition", -1, NULL},
    {"stages", "N", 0, "pipeline.stages", -1, NULL},
    {"device", "NAME", 0, "run.device", -1, NULL},
    {"transport", "NAME", 0, "run.transport", -1, NULL},
    {"precision", "NAME", 0, "train.precision", -1, NULL},
    {"allow-shared-gpu", NULL, 0, "run.allow_shared_gpu", -1, NULL},
    {"threads", "N", 0, "run.threads", -1, NULL},
    {"seed", "N", 0, "run.seed", -1, NULL},
    {"init-from", "FILE|DIR", 0, "run.init_from", -1, NULL},
    {"run-dir", "DIR", 0, "run.directory", -1, NULL},
    {"overwrite", NULL, 0, "run.overwrite", -1, NULL},
    {"resume", "[=force]", 0, "run.resume", -1, NULL},
    {"evaluate", NULL, 0, "run.evaluate", -1, NULL},
    {"predict", "FILE", 0, "run.predict", -1, NULL},
    {"predict-tensor", "NAME", 0, "run.predict_tensor", -1, NULL},
    {"generate", "FILE.jsonl|-", 0, "run.generate", -1, NULL},
    {"prompt", "TEXT", 0, "generate.prompt", -1, NULL},
    {"dump-gradients", "FILE", 0, "run.dump_gradients", -1, NULL},
    {"trace", "FILE", 0, "run.trace", -1, NULL},
    {"progress", "WHEN", 0, "service.progress", -1, NULL},
    {"profile", NULL, 0, NULL, MODE_PROFILE,
     "measure the costs of each layer in a few steps and write them to profile.json in the run directory"},
    {"check-hosts", "[=SECONDS]", 0, NULL, MODE_CHECK_HOSTS,
     "measure products, memory and links of all ranks for SECONDS (60), and name those below 0.8 of the median"},
    {"check-config", NULL, 0, NULL, MODE_CHECK_CONFIG,
     "check the configuration, its input files and the names of output files, and print \"configuration OK\""},
    {"print-config", NULL, 0, NULL, MODE_PRINT_CONFIG, "print the effective configuration, which can be read back"},
    {"summary", NULL, 0, NULL, MODE_SUMMARY, "print layers, shapes and parameters"},
    {"print-graph", NULL, 0, NULL, MODE_PRINT_GRAPH, "print the network as graph text, which can be read back"},
    {"plan", "[=search]", 0, NULL, MODE_PLAN,
     "print stages with their layers, parameters, bytes and predicted times; search: compare schedules, partitions "
     "and split sizes"},
    {"init", "DIR", 0, NULL, MODE_INIT,
     "write a commented configuration for a folder of pictures, with a subfolder per class, to NAME.conf"},
    {"init-lm", "PATH", 0, NULL, MODE_INIT_LM,
     "write a commented configuration that trains a language model on a text or a folder of texts, or fine-tunes a "
     "folder of Hugging Face"},
    {"write-config", "FILE", 0, NULL, -1,
     "configuration file to write: the best plan of --plan=search, or that of --init and --init-lm"},
    {"print-schedule", NULL, 0, NULL, MODE_PRINT_SCHEDULE, "print the schedule on a time axis"},
    {"draw-schedule", "FILE", 0, NULL, MODE_DRAW_SCHEDULE,
     "draw the schedule to FILE.svg, write its actions with their times to FILE.json, or with - draw on the terminal"},
    {"show-batch", "FILE", 0, NULL, MODE_SHOW_BATCH,
     "draw the first training batch, with labels, to FILE.png; of tokens write it to FILE.txt, what is trained in "
     "brackets"},
    {"write-onnx", "FILE", 0, NULL, MODE_WRITE_ONNX,
     "write the network, with the weights of the run directory or of --init-from, to FILE.onnx for other programs"},
    {"compare", "RUN RUN", 0, NULL, MODE_COMPARE,
     "print the first step, tensor and rank in which two run directories have other bits, or that they are equal"},
    {"json", NULL, 0, NULL, -1, "JSON output of --print-config, --summary, --plan and --compare"},
    {"help", NULL, 'h', NULL, MODE_HELP, "print this text"},
    {"version", NULL, 'V', NULL, MODE_VERSION, "print the versions of the program and its libraries"},
};
enum { N_OPTIONS = sizeof options / sizeof *options, LONG_BASE = 256 };

static void set_add(struct opts *o, const char *what, const char *key, const char *value)
{
    struct text t = {0};
    text_add(&t, "%s=%s", key, value);
    *vec_push(&o->set) = (struct opts_set){what, mem_strdup(t.s)};
    text_free(&t);
}

static char *option_name(const struct long_option *p)
{
    struct text t = {0};
    text_add(&t, "--%s", p->name);
    return t.s;
}

static int seconds_take(struct opts *o, const char *arg, struct err *e)
{
    char *end;
    o->seconds = strtod(arg, &end);
    if (end != arg && !*end && o->seconds > 0 && o->seconds <= 3600) return 0;
    return err_set(e, E_USAGE, "--check-hosts=%.60s: expected seconds, at most 3600", arg);
}

static int option_take(struct opts *o, const struct long_option *p, const char *arg, struct err *e)
{
    if (p->mode >= 0) {
        if (o->mode != MODE_RUN && (int)o->mode != p->mode)
            return err_set(e, E_USAGE, "--%s cannot be combined with another mode", p->name);
        o->mode = (enum mode)p->mode;
        if (p->mode == MODE_PLAN && arg && strcmp(arg, "search") != 0)
            return err_set(e, E_USAGE, "--plan=%s: expected --plan or --plan=search", arg);
        if (p->mode == MODE_PLAN && arg) o->mode = MODE_SEARCH;
        if (p->mode == MODE_CHECK_HOSTS && seconds_take(o, arg ? arg : "60", e)) return -1;
        if (p->mode == MODE_DRAW_SCHEDULE || p->mode == MODE_SHOW_BATCH || p->mode == MODE_WRITE_ONNX)
            o->picture = arg;
        if (p->mode == MODE_INIT || p->mode == MODE_INIT_LM) o->folder = arg;
        if (p->mode == MODE_COMPARE) o->run[0] = arg;
        return 0;
    }
    const bool prompts = p->key && !strcmp(p->name, "prompt");
    if (arg && !strncmp(arg, "--", 2) && !prompts)
        return err_set(e, E_USAGE, "--%s needs a value (%s), not %.60s", p->name, p->arg, arg);
    if (prompts) {
        *vec_push(&o->prompt) = arg;
        return 0;
    }
    if (p->key) {
        char *what = option_name(p);
        set_add(o, what, p->key, arg ? arg : "yes");
        return 0;
    }
    if (strcmp(p->name, "json") == 0) o->json = true;
    else if (strcmp(p->name, "write-config") == 0) o->write_config = arg;
    else if (p->letter == 'c') {
        if (o->config) return err_set(e, E_USAGE, "--stage-config is given twice");
        o->config = arg;
    } else {
        const char *eq = strchr(arg, '=');
        if (!eq || eq == arg) return err_set(e, E_USAGE, "-o %s: expected SECTION.KEY=VALUE", arg);
        struct text what = {0};
        text_add(&what, "-o %s", arg);
        *vec_push(&o->set) = (struct opts_set){what.s, mem_strdup(arg)};
    }
    return 0;
}

static int option_find(int c)
{
    for (int i = 0; i < N_OPTIONS; i++)
        if (c == LONG_BASE + i || (options[i].letter && c == options[i].letter)) return i;
    return -1;
}

/* Reports the options with this prefix if there are several; getopt_long accepts an unambiguous prefix. */
static int ambiguous(const char *given, size_t n, struct err *e)
{
    struct text all = {0};
    int found = 0;
    for (int i = 0; i < N_OPTIONS; i++)
        if (!strncmp(options[i].name, given, n))
            text_add(&all, "%s--%s", found++ ? ", " : "", options[i].name);
    if (found > 1) err_set(e, E_USAGE, "ambiguous option --%.*s: %s", (int)(n < 60 ? n : 60), given, all.s);
    text_free(&all);
    return found > 1 ? -1 : 0;
}

/* given: the text after "--", not an option. Proposes the nearest option, or else a configuration value without an
 * option. */
static int unknown_long(const char *given, struct err *e)
{
    size_t n = strcspn(given, "=");
    char *name = mem_strdup(given), hint[SUGGEST_TEXT];
    name[n] = 0;
    struct suggest near = suggest_begin(name, n);
    for (int i = 0; i < N_OPTIONS; i++) suggest_try(&near, options[i].name, strlen(options[i].name), 0);
    const char *key = near.name ? NULL : conf_nearest(name);
    suggest_text(&near, "--", hint);
    if (key) snprintf(hint, sizeof hint, " (did you mean -o %s=VALUE?)", key);
    if (!*hint) snprintf(hint, sizeof hint, " (see mpstaged --help)");
    if (!ambiguous(name, n, e)) err_set(e, E_USAGE, "unknown option --%.60s%s", name, hint);
    free(name);
    return -1;
}

static int usage_error(int c, char **argv, struct err *e)
{
    const char *given = argv[optind - 1];
    int known = optopt ? option_find(optopt) : -1;
    if (c == ':') return err_set(e, E_USAGE, "%s needs a value (%s)", given, known >= 0 ? options[known].arg : "VALUE");
    if (known >= 0) return err_set(e, E_USAGE, "--%s takes no value", options[known].name);
    if (optopt == 'n') return err_set(e, E_USAGE, "unknown option -n: -n and -np belong to mpirun, before mpstaged");
    if (optopt) return err_set(e, E_USAGE, "unknown option -%c (see mpstaged --help)", optopt);
    return unknown_long(given + 2, e);
}

static int compare_check(const struct opts *o, struct err *e)
{
    const char *other = o->config ? "--stage-config" : o->write_config ? "--write-config"
                        : o->set.n ? o->set.v[0].what : o->prompt.n ? "--prompt" : NULL;
    if (!o->run[1]) return err_set(e, E_USAGE, "--compare %s: expected two run directories", o->run[0]);
    return other ? err_set(e, E_USAGE, "--compare reads no configuration: %s has no effect", other) : 0;
}

static int opts_check(const struct opts *o, struct err *e)
{
    const char *file = o->picture;
    if (o->mode == MODE_SHOW_BATCH && !text_ends(file, ".png") && !text_ends(file, ".txt"))
        return err_set(e, E_USAGE, "--show-batch %s: expected FILE.png or FILE.txt", file);
    bool drawn = o->mode == MODE_DRAW_SCHEDULE && strcmp(file, "-") != 0;
    if (drawn && !text_ends(file, ".svg") && !text_ends(file, ".json"))
        return err_set(e, E_USAGE, "--draw-schedule %s: expected FILE.svg, FILE.json or -", file);
    if (o->mode == MODE_WRITE_ONNX && !text_ends(file, ".onnx"))
        return err_set(e, E_USAGE, "--write-onnx %s: expected FILE.onnx", file);
    if (o->json && o->mode != MODE_PRINT_CONFIG && o->mode != MODE_SUMMARY && o->mode != MODE_PLAN &&
        o->mode != MODE_SEARCH && o->mode != MODE_COMPARE)
        return err_set(e, E_USAGE, "--json needs --print-config, --summary, --plan or --compare");
    if (o->mode == MODE_COMPARE) return compare_check(o, e);
    const bool makes = o->mode == MODE_INIT || o->mode == MODE_INIT_LM;
    if (o->write_config && o->mode != MODE_SEARCH && !makes)
        return err_set(e, E_USAGE, "--write-config needs --plan=search, --init or --init-lm");
    if (o->config && makes)
        return err_set(e, E_USAGE, "%s writes a configuration and reads none",
                       o->mode == MODE_INIT ? "--init" : "--init-lm");
    if (!o->config && o->mode != MODE_HELP && o->mode != MODE_VERSION && !makes)
        return err_set(e, E_USAGE, "no configuration: use --stage-config FILE; --init DIR makes one for a folder of "
                       "pictures, --init-lm FILE for a text (see mpstaged --help)");
    return 0;
}

static bool option_optional(const struct long_option *p) { return p->arg && p->arg[0] == '['; }
static int option_has_arg(const struct long_option *p)
{
    return !p->arg ? no_argument : option_optional(p) ? optional_argument : required_argument;
}

/* The option whose value must follow a '=' and may be this word, or NULL. */
static const char *value_of(const char *word)
{
    for (int i = 0; i < N_OPTIONS; i++) {
        size_t n = options[i].arg ? strlen(options[i].arg) : 0, m = strlen(word);
        if (n == m + 3 && option_optional(&options[i]) && !strncmp(options[i].arg + 2, word, m)) return options[i].name;
    }
    return NULL;
}

/* Without quotes, a shell splits a list in braces into several words. */
static int argument_refuse(const struct opts *o, const char *arg, struct err *e)
{
    const char *option = value_of(arg);
    if (option) return err_set(e, E_USAGE, "unexpected argument %s (did you mean --%s=%s?)", arg, option, arg);
    static const char set[] = ": write -o before each setting, and quotes around a list: -o 'model.input={3,32,32}'";
    const char *why = strchr(arg, '=') ? set : o->config || o->mode == MODE_COMPARE ? ""
                      : ": write -c before the configuration file";
    return err_set(e, E_USAGE, "unexpected argument %.700s%s", arg, why);
}

int opts_parse(struct opts *o, int argc, char **argv, struct err *e)
{
    struct option lng[N_OPTIONS + 1] = {0};
    for (int i = 0; i < N_OPTIONS; i++)
        lng[i] = (struct option){options[i].name, option_has_arg(&options[i]), NULL,
                                 LONG_BASE + i};
    *o = (struct opts){.mode = MODE_RUN};
    opterr = 0;
    optind = 1;
    for (int c; (c = getopt_long(argc, argv, ":c:o:hV", lng, NULL)) != -1;) {
        int i = option_find(c);
        if (i < 0) return usage_error(c, argv, e);
        if (option_take(o, &options[i], optarg, e)) return -1;
    }
    if (o->mode == MODE_COMPARE && optind < argc) o->run[1] = argv[optind++];
    if (optind < argc) return argument_refuse(o, argv[optind], e);
    return opts_check(o, e);
}

int64_t opts_number(const struct opts *o, const char *key, int64_t otherwise)
{
    size_t n = strlen(key);
    for (int i = 0; i < o->set.n; i++) {
        const char *s = o->set.v[i].assignment;
        char *end;
        if (strncmp(s, key, n) || s[n] != '=') continue;
        long long value = strtoll(s + n + 1, &end, 10);
        if (end > s + n + 1 && !*end && value >= 0) otherwise = value;
    }
    return otherwise;
}

/* All --prompt together replace the file's. */
static int prompts_set(const struct opts *o, struct conf *c, struct err *e)
{
    if (!o->prompt.n) return 0;
    if (!c->run.generate) return err_set(e, E_USAGE, "--prompt needs --generate");
    if (o->prompt.n > CONF_LIST)
        return err_set(e, E_USAGE, "--prompt is given %d times: at most %d, more in generate.prompts", o->prompt.n,
                       CONF_LIST);
    return conf_set_texts(c, "--prompt", "generate.prompt", o->prompt.v, o->prompt.n, e);
}

/* Of new adapters an evaluation would be one of the base weights. */
static int evaluation_check(const struct conf *c, struct err *e)
{
    const bool adapts = conf_adapts(c);
    const char *run = c->run.directory;
    if (!c->run.evaluate || (adapts ? c->lora.init_from : c->run.init_from)) return 0;
    return err_set(e, E_USAGE, "--evaluate needs %s; for the %s of the run in %.300s: --evaluate %s%.300s --run-dir "
                   "%.300s-evaluate", adapts ? "lora.init_from" : "--init-from", adapts ? "adapters" : "weights", run,
                   adapts ? "-o lora.init_from=" : "--init-from ", run, run);
}

int opts_apply(const struct opts *o, struct conf *c, struct err *e)
{
    for (int i = 0; i < o->set.n; i++)
        if (conf_set(c, o->set.v[i].what, o->set.v[i].assignment, e)) return -1;
    /* the search also chooses the cut */
    if (o->mode == MODE_SEARCH && conf_set(c, "--plan=search", "pipeline.partition=auto", e)) return -1;
    if (o->mode == MODE_WRITE_ONNX && conf_predicts(c))
        return err_set(e, E_USAGE, "--write-onnx cannot be combined with --%s",
                       c->run.predict ? "predict" : "generate");
    c->run.exports = o->mode == MODE_WRITE_ONNX;
    if (prompts_set(o, c, e) || conf_finish(c, e)) return -1;
    if (conf_predicts(c) && opts_measures(o))
        return err_set(e, E_USAGE, "--%s measures training, so it cannot be combined with --%s",
                       o->mode == MODE_PROFILE ? "profile" : "check-hosts", c->run.predict ? "predict" : "generate");
    return evaluation_check(c, e);
}

static void option_text(const struct long_option *p, struct text *out)
{
    if (p->key) conf_help(p->key, out);
    else text_add(out, "%s", p->help);
}

static void option_spell(const struct long_option *p, char *buf, size_t n)
{
    char letter[8] = "    ";
    if (p->letter) snprintf(letter, sizeof letter, "-%c, ", p->letter);
    snprintf(buf, n, "%s--%s%s%s", letter, p->name, p->arg && !option_optional(p) ? " " : "", p->arg ? p->arg : "");
}

void opts_help(int columns, struct text *out)
{
    enum { BEFORE = 31, LEAST = 20 };                     /* columns of an option; minimum for its text */
    int space = columns - BEFORE > LEAST ? columns - BEFORE : LEAST;
    text_add(out, "usage: mpirun -np RANKS mpstaged --stage-config FILE [option ...]\n"
                  "       mpstaged --stage-config FILE --check-config | --summary | --plan | ...\n"
                  "Trains a neural network as a pipeline, one stage a process.\n\n");
    for (int i = 0; i < N_OPTIONS; i++) {
        struct text help = {0}, whole = {0};
        char spell[64];
        option_spell(&options[i], spell, sizeof spell);
        option_text(&options[i], &whole);
        text_fold(whole.s, space, 0, &help);
        text_add(out, "  %-*s", BEFORE - 2, spell);
        for (char *save, *line = strtok_r(help.s, "\n", &save), *first = line; line; line = strtok_r(NULL, "\n", &save))
            text_add(out, "%*s%s\n", line == first ? 0 : BEFORE, "", line);
        text_free(&help);
        text_free(&whole);
    }
    text_add(out, "\nThe manual: mpstaged(8), mpstaged.conf(5), mpstagectl(1).\n");
}

void opts_manual(struct text *out)
{
    for (int i = 0; i < N_OPTIONS; i++) {
        const struct long_option *p = &options[i];
        struct text t = {0};
        option_text(p, &t);
        text_add(out, ".It ");
        if (p->letter) text_add(out, "Fl %c%s%s , ", p->letter, p->arg ? " Ar " : "", p->arg ? p->arg : "");
        text_add(out, "Fl -%s%s%s\n", p->name,
                 option_optional(p) ? " Ns "
                 : p->arg           ? " Ar "
                                    : "",
                 p->arg ? p->arg : "");
        text_add(out, "%c%s.\n", *t.s >= 'a' && *t.s <= 'z' ? *t.s - 32 : *t.s, t.s + 1);
        text_free(&t);
        if (p->key) text_add(out, "Sets\n.Va %s .\n", p->key);
    }
}

bool opts_row(int i, struct opts_row *row)
{
    if (i >= N_OPTIONS) return false;
    const struct long_option *p = &options[i];
    *row = (struct opts_row){p->name, p->arg, p->key, p->letter};
    return true;
}

void opts_free(struct opts *o)
{
    for (int i = 0; i < o->set.n; i++) {
        free((char *)o->set.v[i].what);
        free(o->set.v[i].assignment);
    }
    vec_free(&o->set);
    vec_free(&o->prompt);
}
