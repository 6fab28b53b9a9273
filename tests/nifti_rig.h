/* NIfTI files for tests, made byte by byte, without the code under test. */
#ifndef TESTS_NIFTI_RIG_H
#define TESTS_NIFTI_RIG_H
#include <stdbool.h>
#include "base/text.h"
#include "files.h"

/* version 1 or 2; type: the format's code; swapped: big-endian; affine: the sform, NULL: none. pixdim: qfac and three
 * sides. */
struct nifti_made {
    int version, type, n_dims;
    int64_t dim[7];
    double pixdim[4], slope, inter;
    const double (*affine)[4];
    int sform, qform;
    double quatern[3], qoffset[3];
    uint64_t offset;                                     /* 0: right after the header */
    bool swapped;
};
/* The header, zeros up to the offset, and the values as the type stores them. */
void nifti_make(const struct nifti_made *m, const double *values, struct text *out);
void nifti_put(const char *path, const struct nifti_made *m, const double *values);
void gzip_put(const char *path, const void *p, size_t n);
/* Changes bytes of a file made by nifti_make. */
void nifti_poke(struct text *file, const struct nifti_made *m, size_t at, int bytes, uint64_t bits);
uint64_t bits_of(double x, int bytes);                   /* of a float or double */

#endif
