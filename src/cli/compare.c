/* --compare: the answer, as lines or as JSON. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include "cli/compare.h"
#include "cli/compare_int.h"

static const char *const run_word[] = {"first", "second"};

/* ---- lines ------------------------------------------------------------------------------------------------------- */

static bool is_digest(const char *s) { return s && strlen(s) == 32 && strspn(s, "0123456789abcdef") == 32; }

/* n bytes of what a file says. */
static void foreign_add(struct text *t, const char *s, size_t n)
{
    char *plain = mem_alloc(n + 1), *clean = mem_alloc(4 * n + 1);
    memcpy(plain, s, n);
    text_add(t, "%s", text_printable(plain, clean, 4 * n + 1));
    free(plain);
    free(clean);
}

/* Leaves out what two lists of words have in common at both ends: the numerics line has many parts. */
static void parts_that_differ(const char *a, const char *b, struct text *t)
{
    const bool words = *a != '{' && *a != '"';
    size_t from = 0, n = strlen(a), m = strlen(b), end = 0;
    for (size_t i = 0; words && a[i] && a[i] == b[i]; i++)
        if (a[i] == ' ' && i && a[i - 1] == ',') from = i + 1;
    for (size_t i = 0; words && i < n - from && i < m - from && a[n - i - 1] == b[m - i - 1]; i++)
        if (a[n - i - 1] == ',') end = i + 1;
    text_add(t, ": ");
    foreign_add(t, a + from, n - from - end);
    text_add(t, " and ");
    foreign_add(t, b + from, m - from - end);
}

/* Of digests the values say nothing. */
static void setting_text(const struct setting_difference *s, struct text *out)
{
    const char *a = s->value[0] ? s->value[0] : "unset", *b = s->value[1] ? s->value[1] : "unset";
    text_add(out, "set up differently");
    if (s->step) text_add(out, " after step %llu", (unsigned long long)s->step);
    text_add(out, ": ");
    foreign_add(out, s->key, strlen(s->key));
    if (!is_digest(a) && !is_digest(b)) parts_that_differ(a, b, out);
    text_add(out, "\n");
}

static bool is_of_tensor(const struct run_difference *d) { return d->tensors > 0; }

static void difference_text(const struct run_difference *d, struct text *out)
{
    text_add(out, "step %llu", (unsigned long long)d->step);
    if (strcmp(d->in, "step") != 0) text_add(out, " (%s)", d->in);
    text_add(out, ":");
    if (d->what.n) text_add(out, " "), foreign_add(out, d->what.s, d->what.n);
    if (d->only >= 0) text_add(out, "%s only the %s run has it", d->what.n ? "," : "", run_word[d->only]);
    else {
        if (is_of_tensor(d) && d->element >= 0) text_add(out, ", element %lld", (long long)d->element);
        text_add(out, is_of_tensor(d) ? ": " : " ");
        foreign_add(out, d->value[0].s, d->value[0].n);
        text_add(out, " and ");
        foreign_add(out, d->value[1].s, d->value[1].n);
    }
    if (d->rank[0] >= 0 && d->rank[1] >= 0)
        text_add(out, "; held by rank %d of the first run and rank %d of the second", d->rank[0], d->rank[1]);
    if (is_of_tensor(d)) text_add(out, "; %d of %d tensors differ", d->differ, d->tensors);
    text_add(out, "\n");
}

/* of: how many there are in all; 0: no more. */
static void count_text(int64_t n, int64_t of, const char *what, const char **between, struct text *out)
{
    if (!n) return;
    text_add(out, "%s%lld", *between, (long long)n);
    if (of > n) text_add(out, " of %lld", (long long)of);
    text_add(out, " %s%s", what, (of > n ? of : n) == 1 ? "" : "s");
    *between = ", ";
}

/* Records may have only every tenth step (service.metrics_every), so it says of how many. */
static void equal_text(const struct run_comparison *c, bool all, struct text *out)
{
    const char *between = all ? "equal: " : "equal so far: ";
    const uint64_t last = c->run[0].last < c->run[1].last ? c->run[0].last : c->run[1].last;
    count_text(c->steps, all ? (int64_t)last : 0, "step", &between, out);
    count_text(c->evaluations, 0, "evaluation", &between, out);
    count_text(c->checkpoints, 0, "checkpoint", &between, out);
    if (!all && c->checkpoints) text_add(out, ", the last of step %llu", (unsigned long long)c->last_checkpoint);
    if (c->weights) text_add(out, "%sweights", between);
    if (c->weights || *between == ',') text_add(out, "\n");
    between = "removed while they were compared: ";
    count_text(c->removed, 0, "checkpoint", &between, out);
    if (c->removed) text_add(out, "\n");
}

