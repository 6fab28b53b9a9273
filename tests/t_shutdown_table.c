/* How a process ends: every state and event of the table, the deadlines, and what docs/design/cluster.md prints. */
#include <stdlib.h>
#include <string.h>
#include "base/deadline.h"
#include "base/mem.h"
#include "cluster/shutdown_table.h"
#include "sure.h"

/* Whether the process ends in this state, whatever comes. */
static bool is_ending(int in) { return in != IN_SETUP && in != IN_RUN; }

START_TEST(every_event_has_an_answer)
{
    for (int in = 0; in < IN_STATES; in++)
        for (int on = 0; on < ON_EVENTS; on++) {
            struct shutdown_step s = shutdown_step((enum shutdown_state)in, (enum shutdown_event)on);
            ck_assert_msg(s.action > DO_UNKNOWN && s.action < DO_ACTIONS && (int)s.next < IN_STATES, "%d, %d", in, on);
            ck_assert_msg(!is_ending(in) || is_ending((int)s.next), "%d, %d: goes on", in, on);
            bool stores = s.action == DO_STORE || s.action == DO_SPREAD || s.action == DO_DOUBT;
            ck_assert_msg(!stores || ((int)s.next != in && is_ending((int)s.next)), "%d, %d: stores for ever", in, on);
            bool ends = s.action == DO_END_JOB || s.action == DO_END_SELF;
            ck_assert_msg(ends == (s.next == IN_LAST && in != IN_LAST), "%d, %d: ends and stays", in, on);
        }
}
END_TEST

/* Whatever else happens: the second deadline ends the process, and so does everybody's knowing. */
START_TEST(every_end_comes)
{
    for (int in = IN_SETUP; in < IN_LAST; in++) {
        struct shutdown_times t = shutdown_times((enum shutdown_state)in);
        struct shutdown_step late = shutdown_step((enum shutdown_state)in, ON_OVERDUE),
                             done = shutdown_step((enum shutdown_state)in, ON_DONE);
        ck_assert_int_eq(late.next == IN_LAST, is_ending(in));
        ck_assert_int_eq(done.next == IN_LAST, is_ending(in));
        ck_assert_int_eq(t.overdue > 0, is_ending(in));
        ck_assert(!is_ending(in) || (t.late > 0 && t.late < t.overdue));
        ck_assert(t.listen + t.answer < t.late || !is_ending(in));
        ck_assert(!t.order || t.order > t.listen + t.answer);
    }
}
END_TEST

/* Every chain of five events: a failure is stored at most twice, the second time because it is better than a stop or a
 * doubt. */
static void walk(enum shutdown_state in, int stored, int left)
{
    ck_assert_int_le(stored, 2);
    for (int on = 0; on < ON_EVENTS && left; on++) {
        struct shutdown_step s = shutdown_step(in, (enum shutdown_event)on);
        walk(s.next, stored + (s.action == DO_STORE || s.action == DO_SPREAD || s.action == DO_DOUBT), left - 1);
    }
}

START_TEST(no_chain_stores_often)
{
    walk(IN_RUN, 0, 5);
    walk(IN_SETUP, 0, 5);
    ck_assert_int_lt(shutdown_times(IN_STOPPED).overdue, DEADLINE_PROMISED_STOP);
}
END_TEST

START_TEST(the_design_page_has_it)
{
    const char *dir = getenv("srcdir");
    struct text want = {0}, doc = {0}, path = {0};
    struct err e = {0};
    text_add(&path, "%s/docs/design/cluster.md", dir ? dir : ".");
    ck_assert_msg(!text_read_bytes(&doc, path.s, 1 << 20, &e), "%s", e.text);
    shutdown_table_print(&want);
    ck_assert_msg(strstr(doc.s, want.s) != NULL, "%s should have:\n%s", path.s, want.s);
    text_free(&want);
    text_free(&doc);
    text_free(&path);
}
END_TEST

int main(void)
{
    TCase *t = suite_case("shutdown_table", 60);
    tcase_add_test(t, every_event_has_an_answer);
    tcase_add_test(t, every_end_comes);
    tcase_add_test(t, no_chain_stores_often);
    tcase_add_test(t, the_design_page_has_it);
    return suite_run("shutdown_table", CK_FORK, t);
}
