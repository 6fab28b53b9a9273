/* The table of shutdown. */
#include "config.h"
#include "base/deadline.h"
#include "cluster/shutdown_table.h"

#define ON(event, action, next) [ON_##event] = {DO_##action, IN_##next}
static const struct shutdown_step table[IN_STATES][ON_EVENTS] = {
    [IN_SETUP] = {
        ON(STOP, STORE, ABANDONED), ON(LINK, STORE, ABANDONED), ON(CAUSE, STORE, ABANDONED),
        ON(TOLD, STORE, ABANDONED), ON(FOUND, SPREAD, ABANDONED), ON(ALONE, LEAD, SETUP), ON(LEAVE, IGNORE, SETUP),
        ON(DONE, RETURN, SETUP), ON(LATE, IGNORE, SETUP), ON(OVERDUE, IGNORE, SETUP)},
    [IN_RUN] = {
        ON(STOP, STORE, STOPPED), ON(LINK, DOUBT, DOUBT), ON(CAUSE, STORE, FAILED), ON(TOLD, STORE, TOLD),
        ON(FOUND, SPREAD, LOST), ON(ALONE, LEAD, RUN), ON(LEAVE, TELL, RUN), ON(DONE, RETURN, RUN),
        ON(LATE, IGNORE, RUN), ON(OVERDUE, IGNORE, RUN)},
    [IN_ABANDONED] = {
        ON(STOP, IGNORE, ABANDONED), ON(LINK, IGNORE, ABANDONED), ON(CAUSE, IGNORE, ABANDONED),
        ON(TOLD, IGNORE, ABANDONED), ON(FOUND, IGNORE, ABANDONED), ON(ALONE, LEAD, ABANDONED),
        ON(LEAVE, TELL, ABANDONED), ON(DONE, END_JOB, LAST), ON(LATE, ASK, ABANDONED), ON(OVERDUE, END_JOB, LAST)},
    [IN_STOPPED] = {
        ON(STOP, IGNORE, STOPPED), ON(LINK, IGNORE, STOPPED), ON(CAUSE, STORE, FAILED), ON(TOLD, STORE, TOLD),
        ON(FOUND, IGNORE, STOPPED), ON(ALONE, LEAD, STOPPED), ON(LEAVE, TELL, STOPPED), ON(DONE, END_JOB, LAST),
        ON(LATE, ASK, STOPPED), ON(OVERDUE, END_SELF, LAST)},
    [IN_DOUBT] = {
        ON(STOP, IGNORE, DOUBT), ON(LINK, IGNORE, DOUBT), ON(CAUSE, STORE, FAILED), ON(TOLD, STORE, TOLD),
        ON(FOUND, SPREAD, LOST), ON(ALONE, LEAD, DOUBT), ON(LEAVE, TELL, DOUBT), ON(DONE, END_JOB, LAST),
        ON(LATE, ASK, DOUBT), ON(OVERDUE, END_JOB, LAST)},
    [IN_LOST] = {
        ON(STOP, IGNORE, LOST), ON(LINK, IGNORE, LOST), ON(CAUSE, IGNORE, LOST), ON(TOLD, IGNORE, TOLD),
        ON(FOUND, IGNORE, LOST), ON(ALONE, LEAD, LOST), ON(LEAVE, TELL, LOST), ON(DONE, END_JOB, LAST),
        ON(LATE, ASK, LOST), ON(OVERDUE, END_JOB, LAST)},
    [IN_FAILED] = {
        ON(STOP, IGNORE, FAILED), ON(LINK, IGNORE, FAILED), ON(CAUSE, IGNORE, FAILED), ON(TOLD, IGNORE, TOLD),
        ON(FOUND, IGNORE, FAILED), ON(ALONE, LEAD, FAILED), ON(LEAVE, TELL, FAILED), ON(DONE, END_JOB, LAST),
        ON(LATE, ASK, FAILED), ON(OVERDUE, END_JOB, LAST)},
    [IN_TOLD] = {
        ON(STOP, IGNORE, TOLD), ON(LINK, IGNORE, TOLD), ON(CAUSE, IGNORE, TOLD), ON(TOLD, IGNORE, TOLD),
        ON(FOUND, IGNORE, TOLD), ON(ALONE, LEAD, TOLD), ON(LEAVE, ANSWER, TOLD), ON(DONE, END_JOB, LAST),
        ON(LATE, ASK, TOLD), ON(OVERDUE, END_JOB, LAST)},
    [IN_LAST] = {
        ON(STOP, IGNORE, LAST), ON(LINK, IGNORE, LAST), ON(CAUSE, IGNORE, LAST), ON(TOLD, IGNORE, LAST),
        ON(FOUND, IGNORE, LAST), ON(ALONE, IGNORE, LAST), ON(LEAVE, IGNORE, LAST), ON(DONE, IGNORE, LAST),
        ON(LATE, IGNORE, LAST), ON(OVERDUE, IGNORE, LAST)},
};

