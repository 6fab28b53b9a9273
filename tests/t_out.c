/* Output files: other programs' files stay unchanged; a run's own file is complete or does not exist. */
#include <fcntl.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <dirent.h>
#include "base/out.h"
#include "files.h"
#include "sure.h"

static struct err e;

static void enter(void)
{
    e = (struct err){0};
    scratch_enter();
}

static void holds(const char *name, const char *want)
{
    char s[64] = "";
    int fd = open(name, O_RDONLY);
    ck_assert_msg(fd >= 0 && read(fd, s, sizeof s - 1) >= 0, "%s", name);
    close(fd);
    ck_assert_str_eq(s, want);
}

static int entries(const char *dir)
{
    int n = 0;
    DIR *d = opendir(dir);
    for (struct dirent *f; (f = readdir(d));) n += strcmp(f->d_name, ".") && strcmp(f->d_name, "..");
    closedir(d);
    return n;
}

static int write_new(const char *path, bool fresh)
{
    struct text t = {0};
    text_add(&t, "new");
    e = (struct err){0};
    int bad = out_file_named(path, &t, fresh, &e);
    text_free(&t);
    return bad;
}

static void refused(const char *path, int code, const char *part)
{
    ck_assert_int_eq(write_new(path, false), -1);
    ck_assert_int_eq(e.code, code);
    ck_assert_msg(strstr(e.text, part) != NULL, "%s", e.text);
    ck_assert_msg(strncmp(e.text, path, strlen(path)) == 0, "%s", e.text);
}

START_TEST(only_regular_files_are_replaced)
{
    ck_assert_int_eq(write_new("f", false), 0);
    holds("f", "new");
    put_text("f", "old");
    ck_assert_int_eq(link("f", "other"), 0);
    ck_assert_int_eq(write_new("f", false), 0);
    holds("f", "new");
    holds("other", "old");                                 /* another name of what was replaced */
    ck_assert_int_eq(symlink("f", "link") | mkfifo("fifo", 0666) | mkdir("dir", 0777), 0);
    struct sockaddr_un name = {.sun_family = AF_UNIX, .sun_path = "sock"};
    int s = socket(AF_UNIX, SOCK_STREAM, 0);
    ck_assert_int_eq(bind(s, (struct sockaddr *)&name, sizeof name), 0);
    close(s);
    refused("link", 73, "a symbolic link");
    refused("fifo", 73, "a FIFO");
    refused("dir", 73, "a directory");
    refused("dir/", 73, "a directory");
    refused("sock", 73, "a socket");
    bool device = mknod("device", S_IFCHR | 0666, makedev(1, 3)) == 0;   /* root only; never tried on the real one */
    if (device) refused("device", 73, "a device");
    refused("none/f", 73, "No such file or directory");
    char longest[300];
    memset(longest, 'x', 299);
    longest[299] = 0;
    refused(longest, 73, "File name too long");
    ck_assert_int_eq(entries("."), 6 + device);
}
END_TEST

/* What would only be found when all is computed. */
START_TEST(what_cannot_be_replaced_is_refused)
{
    ck_assert_int_eq(access("/proc/self", F_OK), 0);
    refused("/proc/t_out", 73, "cannot create");
    if (geteuid() != 0) return;
    ck_assert_int_eq(mkdir("shared", 0777) | chmod("shared", 01777), 0);
    put_text("shared/f", "old");
    put_text("shared/mine", "old");
    ck_assert_int_eq(chown("shared/mine", 1234, 1234) | chmod(".", 0755) | seteuid(1234), 0);
    struct out_place at;
    e = (struct err){0};
    int theirs = out_place("shared/f", &at, &e);
    struct err why = e;
    out_place_free(&at);
    int mine = out_place("shared/mine", &at, &e);
    out_place_free(&at);
    ck_assert_int_eq(seteuid(0), 0);
    ck_assert(theirs && !mine);
    ck_assert_msg(why.code == 73 && strstr(why.text, "sticky"), "%s", why.text);
}
END_TEST

START_TEST(a_fresh_file_replaces_nothing)
{
    put_text("f", "old");
    ck_assert_int_eq(write_new("f", true), -1);
    ck_assert_int_eq(e.code, 73);
    holds("f", "old");
    ck_assert_int_eq(write_new("g", true), 0);
    holds("g", "new");
    ck_assert_int_eq(entries("."), 2);
}
END_TEST

