/* The operator dice: dice.c. */
#include "model/ops/dice.h"

const struct op_kind op_dice = {
    .name = "dice",
    .text = "1 - soft Dice of each sample: how far predicted and true classes of points overlap",
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
