/* Pictures: decoders of every kind against Pillow's pixels, scaling against Pillow's bits, orientation, false headers,
 * and 400 damaged files. tests/torch/images.py makes tests/images/expected. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <jpeglib.h>
#include <zlib.h>
#include "base/text.h"
#include "data/crop_geometry.h"
#include "data/picture.h"
#include "data/resample.h"
#include "files.h"

static char pictures[4096];

static const char *path_of(const char *name, char path[5000])
{
    snprintf(path, 5000, "%s/%s", pictures, name);
    return path;
}

static struct text file_of(const char *name)
{
    char path[5000];
    struct text t = {0};
    struct err e = {0};
    ck_assert_msg(!text_read_bytes(&t, path_of(name, path), 1 << 20, &e), "%s", e.text);
    return t;
}

/* A part's pixels, `bytes` of each; NULL with the error in e. */
static uint8_t *part_read(struct picture *p, const struct picture_part *part, int bytes, struct err *e)
{
    int w = picture_width(p);
    uint8_t *row = malloc((size_t)w * PICTURE_BYTES);
    uint8_t *all = malloc((size_t)part->columns * (size_t)part->rows * (size_t)bytes), *at = all;
    int bad = picture_begin(p, part, e);
    for (int y = 0; y < part->rows && !bad; y++) {
        bad = picture_row(p, row, e);
        if (bytes == 1 && !bad) picture_grey(row + part->left * PICTURE_BYTES, (size_t)part->columns);
        for (int x = part->left; x < part->left + part->columns && !bad; x++, at += bytes)
            memcpy(at, row + x * PICTURE_BYTES, (size_t)bytes);
    }
    if (!bad) bad = picture_finish(p, e);
    free(row);
    if (!bad) return all;
    free(all);
    return NULL;
}

/* The same of a whole picture. */
static uint8_t *decode(const char *name, const struct text *t, int bytes, struct picture **out, struct err *e)
{
    struct picture *p;
    if (picture_open(name, (const uint8_t *)t->s, t->n, &p, e)) {
        ck_assert_ptr_null(p);
        return NULL;
    }
    struct picture_part part = {0, picture_width(p), 0, picture_height(p)};
    uint8_t *all = part_read(p, &part, bytes, e);
    if (out && all) *out = p;
    else picture_close(p);
    return all;
}

