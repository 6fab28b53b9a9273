/* The inside of cpu_wgrad*.c only. */
#ifndef BACKEND_CPU_CPU_WGRAD_INT_H
#define BACKEND_CPU_CPU_WGRAD_INT_H
#include "backend/cpu/cpu_wgrad.h"

struct point { int32_t in, out; };                       /* offsets in floats within a plane */
struct tap { struct point *point; int n; };
struct wgrad {
    struct wgrad_shape s;
    int64_t in_points, out_points, taps, x_points;       /* x_points: of a packed input plane */
    struct tap *tap;
};

typedef void wgrad_runner(const struct wgrad *w, const float *x, const float *gout, float *grad, bool acc, void *work);
wgrad_runner wgrad_run_avx512, wgrad_run_avx2;

#endif
