/* mpstagectl: asks a running mpstaged through RUN/control.sock. See mpstagectl(1). */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <jansson.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "config.h"

enum { EX_OK = 0, EX_BAD_USAGE = 64, EX_NOT_RUNNING = 69, EX_PROTOCOL = 70, EX_REFUSED = 77 };

static const char help[] =
    "usage: mpstagectl RUNDIR COMMAND [option]\n"
    "Asks and steers the mpstaged whose run directory is RUNDIR.\n\n"
    "Commands:\n"
    "  status            say what the run is doing\n"
    "  watch [SECONDS]   status again and again, until the run ends\n"
    "  stop              finish the steps under way, write the weights, end\n"
    "\n"
    "Options:\n"
    "  --json            status as one JSON object\n"
    "  --wait            stop returns when the run has ended\n"
    "  -h, --help        print this text\n"
    "  -V, --version     print the version\n";

static int fail(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static int fail(int code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fputs("mpstagectl: ", stderr);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
    return code;
}

struct call { const char *dir; int fd; FILE *in; };

/* The socket is reached through its directory's descriptor, since a socket's name may have only 107 bytes. Returns an
 * exit code. */
static int call_open(struct call *c, const char *dir)
{
    int at = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (at < 0) return fail(errno == ENOENT ? EX_NOT_RUNNING : EX_REFUSED, "%s: %s", dir, strerror(errno));
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    snprintf(to.sun_path, sizeof to.sun_path, "/proc/self/fd/%d/control.sock", at);
    *c = (struct call){dir, socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), NULL};
    int bad = c->fd < 0 || connect(c->fd, (struct sockaddr *)&to, sizeof to) ? errno : 0;
    close(at);
    if (!bad) {
        c->in = fdopen(c->fd, "r");
        return 0;
    }
    if (c->fd >= 0) close(c->fd);
    if (bad == ENOENT || bad == ECONNREFUSED) return fail(EX_NOT_RUNNING, "%s: nothing is running there", dir);
    return fail(bad == EACCES ? EX_REFUSED : EX_PROTOCOL, "%s/control.sock: %s", dir, strerror(bad));
}

static void call_close(struct call *c) { fclose(c->in); }

/* Sends one request and takes one answer. Returns an exit code; *answer is the caller's. */
static int call_ask(struct call *c, const char *request, json_t **answer)
{
    char *line = NULL;
    size_t cap = 0;
    if (write(c->fd, request, strlen(request)) != (ssize_t)strlen(request))
        return fail(EX_NOT_RUNNING, "%s: the run has ended", c->dir);
    ssize_t n = getline(&line, &cap, c->in);
    *answer = n > 0 ? json_loadb(line, (size_t)n, 0, NULL) : NULL;
    free(line);
    if (n <= 0) return fail(EX_NOT_RUNNING, "%s: the run has ended", c->dir);
    if (!*answer) return fail(EX_PROTOCOL, "%s: an answer that is not JSON", c->dir);
    const char *error = json_string_value(json_object_get(*answer, "error"));
    if (json_is_true(json_object_get(*answer, "ok"))) return 0;
    int code = fail(EX_REFUSED, "%s: %s", c->dir, error ? error : "refused");
    json_decref(*answer);
    *answer = NULL;
    return code;
}

/* ---- status ------------------------------------------------------------------------------------------------------ */

static const char *text_of(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "?";
}

static void status_print(const json_t *o)
{
    const json_t *loss = json_object_get(o, "loss"), *test = json_object_get(o, "test_accuracy");
    printf("%s: %s, step %lld/%lld, epoch %lld", text_of(o, "name"), text_of(o, "state"),
           (long long)json_integer_value(json_object_get(o, "step")),
           (long long)json_integer_value(json_object_get(o, "steps")),
                   (long long)json_integer_value(json_object_get(o, "epoch")));
    if (loss) printf(", loss %.5g", json_number_value(loss));
    if (json_object_get(o, "accuracy"))
        printf(", accuracy %.3f, %.4g samples/s, %.0f s left", json_number_value(json_object_get(o, "accuracy")),
               json_number_value(json_object_get(o, "samples_per_second")),
                       json_number_value(json_object_get(o, "eta_seconds")));
    if (test) printf(", test accuracy %.4f", json_number_value(test));
    printf(" (%lld ranks, pid %lld)\n", (long long)json_integer_value(json_object_get(o, "ranks")),
           (long long)json_integer_value(json_object_get(o, "pid")));
}

