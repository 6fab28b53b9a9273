/* What image formats share: shape agreement with the model, padding, channel repeat, normalisation, targets. */
#ifndef DATA_IMAGE_H
#define DATA_IMAGE_H
#include "data/ds.h"

struct image_form {                                      /* how stored pixels become an input */
    int64_t channels, height, width;                     /* as stored */
    int64_t repeat, out_height, out_width;               /* repeat a single channel; pad with zeros, centred (as torchvision's Pad before Normalize) */
    double mean[CONF_LIST], std[CONF_LIST];              /* of each output channel */
};
/* 78 or 65 (naming file and both shapes) when the stored images cannot become `input`. */
int image_form_make(const struct conf *c, const char *file, int64_t channels, int64_t height, int64_t width, const struct shape *input, struct image_form *f, struct err *e);
void image_convert(const struct image_form *f, const uint8_t *pixel, float *x);
/* A class as the model wants it: I64 scalar, or one-hot F32. */
void target_write(int64_t cls, const struct shape *target, enum dtype type, void *y);
int64_t target_classes(const struct conf *c, const struct shape *target, enum dtype type);   /* how many there may be; INT64_MAX: unknown */
#endif
