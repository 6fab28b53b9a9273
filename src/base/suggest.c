#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/suggest.h"

enum { LONGEST = 120, MOST = 3 };                        /* most bytes of a name; most errors of a near one */
enum { SLIP = 10000, SYNONYM = 16, RANKS = 4 };          /* factors of a score */

/* Names of other programs, mostly PyTorch, and ours. The caller offers only those of our names that fit. */
static const struct { const char *other, *ours; } synonym[] = {
    {"lr", "learning_rate"}, {"wd", "weight_decay"}, {"l2", "weight_decay"}, {"bs", "batch_size"},
    {"drop_last", "last_batch"}, {"dataloader_drop_last", "last_batch"}, {"drop_remainder", "last_batch"},
    {"batch", "batch_size"}, {"mini_batch_size", "batch_size"}, {"global_batch_size", "batch_size"},
    {"micro_batch_size", "split_size"}, {"micro_batch", "split_size"}, {"microbatches", "split_size"},
    {"num_microbatches", "split_size"}, {"chunks", "split_size"}, {"n_microbatches", "split_size"}, {"gpus", "stages"},
    {"num_gpus", "stages"}, {"ngpus", "stages"}, {"devices", "stages"}, {"num_stages", "stages"},
    {"world_size", "stages"}, {"pp", "stages"}, {"pipeline_parallel_size", "stages"}, {"dp", "replicas"},
    {"zero_stage", "shard_optimizer"}, {"zero", "shard_optimizer"}, {"use_distributed_optimizer", "shard_optimizer"},
    {"iters", "steps"}, {"iterations", "steps"}, {"max_steps", "steps"}, {"num_steps", "steps"},
    {"max_epochs", "epochs"}, {"num_epochs", "epochs"}, {"max_grad_norm", "clip_norm"}, {"grad_clip", "clip_norm"},
    {"gradient_clipping", "clip_norm"}, {"gradient_clip_val", "clip_norm"},
    {"clip_grad_value", "clip_value"}, {"clip", "clip_norm"},
    {"optim", "optimizer"}, {"criterion", "loss"}, {"loss_fn", "loss"}, {"scheduler", "schedule"},
    {"lr_scheduler", "schedule"}, {"lr_schedule", "schedule"}, {"ema_decay", "ema"},
    {"model_ema_decay", "ema"}, {"frozen", "freeze"}, {"lr_mult", "learning_rate_factors"},
    {"smoothing", "label_smoothing"},
    {"warmup", "warmup_steps"},
    {"warmup_iters", "warmup_steps"}, {"lr_warmup_epochs", "warmup_epochs"}, {"lr_warmup_decay", "warmup_factor"},
    {"start_factor", "warmup_factor"}, {"eta_min", "learning_rate_end"}, {"min_lr", "learning_rate_end"},
    {"lr_min", "learning_rate_end"}, {"lr_step_size", "step_size"}, {"lr_gamma", "gamma"},
    {"random_seed", "seed"}, {"manual_seed", "seed"},
    {"num_threads", "threads"}, {"nthreads", "threads"}, {"num_classes", "classes"}, {"dataset", "source"},
    {"arch", "network"}, {"model", "network"}, {"training", "train"}, {"amp", "precision"}, {"dtype", "precision"},
    {"mixed_precision", "precision"}, {"fp16", "precision"}, {"bf16", "precision"}, {"gpu", "device"},
    {"cuda", "device"}, {"accelerator", "device"}, {"backend", "transport"}, {"checkpoint", "init_from"},
    {"ckpt", "init_from"}, {"weights", "init_from"}, {"pretrained", "init_from"}, {"load", "init_from"},
    {"output", "directory"}, {"output_dir", "directory"}, {"out", "directory"}, {"logdir", "directory"},
    {"output", "run_dir"}, {"output_dir", "run_dir"}, {"out", "run_dir"}, {"outdir", "run_dir"}, {"logdir", "run_dir"},
    {"force", "overwrite"}, {"config", "stage_config"}, {"conf", "stage_config"}, {"eval", "evaluate"},
    {"test", "evaluate"}, {"dry_run", "check_config"}, {"validate", "check_config"},
    {"activation_checkpointing", "recompute"}, {"gradient_checkpointing", "recompute"}, {"checkpointing", "recompute"},
    {"remat", "recompute"}, {"partitioning", "partition"}, {"balance", "partition"}, {"max_mem", "max_memory"},
    {"cpu_memory", "host_memory"}, {"cpu", "host_memory"}, {"offload_folder", "disk"}, {"offload_dir", "disk"},
    {"device_map", "partition"},
    {"tb", "tensorboard"}, {"prefetch_factor", "prefetch"}, {"num_workers", "workers"},
    {"alpha", "beta2"}, {"rho", "beta2"}, {"model_ema", "ema"}, {"early_stopping", "patience"},
    {"r", "rank"}, {"lora_r", "rank"}, {"lora_alpha", "alpha"}, {"lora_dropout", "dropout"}, {"use_rslora", "rslora"},
    {"target_modules", "targets"}, {"chat_template", "chat"}, {"template", "chat"}, {"pack", "packing"},
    {"max_length", "input"}, {"max_seq_length", "input"}, {"max_seq_len", "input"}, {"num_train_epochs", "epochs"},
    {"per_device_train_batch_size", "split_size"}, {"gradient_accumulation_steps", "batch_size"},
    {"warmup_ratio", "warmup_steps"}, {"lr_scheduler_type", "schedule"}, {"eval_steps", "evaluate_every"},
    {"save_steps", "every_steps"}, {"save_total_limit", "keep"}, {"load_best_model_at_end", "best"},
    {"resume_from_checkpoint", "resume"}, {"model_name_or_path", "folder"}, {"path", "folder"},
    {"eval_every", "evaluate_every"}, {"val_every", "evaluate_every"}, {"eval_epochs", "evaluate_epochs"},
    {"train_dir", "train"}, {"train_data", "train"}, {"val_dir", "test"},
    {"val_images", "test"}, {"valid_images", "test"}, {"validation_images", "test"},
    {"test_dir", "test"}, {"validation_split", "validation"}, {"val_split", "validation"},
    {"valid_split", "validation"}, {"test_size", "validation"}, {"val_fraction", "validation"},
    {"img_size", "input"}, {"image_size", "input"}, {"augmentations", "augment"},
    {"augmentation", "augment"}, {"transform", "augment"}, {"transforms", "augment"},
    /* words */
    {"yes", "first_fit"}, {"true", "first_fit"}, {"bfd", "first_fit"}, {"ffd", "first_fit"},
    {"gpu", "cuda"}, {"float32", "fp32"}, {"bfloat16", "bf16"}, {"crossentropy", "cross_entropy"},
    {"ce", "cross_entropy"}, {"crossentropyloss", "cross_entropy"}, {"nll", "cross_entropy"}, {"mseloss", "mse"},
    {"l2", "mse"}, {"mnist", "idx"}, {"numpy", "npy"}, {"random", "synthetic"}, {"fake", "synthetic"},
    {"multistep", "step"}, {"multisteplr", "step"}, {"steplr", "step"},
    {"exponential", "step"}, {"exponentiallr", "step"}, {"cosineannealinglr", "cosine"},
    {"imagefolder", "images"}, {"image_folder", "images"}, {"folder", "images"}, {"jpeg", "images"},
    {"webdataset", "images"}, {"imagenet", "images"}, {"cifar10", "cifar"}, {"cifar100", "cifar"},
    {"randomhorizontalflip", "horizontal_flip"}, {"hflip", "horizontal_flip"}, {"flip", "horizontal_flip"},
    {"randomverticalflip", "vertical_flip"}, {"vflip", "vertical_flip"}, {"trivialaugmentwide", "trivial_augment"},
    {"ta_wide", "trivial_augment"}, {"ra", "rand_augment"}, {"autoaugment", "rand_augment"},
    {"cosine_annealing", "cosine"}, {"poly", "polynomial"}, {"polynomiallr", "polynomial"}, {"linearlr", "linear"},
    {"fill_drain", "gpipe"},
    {"one_f_one_b", "1f1b"}, {"pipedream", "1f1b"}, {"gloo", "mpi"}, {"index", "class"}, {"one_hot", "onehot"},
    /* operators and their attributes */
    {"conv1d", "conv"}, {"conv2d", "conv"}, {"conv3d", "conv"}, {"convolution", "conv"}, {"fc", "linear"},
    {"dense", "linear"}, {"gemm", "linear"}, {"bn", "batch_norm"}, {"batchnorm1d", "batch_norm"},
    {"batchnorm2d", "batch_norm"}, {"batchnorm3d", "batch_norm"}, {"maxpool2d", "max_pool"}, {"maxpool3d", "max_pool"},
    {"avgpool2d", "avg_pool"}, {"avgpool3d", "avg_pool"}, {"adaptiveavgpool2d", "global_avg_pool"},
    {"adaptive_avg_pool2d", "global_avg_pool"}, {"gap", "global_avg_pool"}, {"cat", "concat"}, {"sum", "add"},
    {"reshape", "flatten"}, {"view", "flatten"}, {"mean", "global_avg_pool"}, {"mul", "multiply"}, {"swish", "silu"},
    {"multiheadattention", "attention"}, {"mha", "attention"}, {"convtranspose2d", "conv_transpose"},
    {"convtranspose3d", "conv_transpose"}, {"deconv", "conv_transpose"}, {"interpolate", "upsample"},
    {"droppath", "stochastic_depth"}, {"drop_path", "stochastic_depth"}, {"stochasticdepth", "stochastic_depth"},
    {"layernorm2d", "layer_norm"}, {"split", "slice"}, {"chunk", "slice"}, {"ce", "softmax_cross_entropy"},
    {"cross_entropy", "softmax_cross_entropy"}, {"crossentropyloss", "softmax_cross_entropy"},
    {"kernel_size", "kernel"}, {"out_channels", "channels"}, {"filters", "channels"}, {"out_features", "features"},
    {"units", "features"}, {"pad", "padding"}, {"epsilon", "eps"}, {"rate", "p"}, {"prob", "p"},
};

