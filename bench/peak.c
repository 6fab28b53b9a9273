/* peak: prints what a core can do at all, as a line of JSON in GFLOP/s (core_peak.h). */
#include <stdio.h>
#include "core_peak.h"

int main(void)
{
    printf("{\"fp32\": %.1f, \"bf16\": %.1f}\n", core_peak_fp32(), core_peak_bf16());
    return 0;
}
