/* Raw pixels: one plane of bytes for each of one or three colours. Such a file cannot be damaged. */
#include "data/picture_int.h"

static int raw_begin(struct picture *p, struct err *e)
{
    (void)p;
    (void)e;
    return 0;
}

static size_t raw_memory(const struct picture *p)
{
    (void)p;
    return 0;
}

static int raw_skip(struct picture *p, int rows, struct err *e)
{
    (void)p;
    (void)rows;
    (void)e;
    return 0;
}

static int raw_row(struct picture *p, uint8_t *out, struct err *e)
{
    const size_t plane = (size_t)p->width * (size_t)p->height, first = (size_t)(p->rows - 1) * (size_t)p->width;
    const size_t next = p->n == plane ? 0 : plane;        /* one plane serves all colours */
    const uint8_t *from = p->bytes + first;
    (void)e;
    for (int x = 0; x < p->width; x++, out += PICTURE_BYTES)
        for (size_t k = 0; k < 3; k++) out[k] = from[(size_t)x + k * next];
    return 0;
}

static void raw_close(struct picture *p) { (void)p; }

const struct picture_kind picture_raw = {
    .name = "image", .bytes = sizeof(struct picture), .memory = raw_memory, .begin = raw_begin, .row = raw_row,
    .skip = raw_skip, .close = raw_close,
};
