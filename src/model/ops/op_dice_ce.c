/* The operator dice_ce: dice.c. */
#include "model/ops/dice.h"

const struct op_kind op_dice_ce = {
    .name = "dice_ce",
    .text = "dice, plus the cross-entropy of each point",
    .n_in = 2,
    .takes = {TAKES(F32), LABEL_TAKES},
    .attr = dice_attrs,
    .range = segment_range,
    .infer = dice_infer,
    .saved_bytes = dice_saved,
    .need_b = 3 | NEED_SAVED,
    .is_loss = true, .logits = true,
    .rows = dice_rows,
    .forward = dice_forward,
    .backward_data = dice_backward,
    .examples = dice_examples,
};
