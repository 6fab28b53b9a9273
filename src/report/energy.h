/* Energy of the processor packages of rank 0's host, by the counters of Linux (RAPL): of all that runs there, not of
 * this run alone. A reporter reads them now and then, before they wrap around. Rank 0's scheduler thread. */
#ifndef REPORT_ENERGY_H
#define REPORT_ENERGY_H
#include <stdint.h>

enum { ENERGY_DOMAINS = 64 };

/* name: Linux's, as "package-0". uj: microjoules since the reporter was opened. last, range: of the counter. */
struct energy_domain { char name[32], path[256]; uint64_t uj, last, range; };
struct energy { int n; uint64_t read; struct energy_domain domain[ENERGY_DOMAINS]; };

/* Reads the counters. Returns joules of all domains since the reporter was opened; -1: not available, because g is NULL
 * or no counter has moved, as in virtual machines. */
double energy_joules(struct energy *g);
#endif
