/* Changes colours of pictures, to the bit as Pillow's ImageEnhance and ImageOps, and torchvision on Pillow's pictures,
 * do. For augmentations; the canvas has pixels. A factor of 1 changes nothing. */
#ifndef DATA_COLOURS_H
#define DATA_COLOURS_H
#include "data/canvas.h"

void colours_brightness(struct canvas *c, double factor);  /* 0: black */
void colours_contrast(struct canvas *c, double factor);    /* 0: the mean grey */
void colours_saturation(struct canvas *c, double factor);  /* 0: grey */
/* 0: smoothed by the kernel 1 1 1, 1 5 1, 1 1 1 over 13; the outermost pixels stay */
void colours_sharpness(struct canvas *c, double factor);
void colours_hue(struct canvas *c, double turn);           /* -0.5 to 0.5 of the circle, in steps of 1/255 */
void colours_posterize(struct canvas *c, int bits);        /* keeps that many of the 8 bits, 0 to 8 */
void colours_solarize(struct canvas *c, double from);      /* inverts values from `from` on */
void colours_autocontrast(struct canvas *c);               /* per colour, the minimum becomes 0, the maximum 255 */
void colours_equalize(struct canvas *c);                   /* per colour, makes all values about equally frequent */

#endif
