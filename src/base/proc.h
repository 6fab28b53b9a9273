/* Processes, as Linux describes them in /proc (proc(5)). Any thread. */
#ifndef BASE_PROC_H
#define BASE_PROC_H
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* The contents of /proc/PID/stat. */
struct proc {
    pid_t pid, parent, group, foreground;                 /* foreground: the foreground process group of its terminal */
    dev_t terminal;                                       /* 0: none */
    char state, name[64];                                 /* state: 'T' stopped, 't' traced by a debugger, 'Z' zombie */
    uint64_t cpu, start;                                  /* in ticks. cpu: time used; start: since boot */
    uint64_t virtual_bytes, resident_pages;
};
bool proc_parse(const char *stat, struct proc *p);        /* false: not the text of such a file */
bool proc_read(pid_t pid, struct proc *p);                /* false: no such process, or no /proc */
/* Whether the process exists and has not exited: a zombie stays visible until its parent waits for it. */
bool proc_lives(pid_t pid);
/* Waits until the reader of standard error, if that is a pipe, has read all of it, for at most DEADLINE_READ. Then
 * gives the reader DEADLINE_PASSED to pass it on: at MPI_Abort mpirun of Open MPI 5.0 drops output that it still
 * holds. */
void proc_stderr_wait(void);
/* When this process started, in seconds since 1970; -1: unknown. */
double proc_own_start(void);
/* When the system booted, in seconds since 1970, from the text of /proc/stat; -1: not found. */
double proc_boot_parse(const char *text);
#endif