/* At a step the checkpoint is written last. */
static bool tensors_first(const struct run_comparison *c)
{
    return c->tensors.found && (!c->metrics.found || c->tensors.step < c->metrics.step);
}

static void comparison_text(const struct run_comparison *c, struct text *out)
{
    const struct run_difference *const d[] = {&c->metrics, &c->tensors};
    const int first = tensors_first(c);
    for (int i = 0; i < c->setting.n; i++) setting_text(&c->setting.v[i], out);
    for (int i = 0; i < 2; i++) if (d[first ^ i]->found) difference_text(d[first ^ i], out);
    equal_text(c, !c->metrics.found && !c->tensors.found, out);
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static json_t *setting_json(const struct setting_difference *s)
{
    return json_pack("{s:s,s:I,s:s?,s:s?}", "key", s->key, "after_step", (json_int_t)s->step, run_word[0], s->value[0],
                     run_word[1], s->value[1]);
}

static json_t *difference_json(const struct run_difference *d)
{
    json_t *o = json_pack("{s:I,s:s}", "step", (json_int_t)d->step, "in", d->in);
    if (d->what.n) json_object_set_new(o, is_of_tensor(d) ? "tensor" : "key", json_string(d->what.s));
    if (d->only >= 0) json_object_set_new(o, "only", json_string(run_word[d->only]));
    else for (int i = 0; i < 2; i++) json_object_set_new(o, run_word[i], json_string(d->value[i].s));
    if (!is_of_tensor(d)) return o;
    if (d->only < 0 && d->element >= 0) json_object_set_new(o, "element", json_integer(d->element));
    if (d->rank[0] >= 0) json_object_set_new(o, "first_rank", json_integer(d->rank[0]));
    if (d->rank[1] >= 0) json_object_set_new(o, "second_rank", json_integer(d->rank[1]));
    json_object_set_new(o, "tensors", json_integer(d->tensors));
    json_object_set_new(o, "different_tensors", json_integer(d->differ));
    return o;
}

static void comparison_json(const struct run_comparison *c, struct text *out)
{
    const struct run_difference *const d[] = {&c->metrics, &c->tensors};
    const int first = tensors_first(c);
    json_t *settings = json_array(), *differences = json_array();
    for (int i = 0; i < c->setting.n; i++) json_array_append_new(settings, setting_json(&c->setting.v[i]));
    for (int i = 0; i < 2; i++)
        if (d[first ^ i]->found) json_array_append_new(differences, difference_json(d[first ^ i]));
    json_t *o = json_pack("{s:b,s:o,s:o,s:I,s:I,s:I,s:I,s:b}", "equal", !c->metrics.found && !c->tensors.found,
                          "settings", settings, "differences", differences, "steps", (json_int_t)c->steps,
                          "evaluations", (json_int_t)c->evaluations, "checkpoints", (json_int_t)c->checkpoints,
                          "removed_checkpoints", (json_int_t)c->removed, "weights", c->weights);
    char *s = json_dumps(o, JSON_INDENT(2));
    text_add(out, "%s\n", s);
    free(s);
    json_decref(o);
}

/* ---- both runs --------------------------------------------------------------------------------------------------- */

static int runs_compare(struct run_comparison *c, const char *const dir[2], struct err *e)
{
    for (int i = 0; i < 2; i++) if (compared_run_open(&c->run[i], dir[i], e)) return -1;
    if (records_compare(c, e) || checkpoints_compare(c, e) || final_weights_compare(c, e)) return -1;
    settings_compare(c);
    if (c->metrics.found || c->tensors.found || c->steps || c->evaluations || c->checkpoints || c->weights) return 0;
    return err_set(e, E_NOINPUT, "%s and %s: have no step, evaluation or checkpoint in common", dir[0], dir[1]);
}

int compare_runs(const char *const dir[2], bool json, struct text *out, int *code, struct err *e)
{
    struct run_comparison c = {.metrics = {.rank = {-1, -1}}, .tensors = {.rank = {-1, -1}}};
    int bad = runs_compare(&c, dir, e);
    if (!bad && json) comparison_json(&c, out);
    else if (!bad) comparison_text(&c, out);
    *code = c.metrics.found || c.tensors.found ? E_DIFFERS : E_OK;
    for (int i = 0; i < 2; i++) compared_run_close(&c.run[i]);
    run_difference_free(&c.metrics);
    run_difference_free(&c.tensors);
    vec_free(&c.setting);
    return bad ? -1 : 0;
}
