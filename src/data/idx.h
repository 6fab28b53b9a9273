/* IDX files (MNIST and the like), plain or gzip by content: bytes 0 0 8 RANK, a big-endian u32 for each dimension,
 * unsigned bytes row-major. */
#ifndef DATA_IDX_H
#define DATA_IDX_H
#include <stdint.h>
#include "base/err.h"

enum { IDX_RANK = 4 };
struct idx_file { int rank; uint64_t dim[IDX_RANK]; uint8_t *data; uint64_t bytes; };   /* data: free() it */

/* Offset of the first element in the uncompressed file. */
uint64_t idx_offset(const struct idx_file *f);

/* Loads a whole file of lo to hi dimensions. 66 if it is missing; 65 "PATH: offset N: ..." for any error in it, N in
 * the uncompressed bytes. A plain file's dimensions are compared with its size before allocating. For a gzip file
 * memory grows with the unpacked data. */
int idx_file_load(const char *path, int lo, int hi, struct idx_file *f, struct err *e);

#endif
