/* Energy of rank 0's host: of its processor packages by the counters of Linux (RAPL), and of this run's GPUs there by
 * NVIDIA's management library, which is looked for when the run begins. It is of all that runs there, not of this run
 * alone. A reporter reads the packages now and then, before they wrap around. Rank 0's scheduler thread. */
#ifndef REPORT_ENERGY_H
#define REPORT_ENERGY_H
#include <stdint.h>

enum { ENERGY_DOMAINS = 64 };

/* name: Linux's, as "package-0". uj: microjoules since the reporter was opened. last, range: of the counter. */
struct energy_domain { char name[32], path[256]; uint64_t uj, last, range; };
/* uuid: as the library takes it, "GPU-...". mj: millijoules since the reporter was opened. last: of the counter. */
struct energy_gpu { char uuid[64]; void *device; uint64_t mj, last; };
struct energy_nvml;
struct energy {
    int n, n_gpus; uint64_t read; struct energy_domain domain[ENERGY_DOMAINS]; struct energy_gpu gpu[ENERGY_DOMAINS];
    struct energy_nvml *nvml;
};

/* Reads the counters. Returns joules of all packages since the reporter was opened; -1: not available, because g is
 * NULL or no counter has moved, as in virtual machines. */
double energy_joules(struct energy *g);
/* The same of the GPUs; -1 also if one of them does not answer now. */
double energy_gpu_joules(struct energy *g);
#endif
