/* One commit by two processes, which talk as ranks do: commit_rig save RUN STEP prints "begin STEP" and "committed
 * STEP"; commit_rig newest RUN prints the newest valid checkpoint's step, or 0. Exit status: of the error; 137 if a
 * rank was killed, which ends the other too. */
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "rig.h"

enum { TALK = 9 };                                       /* the descriptor to the other rank */
struct answer { int code; char text[200]; struct ckpt_file file[RIG_FILES]; };

static int begun(void *ctx, const struct out_folder *f, struct err *e)
{
    return send(TALK, "b", 1, MSG_NOSIGNAL) == 1 ? 0 : err_set(e, E_DEVICE, "rank 1 is gone");
}

static int answer(void *ctx, const struct out_folder *f, uint64_t step, struct ckpt_file out[RIG_FILES], struct err *e)
{
    struct answer a;
    if (recv(TALK, &a, sizeof a, MSG_WAITALL) != sizeof a) return err_set(e, E_DEVICE, "rank 1 is gone");
    if (a.code) return err_set(e, a.code, "rank 1: %s", a.text);
    memcpy(out, a.file, sizeof a.file);
    return 0;
}

static void say(const char *text)
{
    union { void *p; void (*f)(const char *); } mark = {dlsym(RTLD_DEFAULT, "faults_mark")};
    if (mark.p) mark.f(text);
    puts(text);
    fflush(stdout);
}

static int lead(int run, uint64_t step, struct err *e)
{
    struct rig_save s = {.dir = rig_checkpoints(run, e), .step = step, .begun = begun, .others = answer, .said = say};
    return s.dir < 0 ? -1 : rig_save(&s, e);
}

static int follow(int run, uint64_t step, struct err *e)
{
    struct out_folder f;
    struct answer a = {0};
    char b, name[CKPT_NAME];
    if (recv(TALK, &b, 1, 0) != 1) return err_set(e, E_DEVICE, "rank 0 is gone");
    int dir = openat(run, "checkpoints", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int bad = out_folder_join(&f, dir, "checkpoints", ckpt_name(step, name), e) ||
              rig_files_write(&f, 1, step, a.file, e);
    out_folder_close(&f);
    a.code = bad ? e->code : 0;
    snprintf(a.text, sizeof a.text, "%s", e->text);
    if (send(TALK, &a, sizeof a, MSG_NOSIGNAL) != sizeof a) return err_set(e, E_DEVICE, "rank 0 is gone");
    return bad ? -1 : 0;
}

static pid_t rank_start(int rank, int fd, char **argv)
{
    pid_t pid = fork();
    if (pid) return pid;
    setenv("OMPI_COMM_WORLD_RANK", rank ? "1" : "0", 1);
    dup2(fd, TALK);
    execl("/proc/self/exe", argv[0], rank ? "follow" : "lead", argv[2], argv[3], (char *)NULL);
    _exit(127);
}

static int both(char **argv)
{
    int pair[2], code = 0, status;
    pid_t rank[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair)) return E_OS;
    for (int i = 0; i < 2; i++) rank[i] = rank_start(i, pair[i], argv);
    for (int i = 0; i < 2; i++) close(pair[i]);
    for (int i = 0; i < 2; i++) {
        pid_t pid = wait(&status);
        int is = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
        if (WIFSIGNALED(status) && !i) kill(rank[pid == rank[0]], SIGKILL);
        if (is > code && (pid == rank[0] || WIFSIGNALED(status))) code = is;
    }
    return code;
}

static int newest(int run, struct err *e)
{
    uint64_t step = 0;
    int dir = openat(run, "checkpoints", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir >= 0 && rig_newest(dir, &step, e)) return -1;
    printf("%llu\n", (unsigned long long)step);
    return 0;
}

int main(int argc, char **argv)
{
    struct err e = {0};
    int run = argc > 2 ? open(argv[2], O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1, bad;
    if (run < 0) return E_USAGE;
    if (!strcmp(argv[1], "newest")) bad = newest(run, &e);
    else if (argc < 4) return E_USAGE;
    else if (!strcmp(argv[1], "save")) return both(argv);
    else bad = (!strcmp(argv[1], "lead") ? lead : follow)(run, strtoull(argv[3], NULL, 10), &e);
    if (bad && strcmp(argv[1], "follow")) fprintf(stderr, "%s\n", e.text);   /* one speaks for both */
    return bad ? e.code : 0;
}
