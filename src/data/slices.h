/* A slice through a volume as a picture, with outlines of labels. Pure; any thread. */
#ifndef DATA_SLICES_H
#define DATA_SLICES_H
#include <stdint.h>

/* Volumes are [x][y][z] as in volume.h; truth or guess may be NULL: none. */
struct slices { const float *values; const uint8_t *truth, *guess; int64_t size[3]; };
/* The z whose slice has the most labelled voxels, in truth if given. Among equal slices, or without labels, the one
 * nearest to the middle. */
int64_t slices_best(const struct slices *s);
/* Draws slice z in the middle of a black RGB picture, x to the right and y up. Values are grey from minimum to maximum.
 * The outline of the truth is green, that of the guess red, both together yellow. Anything that does not fit is cut
 * off. An outline is the voxels of a class with a neighbour of another class. */
void slices_draw(const struct slices *s, int64_t z, uint8_t *rgb, int height, int width);

#endif
