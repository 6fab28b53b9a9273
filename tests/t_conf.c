/* The configuration: contents of a file, overrides, printing, names of files, the table of options. */
#include <jansson.h>
#include <stdio.h>
#include "conf/table.h"
#include "conf_rig.h"

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
              "model{network=mlp/* here,\n too */input={ 3 ,32,32, }#\r\thidden = {} zero_init_residual = true "
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
    ck_assert_int_eq(c->run.device, DEVICE_auto);
    ck_assert_int_eq(c->run.transport, TRANSPORT_auto);
    ck_assert_str_eq(c->run.directory, "runs/run");
    ck_assert_str_eq(c->pipeline.schedule, "1f1b");
    ck_assert_int_eq(c->pipeline.partition, PART_uniform);
    ck_assert_int_eq(c->pipeline.backward, BACKWARD_AUTO);
    ck_assert_int_eq(c->train.optimizer, OPTIM_sgd);
    ck_assert_int_eq(c->train.schedule, RATE_constant);
    ck_assert_int_eq(c->train.batch_norm, STATS_MICRO);
    ck_assert_int_eq(c->train.precision, WANT_FP32);
    ck_assert_int_eq(c->data.labels, LABELS_CLASS);
    ck_assert(c->train.split_size == 32 && c->train.batch_size == 32 && c->train.evaluate_batch_size == 32);
    ck_assert(!c->data.shuffle && c->service.log_every == 1 && c->train.evaluate_every == 0);
    ck_assert_int_eq(c->train.loss, LOSS_CROSS_ENTROPY);
    conf_free(c);
    c = finished(GRAPH "train { schedule = step milestones = {2} }");
    ck_assert(!c->train.loss && c->train.gamma == 0.1);   /* the graph decides; conf_derive says so */
    conf_derive(c, "train.loss", "mse");
    ck_assert_int_eq(c->train.loss, LOSS_MSE);
    conf_free(c);
    c = finished("model { network = toy } train { epochs = 1 loss = mse } run { name = \"x\" }\n"
        "data { source = idx train = a train_labels = b }\npipeline { stage { first = a last = b } }");
    ck_assert(c->data.shuffle);
    ck_assert_int_eq(c->data.labels, LABELS_ONEHOT);
    ck_assert_str_eq(c->run.directory, "runs/x");
    ck_assert_int_eq(c->pipeline.partition, PART_manual);
    conf_free(c);
}
END_TEST

static void steps_note(void *ctx, const char *key, const char *value)
{
    if (!strcmp(key, "train.steps")) *(int64_t *)ctx = value ? atoll(value) : 0;
}

