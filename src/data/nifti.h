/* NIfTI-1 and NIfTI-2 files (.nii, .nii.gz): volumes of voxels and where these lie in a head. For data sets and
 * predictions. Any thread: nothing is kept open.
 *
 * Either byte order; integers of 8 to 64 bits, signed or not, and floats of 32 and 64 bits; plain or gzip, by the
 * file's first bytes and not by its name; extensions are passed over. Header and values mean what nibabel 5 makes of
 * them. What nibabel puts right with a message (a wrong bitpix, voxel sizes of 0 or below, a qfac other than 1 and -1,
 * an unknown code of an affine) is put right, and so is an offset that SPM would not map; `repaired` says what.
 *
 * Files are hostile. A header is compared with the size of its file before anything is allocated. Errors are 65 "PATH:
 * offset N: ...", where N is a place in the unpacked bytes, or 66, 74, 77. */
#ifndef DATA_NIFTI_H
#define DATA_NIFTI_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"
#include "base/text.h"

enum { NIFTI_DIMS = 4, NIFTI_HEADER = 540, NIFTI_VOXELS = 1 << 30, NIFTI_SIDE = 1 << 24, NIFTI_LABELS = 256 };

/* What a header says. dim: along x, y and z, the first of which is the fastest in the file, and channels, the slowest.
 * affine: from places of voxels to millimetres right, ahead and up of an origin; invertible and finite. A value is
 * slope * stored + inter, where slope is not 0. */
struct nifti {
    const char *path;                                    /* the caller's */
    int version, type;                                   /* 1 or 2; a row of the types known here */
    bool swapped;
    int64_t dim[NIFTI_DIMS];
    uint64_t begin;                                      /* of the first voxel */
    double slope, inter, affine[3][4];
    char repaired[200];                                  /* "" where nothing was */
    unsigned char header[NIFTI_HEADER];                  /* as stored */
};
int nifti_open(const char *path, struct nifti *f, struct err *e);
uint64_t nifti_voxels(const struct nifti *f);            /* of a channel */
const char *nifti_type_name(const struct nifti *f);      /* "uint8" */
double nifti_side(const struct nifti *f, int axis);      /* of a voxel, in millimetres */
/* Reads a file whose header has been read: 65 if it has become another one. values: of all voxels, as floats; a value
 * that is not finite is 65. */
int nifti_values(const struct nifti *f, float *values, struct err *e);

/* What labels become: to[v] of label v, or -1: it is refused. binary: 1 of all that is above 0, whole or not, and 0
 * otherwise. classes: what they become is below that, up to NIFTI_LABELS; listed: to is of a list (for texts). */
enum { NIFTI_MAPPED = 4096 };
struct nifti_map { bool binary, listed; int classes; int16_t to[NIFTI_MAPPED]; };
/* Adds "LABEL=CLASS", "FIRST-LAST=CLASS" or "*=CLASS", of labels that no other entry has named. 78 without a place. */
int nifti_map_add(struct nifti_map *m, const char *s, struct err *e);
/* The labels of a file of one channel. 65 where one is no whole number, or none that the map knows. */
int nifti_labels(const struct nifti *f, const struct nifti_map *map, uint8_t *labels, struct err *e);

/* Adds a whole file of labels (uint8), as many as f has voxels, with f's version, byte order, sizes and affine, but
 * without what f says of other values and without its extensions; packed by gzip. The bytes are a function of these
 * alone. */
void nifti_add(struct text *out, const struct nifti *f, const uint8_t *labels);
/* Was this open file made so? A comment of gzip says it, which is lost where another program writes the labels. */
bool nifti_is_added(int fd, const char *path);

#endif
