#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "data/volume.h"

uint64_t volume_count(const int64_t size[3]) { return (uint64_t)size[0] * (uint64_t)size[1] * (uint64_t)size[2]; }

/* ---- grids ------------------------------------------------------------------------------------------------------- */

static void inverse_transposed(const double a[3][3], double out[3][3])
{
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 3; k++)
            out[i][k] = a[(i + 1) % 3][(k + 1) % 3] * a[(i + 2) % 3][(k + 2) % 3] -
                        a[(i + 1) % 3][(k + 2) % 3] * a[(i + 2) % 3][(k + 1) % 3];
    double det = a[0][0] * out[0][0] + a[0][1] * out[0][1] + a[0][2] * out[0][2];
    for (int i = 0; i < 9; i++) out[i / 3][i % 3] /= det;
}

/* The rotation of the polar decomposition of the affine's directions, by Newton's iteration (Higham, "Computing the
 * polar decomposition, with applications", 1986). nibabel computes it from singular vectors. */
static void rotation_of(const struct nifti *f, double r[3][3])
{
    enum { TURNS = 60 };
    double other[3][3], change = 1;
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 3; k++) r[i][k] = f->affine[i][k] / nifti_side(f, k);
    for (int turn = 0; turn < TURNS && change > 1e-14; turn++) {
        inverse_transposed(r, other);
        change = 0;
        for (int i = 0; i < 9; i++) {
            double next = (r[i / 3][i % 3] + other[i / 3][i % 3]) / 2;
            change = fmax(change, fabs(next - r[i / 3][i % 3]));
            r[i / 3][i % 3] = next;
        }
    }
}

/* Differences below this are rounding in single precision rotations. */
#define TIE 1e-5

/* Whether one axis of the file precedes another. The axis closest to some direction is first. Among equal ones the
 * order of directions decides, so neither the axes' order in the file nor their signs matter. */
static bool before(const double r[3][3], int k, int other)
{
    double most[2] = {0}, sign[2] = {0};
    const int axis[2] = {k, other};
    for (int j = 0; j < 2; j++)
        for (int i = 0; i < 3; i++) {
            const double at = r[i][axis[j]];
            most[j] = fmax(most[j], fabs(at));
            if (sign[j] == 0 && fabs(at) > TIE) sign[j] = at < 0 ? -1 : 1;
        }
    if (fabs(most[0] - most[1]) > TIE) return most[0] > most[1];
    for (int i = 0; i < 3; i++) {
        const double more = sign[0] * r[i][k] - sign[1] * r[i][other];
        if (fabs(more) > TIE) return more > 0;
    }
    return k < other;
}

/* Each axis of the file, the most certain one first, takes the free direction that it is closest to, as in nibabel
 * 5.4. */
static void axes_find(const struct nifti *f, struct volume_grid *g)
{
    double r[3][3];
    bool taken[3] = {false}, placed[3] = {false};
    rotation_of(f, r);
    for (int turn = 0; turn < 3; turn++) {
        int axis = -1, way = -1;
        for (int k = 0; k < 3; k++) if (!placed[k] && (axis < 0 || before(r, k, axis))) axis = k;
        for (int i = 0; i < 3; i++)
            if (!taken[i] && (way < 0 || fabs(r[i][axis]) > fabs(r[way][axis]) + TIE)) way = i;
        placed[axis] = taken[way] = true;
        g->axis[way] = axis;
        g->flip[way] = r[way][axis] < 0;
    }
}

