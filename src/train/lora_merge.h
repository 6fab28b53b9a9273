/* Weights with their adapters added: W + scale B A, in fp32. Rank 0; the executor's thread. */
#ifndef TRAIN_LORA_MERGE_H
#define TRAIN_LORA_MERGE_H
#include "ckpt/st_out.h"
#include "plan/placement.h"
#include "train/weights.h"

/* get: a row of the registry, in the order of files. rows: filled in by lora_merge_body. */
struct lora_merge {
    const struct graph *g; const struct placement *pl; st_data get; void *ctx; struct weights_rows rows;
};
/* The base weights, under their names. m is borrowed; free it with weights_rows_free(&m->rows). */
struct st_body lora_merge_body(struct lora_merge *m);
/* to[n][m] += scale sum over k of l[n][k] r[k][m]. */
struct low_rank { int64_t n, m, rank; const float *l, *r; float scale; };
void low_rank_add(const struct low_rank *p, float *to);
#endif
