/* A slice through a volume as a picture, with the outlines of labels. Pure; any thread. */
#ifndef DATA_SLICES_H
#define DATA_SLICES_H
#include <stdint.h>

/* Volumes are [x][y][z] as volume.h has them; truth or guess may be NULL: there is none. */
struct slices { const float *values; const uint8_t *truth, *guess; int64_t size[3]; };
/* The z whose slice has the most voxels of a class, of the truth if there is one; of equal ones, or without any, the
 * one nearest to the middle. */
int64_t slices_best(const struct slices *s);
/* Draws slice z about the middle of a black picture of red, green and blue, x to the right and y up: grey from its
 * least value to its greatest; the outline of the truth is green, that of the guess red, and where they meet yellow.
 * What finds no room is cut off. An outline is the voxels of a class that have a neighbour of another one. */
void slices_draw(const struct slices *s, int64_t z, uint8_t *rgb, int height, int width);

#endif
