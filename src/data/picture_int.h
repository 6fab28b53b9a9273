/* For the decoders of pictures only: picture_jpeg.c and picture_png.c, and picture.c, which chooses. */
#ifndef DATA_PICTURE_INT_H
#define DATA_PICTURE_INT_H
#include "data/picture.h"

/* First member of each decoder's own struct, which its open allocates. */
struct picture {
    const struct picture_kind *kind;
    const char *path;
    const uint8_t *bytes;
    size_t n;
    int width, height, orientation, warnings, rows;      /* rows: that have been read */
};

struct picture_kind {
    const char *name;
    size_t magic_n;
    const char *magic;                                   /* what such a file begins with */
    size_t bytes;                                        /* of its struct */
    int (*open)(struct picture *p, struct err *e);       /* fills in width, height and orientation; then calls
                                                          * picture_size before it takes memory by them */
    int (*row)(struct picture *p, uint8_t *out, struct err *e);
    void (*close)(struct picture *p);                    /* also after an open that failed */
};
extern const struct picture_kind picture_jpeg, picture_png;

int picture_size(const struct picture *p, struct err *e);
int picture_damaged(const struct picture *p, const char *why, struct err *e);

#endif
