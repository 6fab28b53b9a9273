/* Records of different lengths in rows of one length. Pure. */
#ifndef DATA_PACKING_H
#define DATA_PACKING_H
#include <stdint.h>

/* Row i has the records record[begin[i]] to record[begin[i + 1] - 1], one after the other. */
struct packing { uint64_t rows, *begin; uint32_t *record; };
/* First fit: takes records in their order, each into the first of at most 64 open rows that has room for it. When a new
 * row is needed and 64 are open, the fullest is closed. Rows are numbered in the order in which they close. length: of
 * n records, 1 to room; order: of the records. packing_free frees it. */
void packing_make(const uint32_t *length, const uint32_t *order, uint64_t n, uint32_t room, struct packing *out);
void packing_free(struct packing *p);
#endif
