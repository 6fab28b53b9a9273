/* The persistent tensors of a graph against those of weight files, by name. Pure; any thread. */
#ifndef CKPT_WEIGHTS_H
#define CKPT_WEIGHTS_H
#include "ckpt/st.h"

/* st_read_float(at.file, at.tensor, ...) for an F32 parameter, otherwise st_read */
struct weights_at { struct st *file; int tensor; };

/* Finds every parameter of the graph (a tied one is listed once) in a set of opened files: at[0..n_params). What
 * wrappers of PyTorch put before all names ("module.", "_orig_mod.", "model.") is passed over, and F32 parameters may
 * be F16, BF16 or F64 in files. Fails with one line that begins with `path` and names each tensor that is missing, of
 * another shape or type, or unknown to the model: 65. The line has the first 8 of them and says how many more there
 * are. */
int weights_match(const char *path, const struct graph *g, struct st *const *file, int n, struct weights_at *at,
                  struct err *e);

#endif
