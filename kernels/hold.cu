/* A kernel that only takes time. */
#include "kernels/launch.h"
#include "kernels/kernels.h"
#ifndef __CUDACC__
#include <time.h>
#endif

struct hold {
    uint64_t ns;
    DEVICE void block(const struct where &w) const
    {
#ifdef __CUDACC__
        uint64_t from, now;
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(from));
        do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
        while (now - from < ns);
#else
        struct timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
        (void)w;
        nanosleep(&t, NULL);
#endif
    }
};

extern "C" int k_hold(void *stream, uint64_t ns) { return launch(stream, 1, 1, hold{ns}); }
