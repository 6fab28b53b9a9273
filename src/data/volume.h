/* What volumes of any grid become, so that a network sees all of them alike: turned so that x goes right, y ahead and z
 * up, with voxels of one size, cropped or padded to one size, and with values of one range. And the way back. For data
 * sets and predictions. Pure; any thread.
 *
 * Arrays are [x][y][z], z being the fastest: nibabel's order, not the files'. */
#ifndef DATA_VOLUME_H
#define DATA_VOLUME_H
#include "data/nifti.h"

/* spacing: millimetres along x, y and z; 0: as it is. size: voxels, 0: as many as there are, but at least so many as
 * `least` says. */
struct volume_want { double spacing[3]; int64_t size[3], least[3]; };

/* Of each axis: which one of the file's it is (of nibabel's io_orientation), whether it runs the other way, how many
 * voxels there are along it, how many after resampling, after cropping or padding, and where the latter begin in the
 * former: below 0 they are padding. */
struct volume_grid {
    int axis[3];
    bool flip[3];
    int64_t dim[3], from[3], scaled[3], size[3], start[3];   /* dim: in the file's order */
};
/* 65 where what is wanted is too large. */
int volume_grid_of(const struct nifti *f, const struct volume_want *w, struct volume_grid *g, struct err *e);
uint64_t volume_count(const int64_t size[3]);
/* Do the voxels of two files lie in the same places, but for a thousandth of a millimetre for each along the longest
 * side? Channels do not count. 65 that names both files. */
int volume_same(const struct nifti *a, const struct nifti *b, struct err *e);

/* A channel, or labels, as stored, become an array of g->scaled: by trilinear interpolation about the centres of
 * voxels, where what lies outside is as the edge; labels by the nearest voxel, of two as near the one behind. */
void volume_scale(const struct volume_grid *g, const float *stored, float *out);
void volume_scale_labels(const struct volume_grid *g, const uint8_t *stored, uint8_t *out);
/* g->scaled becomes g->size; padding is 0. */
void volume_fit(const struct volume_grid *g, const float *in, float *out);
void volume_fit_labels(const struct volume_grid *g, const uint8_t *in, uint8_t *out);
/* Labels of g->size become those of the file's voxels, in its order: each is that of the nearest one; what was cropped
 * away is 0. */
void volume_back(const struct volume_grid *g, const uint8_t *labels, uint8_t *stored);

/* What values become.
 *   MINMAX      (x - min) / (max - min)
 *   ZSCORE      (x - mean) / deviation, of all voxels
 *   NONZERO     the same of the voxels that are not 0, which alone change
 *   PERCENTILE  ZSCORE of what is clipped at the percentiles 0.5 and 99.5, which lie between values as numpy's do
 * Where there is no deviation it counts as 1. */
enum volume_intensity { VOLUME_NONE, VOLUME_MINMAX, VOLUME_ZSCORE, VOLUME_NONZERO, VOLUME_PERCENTILE };
void volume_values(enum volume_intensity how, float *x, uint64_t n);
enum { VOLUME_TABLE_BYTES = 4 << 16 };                   /* what PERCENTILE takes */

#endif
