/* Loops of the operator upsample for any layout of channels: row by row of the output, a piece of a row for all
 * planes. */
#include <string.h>
#include "model/ops/upsample.h"
#include "model/ops/window.h"

enum { PIECE = 64 };                                     /* points of a row whose taps are computed together */

/* Rows of the input that a row of the output reads, in summation order. */
struct row_weights { int n; struct { int64_t at; float share; } of[4]; };

struct upsample upsample_of(const struct graph *g, const struct node *node, int n, int lanes)
{
    const struct shape *in = &g->tensor[node->in[0]].shape, *out = &g->tensor[node->out].shape;
    struct upsample u = {.planes = n * in->d[0] / lanes, .lanes = lanes};
    space_sizes(in, u.in);
    space_sizes(out, u.out);
    u.linear = node->attr[op_attr(node->op, "linear")].i[0];
    u.corners = node->attr[op_attr(node->op, "align_corners")].i[0];
    return u;
}

static struct row_weights rows_of(const struct upsample *u, int64_t o0, int64_t o1)
{
    const struct upsample_tap a = upsample_tap(u, 0, o0), b = upsample_tap(u, 1, o1);
    struct row_weights r = {0};
    for (int i = 0; i <= (a.part > 0); i++)
        for (int j = 0; j <= (b.part > 0); j++) {
            r.of[r.n].at = ((i ? a.next : a.at) * u->in[1] + (j ? b.next : b.at)) * u->in[2];
            r.of[r.n++].share = (i ? a.part : 1 - a.part) * (j ? b.part : 1 - b.part);
        }
    return r;
}

/* n points of a row of one plane, from one row of the input: y = or += share x. */
static void take(const struct upsample_tap *t, int n, int lanes, float share, const float *restrict x,
                 float *restrict y, bool acc)
{
    for (int i = 0; i < n; i++, y += lanes) {
        const float *a = x + t[i].at * lanes, *b = x + t[i].next * lanes;
        const float wa = share * (1 - t[i].part), wb = share * t[i].part;
        for (int l = 0; l < lanes; l++) {
            float v = t[i].part > 0 ? wa * a[l] + wb * b[l] : wa * a[l];
            y[l] = acc ? y[l] + v : v;
        }
    }
}

/* x += share y */
static void spread(const struct upsample_tap *t, int n, int lanes, float share, const float *restrict y,
                   float *restrict x)
{
    for (int i = 0; i < n; i++, y += lanes) {
        float *a = x + t[i].at * lanes, *b = x + t[i].next * lanes;
        const float wa = share * (1 - t[i].part), wb = share * t[i].part;
        for (int l = 0; l < lanes; l++) {
            a[l] += wa * y[l];
            if (t[i].part > 0) b[l] += wb * y[l];
        }
    }
}

/* Visits all pieces of rows, from x to y or backward. */
static void walk(const struct upsample *u, const float *in, float *out, const float *gy, float *gx)
{
    const int64_t is = u->in[0] * u->in[1] * u->in[2] * u->lanes, os = u->out[0] * u->out[1] * u->out[2] * u->lanes;
    struct upsample_tap t[PIECE];
    for (int64_t row = 0; row < u->out[0] * u->out[1]; row++) {
        const struct row_weights r = rows_of(u, row / u->out[1], row % u->out[1]);
        for (int64_t first = 0; first < u->out[2]; first += PIECE) {
            const int n = u->out[2] - first < PIECE ? (int)(u->out[2] - first) : PIECE;
            const int64_t at = (row * u->out[2] + first) * u->lanes;
            for (int i = 0; i < n; i++) t[i] = upsample_tap(u, 2, first + i);
            for (int64_t p = 0; p < u->planes; p++)
                for (int k = 0; k < r.n; k++) {
                    const int64_t from = p * is + r.of[k].at * u->lanes;
                    if (gx) spread(t, n, u->lanes, r.of[k].share, gy + p * os + at, gx + from);
                    else take(t, n, u->lanes, r.of[k].share, in + from, out + p * os + at, k > 0);
                }
        }
    }
}

void upsample_forward(const struct upsample *u, const float *x, float *y) { walk(u, x, y, NULL, NULL); }

void upsample_backward(const struct upsample *u, const float *gy, float *gx, bool acc)
{
    size_t n = (size_t)(u->planes * u->in[0] * u->in[1] * u->in[2]) * (size_t)u->lanes;
    if (!acc) memset(gx, 0, n * sizeof *gx);
    walk(u, NULL, NULL, gy, gx);
}