static int status_once(struct call *c, bool json)
{
    json_t *o;
    int code = call_ask(c, "{\"command\":\"status\"}\n", &o);
    if (code) return code;
    if (json) {
        json_dumpf(o, stdout, JSON_INDENT(2));
        putchar('\n');
    } else status_print(o);
    json_decref(o);
    return fflush(stdout) ? fail(74, "standard output: %s", strerror(errno)) : 0;
}

/* One line a time; on a terminal the line is rewritten. Ends with the run. */
static int watch(struct call *c, double seconds)
{
    static const char request[] = "{\"command\":\"status\"}\n";
    bool terminal = isatty(STDOUT_FILENO);
    char *line = NULL;
    size_t cap = 0;
    int code = 0;
    for (long shown = 0; !code; shown++) {
        if (write(c->fd, request, sizeof request - 1) < 0 || getline(&line, &cap, c->in) <= 0) break;
        json_t *o = json_loads(line, 0, NULL);
        if (!o) { code = fail(EX_PROTOCOL, "%s: an answer that is not JSON", c->dir); break; }
        if (terminal && shown) fputs("\033[A\033[K", stdout);
        status_print(o);
        json_decref(o);
        if (fflush(stdout)) code = fail(74, "standard output: %s", strerror(errno));
        usleep((useconds_t)(seconds * 1e6));
    }
    if (!code) printf("%s: the run has ended\n", c->dir);
    free(line);
    return code;
}

static int stop(struct call *c, bool wait)
{
    json_t *o;
    int code = call_ask(c, wait ? "{\"command\":\"stop\",\"wait\":true}\n" : "{\"command\":\"stop\"}\n", &o);
    if (code) return code;
    json_decref(o);
    while (wait && fgetc(c->in) != EOF) continue;          /* the run closes the connection when all is written */
    printf("%s: %s\n", c->dir, wait ? "stopped" : "stopping");
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

/* Every option belongs to one command; anything else is an error, not ignored. */
static int check(int argc, char **argv, bool json, bool wait)
{
    if (argc < 2) return fail(EX_BAD_USAGE, "a run directory and a command are needed (see mpstagectl --help)");
    bool status = strcmp(argv[1], "status") == 0, stops = strcmp(argv[1], "stop") == 0,
            watches = strcmp(argv[1], "watch") == 0;
    if (!status && !stops && !watches) return fail(EX_BAD_USAGE, "unknown command %s (see mpstagectl --help)", argv[1]);
    if (argc > (watches ? 3 : 2)) return fail(EX_BAD_USAGE, "unexpected argument %s", argv[watches ? 3 : 2]);
    if (json && !status) return fail(EX_BAD_USAGE, "--json goes with status");
    if (wait && !stops) return fail(EX_BAD_USAGE, "--wait goes with stop");
    char *end = NULL;
    double seconds = watches && argc > 2 ? strtod(argv[2], &end) : 1;
    if (!(seconds >= 0.1 && seconds <= 5) || (end && *end))
        return fail(EX_BAD_USAGE, "watch: %s is no number of seconds from 0.1 to 5", argv[2]);
    return 0;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"json", 0, NULL, 'j'}, {"wait", 0, NULL, 'w'}, {"help", 0, NULL, 'h'},
                                            {"version", 0, NULL, 'V'}, {0}};
    bool json = false, wait = false;
    opterr = 0;
    for (int c; (c = getopt_long(argc, argv, "hV", options, NULL)) != -1;) {
        if (c == 'j') json = true;
        else if (c == 'w') wait = true;
        else if (c == 'h') return fputs(help, stdout) < 0;
        else if (c == 'V') return printf("mpstagectl %s\n", PACKAGE_VERSION) < 0;
        else return fail(EX_BAD_USAGE, "unknown option %s (see mpstagectl --help)", argv[optind - 1]);
    }
    argc -= optind;
    argv += optind;
    int code = check(argc, argv, json, wait);
    struct call call;
    signal(SIGPIPE, SIG_IGN);
    if (!code && !(code = call_open(&call, argv[0]))) {
        code = command_run(&call, argc, argv, json, wait);
        call_close(&call);
    }
    return code;
}