/* Calls f with each line of the table of that kind. */
static int expected(const char *kind, void (*f)(const char *line))
{
    struct text t = file_of("expected");
    int n = 0;
    for (char *save, *line = strtok_r(t.s, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
        if (!strncmp(line, kind, strlen(kind))) {
            f(line);
            n++;
        }
    text_free(&t);
    return n;
}

static void picture_check(const char *line)
{
    char name[100], hash[40], mine[33];
    int w, h, turn;
    struct err e = {0};
    struct picture *p;
    ck_assert_int_eq(sscanf(line, "picture %99s %d %d %d %39s", name, &w, &h, &turn, hash), 5);
    struct text t = file_of(name);
    uint8_t *all = decode(name, &t, 3, &p, &e);
    ck_assert_msg(all != NULL, "%s", e.text);
    ck_assert_int_eq(picture_width(p), w);
    ck_assert_int_eq(picture_height(p), h);
    text_hash(all, (size_t)w * (size_t)h * 3, mine);
    ck_assert_msg(!strcmp(mine, hash), "%s: pixels are not Pillow's", name);
    static const int turns[9] = {0, 0, 1, 3, 2, 4, 6, 7, 5};   /* bits: columns, rows flipped, swapped */
    struct picture_turn k = picture_turned(p);
    ck_assert_msg((k.swap << 2 | k.flip_rows << 1 | k.flip_columns) == turns[turn], "%s", name);
    ck_assert_int_eq(picture_row(p, all, &e), -1);
    expect(&e, E_INTERNAL, "row 29 of 29");
    picture_close(p);
    free(all);
    text_free(&t);
}

static void grey_check(const char *line)
{
    char name[100], hash[40], mine[33];
    struct err e = {0};
    ck_assert_int_eq(sscanf(line, "grey %99s %39s", name, hash), 2);
    struct text t = file_of(name);
    uint8_t *all = decode(name, &t, 1, NULL, &e);
    ck_assert_msg(all != NULL, "%s", e.text);
    text_hash(all, 37 * 29, mine);
    ck_assert_msg(!strcmp(mine, hash), "%s: its grey is not Pillow's", name);
    free(all);
    text_free(&t);
}

START_TEST(pixels_are_pillows)
{
    ck_assert_int_eq(expected("picture ", picture_check), 22);
    ck_assert_int_eq(expected("grey ", grey_check), 2);
}
END_TEST

static void scaled_check(const char *line)
{
    char hash[40], mine[33];
    struct crop_place place = {0};
    struct resample_want w = {0};
    long long tw, th, left, top;
    ck_assert_int_eq(sscanf(line, "scaled %d %d %lld %lld %lld %lld %d %d %39s", &w.width, &w.height, &tw, &th, &left,
                            &top, &w.n_columns, &w.n_rows, hash), 9);
    w.to_width = tw, w.to_height = th, w.left = left, w.top = top;
    place.window = w;
    crop_order(&place);
    w = place.window;
    struct resample r = {0};
    uint8_t *row = malloc((size_t)w.width * PICTURE_BYTES);
    for (int wide = 0; wide < 2; wide++) {
        struct text out = {0};
        resample_begin(&r, &w);
        if (!wide) r.wide = false;                         /* as on a processor without AVX2 */
        struct picture_part part = resample_part(&r);
        for (int y = part.top; y < part.top + part.rows; y++) {
            memset(row, 0, (size_t)w.width * PICTURE_BYTES);
            for (int x = part.left; x < part.left + part.columns; x++) {
                uint8_t *p = row + x * PICTURE_BYTES;
                p[0] = (uint8_t)(x * 7 + y * 13);
                p[1] = (uint8_t)(x * x + 50 * y);
                p[2] = (uint8_t)(x * y / 3 + 90);
                p[3] = 77;
            }
            resample_row(&r, row);
        }
        for (int y = 0; y < w.n_rows; y++)
            for (int x = 0; x < w.n_columns; x++) text_add_bytes(&out, resample_window(&r, y) + x * PICTURE_BYTES, 3);
        text_hash(out.s, out.n, mine);
        ck_assert_msg(!strcmp(mine, hash), "%s (wide %d)", line, wide);
        text_free(&out);
    }
    resample_free(&r);
    free(row);
}

START_TEST(scaling_is_pillows)
{
    ck_assert_int_eq(expected("scaled ", scaled_check), 15);
}
END_TEST

/* torchvision's Resize and CenterCrop, by hand: sizes, where the window begins, padding. */
START_TEST(frames)
{
    static const struct { struct crop_frame f; int w, h; int64_t tw, th, left, top; int cols, rows, at_col, at_row;
    } of[] = {
        {{224, 224, {0}, {0}}, 500, 375, 298, 224, 37, 0, 224, 224, 0, 0},
        {{224, 224, {256}, {0}}, 375, 500, 256, 341, 16, 58, 224, 224, 0, 0},     /* 58.5 becomes 58 */
        {{224, 224, {256}, {0}}, 375, 504, 256, 344, 16, 60, 224, 224, 0, 0},
        {{4, 4, {0}, {0}}, 7, 4, 7, 4, 2, 0, 4, 4, 0, 0},                         /* 1.5 becomes 2 */
        {{10, 20, {0}, {0}}, 30, 30, 20, 20, 0, 5, 20, 10, 0, 0},                 /* covers, though no square */
        {{20, 10, {0}, {0}}, 30, 10, 60, 20, 25, 0, 10, 20, 0, 0},
        {{9, 8, {5, 6}, {9, 8}}, 9, 9, 6, 5, 0, 0, 6, 5, 1, 2},
        {{8, 9, {5, 6}, {8, 9}}, 9, 9, 6, 5, 0, 0, 6, 5, 1, 1},
        {{4, 4, {0}, {9, 9}}, 4, 4, 4, 4, 0, 0, 4, 4, 0, 0},
    };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        struct crop_frame f = of[i].f;
        struct crop_place p = crop_place(&f, of[i].w, of[i].h, (struct picture_turn){0});
        ck_assert_msg(p.window.to_width == of[i].tw && p.window.to_height == of[i].th, "%zu: %lldx%lld", i,
                      (long long)p.window.to_width, (long long)p.window.to_height);
        ck_assert_msg(p.window.left == of[i].left && p.window.top == of[i].top && p.columns == of[i].cols &&
                      p.rows == of[i].rows && p.left == of[i].at_col && p.top == of[i].at_row,
                      "%zu: %lld %lld, %dx%d at %d %d", i, (long long)p.window.left, (long long)p.window.top, p.columns,
                      p.rows, p.left, p.top);
    }
    /* upside down, an odd pixel is on the other side; on its side, height and width change places */
    struct crop_frame f = {.height = 4, .width = 4};
    struct crop_place p = crop_place(&f, 7, 4, (struct picture_turn){.flip_columns = true});
    ck_assert(p.window.left == 1 && p.columns == 4);
    p = crop_place(&f, 7, 4, (struct picture_turn){.swap = true, .flip_rows = true});
    ck_assert(p.window.to_width == 7 && p.window.to_height == 4 && p.window.left == 2 && p.window.n_rows == 4);
}
END_TEST

static void refused(struct text *t, const char *part)
{
    struct err e = {0};
    ck_assert_ptr_null(decode("a.jpg", t, 3, NULL, &e));
    expect(&e, E_DATA, part);
    ck_assert_msg(!strncmp(e.text, "a.jpg: ", 7), "%s", e.text);
}

/* Sizes in the header; what a small file says costs no memory. */
START_TEST(headers_that_lie)
{
    struct text t = {0};
    refused(&t, "a.jpg:");
    text_add_bytes(&t, "GIF89a\1\0\1\0\0\0\0,\0\0\0\0", 18);
    refused(&t, "a.jpg: this is a GIF picture, not JPEG or PNG");
    text_free(&t);
    t = file_of("progressive.jpg");
    size_t at = 0;                                        /* the frame: FF C2, length, 8 bits, height, width */
    while ((uint8_t)t.s[at] != 0xff || (uint8_t)t.s[at + 1] != 0xc2) at++;
    memcpy(t.s + at + 5, "\xff\xdc\xff\xdc", 4);
    refused(&t, "JPEG|65500x65500|65500|134217728");
    memcpy(t.s + at + 5, "\0\0\0\1", 4);
    refused(&t, "a.jpg: ");
    text_free(&t);
    t = file_of("rgb.png");
    memcpy(t.s + 16, "\0\1\0\0\0\0\0\1", 8);              /* its checksum is wrong, too */
    refused(&t, "a.jpg: damaged PNG: IHDR: CRC error");
    memcpy(t.s + 16, "\x7f\xff\xff\xff\0\1\0\0", 8);
    uint32_t sum = htonl((uint32_t)crc32(0, (const uint8_t *)t.s + 12, 17));
    memcpy(t.s + 29, &sum, sizeof sum);
    refused(&t, "PNG|2147483647x65536|65500");
    text_free(&t);
}
END_TEST

START_TEST(files_that_are_cut_off)
{
    static const char *const name[] = {"rgb.jpg", "progressive.jpg", "rgb.png", "interlaced.png"};
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        struct text t = file_of(name[i]);
        size_t all = t.n;
        for (t.n = all / 8; t.n < all - 40; t.n += all / 8) refused(&t, "the file ends too early");
        t.n = all - 2;                                    /* of a JPEG only the marker of the end */
        struct err e = {0};
        uint8_t *pixels = decode("a.jpg", &t, 3, NULL, &e);
        ck_assert_int_eq(!!pixels, i != 1);
        free(pixels);
        text_free(&t);
    }
}
END_TEST

