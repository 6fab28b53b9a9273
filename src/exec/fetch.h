/* Weights that lie in a file (HOME_FILE): reader threads bring them into their slots while the rank computes. Used by
 * the files of exec only, by the executor's thread. */
#ifndef EXEC_FETCH_H
#define EXEC_FETCH_H
#include "exec/exec_int.h"

/* After regions exist. Starts the readers; the rank's own file in pipeline.disk, which has no name, begins with the
 * first row that is written. Does nothing on a rank without such weights. 71. */
int fetch_open(struct exec *s, struct err *e);
void fetch_close(struct exec *s);
act_fn exec_fetch, exec_evict;                            /* LW, EW */
/* Before a program: waits until the weights that it reads are in their slot. 65: the file ends early; 74. */
int fetch_wait(struct exec *s, struct bound *b, const struct act *a, struct err *e);
void fetch_report(struct exec *s, struct report *r);       /* fills fetch_bytes and fetch_ns */
/* For a row with home HOME_FILE. read, in any thread: its values as they are stored, to memory outside its slot, which
 * a step may be using. The others between steps. begin: the caller may overwrite its place; write: these values become
 * the row's, in the rank's own file (73, 74). from: exec_state_from. */
int fetch_row_read(struct exec *s, const struct state_row *r, void *to, struct err *e);
int fetch_row_begin(struct exec *s, const struct state_row *r, struct err *e);
int fetch_row_write(struct exec *s, const struct state_row *r, struct err *e);
int fetch_row_from(struct exec *s, const struct state_row *r, const struct exec_source *from, struct err *e);

#endif