START_TEST(a_folder_that_is_renamed_stays_the_one)
{
    struct out_place at;
    struct text t = {0};
    text_add(&t, "new");
    ck_assert_int_eq(mkdir("a", 0777) | out_place("a/f", &at, &e), 0);
    ck_assert_int_eq(rename("a", "b") | mkdir("a", 0777), 0);
    ck_assert_int_eq(out_file(&at, &t, false, &e), 0);
    holds("b/f", "new");
    ck_assert_int_eq(entries("a"), 0);
    out_place_free(&at);
    text_free(&t);
}
END_TEST

/* While it is written somebody makes a folder, or a link, of its name. */
START_TEST(what_is_complete_is_not_lost)
{
    struct out_place at;
    struct out o;
    ck_assert_int_eq(out_place("f", &at, &e) | out_begin(&o, &at, NULL, &e) | out_write(&o, "new", 3, &e), 0);
    ck_assert_int_eq(mkdir("f", 0777), 0);
    ck_assert_int_eq(out_commit(&o, false, &e), -1);
    ck_assert_int_eq(e.code, 73);
    char *name = strstr(e.text, ".mpstaged-");
    ck_assert_msg(name != NULL, "%s", e.text);
    holds(name, "new");
    out_place_free(&at);
}
END_TEST

START_TEST(a_word_ends_writing)
{
    struct out_place at;
    struct out o;
    atomic_int stop = 0;
    put_text("f", "old");
    ck_assert_int_eq(out_place("f", &at, &e) | out_begin(&o, &at, &stop, &e) | out_write(&o, "new", 3, &e), 0);
    atomic_store(&stop, 1);
    ck_assert_int_eq(out_write(&o, "new", 3, &e), -1);
    ck_assert_int_eq(e.code, 75);
    out_drop(&o);
    out_place_free(&at);
    holds("f", "old");
    ck_assert_int_eq(entries("."), 1);
}
END_TEST

/* Killed at any moment: the old file, or all of the new one. What is left beside it (only where the file system has no
 * files without a name) goes with out_sweep. */
START_TEST(a_killed_writer_leaves_the_old_file)
{
    put_text("f", "old");
    for (int i = 0; i < 20; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            struct out_place at;
            struct out o;
            char some[4096] = "x";
            if (out_place("f", &at, &e) || out_begin(&o, &at, NULL, &e)) _exit(1);
            for (;;) if (out_write(&o, some, sizeof some, &e)) _exit(1);
        }
        usleep(2000);
        kill(pid, SIGKILL);
        int status;
        waitpid(pid, &status, 0);
        ck_assert(WIFSIGNALED(status));
    }
    holds("f", "old");
    /* theirs begin as ours do */
    const char *const theirs[] = {".mpstaged-notes", ".mpstaged-0123456789abcdef", ".mpstaged-0123456789abcdef0.tmp"};
    for (int i = 0; i < 3; i++) put_text(theirs[i], "mine");
    put_text(".mpstaged-0123456789abcdef.tmp", "left");
    int fd = open(".", O_RDONLY | O_DIRECTORY);
    out_sweep(fd);
    close(fd);
    for (int i = 0; i < 3; i++) holds(theirs[i], "mine");
    ck_assert_int_eq(entries("."), 4);
}
END_TEST

static bool same(struct out_place *a, const char *b)
{
    struct out_place p;
    ck_assert_int_eq(out_place(b, &p, &e), 0);
    bool is = out_is_same(a, &p);
    out_place_free(&p);
    return is;
}

START_TEST(one_file_by_several_names)
{
    struct out_place a;
    ck_assert_int_eq(mkdir("d", 0777) | symlink("d", "l"), 0);
    ck_assert_int_eq(out_place("d/f", &a, &e), 0);
    ck_assert(same(&a, "l/f") && same(&a, "./d//f") && same(&a, "d/../d/f"));
    ck_assert(!same(&a, "d/g") && !same(&a, "f"));
    out_place_free(&a);
}
END_TEST

static off_t size_of(const char *name)
{
    struct stat st;
    ck_assert_int_eq(stat(name, &st), 0);
    return st.st_size;
}

