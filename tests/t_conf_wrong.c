/* The configuration: every kind of error. A message has the status, the line and the key; tests/golden/messages has
 * whole messages. */
#include <stdio.h>
#include <unistd.h>
#include "conf/table.h"
#include "conf_rig.h"

#define NIFTI "model { network = toy } data { source = nifti train = a } train { steps = 1 }\n"
struct wrong { const char *text; int line; const char *says; };   /* line 0: of no line; says: see says() */
#define TEN "aaaaaaaaaa"
#define HUNDRED TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN

static const struct wrong in_file[] = {
    /* syntax */
    {"run { name = \"a\"\n\n", 1, "section run"},
    {"\npipeline {\nstage { first = a", 3, "section stage"},
    {"train { steps =", 1, "value"},
    {"train { steps", 1, "'='"},
    {"train { steps 3 }", 1, "'='|\"3\""},
    {"train { steps = }", 1, "\"}\""},
    {"train", 1, "'{'"},
    {"train = 3", 1, "'{'|\"=\""},
    {"{", 1, "\"{\""},
    {"run { }\n}", 2, "\"}\""},
    {"train { = }", 1, "'}'|\"=\""},
    {"run { \"name\" = 3 }", 1, "'}'|\"name\""},
    {"model { input = {1 2} }", 1, "','|'}'|\"2\""},
    {"model { input = {1,\n{2}} }", 2, "'}'|\"{\""},
    {"model { input = {1, 2", 1, "','|'}'"},
    {"\n /* no end * /\n\n", 2, "comment"},
    {"run {\n name = \"no end\n}", 2, "text|line"},
    {"run { name = \"", 1, "text|line"},
    {"run { name = \"\\", 1, "text|line"},
    {"run { name = \"\\x\" }", 1, "'x'"},
    {"run { name = \"\x01\" }", 1, "'\\x01'"},
    {"run { name = @ }", 1, "'@'"},
    {"model { input = [1, 2] }", 1, "'['|{3, 224, 224}"},
    {"model { input = (1, 2) }", 1, "'('|{3, 224, 224}"},
    {"run { seed: 3 }", 1, "':'|name = value"},
    {"run { name = 'a' }", 1, "'''"},
    {"run { seed = 3; }", 1, "';'"},
    {"run { seed = 3,\n name = a }", 1, "','|blanks"},
    {"model { input = 3x4 }", 1, "model.input: \"3x4\"|{1, 2}"},
    {"\x7f" "ELF\x02\x01", 1, "'\\x7f'"},
    {"\n\n\xef\xbb\xbfrun {}", 3, "'\\xef'"},
    {"run { name = \"\xff\xfe\" }", 1, "run.name: |0xff"},
    {"run { name = \"a\x7f\" }", 1, "run.name: |0x7f"},
    {HUNDRED HUNDRED HUNDRED " {}", 1, "255 bytes"},
    {"a{a{a{a{a{a{a{a{", 1, "\"a\""},
    {"run { run { run {", 1, "\"run\"|run|}"},
    {"pipeline { stage { stage {", 1, " stage|first|last"},
    /* keys */
    {"\ncheese { }", 2, "\"cheese\""},
    {"train { colour = 3 }", 1, "train.colour"},
    {"trian { }", 1, "\"trian\"|train?"},
    {"train { bs = 3 }", 1, "train.bs|train.batch_size?"},
    {"train { gpus = 3 }", 1, "train.gpus|pipeline.stages?"},
    {"train {\n learning_rat = 3 }", 2, "train.learning_rat|train.learning_rate?"},
    {"train { threads = 3 }", 1, "train.threads|run.threads?"},
    {"service { every = 3 }", 1, "service.every|log_every"},
    {"train { " HUNDRED " = 3 }", 1, "train." TEN TEN TEN TEN TEN TEN "aa..."},
    {"train { steps = 3\n steps = 4 }", 2, "train.steps|1"},
    {"train { steps = 3 }\ntrain { steps = 3 }", 2, "train.steps|1"},
    /* values */
    {"train { batch_size = 0 }", 1, "train.batch_size: 0|1|16777216"},
    {"train { split_size = -1 }", 1, "train.split_size: -1|0|16777216"},
    {"train { steps = 99999999999999999999 }", 1, "train.steps: 99999999999999999999|0|9000000000000000"},
    {"train { steps = 9000000000000001 }", 1, "train.steps: 9000000000000001|0|9000000000000000"},
    {"train { steps = 1.5 }", 1, "train.steps: \"1.5\""},
    {"train { steps = 1e3 }", 1, "train.steps: \"1e3\""},
    {"train { steps = 0x10 }", 1, "train.steps: \"0x10\""},
    {"train { steps = - }", 1, "train.steps: \"-\""},
    {"train { steps = three }", 1, "train.steps: \"three\""},
    {"train { steps = \"3\" }", 1, "train.steps: "},
    {"train { steps = {3} }", 1, "train.steps: "},
    {"train { learning_rate = nan }", 1, "train.learning_rate: \"nan\""},
    {"train { learning_rate = -inf }", 1, "train.learning_rate: \"-inf\""},
    {"train { learning_rate = 1e999 }", 1, "train.learning_rate: \"1e999\""},
    {"train { learning_rate = -0x1p3 }", 1, "train.learning_rate: \"-0x1p3\""},
    {"train { learning_rate = -0.1 }", 1, "train.learning_rate: -0.1|0|1000000"},
    {"train { nesterov = 1 }", 1, "train.nesterov: \"1\""},
    {"train { nesterov = \"yes\" }", 1, "train.nesterov: "},
    {"train { loss = hinge }", 1, "train.loss: \"hinge\"|mse|cross_entropy"},
    {"train { loss = batch_dice }", 1, "train.loss: \"batch_dice\""},
    {"train { precision = \"fp16\" }", 1, "train.precision: \"fp16\"|fp32"},
    {"train { beta1 = 1 }", 1, "train.beta1: 1|0|0.999999999"},
    {"train { epsilon = 0 }", 1, "train.epsilon: 0|1e-30|1000000"},
    {"lora { rank = 0 }", 1, "lora.rank: 0|1|65536"},
    {"lora { lora_alpha = 16 }", 1, "lora.alpha?"},
    {"lora { target_modules = {q_proj} }", 1, "lora.targets?"},
    {"pipeline { schedule = zb-h7 }", 1, "pipeline.schedule: \"zb-h7\"|zb-h1?"},
    {"pipeline { partition = even }", 1, "pipeline.partition: \"even\"|uniform"},
    {"pipeline { replicas = 65 }", 1, "pipeline.replicas: 65|1|64"},
    {"pipeline { bucket_kib = -1 }", 1, "pipeline.bucket_kib: -1|0|1073741824"},
    {"pipeline { max_memory = 4.5QB }", 1, "pipeline.max_memory: \"4.5QB\""},
    {"pipeline { max_memory = {1GB, -1GB} }", 1, "pipeline.max_memory: \"-1GB\""},
    {"pipeline { max_memory = 9999999999GiB }", 1, "pipeline.max_memory: 9999999999GiB|0|9000000000000000"},
    {"pipeline { no_split = {\"a\", \"\"} }", 1, "pipeline.no_split: "},
    {"run { name = \"\" }", 1, "run.name: "},
    {"model { input = {3, -1} }", 1, "model.input: -1|1|16777216"},
    {"model { input = {\"3\"} }", 1, "model.input: "},
    {"model { input = {1,2,3,4,5,6,7,8,9,0,1,2,3,4,5,6,\n7} }", 2, "16"},
    /* stages */
    {"pipeline { stage { first = a } }", 1, "first|last"},
    {"pipeline { stage { first = a first = b } }", 1, "first"},
    {"pipeline { stage { first = {a} last = b } }", 1, "first: "},
    {"pipeline { stage { first = a last = \"\" } }", 1, "last: "},
    {"pipeline { stage { first = a last = \"\xff\" } }", 1, "last: |0xff"},
    {"pipeline { stage { first = a middle = b last = c } }", 1, " middle|first|last"},
    {"pipeline { stage = 3 }", 1, "pipeline.stage|pipeline.stages?"},
};

