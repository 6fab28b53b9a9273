/* Loops over the OpenMP threads. Calls on one thread at a time. */
#ifndef BACKEND_CPU_CPU_THREADS_H
#define BACKEND_CPU_CPU_THREADS_H
#include <stdint.h>

/* Calls run(data, thread, from, to) for parts of [0, n), one on each of `threads` threads at most, which have numbers
 * from 0 on. The result must not depend on which thread runs a part. */
typedef void cpu_part(const void *data, int thread, int64_t from, int64_t to);
void cpu_each(int threads, int64_t n, cpu_part *run, const void *data);

#endif
