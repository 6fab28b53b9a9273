/* The configuration: what a file may say, every way in which it may be wrong with its exact message, overrides,
 * printing, rules. */
#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "conf/conf.h"
#include "conf/table.h"
#include "sure.h"

#define OK "model { network = toy }  data { source = synthetic }  train { steps = 1 }\n"

#define FILES "model { network = toy }  data { source = idx train_images = a train_labels = b }  train { steps = 1 }\n"
#define GRAPH "model { graph = g }  data { source = synthetic }  train { steps = 1 }\n"

static struct conf *parse(const char *s)
{
    struct err e = {0};
    struct conf *c = conf_parse("f.conf", s, strlen(s), &e);
    ck_assert_msg(c != NULL, "%s", e.text);
    return c;
}

static struct conf *finished(const char *s)
{
    struct err e = {0};
    struct conf *c = parse(s);
    ck_assert_msg(!conf_finish(c, &e), "%s", e.text);
    return c;
}

static void set(struct conf *c, const char *assignment)
{
    struct err e = {0};
    ck_assert_msg(!conf_set(c, "-o", assignment, &e), "%s", e.text);
}

/* ---- what a file may say --------------------------------------------------------------------- */

START_TEST(syntax)
{
    struct conf *c =
        parse("# a comment\n"
              "run { name = \"a \\\"b\\\" \\\\ \\n\\t\xc3\xa9 # // /* \" seed=3 } // another\n"
              "model{network=mlp/* here,\n too */input={ 3 ,32,32, }\r\n\thidden = {} zero_init_residual = true "
              "dropout = .5 }\n"
              "data { mean = {0.5, 1e-3, -2.5E+2}  std = 0.25  shuffle = false }\n"
              "pipeline { stage { first = conv1 last = \"layer2\" }\nstage { last = fc  first = layer3.0 } }\n"
              "run { threads = 2 } service { }");
    ck_assert_str_eq(c->run.name, "a \"b\" \\ \n\t\xc3\xa9 # // /* ");
    ck_assert_int_eq(c->run.seed, 3);
    ck_assert_int_eq(c->run.threads, 2);
    ck_assert_str_eq(c->model.network, "mlp");
    ck_assert_int_eq(c->model.input.n, 3);
    ck_assert_int_eq(c->model.input.v[0], 3);
    ck_assert_int_eq(c->model.input.v[2], 32);
    ck_assert_int_eq(c->model.hidden.n, 0);
    ck_assert(c->model.zero_init_residual && !c->data.shuffle);
    ck_assert(c->model.dropout == 0.5);
    ck_assert_int_eq(c->data.mean.n, 3);
    ck_assert(c->data.mean.v[1] == 1e-3 && c->data.mean.v[2] == -250);
    ck_assert(c->data.std.n == 1 && c->data.std.v[0] == 0.25);
    ck_assert_int_eq(c->pipeline.n_stages, 2);
    ck_assert_str_eq(c->pipeline.stage[0].last, "layer2");
    ck_assert_str_eq(c->pipeline.stage[1].first, "layer3.0");
    ck_assert_int_eq(c->pipeline.stage[1].line, 8);
    conf_free(c);
}
END_TEST

