/* Makes volumes of any grid uniform for a network: turned so that x goes right, y ahead and z up, with voxels of one
 * size. They are also cropped or padded to one size, and scaled to one range of values. Also maps labels back. For data
 * sets and predictions. Pure; any thread.
 *
 * Arrays are [x][y][z], z being the fastest: nibabel's order, not the files'. */
#ifndef DATA_VOLUME_H
#define DATA_VOLUME_H
#include "conf/words.h"
#include "data/nifti.h"

/* spacing: millimetres along x, y and z; 0: the file's. size: voxels; 0: the volume's own number, but at least
 * `least`. */
struct volume_want { double spacing[3]; int64_t size[3], least[3]; };

/* Per axis. axis: the file's axis (of nibabel's io_orientation). flip: it runs backwards. from: voxels along it.
 * scaled: voxels after resampling. size: after cropping or padding. start: where the latter begins in the former; below
 * 0 is padding. */
struct volume_grid {
    int axis[3];
    bool flip[3];
    int64_t dim[3], from[3], scaled[3], size[3], start[3];   /* dim: in the file's order */
};
/* 65 if the result is too large. */
int volume_grid_of(const struct nifti *f, const struct volume_want *w, struct volume_grid *g, struct err *e);
uint64_t volume_count(const int64_t size[3]);
/* Are the voxels of two files in the same places, within a thousandth of a millimetre for each voxel along the longest
 * axis? Channels are ignored. 65 that names both files. */
int volume_same(const struct nifti *a, const struct nifti *b, struct err *e);

/* Resamples a stored channel, or labels, to an array of g->scaled. Channels: trilinear interpolation between voxel
 * centres; outside, the edge value. Labels: the nearest voxel; of two equally near, the later one. */
void volume_scale(const struct volume_grid *g, const float *stored, float *out);
void volume_scale_labels(const struct volume_grid *g, const uint8_t *stored, uint8_t *out);
/* Crops or pads g->scaled to g->size; padding is 0. */
void volume_fit(const struct volume_grid *g, const float *in, float *out);
void volume_fit_labels(const struct volume_grid *g, const uint8_t *in, uint8_t *out);
/* Maps labels of g->size to the file's voxels, in the file's order. Each gets the nearest label; voxels that were
 * cropped away get 0. */
void volume_back(const struct volume_grid *g, const uint8_t *labels, uint8_t *stored);

/* How values change:
 *   MINMAX      (x - min) / (max - min)
 *   ZSCORE      (x - mean) / deviation, of all voxels
 *   NONZERO     the same for voxels that are not 0; only these change
 *   PERCENTILE  ZSCORE after clipping at the percentiles 0.5 and 99.5, interpolated like numpy's
 * A deviation of 0 counts as 1. */
void volume_values(enum intensity how, float *x, uint64_t n);
enum { VOLUME_TABLE_BYTES = 4 << 16 };                   /* memory that PERCENTILE needs */

#endif
