/* Records of different lengths in rows of one length. Pure. */
#ifndef DATA_PACKING_H
#define DATA_PACKING_H
#include <stdint.h>

/* Row i has the records record[begin[i]] to record[begin[i + 1] - 1], one after the other. */
struct record_rows { uint64_t rows, *begin; uint32_t *record; };
/* First fit: takes records in their order, each into the first of at most 64 open rows that has room for it. When a new
 * row is needed and 64 are open, the fullest is closed. Rows are numbered in the order in which they close. length: of
 * n records, 1 to room; order: of the records. rows_free frees it. */
void rows_pack(const uint32_t *length, const uint32_t *order, uint64_t n, uint32_t room, struct record_rows *out);
void rows_free(struct record_rows *p);
#endif
