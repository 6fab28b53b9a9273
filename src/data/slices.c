#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "data/slices.h"

static int64_t slices_at(const struct slices *s, int64_t x, int64_t y, int64_t z)
{
    return (x * s->size[1] + y) * s->size[2] + z;
}

int64_t slices_best(const struct slices *s)
{
    const uint8_t *of = s->truth ? s->truth : s->guess;
    int64_t best = s->size[2] / 2, most = 0;
    for (int64_t z = 0; z < s->size[2] && of; z++) {
        int64_t n = 0, middle = s->size[2] / 2;
        for (int64_t x = 0; x < s->size[0]; x++)
            for (int64_t y = 0; y < s->size[1]; y++) n += of[slices_at(s, x, y, z)] != 0;
        if (n < most || !n || (n == most && llabs(z - middle) >= llabs(best - middle))) continue;
        most = n;
        best = z;
    }
    return best;
}

static bool outlined(const struct slices *s, const uint8_t *of, int64_t x, int64_t y, int64_t z)
{
    if (!of || !of[slices_at(s, x, y, z)]) return false;
    static const int step[4][2] = {{1, 0}, {-1, 0}, {0, 1}, {0, -1}};
    for (int i = 0; i < 4; i++) {
        int64_t to_x = x + step[i][0], to_y = y + step[i][1];
        bool inside = to_x >= 0 && to_x < s->size[0] && to_y >= 0 && to_y < s->size[1];
        if (inside && of[slices_at(s, to_x, to_y, z)] != of[slices_at(s, x, y, z)]) return true;
    }
    return false;
}

static void range_find(const struct slices *s, int64_t z, float *lo, float *hi)
{
    *lo = INFINITY;
    *hi = -INFINITY;
    for (int64_t x = 0; x < s->size[0]; x++)
        for (int64_t y = 0; y < s->size[1]; y++) {
            *lo = fminf(*lo, s->values[slices_at(s, x, y, z)]);
            *hi = fmaxf(*hi, s->values[slices_at(s, x, y, z)]);
        }
}

static void point(const struct slices *s, const int64_t voxel[3], float lo, float hi, uint8_t rgb[3])
{
    const int64_t x = voxel[0], y = voxel[1], z = voxel[2];
    const float part = hi > lo ? (s->values[slices_at(s, x, y, z)] - lo) / (hi - lo) : 0;
    const bool truth = outlined(s, s->truth, x, y, z), guess = outlined(s, s->guess, x, y, z);
    memset(rgb, (int)lrintf(part * 255), 3);
    if (!truth && !guess) return;
    rgb[0] = guess ? 255 : 0;
    rgb[1] = truth ? 255 : 0;
    rgb[2] = 0;
}

void slices_draw(const struct slices *s, int64_t z, uint8_t *rgb, int height, int width)
{
    const int64_t left = (width - s->size[0]) / 2, top = (height - s->size[1]) / 2;
    float lo, hi;
    range_find(s, z, &lo, &hi);
    memset(rgb, 0, (size_t)height * (size_t)width * 3);
    for (int64_t i = 0; i < height; i++)
        for (int64_t k = 0; k < width; k++) {
            const int64_t voxel[3] = {k - left, s->size[1] - 1 - (i - top), z};
            if (voxel[0] < 0 || voxel[0] >= s->size[0] || voxel[1] < 0 || voxel[1] >= s->size[1]) continue;
            point(s, voxel, lo, hi, rgb + 3 * (i * width + k));
        }
}
