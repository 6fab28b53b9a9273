/* Matches the state of a run with the tensors of weight files, by name. Pure; any thread. */
#ifndef CKPT_WEIGHTS_H
#define CKPT_WEIGHTS_H
#include "base/glob.h"
#include "ckpt/st.h"

/* st_read_float(at.file, at.tensor, ...) for an F32 tensor, otherwise st_read; file NULL: not read */
struct weights_at { struct st *file; int tensor; };

/* Permitted differences from the model (run.init_rename, run.init_missing, run.init_extra). */
struct weights_patterns { const char *const *v; int n; };
/* Habits of files of language models: names may lack this prefix; tensors whose names have one of these ends (NULL:
 * the last) are no weights; of a tied model the head may be there, too, with the same values, or instead. */
struct weights_habits { const char *prefix; const char *const *ignored; const char *head, *embedding; };
struct weights_allow {
    const struct glob_rule *rename; int n_rename;        /* for names in files: the first match counts */
    struct weights_patterns missing, extra;              /* as for glob_names: names of the model, other names */
    const struct weights_habits *habits;                 /* NULL: none */
    bool spare;                                          /* other names are of no interest: constants of the model's own
                                                          * ONNX file */
    bool any;                                            /* all names may be missing or extra, but not all at once */
};

/* The wanted tensors: n of them, with distinct names. allow NULL: exactly these. */
struct weights_want { const struct st_entry *tensor; int n; const struct weights_allow *allow; };

/* The result if differences are permitted. told: one line without its end about tensors that are initialised or left
 * out; empty if there are none. idle: a rule of rename that matched no name; -1: none. */
struct weights_notes { struct text notes; int idle; };

/* Finds every wanted tensor in a set of opened files: at[0..want.n). Ignores prefixes of all names from PyTorch's
 * wrappers ("module.", "_orig_mod.", "model."). In files, F32 tensors may be F16, BF16 or F64. Fails (65) with one line
 * that begins with `path`. It names tensors that are missing, of another shape or type, or unknown to the model, unless
 * that is permitted. It names the first 8 and the number of the others. If differences may be permitted, it adds the
 * options that permit them. With allow, a wanted tensor that is missing or of another shape may be initialised, and so
 * may counters, as in torch; told, if not NULL, reports that. The caller owns its text. */
int weights_match(const char *path, const struct weights_want *want, struct st *const *file, int n,
                  struct weights_at *at, struct weights_notes *notes, struct err *e);

#endif
