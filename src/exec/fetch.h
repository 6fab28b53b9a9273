/* State that lies outside (HOME_FILE), by the threads of disk.h. fetch.c: weights that come into their slots while the
 * rank computes; offload.c: the optimizer's buffers. Used by the files of exec only, by the executor's thread where
 * nothing else is said. */
#ifndef EXEC_FETCH_H
#define EXEC_FETCH_H
#include "exec/exec_int.h"

/* After offload_open. The rank's own file in pipeline.disk begins with the first row that is
 * written. Does nothing on a rank without such weights. 71. */
int fetch_open(struct exec *s, struct err *e);
void fetch_close(struct exec *s);
act_fn exec_fetch, exec_evict;                            /* LW, EW */
/* Before a program: waits until the weights that it reads are in their slot. 65: the file ends early; 74. */
int fetch_wait(struct exec *s, struct bound *b, const struct act *a, struct err *e);
/* Before an update: until all weights and gradients have come and gone. What it changes will be read again. */
int fetch_rest(struct exec *s, struct err *e);
/* For a frozen parameter's row. read, in any thread: its values as they are stored, to memory outside its slot, which
 * a step may be using. The others between steps. begin: the caller may overwrite its place; write: these values, in
 * memory of the host, become the row's, in the rank's own store (73, 74). from: exec_state_from. */
int fetch_row_read(struct exec *s, const struct state_row *r, void *to, struct err *e);
int fetch_row_begin(struct exec *s, const struct state_row *r, struct err *e);
int fetch_row_write(struct exec *s, const struct state_row *r, const void *stored, struct err *e);
int fetch_row_from(struct exec *s, const struct state_row *r, const struct exec_source *from, struct err *e);

/* After exec_weights_list. Makes the file, with zeros, and reserves its space: 73, 74. Does nothing on a rank without
 * such state. */
int offload_open(struct exec *s, struct err *e);
void offload_close(struct exec *s);
/* Updates all weights, part by part, while other parts of the state come and go. */
int offload_update(struct exec *s, struct err *e);
/* Makes the calls of all its updates, which are recorded and discarded, so that those of a step find what they need. */
int offload_record(struct exec *s, struct err *e);
/* A buffer's row, or a trained weight's: all of its bytes as they are stored, on any thread while no step updates it.
 * Before a weight is set, fetch_row_begin. */
int offload_get(const struct exec *s, const struct state_row *r, void *stored, struct err *e);
int offload_set(const struct exec *s, const struct state_row *r, const void *stored, struct err *e);
/* Where a trained weight and its gradient lie in the rank's own file. */
uint64_t offload_weight_at(const struct exec *s, int param);
uint64_t offload_grad_at(const struct exec *s, int param);
int offload_grad(const struct exec *s, const struct state_row *r, void *stored, struct err *e);   /* as offload_get */

#endif