/* Any damage is read over or refused in one line with the name; sanitizers see the rest. */
START_TEST(damaged_files)
{
    static const char *const name[] = {"rgb.jpg", "whole.jpg", "progressive.jpg", "grey.jpg", "ink.jpg", "turned6.jpg",
                                       "palette.png", "alpha.png", "deep.png", "interlaced.png"};
    enum { EACH = 40 };
    uint32_t random = 1;
    int sound = 0;
    for (size_t i = 0; i < sizeof name / sizeof *name; i++)
        for (int k = 0; k < EACH; k++) {
            struct text t = file_of(name[i]);
            for (int n = 0; n <= k % 4; n++) {
                random = random * 1664525 + 1013904223;
                t.s[(random >> 8) % t.n] = (char)(random >> 24);
            }
            if (k % 5 == 4) t.n = (random >> 4) % t.n;
            struct err e = {0};
            uint8_t *copy = malloc(t.n + 1);
            memcpy(copy, t.s, t.n);
            struct text exact = {(char *)copy, t.n, t.n};
            struct picture *p = NULL;
            uint8_t *pixels = decode("a.jpg", &exact, 3, &p, &e);
            if (!pixels) ck_assert_msg(e.code == E_DATA && !strncmp(e.text, "a.jpg: ", 7), "%d %s", e.code, e.text);
            picture_close(pixels ? p : NULL);
            sound += pixels != NULL;
            free(pixels);
            free(copy);
            text_free(&t);
        }
    ck_assert_int_gt(sound, 40);
    ck_assert_int_lt(sound, 360);
}
END_TEST