int volume_grid_of(const struct nifti *f, const struct volume_want *w, struct volume_grid *g, struct err *e)
{
    double scaled = 1, size = 1;
    *g = (struct volume_grid){0};
    axes_find(f, g);
    for (int i = 0; i < 3; i++) {
        double side = nifti_side(f, g->axis[i]), n = (double)f->dim[g->axis[i]];
        g->dim[i] = f->dim[i];
        g->from[i] = f->dim[g->axis[i]];
        double to = w->spacing[i] > 0 ? fmax(nearbyint(n * side / w->spacing[i]), 1) : n;
        double fit = w->size[i] ? (double)w->size[i] : fmax(to, (double)w->least[i]);
        scaled *= to;
        size *= fit;
        if (to > NIFTI_SIDE || fit > NIFTI_SIDE || scaled > NIFTI_VOXELS || size > NIFTI_VOXELS)
            return err_set(e, E_DATA, "%s: voxels of %gx%gx%g mm would become more than %d (data.spacing, data.size)",
                           f->path, nifti_side(f, 0), nifti_side(f, 1), nifti_side(f, 2), NIFTI_VOXELS);
        g->scaled[i] = (int64_t)to;
        g->size[i] = (int64_t)fit;
        g->start[i] = (g->scaled[i] - g->size[i]) / 2;
    }
    return 0;
}

int volume_same(const struct nifti *a, const struct nifti *b, struct err *e)
{
    double most = 0, far = 0;
    for (int i = 0; i < 3; i++) {
        if (a->dim[i] != b->dim[i])
            return err_set(e, E_DATA, "%s: has %lldx%lldx%lld voxels, but %s has %lldx%lldx%lld", b->path,
                           (long long)b->dim[0], (long long)b->dim[1], (long long)b->dim[2], a->path,
                           (long long)a->dim[0], (long long)a->dim[1], (long long)a->dim[2]);
        most = fmax(most, (double)a->dim[i]);
    }
    for (int corner = 0; corner < 8; corner++) {
        double sum = 0;
        for (int i = 0; i < 3; i++) {
            double d = a->affine[i][3] - b->affine[i][3];
            for (int k = 0; k < 3; k++)
                if (corner >> k & 1) d += (a->affine[i][k] - b->affine[i][k]) * (double)(a->dim[k] - 1);
            sum += d * d;
        }
        far = fmax(far, sqrt(sum));
    }
    if (far <= 1e-3 * most) return 0;
    return err_set(e, E_DATA, "%s: its voxels lie up to %.4g mm from those of %s: their affines differ", b->path, far,
                   a->path);
}

/* ---- resampling -------------------------------------------------------------------------------------------------- */

/* Strides in the file from a voxel to the next one along an axis, and the position of the first. */
struct volume_walk { int64_t first, step[3]; };

static struct volume_walk walk_of(const struct volume_grid *g)
{
    struct volume_walk w = {0};
    const int64_t step[3] = {1, g->dim[0], g->dim[0] * g->dim[1]};
    for (int i = 0; i < 3; i++) {
        w.step[i] = g->flip[i] ? -step[g->axis[i]] : step[g->axis[i]];
        if (g->flip[i]) w.first += (g->from[i] - 1) * step[g->axis[i]];
    }
    return w;
}

/* Two voxels, and the weight of the second one. */
struct volume_pair { int64_t a, b; double part; };

static struct volume_pair *pairs_make(int64_t from, int64_t to, int64_t step)
{
    struct volume_pair *p = mem_alloc((size_t)to * sizeof *p);
    for (int64_t i = 0; i < to; i++) {
        double at = ((double)i + 0.5) * (double)from / (double)to - 0.5;
        if (from == to) at = (double)i;
        if (at < 0) at = 0;
        if (at > (double)(from - 1)) at = (double)(from - 1);
        int64_t a = (int64_t)at, b = a + 1 < from ? a + 1 : a;
        p[i] = (struct volume_pair){a * step, b * step, at - (double)a};
    }
    return p;
}

static double between(double a, double b, double part) { return part == 0 ? a : a + (b - a) * part; }

static double along(const float *at, const struct volume_pair *z) { return between(at[z->a], at[z->b], z->part); }

