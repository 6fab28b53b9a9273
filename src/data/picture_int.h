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
    int width, height, orientation, rows;                /* rows: that have been read */
    struct picture_part part;                            /* once it is begun */
};

struct picture_kind {
    const char *name;
    size_t magic_n;
    const char *magic;                                   /* what such a file begins with */
    size_t bytes;                                        /* of its struct */
    /* open fills in width, height and orientation, and takes no memory by them; picture_size looks at them behind it */
    int (*open)(struct picture *p, struct err *e);
    size_t (*memory)(const struct picture *p);
    void (*shrink)(struct picture *p, int by);           /* 2, 4 or 8; NULL: it cannot */
    int (*begin)(struct picture *p, struct err *e);
    int (*row)(struct picture *p, uint8_t *out, struct err *e);
    int (*skip)(struct picture *p, int rows, struct err *e);   /* passes over at least one row */
    void (*close)(struct picture *p);                    /* also after an open that failed */
};
extern const struct picture_kind picture_jpeg, picture_png, picture_raw;

int picture_damaged(const struct picture *p, const char *why, struct err *e);

#endif
