/* Log lines: readers that stop reading, files that are rotated or cannot be written. */
#include <fcntl.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>
#include "base/text.h"
#include "cluster/log.h"
#include "files.h"
#include "sure.h"

enum { ROOM = 1 << 20 };
static char seen[ROOM];

/* All that can be read now. */
static size_t drain(int fd)
{
    size_t n = 0;
    fcntl(fd, F_SETFL, O_NONBLOCK);
    for (ssize_t k; n < ROOM - 1 && (k = read(fd, seen + n, ROOM - 1 - n)) > 0;) n += (size_t)k;
    seen[n] = 0;
    return n;
}

/* Lines of many lengths: buffers have room for part of the last one. */
static void say(int number)
{
    char x[700];
    int n = number * 37 % (int)sizeof x;
    log_line("line %d %.*s end", number, n, (char *)memset(x, 'x', sizeof x));
}

/* Lines of what was seen that are said so, whole and with ascending numbers; others count in *strange. */
static int whole_lines(int *strange)
{
    int n = 0, last = -1, number, end;
    *strange = 0;
    for (char *save, *s = strtok_r(seen, "\n", &save); s; s = strtok_r(NULL, "\n", &save)) {
        end = 0;
        bool fits = sscanf(s, "line %d %*[x] end%n", &number, &end) == 1 && !s[end];
        if (fits && number > last) last = number, n++;
        else ++*strange;
    }
    return n;
}

/* Standard error becomes fd; whoever reads the other end does not. Lines are lost, no call waits for ever, and later
 * it is said how many; none is there in part. */
static void stalled(int writer, int reader)
{
    enum { LINES = 4000 };
    int screen = dup(STDERR_FILENO), strange;
    dup2(writer, STDERR_FILENO);
    log_columns(1000);
    for (int i = 1; i < LINES; i++) say(i);
    int shown = 0;
    do {                                                  /* what is left of a line comes with the next one */
        drain(reader);
        shown += whole_lines(&strange);
        ck_assert_int_le(strange, 1);
        say(LINES);
        drain(reader);
    } while (!strstr(seen, "not shown: "));
    dup2(screen, STDERR_FILENO);
    unsigned missed = 0;
    const char *said = strstr(seen, "note: ");
    ck_assert_int_eq(sscanf(said, "note: %u lines were not shown: the output was not read", &missed), 1);
    ck_assert_uint_gt(missed, 100);
    close(screen), close(writer), close(reader);
}

START_TEST(a_terminal_that_nobody_reads_holds_up_nobody)
{
    int reader, writer;
    struct termios raw;
    ck_assert_int_eq(openpty(&reader, &writer, NULL, NULL, NULL), 0);
    tcgetattr(writer, &raw);
    cfmakeraw(&raw);
    tcsetattr(writer, TCSANOW, &raw);
    stalled(writer, reader);
}
END_TEST

START_TEST(a_pipe_that_nobody_reads_holds_up_nobody)
{
    int p[2];
    ck_assert_int_eq(pipe(p), 0);
    stalled(p[1], p[0]);
}
END_TEST

START_TEST(a_socket_that_nobody_reads_holds_up_nobody)
{
    int p[2];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, p), 0);
    stalled(p[1], p[0]);
}
END_TEST

START_TEST(a_reader_that_is_gone_ends_nothing)
{
    int p[2], screen = dup(STDERR_FILENO);
    signal(SIGPIPE, SIG_IGN);
    ck_assert_int_eq(pipe(p), 0);
    dup2(p[1], STDERR_FILENO);
    close(p[0]), close(p[1]);
    for (int i = 0; i < 100; i++) log_line("line %d", i);
    dup2(screen, STDERR_FILENO);
    close(screen);
}
END_TEST

/* ---- mpstaged.log ------------------------------------------------------------------------------------------------ */

static int count_in(const char *file, const char *word)
{
    struct text t = {0};
    struct err e = {0};
    int n = 0;
    ck_assert_msg(!text_read_file(&t, file, ROOM, &e), "%s", e.text);
    for (const char *s = t.s; s && (s = strstr(s, word)); s++) n++;
    text_free(&t);
    return n;
}