void volume_scale(const struct volume_grid *g, const float *stored, float *out)
{
    const struct volume_walk w = walk_of(g);
    struct volume_pair *pair[3];
    for (int i = 0; i < 3; i++) pair[i] = pairs_make(g->from[i], g->scaled[i], w.step[i]);
    for (int64_t x = 0; x < g->scaled[0]; x++)
        for (int64_t y = 0; y < g->scaled[1]; y++) {
            const struct volume_pair *px = &pair[0][x], *py = &pair[1][y];
            const float *at = stored + w.first;
            for (int64_t z = 0; z < g->scaled[2]; z++) {
                const struct volume_pair *pz = &pair[2][z];
                double a = between(along(at + px->a + py->a, pz), along(at + px->a + py->b, pz), py->part);
                double b = px->part == 0 ? a
                         : between(along(at + px->b + py->a, pz), along(at + px->b + py->b, pz), py->part);
                *out++ = (float)between(a, b, px->part);
            }
        }
    for (int i = 0; i < 3; i++) free(pair[i]);
}

/* In integers: the voxel of `from` that contains the centre of voxel i of `to`. */
static int64_t nearest(int64_t i, int64_t from, int64_t to) { return (2 * i + 1) * from / (2 * to); }

void volume_scale_labels(const struct volume_grid *g, const uint8_t *stored, uint8_t *out)
{
    const struct volume_walk w = walk_of(g);
    for (int64_t x = 0; x < g->scaled[0]; x++)
        for (int64_t y = 0; y < g->scaled[1]; y++) {
            const uint8_t *at = stored + w.first + nearest(x, g->from[0], g->scaled[0]) * w.step[0] +
                                nearest(y, g->from[1], g->scaled[1]) * w.step[1];
            for (int64_t z = 0; z < g->scaled[2]; z++)
                *out++ = at[nearest(z, g->from[2], g->scaled[2]) * w.step[2]];
        }
}

void volume_back(const struct volume_grid *g, const uint8_t *labels, uint8_t *stored)
{
    const struct volume_walk w = walk_of(g);
    for (int64_t x = 0; x < g->from[0]; x++)
        for (int64_t y = 0; y < g->from[1]; y++)
            for (int64_t z = 0; z < g->from[2]; z++) {
                const int64_t i[3] = {x, y, z};
                int64_t at = 0;
                bool inside = true;
                for (int k = 0; k < 3; k++) {
                    int64_t to = nearest(i[k], g->scaled[k], g->from[k]) - g->start[k];
                    inside &= to >= 0 && to < g->size[k];
                    at = at * g->size[k] + to;
                }
                stored[w.first + x * w.step[0] + y * w.step[1] + z * w.step[2]] = inside ? labels[at] : 0;
            }
}

/* ---- cropping and padding ---------------------------------------------------------------------------------------- */

/* out is zeroed. bytes: size of an element. */
static void fit(const struct volume_grid *g, size_t bytes, const char *in, char *out)
{
    int64_t lo[3], n[3];
    for (int i = 0; i < 3; i++) {
        int64_t end = g->scaled[i] - g->start[i] < g->size[i] ? g->scaled[i] - g->start[i] : g->size[i];
        lo[i] = g->start[i] < 0 ? -g->start[i] : 0;
        n[i] = end - lo[i];
    }
    for (int64_t x = lo[0]; x < lo[0] + n[0]; x++)
        for (int64_t y = lo[1]; y < lo[1] + n[1]; y++) {
            int64_t to = (x * g->size[1] + y) * g->size[2] + lo[2];
            int64_t from = ((x + g->start[0]) * g->scaled[1] + y + g->start[1]) * g->scaled[2] + lo[2] + g->start[2];
            memcpy(out + (size_t)to * bytes, in + (size_t)from * bytes, (size_t)n[2] * bytes);
        }
}

void volume_fit(const struct volume_grid *g, const float *in, float *out)
{
    memset(out, 0, volume_count(g->size) * sizeof *out);
    fit(g, sizeof *in, (const char *)in, (char *)out);
}