START_TEST(defaults)
{
    struct conf *c = finished(OK);
    ck_assert(c->run.threads == 1 && c->run.seed == 1 && !c->run.overwrite);
    ck_assert_str_eq(c->run.device, "auto");
    ck_assert_str_eq(c->run.transport, "auto");
    ck_assert_str_eq(c->run.directory, "runs/run");
    ck_assert_str_eq(c->pipeline.schedule, "1f1b");
    ck_assert_str_eq(c->pipeline.partition, "uniform");
    ck_assert_str_eq(c->pipeline.backward, "auto");
    ck_assert_str_eq(c->train.optimizer, "sgd");
    ck_assert_str_eq(c->train.schedule, "constant");
    ck_assert_str_eq(c->train.batch_norm, "micro");
    ck_assert_str_eq(c->train.precision, "fp32");
    ck_assert_str_eq(c->data.labels, "class");
    ck_assert(c->train.split_size == 32 && c->train.batch_size == 32 && c->train.evaluate_batch_size == 32);
    ck_assert(!c->data.shuffle && c->service.log_every == 1 && c->train.evaluate_every == 0);
    ck_assert_str_eq(c->train.loss, "cross_entropy");
    conf_free(c);
    c = finished(GRAPH "train { schedule = step milestones = {2} }");
    ck_assert(!c->train.loss && c->train.gamma == 0.1);   /* the graph decides; conf_derive says so */
    conf_derive(c, "train.loss", "mse");
    ck_assert_str_eq(c->train.loss, "mse");
    conf_free(c);
    c = finished("model { network = toy } train { epochs = 1 loss = mse } run { name = \"x\" }\n"
        "data { source = idx train_images = a train_labels = b }\npipeline { stage { first = a last = b } }");
    ck_assert(c->data.shuffle);
    ck_assert_str_eq(c->data.labels, "onehot");
    ck_assert_str_eq(c->run.directory, "runs/x");
    ck_assert_str_eq(c->pipeline.partition, "manual");
    conf_free(c);
}
END_TEST