static void quietly(void)
{
    int none = open("/dev/null", O_RDWR);
    struct err e = {0};
    scratch_enter();
    dup2(none, STDERR_FILENO);
    close(none);
    int dir = open(".", O_RDONLY | O_DIRECTORY);
    ck_assert_msg(!log_file(dir, ".", &e), "%s", e.text);
    close(dir);
}

START_TEST(a_log_is_rotated)
{
    log_line("first");
    ck_assert_int_eq(rename("mpstaged.log", "old"), 0);
    log_line("second");
    log_reopen();
    log_line("third");
    ck_assert_int_eq(count_in("old", " second\n"), 1);
    ck_assert_int_eq(count_in("mpstaged.log", " third\n"), 1);
    ck_assert_int_eq(count_in("mpstaged.log", " second\n"), 0);
    log_reopen();                                        /* nobody renamed it: it goes on there */
    log_line("fourth");
    ck_assert_int_eq(count_in("mpstaged.log", "\n"), 2);
    ck_assert_int_eq(rename("mpstaged.log", "older"), 0);
    log_reopen();
    ck_assert_int_ne(access("mpstaged.log", F_OK), 0);
    log_tick();
    ck_assert_int_eq(access("mpstaged.log", F_OK), 0);    /* also where there is nothing to say */
}
END_TEST

START_TEST(a_log_that_cannot_be_rotated_stays)
{
    log_line("first");
    ck_assert(rename("mpstaged.log", "old") == 0 && symlink("elsewhere", "mpstaged.log") == 0);
    log_reopen();
    log_line("second");
    ck_assert_int_eq(count_in("old", " second\n"), 1);
    ck_assert_int_ne(access("elsewhere", F_OK), 0);
    ck_assert(unlink("mpstaged.log") == 0 && mkfifo("mpstaged.log", 0600) == 0);
    log_reopen();
    log_line("third");
    ck_assert_int_eq(count_in("old", " third\n"), 1);
}
END_TEST

/* logrotate's copytruncate */
START_TEST(a_log_that_is_emptied_goes_on_at_its_beginning)
{
    struct stat st;
    for (int i = 0; i < 100; i++) log_line("before");
    ck_assert_int_eq(truncate("mpstaged.log", 0), 0);
    log_line("after");
    ck_assert(stat("mpstaged.log", &st) == 0 && st.st_size < 100);
    ck_assert_int_eq(count_in("mpstaged.log", " after\n"), 1);
}
END_TEST

START_TEST(lines_without_room_are_counted)
{
    enum { MORE = 50 };
    struct rlimit all, few;
    char want[100];
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &all), 0);
    few = (struct rlimit){64 << 10, all.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &few), 0);
    int there = -1, now = 0;
    while (now > there) {                                 /* the last of them is lost */
        there = now;
        log_line("line");
        now = count_in("mpstaged.log", " line\n");
    }
    for (int i = 0; i < MORE; i++) log_line("line");
    ck_assert_int_eq(count_in("mpstaged.log", " line\n"), there);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &all), 0);
    log_line("line");
    snprintf(want, sizeof want, "Z warning: %d lines are lost: ./mpstaged.log: File too large\n", MORE + 1);
    ck_assert_int_eq(count_in("mpstaged.log", want), 1);
    ck_assert_int_eq(count_in("mpstaged.log", " line\n"), there + 1);
}
END_TEST

int main(void)
{
    TCase *screen = tcase_create("screen"), *file = tcase_create("file");
    tcase_set_timeout(screen, 20);
    tcase_add_test(screen, a_terminal_that_nobody_reads_holds_up_nobody);
    tcase_add_test(screen, a_pipe_that_nobody_reads_holds_up_nobody);
    tcase_add_test(screen, a_socket_that_nobody_reads_holds_up_nobody);
    tcase_add_test(screen, a_reader_that_is_gone_ends_nothing);
    tcase_add_checked_fixture(file, quietly, scratch_leave);
    tcase_set_timeout(file, 20);
    tcase_add_test(file, a_log_is_rotated);
    tcase_add_test(file, a_log_that_cannot_be_rotated_stays);
    tcase_add_test(file, a_log_that_is_emptied_goes_on_at_its_beginning);
    tcase_add_test(file, lines_without_room_are_counted);
    return suite_run("log", CK_FORK, screen, file);
}
