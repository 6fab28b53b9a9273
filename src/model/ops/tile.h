/* Points or channels that reference kernels process together, one sum each. */
#ifndef OPS_TILE_H
#define OPS_TILE_H
#include <stdint.h>
enum { TILE = 32 };
static inline int tile_size(int64_t all, int64_t from) { return (int)(all - from < TILE ? all - from : TILE); }
#endif
