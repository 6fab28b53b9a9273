/* Checkpoints on disk: folders step-NNNNNNNN of safetensors files with a manifest. The manifest is valid only if its
 * own hash and the sizes and hashes of all its files match. This folder only handles files; train/ckpt_writer.h decides
 * which rank writes what and when. Any thread.
 *
 *   step-00001200/model-00001-of-00002.safetensors ...       weights, statistics, counters; a file for each writer
 *                 model.safetensors.index.json               which of them has which tensor, in Hugging Face's format
 *                 optimizer-00001-of-00002.safetensors ...   the optimizer's buffers
 *                 manifest.json
 *
 * This folder: safetensors files (st*.c), index and manifest of a checkpoint, weights of other programs (weights.c).
 * When a run writes them is in train (ckpt_writer.h). See docs/design/checkpoint.md. */
#ifndef CKPT_CHECKPOINT_H
#define CKPT_CHECKPOINT_H
#include <jansson.h>
#include <stdbool.h>
#include "base/err.h"
#include "base/out.h"

#define CKPT_VERSION 1                                   /* of the manifest's format; others are refused */
/* hash: XXH3-128, as printed by xxh128sum; rank: that wrote it, -1: unknown */
struct ckpt_file { char name[64]; uint64_t bytes; char hash[33]; int rank; };
/* A run at a step border. Settings that decide bits are named, so that a resumed run can report which one differs. */
struct ckpt_setting { char *key, *value; };              /* value NULL: unset */
/* The best evaluation so far by one score, the step before it, and how many evaluations followed; score "": none */
struct ckpt_best { char score[64]; double value; uint64_t step, waited; };
struct ckpt {
    uint64_t step, position;                             /* steps done; samples taken so far (feed_batch) */
    uint64_t seed;
    char *numerics, *config;                             /* the numerics line; hash of the configuration */
    char *run;                                           /* the run that wrote it, from ckpt_run_make; NULL: unknown */
    /* all that decides the bits of a run: options of the configuration, and others under names of their own */
    int n_settings; struct ckpt_setting *setting;
    bool evaluate, generate;                             /* after this step these are not yet done */
    uint64_t skipped;                                    /* steps in a row up to this one without an update */
    /* updates of all steps; before: those made before the optimizer's state was initialised */
    uint64_t updates, before;
    bool has_rate; double rate;                          /* a learning rate that was set during the run */
    char *score; double value;                           /* of the evaluation after this step; NULL: none */
    struct ckpt_best best;
    char *written;                                       /* time, RFC 3339; for users */
    int n_files; struct ckpt_file *file;                 /* all but the manifest itself */
};
void ckpt_free(struct ckpt *c);                          /* frees the contents that ckpt_read set */

/* Opens the folder of all checkpoints in a run directory: relative to the open directory dir, or by its name (dir -1).
 * shown: receives the folder's name. -1: see errno. */
#define CKPT_FOLDER "checkpoints"
#define CKPT_MANIFEST "manifest.json"                    /* in the folder of each */
int ckpt_folder_open(int dir, const char *run, struct text *shown);
enum { CKPT_NAME = 24 };
char *ckpt_name(uint64_t step, char name[CKPT_NAME]);    /* "step-00001200" */
bool ckpt_step(const char *name, uint64_t *step);        /* is it such a name? */
/* Adds the manifest to a folder that is complete otherwise. 73, 74. */
int ckpt_manifest_write(const struct out_folder *f, const struct ckpt *c, struct err *e);
void ckpt_print(const struct ckpt *c, struct text *out); /* appends its text */
/* Writes the index of n tensors: name, and the file with the tensor; total: bytes of all. *is: the file made. 73,
 * 74. */
struct ckpt_tensor { const char *name, *file; };
int ckpt_index_write(const struct out_folder *f, const struct ckpt_tensor *t, int n, uint64_t total,
                     struct ckpt_file *is, struct err *e);
/* The first setting, in the order of `now`, that differs from `was`, after the setting `after` (NULL: from the
 * beginning). NULL: none. *old: its old value (NULL: none). An option that is missing in `was` is newer than the
 * version that wrote it, which computed as the default does. is_default: NULL, or conf_is_default. */
typedef bool ckpt_default_fn(const char *key, const char *value);
const struct ckpt_setting *ckpt_differs(const struct ckpt *was, const struct ckpt *now, ckpt_default_fn *is_default,
                                        const struct ckpt_setting *after, const char **old);
/* Opens the safetensors files that a manifest names, in its order. folder: the checkpoint's, by its name. The caller
 * closes each (ckpt/st.h) and frees the array. 65, also for one that is missing; 74. In st.c. */
struct st;
int ckpt_tensors_open(const char *folder, const struct ckpt *c, struct st ***out, int *n, struct err *e);
void ckpt_setting_add(struct ckpt *c, const char *key, const char *value);   /* copies both */
json_t *ckpt_settings_json(const struct ckpt *c);        /* as in manifests: an object of texts and nulls */
/* Steps of the folders in `dir` with such names, the newest first; free it. 66, 74. Does not check that they are
 * sound. */
int ckpt_list(int dir, const char *shown, uint64_t **step, int *n, struct err *e);
/* The same, but only checkpoints whose manifest names this run or no run. Other runs' checkpoints must not be counted,
 * compared or removed. */
int ckpt_list_of(int dir, const char *shown, const char *run, uint64_t **step, int *n, struct err *e);
bool ckpt_is_of(const struct ckpt *c, const char *run);
/* A new name for a run, which resuming preserves. Free it. */
char *ckpt_run_make(void);
/* Reads a manifest. 65 names the file and the error; 78 means that another version wrote it. */
int ckpt_read(int dir, const char *shown, uint64_t step, struct ckpt *c, struct err *e);
/* The same for its text, without a check of its own hash: for tests. */
int ckpt_parse(const char *shown, uint64_t step, const char *text, size_t n, struct ckpt *c, struct err *e);
/* Reads one file of a manifest from ckpt_read and checks its size and hash: 65, or 74 if it cannot be read. stop: NULL,
 * or a word that ends it (75) when set. */
int ckpt_file_verify(int dir, const char *shown, const struct ckpt *c, int i, const atomic_int *stop, struct err *e);
/* ckpt_read, then every file. */
int ckpt_verify(int dir, const char *shown, uint64_t step, const atomic_int *stop, struct ckpt *c, struct err *e);

#endif
