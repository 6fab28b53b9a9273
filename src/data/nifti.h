/* NIfTI-1 and NIfTI-2 files (.nii, .nii.gz): volumes of voxels and their place in a head. For data sets and
 * predictions. Any thread: no file stays open.
 *
 * Either byte order; integers of 8 to 64 bits, signed or not, and floats of 32 and 64 bits. Plain or gzip by the first
 * bytes, not by the name. Extensions are skipped. Header and values mean the same as in nibabel 5. Errors that nibabel
 * repairs with a message are repaired here, too: a wrong bitpix, voxel sizes of 0 or below, a qfac other than 1 and -1,
 * an unknown code of an affine. So is an offset that SPM would not map; `repaired` describes the repairs.
 *
 * Files are hostile. A header is compared with the size of its file before anything is allocated. Errors are 65 "PATH:
 * offset N: ...", where N counts unpacked bytes, or 66, 74, 77. */
#ifndef DATA_NIFTI_H
#define DATA_NIFTI_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"
#include "base/text.h"

enum { NIFTI_DIMS = 4, NIFTI_HEADER = 540, NIFTI_VOXELS = 1 << 30, NIFTI_SIDE = 1 << 24, NIFTI_LABELS = 256 };

/* A header. dim: along x, y and z, x being the fastest in the file, and channels, the slowest. affine: from voxel
 * indices to millimetres right, ahead and up of an origin; invertible and finite. A value is slope * stored + inter,
 * with slope not 0. */
struct nifti {
    const char *path;                                    /* the caller's */
    int version, type;                                   /* 1 or 2; a row of `types` in nifti.c */
    bool swapped;
    int64_t dim[NIFTI_DIMS];
    uint64_t begin;                                      /* offset of the first voxel */
    double slope, inter, affine[3][4];
    char repaired[200];                                  /* "" if nothing was repaired */
    unsigned char header[NIFTI_HEADER];                  /* as stored */
};
int nifti_open(const char *path, struct nifti *f, struct err *e);
uint64_t nifti_voxels(const struct nifti *f);            /* per channel */
const char *nifti_type_name(const struct nifti *f);      /* "uint8" */
double nifti_side(const struct nifti *f, int axis);      /* voxel size along the axis, in millimetres */
/* Reads the file of this header: 65 if the file has changed. values: all voxels as floats; a value that is not finite
 * is 65. */
int nifti_values(const struct nifti *f, float *values, struct err *e);

/* Maps labels: to[v] for label v, or -1: refused. binary: 1 for every value above 0, integer or not, 0 otherwise.
 * classes: upper limit of the results, at most NIFTI_LABELS. listed: to comes from a list (for texts). */
enum { NIFTI_MAPPED = 4096 };
struct nifti_map { bool binary, listed; int classes; int16_t to[NIFTI_MAPPED]; };
/* Adds "LABEL=CLASS", "FIRST-LAST=CLASS" or "*=CLASS", for labels that no earlier entry names. 78 without a place. */
int nifti_map_add(struct nifti_map *m, const char *s, struct err *e);
/* The labels of a file of one channel. 65 if one is not an integer or not in the map. */
int nifti_labels(const struct nifti *f, const struct nifti_map *map, uint8_t *labels, struct err *e);

/* Appends a complete gzip file of labels (uint8), one per voxel of f. It has f's version, byte order, sizes and affine,
 * but not its fields about values nor its extensions. The bytes are a function of these alone. */
void nifti_add(struct text *out, const struct nifti *f, const uint8_t *labels);
/* Did nifti_add make this open file? A comment of gzip says so; programs that rewrite the labels lose it. */
bool nifti_is_added(int fd, const char *path);

#endif