/* A limit on the size of files is like a full disk, and can be tried anywhere. */
START_TEST(records_are_whole_and_the_last_finds_room)
{
    struct out_records r;
    char line[1000];
    memset(line, 'x', sizeof line);
    line[999] = '\n';
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &(struct rlimit){80500, 80500}), 0);
    ck_assert_int_eq(out_records_open(&r, AT_FDCWD, ".", "m", &e), 0);
    int n = 0;
    while (!out_records_add(&r, line, sizeof line, false, &e)) n++;
    ck_assert_int_eq(e.code, 74);
    ck_assert_int_eq(size_of("m"), n * 1000);
    ck_assert(n > 30 && n < 60);
    e = (struct err){0};
    ck_assert_int_eq(out_records_add(&r, line, sizeof line, true, &e), 0);
    while (!out_records_add(&r, line, sizeof line, true, &e)) n++;
    ck_assert_int_eq(size_of("m"), 80000);                /* half a record is taken back */
    out_records_close(&r);
    struct stat st;
    ck_assert(!stat("m", &st) && st.st_blocks * 512 < 100000);
}
END_TEST

START_TEST(records_take_no_file_that_is_there)
{
    struct out_records r;
    static const char *const names[] = {"f", "link", "dangling", "fifo"};
    put_text("f", "old");
    ck_assert_int_eq(symlink("f", "link") | symlink("none", "dangling") | mkfifo("fifo", 0666), 0);
    for (int i = 0; i < 4; i++) {
        e = (struct err){0};
        ck_assert_int_eq(out_records_open(&r, AT_FDCWD, ".", names[i], &e), -1);
        ck_assert_int_eq(e.code, 73);
        out_records_close(&r);
    }
    holds("f", "old");
    ck_assert_int_eq(entries("."), 4);
}
END_TEST

START_TEST(records_go_on_in_a_file_that_was_renamed)
{
    struct out_records r;
    ck_assert_int_eq(out_records_open(&r, AT_FDCWD, ".", "m", &e), 0);
    ck_assert(!out_records_add(&r, "one\n", 4, false, &e) && !rename("m", "old"));
    ck_assert(!out_records_reopen(&r, AT_FDCWD, "m", &e) && !out_records_add(&r, "two\n", 4, false, &e));
    ck_assert(!out_records_reopen(&r, AT_FDCWD, "m", &e) && !out_records_add(&r, "three\n", 6, false, &e));
    ck_assert(!rename("m", "older") && !mkdir("m", 0700));
    ck_assert_int_eq(out_records_reopen(&r, AT_FDCWD, "m", &e), -1);
    expect(&e, E_CANTCREAT, "./m: ");
    ck_assert_int_eq(out_records_add(&r, "four\n", 5, false, &e), 0);
    out_records_close(&r);
    holds("old", "one\n");
    holds("older", "two\nthree\nfour\n");
}
END_TEST

/* A stream that is full is left alone, also where others would wait. */
static void full_stream(int writer)
{
    static char page[4096];
    struct out_stream s = {.fd = writer};
    ssize_t k, all = 0;
    while ((k = out_stream_write(&s, page, sizeof page)) > 0) all += k;
    ck_assert_int_eq(k, 0);
    ck_assert_int_ge(all, 2048);
    ck_assert_int_eq(fcntl(writer, F_GETFL) & O_NONBLOCK, 0);
    out_stream_close(&s);
}

START_TEST(streams_are_not_waited_for)
{
    int p[2], q[2], reader, writer;
    struct out_stream s = {.fd = open("f", O_WRONLY | O_CREAT, 0600)};
    ck_assert(pipe(p) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, q) == 0);
    ck_assert_int_eq(openpty(&reader, &writer, NULL, NULL, NULL), 0);
    full_stream(p[1]);
    full_stream(q[1]);
    full_stream(writer);
    ck_assert(out_stream_write(&s, "one ", 4) == 4 && write(s.fd, "two ", 4) == 4);
    ck_assert_int_eq(out_stream_write(&s, "three", 5), 5);
    holds("f", "one two three");
    close(p[0]);
    signal(SIGPIPE, SIG_IGN);
    dup2(p[1], s.fd);                                     /* another one under the same number, without a reader */
    ck_assert_int_eq(out_stream_write(&s, "x", 1), -1);
    out_stream_close(&s);
}
END_TEST

