/* The operator dice_ce: dice.c. */
#include "model/ops/dice.h"

static const char *const examples[] = {"3x5 + 5 I64", "1x4x3 + 4x3 I64 power=2", "2x3x4x2 + 3x4x2 I32 background=no",
                                       "4x6 + 6 I64 sigmoid=yes power=2", "3x7x5 + 7x5 I32 background=no power=2",
                                       "16x9 + 9 U8 smooth=1", NULL};
const struct op_kind op_dice_ce = {
    .name = "dice_ce",
    .text = "dice, plus the cross-entropy of each point",
    .min_in = 2,
    .max_in = 2,
    .takes = {TAKES(F32), TAKES(U8) | TAKES(I32) | TAKES(I64)},
    .attr = dice_attrs,
    .range = segment_range,
    .infer = dice_infer,
    .extra_bytes = dice_extra,
    .need_b = 3 | NEED_EXTRA,
    .grad_in = 1,
    .is_loss = true, .logits = true,
    .rows = dice_rows,
    .forward = dice_forward,
    .backward_data = dice_backward,
    .examples = examples,
};
