/* The configuration: every way in which it may be wrong, with its exact message. */
#include <stdio.h>
#include <unistd.h>
#include "conf_rig.h"

#define NIFTI "model { network = toy } data { source = nifti train = a } train { steps = 1 }\n"
struct wrong { const char *text, *message; };
#define TEN "aaaaaaaaaa"
#define HUNDRED TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN

static const struct wrong in_file[] = {
    /* syntax */
    {"run { name = \"a\"\n\n", "f.conf:1: section run begins here and never ends"},
    {"\npipeline {\nstage { first = a", "f.conf:3: section stage begins here and never ends"},
    {"train { steps =", "f.conf:1: want a value, found the end"},
    {"train { steps", "f.conf:1: want '=', found the end"},
    {"train { steps 3 }", "f.conf:1: want '=', found \"3\""},
    {"train { steps = }", "f.conf:1: want a value, found \"}\""},
    {"train", "f.conf:1: want '{', found the end"},
    {"train = 3", "f.conf:1: want '{', found \"=\""},
    {"{", "f.conf:1: want the name of a section, found \"{\""},
    {"run { }\n}", "f.conf:2: want the name of a section, found \"}\""},
    {"train { = }", "f.conf:1: want a key or '}', found \"=\""},
    {"run { \"name\" = 3 }", "f.conf:1: want a key or '}', found \"name\""},
    {"model { input = {1 2} }", "f.conf:1: want ',' or '}', found \"2\""},
    {"model { input = {1,\n{2}} }", "f.conf:2: want a value of the list or '}', found \"{\""},
    {"model { input = {1, 2", "f.conf:1: want ',' or '}', found the end"},
    {"\n /* no end * /\n\n", "f.conf:2: a comment begins here and never ends"},
    {"run {\n name = \"no end\n}", "f.conf:2: a text begins here and does not end on its line"},
    {"run { name = \"", "f.conf:1: a text begins here and does not end on its line"},
    {"run { name = \"\\", "f.conf:1: a text begins here and does not end on its line"},
    {"run { name = \"\\x\" }", "f.conf:1: in a text, \\ must not stand before 'x'"},
    {"run { name = \"\x01\" }", "f.conf:1: a text must not contain '\\x01'"},
    {"run { name = @ }", "f.conf:1: unexpected character '@'"},
    {"model { input = [1, 2] }", "f.conf:1: unexpected character '[': a list stands in braces, such as {3, 224, 224}"},
    {"model { input = (1, 2) }", "f.conf:1: unexpected character '(': a list stands in braces, such as {3, 224, 224}"},
    {"run { seed: 3 }", "f.conf:1: unexpected character ':': a setting is written with an equals sign: name = value"},
    {"run { name = 'a' }", "f.conf:1: unexpected character ''': a text stands in double quotes"},
    {"run { seed = 3; }", "f.conf:1: unexpected character ';': blanks and line ends separate settings"},
    {"model { input = 3x4 }", "f.conf:1: model.input: \"3x4\" is no whole number; a list is written as {1, 2}"},
    {"\x7f"
     "ELF\x02\x01",
     "f.conf:1: unexpected character '\\x7f'"},
    {"\n\n\xef\xbb\xbfrun {}", "f.conf:3: unexpected character '\\xef'"},
    {"run { name = \"\xff\xfe\" }", "f.conf:1: run.name: the text is not UTF-8 (0xff)"},
    {"run { name = \"a\x7f\" }", "f.conf:1: run.name: the text has a control character (0x7f)"},
    {HUNDRED HUNDRED HUNDRED " {}", "f.conf:1: a word of more than 255 bytes"},
    {"a{a{a{a{a{a{a{a{",
     "f.conf:1: there is no section \"a\", only run, model, data, train, pipeline, checkpoint, service"},
    {"run { run { run {", "f.conf:1: there is no section \"run\" in section run (is a } missing before it?)"},
    {"pipeline { stage { stage {", "f.conf:1: unknown key stage: a stage has first and last"},
    /* keys */
    {"\ncheese { }",
     "f.conf:2: there is no section \"cheese\", only run, model, data, train, pipeline, checkpoint, service"},
    {"train { colour = 3 }", "f.conf:1: unknown key train.colour"
                             " (see mpstaged.conf(5))"},
    {"trian { }",
     "f.conf:1: there is no section \"trian\", only run, model, data, train, pipeline, checkpoint, service "
     "(did you mean train?)"},
    {"train { bs = 3 }", "f.conf:1: unknown key train.bs (did you mean train.batch_size?)"},
    {"train { gpus = 3 }", "f.conf:1: unknown key train.gpus (did you mean pipeline.stages?)"},
    {"train {\n learning_rat = 3 }", "f.conf:2: unknown key train.learning_rat (did you mean train.learning_rate?)"},
    {"train { threads = 3 }", "f.conf:1: unknown key train.threads (did you mean run.threads?)"},
    {"service { every = 3 }", "f.conf:1: unknown key service.every: service has progress, log_every, tensorboard, "
     "control, metrics, metrics_every, stages_every"},
    {"train { " HUNDRED " = 3 }", "f.conf:1: unknown key train." TEN TEN TEN TEN TEN TEN "aa..."
                                  " (see mpstaged.conf(5))"},
    {"train { steps = 3\n steps = 4 }", "f.conf:2: train.steps is already set in line 1"},
    {"train { steps = 3 }\ntrain { steps = 3 }", "f.conf:2: train.steps is already set in line 1"},
    /* values */
    {"train { batch_size = 0 }", "f.conf:1: train.batch_size: 0 is not in 1 to 16777216"},
    {"train { split_size = -1 }", "f.conf:1: train.split_size: -1 is not in 0 to 16777216"},
    {"train { steps = 99999999999999999999 }",
     "f.conf:1: train.steps: 99999999999999999999 is not in 0 to 9000000000000000"},
    {"train { steps = 9000000000000001 }", "f.conf:1: train.steps: 9000000000000001 is not in 0 to 9000000000000000"},
    {"train { steps = 1.5 }", "f.conf:1: train.steps: \"1.5\" is no whole number"},
    {"train { steps = 1e3 }", "f.conf:1: train.steps: \"1e3\" is no whole number"},
    {"train { steps = 0x10 }", "f.conf:1: train.steps: \"0x10\" is no whole number"},
    {"train { steps = - }", "f.conf:1: train.steps: \"-\" is no whole number"},
    {"train { steps = three }", "f.conf:1: train.steps: \"three\" is no whole number"},
    {"train { steps = \"3\" }", "f.conf:1: train.steps: want a number without quotes"},
    {"train { steps = {3} }", "f.conf:1: train.steps: want one value, not a list"},
    {"train { learning_rate = nan }", "f.conf:1: train.learning_rate: \"nan\" is no finite number"},
    {"train { learning_rate = -inf }", "f.conf:1: train.learning_rate: \"-inf\" is no finite number"},
    {"train { learning_rate = 1e999 }", "f.conf:1: train.learning_rate: \"1e999\" is no finite number"},
    {"train { learning_rate = -0x1p3 }", "f.conf:1: train.learning_rate: \"-0x1p3\" is no finite number"},
    {"train { learning_rate = -0.1 }", "f.conf:1: train.learning_rate: -0.1 is not in 0 to 1000000"},
    {"train { nesterov = 1 }", "f.conf:1: train.nesterov: \"1\" is none of yes, no, true, false"},
    {"train { nesterov = \"yes\" }", "f.conf:1: train.nesterov: want yes or no without quotes"},
    {"train { loss = hinge }", "f.conf:1: train.loss: \"hinge\" is none of mse, cross_entropy, dice, "
     "dice_ce"},
    {"train { loss = batch_dice }",
     "f.conf:1: train.loss: \"batch_dice\" is not built: Dice over the batch is no mean over samples: it needs "
     "the sums of all micro-batches before the first backward pass; dice has one of each sample"},
    {"train { precision = \"fp16\" }", "f.conf:1: train.precision: \"fp16\" is not built, only fp32, tf32, bf16"},
    {"train { beta1 = 1 }", "f.conf:1: train.beta1: 1 is not in 0 to 0.999999999"},
    {"train { epsilon = 0 }", "f.conf:1: train.epsilon: 0 is not in 1e-30 to 1000000"},
    {"pipeline { schedule = zb-h7 }",
     "f.conf:1: pipeline.schedule: \"zb-h7\" is none of naive, gpipe, 1f1b, interleaved, zb-h1, zb-v, auto, rows (did "
     "you mean zb-h1?)"},
    {"pipeline { partition = even }",
     "f.conf:1: pipeline.partition: \"even\" is none of manual, uniform, sequential, balanced, balanced_low_0, auto"},
    {"pipeline { replicas = 65 }", "f.conf:1: pipeline.replicas: 65 is not in 1 to 64"},
    {"pipeline { bucket_kib = -1 }", "f.conf:1: pipeline.bucket_kib: -1 is not in 0 to 1073741824"},
    {"pipeline { max_memory = 4.5QB }",
     "f.conf:1: pipeline.max_memory: \"4.5QB\" is no size such as 10GiB, 8GB, 512MB or a number of bytes"},
    {"pipeline { max_memory = {1GB, -1GB} }",
     "f.conf:1: pipeline.max_memory: \"-1GB\" is no size such as 10GiB, 8GB, 512MB or a number of bytes"},
    {"pipeline { max_memory = 9999999999GiB }",
     "f.conf:1: pipeline.max_memory: 9999999999GiB is not in 0 to 9000000000000000 bytes"},
    {"pipeline { no_split = {\"a\", \"\"} }", "f.conf:1: pipeline.no_split: the text is empty"},
    {"run { name = \"\" }", "f.conf:1: run.name: the text is empty"},
    {"model { input = {3, -1} }", "f.conf:1: model.input: -1 is not in 1 to 16777216"},
    {"model { input = {\"3\"} }", "f.conf:1: model.input: want a number without quotes"},
    {"model { input = {1,2,3,4,5,6,7,8,9,0,1,2,3,4,5,6,\n7} }", "f.conf:2: a list of more than 16 values"},
    /* stages */
    {"pipeline { stage { first = a } }", "f.conf:1: a stage needs first and last"},
    {"pipeline { stage { first = a first = b } }", "f.conf:1: first is set twice in this stage"},
    {"pipeline { stage { first = {a} last = b } }", "f.conf:1: first: want the name of a layer"},
    {"pipeline { stage { first = a last = \"\" } }", "f.conf:1: last: want the name of a layer"},
    {"pipeline { stage { first = a last = \"\xff\" } }", "f.conf:1: last: the text is not UTF-8 (0xff)"},
    {"pipeline { stage { first = a middle = b last = c } }",
     "f.conf:1: unknown key middle: a stage has first and last"},
    {"pipeline { stage = 3 }", "f.conf:1: unknown key pipeline.stage (did you mean pipeline.stages?)"},
};

