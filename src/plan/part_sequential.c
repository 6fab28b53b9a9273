/* sequential: fills one rank after the other up to its limit, like the device map of that name of Hugging Face. */
#include "plan/part.h"

static int sequential_split(const struct part_request *q, int *first_group, struct err *e)
{
    return part_by_bytes(q, false, false, first_group, e);
}

const struct part_kind part_sequential = {
    "sequential", "fills one rank after the other up to its limit, as Hugging Face's device map of that name does",
    true, sequential_split};
