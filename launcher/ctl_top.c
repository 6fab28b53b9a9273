/* mpstagectl top: a table of the stages, updated on a terminal. */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>
#include "base/text.h"
#include "ctl_say.h"

/* ---- the keyboard: without line buffer and echo ------------------------------------------------------------------ */

static struct { struct termios before, raw; volatile sig_atomic_t on; } keys;

static void keys_off(void)
{
    if (keys.on) tcsetattr(STDIN_FILENO, TCSANOW, &keys.before);
}

/* Ctrl-C quits, as q does. Ctrl-Z restores the terminal until the program resumes. */
static void on_signal(int sig)
{
    keys_off();
    if (sig == SIGINT) _exit(0);
    if (sig == SIGTSTP) {
        raise(SIGSTOP);
        if (keys.on) tcsetattr(STDIN_FILENO, TCSANOW, &keys.raw);
        return;
    }
    signal(sig, SIG_DFL);
    raise(sig);
}

static void keys_begin(void)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP};
    if (!isatty(STDIN_FILENO) || tcgetattr(STDIN_FILENO, &keys.before)) return;
    keys.raw = keys.before;
    keys.raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    keys.on = 1;
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        sigaction(signals[i], &(struct sigaction){.sa_handler = on_signal, .sa_flags = SA_RESTART}, NULL);
    tcsetattr(STDIN_FILENO, TCSANOW, &keys.raw);
}

/* Waits, and reads a key if there is a keyboard. True: quit. */
static bool key_wait(struct ctl_show *s)
{
    struct pollfd p = {.fd = keys.on ? STDIN_FILENO : -1, .events = POLLIN};
    char key = 0;
    if (poll(&p, 1, (int)(s->seconds * 1000)) <= 0 || !(p.revents & (POLLIN | POLLHUP))) return false;
    return read(STDIN_FILENO, &key, 1) <= 0 || key == 'q' || key == 'Q';
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

/* Prints a time in at most seven columns. */
static const char *brief(double seconds, char buf[16])
{
    struct text_unit u = seconds < 1e-3 ? (struct text_unit){"us", "us", 1e-6}
                         : seconds < 1  ? (struct text_unit){"ms", "ms", 1e-3}
                                        : (struct text_unit){"s", "s", 1};
    double x = seconds / u.seconds;
    if (seconds <= 0) return "-";
    snprintf(buf, 16, x < 9.995 ? "%.2f %s" : x < 99.95 ? "%.1f %s" : "%.0f %s", x, u.name);
    return buf;
}

/* Prints bytes in at most eight columns. */
static const char *brief_bytes(double bytes, char buf[16])
{
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    int i = 0;
    for (; bytes >= 1023.5 && i < 5; i++) bytes /= 1024;
    snprintf(buf, 16, i == 0 || bytes >= 99.95 ? "%.0f %s" : bytes < 9.995 ? "%.2f %s" : "%.1f %s", bytes, unit[i]);
    return buf;
}

/* The parts of a step in seven columns: the two halves of the backward pass are added, and loading is part of other. */
static const struct { const char *name; int part[2]; } column[] = {
    {"forward", {0, -1}}, {"backwd.", {1, 2}}, {"recomp.", {3, -1}}, {"optim.", {4, -1}},
    {"transf.", {5, -1}}, {"waiting", {6, -1}}, {"other", {7, 8}},
};
enum { COLUMNS = sizeof column / sizeof *column, WIDTH = 5 + COLUMNS * 8 + 8 + 10 };

static void head_print(void)
{
    printf("stage");
    for (int i = 0; i < COLUMNS; i++) printf(" %7s", column[i].name);
    puts("  bubble    memory");
}

static void row_print(const json_t *stage)
{
    char buf[16], name[24];
    printf("%5s", ctl_stage_name(stage, name));
    for (int i = 0; i < COLUMNS; i++) {
        double x = ctl_part_seconds(stage, column[i].part[0]);
        if (column[i].part[1] >= 0) x += ctl_part_seconds(stage, column[i].part[1]);
        printf(" %7s", brief(x, buf));
    }
    printf(" %5.1f %%  %8s\n", 100 * ctl_number_of(stage, "bubble"),
           brief_bytes(ctl_number_of(stage, "peak_bytes"), buf));
}

static int step_print(const json_t *o)
{
    char line[300], *at = line, *end = line + sizeof line, buf[16];
    ctl_add(&at, end, "a step takes %s", brief(ctl_number_of(o, "step_seconds"), buf));
    if (json_object_get(o, "learning_rate")) ctl_add(&at, end, ", rate %.6g", ctl_number_of(o, "learning_rate"));
    if (!json_object_get(o, "checkpoint_step")) ctl_add(&at, end, ", no checkpoint yet");
    return ctl_line_print(line, ctl_columns());
}

/* Lines of the terminal; a large number elsewhere. */
static int rows_of_output(void)
{
    struct winsize w;
    return isatty(STDOUT_FILENO) && !ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) && w.ws_row ? w.ws_row : 1 << 20;
}

/* Leaves out stages that do not fit on the terminal, and prints their number. */
static int stages_print(const json_t *o, int space)
{
    const json_t *account = json_object_get(o, "account"), *stage;
    size_t k, n = json_array_size(account);
    bool table = ctl_columns() > WIDTH;
    int lines = 0;
    if (table && n) head_print(), lines++;
    json_array_foreach(account, k, stage) {
        if (lines + 1 >= space && k + 1 < n) {
            printf("and %zu more stages\n", n - k);
            return lines + 1;
        }
        if (table) row_print(stage), lines++;
        else lines += ctl_stage_print(stage, ctl_number_of(o, "step_seconds"), ctl_columns());
    }
    return lines;
}

static void table_print(struct ctl_show *s, const json_t *last, const json_t *o)
{
    if (!ctl_show_again(s, last, o)) return;
    if (s->json) { ctl_json_print(o, true); return; }
    s->lines = ctl_status_print(o);
    if (json_object_get(o, "step_seconds")) s->lines += step_print(o);
    s->lines += stages_print(o, rows_of_output() - s->lines - 1);
}

int ctl_top(struct call *c, double seconds, bool json)
{
    struct ctl_show s = {.show = table_print, .pause = key_wait, .seconds = seconds, .json = json};
    keys_begin();
    int code = ctl_follow(c, &s);
    keys_off();
    return code;
}