/* The error has this status, begins with its place and has these words. */
static void refused(const struct err *e, int code, const char *place, const char *words)
{
    ck_assert_msg(e->code == code && !strncmp(e->text, place, strlen(place)) && says(e->text, words),
                  "%d \"%s\", expected %d \"%s\" and \"%s\"", e->code, e->text, code, place, words);
}

static void at_line(const struct err *e, int line, const char *words)
{
    char place[32];
    snprintf(place, sizeof place, line ? "f.conf:%d: " : "f.conf: ", line);
    refused(e, E_CONF, place, words);
}

static void wrong(const char *text, size_t n, int line, const char *words)
{
    struct err e = {0};
    ck_assert_ptr_null(conf_parse("f.conf", text, n, &e));
    at_line(&e, line, words);
}

START_TEST(file_errors)
{
    const struct wrong *w = &in_file[_i];
    wrong(w->text, strlen(w->text), w->line, w->says);
}
END_TEST

START_TEST(nul_byte)
{
    static const char text[] = "run {\n\0}", inside[] = "run { name = \"a\0b\" }";
    wrong(text, sizeof text - 1, 2, "'\\x00'");
    wrong(inside, sizeof inside - 1, 1, "'\\x00'");
}
END_TEST

/* before, n times unit, after; and the words of the error (NULL: there is none). */
static void repeated(const char *before, const char *unit, int n, const char *after, int line, const char *words)
{
    struct text t = {0};
    text_add(&t, "%s", before);
    for (int i = 0; i < n; i++) text_add_bytes(&t, unit, strlen(unit));
    text_add(&t, "%s", after);
    if (words) wrong(t.s, t.n, line, words);
    else conf_free(parse(t.s));
    text_free(&t);
}