/* ---- what is wrong with it ------------------------------------------------------------------- */

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
    {"\x7f"
     "ELF\x02\x01",
     "f.conf:1: unexpected character '\\x7f'"},
    {"\n\n\xef\xbb\xbfrun {}", "f.conf:3: unexpected character '\\xef'"},
    {"run { name = \"\xff\xfe\" }", "f.conf:1: run.name: the text is not UTF-8 (0xff)"},
    {"run { name = \"a\x7f\" }", "f.conf:1: run.name: the text has a control character (0x7f)"},
    {HUNDRED HUNDRED HUNDRED " {}", "f.conf:1: a word of more than 255 bytes"},
    {"a{a{a{a{a{a{a{a{", "f.conf:1: there is no section \"a\", only run, model, data, train, pipeline, service"},
    {"run { run { run {", "f.conf:1: there is no section \"run\" in section run (is a } missing before it?)"},
    {"pipeline { stage { stage {", "f.conf:1: unknown key stage: a stage has first and last"},
    /* keys */
    {"\ncheese { }", "f.conf:2: there is no section \"cheese\", only run, model, data, train, pipeline, service"},
    {"train { colour = 3 }", "f.conf:1: unknown key train.colour"
                             " (see mpstaged.conf(5))"},
    {"trian { }",
     "f.conf:1: there is no section \"trian\", only run, model, data, train, pipeline, service (did you mean train?)"},
    {"train { bs = 3 }", "f.conf:1: unknown key train.bs (did you mean train.batch_size?)"},
    {"train { gpus = 3 }", "f.conf:1: unknown key train.gpus (did you mean pipeline.stages?)"},
    {"train {\n learning_rat = 3 }", "f.conf:2: unknown key train.learning_rat (did you mean train.learning_rate?)"},
    {"train { threads = 3 }", "f.conf:1: unknown key train.threads (did you mean run.threads?)"},
    {"service { every = 3 }", "f.conf:1: unknown key service.every: service has progress, log_every, tensorboard"},
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
    {"train { loss = hinge }", "f.conf:1: train.loss: \"hinge\" is none of mse, cross_entropy"},
    {"train { precision = \"fp16\" }", "f.conf:1: train.precision: \"fp16\" is not built, only fp32, tf32, bf16"},
    {"train { schedule = cosine }", "f.conf:1: train.schedule: \"cosine\" is not built, only constant, step"},
    {"train { beta1 = 1 }", "f.conf:1: train.beta1: 1 is not in 0 to 0.999999999"},
    {"train { epsilon = 0 }", "f.conf:1: train.epsilon: 0 is not in 1e-30 to 1000000"},
    {"pipeline { schedule = zb-h1 }",
     "f.conf:1: pipeline.schedule: \"zb-h1\" is not built, only naive, gpipe, 1f1b, rows"},
    {"pipeline { partition = even }",
     "f.conf:1: pipeline.partition: \"even\" is none of manual, uniform, sequential, balanced, balanced_low_0, auto"},
    {"pipeline { replicas = 2 }", "f.conf:1: pipeline.replicas: 2 is not built, only 1"},
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
    {"model { network = toy } data { source = idx }", "f.conf: data.train_images is missing"},
    {"model { network = toy } data { source = npy train_images = a }", "f.conf: data.train_labels is missing"},
    {"model { network = toy } data { source = npy train_images = a train_labels = b test_labels = c }",
     "f.conf: data.test_images is missing"},
    {"model { network = toy } data { source = npy train_images = a train_labels = b test_images = c }",
     "f.conf: data.test_labels is missing"},
    {"model { network = toy } data { source = synthetic }", "f.conf: train.steps (or train.epochs) is missing"},
    {FILES "data { resize = {32} }", "f.conf:2: data.resize: want {height, width}"},
    {FILES "data { pad = {32} }", "f.conf:2: data.pad: want {height, width}"},
    {FILES "data { mean = 1 }", "f.conf:2: data.mean: needs data.std"},
    {FILES "data { std = 1 }", "f.conf:2: data.std: needs data.mean"},
    {OK "train { split_size = 33 }", "f.conf:2: train.split_size: 33 is larger than the batch of 32"},
    {OK "train { nesterov = yes }", "f.conf:2: train.nesterov: needs train.momentum"},
    {OK "train { optimizer = adamw momentum = 0.9 }",
     "f.conf:2: train.momentum: is for train.optimizer = sgd, not for adamw"},
    {OK "train { optimizer = adamw\nnesterov = yes }",
     "f.conf:3: train.nesterov: is for train.optimizer = sgd, not for adamw"},
    {OK "train { beta1 = 0.8 }", "f.conf:2: train.beta1: is for train.optimizer = adamw, not for sgd"},
    {OK "train { beta2 = 0.8 }", "f.conf:2: train.beta2: is for train.optimizer = adamw, not for sgd"},
    {OK "train { epsilon = 1e-6 }", "f.conf:2: train.epsilon: is for train.optimizer = adamw, not for sgd"},
    {OK "train { schedule = step }", "f.conf:2: train.schedule: step needs train.milestones"},
    {OK "train { schedule = step\nmilestones = {3, 3} }", "f.conf:3: train.milestones: must ascend"},
    {OK "train { milestones = {3} }", "f.conf:2: train.milestones: needs train.schedule = \"step\""},
    {OK "train { gamma = 0.1 }", "f.conf:2: train.gamma: needs train.schedule = \"step\""},
    {OK "data { mean = 1 std = 1 }", "f.conf:2: data.mean: is for data.source = idx or npy, not for synthetic"},
    {OK "data { train_images = x }", "f.conf:2: data.train_images: is for data.source = idx or npy, not for synthetic"},
    {"model { network = toy } data { source = npy train_images = a train_labels = b channels = 3 } train { steps = 1 }",
     "f.conf:1: data.channels: is for data.source = idx, not for npy"},
    {GRAPH "model { hidden = {3} }",
     "f.conf:2: model.hidden: is for model.network; with model.graph, the graph decides"},
    {GRAPH "model { dropout = 0.1 }",
     "f.conf:2: model.dropout: is for model.network; with model.graph, the graph decides"},
    {GRAPH "model { zero_init_residual = yes }",
     "f.conf:2: model.zero_init_residual: is for model.network; with model.graph, the graph decides"},
    {OK "pipeline { partition = manual }", "f.conf:2: pipeline.partition: manual needs stage sections"},
    {OK "pipeline { stages = 3 stage { first = a last = b } }",
     "f.conf:2: pipeline.stages: want 1 stages, as many as stage sections, not 3 (another partition, such as auto, "
     "takes any number)"},
    {OK "pipeline { schedule = rows }", "f.conf:2: pipeline.schedule: rows needs pipeline.rows"},
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

