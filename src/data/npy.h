/* NumPy's .npy files, versions 1 to 3, C order, little-endian plain numbers. Object arrays (pickle) and structured
 * types are refused.
 *
 * Elements are read by position, so a file that shrinks while in use is an error. Any thread: a handle does not change
 * after npy_open. */
#ifndef DATA_NPY_H
#define DATA_NPY_H
#include "base/err.h"
#include "model/graph.h"

enum npy_type { NPY_F4, NPY_F8, NPY_I4, NPY_I8, NPY_U1 };  /* <f4 <f8 <i4 <i8 |u1 */
/* path is the caller's; begin: offset of the first element */
struct npy { const char *path; int fd; enum npy_type type; struct shape shape; uint64_t begin; };

size_t npy_type_bytes(enum npy_type t);
const char *npy_type_name(enum npy_type t);
/* 66 if the file is missing, 65 "PATH: offset N: ..." if its header does not exactly follow the format, or does not
 * match its size. */
int npy_open(const char *path, struct npy *f, struct err *e);
/* Elements [first, first + n) as stored, or converted to float. 65 if the file has become shorter. */
int npy_read(const struct npy *f, uint64_t first, uint64_t n, void *out, struct err *e);
int npy_read_float(const struct npy *f, uint64_t first, uint64_t n, float *out, struct err *e);
/* Reads integers into n elements of 64 bits. Not for a file of floats. */
int npy_read_integers(const struct npy *f, uint64_t first, uint64_t n, int64_t *out, struct err *e);
void npy_close(struct npy *f);
/* Appends a whole version 1 file, the same bytes as numpy.save. */
void npy_add(struct text *out, enum npy_type t, const struct shape *s, const void *data);

#endif