START_TEST(limits)
{
    repeated("run { name = \"", "x", 4095, "\" }", 0, NULL);
    repeated("run { name = \"", "x", 4096, "\" }", 1, "4095 bytes");
    repeated("pipeline {", "\nstage { first = a last = b }", 4096, "}", 0, NULL);
    repeated("pipeline {", "\nstage { first = a last = b }", 4097, "}", 4098, "4096 stages");
    repeated("", "\n", (1 << 20) - 6, "run {}", 0, NULL);
    repeated("", "\n", (1 << 20) - 5, "run {}", 0, "1048576 bytes");
    repeated("", "\n", 100000, "run { seed = x }", 100001, "run.seed: \"x\"");
    repeated("", "run {", 200000, "", 1, "\"run\"|run|}");
    repeated("model { input = {", "{", 1000000, "", 1, "'}'|\"{\"");
}
END_TEST

static void not_loaded(const char *path, int code, const char *words)
{
    struct err e = {0};
    ck_assert_ptr_null(conf_load(path, &e));
    refused(&e, code, path, words);
}

START_TEST(files)
{
    char path[] = "/tmp/t_conf.XXXXXX";
    not_loaded("/nonexistent/x.conf", E_NOINPUT, ": No such file or directory");
    not_loaded("/tmp", E_CONF, ": |directory");
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(ftruncate(fd, (1 << 20) + 1), 0);
    not_loaded(path, E_CONF, ": |1048576 bytes");
    ck_assert_int_eq(ftruncate(fd, 0), 0);
    struct conf *c = conf_load(path, NULL);
    struct err e = {0};
    ck_assert(c && conf_finish(c, &e) == -1);
    refused(&e, E_CONF, path, ": |model.network|model.graph");
    conf_free(c);
    close(fd);
    unlink(path);
}
END_TEST