START_TEST(file_errors)
{
    const struct wrong *w = &in_file[_i];
    struct err e = {0};
    ck_assert_ptr_null(conf_parse("f.conf", w->text, strlen(w->text), &e));
    ck_assert_str_eq(e.text, w->message);
    ck_assert_int_eq(e.code, E_CONF);
}
END_TEST

START_TEST(nul_byte)
{
    static const char text[] = "run {\n\0}";
    struct err e = {0};
    ck_assert_ptr_null(conf_parse("f.conf", text, sizeof text - 1, &e));
    ck_assert_str_eq(e.text, "f.conf:2: unexpected character '\\x00'");
    static const char inside[] = "run { name = \"a\0b\" }";
    e = (struct err){0};
    ck_assert_ptr_null(conf_parse("f.conf", inside, sizeof inside - 1, &e));
    ck_assert_str_eq(e.text, "f.conf:1: a text must not contain '\\x00'");
}
END_TEST

/* before, n times unit, after; and what is said about it (NULL: nothing). */
static void repeated(const char *before, const char *unit, int n, const char *after, const char *message)
{
    struct text t = {0};
    struct err e = {0};
    text_add(&t, "%s", before);
    for (int i = 0; i < n; i++) text_add_bytes(&t, unit, strlen(unit));
    text_add(&t, "%s", after);
    struct conf *c = conf_parse("f.conf", t.s, t.n, &e);
    ck_assert_str_eq(e.text, message ? message : "");
    ck_assert(!c == !!message);
    conf_free(c);
    text_free(&t);
}

