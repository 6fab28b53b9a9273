/* Only for the decoders of pictures, picture_jpeg.c, picture_png.c and picture_raw.c, for picture_upright.c, and for
 * picture.c, which selects a decoder. */
#ifndef DATA_PICTURE_INT_H
#define DATA_PICTURE_INT_H
#include "data/picture.h"

/* First member of each decoder's own struct, which picture_open allocates. */
struct picture {
    const struct picture_kind *kind;
    const char *path;
    const uint8_t *bytes;
    size_t n;
    int width, height, orientation, rows;                /* rows: number of rows read */
    struct picture_part part;                            /* set by picture_begin */
};

struct picture_kind {
    const char *name;
    size_t magic_n;
    const char *magic;                                   /* the first bytes of such a file */
    size_t bytes;                                        /* size of the decoder's struct */
    /* open sets width, height and orientation, and allocates nothing by their size; size_check checks them
     * afterwards */
    int (*open)(struct picture *p, struct err *e);
    size_t (*memory)(const struct picture *p);
    void (*shrink)(struct picture *p, int by);           /* 2, 4 or 8; NULL: unsupported */
    int (*begin)(struct picture *p, struct err *e);
    int (*row)(struct picture *p, uint8_t *out, struct err *e);
    int (*skip)(struct picture *p, int rows, struct err *e);   /* skips at least one row */
    void (*close)(struct picture *p);                    /* also after a failed open */
};
extern const struct picture_kind picture_jpeg, picture_png, picture_raw;

int picture_damaged(const struct picture *p, const char *why, struct err *e);

#endif
