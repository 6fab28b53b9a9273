/* fake_job: replaces mpirun and mpstaged in tests/supervise.sh.
 *
 *   fake_job LOG WORD ... [/ WORD ...] ... [OPTION ...]
 *
 * Adds a line to LOG with its process number and the options after the words, and does what the words describe. The
 * words after each "/" are for the next start; the last part is for all further starts.
 *
 *   ready, stopping, watchdog   sends READY=1, STOPPING=1, WATCHDOG=1 to NOTIFY_SOCKET
 *   saved=N, resumed=N          reports a checkpoint in the same way
 *   run=DIR                     reports the run directory in the same way
 *   extend=MICROSECONDS         requests time to start
 *   failed=CODE                 announces that it ends with CODE
 *   sleep=SECONDS, exit=CODE, kill=SIGNAL (itself), stop (itself, until SIGCONT)
 *   on=SIGNAL:CODE              from now on the signal ends it with CODE; :0: it ignores the signal silently
 *   ignore=SIGNAL
 *   child=SECONDS               starts a process in its own session that ignores SIGTERM and SIGHUP, and a child of it
 *   note=TEXT, name             adds a line to LOG: this text, NOTIFY_SOCKET
 *   listen=PATH                 makes a socket of this name, and adds each received line to LOG */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static const char *log_name;
static volatile sig_atomic_t codes[65];

static void log_add(const char *text)
{
    int fd = open(log_name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, text, strlen(text)) < 0) _exit(99);
    close(fd);
}

static int log_starts(void)
{
    int n = 0;
    char line[1000];
    FILE *f = fopen(log_name, "r");
    while (f && fgets(line, sizeof line, f)) n += !strncmp(line, "start", 5);
    if (f) fclose(f);
    return n;
}

static void say(const char *text)
{
    const char *name = getenv("NOTIFY_SOCKET");
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    if (!name || strlen(name) >= sizeof to.sun_path) return;
    memcpy(to.sun_path, name, strlen(name));
    if (name[0] == '@') to.sun_path[0] = 0;
    sendto(fd, text, strlen(text), 0, (struct sockaddr *)&to,
           (socklen_t)(sizeof to - sizeof to.sun_path + strlen(name)));
    close(fd);
}

static void nap(double seconds)
{
    struct timespec t = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    while (nanosleep(&t, &t)) continue;
}

static int signal_of(const char *name)
{
    for (int s = 1; s < 32; s++) if (sigabbrev_np(s) && !strcmp(sigabbrev_np(s), name)) return s;
    _exit(98);
}

static void on_signal(int s)
{
    char line[] = "signal 00\n";
    line[7] = (char)('0' + s / 10);
    line[8] = (char)('0' + s % 10);
    log_add(line);
    if (codes[s]) _exit(codes[s]);
}

static void child_make(double seconds)
{
    if (fork()) return;
    setsid();
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    signal(SIGUSR1, SIG_IGN);
    if (fork() == 0) setsid();
    nap(seconds);
    _exit(0);
}

static void listen_at(const char *path)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    char text[4000], line[4010];
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    snprintf(at.sun_path, sizeof at.sun_path, "%s", path);
    if (bind(fd, (struct sockaddr *)&at, sizeof at)) _exit(96);
    for (ssize_t n; (n = recv(fd, text, sizeof text - 1, 0)) >= 0;) {
        text[n] = 0;
        snprintf(line, sizeof line, "%s\n", text);
        log_add(line);
    }
}

static void word_do(char *word)
{
    char *value = strchr(word, '='), line[100];
    if (value) *value++ = 0;
    const char *v = value ? value : "";
    if (!strcmp(word, "ready")) say("STATUS=fake\nREADY=1");
    else if (!strcmp(word, "watchdog")) say("WATCHDOG=1");
    else if (!strcmp(word, "stopping")) say("STOPPING=1\nSTATUS=ends");
    else if (!strcmp(word, "saved")) snprintf(line, sizeof line, "X_MPSTAGED_CHECKPOINT=%s", v), say(line);
    else if (!strcmp(word, "run")) snprintf(line, sizeof line, "X_MPSTAGED_RUN=%s", v), say(line);
    else if (!strcmp(word, "failed")) snprintf(line, sizeof line, "X_MPSTAGED_FAILED=%s", v), say(line);
    else if (!strcmp(word, "extend")) snprintf(line, sizeof line, "EXTEND_TIMEOUT_USEC=%s", v), say(line);
    else if (!strcmp(word, "resumed")) snprintf(line, sizeof line, "X_MPSTAGED_RESUMED=%s", v), say(line);
    else if (!strcmp(word, "sleep")) nap(atof(v));
    else if (!strcmp(word, "exit")) _exit(atoi(v));
    else if (!strcmp(word, "kill")) kill(getpid(), signal_of(v));
    else if (!strcmp(word, "stop")) raise(SIGSTOP);
    else if (!strcmp(word, "ignore")) signal(signal_of(v), SIG_IGN);
    else if (!strcmp(word, "child")) child_make(atof(v));
    else if (!strcmp(word, "note")) snprintf(line, sizeof line, "%s\n", v), log_add(line);
    else if (!strcmp(word, "name")) snprintf(line, sizeof line, "%s\n", getenv("NOTIFY_SOCKET")), log_add(line);
    else if (!strcmp(word, "listen")) listen_at(v);
    else if (!strcmp(word, "on") && strchr(v, ':')) {
        int s;
        *strchr(value, ':') = 0;
        s = signal_of(v);
        codes[s] = atoi(value + strlen(value) + 1);
        sigaction(s, &(struct sigaction){.sa_handler = on_signal}, NULL);
    } else _exit(97);
}

int main(int argc, char **argv)
{
    char line[1000];
    int n = argc, part = 0;
    if (argc < 2) return 64;
    log_name = argv[1];
    while (n > 2 && argv[n - 1][0] == '-') n--;
    int at = snprintf(line, sizeof line, "start %d", (int)getpid());
    for (int i = n; i < argc; i++) at += snprintf(line + at, sizeof line - (size_t)at, " %s", argv[i]);
    snprintf(line + at, sizeof line - (size_t)at, "\n");
    int start = log_starts(), parts = 0;
    log_add(line);
    for (int i = 2; i < n; i++) parts += !strcmp(argv[i], "/");
    if (start > parts) start = parts;
    for (int i = 2; i < n; i++)
        if (!strcmp(argv[i], "/")) part++;
        else if (part == start) word_do(argv[i]);
    return 0;
}