START_TEST(limits)
{
    repeated("run { name = \"", "x", 4095, "\" }", NULL);
    repeated("run { name = \"", "x", 4096, "\" }", "f.conf:1: a text of more than 4095 bytes");
    repeated("pipeline {", "\nstage { first = a last = b }", 4096, "}", NULL);
    repeated("pipeline {", "\nstage { first = a last = b }", 4097, "}", "f.conf:4098: more than 4096 stages");
    repeated("", "\n", (1 << 20) - 6, "run {}", NULL);
    repeated("", "\n", (1 << 20) - 5, "run {}", "f.conf: larger than 1048576 bytes");
    repeated("", "\n", 100000, "run { seed = x }", "f.conf:100001: run.seed: \"x\" is no whole number");
    repeated("", "run {", 200000, "",
             "f.conf:1: there is no section \"run\" in section run (is a } missing before it?)");
    repeated("model { input = {", "{", 1000000, "", "f.conf:1: want a value of the list or '}', found \"{\"");
}
END_TEST

START_TEST(files)
{
    char path[] = "/tmp/t_conf.XXXXXX", want[64];
    struct err e = {0};
    ck_assert_ptr_null(conf_load("/nonexistent/x.conf", &e));
    ck_assert_str_eq(e.text, "/nonexistent/x.conf: No such file or directory");
    ck_assert_int_eq(e.code, E_NOINPUT);
    e = (struct err){0};
    ck_assert_ptr_null(conf_load("/tmp", &e));
    ck_assert_str_eq(e.text, "/tmp: is a directory");
    ck_assert_int_eq(e.code, E_CONF);
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(ftruncate(fd, (1 << 20) + 1), 0);
    e = (struct err){0};
    ck_assert_ptr_null(conf_load(path, &e));
    snprintf(want, sizeof want, "%s: larger than 1048576 bytes", path);
    ck_assert_str_eq(e.text, want);
    ck_assert_int_eq(e.code, E_CONF);
    ck_assert_int_eq(ftruncate(fd, 0), 0);
    struct conf *c = conf_load(path, NULL);
    ck_assert_ptr_nonnull(c);
    e = (struct err){0};
    ck_assert_int_eq(conf_finish(c, &e), -1);
    snprintf(want, sizeof want, "%s: model.network (or model.graph) is missing", path);
    ck_assert_str_eq(e.text, want);
    ck_assert_int_eq(e.code, E_CONF);
    conf_free(c);
    close(fd);
    unlink(path);
}
END_TEST

