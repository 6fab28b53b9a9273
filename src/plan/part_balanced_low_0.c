/* balanced_low_0: as balanced, with as little as possible on rank 0. */
#include "plan/part.h"

static int balanced_low_0_split(const struct part_request *q, int *first_group, struct err *e)
{
    return part_by_bytes(q, true, true, first_group, e);
}

const struct part_kind part_balanced_low_0 = {"balanced_low_0", "as balanced, with as little as possible on rank 0",
                                              true, balanced_low_0_split};