#define SYNONYMS (sizeof synonym / sizeof *synonym)

static int fold(char c) { return c == '-' ? '_' : tolower((unsigned char)c); }

static bool same(const char *a, size_t n, const char *b, size_t m)
{
    if (n != m) return false;
    for (size_t i = 0; i < n; i++) if (fold(a[i]) != fold(b[i])) return false;
    return true;
}

/* The first row from i on whose other name is the guess; SYNONYMS: none, as for nearly every guess. */
static size_t synonym_next(const struct suggest *s, size_t i)
{
    while (i < SYNONYMS && !same(s->guess, s->n, synonym[i].other, strlen(synonym[i].other))) i++;
    return i;
}

static bool synonymous(const struct suggest *s, const char *name, size_t n)
{
    for (size_t i = s->synonyms; i < SYNONYMS; i = synonym_next(s, i + 1))
        if (same(name, n, synonym[i].ours, strlen(synonym[i].ours))) return true;
    return false;
}

/* Damerau-Levenshtein distance without a second change of any byte (optimal string alignment). Above `most`, the result
 * is only some number above `most`. n, m <= LONGEST. */
static unsigned distance(const char *a, size_t n, const char *b, size_t m, size_t most)
{
    unsigned row[3][LONGEST + 1], before = 0;            /* before: the minimum of the row above */
    int y[LONGEST];
    for (size_t j = 0; j < m; j++) y[j] = fold(b[j]);
    for (size_t j = 0; j <= m; j++) row[0][j] = (unsigned)j;
    for (size_t i = 1; i <= n; i++) {
        unsigned *to = row[i % 3], *up = row[(i - 1) % 3], *above = row[(i + 1) % 3];   /* rows i, i - 1 and i - 2 */
        unsigned least = to[0] = (unsigned)i;
        const int x = fold(a[i - 1]), x_up = i > 1 ? fold(a[i - 2]) : 0;
        for (size_t j = 1; j <= m; j++) {
            unsigned best = up[j - 1] + (x != y[j - 1]);
            if (up[j] + 1 < best) best = up[j] + 1;
            if (to[j - 1] + 1 < best) best = to[j - 1] + 1;
            if (i > 1 && j > 1 && x == y[j - 2] && x_up == y[j - 1] && above[j - 2] + 1 < best)
                best = above[j - 2] + 1;
            to[j] = best;
            if (best < least) least = best;
        }
        if (least > most && before > most) return least; /* every path to the end crosses one of two rows */
        before = least;
    }
    return row[n % 3][m];
}

