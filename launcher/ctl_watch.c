/* mpstagectl watch, and the code that watch and top share. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/mem.h"
#include "base/text.h"
#include "ctl_say.h"

const char ctl_ask_status[] = "{\"command\":\"status\"}\n";

/* ---- comparing statuses ------------------------------------------------------------------------------------------ */

/* Whether the run has not changed since, so that a file need not have the same lines again. */
static bool same_moment(const json_t *a, const json_t *b)
{
    static const char *const keys[] = {"step", "state", "evaluated_samples", "test_scores", "checkpoint_step"};
    if (!json_object_get(a, "idle_seconds") != !json_object_get(b, "idle_seconds")) return false;
    for (size_t i = 0; a && i < sizeof keys / sizeof *keys; i++) {
        json_t *x = json_object_get(a, keys[i]), *y = json_object_get(b, keys[i]);
        if (x != y && !json_equal(x, y)) return false;
    }
    return a != NULL;
}

/* Whether both are of the same run. */
static bool same_run(const json_t *a, const json_t *b)
{
    return !a || json_equal(json_object_get(a, "pid"), json_object_get(b, "pid"));
}

bool ctl_show_again(struct ctl_show *s, const json_t *last, const json_t *o)
{
    if (s->json || !isatty(STDOUT_FILENO)) return !same_moment(last, o);
    if (s->lines) printf("\033[%dA\033[J", s->lines);
    return true;
}

/* ---- the end of a run -------------------------------------------------------------------------------------------- */

/* The last lines of a run's metrics, the first maybe incomplete; NULL: they cannot be read. */
static char *last_lines(const char *dir)
{
    enum { MOST = 1 << 16 };
    struct text path = {0};
    struct stat st;
    char *s = NULL;
    text_add(&path, "%s/metrics.jsonl", dir);
    int fd = open(path.s, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0 && !fstat(fd, &st) && S_ISREG(st.st_mode)) {
        off_t from = st.st_size > MOST ? st.st_size - MOST : 0;
        s = mem_alloc(MOST + 1);
        ssize_t n = pread(fd, s, MOST, from);
        s[n > 0 ? n : 0] = 0;
    }
    if (fd >= 0) close(fd);
    text_free(&path);
    return s;
}

/* Updates *word by a line: the final event of a run, or the start of another part of it. */
static void last_word(const char *line, json_t **word)
{
    json_t *o = json_loads(line, 0, NULL);
    const char *event = ctl_text_of(o, "event");
    bool ends = !strcmp(event, "done") || !strcmp(event, "failed");
    if (ends || !strcmp(event, "start") || !strcmp(event, "resume")) {
        json_decref(*word);
        *word = ends ? json_incref(o) : NULL;
    }
    json_decref(o);
}

/* The final event of a run; NULL: it was killed, and has none. */
static json_t *end_word(const char *dir)
{
    char *lines = last_lines(dir), *rest = NULL;
    json_t *word = NULL;
    for (char *s = lines ? strtok_r(lines, "\n", &rest) : NULL; s; s = strtok_r(NULL, "\n", &rest))
        last_word(s, &word);
    free(lines);
    return word;
}

static void end_report(const char *dir, const json_t *word)
{
    const char *event = ctl_text_of(word, "event");
    if (!strcmp(event, "failed"))
        ctl_said(dir, "the run has failed with status %lld: %s", ctl_integer_of(word, "code"),
                 ctl_text_of(word, "text"));
    else if (!strcmp(event, "done"))
        ctl_said(dir, "the run has ended after step %lld: %s", ctl_integer_of(word, "steps"),
                 ctl_text_of(word, "reason"));
    else ctl_said(dir, "the run has ended");
}

int ctl_follow(struct call *c, struct ctl_show *s)
{
    json_t *last = NULL, *o;
    bool reported = false, enough = false, gone = false;
    int code = 0;
    while (!code && !enough && !gone) {
        struct err e = {0};
        if (!call_ask(c, ctl_ask_status, &o, &e)) {
            bool same = same_run(last, o);
            if (same) s->show(s, last, o);
            json_decref(last);
            last = o;
            reported = false;
            if (!same) break;
            if (!(code = ctl_output_end(0))) enough = s->pause(s);
        } else if (c->silent) {
            ctl_silence_report(&reported, &e);
            s->lines = 0;                                 /* the printed lines stay above the message */
        } else if (c->ended && c->met) gone = true;
        else code = ctl_fail(e.code, "%s", e.text);
    }
    json_t *word = code || enough ? NULL : end_word(c->dir);
    if (!code && !enough && !s->json) end_report(c->dir, word);
    if (gone && !word) code = E_DEVICE;
    json_decref(word);
    json_decref(last);
    return code;
}

/* ---- watch ------------------------------------------------------------------------------------------------------- */

enum { LEFT = 7 };

static void bar_print(const json_t *stage, double seconds, int columns)
{
    double end = 0;
    int at = 0, all = columns - LEFT - 1 > 0 ? columns - LEFT - 1 : 0;
    printf("%*s", LEFT, "");
    for (int i = 0; i < CTL_PARTS; i++) {
        end += seconds > 0 ? ctl_part_seconds(stage, i) / seconds * all : 0;
        if (ctl_parts[i].sgr) printf("\033[%d;97m", ctl_parts[i].sgr);
        for (; at < all && at + 0.5 < end; at++) putchar(ctl_parts[i].letter);
        fputs("\033[0m", stdout);
    }
    putchar('\n');
}

static void row_print(const json_t *stage, double seconds)
{
    char name[24];
    printf("%5s", ctl_stage_name(stage, name));
    for (int i = 0; i < CTL_PARTS; i++)
        printf(" %5.1f %%", seconds > 0 ? 100 * ctl_part_seconds(stage, i) / seconds : 0);
    puts("");
}

/* Prints a line for each stage: the parts of the last step's time, in percent; on a terminal a bar below it. Returns
 * the number of printed lines. */
static int account_print(const json_t *o)
{
    const json_t *account = json_object_get(o, "account"), *stage;
    double seconds = ctl_number_of(o, "step_seconds");
    int columns = ctl_columns(), lines = 0;
    bool table = columns > 5 + CTL_PARTS * 8, bar = isatty(STDOUT_FILENO);
    size_t k;
    if (!json_array_size(account)) return 0;
    if (table) {
        printf("%5s", "stage");
        for (int i = 0; i < CTL_PARTS; i++) printf(" %7s", ctl_parts[i].name);
        puts("");
        lines++;
    }
    json_array_foreach(account, k, stage) {
        if (table) row_print(stage, seconds), lines++;
        else lines += ctl_stage_print(stage, seconds, columns);
        if (bar) bar_print(stage, seconds, columns), lines++;
    }
    return lines;
}

static void moment_print(struct ctl_show *s, const json_t *last, const json_t *o)
{
    if (!ctl_show_again(s, last, o)) return;
    if (s->json) { ctl_json_print(o, true); return; }
    s->lines = ctl_status_print(o);
    s->lines += account_print(o);
}

static bool nap(struct ctl_show *s)
{
    usleep((useconds_t)(s->seconds * 1e6));
    return false;
}

int ctl_watch(struct call *c, double seconds, bool json)
{
    struct ctl_show s = {.show = moment_print, .pause = nap, .seconds = seconds, .json = json};
    return ctl_follow(c, &s);
}
