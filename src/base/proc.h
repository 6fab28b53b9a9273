/* Processes as Linux tells of them in /proc (proc(5)). Any thread. */
#ifndef BASE_PROC_H
#define BASE_PROC_H
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* A process as /proc/PID/stat has it. */
struct proc {
    pid_t pid, parent, group, foreground;                 /* foreground: the process group in front on its terminal */
    dev_t terminal;                                       /* 0: none */
    char state, name[64];                                 /* state: 'T' stopped, 't' held by a debugger, 'Z' ended */
    uint64_t cpu, start;                                  /* ticks: computed; from the system's start to its own */
    uint64_t virtual_bytes, resident_pages;
};
bool proc_parse(const char *stat, struct proc *p);        /* false: the text is no such file's */
bool proc_read(pid_t pid, struct proc *p);                /* false: there is no such process, or no /proc */
/* Whether it is there and has not ended: one that has stays visible until its parent has asked for its status. */
bool proc_lives(pid_t pid);
/* Waits until whoever reads the standard error through a pipe has read all of it, for DEADLINE_READ at most, and has
 * had DEADLINE_PASSED to pass it on: mpirun of Open MPI 5.0 drops what is still in its hands at MPI_Abort. */
void proc_stderr_wait(void);
/* When this process began, in seconds since 1970; -1: unknown. */
double proc_own_start(void);
/* Of the text of /proc/stat: when the system started, in seconds since 1970; -1: it does not say. */
double proc_boot_parse(const char *text);
#endif
