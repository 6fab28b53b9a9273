/* What data.source = nifti (ds_nifti.c) knows of its samples besides their values. For predictions, which map back to
 * the files' own voxels. Any thread. */
#ifndef DATA_VOLUMES_H
#define DATA_VOLUMES_H
#include "data/ds.h"
#include "data/volume.h"

/* An opened volume. tiles: how many parts of the network's size cover it along x, y and z; a test sample is one of
 * these. */
struct volume {
    struct nifti image, label;                           /* label.path NULL: no labels */
    struct volume_grid grid;
    int64_t tiles[3];
    uint64_t first;                                      /* the number of its first sample */
};
/* The volume of a test sample, and the sample's corner in it along x, y and z. NULL: the data set has no volumes. */
const struct volume *volumes_find(const struct ds *d, uint64_t sample, int64_t corner[3]);
uint64_t volumes_count(const struct ds *d);              /* of volumes, not of samples; 0: not volumes */
const struct volume *volumes_at(const struct ds *d, uint64_t i);
/* The axis (0 is x) that axis i of a sample is. */
int volumes_axis(const struct ds *d, int i);
/* Sets the number of classes that labels map to, by data.label_map if given, even if the model takes no labels. Before
 * the first read. 78 */
int volumes_classes(struct ds *d, const struct conf *c, int classes, struct err *e);
/* A volume's labels as stored, in the file's order and number. 65, 66, 74 */
int volumes_stored_labels(const struct ds *d, uint64_t i, uint8_t *out, struct err *e);
/* The labels of a volume, and its first channel as the network receives it, each of grid.size; borrowed until given
 * back. NULL: reading failed. */
const uint8_t *volumes_labels_take(struct ds *d, uint64_t i, struct err *e);
const float *volumes_values_take(struct ds *d, uint64_t i, struct err *e);
void volumes_labels_give(struct ds *d, uint64_t i);
void volumes_values_give(struct ds *d, uint64_t i);

#endif