/* ---- rules between options ------------------------------------------------------------------- */

static const struct wrong in_rules[] = {
    {"", "f.conf: model.network (or model.graph) is missing"},
    {"model { network = toy\n graph = g }", "f.conf:2: model.graph: model.network is set, too: want one of the two"},
    {"model { network = toy }", "f.conf: data.source is missing"},
    {"model { network = toy } data { source = idx }", "f.conf: data.train is missing"},
    {"model { network = toy } data { source = npy train = a train_labels = b test_labels = c }",
     "f.conf: data.test is missing"},
    {"model { network = toy } data { source = npy train_labels = b }", "f.conf: data.train is missing"},
    {"model { network = toy } data { source = synthetic }", "f.conf: train.steps (or train.epochs) is missing"},
    {FILES "data { resize = {32} }", "f.conf:2: data.resize: want {height, width}"},
    {FILES "data { pad = {32} }", "f.conf:2: data.pad: want {height, width}"},
    {FILES "data { mean = 1 }", "f.conf:2: data.mean: needs data.std"},
    {FILES "data { std = 1 }", "f.conf:2: data.std: needs data.mean"},
    {OK "train { split_size = 33 }", "f.conf:2: train.split_size: 33 is larger than the batch of 32"},
    {OK "train { nesterov = yes }", "f.conf:2: train.nesterov: needs train.momentum"},
    {OK "pipeline { replicas = 2 }", "f.conf:2: pipeline.replicas: 2 do not divide train.gradient_groups = 1, which "
                                     "decides results: set it to 2 or a multiple"},
    {OK "pipeline { replicas = 3 }", "f.conf:2: pipeline.replicas: want a power of two, not 3"},
    {OK "train { gradient_groups = 6 }", "f.conf:2: train.gradient_groups: want a power of two, not 6"},
    {OK "train { optimizer = adamw momentum = 0.9 }",
     "f.conf:2: train.momentum: is for train.optimizer = sgd or rmsprop, not for adamw"},
    {OK "train { optimizer = adamw\nnesterov = yes }",
     "f.conf:3: train.nesterov: is for train.optimizer = sgd, not for adamw"},
    {OK "train { beta1 = 0.8 }", "f.conf:2: train.beta1: is for train.optimizer = adamw or adam or lamb, not for sgd"},
    {OK "train { beta2 = 0.8 }",
     "f.conf:2: train.beta2: is for train.optimizer = adamw or adam or lamb or rmsprop, not for sgd"},
    {OK "train { epsilon = 1e-6 }",
     "f.conf:2: train.epsilon: is for train.optimizer = adamw or adam or lamb or rmsprop, not for sgd"},
    {OK "train { schedule = step }", "f.conf:2: train.schedule: step needs train.milestones or train.step_size"},
    {OK "train { schedule = step\nmilestones = {3, 3} }", "f.conf:3: train.milestones: must ascend"},
    {OK "train { schedule = step milestones = {3}\nstep_size = 2 }",
     "f.conf:3: train.step_size: train.milestones is set, too: want one of the two"},
    {OK "train { milestones = {3} }", "f.conf:2: train.milestones: is for train.schedule = step, not for constant"},
    {OK "train { gamma = 0.1 }", "f.conf:2: train.gamma: is for train.schedule = step, not for constant"},
    {OK "train { schedule = step step_size = 3\nlearning_rate_end = 0.1 }",
     "f.conf:3: train.learning_rate_end: is for train.schedule = cosine or linear or polynomial, not for step"},
    {OK "train { loss = mse\nlabel_smoothing = 0.1 }",
     "f.conf:3: train.label_smoothing: is for train.loss = cross_entropy, not for mse"},
    {OK "train { schedule = cosine power = 2 }",
     "f.conf:2: train.power: is for train.schedule = polynomial, not for cosine"},
    {OK "train { warmup_epochs = 3\nwarmup_steps = 2 }",
     "f.conf:2: train.warmup_epochs: train.warmup_steps is set, too: want one of the two"},
    {OK "train { schedule_by = epoch warmup_steps = 2 }",
     "f.conf:2: train.warmup_steps: with train.schedule_by = epoch, want train.warmup_epochs"},
    {OK "data { mean = 1 std = 1 }",
     "f.conf:2: data.mean: is for data.source = idx or npy or images or cifar or nifti, not "
     "for synthetic"},
    {OK "data { train = x }",
     "f.conf:2: data.train: is for data.source = idx or npy or images or cifar or nifti, not "
     "for synthetic"},
    {OK "data { augment = {horizontal_flip} }",
     "f.conf:2: data.augment: is for data.source = idx or npy or images or cifar, not for synthetic"},
    {OK "data { spacing = 1 }", "f.conf:2: data.spacing: is for data.source = nifti, not for synthetic"},
    {NIFTI "data { folds = 1 }", "f.conf:2: data.folds: 1 leaves nothing to train: want 2 at least, or 0"},
    {NIFTI "data { folds = 3\nfold = 3 }", "f.conf:3: data.fold: 3: folds are 0 to data.folds - 1"},
    {NIFTI "data { fold = 1 }", "f.conf:2: data.fold: 1: folds are 0 to data.folds - 1"},
    {NIFTI "data { folds = 3\ntest_images = b }",
     "f.conf:3: data.test: data.folds is set, too: want one of the two"},
    {NIFTI "data { cache = {1MiB, 2MiB} }", "f.conf:2: data.cache: want one size"},
    {NIFTI "run { predict = x.txt init_from = w }", "f.conf:2: run.predict: want FILE.csv, FILE.jsonl or FILE.npy, or "
     "FOLDER/ for label maps, not x.txt"},
    {NIFTI "data { validation = 0.1 }",
     "f.conf:2: data.validation: is for data.source = idx or npy or images or cifar, not for nifti"},
    {FILES "data { validation = 0.1\ntest_images = b }",
     "f.conf:3: data.test: data.validation is set, too: want one of the two"},
    {FILES "data { validation = 0.1\ntest_samples = 3 }",
     "f.conf:3: data.test_samples: data.validation is set, too: want one of the two"},
    {FILES "data { damaged = skip }", "f.conf:2: data.damaged: is for data.source = images, not for idx"},
    {FILES "data { upright = no }", "f.conf:2: data.upright: is for data.source = images, not for idx"},
    {"model { network = toy } data { source = images train = a resize = {1, 2, 3} } train { steps = 1 }",
     "f.conf:1: data.resize: want {height, width} or the shorter side"},
    {"model { network = toy } data { source = npy train = a train_labels = b upright = no } train { steps = 1 }",
     "f.conf:1: data.upright: is for data.source = images, not for npy"},
    {GRAPH "model { hidden = {3} }",
     "f.conf:2: model.hidden: is for model.network; with model.graph, the graph decides"},
    {GRAPH "model { dropout = 0.1 }",
     "f.conf:2: model.dropout: is for model.network; with model.graph, the graph decides"},
    {GRAPH "model { small_stem = yes }",
     "f.conf:2: model.small_stem: is for model.network; with model.graph, the graph decides"},
    {GRAPH "model { zero_init_residual = yes }",
     "f.conf:2: model.zero_init_residual: is for model.network; with model.graph, the graph decides"},
    {OK "pipeline { partition = manual }", "f.conf:2: pipeline.partition: manual needs stage sections"},
    {OK "pipeline { stages = 3 stage { first = a last = b } }",
     "f.conf:2: pipeline.stages: want 1 stage, as many as stage sections, not 3 (another partition, such as auto, "
     "takes any number)"},
    {OK "pipeline { schedule = rows }", "f.conf:2: pipeline.schedule: rows needs pipeline.rows"},
    {OK "pipeline { schedule = rows rows = r in_flight = 2 }",
     "f.conf:2: pipeline.in_flight: rows say themselves how many micro-batches are in flight"},
    {OK "pipeline { rows = r }", "f.conf:2: pipeline.rows: needs pipeline.schedule = \"rows\""},
    {OK "run { name = \"a/b\" }",
     "f.conf:2: run.name: must not contain a slash nor begin with a dot: it names a directory"},
    {OK "run { name = \"..\" }",
     "f.conf:2: run.name: must not contain a slash nor begin with a dot: it names a directory"},
};

