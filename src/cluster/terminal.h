/* The terminal that this process's standard error reaches. Under a launcher such as mpirun a rank's standard error is a
 * pipe, which the launcher copies to its own; then the launcher's counts. Linux: /proc. One thread at a time. */
#ifndef CLUSTER_TERMINAL_H
#define CLUSTER_TERMINAL_H
#include <stdbool.h>
#include <sys/types.h>
#include "base/err.h"

enum { SCREEN_COLUMNS = 80 };                             /* if the width of the screen is unknown */

struct terminal {
    bool always, terminal;                                /* always: service.progress = "yes" */
    int fd;                                               /* the terminal, for its width; -1: could not be opened */
    pid_t launcher;                                       /* the process whose standard error counts; 0: this one */
    dev_t device;                                         /* 0: do not check that the job is in the foreground */
};

/* wanted: > 0: always, 0: on a terminal, < 0: never. launched: a launcher may pass our standard error on. */
void terminal_open(struct terminal *s, int wanted, bool launched);
/* Columns of the terminal now. 0: nobody watches: there is no terminal, or the job is in the background, where
 * rewritten lines would spoil what a user types. */
int terminal_columns(const struct terminal *s);
void terminal_close(struct terminal *s);
/* Whether standard error ends in systemd's journal, which takes "<3>" at the beginning of a line as its priority.
 * Compares it with the file that JOURNAL_STREAM names. So output that the user redirects elsewhere, or to the
 * launcher's file, does not count. */
bool terminal_is_journal(bool launched);
#endif
