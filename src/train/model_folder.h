/* The folders that a run leaves for other programs. RUN/model/ of a decoder, for transformers, vLLM and llama.cpp:
 * config.json, generation_config.json, weights, and the tokenizer's files. RUN/adapter/ of a run that trains adapters,
 * for peft; it has RUN/model/ only with lora.merge. Rank 0; the executor's thread. */
#ifndef TRAIN_MODEL_FOLDER_H
#define TRAIN_MODEL_FOLDER_H
#include <stdatomic.h>
#include "ckpt/st_out.h"
#include "conf/conf.h"

#define MODEL_FOLDER "model"
#define ADAPTER_FOLDER "adapter"
#define RUN_WEIGHTS "weights.safetensors"
/* What they will hold besides the weights, as it is when the run begins: a folder that changes, vanishes or is replaced
 * by this run does no harm. *out: the caller's, also after an error. 65, 66, 74, 78. */
struct model_files;
int model_files_read(const struct conf *c, const struct graph *g, struct model_files **out, struct err *e);
void model_files_free(struct model_files *m);            /* m may be NULL */
/* After weights.safetensors has its name: makes the folder as a whole, in place of an earlier one. dir, shown: the run
 * directory. merged: the weights, F32 and I64; NULL: those of weights.safetensors, of which the folder has a second
 * name if they stay in fp32. Otherwise weights are narrowed, and files larger than model.max_shard_size become shards.
 * 65: a weight is too large for fp16; 73, 74, 75. */
int model_folder_write(int dir, const char *shown, const struct model_files *m, const struct conf *c,
                       const struct st_body *merged, const atomic_int *stop, struct err *e);
/* When the run begins: RUN/adapter/ gets the settings of adapters, which those in checkpoints need. An earlier folder
 * with the same settings stays. */
int adapter_folder_begin(int dir, const char *shown, const struct model_files *m, struct err *e);
/* At the end as model_folder_write, for the adapters in weights.safetensors. */
int adapter_folder_write(int dir, const char *shown, const struct model_files *m, const atomic_int *stop,
                         struct err *e);
#endif
