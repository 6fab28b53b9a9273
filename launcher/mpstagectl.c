/* mpstagectl: queries and controls a running mpstaged through RUN/control.sock, and reads checkpoints. See
 * mpstagectl(1). */
#include <getopt.h>
#include <jansson.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/mem.h"
#include "base/text.h"
#include "ctl_say.h"
#include "ctl_table.h"

/* A parsed command line. */
struct want {
    int verb;
    const char *dir, *arg, *html;                         /* NULL: none */
    bool given[CTL_OPTIONS];
};

/* ---- requests ---------------------------------------------------------------------------------------------------- */

/* Sends a request made of o, which it frees. Returns the answer, or NULL after it has printed an error: *code. */
static json_t *ask(struct call *c, json_t *o, int *code)
{
    struct err e = {0};
    struct text line = {0};
    json_t *answer = NULL;
    char *s = json_dumps(o, JSON_COMPACT);
    text_add(&line, "%s\n", s ? s : "{}");
    if (call_ask(c, line.s, &answer, &e))
        *code = ctl_fail(e.code, "%s%s", e.text, c->asked ? "; the request is queued" : "");
    free(s);
    text_free(&line);
    json_decref(o);
    return answer;
}

static json_t *request(const char *command) { return json_pack("{s:s}", "command", command); }

static int status(struct call *c, bool json)
{
    struct err e = {0};
    json_t *o;
    if (call_ask(c, ctl_ask_status, &o, &e)) return ctl_fail(e.code, "%s", e.text);
    if (json) ctl_json_print(o, false);
    else ctl_status_print(o);
    json_decref(o);
    return 0;
}

/* Runs a command that is answered at once: prints the answer's state. */
static int simple(struct call *c, const char *command)
{
    int code = 0;
    json_t *o = ask(c, request(command), &code);
    if (o) ctl_said(c->dir, "%s", ctl_text_of(o, "state"));
    json_decref(o);
    return code;
}

static int set(struct call *c, const char *assignment)
{
    const char *eq = strchr(assignment, '=');
    struct text key = {0};
    int code = 0;
    if (!eq || eq == assignment) return ctl_fail(E_USAGE, "set: expected KEY=VALUE, not %s", assignment);
    text_add(&key, "%.*s", (int)(eq - assignment), assignment);
    json_t *q = json_pack("{s:s,s:s,s:s}", "command", "set", "key", key.s, "value", eq + 1);
    text_free(&key);
    if (!q) return ctl_fail(E_USAGE, "set: %s is not UTF-8", assignment);
    json_t *o = ask(c, q, &code);
    if (o)
        ctl_said(c->dir, "%s is %.9g from step %lld on", ctl_text_of(o, "key"), ctl_number_of(o, "value"),
                 ctl_integer_of(o, "step"));
    json_decref(o);
    return code;
}

static int reload(struct call *c)
{
    int code = 0;
    const char *key;
    json_t *o = ask(c, request("reload"), &code), *changed = json_object_get(o, "changed"), *value;
    if (o && !json_object_size(changed)) ctl_said(c->dir, "nothing has changed");
    json_object_foreach(changed, key, value)
        ctl_said(c->dir, "%s is %s from step %lld on", key, json_string_value(value), ctl_integer_of(o, "step"));
    json_decref(o);
    return code;
}

static int log_level(struct call *c, const char *level)
{
    int code = 0;
    json_t *o = ask(c, json_pack("{s:s,s:s}", "command", "log-level", "level", level), &code);
    if (o) ctl_said(c->dir, "the log has level %s", ctl_text_of(o, "state"));
    json_decref(o);
    return code;
}

/* ---- waiting ----------------------------------------------------------------------------------------------------- */

/* Finds out whether a run was killed or continues after its connection ended without a message. */
static int end_guess(struct call *c, pid_t pid)
{
    struct err e = {0};
    json_t *o = NULL;
    int bad = call_ask(c, ctl_ask_status, &o, &e);
    json_decref(o);
    if ((bad && c->ended) || (c->pid != pid && !c->silent))
        return ctl_fail(E_DEVICE, "%s: the run ended without a message", c->dir);
    if (bad) return ctl_fail(e.code, "%s", e.text);
    return ctl_fail(E_STOPPED, "%s: the connection was lost; the run continues", c->dir);
}

