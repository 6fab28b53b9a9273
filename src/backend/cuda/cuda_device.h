/* The GPUs of this host as values. Users: the cuda backend, and the code that assigns GPUs to ranks. Any thread. */
#ifndef BACKEND_CUDA_CUDA_DEVICE_H
#define BACKEND_CUDA_CUDA_DEVICE_H
#include <stdbool.h>
#include <stddef.h>
#include "backend/be.h"

struct cuda_device {
    char name[64], uuid[40];                             /* "NVIDIA H200"; the uuid as in nvidia-smi, without "GPU-" */
    int major, minor, multiprocessors;                   /* compute capability */
    int driver, runtime;                                 /* 13000: CUDA 13.0 */
    size_t memory;                                       /* total bytes */
};
/* How many GPUs this process may use. 69 with one line that says why there is none: no driver, a driver that is too old
 * (both versions), no visible GPU. */
int cuda_device_count(int *n, struct err *e);
/* 69 if there is no GPU `unit`. */
int cuda_device_get(int unit, struct cuda_device *d, struct err *e);
/* The GPU for the rank with this number on its host: one each, in turn. Launchers may also make only its own GPU
 * visible to each rank. id: its uuid. */
int cuda_device_pick(int rank_here, int *unit, char id[BE_ID], struct err *e);
/* Its place: "0000:3B:00.0", "" if CUDA does not report it. */
void cuda_device_bus(int unit, char bus[BE_BUS]);
#endif
