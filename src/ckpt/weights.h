/* The state of a run against the tensors of weight files, by name. Pure; any thread. */
#ifndef CKPT_WEIGHTS_H
#define CKPT_WEIGHTS_H
#include "ckpt/st.h"

/* st_read_float(at.file, at.tensor, ...) for an F32 tensor, otherwise st_read */
struct weights_at { struct st *file; int tensor; };

/* What is looked for: n tensors, each name once. */
struct weights_want { const struct st_entry *tensor; int n; };

/* Finds every tensor that is wanted in a set of opened files: at[0..want.n). What wrappers of PyTorch put before all
 * names ("module.", "_orig_mod.", "model.") is passed over, and F32 tensors may be F16, BF16 or F64 in files. Fails
 * with one line that begins with `path` and names each tensor that is missing, of another shape or type, or unknown to
 * the model: 65. The line has the first 8 of them and says how many more there are. */
int weights_match(const char *path, const struct weights_want *want, struct st *const *file, int n,
                  struct weights_at *at, struct err *e);

#endif