/* Waits for the promised line. Prints that it waits only if Ctrl-Z or SIGSTOP has stopped the process. NULL after it
 * has printed an error: *code. */
static json_t *promised(struct call *c, int *code)
{
    json_t *o = NULL;
    bool reported = false;
    for (pid_t pid = c->pid;;) {
        struct err e = {0};
        int bad = call_hear(c, &o, &e);
        if (!bad) return o;
        if (bad > 0) *code = end_guess(c, pid);
        else if (!c->silent) *code = ctl_fail(e.code, "%s", e.text);
        else {
            if (call_stopped(c)) ctl_silence_report(&reported, &e);
            else reported = false;
            continue;
        }
        return NULL;
    }
}

static int failed(const struct call *c, const json_t *o, const char *what)
{
    int status_of = (int)ctl_integer_of(o, "code");
    return ctl_fail(status_of > 0 && status_of < 256 ? status_of : E_INTERNAL, "%s: %s: %s", c->dir, what,
                    ctl_text_of(o, "error"));
}

/* Waits for the run's end. Returns the run's exit status. */
static int end_await(struct call *c)
{
    int code = 0;
    json_t *o = promised(c, &code);
    if (json_object_get(o, "error")) code = failed(c, o, "the run failed");
    else if (o && !json_object_get(o, "state")) code = ctl_fail(E_INTERNAL, "%s: the answer is not JSON", c->dir);
    else if (o) ctl_said(c->dir, "%s", ctl_text_of(o, "state"));
    json_decref(o);
    return code;
}

static int checkpoint_await(struct call *c)
{
    int code = 0;
    json_t *o = promised(c, &code);
    if (json_object_get(o, "error")) code = failed(c, o, "no checkpoint was written");
    else if (o && strcmp(ctl_text_of(o, "state"), "checkpoint") != 0)
        code = ctl_fail(E_STOPPED, "%s: the run has ended before that: %s", c->dir, ctl_text_of(o, "state"));
    else if (o) ctl_said(c->dir, "the checkpoint of step %lld is written", ctl_integer_of(o, "step"));
    json_decref(o);
    return code;
}

static int promise(struct call *c, const struct want *w)
{
    int code = 0;
    json_t *q = request(ctl_verbs[w->verb].name);
    if (w->given[CTL_WAIT]) json_object_set_new(q, "wait", json_true());
    if (w->given[CTL_CHECKPOINT]) json_object_set_new(q, "checkpoint", json_true());
    json_t *o = ask(c, q, &code);
    if (!o) return code;
    if (!w->given[CTL_WAIT]) ctl_said(c->dir, "%s", ctl_text_of(o, "state"));
    json_decref(o);
    if (!w->given[CTL_WAIT]) return 0;
    return w->verb == VERB_STOP ? end_await(c) : checkpoint_await(c);
}

/* ---- command line ------------------------------------------------------------------------------------------------ */

static double seconds_of(const struct want *w) { return w->arg ? strtod(w->arg, NULL) : 1; }

static int command_run(struct call *c, const struct want *w)
{
    switch ((enum ctl_verb)w->verb) {
    case VERB_STATUS: return status(c, w->given[CTL_JSON]);
    case VERB_WATCH: return ctl_watch(c, seconds_of(w), w->given[CTL_JSON]);
    case VERB_TOP: return ctl_top(c, seconds_of(w), w->given[CTL_JSON]);
    case VERB_CHECKPOINT: case VERB_STOP: return promise(c, w);
    case VERB_PAUSE: case VERB_RESUME: return simple(c, ctl_verbs[w->verb].name);
    case VERB_SET: return set(c, w->arg);
    case VERB_RELOAD: return reload(c);
    case VERB_LOG_LEVEL: return log_level(c, w->arg);
    case VERB_WHY: return ctl_why(w->dir, w->given[CTL_JSON]);
    case VERB_REPORT: return ctl_report(w->dir, w->given[CTL_JSON], w->html);
    case VERB_LIST: return ctl_list(w->dir, w->given[CTL_JSON]);
    case VERB_VERIFY: return ctl_verify(w->dir, w->given[CTL_JSON]);
    case VERBS: break;
    }
    return E_INTERNAL;
}