/* Distance between the byte values of two names of equal length. */
static unsigned apart(const char *a, const char *b, size_t n)
{
    unsigned sum = 0;
    for (size_t i = 0; i < n; i++) sum += (unsigned)abs(fold(a[i]) - fold(b[i]));
    return sum < SLIP / RANKS - 1 ? sum : SLIP / RANKS - 1;
}

struct suggest suggest_begin(const char *guess, size_t n)
{
    struct suggest s = {.guess = guess, .n = n, .score = ULONG_MAX};
    s.synonyms = synonym_next(&s, 0);
    return s;
}

/* ULONG_MAX: not near */
static unsigned long score_of(const struct suggest *s, const char *name, size_t n)
{
    size_t most = s->n / 3 < MOST ? s->n / 3 : MOST, longer = s->n > n ? s->n - n : n - s->n;
    if (same(s->guess, s->n, name, n)) return 0;
    if (synonymous(s, name, n)) return SYNONYM;
    if (s->n > LONGEST || n > LONGEST || longer > most) return ULONG_MAX;
    unsigned slips = distance(s->guess, s->n, name, n, most);
    unsigned bytes = longer ? SLIP / RANKS - 1 : apart(s->guess, name, n);
    return slips > most ? ULONG_MAX : (unsigned long)slips * SLIP + RANKS * bytes;
}

bool suggest_try(struct suggest *s, const char *name, size_t n, unsigned rank)
{
    unsigned long score = score_of(s, name, n);
    if (score == ULONG_MAX || score + rank >= s->score) return false;
    s->name = name;
    s->name_n = n;
    s->score = score + rank;
    return true;
}

const char *suggest_text(const struct suggest *s, const char *before, char buf[SUGGEST_TEXT])
{
    *buf = 0;
    if (s->name) snprintf(buf, SUGGEST_TEXT, " (did you mean %s%.*s?)", before,
                          (int)(s->name_n < LONGEST ? s->name_n : LONGEST), s->name);
    return buf;
}
