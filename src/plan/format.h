/* How values are stored: their type, their order in memory, and what belongs to them. Every stored value has a format:
 * tensors and parameters of a selection (plan/select.h), rows of state in memory and in files (plan/state.h). Bytes of
 * all of them come from here. Pure, any thread. */
#ifndef PLAN_FORMAT_H
#define PLAN_FORMAT_H
#include "model/graph.h"

/* Row-major; channels in blocks, nC..8c or nC..16c (only where the channels fill them); channels last, n..C: a row for
 * each point, as tokens have it. NONE: of a function without an answer. */
enum layout { LAYOUT_PLAIN, LAYOUT_BLOCKED, LAYOUT_LAST, LAYOUT_NONE = -1 };
/* ROW: each row (index of the first dimension) has a factor, an F32 behind the values. */
enum scale { SCALE_NONE, SCALE_ROW };
/* block: channels of a block; with LAYOUT_LAST, the number to whose multiple channels are padded. At least 1. */
struct format { enum dtype type; enum layout layout; int block; enum scale scale; };

static inline struct format format_plain(enum dtype type) { return (struct format){type, LAYOUT_PLAIN, 1, SCALE_NONE}; }
static inline int format_lanes(const struct format *f) { return f->layout == LAYOUT_BLOCKED ? f->block : 1; }
const char *format_layout_name(const struct format *f);  /* "plain", "blocked8", "last" */
/* Channels of this shape as stored: padded. A shape without dimensions has one. */
int64_t format_channels(const struct format *f, const struct shape *s);
/* Bytes of values of this shape, factors included. */
size_t format_bytes(const struct format *f, const struct shape *s);

/* n = shape_count(s) values <-> floats in the same order. Types: F32, BF16, F16 (base/half.h), I8 with SCALE_ROW.
 * I8: q = rint(w (1 / s 127)), ties to even, and w = q (s / 127), in float; s is the largest |w| of the row. Rows
 * without values over 65504 are first rounded to binary16, as bitsandbytes does; narrowing what was widened then gives
 * the same bits. A row of zeros has s = 0, a row with NaN or infinity NaN. */
void format_widen(const struct format *f, const struct shape *s, const void *stored, float *to);
/* Of values with SCALE_ROW: s of each row; and what a code of 1 is worth. */
const float *format_factors(const struct format *f, const struct shape *s, const void *stored);
static inline float format_code_unit(float factor) { return factor / 127; }
/* -1, or the index of the first finite value that is too large for the type. */
int64_t format_narrow(const struct format *f, const struct shape *s, const float *from, void *stored);

#endif