void volume_fit_labels(const struct volume_grid *g, const uint8_t *in, uint8_t *out)
{
    memset(out, 0, volume_count(g->size));
    fit(g, sizeof *in, (const char *)in, (char *)out);
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

static void minmax(float *x, uint64_t n)
{
    double lo = x[0], hi = x[0];
    for (uint64_t i = 0; i < n; i++) {
        if (x[i] < lo) lo = x[i];
        if (x[i] > hi) hi = x[i];
    }
    for (uint64_t i = 0; i < n; i++) x[i] = (float)((x[i] - lo) / (hi > lo ? hi - lo : 1));
}

/* nonzero: only of values that are not 0. */
static void zscore(float *x, uint64_t n, bool nonzero)
{
    double sum = 0, squares = 0;
    uint64_t many = 0;
    for (uint64_t i = 0; i < n; i++)
        if (!nonzero || x[i] != 0) {
            sum += x[i];
            many++;
        }
    if (!many) return;
    const double mean = sum / (double)many;
    for (uint64_t i = 0; i < n; i++)
        if (!nonzero || x[i] != 0) squares += (x[i] - mean) * (x[i] - mean);
    double deviation = sqrt(squares / (double)many);
    if (!(deviation > 0)) deviation = 1;
    for (uint64_t i = 0; i < n; i++)
        if (!nonzero || x[i] != 0) x[i] = (float)((x[i] - mean) / deviation);
}

/* Integers in the order of finite floats, and back. */
enum { HALF = VOLUME_TABLE_BYTES / sizeof(uint32_t) };   /* number of values of half a float's bits, each with a
                                                          * count */
static uint32_t key_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits >> 31 ? ~bits : bits | UINT32_C(1) << 31;
}

static float of_key(uint32_t key)
{
    const uint32_t bits = key >> 31 ? key & ~(UINT32_C(1) << 31) : ~key;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* The first place up to which more than *rank are counted; *rank becomes the rank within that place. */
static uint32_t place_of(const uint32_t *count, uint64_t *rank)
{
    uint32_t i = 0;
    for (; count[i] <= *rank; i++) *rank -= count[i];
    return i;
}

/* The value of ascending rank `rank` among n: counts their upper halves, then the lower halves of those that share the
 * found one. Sorting would take three times their memory, and longer. */
static double ranked(const float *x, uint64_t n, uint64_t rank, uint32_t *count)
{
    memset(count, 0, VOLUME_TABLE_BYTES);
    for (uint64_t i = 0; i < n; i++) count[key_of(x[i]) / HALF]++;
    const uint32_t upper = place_of(count, &rank);
    memset(count, 0, VOLUME_TABLE_BYTES);
    for (uint64_t i = 0; i < n; i++)
        if (key_of(x[i]) / HALF == upper) count[key_of(x[i]) % HALF]++;
    return of_key(upper * HALF + place_of(count, &rank));
}

static int key_order(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* The sorted keys of few values, which takes less time than clearing the table; NULL: too many. */
static uint32_t *keys_sorted(const float *x, uint64_t n)
{
    enum { FEW = 512 };
    if (n > FEW) return NULL;
    uint32_t *key = mem_alloc(n * sizeof *key);
    for (uint64_t i = 0; i < n; i++) key[i] = key_of(x[i]);
    qsort(key, n, sizeof *key, key_order);
    return key;
}

static double percentile(const float *x, uint64_t n, double share, const uint32_t *key, uint32_t *count)
{
    const double at = share * (double)(n - 1);
    const uint64_t i = (uint64_t)at, next = i + 1 < n ? i + 1 : i;
    if (key) return between(of_key(key[i]), of_key(key[next]), at - (double)i);
    return between(ranked(x, n, i, count), ranked(x, n, next, count), at - (double)i);
}

static void clip(float *x, uint64_t n)
{
    uint32_t *key = keys_sorted(x, n), *count = key ? NULL : mem_alloc(VOLUME_TABLE_BYTES);
    const float lo = (float)percentile(x, n, 0.005, key, count), hi = (float)percentile(x, n, 0.995, key, count);
    free(key);
    free(count);
    for (uint64_t i = 0; i < n; i++) x[i] = x[i] < lo ? lo : x[i] > hi ? hi : x[i];
}

void volume_values(enum intensity how, float *x, uint64_t n)
{
    if (how == INTENSITY_PERCENTILE) clip(x, n);
    if (how == INTENSITY_MINMAX) minmax(x, n);
    else if (how != INTENSITY_NONE) zscore(x, n, how == INTENSITY_NONZERO);
}