START_TEST(a_lock_is_ours_alone)
{
    long owner;
    put_text("victim", "old");
    ck_assert_int_eq(out_lock(AT_FDCWD, "run", "lock", false, &owner, &e), OUT_LOCK_NONE);
    ck_assert_int_eq(symlink("victim", "lock"), 0);
    ck_assert_int_eq(out_lock(AT_FDCWD, "run", "lock", true, &owner, &e), -1);
    ck_assert(e.code == 73 && strstr(e.text, "symbolic link"));
    ck_assert_int_eq(unlink("lock") | link("victim", "lock"), 0);
    e = (struct err){0};
    ck_assert_int_eq(out_lock(AT_FDCWD, "run", "lock", true, &owner, &e), -1);
    ck_assert(e.code == 73 && strstr(e.text, "hard link"));
    ck_assert_int_eq(unlink("lock") | mkfifo("lock", 0666), 0);
    e = (struct err){0};
    ck_assert_int_eq(out_lock(AT_FDCWD, "run", "lock", true, &owner, &e), -1);
    ck_assert(e.code == 73 && strstr(e.text, "FIFO"));
    holds("victim", "old");
    ck_assert_int_eq(unlink("lock"), 0);
    e = (struct err){0};
    int fd = out_lock(AT_FDCWD, "run", "lock", true, &owner, &e);
    ck_assert_msg(fd >= 0 && !out_lock_sign(fd, "run", "lock", &e), "%s", e.text);
    ck_assert_int_eq(out_lock(AT_FDCWD, "run", "lock", true, &owner, &e), OUT_LOCK_BUSY);
    ck_assert_int_eq(owner, getpid());
    ck_assert_int_eq(unlink("lock"), 0);                   /* who has it removes it: the next makes its own */
    int next = out_lock(AT_FDCWD, "run", "lock", true, &owner, &e);
    ck_assert_int_ge(next, 0);
    close(fd);
    close(next);
}
END_TEST

/* Predictions of one folder, and runs that share one for checkpoints, may begin at the same time. */
START_TEST(trials_do_not_meet)
{
    enum { PROCESSES = 3, TURNS = 60 };
    pid_t child[PROCESSES];
    int status, dir = open(".", O_RDONLY | O_DIRECTORY);
    for (int i = 0; i < PROCESSES; i++)
        if (!(child[i] = fork())) {
            for (int k = 0; k < TURNS; k++)
                if (out_folder_try(dir, ".", &e)) {
                    fprintf(stderr, "%s\n", e.text);
                    _exit(1);
                }
            _exit(0);
        }
    for (int i = 0; i < PROCESSES; i++) ck_assert(waitpid(child[i], &status, 0) == child[i] && !status);
    close(dir);
    ck_assert(!system("test -z \"$(ls -A)\""));
}
END_TEST

/* mpstagectl asks whether a run has the lock, just when one begins. */
START_TEST(who_asks_keeps_nobody_out)
{
    long owner = 0;
    int ready[2], status;
    char c;
    put_text("lock", "1\n");
    ck_assert_int_eq(pipe(ready), 0);
    pid_t child = fork();
    if (!child) {
        int fd = open("lock", O_RDWR);
        if (fd < 0 || flock(fd, LOCK_SH) || write(ready[1], "x", 1) != 1) _exit(1);
        usleep(10000);
        _exit(0);
    }
    ck_assert_int_eq(read(ready[0], &c, 1), 1);
    int fd = out_lock(AT_FDCWD, "run", "lock", true, &owner, &e);
    ck_assert_int_ge(fd, 0);
    ck_assert(waitpid(child, &status, 0) == child && !status);
    close(fd);
    close(ready[0]);
    close(ready[1]);
}
END_TEST

/* ---- folders ---- */

static int here(void) { return open(".", O_RDONLY | O_DIRECTORY); }

static void file_in(const struct out_folder *f, const char *name)
{
    struct out_place at;
    struct text t = {0};
    text_add(&t, "x");
    ck_assert_msg(!out_place_in(f->fd, "points", name, &at, &e) && !out_file(&at, &t, true, &e), "%s", e.text);
    out_place_free(&at);
    text_free(&t);
}

START_TEST(a_folder_is_there_whole_or_not_at_all)
{
    struct out_folder f, other;
    int dir = here();
    ck_assert(mkdir("a.tmp", 0777) == 0);
    PUT("a.tmp/old", "left by a killed process");
    ck_assert_msg(!out_folder_begin(&f, dir, "points", "a", &e), "%s", e.text);
    ck_assert_int_eq(entries("a.tmp"), 0);
    ck_assert_msg(!out_folder_join(&other, dir, "points", "a", &e), "%s", e.text);
    file_in(&f, "one");
    file_in(&other, "two");
    out_folder_close(&other);
    ck_assert_int_ne(access("a", F_OK), 0);
    ck_assert_msg(!out_folder_commit(&f, &e), "%s", e.text);
    ck_assert_int_eq(entries("a"), 2);
    ck_assert_int_ne(access("a.tmp", F_OK), 0);
    ck_assert_int_eq(out_folder_begin(&f, dir, "points", "b", &e), 0);
    file_in(&f, "one");
    out_folder_drop(&f);
    ck_assert_int_eq(entries("."), 1);
    ck_assert_msg(!out_folder_remove(dir, "points", "a", &e) && !out_folder_remove(dir, "points", "a", &e), "%s",
                  e.text);
    ck_assert_int_eq(entries("."), 0);
    close(dir);
}
END_TEST

