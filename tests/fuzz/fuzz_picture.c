/* Pictures: a refusal is 65 in one line with the name; an accepted picture has a size within the limits, and a part of
 * it is read to the end. */
#include "refusal.h"
#include "data/picture.h"

/* What libraries do for each of many rows, and allocate for a large picture, says nothing about us, and takes the
 * fuzzer's time: one input in sixteen may have a million pixels. */
enum { PIXELS = 1 << 20, FEW_PIXELS = 1 << 14, FEW_ROWS = 256 };

static bool quick(const struct picture *p, size_t size)
{
    int64_t w = picture_width(p), h = picture_height(p);
    if (size % 16 && (w * h > FEW_PIXELS || h > FEW_ROWS)) return false;
    return w * h <= PIXELS && picture_memory(p) < 64 * PIXELS;
}

static void refused(const struct err *e)
{
    must(e->code == E_DATA && !strncmp(e->text, "name: ", 6));
    for (const char *s = e->text; *s; s++) must((unsigned char)*s >= 0x20);
}

static void part_read(struct picture *p, int seed, struct err *e)
{
    int w = picture_width(p), h = picture_height(p);
    if (seed & 1) picture_shrink(p, w / 3 + 1, h / 5 + 1);
    must(picture_width(p) <= w && picture_height(p) <= h);
    w = picture_width(p), h = picture_height(p);
    const struct picture_part part = {.left = seed * 7 % w, .columns = w - seed * 7 % w, .top = seed * 3 % h,
                                      .rows = (h - seed * 3 % h + 1) / 2};
    uint8_t *row = malloc((size_t)w * PICTURE_BYTES);
    must(row != NULL);
    int bad = picture_begin(p, &part, e);
    for (int i = 0; i < part.rows && !bad; i++) bad = picture_row(p, row, e);
    if (!bad) {
        struct err over = {0};
        must(picture_row(p, row, &over) && over.code == E_INTERNAL);
        bad = picture_finish(p, e);
    }
    if (bad) refused(e);
    free(row);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err e = {0};
    struct picture *p;
    if (picture_open("name", data, size, &p, &e)) {
        must(!p);
        refused(&e);
        return 0;
    }
    int64_t w = picture_width(p), h = picture_height(p);
    must(w >= 1 && h >= 1 && w <= PICTURE_SIDE && h <= PICTURE_SIDE && w * h <= PICTURE_PIXELS);
    picture_turned(p);
    if (quick(p, size)) part_read(p, size ? data[size / 2] : 0, &e);
    picture_close(p);
    return 0;
}
