/* The state of a run against the tensors of weight files, by name. Pure; any thread. */
#ifndef CKPT_WEIGHTS_H
#define CKPT_WEIGHTS_H
#include "base/glob.h"
#include "ckpt/st.h"

/* st_read_float(at.file, at.tensor, ...) for an F32 tensor, otherwise st_read; file NULL: it is not read */
struct weights_at { struct st *file; int tensor; };

/* What need not be as the model has it (run.init_rename, run.init_missing, run.init_extra). */
struct weights_patterns { const char *const *v; int n; };
struct weights_allow {
    const struct glob_rule *rename; int n_rename;        /* of a file's names: the first that matches counts */
    struct weights_patterns missing, extra;              /* as glob_names: of the model's names, of the others */
    bool any;                                            /* all names may be missing or extra, but not all at once */
};

/* What is looked for: n tensors, each name once. allow NULL: exactly these. */
struct weights_want { const struct st_entry *tensor; int n; const struct weights_allow *allow; };

/* What came of it where something is allowed. told: one line without its end on what begins anew and what is left out,
 * nothing if everything was as in the model. idle: a rule of rename that matched no name; -1: each did something. */
struct weights_told { struct text told; int idle; };

/* Finds every tensor that is wanted in a set of opened files: at[0..want.n). What wrappers of PyTorch put before all
 * names ("module.", "_orig_mod.", "model.") is passed over, and F32 tensors may be F16, BF16 or F64 in files. Fails
 * with one line that begins with `path` and names each tensor that is missing, of another shape or type, or unknown to
 * the model, unless that is allowed: 65. The line has the first 8 of them, says how many more there are, and, where
 * anything may be allowed, what would allow it. With allow, a tensor that is wanted and missing or of another shape may
 * begin anew, and so may counters, as in torch; told, which may be NULL, says so. Its text is the caller's. */
int weights_match(const char *path, const struct weights_want *want, struct st *const *file, int n,
                  struct weights_at *at, struct weights_told *told, struct err *e);

#endif