START_TEST(a_folder_replaces_none_and_keeps_what_is_not_ours)
{
    struct out_folder f;
    int dir = here();
    ck_assert(mkdir("a", 0777) == 0);
    PUT("a/kept", "kept");
    ck_assert_int_eq(out_folder_begin(&f, dir, "points", "a", &e), 0);
    file_in(&f, "one");
    ck_assert_int_eq(out_folder_commit(&f, &e), -1);
    expect(&e, E_CANTCREAT, "the new content is in points/a.tmp");
    ck_assert_int_eq(access("a.tmp/one", F_OK), 0);
    holds("a/kept", "kept");
    ck_assert(symlink("kept", "a/link") == 0);
    e = (struct err){0};
    ck_assert_int_eq(out_folder_remove(dir, "points", "a", &e), -1);
    expect(&e, E_CANTCREAT, "link: is a symbolic link, not a regular file");
    ck_assert(mkdir("target", 0777) == 0 && symlink("target", "b.tmp") == 0);
    e = (struct err){0};
    ck_assert_int_eq(out_folder_begin(&f, dir, "points", "b", &e), -1);
    out_folder_drop(&f);
    e = (struct err){0};
    ck_assert_int_eq(out_folder_join(&f, dir, "points", "c", &e), -1);
    expect(&e, E_CANTCREAT, "points/c: cannot open the temporary folder");
    out_folder_close(&f);
    close(dir);
}
END_TEST

START_TEST(what_killed_processes_left_of_folders_goes)
{
    int dir = here();
    ck_assert(!mkdir("step-1.tmp", 0777) && !mkdir("step-2", 0777) && !mkdir("other.tmp", 0777));
    PUT("step-1.tmp/x", "x");
    out_folder_sweep(dir, "step-");
    ck_assert(access("step-1.tmp", F_OK) && !access("step-2", F_OK) && !access("other.tmp", F_OK));
    close(dir);
}
END_TEST

START_TEST(room_is_kept_ahead)
{
    struct out_place at;
    struct out o;
    struct stat st;
    ck_assert_int_eq(out_place("a", &at, &e), 0);
    ck_assert_int_eq(out_begin(&o, &at, NULL, &e), 0);
    ck_assert_msg(!out_reserve(&o, 1 << 20, &e), "%s", e.text);
    ck_assert(!fstat(o.fd, &st) && st.st_blocks * 512 >= 1 << 20);
    ck_assert_int_eq(out_reserve(&o, UINT64_C(1) << 60, &e), -1);
    ck_assert_int_eq(e.code, E_IO);
    out_drop(&o);
    out_place_free(&at);
}
END_TEST

int main(void)
{
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, enter, scratch_leave);
    tcase_add_test(t, only_regular_files_are_replaced);
    tcase_add_test(t, what_cannot_be_replaced_is_refused);
    tcase_add_test(t, a_fresh_file_replaces_nothing);
    tcase_add_test(t, a_folder_that_is_renamed_stays_the_one);
    tcase_add_test(t, what_is_complete_is_not_lost);
    tcase_add_test(t, a_word_ends_writing);
    tcase_add_test(t, a_killed_writer_leaves_the_old_file);
    tcase_add_test(t, one_file_by_several_names);
    tcase_add_test(t, records_are_whole_and_the_last_finds_room);
    tcase_add_test(t, records_take_no_file_that_is_there);
    tcase_add_test(t, records_go_on_in_a_file_that_was_renamed);
    tcase_add_test(t, streams_are_not_waited_for);
    tcase_add_test(t, a_lock_is_ours_alone);
    tcase_add_test(t, who_asks_keeps_nobody_out);
    tcase_add_test(t, trials_do_not_meet);
    tcase_add_test(t, a_folder_is_there_whole_or_not_at_all);
    tcase_add_test(t, a_folder_replaces_none_and_keeps_what_is_not_ours);
    tcase_add_test(t, what_killed_processes_left_of_folders_goes);
    tcase_add_test(t, room_is_kept_ahead);
    return suite_run("out", CK_FORK, t);
}
