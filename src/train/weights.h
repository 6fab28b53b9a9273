/* Reads and writes weight files. Thread: the executor's. */
#ifndef TRAIN_WEIGHTS_H
#define TRAIN_WEIGHTS_H
#include <jansson.h>
#include "base/out.h"
#include "ckpt/st.h"
#include "ckpt/weights.h"
#include "exec/exec.h"
/* Which weights were read: the file or folder, and which weights of a run it has; "": not written by a run. */
struct weights_used { struct text path, which; };
void weights_used_free(struct weights_used *u);
/* Reads the initial weights, run.init_from, and adapters, lora.init_from, or sets adapters to their initial values. all
 * false: only base weights, since the caller then reads a checkpoint. used: rank 0's, which also checks the hashes of a
 * checkpoint; NULL: not that. Every rank checks the whole file, so that all find the same fault, and reads its own
 * weights. told: gets a line if a tensor is initialised instead or left out. 65 names the tensor, 66 the file, 78 a
 * pattern or rule that matches nothing; 75 when the abort code is set. exec NULL: only checks.
 * digest: NULL, or [row] gets a digest of the values of each base weight that this rank has read (without exec: of
 * all), whatever type and files they are stored in. adapts_to: gets the base of the adapters that were read, as in
 * struct st; "": unknown. source: NULL, or gets where the rows lie. */
struct weights_source;
struct weights_begin { const struct conf *conf; const struct placement *pl; struct exec *exec; bool all;
                       char (*digest)[33], adapts_to[33]; struct weights_source *source; };
int weights_init(struct weights_begin *q, struct weights_used *used, struct text *notes, struct err *e);
/* Where each row of the registry lies, in files that stay open. Begins with zeros; close it after any result. */
struct weights_source { const struct placement *pl; struct weights_at *at; struct st **file[2]; int n[2]; };
void weights_source_close(struct weights_source *s);
/* An st_data of rows, in the order of files. ctx: the source. 65: it is in no file; 74. */
int weights_source_get(void *ctx, int row, void *buf, const void **at, struct err *e);
/* The digest of all base weights from those of the rows; "" where they are a function of the seed. */
void weights_base_digest(const struct conf *c, const struct placement *pl, char (*digest)[33], char hash[33]);
/* 78 if adapters belong to other base weights than those that have been read, unless lora.other_base is set. */
int weights_base_check(const struct conf *c, const char *adapts_to, const char *base, struct err *e);
/* Contents of a file: weights, statistics and counters (a tied one once), or with adapters these alone; the gradients
 * of trained weights; the buffers of the optimizer and the averages; or base weights, which no run writes. */
enum weights_what { WEIGHTS_ALL, WEIGHTS_GRADIENTS, WEIGHTS_OPTIMIZER, WEIGHTS_BASE };
bool weights_has(const struct state_row *r, enum weights_what what);
/* The rows of the registry in such a file, with their names there; of one writer (placement.h), -1: of all. */
struct weights_rows { int n, *row; struct st_entry *entry; };
struct weights_rows weights_rows(const struct placement *pl, enum weights_what what, int writer);
void weights_rows_free(struct weights_rows *w);
/* Reads the state of a checkpoint: n files that together hold all of the registry, and nothing else. 65, 66. s NULL:
 * only checks. anyway: tensors that the files lack, or have in another shape, are initialised; tensors that the
 * registry lacks are left out. told, which may be NULL, names these in one line without its end. */
struct weights_state { const char *shown; struct st *const *file; int n; bool anyway; };
int weights_resume(const struct weights_state *f, const struct placement *pl, struct exec *s, struct text *notes,
                   struct err *e);
struct weights_file { const struct out_place *at; enum weights_what what; const atomic_int *stop; const char *base; };
/* get returns the contents for row i of the registry. hash: XXH3-128 of the file, as xxh128sum prints it. 73, 74, or 75
 * when *stop is set; the file is complete or does not exist. */
int weights_save(const struct weights_file *f, const struct placement *pl, st_data get, void *ctx, char hash[33],
                 struct err *e);
/* Which rank updates what: pairs of a rank and how many tensors, in the order of a file of all weights. */
json_t *weights_ranks(const struct placement *pl);
/* Gets a row on the rank that owns it, into plain or, where it lies in memory, only its place: *at. For weights with an
 * average (train.ema) it gets the average. */
int weights_get(struct exec *s, enum weights_what what, int row, void *plain, const void **at, struct err *e);
#endif
