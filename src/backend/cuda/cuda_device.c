/* The GPUs of this host, through the CUDA runtime. */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "backend/cuda/cuda_device.h"
#include "base/environ.h"

static int version_fail(struct err *e)
{
    int driver = 0, runtime = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    if (!driver) return err_set(e, E_DEVICE, "no CUDA driver on this machine");
    return err_set(e, E_DEVICE, "the CUDA driver is too old: it has CUDA %d.%d, this program needs %d.%d",
                   driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
}

int cuda_device_count(int *n, struct err *e)
{
    *n = 0;
    /* before CUDA starts: with the usual 8 queues, streams of links would wait for each other */
    environ_default("CUDA_DEVICE_MAX_CONNECTIONS", "32");
    cudaError_t status = cudaGetDeviceCount(n);
    if (status == cudaErrorInsufficientDriver || status == cudaErrorStubLibrary) return version_fail(e);
    if (status == cudaErrorNoDevice || (status == cudaSuccess && *n == 0))
        return err_set(e, E_DEVICE, "no GPU is visible to this process");
    if (status != cudaSuccess) return err_set(e, E_DEVICE, "CUDA does not start: %s", cudaGetErrorString(status));
    return 0;
}

int cuda_device_get(int unit, struct cuda_device *d, struct err *e)
{
    int n;
    struct cudaDeviceProp p;
    memset(d, 0, sizeof *d);
    if (cuda_device_count(&n, e)) return -1;
    if (unit < 0 || unit >= n) return err_set(e, E_DEVICE, "there is no GPU %d: this process sees %d", unit, n);
    cudaError_t status = cudaGetDeviceProperties(&p, unit);
    if (status != cudaSuccess) return err_set(e, E_DEVICE, "GPU %d: %s", unit, cudaGetErrorString(status));
    snprintf(d->name, sizeof d->name, "%.60s", p.name);
    for (int i = 0, at = 0; i < 16; i++) {
        bool dash = i == 4 || i == 6 || i == 8 || i == 10;
        at += snprintf(d->uuid + at, sizeof d->uuid - (size_t)at, "%s%02x", dash ? "-" : "",
                       (unsigned char)p.uuid.bytes[i]);
    }
    d->major = p.major;
    d->minor = p.minor;
    d->multiprocessors = p.multiProcessorCount;
    d->memory = p.totalGlobalMem;
    cudaDriverGetVersion(&d->driver);
    cudaRuntimeGetVersion(&d->runtime);
    return 0;
}

int cuda_device_pick(int rank_here, int *unit, char id[BE_ID], struct err *e)
{
    int n;
    struct cuda_device d;
    if (cuda_device_count(&n, e)) return -1;
    *unit = rank_here % n;
    if (cuda_device_get(*unit, &d, e)) return -1;
    snprintf(id, BE_ID, "%s", d.uuid);
    return 0;
}

void cuda_device_bus(int unit, char bus[BE_BUS])
{
    *bus = 0;
    if (cudaDeviceGetPCIBusId(bus, BE_BUS, unit) == cudaSuccess) return;
    *bus = 0;
    cudaGetLastError();                                  /* this failure is not the next call's */
}
