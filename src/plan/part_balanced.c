/* balanced: spreads bytes evenly, like the device map of that name of Hugging Face. */
#include "plan/part.h"

static int balanced_split(const struct part_request *q, int *first_group, struct err *e)
{
    return part_by_bytes(q, true, false, first_group, e);
}

const struct part_kind part_balanced = {
    "balanced", "spreads bytes evenly, as Hugging Face's device map of that name does", true, balanced_split};