START_TEST(rule_errors)
{
    const struct wrong *w = &in_rules[_i];
    struct err e = {0};
    struct conf *c = parse(w->text);
    ck_assert_int_eq(conf_finish(c, &e), -1);
    ck_assert_str_eq(e.text, w->message);
    ck_assert_int_eq(e.code, E_CONF);
    conf_free(c);
}
END_TEST

static const struct { const char *what, *assignment, *message; int code; } in_set[] = {
    {"-o train.steps=x", "train.steps=x", "-o train.steps=x: \"x\" is no whole number", E_CONF},
    {"--batch-size", "train.batch_size=0", "--batch-size: 0 is not in 1 to 16777216", E_CONF},
    {"--precision", "train.precision=fp16", "--precision: \"fp16\" is not built, only fp32, tf32, bf16", E_CONF},
    {"-o", "train.steps=", "-o: \"\" is no whole number", E_CONF},
    {"-o", "run.name=", "-o: the text is empty", E_CONF},
    {"-o", "run.name=\xff", "-o: the text is not UTF-8 (0xff)", E_CONF},
    {"-o", "train.nesterov=maybe", "-o: \"maybe\" is none of yes, no, true, false", E_CONF},
    {"-o", "model.input={1", "-o: want ',' or '}', found the end", E_CONF},
    {"-o", "model.input={1} 2", "-o: unexpected text after the list", E_CONF},
    {"-o", "model.input=1 2", "-o: want ',' or '}', found \"2\"", E_CONF},
    {"-o", "data.mean=nan", "-o: \"nan\" is no finite number", E_CONF},
    {"-o", "train.colour=3", "-o: there is no option train.colour (see mpstaged.conf(5))", E_USAGE},
    {"-o", "train.lr=3", "-o: there is no option train.lr (did you mean train.learning_rate?)", E_USAGE},
    {"-o", "train.alpha=0.9", "-o: there is no option train.alpha (did you mean train.beta2?)", E_USAGE},
    {"-o", "data.val_dir=v", "-o: there is no option data.val_dir (did you mean data.test?)", E_USAGE},
    {"-o", "data.source=ImageFolder",
     "-o: \"ImageFolder\" is none of synthetic, idx, npy, images, cifar, nifti (did you mean images?)", E_CONF},
    {"-o", "train.schedule=ExponentialLR",
     "-o: \"ExponentialLR\" is none of constant, step, cosine, linear, polynomial (did you mean step?)", E_CONF},
    {"-o", "train.swa=3", "-o: there is no option train.swa (see mpstaged.conf(5))", E_USAGE},
    {"-o", "cheese.rind=3", "-o: there is no option cheese.rind", E_USAGE},
    {"-o", "train.precision=float32", "-o: \"float32\" is none of fp32, tf32, bf16 (did you mean fp32?)", E_CONF},
    {"-o", "pipeline.schedule=1f2b",
     "-o: \"1f2b\" is none of naive, gpipe, 1f1b, interleaved, zb-h1, zb-v, auto, rows (did you mean 1f1b?)", E_CONF},
    {"-o", "train.optimizer=adm",
     "-o: \"adm\" is none of sgd, adamw, adam, lamb, rmsprop (did you mean adam?)", E_CONF},
    {"-o", "train.stepz=3", "-o: there is no option train.stepz (did you mean train.steps?)", E_USAGE},
    {"-o", "steps=3", "-o: there is no option steps (did you mean train.steps?)", E_USAGE},
    {"-o train.steps", "train.steps", "-o train.steps: want SECTION.KEY=VALUE", E_USAGE},
    {"-o =3", "=3", "-o =3: want SECTION.KEY=VALUE", E_USAGE},
};

START_TEST(override_errors)
{
    struct err e = {0};
    struct conf *c = parse(OK);
    ck_assert_int_eq(conf_set(c, in_set[_i].what, in_set[_i].assignment, &e), -1);
    ck_assert_str_eq(e.text, in_set[_i].message);
    ck_assert_int_eq(e.code, in_set[_i].code);
    conf_free(c);
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

int main(void)
{
    TCase *t = suite_case("conf_wrong", 60);
    tcase_add_loop_test(t, file_errors, 0, N_OF(in_file));
    tcase_add_test(t, nul_byte);
    tcase_add_test(t, limits);
    tcase_add_test(t, files);
    tcase_add_loop_test(t, rule_errors, 0, N_OF(in_rules));
    tcase_add_loop_test(t, override_errors, 0, N_OF(in_set));
    tcase_add_test(t, errors_name_their_origin);
    return suite_run("conf_wrong", CK_FORK, t);
}
