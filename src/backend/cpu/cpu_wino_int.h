/* The inside of dnnl_wino*.c and of dnnl_panel_*.c. Nobody else. */
#ifndef BACKEND_CPU_CPU_WINO_INT_H
#define BACKEND_CPU_CPU_WINO_INT_H
#include "backend/cpu/cpu_wino.h"

/* Points of a transformed tile, of a tile's edge; kernel positions of a plane; floats that keep the points of tiles
 * apart: else all sixteen would fall on the same set of the caches. */
enum { WINO_POINTS = 16, WINO_EDGE = 4, WINO_TAPS = 9, WINO_APART = 16 };
/* Tiles at a time, about, and so at most that many planes. */
enum { WINO_STEP = 128 };

/* How it goes through a micro-batch: strips of rows of tiles, in each of these over all planes of all samples, some at
 * a time. Of transformed inputs there are two planes more, the neighbours; a plane is in the slot of its number. */
struct wino {
    struct wino_shape s;
    int64_t in_blocks, out_blocks, planes;               /* of all samples */
    int64_t high, wide;                                  /* tiles of a plane */
    int64_t rows, tiles, step, slots;                    /* a strip's rows of tiles, and tiles; planes at a time */
    int64_t v_plane, v_point, m_plane, m_point, u_point; /* floats */
};
struct wino wino_plan(const struct wino_shape *s);

/* One table an instruction set. */
struct wino_ops {
    void (*pack)(const struct wino *w, const float *from, bool turned, float *to);
    void (*run)(const struct wino *w, const float *x, const float *u, const float *bias, float *y, bool add,
                float *work);
    void (*weights)(const struct wino *w, const float *x, const float *gout, float *grad, float *bias, bool add,
                    float *work);
};
extern const struct wino_ops wino_avx512, wino_avx2;

#endif
