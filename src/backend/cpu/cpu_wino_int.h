/* The inside of cpu_wino*.c and cpu_panel_*.c only. */
#ifndef BACKEND_CPU_CPU_WINO_INT_H
#define BACKEND_CPU_CPU_WINO_INT_H
#include "backend/cpu/cpu_threads.h"
#include "backend/cpu/cpu_wino.h"

/* Points of a transformed tile, of a tile's edge; kernel positions of a plane. WINO_APART: floats between the points of
 * tiles; without them all sixteen would fall on the same set of the caches. */
enum { WINO_POINTS = 16, WINO_EDGE = 4, WINO_TAPS = 9, WINO_DEEP = 3, WINO_APART = 16 };
/* About this many tiles at a time, hence at most this many planes. */
enum { WINO_STEP = 128 };

/* The way through a micro-batch: strips of rows of tiles; each strip goes over all planes of all samples, some at a
 * time. Two more transformed planes, the neighbours, are kept. A plane is in slot number modulo slots. */
struct wino {
    struct wino_shape s;
    int64_t in_blocks, out_blocks, planes;               /* planes: of all samples */
    int64_t high, wide;                                  /* tiles of a plane */
    int64_t row, rows, tiles, step, slots;               /* a strip's rows of tiles, and tiles; planes at a time */
    int64_t v_tile, v_plane, v_point, m_tile, m_plane, m_point, u_point;   /* floats */
};
struct wino wino_plan(const struct wino_shape *s);       /* its strip is the first, which is the largest */
struct wino wino_strip(const struct wino *w, int64_t row);   /* the strip that begins at this row */

/* One table for each instruction set. */
struct wino_ops {
    void (*pack)(const struct wino *w, const float *from, bool turned, float *to);
    void (*run)(const struct wino *w, const float *x, const float *u, const float *bias, float *y, bool add,
                float *work);
    void (*weights)(const struct wino *w, const float *x, const float *gout, float *grad, float *bias, bool add,
                    float *work);
};
extern const struct wino_ops wino_avx512, wino_avx2;

#endif
