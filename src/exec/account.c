/* Names of the parts of the account, as metrics.jsonl has them. */
#include "exec/stage.h"

const char *const account_name[ACC_COUNT] = {
    "forward_seconds", "input_grad_seconds", "weight_grad_seconds", "recompute_seconds", "optimizer_seconds",
    "transfer_seconds", "wait_upstream_seconds", "wait_downstream_seconds", "other_seconds",
};
