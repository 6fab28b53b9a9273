/* Options whose words are fixed, as enums. The table of options takes its words from these lists, in their order. A
 * field is 0, UNSET, until the option has a value. Includes nothing. */
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
WORDS_ENUM(count_bytes, WORDS_COUNT_BYTES);
/* 1: yes, 0: auto, -1: no. */
static inline int when_sign(enum when w) { return (w == WHEN_YES) - (w == WHEN_NO); }
#endif
