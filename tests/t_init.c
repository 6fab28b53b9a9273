/* Initial weights: renamed tensors, tensors that may be missing, of another shape, or extra. */
#include <stdio.h>
#include <string.h>
#include "base/glob.h"
#include "ckpt/weights.h"
#include "files.h"
#include "sure.h"

/* What a rule makes of a name; NULL: no rule, "": it does not match. */
static const struct { const char *rule, *name, *made; } renames[] = {
    {"module.* -> *", "module.conv1.weight", "conv1.weight"},
    {"module.*->*", "conv1.module.x", ""},
    {"head -> fc", "head.weight", "fc.weight"},
    {"head -> fc", "header.weight", ""},
    {"*.gamma -> *.weight", "a.b.gamma", "a.b.weight"},
    {"blocks.*.*.norm -> layer*.*.bn", "blocks.1.2.norm.bias", "layer1.2.bn.bias"},
    {"*a* -> *b*", "xaya", "xbya"},
    {"?.w -> v", "1.w", "v"},
    {"a* -> b", "a1.w", "b.w"},
    {"a -> *", "a", NULL}, {"a", "a", NULL}, {" -> a", "a", NULL}, {"a -> ", "a", NULL},
    {"********* -> a", "a", NULL},
};

START_TEST(glob_rules)
{
    struct glob_rule r;
    struct text t = {0};
    bool parsed = glob_rule_parse(renames[_i].rule, &r);
    ck_assert_int_eq(parsed, renames[_i].made != NULL);
    if (!parsed) return;
    ck_assert_int_eq(glob_rename(&r, renames[_i].name, &t), *renames[_i].made != 0);
    ck_assert_str_eq(t.n ? t.s : "", renames[_i].made);
    text_free(&t);
}
END_TEST

/* A file of half floats of these names, two each, told apart from those of another shape by a last !. */
static struct st *names_put(const char *const *name, int n)
{
    struct text header = {0}, file = {0};
    struct err e = {0};
    int at = 0;
    for (int i = 0; i < n; i++) {
        int bytes = strchr(name[i], '!') ? 6 : 4, length = (int)strcspn(name[i], "!");
        text_add(&header, "%s\"%.*s\":{\"dtype\":\"F16\",\"shape\":[%d],\"data_offsets\":[%d,%d]}", i ? "," : "{",
                 length, name[i], bytes / 2, at, at + bytes);
        at += bytes;
    }
    text_add(&header, "}");
    uint64_t length = header.n;
    text_add_bytes(&file, &length, sizeof length);
    text_add_bytes(&file, header.s, header.n);
    for (int i = 0; i < at; i++) text_add_bytes(&file, "", 1);
    put("g.safetensors", file.s, file.n);
    text_free(&file);
    text_free(&header);
    struct st *s = st_open("g.safetensors", &e);
    ck_assert_msg(s != NULL, "%s", e.text);
    return s;
}