/* ---- rules between options ------------------------------------------------------------------- */

static const struct wrong in_rules[] = {
    {"", 0, "model.network|model.graph"},
    {"model { network = toy\n graph = g }", 2, "model.graph: |model.network"},
    {"model { network = toy }", 0, "data.source"},
    {"model { network = toy } data { source = idx }", 0, "data.train"},
    {"model { network = toy } data { source = npy train = a train_labels = b test_labels = c }", 0, "data.test"},
    {"model { network = toy } data { source = npy train_labels = b }", 0, "data.train"},
    {"model { network = toy } data { source = synthetic }", 0, "train.steps|train.epochs"},
    {FILES "data { resize = {32} }", 2, "data.resize: |{height, width}"},
    {FILES "data { pad = {32} }", 2, "data.pad: |{height, width}"},
    {FILES "data { mean = 1 }", 2, "data.mean: |data.std"},
    {FILES "data { std = 1 }", 2, "data.std: |data.mean"},
    {OK "train { split_size = 33 }", 2, "train.split_size: 33|32"},
    {OK "train { nesterov = yes }", 2, "train.nesterov: |train.momentum"},
    {OK "train { evaluate = no\npatience = 2 evaluate_epochs = 1 }", 3, "train.patience: |train.evaluate is no"},
    {OK "train { evaluate = no }\ncheckpoint { best = loss }", 3, "checkpoint.best: |train.evaluate is no"},
    {OK "train { evaluate = no\nconfusion = yes }", 3, "train.confusion: |train.evaluate is no"},
    {OK "pipeline { replicas = 2 }", 2, "pipeline.replicas: |2|train.gradient_groups = 1|2"},
    {OK "pipeline { replicas = 3 }", 2, "pipeline.replicas: |3"},
    {OK "train { gradient_groups = 6 }", 2, "train.gradient_groups: |6"},
    {OK "train { optimizer = adamw momentum = 0.9 }", 2, "train.momentum: |train.optimizer"},
    {OK "train { optimizer = adamw\nnesterov = yes }", 3, "train.nesterov: |train.optimizer"},
    {OK "train { beta1 = 0.8 }", 2, "train.beta1: |train.optimizer"},
    {OK "train { beta2 = 0.8 }", 2, "train.beta2: |train.optimizer"},
    {OK "train { epsilon = 1e-6 }", 2, "train.epsilon: |train.optimizer"},
    {OK "train { schedule = step }", 2, "train.schedule: |train.milestones|train.step_size"},
    {OK "train { schedule = step\nmilestones = {3, 3} }", 3, "train.milestones: "},
    {OK "train { schedule = step milestones = {3}\nstep_size = 2 }", 3, "train.step_size: |train.milestones"},
    {OK "train { milestones = {3} }", 2, "train.milestones: |train.schedule"},
    {OK "train { gamma = 0.1 }", 2, "train.gamma: |train.schedule"},
    {OK "train { schedule = step step_size = 3\nlearning_rate_end = 0.1 }", 3,
     "train.learning_rate_end: |train.schedule"},
    {OK "train { loss = mse\nlabel_smoothing = 0.1 }", 3, "train.label_smoothing: |train.loss"},
    {OK "train { schedule = cosine power = 2 }", 2, "train.power: |train.schedule"},
    {OK "train { warmup_epochs = 3\nwarmup_steps = 2 }", 2, "train.warmup_epochs: |train.warmup_steps"},
    {OK "train { schedule_by = epoch warmup_steps = 2 }", 2,
     "train.warmup_steps: |train.schedule_by = epoch|train.warmup_epochs"},
    {OK "data { mean = 1 std = 1 }", 2, "data.mean: |data.source"},
    {OK "data { train = x }", 2, "data.train: |data.source"},
    {OK "data { augment = {horizontal_flip} }", 2, "data.augment: |data.source"},
    {OK "data { spacing = 1 }", 2, "data.spacing: |data.source"},
    {NIFTI "data { folds = 1 }", 2, "data.folds: 1|2"},
    {NIFTI "data { folds = 3\nfold = 3 }", 3, "data.fold: 3|data.folds"},
    {NIFTI "data { fold = 1 }", 2, "data.fold: 1|data.folds"},
    {NIFTI "data { folds = 3\ntest_images = b }", 3, "data.test: |data.folds"},
    {NIFTI "data { cache = {1MiB, 2MiB} }", 2, "data.cache: "},
    {NIFTI "run { predict = x.txt init_from = w }", 2, "run.predict: |FILE.csv|FILE.jsonl|FILE.npy|FOLDER/|x.txt"},
    {NIFTI "data { validation = 0.1 }", 2, "data.validation: |data.source"},
    {FILES "data { validation = 0.1\ntest_images = b }", 3, "data.test: |data.validation"},
    {FILES "data { validation = 0.1\ntest_samples = 3 }", 3, "data.test_samples: |data.validation"},
    {FILES "data { damaged = skip }", 2, "data.damaged: |data.source"},
    {FILES "data { upright = no }", 2, "data.upright: |data.source"},
    {"model { network = toy } data { source = images train = a resize = {1, 2, 3} } train { steps = 1 }", 1,
     "data.resize: |{height, width}"},
    {"model { network = toy } data { source = npy train = a train_labels = b upright = no } train { steps = 1 }", 1,
     "data.upright: |data.source"},
    {GRAPH "model { hidden = {3} }", 2, "model.hidden: |model.network|model.graph"},
    {GRAPH "model { dropout = 0.1 }", 2, "model.dropout: |model.network|model.graph"},
    {GRAPH "model { small_stem = yes }", 2, "model.small_stem: |model.network|model.graph"},
    {GRAPH "model { zero_init_residual = yes }", 2, "model.zero_init_residual: |model.network|model.graph"},
    {OK "pipeline { partition = manual }", 2, "pipeline.partition: "},
    {OK "pipeline { stages = 3 stage { first = a last = b } }", 2, "pipeline.stages: |1|3"},
    {OK "pipeline { schedule = rows }", 2, "pipeline.schedule: |pipeline.rows"},
    {OK "pipeline { schedule = rows rows = r in_flight = 2 }", 2, "pipeline.in_flight: "},
    {OK "pipeline { rows = r }", 2, "pipeline.rows: |pipeline.schedule|\"rows\""},
    {OK "run { name = \"a/b\" }", 2, "run.name: "},
    {OK "run { name = \"..\" }", 2, "run.name: "},
};

