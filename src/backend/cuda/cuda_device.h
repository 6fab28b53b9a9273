/* The GPUs of this host as values. Who may use it: the cuda backend, and whoever gives GPUs to ranks. Any thread. */
#ifndef BACKEND_CUDA_CUDA_DEVICE_H
#define BACKEND_CUDA_CUDA_DEVICE_H
#include <stdbool.h>
#include <stddef.h>
#include "backend/be.h"

struct cuda_device {
    char name[64], uuid[40];                             /* "NVIDIA H200"; as nvidia-smi prints it without "GPU-" */
    int major, minor, multiprocessors;                   /* compute capability */
    int driver, runtime;                                 /* 13000: CUDA 13.0 */
    size_t memory;                                       /* bytes in all */
};
/* How many GPUs this process may use. 69 with one line that says why there is none: no driver, one that is too old
 * (both versions), none visible. */
int cuda_device_count(int *n, struct err *e);
/* 69 if there is no GPU `unit`. */
int cuda_device_get(int unit, struct cuda_device *d, struct err *e);
/* Which GPU the rank with this number on its host uses: one each, in turn; launchers may also show each rank only its
 * own. id: its uuid. */
int cuda_device_pick(int rank_here, int *unit, char id[BE_ID], struct err *e);
/* Where it is: "0000:3B:00.0", "" if CUDA does not say. */
void cuda_device_bus(int unit, char bus[BE_BUS]);
#endif
