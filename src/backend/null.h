/* Counts of the null backend's calls. For tests only. */
#ifndef BACKEND_NULL_H
#define BACKEND_NULL_H
#include "backend/be.h"

/* the value of every element that a forward or a backward kernel writes */
enum { NULL_OUT = 1, NULL_GRAD = 2 };
struct null_count {
    uint64_t alloc, free, bytes, copy, prepare, run[PH_COUNT], pack, add, sumsq, update, stats, done;
};
/* Counts since open; bytes: allocated and not freed. Thread: the one that opened b. */
const struct null_count *null_counts(const struct be *b);

#endif