START_TEST(rule_errors)
{
    const struct wrong *w = &in_rules[_i];
    struct err e = {0};
    struct conf *c = parse(w->text);
    ck_assert_int_eq(conf_finish(c, &e), -1);
    at_line(&e, w->line, w->says);
    conf_free(c);
}
END_TEST

static const struct { const char *what, *assignment; int code; const char *says; } in_set[] = {
    {"-o train.steps=x", "train.steps=x", E_CONF, "\"x\""},
    {"--batch-size", "train.batch_size=0", E_CONF, "0|1|16777216"},
    {"--precision", "train.precision=fp16", E_CONF, "\"fp16\"|fp32"},
    {"-o", "train.steps=", E_CONF, "\"\""},
    {"-o", "run.name=", E_CONF, ""},
    {"-o", "run.name=\xff", E_CONF, "0xff"},
    {"-o", "train.nesterov=maybe", E_CONF, "\"maybe\"|yes|no"},
    {"-o", "model.input={1", E_CONF, "','|'}'"},
    {"-o", "model.input={1} 2", E_CONF, "list"},
    {"-o", "model.input=1 2", E_CONF, "','|\"2\""},
    {"-o", "data.mean=nan", E_CONF, "\"nan\""},
    {"-o", "train.colour=3", E_USAGE, "train.colour"},
    {"-o", "train.lr=3", E_USAGE, "train.lr |train.learning_rate?"},
    {"-o", "train.rho=0.9", E_USAGE, "train.rho|train.beta2?"},
    {"-o", "data.val_dir=v", E_USAGE, "data.val_dir|data.test?"},
    {"-o", "data.source=ImageFolder", E_CONF, "\"ImageFolder\"|idx|images?"},
    {"-o", "train.schedule=ExponentialLR", E_CONF, "\"ExponentialLR\"|step|step?"},
    {"-o", "train.swa=3", E_USAGE, "train.swa"},
    {"-o", "cheese.rind=3", E_USAGE, "cheese.rind"},
    {"-o", "train.precision=float32", E_CONF, "\"float32\"|bf16|fp32?"},
    {"-o", "pipeline.schedule=1f2b", E_CONF, "\"1f2b\"|naive|1f1b?"},
    {"-o", "train.optimizer=adm", E_CONF, "\"adm\"|sgd|adam?"},
    {"-o", "train.stepz=3", E_USAGE, "train.stepz|train.steps?"},
    {"-o", "steps=3", E_USAGE, "steps|train.steps?"},
    {"-o train.steps", "train.steps", E_USAGE, "SECTION.KEY=VALUE"},
    {"-o =3", "=3", E_USAGE, "SECTION.KEY=VALUE"},
};