/* The model has fc.weight, conv.weight and the counter bn.n. told: "" means nothing; NULL: `wrong` is why not. */
START_TEST(a_graph_takes_what_is_allowed)
{
    static const struct { const char *name[4]; int n; const char *rename, *missing, *saved, *notes, *wrong; int idle;
    } of[] = {
        {{"fc.weight", "conv.weight"}, 2, NULL, NULL, NULL, "", NULL, -1},   /* counters may be missing */
        {{"fc.weight!", "conv.weight"}, 2, NULL, "fc", NULL,
         "g.safetensors: 1|2|fc.weight (3", NULL, -1},
        {{"conv.weight"}, 1, NULL, "f*", NULL, "g.safetensors: 1|1|fc.weight", NULL, -1},
        {{"fc.weight!", "conv.weight"}, 2, NULL, "conv", NULL, NULL,
         "g.safetensors:|fc.weight|3|2; run.init_missing = {\"fc\"}", -1},
        {{"fc.weight", "conv.weight", "aux.a"}, 3, NULL, NULL, NULL, NULL,
         "g.safetensors:|aux.a|run.init_extra = {\"aux\"}", -1},
        {{"fc.weight", "conv.weight", "aux.a", "aux.b"}, 4, NULL, NULL, "aux.*",
         "g.safetensors: 2|4|aux.a, aux.b", NULL, -1},
        {{"fc.weight", "conv.weight"}, 2, NULL, NULL, "aux.*",
         "g.safetensors: 2|2|run.init_extra: \"aux.*\"", NULL, -1},
        {{"body.fc.weight", "body.conv.weight"}, 2, "body.* -> *", NULL, NULL, "", NULL, -1},
        {{"net.body.fc.weight", "net.body.conv.weight", "other.fc.weight"}, 3, NULL, NULL, NULL, NULL,
         "run.init_rename = {\"net.body.* -> *\"}|2", -1},
        {{"head.fc.weight", "conv.weight"}, 2, NULL, NULL, NULL, NULL,
         "run.init_missing = {\"fc\"}|run.init_extra", -1},
        {{"head.weight", "conv.weight"}, 2, "head -> fc", NULL, NULL, "", NULL, -1},
        {{"module.head.weight", "module.conv.weight"}, 2, "*.head -> *.fc", NULL, NULL, "", NULL, -1},
        {{"head.weight", "conv.weight"}, 2, "heat -> fc", NULL, NULL, NULL, "tensor fc.weight is missing; tensor he",
         0},
        {{"a.weight", "fc.weight", "conv.weight"}, 3, "a -> fc", NULL, NULL, NULL,
         "fc.weight|fc.weight; |run.init_rename", -1},
        {{"a.weight", "fc.weight", "conv.weight"}, 3, "a -> fc", NULL, "*", NULL, "a.weight|fc.weight|fc.weight; ", -1},
        {{"fc.weight", "conv.weight", "ema.fc.weight", "ema.conv.weight"}, 4, "ema.* -> *", NULL, "*", NULL,
         "tensors ", -1},
        {{"fc.weight", "conv.weight", "ema.fc.weight", "ema.conv.weight"}, 4, NULL, NULL, NULL, NULL,
         "2|\"ema.*\"|run.init_rename={\"ema.* -> *\"|run.init_extra|\"ema.* -> unused.*\"|run.init_extra", -1},
        {{"a.fc.weight", "a.conv.weight", "a.b.fc.weight", "a.b.conv.weight"}, 4, NULL, NULL, NULL, NULL,
         "take \"a.b.*\" by -o 'run.init_rename={\"a.b.* -> *\", \"a.* -> unused.*\"}' -o 'run.init_extra={\"unused\"}"
         "', or \"a.*\" by -o 'run.init_rename={\"a.b.* -> unused.*\", \"a.* -> *\"}'", -1},
        {{"module.x.fc.weight", "module.x.conv.weight"}, 2, NULL, NULL, NULL, NULL,
         "; run.init_rename = {\"module.x.* -> *\"} gives 2", -1},
        {{"x"}, 1, NULL, "*", "*", NULL, "g.safetensors: none of its tensors has a name of the model's", -1},
    };
    const struct st_entry own[3] = {{"fc.weight", F32, {1, {2}}}, {"conv.weight", F32, {1, {2}}}, {"bn.n", I64, {0}}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        struct err e = {0};
        struct glob_rule rule;
        struct weights_notes notes;
        struct weights_at at[3];
        const char *const *missing = &of[i].missing, *const *saved = &of[i].saved;
        struct weights_allow allow = {&rule, of[i].rename != NULL, {missing, *missing != NULL},
                                      {saved, *saved != NULL}};
        ck_assert(!of[i].rename || glob_rule_parse(of[i].rename, &rule));
        struct st *s = names_put(of[i].name, of[i].n);
        int wrong = weights_match("g.safetensors", &(struct weights_want){own, 3, &allow}, &s, 1, at, &notes, &e);
        ck_assert_msg(!wrong == !of[i].wrong, "%zu: %s", i, e.text);
        if (wrong) expect(&e, 65, of[i].wrong);
        else ck_assert(says(notes.notes.n ? notes.notes.s : "", of[i].notes) && !notes.notes.n == !*of[i].notes);
        ck_assert_int_eq(notes.idle, of[i].idle);
        ck_assert(wrong || !at[2].file);
        text_free(&notes.notes);
        st_close(s);
    }
}
END_TEST

static void all(TCase *t)
{
    tcase_add_loop_test(t, glob_rules, 0, (int)(sizeof renames / sizeof *renames));
    tcase_add_test(t, a_graph_takes_what_is_allowed);
}

int main(void) { return scratch_suite("init", all); }