/* ---- parts and smaller sizes ------------------------------------------------------------------------------------- */

enum { WIDE = 301, HIGH = 211 };
struct making { int across, down, components, restart; bool progressive; };

/* A JPEG of so many samples of colour a pixel, of stripes, circles and noise. */
static struct text jpeg_make(const struct making *m)
{
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr error;
    unsigned char *out = NULL;
    unsigned long n = 0;
    uint8_t row[WIDE * 3];
    JSAMPROW rows[] = {row};
    struct text t = {0};
    c.err = jpeg_std_error(&error);
    jpeg_create_compress(&c);
    jpeg_mem_dest(&c, &out, &n);
    c.image_width = WIDE, c.image_height = HIGH;
    c.input_components = m->components;
    c.in_color_space = m->components == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(&c);
    jpeg_set_quality(&c, 85, TRUE);
    c.comp_info[0].h_samp_factor = m->across, c.comp_info[0].v_samp_factor = m->down;
    c.restart_interval = (unsigned)m->restart;
    if (m->progressive) jpeg_simple_progression(&c);
    jpeg_start_compress(&c, TRUE);
    uint32_t random = 7;
    for (int y = 0; y < HIGH; y++) {
        for (int i = 0; i < WIDE * m->components; i++) {
            int x = i / m->components, k = i % m->components;
            random = random * 1664525 + 1013904223;
            bool inside = (x - 99) * (x - 99) + y * y < 9000;
            row[i] = (uint8_t)((x * (k + 1) / 3 + y) % 256 / 2 + inside * 90 + (int)(random >> 28));
        }
        jpeg_write_scanlines(&c, rows, 1);
    }
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
    text_add_bytes(&t, out, n);
    free(out);
    return t;
}

static const struct making makings[] = {{1, 1, 3, 0, false}, {2, 1, 3, 0, false}, {2, 2, 3, 0, false},
                                        {1, 2, 3, 5, false}, {1, 1, 1, 0, false}, {2, 2, 3, 7, true},
                                        {4, 1, 3, 0, false}};
enum { MAKINGS = sizeof makings / sizeof *makings };

/* Shrunk to cover w x h; *wide: how wide it has become. */
static uint8_t *shrunk(const struct text *t, const struct picture_part *part, int64_t w, int64_t h, int *wide,
                       struct err *e)
{
    struct picture *p;
    if (picture_open("a.jpg", (const uint8_t *)t->s, t->n, &p, e)) return NULL;
    picture_shrink(p, w, h);
    *wide = picture_width(p);
    struct picture_part whole = {0, picture_width(p), 0, picture_height(p)};
    uint8_t *all = part_read(p, part ? part : &whole, 3, e);
    picture_close(p);
    return all;
}