static int option_misplaced(const char *option)
{
    struct text whose = {0};
    for (int i = 0; i < VERBS; i++)
        if (ctl_listed(ctl_verbs[i].options, option)) text_add(&whose, "%s%s", whose.n ? ", " : "", ctl_verbs[i].name);
    ctl_fail(E_USAGE, "--%s is for %s", option, whose.s);
    text_free(&whose);
    return E_USAGE;
}

static int options_check(const struct want *w)
{
    for (int i = 0; i < CTL_OPTIONS; i++)
        if (w->given[i] && !ctl_listed(ctl_verbs[w->verb].options, cli_ctl.option[i].name))
            return option_misplaced(cli_ctl.option[i].name);
    if (w->given[CTL_JSON] && w->html) return ctl_fail(E_USAGE, "--json and --html exclude each other");
    if (w->html && strcmp(w->html, "-") && !text_ends(w->html, ".html"))
        return ctl_fail(E_USAGE, "--html %s: expected FILE.html or -", w->html);
    return 0;
}

static int arg_check(const struct want *w)
{
    const struct ctl_verb_info *v = &ctl_verbs[w->verb];
    char *end = NULL;
    if (!w->arg) return v->arg && *v->arg != '[' ? ctl_fail(E_USAGE, "%s needs %s", v->name, v->arg) : 0;
    if (w->verb != VERB_WATCH && w->verb != VERB_TOP) return 0;
    double seconds = strtod(w->arg, &end);
    if (seconds >= 0.1 && seconds <= 5 && !*end) return 0;
    return ctl_fail(E_USAGE, "%s: %s is not a number of seconds from 0.1 to 5", v->name, w->arg);
}

/* Takes the words that are no options: a directory and a command, in either order, and the command's argument. If both
 * are names of commands, the directory comes first, except for commands that read files. */
static int words_take(struct want *w, int argc, char **argv)
{
    if (argc < 2) return ctl_fail(E_USAGE, "a run directory and a command are needed (see mpstagectl --help)");
    int first = ctl_verb_find(argv[0]), second = ctl_verb_find(argv[1]);
    bool turned = first >= 0 && (second < 0 || (ctl_verbs[first].files && argc == 2));
    w->verb = turned ? first : second;
    w->dir = argv[turned];
    if (w->verb < 0) return ctl_fail(E_USAGE, "unknown command %s (see mpstagectl --help)", argv[1]);
    const struct ctl_verb_info *v = &ctl_verbs[w->verb];
    int most = v->arg ? 3 : 2;
    if (argc > most) return ctl_fail(E_USAGE, "unexpected argument %s", argv[most]);
    w->arg = argc > 2 ? argv[2] : NULL;
    int bad = options_check(w);
    return bad ? bad : arg_check(w);
}

static int run(const struct want *w)
{
    struct call call;
    struct err e = {0};
    if (ctl_verbs[w->verb].files) return ctl_output_end(command_run(NULL, w));
    if (call_open(&call, w->dir, &e)) return ctl_fail(e.code, "%s", e.text);
    int code = ctl_output_end(command_run(&call, w));
    call_close(&call);
    return code;
}

static void out_of_memory(size_t bytes)
{
    _exit(ctl_fail(E_INTERNAL, "out of memory: cannot allocate %zu bytes", bytes));
}

int main(int argc, char **argv)
{
    struct want w = {0};
    struct err e = {0};
    mem_oom_handler(out_of_memory);
    json_set_alloc_funcs(mem_alloc, free);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    int option;
    while ((option = cli_next(&cli_ctl, argc, argv, &e)) >= 0) {
        w.given[option] = true;
        if (option == CTL_HTML) w.html = optarg;
    }
    if (option != CLI_END) return option == CLI_FINISHED ? 0 : ctl_fail(e.code, "%s", e.text);
    int code = words_take(&w, argc - optind, argv + optind);
    return code ? code : run(&w);
}