START_TEST(override_errors)
{
    struct err e = {0};
    char place[64];
    struct conf *c = parse(OK);
    snprintf(place, sizeof place, "%s: ", in_set[_i].what);
    ck_assert_int_eq(conf_set(c, in_set[_i].what, in_set[_i].assignment, &e), -1);
    refused(&e, in_set[_i].code, place, in_set[_i].says);
    conf_free(c);
}
END_TEST

static void word_built(const char *word, int n, bool built, void *arg)
{
    const struct opt *o = ((void **)arg)[0];
    if (built && !(o->def && strlen(o->def) == (size_t)n && !strncmp(o->def, word, (size_t)n)))
        snprintf(((char **)arg)[1], 40, "%.*s", n, word);
}

/* Values as they are written: one that is not the default, and one that is refused. */
static void value_make(const struct opt *o, char good[40], char bad[40])
{
    const double x = o->def && atof(o->def) == o->lo ? o->hi : o->lo;
    const bool real = o->type == OPT_REAL || o->type == OPT_REALS, list = opt_is_list(o->type);
    if (opt_is_text(o->type)) snprintf(good, 40, "\"other\""), strcpy(bad, o->words ? "nothing" : "\"\"");
    else if (o->type == OPT_BOOL) strcpy(good, o->def && !strcmp(o->def, "yes") ? "no" : "yes"), strcpy(bad, "maybe");
    else if (o->type == OPT_TEXTS) strcpy(good, "{a, b}"), strcpy(bad, "{\"\"}");
    else {
        snprintf(good, 40, real ? "%s%.17g%s" : "%s%.0f%s", list ? "{" : "", x, list ? "}" : "");
        snprintf(bad, 40, "%.17g", o->lo - 1);
    }
    if (o->words) opt_words(o, word_built, (void *[]){(void *)o, good});
}

static struct conf *with_one(const struct opt *o, const char *value, struct err *e)
{
    char s[200];
    const char *dot = strchr(o->key, '.');
    snprintf(s, sizeof s, "%.*s { %s = %s }", (int)(dot - o->key), o->key, dot + 1, value);
    return conf_parse("f.conf", s, strlen(s), e);
}

/* A value of each option comes back as it was set, and no other option has changed; a wrong one is refused by the
 * option's name. */
