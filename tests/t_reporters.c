/* The list of reporters, with made-up ones: each event is told to all in order; an error of a required one ends the
 * telling at each kind of event, others are reported once and told no more. And the table of events: no key twice, and
 * each line is JSON with its keys. */
#include <string.h>
#include "cluster/log.h"
#include "report/reporter.h"
#include "sure.h"

static int n_told[3][EVENT_KINDS], fails_at = -1, n_closed, n_undone;

static int told(int i, const struct event *ev, struct err *e)
{
    n_told[i][ev->kind]++;
    return i == 1 && (int)ev->kind == fails_at ? err_set(e, E_IO, "made up") : 0;
}

static int first_on(void *self, const struct event *ev, struct err *e) { (void)self; return told(0, ev, e); }
static int second_on(void *self, const struct event *ev, struct err *e) { (void)self; return told(1, ev, e); }
static int third_on(void *self, const struct event *ev, struct err *e) { (void)self; return told(2, ev, e); }

static int opened(const struct report_run *q, void **self, struct err *e)
{
    (void)e;
    *self = q->all;
    return 0;
}

static int refused(const struct report_run *q, void **self, struct err *e)
{
    (void)q, (void)self;
    return err_set(e, E_CANTCREAT, "refused");
}

static int unwanted(const struct report_run *q, void **self, struct err *e)
{
    (void)q, (void)self, (void)e;
    return 0;
}

static void closed(void *self) { (void)self; n_closed++; }
static void undone(void *self, int dirfd) { (void)self, (void)dirfd; n_undone++; }

static struct reporter first = {.name = "first", .on = first_on, .open = opened, .close = closed, .undo = undone};
static struct reporter second = {.name = "second", .on = second_on}, third = {.name = "third", .on = third_on};
static const struct reporter *const list[] = {&first, &second, &third, NULL};

static struct reporters *open_all(void)
{
    struct reporters *all;
    struct err e = {0};
    memset(n_told, 0, sizeof n_told);
    ck_assert_int_eq(reporters_open(list, &(struct report_run){0}, &all, &e), 0);
    return all;
}

START_TEST(all_are_told)
{
    struct reporters *all = open_all();
    struct err e = {0};
    for (int k = 0; k < EVENT_KINDS; k++)
        for (int n = 0; n < k + 1; n++)
            ck_assert(!reporters_tell(all, &(struct event){.kind = (enum event_kind)k}, &e));
    for (int k = 0; k < EVENT_KINDS; k++)
        for (int i = 0; i < 3; i++) ck_assert_int_eq(n_told[i][k], k + 1);
    ck_assert(reporters_find(all, "first") == all && !reporters_find(all, "none"));
    reporters_undo(all, -1);
    reporters_close(all);
    ck_assert(n_closed == 1 && n_undone == 1);
}
END_TEST

/* _i: the kind of event */
START_TEST(a_required_one_ends_the_run)
{
    struct err e = {0};
    second.required = true;
    struct reporters *all = open_all();
    fails_at = _i;
    for (int n = 1; n < 3; n++) {
        ck_assert_int_eq(reporters_tell(all, &(struct event){.kind = (enum event_kind)_i}, &e), -1);
        ck_assert(e.code == E_IO && !strcmp(e.text, "made up"));
        ck_assert(n_told[0][_i] == n && n_told[1][_i] == n && !n_told[2][_i]);
        e = (struct err){0};
    }
    reporters_close(all);
}
END_TEST

START_TEST(others_are_told_no_more)
{
    struct err e = {0};
    struct reporters *all = open_all();
    fails_at = _i;
    log_quiet(true);
    for (int n = 1; n < 3; n++) {
        ck_assert(!reporters_tell(all, &(struct event){.kind = (enum event_kind)_i}, &e) && !e.code);
        ck_assert(n_told[0][_i] == n && n_told[1][_i] == 1 && n_told[2][_i] == n);
    }
    reporters_close(all);
}
END_TEST

START_TEST(some_are_not_opened)
{
    struct err e = {0};
    struct reporters *all;
    log_quiet(true);
    first.open = unwanted;
    all = open_all();
    ck_assert(!reporters_tell(all, &(struct event){0}, &e) && !n_told[0][0] && n_told[2][0] == 1);
    reporters_close(all);
    first.open = refused;
    all = open_all();
    ck_assert(!reporters_tell(all, &(struct event){0}, &e) && !n_told[0][0] && n_told[2][0] == 1);
    reporters_close(all);
    first.required = true;
    ck_assert(reporters_open(list, &(struct report_run){0}, &all, &e) == -1 && e.code == E_CANTCREAT);
    reporters_close(all);
    ck_assert_int_eq(n_closed, 0);
}
END_TEST

/* A line without values: those that may be left out are, and the rest is JSON with keys of the table, in its order. */
START_TEST(lines_are_of_the_table)
{
    const struct event_row *r = &event_rows[_i];
    const struct scores none = {0};
    struct sums s = {0};
    struct event ev = {.kind = (enum event_kind)_i, .sums = &s, .name = "a\"\xff\n"};
    struct text t = {0};
    const char *key;
    json_t *value;
    ck_assert(*r->text && r->field->key);
    for (const struct event_field *f = r->field; f->key; f++)
        for (const struct event_field *g = f + 1; g->key; g++) ck_assert_str_ne(f->key, g->key);
    event_line(&ev, NULL, &none, &t);
    json_t *o = json_loads(t.s, JSON_REJECT_DUPLICATES, NULL);
    ck_assert_msg(o && !strcmp(json_string_value(json_object_get(o, "event")), r->name), "%s", t.s);
    const struct event_field *f = r->field;
    json_object_foreach(o, key, value) {
        if (!strcmp(key, "event")) continue;
        while (f->key && strcmp(f->key, key)) f++;
        ck_assert_msg(f->key, "%s", t.s);
    }
    if (_i == EVENT_CHECKPOINT) ck_assert_str_eq(json_string_value(json_object_get(o, "name")), "a\"\\xff\\x0a");
    json_decref(o);
    text_free(&t);
}
END_TEST

int main(void)
{
    TCase *all = tcase_create("list");
    tcase_add_test(all, all_are_told);
    tcase_add_loop_test(all, a_required_one_ends_the_run, 0, EVENT_KINDS);
    tcase_add_loop_test(all, others_are_told_no_more, 0, EVENT_KINDS);
    tcase_add_test(all, some_are_not_opened);
    tcase_add_loop_test(all, lines_are_of_the_table, 0, EVENT_LINES);
    return suite_run("reporters", CK_FORK, all, NULL);
}
