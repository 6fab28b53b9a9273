/* Options with fixed words, as enums. The table of options takes its words from these lists, in their order, or from
 * the lists of files in Makefile.am. A field is 0, UNSET, until the option has a value. Includes only these lists. */
#ifndef CONF_WORDS_H
#define CONF_WORDS_H

#define WORDS_WHEN(X) X(WHEN_AUTO, "auto") X(WHEN_YES, "yes") X(WHEN_NO, "no")
#define WORDS_RESUME(X) X(RESUME_NO, "no") X(RESUME_YES, "yes") X(RESUME_FORCE, "force")
#define WORDS_CANDIDATES(X) X(CANDIDATES_SOME, "some") X(CANDIDATES_ALL, "all")
#define WORDS_LABELS(X) \
    X(LABELS_CLASS, "class") X(LABELS_ONEHOT, "onehot") X(LABELS_VECTOR, "vector") X(LABELS_MAP, "map")
#define WORDS_DAMAGED(X) X(DAMAGED_ERROR, "error") X(DAMAGED_SKIP, "skip")
#define WORDS_AXES(X) X(AXES_XYZ, "xyz") X(AXES_ZYX, "zyx")
#define WORDS_INTENSITY(X) \
    X(INTENSITY_NONE, "none") X(INTENSITY_MINMAX, "minmax") X(INTENSITY_ZSCORE, "zscore") \
    X(INTENSITY_NONZERO, "zscore_nonzero") X(INTENSITY_PERCENTILE, "percentile")
#define WORDS_LAST_BATCH(X) X(LAST_BATCH_SHORT, "short") X(LAST_BATCH_DROP, "drop") X(LAST_BATCH_FILL, "fill")
#define WORDS_NONFINITE(X) X(NONFINITE_STOP, "stop") X(NONFINITE_SKIP, "skip") X(NONFINITE_ROLLBACK, "rollback")
#define WORDS_SCHEDULE_BY(X) X(SCHEDULE_BY_STEP, "step") X(SCHEDULE_BY_EPOCH, "epoch")
#define WORDS_RECOMPUTE(X) X(RECOMPUTE_NONE, "none") X(RECOMPUTE_ALL, "all") X(RECOMPUTE_AUTO, "auto")
#define WORDS_REDUCE(X) X(REDUCE_TREE, "tree") X(REDUCE_NCCL, "nccl")
#define WORDS_STORED_TYPE(X) \
    X(STORED_FP32, "fp32") X(STORED_BF16, "bf16") X(STORED_FP16, "fp16") X(STORED_INT8, "int8")
#define WORDS_LOSS(X) \
    X(LOSS_MSE, "mse") X(LOSS_CROSS_ENTROPY, "cross_entropy") X(LOSS_DICE, "dice") X(LOSS_DICE_CE, "dice_ce")
#define WORDS_NORM_STATS(X) X(STATS_MICRO, "micro") X(STATS_DEFERRED, "deferred") X(STATS_FROZEN, "frozen")
#define WORDS_BACKWARD(X) X(BACKWARD_AUTO, "auto") X(BACKWARD_JOINED, "joined") X(BACKWARD_SPLIT, "split")
#define WORDS_PRECISION(X) X(WANT_FP32, "fp32") X(WANT_TF32, "tf32") X(WANT_BF16, "bf16")
#define WORDS_TOKEN_TYPE(X) X(TOKEN_AUTO, "auto") X(TOKEN_U8, "u8") X(TOKEN_U16, "u16") X(TOKEN_U32, "u32")
#define WORDS_PACKING(X) X(PACKING_NONE, "none") X(PACKING_FIRST_FIT, "first_fit")
#define WORDS_TOO_LONG(X) X(TOO_LONG_ERROR, "error") X(TOO_LONG_CUT, "cut") X(TOO_LONG_SKIP, "skip")
#define WORDS_DOCUMENTS(X) X(DOCUMENTS_JOINED, "joined") X(DOCUMENTS_APART, "apart")
#define WORDS_TIE(X) X(TIE_YES, "yes") X(TIE_NO, "no")
#define WORDS_SAVE(X) \
    X(SAVE_AUTO, "auto") X(SAVE_FP32, "fp32") X(SAVE_BF16, "bf16") X(SAVE_FP16, "fp16") X(SAVE_INT8, "int8")
#define WORDS_COUNT_BYTES(X) X(COUNT_TRAINING, "training") X(COUNT_WEIGHTS, "weights")

#define WORD_VALUE(value, word) value,
#define WORD_TEXT(value, word) word " "
#define WORD_CASE(value, word) case value: return word;
enum { UNSET };
#define WORDS_ENUM(tag, list) enum tag { tag##_unset = UNSET, list(WORD_VALUE) }
WORDS_ENUM(when, WORDS_WHEN);
WORDS_ENUM(resume_mode, WORDS_RESUME);
WORDS_ENUM(kernel_candidates, WORDS_CANDIDATES);
WORDS_ENUM(label_kind, WORDS_LABELS);
WORDS_ENUM(damaged_policy, WORDS_DAMAGED);
WORDS_ENUM(axes_order, WORDS_AXES);
WORDS_ENUM(intensity, WORDS_INTENSITY);
WORDS_ENUM(last_batch, WORDS_LAST_BATCH);
WORDS_ENUM(nonfinite_policy, WORDS_NONFINITE);
WORDS_ENUM(schedule_by, WORDS_SCHEDULE_BY);
WORDS_ENUM(recompute_mode, WORDS_RECOMPUTE);
WORDS_ENUM(reduce_by, WORDS_REDUCE);
WORDS_ENUM(stored_type, WORDS_STORED_TYPE);
WORDS_ENUM(tie_word, WORDS_TIE);
WORDS_ENUM(token_type, WORDS_TOKEN_TYPE);
WORDS_ENUM(documents, WORDS_DOCUMENTS);
WORDS_ENUM(packing_word, WORDS_PACKING);
WORDS_ENUM(too_long, WORDS_TOO_LONG);
WORDS_ENUM(save_type, WORDS_SAVE);
WORDS_ENUM(count_bytes, WORDS_COUNT_BYTES);
WORDS_ENUM(loss_word, WORDS_LOSS);
WORDS_ENUM(norm_stats, WORDS_NORM_STATS);                /* of batch norm */
WORDS_ENUM(backward_mode, WORDS_BACKWARD);
WORDS_ENUM(precision_word, WORDS_PRECISION);             /* in the order of enum precision (plan/device.h) */

/* From Makefile.am; a value - 1 is the index in ds_list, optim_list, rate_list, part_list. */
enum data_source {
    SOURCE_unset,
#define DATASET(x) SOURCE_##x,
#include "registry.inc"
};
enum optimizer_word {
    OPTIM_unset,
#define OPTIM(x) OPTIM_##x,
#include "registry.inc"
};
enum rate_word {
    RATE_unset,
#define RATE(x) RATE_##x,
#include "registry.inc"
};
enum partition_word {
    PART_unset,
#define PARTITION(x) PART_##x,
#include "registry.inc"
};
enum device_word {
    DEVICE_unset, DEVICE_auto, DEVICE_cpu,
#define BACKEND_WORD(x) DEVICE_##x,
#include "registry.inc"
};
enum transport_word {
    TRANSPORT_unset, TRANSPORT_auto,
#define TRANSPORT_WORD(x) TRANSPORT_##x,
#include "registry.inc"
};

/* 1: yes, 0: auto, -1: no. */
static inline int when_sign(enum when w) { return (w == WHEN_YES) - (w == WHEN_NO); }
#endif