struct shutdown_step shutdown_step(enum shutdown_state in, enum shutdown_event on) { return table[in][on]; }

/* ---- deadlines --------------------------------------------------------------------------------------------------- */

#define AFTER_STOP .late = DEADLINE_LOOP_STOP, .overdue = DEADLINE_PROCESS_STOP
#define AFTER_FAIL .late = DEADLINE_LOOP_FAIL, .overdue = DEADLINE_PROCESS_FAIL
static const struct shutdown_times times[IN_STATES] = {
    [IN_ABANDONED] = {AFTER_STOP, .listen = DEADLINE_LISTEN, .answer = DEADLINE_ANSWER_SHORT, .order = DEADLINE_GRACE},
    [IN_STOPPED] = {AFTER_STOP, .listen = DEADLINE_LISTEN, .answer = DEADLINE_ANSWER_SHORT, .order = DEADLINE_GRACE},
    [IN_DOUBT] = {AFTER_FAIL, .listen = DEADLINE_LISTEN, .answer = DEADLINE_ANSWER, .order = DEADLINE_GRACE},
    [IN_LOST] = {AFTER_FAIL, .answer = DEADLINE_ANSWER_SHORT, .order = DEADLINE_GRACE},
    [IN_FAILED] = {AFTER_FAIL, .answer = DEADLINE_ANSWER, .order = DEADLINE_GRACE},
    [IN_TOLD] = {AFTER_FAIL},
};

struct shutdown_times shutdown_times(enum shutdown_state in) { return times[in]; }

/* ---- for people -------------------------------------------------------------------------------------------------- */

static const char *const state_name[IN_STATES] = {
    [IN_SETUP] = "setup", [IN_RUN] = "run", [IN_ABANDONED] = "abandoned", [IN_STOPPED] = "stopped",
    [IN_DOUBT] = "doubt", [IN_LOST] = "lost", [IN_FAILED] = "failed", [IN_TOLD] = "told", [IN_LAST] = "last"};
static const char *const event_name[ON_EVENTS] = {
    [ON_STOP] = "stop", [ON_LINK] = "link", [ON_CAUSE] = "cause", [ON_TOLD] = "told", [ON_FOUND] = "found",
    [ON_ALONE] = "alone", [ON_LEAVE] = "leave", [ON_DONE] = "done", [ON_LATE] = "late", [ON_OVERDUE] = "overdue"};
static const char *const action_name[DO_ACTIONS] = {
    [DO_UNKNOWN] = "?", [DO_IGNORE] = "-", [DO_STORE] = "store", [DO_DOUBT] = "keep", [DO_SPREAD] = "spread",
    [DO_LEAD] = "lead", [DO_TELL] = "tell", [DO_ANSWER] = "answer", [DO_ASK] = "ask", [DO_END_JOB] = "end job",
    [DO_END_SELF] = "end self", [DO_RETURN] = "return"};

static void rule_print(struct text *t, int columns)
{
    for (int i = 0; i < columns; i++) text_add(t, "|---");
    text_add(t, "|\n");
}

void shutdown_table_print(struct text *t)
{
    text_add(t, "| in |");
    for (int on = 0; on < ON_EVENTS; on++) text_add(t, " %s |", event_name[on]);
    text_add(t, "\n");
    rule_print(t, ON_EVENTS + 1);
    for (int in = 0; in < IN_STATES; in++) {
        text_add(t, "| **%s** |", state_name[in]);
        for (int on = 0; on < ON_EVENTS; on++) {
            const struct shutdown_step *s = &table[in][on];
            text_add(t, " %s", action_name[s->action]);
            if ((int)s->next != in && s->next != IN_LAST) text_add(t, ": %s", state_name[s->next]);
            text_add(t, " |");
        }
        text_add(t, "\n");
    }
    text_add(t, "\n| in, ms | late | overdue | listen | answer | order |\n");
    rule_print(t, 6);
    for (int in = IN_ABANDONED; in < IN_LAST; in++)
        text_add(t, "| **%s** | %d | %d | %d | %d | %d |\n", state_name[in], times[in].late, times[in].overdue,
                 times[in].listen, times[in].answer, times[in].order);
}
