/* What data.source = nifti (ds_nifti.c) knows of its samples beside their values: for predictions, which go back to the
 * files' own voxels. Any thread. */
#ifndef DATA_VOLUMES_H
#define DATA_VOLUMES_H
#include "data/ds.h"
#include "data/volume.h"

/* A volume as it was opened. tiles: how many parts of the network's size cover it along x, y and z; a test sample is
 * one of them. */
struct volume {
    struct nifti image, label;                           /* label.path NULL: there is none */
    struct volume_grid grid;
    int64_t tiles[3];
    uint64_t first;                                      /* the number of its first sample */
};
/* The volume of a sample of test data, and where in it, along x, y and z, the sample begins. NULL: the data set has no
 * volumes. */
const struct volume *volumes_find(const struct ds *d, uint64_t sample, int64_t corner[3]);
uint64_t volumes_count(const struct ds *d);              /* of volumes, not of samples; 0: it has none */
const struct volume *volumes_at(const struct ds *d, uint64_t i);
/* Axis i of a sample is this one of x, y and z. */
int volumes_axis(const struct ds *d, int i);
/* Labels are of so many classes from now on, or become them by data.label_map, also where nothing was to be compared.
 * Before the first read. 78 */
int volumes_classes(struct ds *d, const struct conf *c, int classes, struct err *e);
/* Its labels as they are stored, in the file's order and number. 65, 66, 74 */
int volumes_stored_labels(const struct ds *d, uint64_t i, uint8_t *out, struct err *e);
/* The labels of a volume, and its first channel as the network sees it, each of grid.size; borrowed until it is given
 * back. NULL: it cannot be read. */
const uint8_t *volumes_labels_take(struct ds *d, uint64_t i, struct err *e);
const float *volumes_values_take(struct ds *d, uint64_t i, struct err *e);
void volumes_labels_give(struct ds *d, uint64_t i);
void volumes_values_give(struct ds *d, uint64_t i);

#endif