static void parts_check(const struct text *t, int64_t w, int64_t h)
{
    struct err e = {0};
    int wide, again;
    uint8_t *all = shrunk(t, NULL, w, h, &wide, &e);
    ck_assert_msg(all != NULL, "%s", e.text);
    uint32_t random = 5;
    for (int k = 0; k < 60; k++) {
        int at[4], high = HIGH * wide / WIDE;
        for (int i = 0; i < 4; i++) {
            random = random * 1664525 + 1013904223;
            at[i] = (int)((random >> 9) % (uint32_t)(i < 2 ? wide : high));
        }
        struct picture_part part = {at[0] < at[1] ? at[0] : at[1], abs(at[0] - at[1]) + 1,
                                    at[2] < at[3] ? at[2] : at[3], abs(at[2] - at[3]) + 1};
        uint8_t *some = shrunk(t, &part, w, h, &again, &e);
        ck_assert_msg(some != NULL, "%s", e.text);
        for (int y = 0; y < part.rows; y++)
            ck_assert_msg(!memcmp(some + y * part.columns * 3, all + ((part.top + y) * wide + part.left) * 3,
                                  (size_t)part.columns * 3), "%d columns from %d on, row %d of %d from %d on",
                          part.columns, part.left, y, part.rows, part.top);
        free(some);
    }
    free(all);
}

START_TEST(parts_are_those_of_the_whole)
{
    struct text t = jpeg_make(&makings[_i]);
    parts_check(&t, WIDE, HIGH);
    parts_check(&t, 100, 50);
    parts_check(&t, 75, 52);
    parts_check(&t, 1, 1);
    text_free(&t);
}
END_TEST

/* A file is sound or not, whichever part of it somebody wants. */
START_TEST(damage_does_not_depend_on_the_part)
{
    static const struct picture_part few = {20, 9, 20, 9}, none = {0, 1, HIGH - 1, 1};
    struct text t = jpeg_make(&makings[_i]);
    uint32_t random = 3;
    int sound = 0, wide;
    for (int k = 0; k < 60; k++) {
        struct text bad = {0};
        text_add_bytes(&bad, t.s, t.n);
        random = random * 1664525 + 1013904223;
        if (k % 2) bad.n = t.n / 3 + (random >> 8) % (t.n * 2 / 3);
        else bad.s[700 + (random >> 8) % (t.n - 700)] ^= (char)(random >> 4 | 1);
        struct err e[3] = {0};
        uint8_t *x[3] = {shrunk(&bad, NULL, WIDE, HIGH, &wide, &e[0]), shrunk(&bad, &few, WIDE, HIGH, &wide, &e[1]),
                         shrunk(&bad, &none, WIDE, HIGH, &wide, &e[2])};
        for (int i = 0; i < 3; i++) {
            ck_assert_msg(!x[i] == !x[0], "%d: %s, %s", k, e[0].text, e[i].text);
            ck_assert_str_eq(e[i].text, e[0].text);
        }
        sound += x[0] != NULL;
        for (int i = 0; i < 3; i++) free(x[i]);
        text_free(&bad);
    }
    ck_assert(sound > 5 && sound < 55);
    text_free(&t);
}
END_TEST

static void all(TCase *t)
{
    tcase_add_test(t, pixels_are_pillows);
    tcase_add_test(t, scaling_is_pillows);
    tcase_add_test(t, frames);
    tcase_add_test(t, headers_that_lie);
    tcase_add_test(t, files_that_are_cut_off);
    tcase_add_test(t, damaged_files);
    tcase_add_loop_test(t, parts_are_those_of_the_whole, 0, MAKINGS);
    tcase_add_loop_test(t, damage_does_not_depend_on_the_part, 0, MAKINGS);
}

int main(void)
{
    const char *srcdir = getenv("srcdir");
    char *full = realpath(srcdir ? srcdir : ".", NULL);
    snprintf(pictures, sizeof pictures, "%s/tests/images", full ? full : ".");
    free(full);
    return scratch_suite("picture", all);
}
