/* mpstagectl: asks a running mpstaged through RUN/control.sock. See mpstagectl(1). */
#include <getopt.h>
#include <jansson.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/text.h"
#include "config.h"
#include "ctl_call.h"

static const char help[] =
    "usage: mpstagectl RUNDIR COMMAND [option]\n"
    "Asks and steers the mpstaged whose run directory is RUNDIR.\n\n"
    "Commands:\n"
    "  status            say what the run is doing\n"
    "  watch [SECONDS]   status and where each stage's time goes, until the run ends\n"
    "  stop              finish the steps under way, write the weights, end\n"
    "\n"
    "Options:\n"
    "  --json            status as one JSON object\n"
    "  --wait            stop returns when the run has ended\n"
    "  -h, --help        print this text\n"
    "  -V, --version     print the version\n";

static int ctl_fail(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static int ctl_fail(int code, const char *fmt, ...)
{
    char line[1200], clean[2400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    fprintf(stderr, "mpstagectl: %s\n", text_printable(line, clean, sizeof clean));
    return code;
}

static void said(const struct call *c, const char *what)
{
    char line[1200], clean[2400];
    snprintf(line, sizeof line, "%s: %s", c->dir, what);
    puts(text_printable(line, clean, sizeof clean));
}

/* Reports once if the output could not be written. code: what to return otherwise. */
static int output_end(int code)
{
    struct err e = {0};
    if (!text_output_end(&e)) return code;
    ctl_fail(e.code, "%s", e.text);
    clearerr(stdout);
    return code ? code : E_IO;
}

static const char ask_status[] = "{\"command\":\"status\"}\n", ask_stop[] = "{\"command\":\"stop\"}\n",
                  ask_stop_wait[] = "{\"command\":\"stop\",\"wait\":true}\n";

/* ---- status ------------------------------------------------------------------------------------------------------ */

static const char *text_of(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "?";
}

static int output_columns(void)
{
    const int LEAST = 20;
    int n = text_output_columns();
    return n > LEAST ? n : LEAST;
}

/* Prints a line, folded after commas if there are any, otherwise between words. The last column stays free, because
 * some terminals wrap when it is written. Returns how many lines it printed. */
static int line_print(const char *line, int columns)
{
    char clean[2000];
    const char *s = text_printable(line, clean, sizeof clean);
    int lines = 1;
    for (int room = columns - 1; text_columns(s, strlen(s)) > room; lines++, room = columns - 3) {
        size_t end = 0;
        for (int i = 0; i < room; i++) if (s[i] == ',' && s[i + 1] == ' ') end = (size_t)i + 1;
        if (!end) end = text_line(s, room);
        if (!s[end]) break;
        printf("%.*s\n  ", (int)end, s);
        s += end + 1;
    }
    puts(s);
    return lines;
}

static void status_add(char **at, const char *end, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void status_add(char **at, const char *end, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(*at, (size_t)(end - *at), fmt, ap);
    va_end(ap);
    *at += n < end - *at ? n : end - *at - 1;
}

static long long integer_of(const json_t *o, const char *key)
{
    return (long long)json_integer_value(json_object_get(o, key));
}

static double number_of(const json_t *o, const char *key) { return json_number_value(json_object_get(o, key)); }

/* Returns how many lines it printed. */
static int status_print(const json_t *o)
{
    char line[1000], *at = line, *end = line + sizeof line;
    status_add(&at, end, "%s: %s", text_of(o, "name"), text_of(o, "state"));
    if (json_object_get(o, "evaluation_samples"))
        status_add(&at, end, " (%lld of %lld samples)", integer_of(o, "evaluated_samples"),
                   integer_of(o, "evaluation_samples"));
    status_add(&at, end, ", step %lld/%lld, epoch %lld", integer_of(o, "step"),
               integer_of(o, "steps"), integer_of(o, "epoch"));
    if (json_object_get(o, "scores")) status_add(&at, end, ", %s", text_of(o, "scores"));
    if (json_object_get(o, "idle_seconds"))
        status_add(&at, end, ", no %s has ended for %.0f s",
                   json_object_get(o, "evaluation_samples") ? "batch" : "step", number_of(o, "idle_seconds"));
    else if (json_object_get(o, "samples_per_second"))
        status_add(&at, end, ", %.4g samples/s", number_of(o, "samples_per_second"));
    if (json_object_get(o, "eta_seconds")) status_add(&at, end, ", %.0f s left", number_of(o, "eta_seconds"));
    if (json_object_get(o, "test_scores")) status_add(&at, end, ", %s", text_of(o, "test_scores"));
    status_add(&at, end, " (%lld ranks, pid %lld)", integer_of(o, "ranks"), integer_of(o, "pid"));
    return line_print(line, output_columns());
}

static int status_once(struct call *c, bool json)
{
    struct err e = {0};
    json_t *o;
    if (call_ask(c, ask_status, &o, &e)) return ctl_fail(e.code, "%s", e.text);
    if (json) {
        json_dumpf(o, stdout, JSON_INDENT(2) | JSON_ENSURE_ASCII);
        putchar('\n');
    } else status_print(o);
    json_decref(o);
    return 0;
}

/* ---- watch ------------------------------------------------------------------------------------------------------- */

/* How the account of a stage is shown: waiting is one figure, whatever the stage waits for. Names have at most 7
 * characters, so that a line fits 80 columns. sgr: of the bar on a terminal. */
static const struct { const char *name, *keys[2]; char letter; int sgr; } parts[] = {
    {"forward", {"forward_seconds"}, 'F', 44}, {"in.grad", {"input_grad_seconds"}, 'B', 43},
    {"wt.grad", {"weight_grad_seconds"}, 'W', 42}, {"recomp.", {"recompute_seconds"}, 'R', 45},
    {"optim.", {"optimizer_seconds"}, 'O', 100}, {"transf.", {"transfer_seconds"}, 'T', 46},
    {"waiting", {"wait_upstream_seconds", "wait_downstream_seconds"}, '.', 0}, {"other", {"other_seconds"}, 'o', 47},
};
enum { PARTS = sizeof parts / sizeof *parts, LEFT = 7 };

static double stage_part(const json_t *stage, int i, double seconds)
{
    double sum = 0;
    for (int k = 0; k < 2 && parts[i].keys[k]; k++) sum += json_number_value(json_object_get(stage, parts[i].keys[k]));
    return seconds > 0 ? sum / seconds : 0;
}

static void bar_print(const json_t *stage, double seconds, int columns)
{
    double end = 0;
    int at = 0, all = columns - LEFT - 1 > 0 ? columns - LEFT - 1 : 0;
    printf("%*s", LEFT, "");
    for (int i = 0; i < PARTS; i++) {
        end += stage_part(stage, i, seconds) * all;
        if (parts[i].sgr) printf("\033[%d;97m", parts[i].sgr);
        for (; at < all && at + 0.5 < end; at++) putchar(parts[i].letter);
        fputs("\033[0m", stdout);
    }
    putchar('\n');
}

/* Prints a stage as a sentence, if the table would be too wide. */
static int stage_print(const json_t *stage, double seconds, int columns)
{
    char line[400], *at = line, *end = line + sizeof line;
    status_add(&at, end, "stage %lld: ", integer_of(stage, "stage"));
    for (int i = 0, n = 0; i < PARTS; i++) {
        double part = stage_part(stage, i, seconds);
        if (part >= 0.0005) status_add(&at, end, "%s%s %.1f %%", n++ ? ", " : "", parts[i].name, 100 * part);
    }
    return line_print(line, columns);
}

static void row_print(const json_t *stage, double seconds)
{
    printf("%5lld", integer_of(stage, "stage"));
    for (int i = 0; i < PARTS; i++) printf("  %5.1f %%", 100 * stage_part(stage, i, seconds));
    puts("");
}

/* Prints a line for each stage: where the last step's time went, in percent; on a terminal a bar below it. Returns how
 * many lines it printed. */
static int account_print(const json_t *o)
{
    const json_t *account = json_object_get(o, "account"), *stage;
    double seconds = number_of(o, "step_seconds");
    int columns = output_columns(), lines = 0;
    bool table = columns > 5 + PARTS * 9, bar = isatty(STDOUT_FILENO);
    size_t k;
    if (!json_array_size(account)) return 0;
    if (table) {
        printf("%5s", "stage");
        for (int i = 0; i < PARTS; i++) printf("  %7s", parts[i].name);
        puts("");
        lines++;
    }
    json_array_foreach(account, k, stage) {
        if (table) row_print(stage, seconds), lines++;
        else lines += stage_print(stage, seconds, columns);
        if (bar) bar_print(stage, seconds, columns), lines++;
    }
    return lines;
}

/* Whether the run has not moved on since, so that a file need not have the same lines again. */
static bool same_moment(const json_t *a, const json_t *b)
{
    static const char *const keys[] = {"step", "state", "evaluated_samples", "test_scores"};
    if (!json_object_get(a, "idle_seconds") != !json_object_get(b, "idle_seconds")) return false;
    for (size_t i = 0; a && i < sizeof keys / sizeof *keys; i++) {
        json_t *x = json_object_get(a, keys[i]), *y = json_object_get(b, keys[i]);
        if (x != y && !json_equal(x, y)) return false;
    }
    return a != NULL;
}

/* Whether another run has begun there since. */
static bool same_run(const json_t *a, const json_t *b)
{
    return !a || json_equal(json_object_get(a, "pid"), json_object_get(b, "pid"));
}

/* On a terminal the lines are rewritten. Returns how many there are now. */
static int moment_print(const json_t *last, const json_t *o, int lines)
{
    bool terminal = isatty(STDOUT_FILENO);
    if (terminal && lines) printf("\033[%dA\033[J", lines);
    if (!terminal && same_moment(last, o)) return lines;
    lines = status_print(o);
    return lines + account_print(o);
}

/* Says why it waits, once for each time without an answer. */
static void silence_tell(bool *told, const struct err *e)
{
    if (!*told) ctl_fail(e->code, "%s; waiting for it", e->text);
    *told = true;
}

/* Ends with the run, and only then with 0: a run that does not answer may still go on. */
static int watch(struct call *c, double seconds)
{
    json_t *last = NULL, *o;
    bool told = false;
    int lines = 0, code = 0;
    while (!code) {
        struct err e = {0};
        if (!call_ask(c, ask_status, &o, &e)) {
            bool same = same_run(last, o);
            if (same) lines = moment_print(last, o, lines);
            json_decref(last);
            last = o;
            told = false;
            if (!same) break;
            if (!(code = output_end(0))) usleep((useconds_t)(seconds * 1e6));
        } else if (c->silent) {
            silence_tell(&told, &e);
            lines = 0;                                    /* what was printed stays above the message */
        } else if (c->ended && c->met) break;
        else code = ctl_fail(e.code, "%s", e.text);
    }
    if (!code) said(c, "the run has ended");
    json_decref(last);
    return code;
}

/* ---- stop -------------------------------------------------------------------------------------------------------- */

/* Finds out whether a run was killed or goes on, when its connection ended without a message. */
static int end_guess(struct call *c, pid_t pid)
{
    struct err e = {0};
    json_t *o = NULL;
    int bad = call_ask(c, ask_status, &o, &e);
    json_decref(o);
    if ((bad && c->ended) || (c->pid != pid && !c->silent))
        return ctl_fail(E_DEVICE, "%s: the run ended without a word", c->dir);
    if (bad) return ctl_fail(e.code, "%s", e.text);
    return ctl_fail(E_STOPPED, "%s: the connection was lost, the run goes on", c->dir);
}

static int end_print(const struct call *c, const json_t *o)
{
    const char *state = json_string_value(json_object_get(o, "state")),
               *error = json_string_value(json_object_get(o, "error"));
    int status = (int)json_integer_value(json_object_get(o, "code"));
    if (error)
        return ctl_fail(status > 0 && status < 256 ? status : E_INTERNAL, "%s: the run failed: %s", c->dir, error);
    if (!state) return ctl_fail(E_INTERNAL, "%s: an answer that is not JSON", c->dir);
    said(c, state);
    return 0;
}

/* Waits for the last line, which says how the run ended, and returns the run's exit status. It prints that it waits
 * only if the process was stopped by Ctrl-Z or SIGSTOP. */
static int end_await(struct call *c)
{
    json_t *o = NULL;
    bool told = false;
    for (pid_t pid = c->pid;;) {
        struct err e = {0};
        int bad = call_hear(c, &o, &e);
        if (bad > 0) return end_guess(c, pid);
        if (bad && !c->silent) return ctl_fail(e.code, "%s", e.text);
        if (!bad) break;
        if (call_stopped(c)) silence_tell(&told, &e);
        else told = false;
    }
    int code = end_print(c, o);
    json_decref(o);
    return code;
}

static int stop(struct call *c, bool wait)
{
    struct err e = {0};
    json_t *o;
    if (call_ask(c, wait ? ask_stop_wait : ask_stop, &o, &e))
        return ctl_fail(e.code, "%s%s", e.text, c->asked ? "; the request waits there" : "");
    json_decref(o);
    if (wait) return end_await(c);
    said(c, "stopping");
    return 0;
}

/* ---- command line ------------------------------------------------------------------------------------------------ */

static int command_run(struct call *c, int argc, char **argv, bool json, bool wait)
{
    const char *command = argv[1];
    if (strcmp(command, "status") == 0) return status_once(c, json);
    if (strcmp(command, "stop") == 0) return stop(c, wait);
    return watch(c, argc > 2 ? strtod(argv[2], NULL) : 1);
}

/* Checks that each option belongs to the command; otherwise it is an error. */
static int check(int argc, char **argv, bool json, bool wait)
{
    if (argc < 2) return ctl_fail(E_USAGE, "a run directory and a command are needed (see mpstagectl --help)");
    bool status = strcmp(argv[1], "status") == 0, stops = strcmp(argv[1], "stop") == 0,
            watches = strcmp(argv[1], "watch") == 0;
    if (!status && !stops && !watches) return ctl_fail(E_USAGE, "unknown command %s (see mpstagectl --help)", argv[1]);
    if (argc > (watches ? 3 : 2)) return ctl_fail(E_USAGE, "unexpected argument %s", argv[watches ? 3 : 2]);
    if (json && !status) return ctl_fail(E_USAGE, "--json goes with status");
    if (wait && !stops) return ctl_fail(E_USAGE, "--wait goes with stop");
    char *end = NULL;
    double seconds = watches && argc > 2 ? strtod(argv[2], &end) : 1;
    if (!(seconds >= 0.1 && seconds <= 5) || (end && *end))
        return ctl_fail(E_USAGE, "watch: %s is no number of seconds from 0.1 to 5", argv[2]);
    return 0;
}

/* Long options have no letter, so a letter that getopt reports is an unknown one, wherever in its argument it
 * stands. */
enum { LONG_JSON = 256, LONG_WAIT };

static int option_unknown(char **argv)
{
    char letter[3] = {'-', (char)optopt};
    bool is_letter = optopt > 0 && optopt < LONG_JSON && !strchr("hV", optopt);
    return ctl_fail(E_USAGE, "unknown option %s (see mpstagectl --help)", is_letter ? letter : argv[optind - 1]);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"json", 0, NULL, LONG_JSON}, {"wait", 0, NULL, LONG_WAIT},
                                            {"help", 0, NULL, 'h'}, {"version", 0, NULL, 'V'}, {0}};
    bool json = false, wait = false;
    opterr = 0;
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    for (int c; (c = getopt_long(argc, argv, "hV", options, NULL)) != -1;) {
        if (c == LONG_JSON) json = true;
        else if (c == LONG_WAIT) wait = true;
        else if (c == 'h') return fputs(help, stdout), output_end(0);
        else if (c == 'V') return printf("mpstagectl %s\n", PACKAGE_VERSION), output_end(0);
        else return option_unknown(argv);
    }
    argc -= optind;
    argv += optind;
    int code = check(argc, argv, json, wait);
    if (code) return code;
    struct call call;
    struct err e = {0};
    if (call_open(&call, argv[0], &e)) return ctl_fail(e.code, "%s", e.text);
    code = output_end(command_run(&call, argc, argv, json, wait));
    call_close(&call);
    return code;
}