/* What an override makes moot is ignored. */
START_TEST(moot)
{
    struct conf *c = parse("model { network = toy } data { source = synthetic labels = onehot }\n"
        "train { steps = 5 } pipeline { partition = manual stage { first = a last = b } schedule = rows rows = r }");
    set(c, "pipeline.schedule=gpipe");
    set(c, "model.graph=g");
    set(c, "train.epochs=2");
    set(c, "pipeline.partition=uniform");
    set(c, "pipeline.stages=4");
    set(c, "data.source=idx");
    set(c, "data.train_images=i");
    set(c, "data.train_labels=l");
    ck_assert_int_eq(conf_finish(c, NULL), 0);
    ck_assert_ptr_null(c->model.network);
    ck_assert_str_eq(c->model.graph, "g");
    ck_assert(c->train.steps == 0 && c->train.epochs == 2);
    ck_assert(c->pipeline.n_stages == 1 && c->pipeline.stages == 4);
    ck_assert_ptr_null(c->pipeline.rows);
    ck_assert_str_eq(c->data.labels, "class");
    conf_free(c);
    c = parse("model { graph = g } data { source = synthetic } train { epochs = 5 }");
    set(c, "model.network=mlp");
    set(c, "train.steps=2");
    ck_assert_int_eq(conf_finish(c, NULL), 0);
    ck_assert_ptr_null(c->model.graph);
    ck_assert(c->train.steps == 2);
    conf_free(c);
    c = parse("model { network = mlp hidden = {3} dropout = 0.5 input = {4} classes = 3 }\n"
        "data { source = idx train_images = a train_labels = b pad = {9, 9} channels = 3 mean = 1 std = 2 }\n"
        "train { steps = 1 schedule = step milestones = {2} gamma = 0.5 }");
    set(c, "model.graph=g");
    set(c, "data.source=synthetic");
    set(c, "train.schedule=constant");
    ck_assert_int_eq(conf_finish(c, NULL), 0);
    ck_assert(!c->model.hidden.n && !c->model.input.n && !c->model.classes && !(c->model.dropout > 0));
    ck_assert(!c->data.train_images && !c->data.pad.n && !c->data.channels && !c->data.mean.n && !c->data.std.n);
    ck_assert(!c->train.milestones.n && !(c->train.gamma > 0));
    conf_free(c);
}
END_TEST

/* ---- overrides ------------------------------------------------------------------------------- */

