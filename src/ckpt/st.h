/* safetensors: a strict reader, and a writer that makes the same bytes as the reference writer (widest dtype first,
 * then name; header padded to 8).
 *
 * Any thread, one handle a thread. The reader treats the file as hostile: it checks header size, JSON, duplicates,
 * holes, overlaps, and sizes against the file. Errors are 65 "FILE: offset N: ..."; 66 if missing. */
#ifndef CKPT_ST_H
#define CKPT_ST_H
#include "base/err.h"
#include "model/graph.h"

/* offsets in the file, or, if values is set, in memory: of an ONNX file. factors: of an I8 tensor of bitsandbytes, one
 * for each row, a tensor of this or another file (st_codes_join); NULL: none */
struct st;
struct st_tensor {
    const char *name; char dtype[8]; struct shape shape; uint64_t begin, end; const char *values;
    struct st *factors_in; struct st_tensor *factors;
};
/* base: of adapters, the digest of the base weights they were trained with, from __metadata__; NULL: it has none */
#define ST_BASE "mpstaged.base"
/* any_ones: of a weight's dimensions those of 1 do not count, and NAME may also be NAME.2; onnx: whose values are in
 * memory; NULL: another file */
struct onnx_weights;
struct st { const char *path, *base; int fd; uint64_t size; int n; struct st_tensor *t; struct arena *mem;
            bool any_ones; struct onnx_weights *onnx; };
/* one file; 66 if it is missing, 65 for any error in it */
struct st *st_open(const char *path, struct err *e);
int st_find(const struct st *s, const char *name);        /* -1 if not found */
int st_read(struct st *s, int i, void *out, struct err *e); /* end - begin bytes */
/* Bytes [at, at + n) of a tensor. */
int st_read_part(const struct st *s, const struct st_tensor *t, uint64_t at, void *out, size_t n, struct err *e);
bool st_is_float(const struct st_tensor *t);              /* can st_read_float read it? */
/* Reads an F32, F16, BF16 or F64 tensor as F32, or codes with factors. F16 and BF16 convert exactly; F64 is rounded to
 * the nearest, 65 if too large. */
int st_read_float(struct st *s, int i, float *out, struct err *e);
void st_close(struct st *s);
/* Joins bitsandbytes' codes, X.weight of type I8, with their factors, X.SCB, which no longer count as tensors; nor does
 * X.weight_format. Files that are closed together. 65: codes without factors, or in another order. */
int st_codes_join(struct st *const *file, int n, struct err *e);
/* The tensors of an ONNX file, and of its files of external data, each a struct st. */
int st_onnx_open(const char *path, struct st ***out, int *n, struct err *e);
/* Opens every file of one of these, tried in this order: a weight file, or an ONNX file; a Hugging Face folder
 * (model.safetensors, or model.safetensors.index.json with its shards); a run directory (weights.safetensors, or else
 * its newest checkpoint). Index and shards must name the same tensors. The caller closes each file and frees
 * the array. */
int st_open_all(const char *path, struct st ***out, int *n, struct err *e);

/* Writes a whole file in pieces to put(sink, bytes). data supplies tensor i of the given list when it is due: it fills
 * buf, or sets *at, which is buf, to where the values lie until its next call. Fails if put or data fails. base: as in
 * struct st; NULL or "": none. */
typedef int (*st_data)(void *ctx, int i, void *buf, const void **at, struct err *e);
/* turned: of codes with factors a file has the two dimensions in the other order */
struct st_entry { const char *name; enum dtype type; struct shape shape; bool turned; };
struct st_body { int n; const struct st_entry *entry; st_data data; void *ctx; const char *base; };
struct st_sink { int (*put)(void *sink, const void *p, size_t n, struct err *e); void *sink; };
int st_write(const struct st_sink *to, const struct st_body *b, struct err *e);
int *st_order(int n, const struct st_entry *entry);       /* indices in the order of st_write's file; free it */
uint64_t st_size(const struct st_body *b);                /* size of st_write's file in bytes */
#endif
