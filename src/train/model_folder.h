/* RUN/model/, the folder that a run of a decoder leaves for transformers, vLLM and llama.cpp: config.json,
 * generation_config.json, weights, and the tokenizer's files. Rank 0; the executor's thread. */
#ifndef TRAIN_MODEL_FOLDER_H
#define TRAIN_MODEL_FOLDER_H
#include <stdatomic.h>
#include "conf/conf.h"

#define MODEL_FOLDER "model"
/* What it will hold besides the weights, as it is when the run begins: a folder that changes, vanishes or is replaced
 * by this run does no harm. *out: the caller's, also after an error. 65, 66, 74, 78. */
struct model_files;
int model_files_read(const struct conf *c, struct model_files **out, struct err *e);
void model_files_free(struct model_files *m);            /* m may be NULL */
/* After weights.safetensors has its name: makes the folder as a whole, in place of an earlier one. dir, shown: the run
 * directory. Weights in fp32 are a second name of the file; otherwise they are narrowed, and files larger than
 * model.max_shard_size become shards. 65: a weight is too large for fp16; 73, 74, 75. */
int model_folder_write(int dir, const char *shown, const struct model_files *m, const struct conf *c,
                       const atomic_int *stop, struct err *e);
#endif