START_TEST(each_option_is_its_own)
{
    struct conf *plain = parse("");
    for (int i = 0; opt_table[i].key; i++) {
        const struct opt *o = &opt_table[i];
        char good[40], bad[40], place[80];
        struct err e = {0};
        struct text was = {0}, is = {0}, again = {0};
        value_make(o, good, bad);
        struct conf *c = with_one(o, good, &e);
        ck_assert_msg(c != NULL, "%s", e.text);
        for (int k = 0; opt_table[k].key; k++) {
            text_free(&was);
            text_free(&is);
            opt_print(plain, k, &was);
            opt_print(c, k, &is);
            sure((k == i) == !!strcmp(was.n ? was.s : "", is.n ? is.s : ""), "%s = %s and %s", o->key, good,
                 opt_table[k].key);
        }
        text_free(&is);
        opt_print(c, i, &is);
        conf_free(c);
        c = with_one(o, is.s, &e);
        ck_assert_msg(c != NULL, "%s", e.text);
        opt_print(c, i, &again);
        ck_assert_str_eq(again.s, is.s);
        conf_free(c);
        snprintf(place, sizeof place, "f.conf:1: %s: ", o->key);
        ck_assert_ptr_null(with_one(o, bad, &e));
        refused(&e, E_CONF, place, "");
        text_free(&was); text_free(&is); text_free(&again);
    }
    conf_free(plain);
}
END_TEST

START_TEST(errors_name_their_origin)
{
    struct err e = {0}, f = {0}, g = {0};
    struct conf *c = parse(OK "run {\n name = x }");
    ck_assert_int_eq(conf_set(c, "--stages", "pipeline.stages=9", NULL), 0);
    conf_error(c, "pipeline.stages", &e, "%d ranks", 2);
    ck_assert_str_eq(e.text, "--stages: 2 ranks");
    conf_error(c, "run.name", &f, "no");
    ck_assert_str_eq(f.text, "f.conf:3: run.name: no");
    conf_error(c, "run.seed", &g, "no");
    ck_assert_str_eq(g.text, "f.conf: run.seed: no");
    ck_assert_int_eq(g.code, E_CONF);
    conf_free(c);
}
END_TEST

/* Only errors of files that are missing or may not be read get the place of the option that names the file. */
START_TEST(files_have_a_place)
{
    static const struct { int code; const char *text, *all; } want[] = {
        {E_NOINPUT, "a: gone", "f.conf:1: data.train: a: gone"},
        {E_NOINPUT, "a/x: gone", "f.conf:1: data.train: a/x: gone"},
        {E_NOINPUT, "a/b: gone", "f.conf:1: data.train_labels: a/b: gone"},
        {E_PERM, "t: denied", "-o data.test=t: t: denied"},
        {E_NOINPUT, "ab: gone", "ab: gone"}, {E_NOINPUT, "runs/x: gone", "runs/x: gone"},
        {E_NOINPUT, "f.conf: gone", "f.conf: gone"}, {E_DATA, "a: offset 0", "a: offset 0"},
    };
    struct conf *c = parse("data { source = idx train = a train_labels = \"a/b\" } run { directory = \"runs/x\" }");
    ck_assert_int_eq(conf_set(c, "-o data.test=t", "data.test=t", NULL), 0);
    for (int i = 0; i < N_OF(want); i++) {
        struct err e = {0};
        err_set(&e, want[i].code, "%s", want[i].text);
        ck_assert_int_eq(conf_where(c, &e), -1);
        ck_assert_str_eq(e.text, want[i].all);
        ck_assert_int_eq(e.code, want[i].code);
    }
    conf_free(c);
}
END_TEST

int main(void)
{
    TCase *t = suite_case("conf_wrong", 60);
    tcase_add_loop_test(t, file_errors, 0, N_OF(in_file));
    tcase_add_test(t, nul_byte);
    tcase_add_test(t, limits);
    tcase_add_test(t, files);
    tcase_add_loop_test(t, rule_errors, 0, N_OF(in_rules));
    tcase_add_loop_test(t, override_errors, 0, N_OF(in_set));
    tcase_add_test(t, each_option_is_its_own);
    tcase_add_test(t, errors_name_their_origin);
    tcase_add_test(t, files_have_a_place);
    return suite_run("conf_wrong", CK_FORK, t);
}
