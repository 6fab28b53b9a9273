/* RUN/model/, the folder that a run of a decoder leaves for transformers, vLLM and llama.cpp: config.json,
 * generation_config.json, weights, and the tokenizer's files. Rank 0; the executor's thread. */
#ifndef TRAIN_MODEL_FOLDER_H
#define TRAIN_MODEL_FOLDER_H
#include <stdatomic.h>
#include "conf/conf.h"

#define MODEL_FOLDER "model"
/* After weights.safetensors has its name: makes the folder as a whole, in place of an earlier one. dir, shown: the run
 * directory. Weights in fp32 are a second name of the file; otherwise they are narrowed, and files larger than
 * model.max_shard_size become shards. 65: a weight is too large for fp16; 73, 74, 75. */
int model_folder_write(int dir, const char *shown, const struct conf *c, const atomic_int *stop, struct err *e);
#endif
