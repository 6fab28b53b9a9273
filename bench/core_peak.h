/* What a core can do at all: GFLOP/s of multiply-adds in registers, with the vectors or tiles that oneDNN may use
 * (ONEDNN_MAX_CPU_ISA lowers them). A third of a second. bf16: 0 without instructions for it. */
#ifndef BENCH_CORE_PEAK_H
#define BENCH_CORE_PEAK_H
#include <stdbool.h>

double core_peak_fp32(void);
double core_peak_bf16(void);

#endif