/* How long a run is decides its bits where the learning rate falls over it. */
START_TEST(a_falling_rate_needs_the_end)
{
    static const struct { const char *schedule; int64_t steps; } cases[] = {
        {"constant", 0}, {"step milestones = {3}", 0}, {"cosine", 1}, {"linear", 1}, {"polynomial", 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t steps = -1;
        char text[200];
        snprintf(text, sizeof text, OK "train { schedule = %s }", cases[i].schedule);
        struct conf *c = finished(text);
        conf_decides(c, steps_note, &steps);
        ck_assert_msg(steps == cases[i].steps, "%s", cases[i].schedule);
        conf_free(c);
    }
    ck_assert(conf_follows("train.steps") && !conf_is_live("train.steps") && !conf_follows("train.batch_size"));
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
    set(c, "data.train=i");
    set(c, "data.train_labels=l");
    ck_assert_int_eq(conf_finish(c, NULL), 0);
    ck_assert_ptr_null(c->model.network);
    ck_assert_str_eq(c->model.graph, "g");
    ck_assert(c->train.steps == 0 && c->train.epochs == 2);
    ck_assert(c->pipeline.n_stages == 1 && c->pipeline.stages == 4);
    ck_assert_ptr_null(c->pipeline.rows);
    ck_assert_int_eq(c->data.labels, LABELS_CLASS);
    conf_free(c);
    c = parse("model { graph = g } data { source = synthetic } train { epochs = 5 }");
    set(c, "model.network=mlp");
    set(c, "train.steps=2");
    ck_assert_int_eq(conf_finish(c, NULL), 0);
    ck_assert_ptr_null(c->model.graph);
    ck_assert(c->train.steps == 2);
    conf_free(c);
    c = parse("model { network = mlp hidden = {3} dropout = 0.5 input = {4} classes = 3 }\n"
        "data { source = idx train = a train_labels = b pad = {9, 9} channels = 3 mean = 1 std = 2 }\n"
        "train { steps = 1 schedule = step milestones = {2} gamma = 0.5 }");
    set(c, "model.graph=g");
    set(c, "data.source=synthetic");
    set(c, "train.schedule=constant");
    ck_assert_int_eq(conf_finish(c, NULL), 0);
    ck_assert(!c->model.hidden.n && !c->model.input.n && !c->model.classes && !(c->model.dropout > 0));
    ck_assert(!c->data.train && !c->data.pad.n && !c->data.channels && !c->data.mean.n && !c->data.std.n);
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
    set(c, "pipeline.shard_optimizer=false");             /* words, among which are yes and no */
    ck_assert_int_eq(c->pipeline.shard_optimizer, WHEN_NO);
    set(c, "pipeline.shard_optimizer=true");
    ck_assert_int_eq(c->pipeline.shard_optimizer, WHEN_YES);
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

/* ---- printing -------------------------------------------------------------------------------- */

static const char full[] =
    "run { name = \"a \\\"b\\\" \\\\ \\n\\t\xc3\xa9\" seed = 9000000000000000 overwrite = yes init_from = \"w\" }\n"
    "model { network = mlp input = {3, 32, 32} classes = 7 dropout = 0.1 hidden = {1} }\n"
    "data { source = npy train = a train_labels = b mean = {0.1, 1e-300, 123456789.123456789} std = {1, "
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
    for (int k = 0; k < 2; k++)                           /* also by its former name */
        ck_assert(json_is_integer(json_object_get(json_object_get(j, "run"), k ? "rerun_every" : "verify_every")));
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
    {"\"$NONE/x\"", NULL, NULL, "f.conf:1: data.train:|NONE"},
    {"\"${NONE}\"", NULL, NULL, "f.conf:1: data.train:|NONE"},
    {"\"a$\"", NULL, NULL, "f.conf:1: data.train: expected $NAME or ${NAME} after a $; write $$ for a $ itself"},
    {"\"$1\"", NULL, NULL, "f.conf:1: data.train: |$NAME"},
    {"\"${DATA\"", NULL, NULL, "data.train: |$NAME"},
    {"\"${}\"", NULL, NULL, "data.train: |$NAME"},
    {"\"${DATA:-x}\"", NULL, NULL, "data.train: |$NAME"},
    {"\"$EMPTY\"", NULL, NULL, "the name is empty"},
    {"\"$BELL\"", NULL, NULL, "control character"},
    {"\"~you/x\"", NULL, NULL, "data.train: |~/"},
};

static struct conf *named(const char *written, struct err *e)
{
    char s[300];
    snprintf(s, sizeof s,
             "model { network = toy } data { source = npy train = %s train_labels = \"y$$\" } run { name = "
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
        ck_assert_msg(says(e.text, names[_i].wrong), "%s", e.text);
    } else {
        ck_assert_str_eq(c->data.train, names[_i].meant);
        ck_assert_str_eq(c->data.train_labels, "y$");
        ck_assert_str_eq(c->run.directory, "runs/a$b");  /* made of a name that is no file's */
        conf_print(c, &s);
        if (names[_i].printed) ck_assert_msg(strstr(s.s, names[_i].printed) != NULL, "%s", s.s);
        struct conf *again = conf_parse("f.conf", s.s, s.n, &e);
        ck_assert_msg(again && !conf_finish(again, &e) && !conf_expand(again, fake_environment, &e), "%s", e.text);
        ck_assert_str_eq(again->data.train, names[_i].meant);
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

static char many_dollars[3000];

static char *dollars(const char *name)
{
    (void)name;
    memset(many_dollars, '$', sizeof many_dollars - 1);
    return many_dollars;
}

/* What is accepted can be read again after it was printed, however long the names are that variables or other names
 * made of it. */
START_TEST(file_names_as_long_as_a_text)
{
    static const struct { const char *key, *before; int n; const char *after, *wrong; } of[] = {
        {"run.init_from", "", 2047, "x", NULL},           /* 2047 times $$ and one byte: 4095 */
        {"run.init_from", "$ALL", 0, "", "-o: the name has more than 4095 bytes"},
        {"run.name", "", 2045, "", NULL},                 /* runs/NAME */
        {"run.name", "", 2046, "", "f.conf: run.directory: the name has more than 4095 bytes"}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        struct err e = {0};
        struct text t = {0}, s = {0};
        struct conf *c = parse("model { network = toy } data { source = synthetic } train { steps = 1 }");
        bool is_name = !strcmp(of[i].key, "run.name");
        text_add(&t, "%s=%s", of[i].key, of[i].before);
        for (int k = 0; k < of[i].n; k++) text_add(&t, is_name ? "$" : "$$");
        text_add(&t, "%s", of[i].after);
        ck_assert_msg(!conf_set(c, "-o", t.s, &e) && !conf_finish(c, &e), "%s", e.text);
        ck_assert_int_eq(conf_expand(c, dollars, &e), of[i].wrong ? -1 : 0);
        if (of[i].wrong) ck_assert_msg(says(e.text, of[i].wrong), "%s", e.text);
        else {
            conf_print(c, &s);
            struct conf *again = conf_parse("f.conf", s.s, s.n, &e);
            ck_assert_msg(again && !conf_finish(again, &e) && !conf_expand(again, dollars, &e), "%s", e.text);
            conf_free(again);
        }
        text_free(&t); text_free(&s);
        conf_free(c);
    }
}
END_TEST

static int words_count(const char *s)
{
    int n = 0;
    for (; *s; s += strcspn(s, " "), s += strspn(s, " ")) n++;
    return n;
}

START_TEST(table)
{
    enum { MOST_WORDS = 40 };
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
        ck_assert_msg(words_count(o->text) <= MOST_WORDS, "%s: %d words", o->key, words_count(o->text));
        ck_assert_msg((o->type == OPT_WORD || o->type == OPT_ENUM) == (o->words != NULL), "%s", o->key);
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

/* What keys and words were called before means the same, in files and in overrides; twice is an error. */
START_TEST(other_names)
{
    struct err e = {0};
    static const char text[] = "run { rerun_every = 7  resume = \"anyway\" }\n"
                               "data { train_images = \"a\"  test_images = \"b\" }\ntrain { micro_batch_size = 3 }\n";
    struct conf *c = conf_parse("f.conf", text, strlen(text), &e);
    ck_assert_msg(c != NULL, "%s", e.text);
    ck_assert_int_eq(c->run.verify_every, 7);
    ck_assert_int_eq(c->train.split_size, 3);
    ck_assert_int_eq(c->run.resume, RESUME_FORCE);
    ck_assert_str_eq(c->data.train, "a");
    ck_assert_str_eq(c->data.test, "b");
    ck_assert(!conf_set(c, "-o data.train_images=d", "data.train_images=d", &e) && !strcmp(c->data.train, "d"));
    ck_assert(!conf_set(c, "-o train.micro_batch_size=4", "train.micro_batch_size=4", &e) && c->train.split_size == 4);
    conf_free(c);
    static const char twice[] = "train { split_size = 3\nmicro_batch_size = 4 }\n";
    ck_assert_ptr_null(conf_parse("f.conf", twice, strlen(twice), &e));
    ck_assert_int_eq(e.code, E_CONF);
}
END_TEST

/* A removed option may stay in a file with the value by which it changed nothing; the message names that. */
START_TEST(removed_options)
{
    struct err e = {0};
    struct conf *c = parse("run { overlap_wgrad = no  seed = 3 }\npipeline { bundle = 1 }");
    ck_assert_int_eq(c->run.seed, 3);
    ck_assert(!conf_set(c, "-o", "run.overlap_wgrad=no", &e) && !e.code);
    ck_assert(conf_set(c, "-o", "run.overlap_wgrad=yes", &e) && e.code == E_USAGE && strstr(e.text, "removed"));
    static const char *const refused[] = {"run {\noverlap_wgrad = yes }", "run {\noverlap_wgrad = {no} }"};
    for (int i = 0; i < 2; i++) {
        e = (struct err){0};
        ck_assert_ptr_null(conf_parse("f.conf", refused[i], strlen(refused[i]), &e));
        ck_assert_int_eq(e.code, E_CONF);
        ck_assert_msg(says(e.text, "f.conf:2: |run.overlap_wgrad|removed"), "%s", e.text);
    }
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
    ck_assert(!says(e.text, "a test"));
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
    static const char start[] = "order of forward and backward passes (naive, gpipe, 1f1b, ", end[] = "rows)";
    ck_assert_msg(!strncmp(t.s, start, strlen(start)) && !strcmp(t.s + strlen(t.s) - strlen(end), end), "%s", t.s);
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

int main(void)
{
    TCase *t = suite_case("conf", 60);
    tcase_add_test(t, syntax);
    tcase_add_test(t, defaults);
    tcase_add_test(t, a_falling_rate_needs_the_end);
    tcase_add_test(t, moot);
    tcase_add_test(t, overrides);
    tcase_add_test(t, print_reads_back);
    tcase_add_test(t, json);
    tcase_add_test(t, table);
    tcase_add_test(t, words);
    tcase_add_test(t, other_names);
    tcase_add_test(t, removed_options);
    tcase_add_test(t, copies);
    tcase_add_loop_test(t, file_names, 0, N_OF(names));
    tcase_add_test(t, file_names_in_overrides);
    tcase_add_test(t, file_names_as_long_as_a_text);
    tcase_add_test(t, sizes);
    tcase_add_loop_test(t, examples, 0, 4);
    return suite_run("conf", CK_FORK, t);
}
