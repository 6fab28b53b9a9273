/* Checkpoints on disk: folders step-NNNNNNNN of safetensors files with a manifest, which counts only if it is whole and
 * each file has the size and the hash that it names, as it has its own. Files only: who writes what and when is the
 * daemon's (run/save.h). Any thread.
 *
 *   step-00001200/model-00001-of-00002.safetensors ...       weights, statistics, counters; a file for each writer
 *                 model.safetensors.index.json               which tensor is in which of them, as Hugging Face has it
 *                 optimizer-00001-of-00002.safetensors ...   the optimizer's buffers
 *                 manifest.json
 *
 * This folder: safetensors files (st*.c), index and manifest of a checkpoint, weights of other programs (weights.c).
 * When a run writes them is in train (ckpt_writer.h). See docs/design/checkpoint.md. */
#ifndef CKPT_CHECKPOINT_H
#define CKPT_CHECKPOINT_H
#include <stdbool.h>
#include "base/err.h"
#include "base/out.h"

#define CKPT_VERSION 1                                   /* of the manifest's form; others are refused */
struct ckpt_file { char name[64]; uint64_t bytes; char hash[33]; };   /* hash: XXH3-128, as xxh128sum prints it */
/* A run at a step border. What may not change without other bits has a name of its own, so that a resumed run can say
 * which of them differs. */
struct ckpt_setting { char *key, *value; };              /* value NULL: it had none */
/* The best evaluation so far by one score, how many have come since, and the step that it came after; score "": none */
struct ckpt_best { char score[64]; double value; uint64_t step, waited; };
struct ckpt {
    uint64_t step, position;                             /* steps done; samples taken so far (feed_batch) */
    uint64_t seed;
    char *numerics, *config;                             /* the numerics line; hash of the configuration */
    char *run;                                           /* the run that wrote it, see ckpt_run_make; NULL: unknown */
    /* of what decides the bits of a run: the configuration's options, and others by names of their own */
    int n_settings; struct ckpt_setting *setting;
    bool evaluate;                                       /* the evaluation that is due after this step is not done */
    uint64_t skipped;                                    /* steps in a row up to this one that updated nothing */
    /* of all its steps; before: of those, the ones that were made before the optimizer's state began */
    uint64_t updates, before;
    bool has_rate; double rate;                          /* a learning rate that was set while the run went on */
    char *score; double value;                           /* of the evaluation after this step; NULL: none */
    struct ckpt_best best;
    char *written;                                       /* when, RFC 3339; for people */
    int n_files; struct ckpt_file *file;                 /* all but the manifest itself */
};
void ckpt_free(struct ckpt *c);                          /* what read gave */

/* Opens the folder of all checkpoints in a run directory: in dir, where that is open, or by its name (dir -1). shown:
 * gets the folder's name. -1: errno says why. */
#define CKPT_FOLDER "checkpoints"
int ckpt_folder_open(int dir, const char *run, struct text *shown);
enum { CKPT_NAME = 24 };
char *ckpt_name(uint64_t step, char name[CKPT_NAME]);    /* "step-00001200" */
bool ckpt_step(const char *name, uint64_t *step);        /* is it such a name? */
/* Adds the manifest to a folder that has everything else. 73, 74. */
int ckpt_manifest_write(const struct out_folder *f, const struct ckpt *c, struct err *e);
void ckpt_print(const struct ckpt *c, struct text *out); /* adds its text */
/* The index of n tensors: name, in which file; total: their bytes. *is: the file that it made. 73, 74. */
struct ckpt_tensor { const char *name, *file; };
int ckpt_index_write(const struct out_folder *f, const struct ckpt_tensor *t, int n, uint64_t total,
                     struct ckpt_file *is, struct err *e);
/* The first setting, in the order of `now`, that differs from or is missing in `was`, behind the one that it gave
 * before (NULL: of all); NULL: none. Its old value goes to *old (NULL: none). */
const struct ckpt_setting *ckpt_differs(const struct ckpt *was, const struct ckpt *now,
                                        const struct ckpt_setting *after, const char **old);
void ckpt_setting_add(struct ckpt *c, const char *key, const char *value);   /* copies both */
/* Steps of the folders of `dir` that have such names, the newest first; free it. 66, 74. Whether they are sound is
 * another question. */
int ckpt_list(int dir, const char *shown, uint64_t **step, int *n, struct err *e);
/* The same of those that a run wrote, by their manifests, and of those that do not say which run wrote them. Nobody
 * else's may be counted, compared or removed. */
int ckpt_list_of(int dir, const char *shown, const char *run, uint64_t **step, int *n, struct err *e);
bool ckpt_is_of(const struct ckpt *c, const char *run);
/* A new name for a run. It keeps the name when it is resumed. Free it. */
char *ckpt_run_make(void);
/* Reads a manifest; 65 names the file and what is wrong with it, 78 says that another version wrote it. */
int ckpt_read(int dir, const char *shown, uint64_t step, struct ckpt *c, struct err *e);
/* The same of its text, whose own hash may be wrong or missing: for tests. */
int ckpt_parse(const char *shown, uint64_t step, const char *text, size_t n, struct ckpt *c, struct err *e);
/* Reads one file of a manifest that ckpt_read gave, for its size and hash: 65, or 74 where it cannot be read. stop:
 * NULL, or a word that ends it (75) when set. */
int ckpt_file_verify(int dir, const char *shown, const struct ckpt *c, int i, const atomic_int *stop, struct err *e);
/* ckpt_read, then every file. */
int ckpt_verify(int dir, const char *shown, uint64_t step, const atomic_int *stop, struct ckpt *c, struct err *e);

#endif
