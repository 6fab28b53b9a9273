/* A double of libnvidia-ml.so.1 for tests/t_report.c and tests/energy.sh: one GPU whose counter moves by 1500 mJ with
 * each reading. With -DLACKS it has no counter of energy. Plain C without NVIDIA's header. */
#include <string.h>

enum { NOT_SUPPORTED = 3, NOT_FOUND = 6 };

/* Tests change them: what the counter will say, by how much it moves, and what the calls return. */
extern unsigned long long nvml_double_mj, nvml_double_step;
extern int nvml_double_begins, nvml_double_reads, nvml_double_open;
unsigned long long nvml_double_mj = 5000000000000, nvml_double_step = 1500;
int nvml_double_begins, nvml_double_reads, nvml_double_open;

int nvmlInit_v2(void);
int nvmlInit_v2(void) { nvml_double_open += !nvml_double_begins; return nvml_double_begins; }
int nvmlShutdown(void);
int nvmlShutdown(void) { nvml_double_open--; return 0; }
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device);
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device)
{
    *device = &nvml_double_mj;
    return strncmp(uuid, "GPU-00000000-0000-", 18) ? NOT_FOUND : 0;
}
const char *nvmlErrorString(int code);
const char *nvmlErrorString(int code)
{
    return code == NOT_SUPPORTED ? "Not Supported" : code == NOT_FOUND ? "Not Found" : "Unknown Error";
}
#ifndef LACKS
int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *mj);
int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *mj)
{
    unsigned long long *counter = device;
    *mj = *counter;
    *counter += nvml_double_step;
    return nvml_double_reads;
}
#endif