START_TEST(overrides)
{
    struct conf *c = parse("run { name = old } train { steps = 3 }");
    set(c, "run.name=a \\ \"b\" # c");
    ck_assert_str_eq(c->run.name, "a \\ \"b\" # c");
    set(c, "run.name=\"quoted\"");
    ck_assert_str_eq(c->run.name, "quoted");
    set(c, "run.name=a=b");
    ck_assert_str_eq(c->run.name, "a=b");
    set(c, "train.steps=7");
    set(c, "train.steps=8");
    ck_assert_int_eq(c->train.steps, 8);
    set(c, "train.nesterov=yes");
    ck_assert(c->train.nesterov);
    set(c, "model.input={3, 4,5}");
    ck_assert(c->model.input.n == 3 && c->model.input.v[2] == 5);
    set(c, "model.input=6,7");
    ck_assert(c->model.input.n == 2 && c->model.input.v[1] == 7);
    set(c, "model.input={}");
    ck_assert_int_eq(c->model.input.n, 0);
    set(c, "data.mean=0.5");
    ck_assert(c->data.mean.n == 1 && c->data.mean.v[0] == 0.5);
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
    {"-o", "model.input={1} 2", "-o: want nothing behind the list", E_CONF},
    {"-o", "model.input=1 2", "-o: want ',' or '}', found \"2\"", E_CONF},
    {"-o", "data.mean=nan", "-o: \"nan\" is no finite number", E_CONF},
    {"-o", "train.colour=3", "-o: there is no option train.colour (see mpstaged.conf(5))", E_USAGE},
    {"-o", "train.lr=3", "-o: there is no option train.lr (did you mean train.learning_rate?)", E_USAGE},
    {"-o", "train.ema=3", "-o: there is no option train.ema (see mpstaged.conf(5))", E_USAGE},
    {"-o", "cheese.rind=3", "-o: there is no option cheese.rind", E_USAGE},
    {"-o", "train.precision=float32", "-o: \"float32\" is none of fp32, tf32, bf16 (did you mean fp32?)", E_CONF},
    {"-o", "pipeline.schedule=1f2b", "-o: \"1f2b\" is none of naive, gpipe, 1f1b, rows (did you mean 1f1b?)", E_CONF},
    {"-o", "train.optimizer=adm", "-o: \"adm\" is none of sgd, adamw", E_CONF},
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

/* ---- printing -------------------------------------------------------------------------------- */

static const char full[] =
    "run { name = \"a \\\"b\\\" \\\\ \\n\\t\xc3\xa9\" seed = 9000000000000000 overwrite = yes init_from = \"w\" }\n"
    "model { network = mlp input = {3, 32, 32} classes = 7 dropout = 0.1 hidden = {1} }\n"
    "data { source = npy train_images = a train_labels = b mean = {0.1, 1e-300, 123456789.123456789} std = {1, "
    "0.3333333333333333, 3} }\n"
    "train { batch_size = 7 split_size = 2 epochs = 3 learning_rate = 1e-05 momentum = 0.9 nesterov = yes schedule = "
    "step\n"
    "  milestones = {10, 20} gamma = 0.30000000000000004 }\n"
    "pipeline { schedule = gpipe stage { first = \"a\\\"\" last = \"\\\\\" } stage { first = c last = d } stages = 2 "
    "}\n";

/* Every option of both has the same value and the same text. */
static void same(const struct conf *a, const struct conf *b)
{
    for (int i = 0; opt_table[i].key; i++) {
        struct text s = {0}, t = {0};
        opt_print(a, i, &s);
        opt_print(b, i, &t);
        ck_assert_msg(s.n == t.n && (!s.n || !memcmp(s.s, t.s, s.n)), "%s: %s, %s", opt_table[i].key, s.s, t.s);
        text_free(&s);
        text_free(&t);
    }
    ck_assert(a->model.dropout == b->model.dropout && a->train.gamma == b->train.gamma);
    ck_assert(!memcmp(&a->data.mean, &b->data.mean, sizeof a->data.mean));
    ck_assert(!memcmp(&a->data.std, &b->data.std, sizeof a->data.std));
    ck_assert(!memcmp(&a->model.input, &b->model.input, sizeof a->model.input));
    ck_assert_str_eq(a->run.name, b->run.name);
    ck_assert_int_eq(a->pipeline.n_stages, b->pipeline.n_stages);
    for (int i = 0; i < a->pipeline.n_stages; i++) {
        ck_assert_str_eq(a->pipeline.stage[i].first, b->pipeline.stage[i].first);
        ck_assert_str_eq(a->pipeline.stage[i].last, b->pipeline.stage[i].last);
    }
}

START_TEST(print_reads_back)
{
    static const char *const text[] = {full, OK, GRAPH, FILES "data { pad = {9, 9} channels = 3 mean = 1 std = 2 }"};
    for (int k = 0; k < 4; k++) {
        struct conf *a = finished(text[k]);
        struct text s = {0}, t = {0};
        conf_print(a, &s);
        struct conf *b = finished(s.s);
        conf_print(b, &t);
        ck_assert_str_eq(s.s, t.s);
        same(a, b);
        text_free(&s);
        text_free(&t);
        conf_free(a);
        conf_free(b);
    }
}
END_TEST

START_TEST(json)
{
    struct conf *c = finished(full);
    char *s = conf_json(c);
    json_t *j = json_loads(s, 0, NULL);
    ck_assert_ptr_nonnull(j);
    ck_assert_str_eq(json_string_value(json_object_get(json_object_get(j, "run"), "name")), c->run.name);
    json_t *train = json_object_get(j, "train"), *pipeline = json_object_get(j, "pipeline"),
           *data = json_object_get(j, "data");
    ck_assert(json_integer_value(json_object_get(train, "batch_size")) == 7);
    ck_assert(json_real_value(json_object_get(train, "gamma")) == 0.30000000000000004);
    ck_assert(json_is_true(json_object_get(train, "nesterov")));
    ck_assert(json_is_false(json_object_get(data, "shuffle")));
    ck_assert(json_real_value(json_array_get(json_object_get(data, "mean"), 1)) == 1e-300);
    ck_assert_uint_eq(json_array_size(json_object_get(pipeline, "stage")), 2);
    ck_assert_str_eq(json_string_value(json_object_get(json_array_get(json_object_get(pipeline, "stage"), 0), "last")),
                     "\\");
    ck_assert_ptr_null(json_object_get(json_object_get(j, "model"), "graph"));
    json_decref(j);
    free(s);
    conf_free(c);
}
END_TEST

/* ---- the table ------------------------------------------------------------------------------- */

START_TEST(sizes)
{
    static const struct { const char *text; int64_t bytes;
    } want[] = {{"10GiB", 10737418240},
                {"8GB", 8000000000},
                {"512MB", 512000000},
                {"512MiB", 536870912},
                {"1.5KiB", 1536},
                {"3kb", 375},
                {"2Gb", 250000000},
                {"2gB", 2000000000},
                {"7", 7},
                {"0", 0},
                {"1mib", 1048576},
                {"2KB", 2000}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        char text[80];
        struct err e = {0};
        snprintf(text, sizeof text, "pipeline { max_memory = %s%s%s }", i % 2 ? "\"" : "", want[i].text,
                 i % 2 ? "\"" : "");
        struct conf *c = conf_parse("f.conf", text, strlen(text), &e);
        ck_assert_msg(c != NULL, "%s", e.text);
        ck_assert_int_eq(c->pipeline.max_memory.n, 1);
        ck_assert_msg(c->pipeline.max_memory.v[0] == want[i].bytes, "%s: %lld", want[i].text,
                      (long long)c->pipeline.max_memory.v[0]);
        conf_free(c);
    }
}
END_TEST

/* ---- file names ------------------------------------------------------------------------------ */

static char *fake_environment(const char *name)
{
    static char home[] = "/home/me", data[] = "/data", odd[] = "a$b~c", away[] = "~/far", empty[] = "", bell[] = "\a";
    static const struct { const char *name; char *value; } all[] = {
        {"HOME", home}, {"DATA", data}, {"ODD_1", odd}, {"AWAY", away}, {"EMPTY", empty}, {"BELL", bell}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) if (!strcmp(all[i].name, name)) return all[i].value;
    return NULL;
}

/* As written in the file, what it names, and how it is printed; or what is wrong. */
static const struct { const char *written, *meant, *printed, *wrong; } names[] = {
    {"\"x.npy\"", "x.npy", "\"x.npy\"", NULL},
    {"\"~/x\"", "/home/me/x", "\"/home/me/x\"", NULL},
    {"~/x", "/home/me/x", NULL, NULL},
    {"\"~\"", "/home/me", NULL, NULL},
    {"\"$DATA/x\"", "/data/x", NULL, NULL},
    {"$DATA/x", "/data/x", NULL, NULL},
    {"${DATA}x.$DATA", "/datax./data", NULL, NULL},
    {"\"${DATA}$EMPTY/a~b\"", "/data/a~b", NULL, NULL},
    {"\"$ODD_1/x\"", "a$b~c/x", "\"a$$b~c/x\"", NULL},
    {"\"cost$$1\"", "cost$1", "\"cost$$1\"", NULL},
    {"\"$AWAY/x\"", "/home/me/far/x", NULL, NULL},
    {"\"./~x\"", "./~x", NULL, NULL},
    {"\"$NONE/x\"", NULL, NULL, "f.conf:1: data.train_images: the variable NONE is not set"},
    {"\"${NONE}\"", NULL, NULL, "f.conf:1: data.train_images: the variable NONE is not set"},
    {"\"a$\"", NULL, NULL, "f.conf:1: data.train_images: a $ begins neither $NAME nor ${NAME}; $$ stands for $ itself"},
    {"\"$1\"", NULL, NULL, "f.conf:1: data.train_images: a $ begins neither"},
    {"\"${DATA\"", NULL, NULL, "a $ begins neither"},
    {"\"${}\"", NULL, NULL, "a $ begins neither"},
    {"\"${DATA:-x}\"", NULL, NULL, "a $ begins neither"},
    {"\"$EMPTY\"", NULL, NULL, "the name is empty"},
    {"\"$BELL\"", NULL, NULL, "control character"},
    {"\"~you/x\"", NULL, NULL, "only ~/ is known"},
};

static struct conf *named(const char *written, struct err *e)
{
    char s[300];
    snprintf(s, sizeof s,
             "model { network = toy } data { source = npy train_images = %s train_labels = \"y$$\" } run { name = "
             "\"a$b\" } train { steps = 1 }",
             written);
    struct conf *c = conf_parse("f.conf", s, strlen(s), e);
    ck_assert_msg(c && !conf_finish(c, e), "%s", e->text);
    return c;
}

START_TEST(file_names)
{
    struct err e = {0};
    struct text s = {0}, t = {0}, given = {0};
    struct conf *c = named(names[_i].written, &e), *other = named(names[_i].written, &e);
    ck_assert_int_eq(conf_expand(c, fake_environment, &e), names[_i].wrong ? -1 : 0);
    if (names[_i].wrong) {
        ck_assert_int_eq(e.code, E_CONF);
        ck_assert_msg(strstr(e.text, names[_i].wrong) != NULL, "%s", e.text);
    } else {
        ck_assert_str_eq(c->data.train_images, names[_i].meant);
        ck_assert_str_eq(c->data.train_labels, "y$");
        ck_assert_str_eq(c->run.directory, "runs/a$b");  /* made of a name that is no file's */
        conf_print(c, &s);
        if (names[_i].printed) ck_assert_msg(strstr(s.s, names[_i].printed) != NULL, "%s", s.s);
        struct conf *again = conf_parse("f.conf", s.s, s.n, &e);
        ck_assert_msg(again && !conf_finish(again, &e) && !conf_expand(again, fake_environment, &e), "%s", e.text);
        ck_assert_str_eq(again->data.train_images, names[_i].meant);
        conf_print(again, &t);
        ck_assert_str_eq(s.s, t.s);
        /* what another process gets that has none of these variables */
        conf_files_give(c, &given);
        conf_files_take(other, &given);
        text_free(&t);
        conf_print(other, &t);
        ck_assert_str_eq(s.s, t.s);
        conf_free(again);
    }
    text_free(&s); text_free(&t); text_free(&given);
    conf_free(c); conf_free(other);
}
END_TEST

/* What is moot is not looked at, and an override is named. */
START_TEST(file_names_in_overrides)
{
    struct err e = {0};
    struct conf *c = parse("model { graph = \"$NONE\" } data { source = synthetic } train { steps = 1 }");
    ck_assert(!conf_set(c, "-o", "model.network=toy", &e) &&
              !conf_set(c, "--init-from", "run.init_from=${DATA}/w", &e) && !conf_finish(c, &e));
    ck_assert_msg(!conf_expand(c, fake_environment, &e), "%s", e.text);
    ck_assert_str_eq(c->run.init_from, "/data/w");
    conf_free(c);
    c = parse("model { network = toy } data { source = synthetic } train { steps = 1 }");
    ck_assert(!conf_set(c, "--init-from", "run.init_from=$NONE", &e) && !conf_finish(c, &e));
    ck_assert_int_eq(conf_expand(c, fake_environment, &e), -1);
    ck_assert_str_eq(e.text, "--init-from: the variable NONE is not set");
    conf_free(c);
}
END_TEST

START_TEST(table)
{
    struct text manual = {0};
    struct conf *c = parse("");
    conf_manual(&manual);
    for (int i = 0; opt_table[i].key; i++) {
        const struct opt *o = &opt_table[i];
        char item[80];
        snprintf(item, sizeof item, ".It Ic %s\n", o->key);
        ck_assert_ptr_nonnull(strstr(manual.s, item));
        ck_assert_int_eq(opt_find(o->key, strlen(o->key)), i);
        ck_assert_msg(strchr(o->key, '.') && o->text && *o->text, "%s", o->key);
        ck_assert_msg((o->type == OPT_WORD) == (o->words != NULL), "%s", o->key);
        bool numeric = !opt_is_text(o->type) && o->type != OPT_BOOL;
        ck_assert_msg(!numeric || o->lo <= o->hi, "%s", o->key);
        ck_assert_msg(!o->def || opt_is_set(c, i), "%s: its default is refused", o->key);
        if (!o->def) continue;
        struct text value = {0};                         /* the default is written as the program prints it */
        opt_print(c, i, &value);
        bool quoted = opt_is_text(o->type);
        ck_assert_msg(value.n == strlen(o->def) + 2 * quoted && !memcmp(value.s + quoted, o->def, strlen(o->def)),
                      "%s: %s", o->key, value.s);
        text_free(&value);
    }
    text_free(&manual);
    conf_free(c);
}
END_TEST

/* What is changed in a copy stays there: values, stages, and where settings came from. */
START_TEST(copies)
{
    struct err e = {0};
    struct conf *c = parse("pipeline { stage { first = \"a\" last = \"b\" } stage { first = \"c\" last = \"c\" } "
                           "stage { first = \"d\" last = \"d\" } }");
    struct text before = {0}, after = {0};
    conf_print(c, &before);
    struct conf *v = conf_copy(c);
    ck_assert(!conf_set(v, "a test", "train.split_size=3", &e) && v->train.split_size == 3);
    conf_stage_add(v, (struct conf_stage){.first = "e", .last = "e"});
    conf_derive(v, "train.loss", "mse");
    conf_error(v, "train.split_size", &e, "no");
    ck_assert_str_eq(e.text, "a test: no");
    conf_print(c, &after);
    ck_assert_str_eq(before.s, after.s);
    conf_stage_add(c, (struct conf_stage){.first = "f", .last = "f"});   /* what the copy has is its own, too */
    ck_assert_int_eq(v->pipeline.n_stages, 4);
    ck_assert_str_eq(v->pipeline.stage[3].first, "e");
    ck_assert_str_eq(v->pipeline.stage[2].last, "d");
    e = (struct err){0};
    conf_error(c, "train.split_size", &e, "no");
    ck_assert_ptr_null(strstr(e.text, "a test"));
    text_free(&before);
    text_free(&after);
    conf_free(c);
}
END_TEST

static void word_note(const char *word, int n, bool built, void *arg)
{
    text_add(arg, "%s%.*s ", built ? "" : "not ", n, word);
}

START_TEST(words)
{
    struct opt o = {.words = "auto later !soon !late soon "};   /* "late" begins another word, "soon" is built by now */
    struct text t = {0};
    opt_words(&o, word_note, &t);
    ck_assert_str_eq(t.s, "auto later not late soon ");
    text_free(&t);
    t = (struct text){0};
    conf_help("pipeline.schedule", &t);                  /* of its text only what stands before the semicolon */
    ck_assert_str_eq(t.s, "order of forward and backward passes (naive, gpipe, 1f1b, rows)");
    text_free(&t);
}
END_TEST

START_TEST(examples)
{
    static const char *const name[] = {"toy", "mlp", "resnet50", "fashion"};
    const char *srcdir = getenv("srcdir");
    char path[4096];
    struct err e = {0};
    snprintf(path, sizeof path, "%s/conf/%s.conf", srcdir ? srcdir : ".", name[_i]);
    struct conf *c = conf_load(path, &e);
    ck_assert_msg(c && !conf_finish(c, &e), "%s", e.text);
    ck_assert_str_eq(c->run.name, name[_i]);
    conf_free(c);
}
END_TEST

#define COUNT(a) ((int)(sizeof (a) / sizeof *(a)))
int main(void)
{
    TCase *t = suite_case("conf", 60);
    tcase_add_test(t, syntax);
    tcase_add_test(t, defaults);
    tcase_add_loop_test(t, file_errors, 0, COUNT(in_file));
    tcase_add_test(t, nul_byte);
    tcase_add_test(t, limits);
    tcase_add_test(t, files);
    tcase_add_loop_test(t, rule_errors, 0, COUNT(in_rules));
    tcase_add_test(t, moot);
    tcase_add_test(t, overrides);
    tcase_add_loop_test(t, override_errors, 0, COUNT(in_set));
    tcase_add_test(t, errors_name_their_origin);
    tcase_add_test(t, print_reads_back);
    tcase_add_test(t, json);
    tcase_add_test(t, table);
    tcase_add_test(t, words);
    tcase_add_test(t, copies);
    tcase_add_loop_test(t, file_names, 0, (int)(sizeof names / sizeof *names));
    tcase_add_test(t, file_names_in_overrides);
    tcase_add_test(t, sizes);
    tcase_add_loop_test(t, examples, 0, 4);
    return suite_run("conf", CK_FORK, t);
}
