/* Orientation of pictures: EXIF of all types, XMP, PNG's chunks, and which of them counts. A picture that is scaled
 * first and then turned has the bits of one that is turned first. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include "base/text.h"
#include "data/crop_geometry.h"
#include "data/picture.h"
#include "files.h"

/* With a copy of exactly that size, for sanitizers. */
static int of_copy(int (*find)(const uint8_t *, size_t), const char *s, size_t n)
{
    uint8_t *copy = malloc(n ? n : 1);
    memcpy(copy, s, n);
    int found = find(copy, n);
    free(copy);
    return found;
}

#define BYTES(text) text, sizeof text - 1

START_TEST(orientation_of_exif)
{
    static const struct { const char *s; size_t n; int want; } of[] = {
        {BYTES(""), 0}, {BYTES("MM\0*"), 0}, {BYTES("MM\0*\0\0\0\010\0\1\1\022\0\3\0\0\0\1\0\6\0\0"), 6},
        {BYTES("II*\0\010\0\0\0\1\0\022\1\3\0\1\0\0\0\010\0\0\0"), 8},
        {BYTES("Exif\0\0II*\0\010\0\0\0\1\0\022\1\3\0\1\0\0\0\010\0\0\0"), 8},
        {BYTES("Exif\0\0Exif\0\0II*\0\010\0\0\0\1\0\022\1\3\0\1\0\0\0\010\0\0\0"), 8},
        {BYTES("II\0*\010\0\0\0\1\0\022\1\3\0\1\0\0\0\010\0\0\0"), 8},     /* what some writers make of 42 */
        {BYTES("IM*\0\010\0\0\0\1\0\022\1\3\0\1\0\0\0\010\0\0\0"), 0},     /* no byte order */
        {BYTES("II*\0\010\0\0\0\1\0\022\1\3\0\1\0\0\0\011\0\0\0"), 1},     /* 9 */
        {BYTES("II*\0\010\0\0\0\1\0\022\1\3\0\1\0\0\0\0\0\0\0"), 1},       /* 0 */
        {BYTES("II*\0\010\0\0\0\1\0\022\1\3\0\2\0\0\0\3\0\0\0"), 3},       /* two of them: the first */
        {BYTES("II*\0\010\0\0\0\1\0\022\1\3\0\1\0\0\0\3\0\0"), 0},         /* cut off */
        {BYTES("II*\0\377\377\377\377\1\0\022\1\3\0\1\0\0\0\3\0\0\0"), 0},
        {BYTES("II*\0\024\0\0\0\377\377\022\1\3\0\1\0\0\0\3\0\0\0"), 0},
        /* of the types LONG, SBYTE, SSHORT, SLONG, FLOAT, IFD; BYTE, text and bytes are no numbers */
        {BYTES("II*\0\010\0\0\0\1\0\022\1\4\0\1\0\0\0\6\0\0\0"), 6},
        {BYTES("MM\0*\0\0\0\010\0\1\1\022\0\4\0\0\0\1\0\0\0\6"), 6},
        {BYTES("II*\0\010\0\0\0\1\0\022\1\6\0\1\0\0\0\6\0\0\0"), 6},
        {BYTES("II*\0\010\0\0\0\1\0\022\1\010\0\1\0\0\0\6\0\0\0"), 6},
        {BYTES("II*\0\010\0\0\0\1\0\022\1\011\0\1\0\0\0\6\0\0\0"), 6},
        {BYTES("II*\0\010\0\0\0\1\0\022\1\013\0\1\0\0\0\0\0\300\100"), 6},
        {BYTES("II*\0\010\0\0\0\1\0\022\1\015\0\1\0\0\0\6\0\0\0"), 6},
        {BYTES("II*\0\010\0\0\0\1\0\022\1\1\0\1\0\0\0\6\0\0\0"), 1},
        {BYTES("II*\0\010\0\0\0\1\0\022\1\2\0\2\0\0\0006\0\0\0"), 1},
        {BYTES("II*\0\010\0\0\0\1\0\022\1\7\0\1\0\0\0\6\0\0\0"), 1},
        /* elsewhere: RATIONAL 12 / 2, and beyond the end */
        {BYTES("II*\0\010\0\0\0\1\0\022\1\5\0\1\0\0\0\026\0\0\0\014\0\0\0\2\0\0\0"), 6},
        {BYTES("II*\0\010\0\0\0\1\0\022\1\5\0\1\0\0\0\027\0\0\0\014\0\0\0\2\0\0\0"), 0},
        /* of a type that there is not, then again */
        {BYTES("II*\0\010\0\0\0\2\0\022\1\143\0\1\0\0\0\6\0\0\0\022\1\3\0\1\0\0\0\3\0\0\0"), 3},
    };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        ck_assert_msg(of_copy(picture_exif, of[i].s, of[i].n) == of[i].want, "%zu", i);
}
END_TEST

START_TEST(orientation_of_xmp)
{
    static const struct { const char *s; int want; } of[] = {
        {"", 0}, {"<x/>", 0}, {"tiff:Orientation=\"6\"", 6}, {"<tiff:Orientation>8</tiff:Orientation>", 8},
        {"tiff:Orientation=\"0\"", 1}, {"tiff:Orientation=\"", 0}, {"tiff:Orientation", 0}, {"tiff:Orientation>", 0},
        {"tiff:Orientation='6'", 0}, {"tiff:Orientation tiff:Orientation=\"3\"", 3},
        {"tiff:Orientation=\"5\" tiff:Orientation=\"3\"", 5},
    };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        ck_assert_msg(of_copy(picture_xmp, of[i].s, strlen(of[i].s)) == of[i].want, "%s", of[i].s);
}
END_TEST

/* ---- where it stands --------------------------------------------------------------------------------------------- */

#define EXIF(turn) "II*\0\010\0\0\0\1\0\022\1\3\0\1\0\0\0" turn "\0\0\0"
#define XMP(turn) "<rdf:Description tiff:Orientation=\"" turn "\"/>"
#define RAW(turn) "\nexif\n      26\n49492a000800000001001201\n030001000000" turn "000000\n"

static char folder[4096];

static void picture_of(const char *name, struct text *t)
{
    char path[5000];
    struct err e = {0};
    snprintf(path, sizeof path, "%s/%s", folder, name);
    ck_assert_msg(!text_read_bytes(t, path, 1 << 20, &e), "%s", e.text);
}

static void number_add(struct text *t, size_t n)
{
    uint32_t big = htonl((uint32_t)n);
    text_add_bytes(t, &big, sizeof big);
}

struct chunk { const char *type, *s; size_t n; bool behind, wrong; };

static void chunk_add(struct text *t, const struct chunk *c)
{
    struct text body = {0};
    text_add(&body, "%s", c->type);
    text_add_bytes(&body, c->s, c->n);
    number_add(t, c->n);
    text_add_bytes(t, body.s, body.n);
    number_add(t, crc32(0, (const uint8_t *)body.s, (uInt)body.n) ^ c->wrong);
    text_free(&body);
}

/* 1 to 8; -1: it cannot be opened. */
static int turn_of(const struct text *t)
{
    struct picture *p;
    struct err e = {0};
    if (picture_open("a", (const uint8_t *)t->s, t->n, &p, &e)) return -1;
    struct picture_turn turn = picture_turned(p);
    picture_close(p);
    return turn.swap ? turn.flip_rows ? turn.flip_columns ? 7 : 6 : turn.flip_columns ? 8 : 5
         : turn.flip_rows ? turn.flip_columns ? 3 : 4 : turn.flip_columns ? 2 : 1;
}

static int png_turn(const struct chunk *c, int n)
{
    struct text old = {0}, t = {0};
    picture_of("rgb.png", &old);
    size_t at = 8 + 25, end = old.n - 12;                 /* behind IHDR; before IEND */
    text_add_bytes(&t, old.s, at);
    for (int i = 0; i < n; i++) if (!c[i].behind) chunk_add(&t, &c[i]);
    text_add_bytes(&t, old.s + at, end - at);
    for (int i = 0; i < n; i++) if (c[i].behind) chunk_add(&t, &c[i]);
    text_add_bytes(&t, old.s + end, 12);
    int turn = turn_of(&t);
    text_free(&old);
    text_free(&t);
    return turn;
}

/* Text that is packed, behind `before`. */
static struct text packed(const char *before, size_t n, const char *s)
{
    struct text t = {0};
    Bytef to[1000];
    uLongf size = sizeof to;
    ck_assert_int_eq(compress(to, &size, (const Bytef *)s, strlen(s)), Z_OK);
    text_add_bytes(&t, before, n);
    text_add_bytes(&t, to, size);
    return t;
}

START_TEST(png_chunks)
{
    const struct chunk exif = {"eXIf", BYTES(EXIF("\6")), false, false};
    const struct chunk behind = {"eXIf", BYTES(EXIF("\3")), true, false};
    const struct chunk named = {"eXIf", BYTES("Exif\0\0" EXIF("\6")), false, false};
    const struct chunk wrong = {"eXIf", BYTES(EXIF("\6")), false, true}, none = {"eXIf", BYTES(""), false, false};
    const struct chunk raw = {"tEXt", BYTES("Raw profile type exif\0" RAW("08")), false, false};
    const struct chunk bytes = {"tEXt", BYTES("exif\0" EXIF("\7")), false, false};
    const struct chunk other = {"tEXt", BYTES("Comment\0" XMP("5")), false, false};
    const struct chunk xmp = {"iTXt", BYTES("XML:com.adobe.xmp\0\0\0en\0key\0" XMP("5")), true, false};
    const struct chunk cut = {"iTXt", BYTES("XML:com.adobe.xmp\0\0\0en"), false, false};
    struct text z = packed(BYTES("Raw profile type exif\0\0"), RAW("08"));
    struct text i = packed(BYTES("XML:com.adobe.xmp\0\1\0\0\0"), XMP("4"));
    const struct chunk z_raw = {"zTXt", z.s, z.n, false, false}, i_xmp = {"iTXt", i.s, i.n, false, false};
    const struct chunk z_cut = {"zTXt", z.s, z.n - 9, false, false};
    const struct chunk z_way = {"zTXt", BYTES("Raw profile type exif\0\1x"), false, false};
    const struct { struct chunk c[3]; int n, want; } of[] = {
        {{exif}, 1, 6}, {{behind}, 1, 3}, {{named}, 1, 6}, {{wrong}, 1, 1}, {{raw}, 1, 8}, {{z_raw}, 1, 8},
        {{xmp}, 1, 5}, {{i_xmp}, 1, 4}, {{bytes}, 1, 7}, {{other}, 1, 1}, {{cut}, 1, 1},
        {{z_cut}, 1, 1}, {{z_way}, 1, 1},
        {{exif, behind}, 2, 3},                           /* the last one */
        {{raw, exif, xmp}, 3, 6}, {{raw, xmp}, 2, 8},     /* EXIF, or else the text of it, or else XMP */
        {{none, raw, xmp}, 3, 5},                         /* an empty one is there, and says nothing */
    };
    for (size_t k = 0; k < sizeof of / sizeof *of; k++)
        ck_assert_msg(png_turn(of[k].c, of[k].n) == of[k].want, "%zu: %d", k, png_turn(of[k].c, of[k].n));
    text_free(&z);
    text_free(&i);
}
END_TEST

struct segment { const char *s; size_t n; };

static int jpeg_turn(const struct segment *g, int n)
{
    struct text old = {0}, t = {0};
    picture_of("rgb.jpg", &old);
    text_add_bytes(&t, old.s, 2);
    for (int i = 0; i < n; i++) {
        const uint8_t head[4] = {0xff, 0xe1, (uint8_t)((g[i].n + 2) >> 8), (uint8_t)(g[i].n + 2)};
        text_add_bytes(&t, head, sizeof head);
        text_add_bytes(&t, g[i].s, g[i].n);
    }
    text_add_bytes(&t, old.s + 2, old.n - 2);
    int turn = turn_of(&t);
    text_free(&old);
    text_free(&t);
    return turn;
}

#define ADOBE "http://ns.adobe.com/xap/1.0/\0"

START_TEST(jpeg_segments)
{
    const struct segment exif = {BYTES("Exif\0\0" EXIF("\6"))}, none = {BYTES("Exif\0\0" EXIF("\0"))};
    const struct segment xmp = {BYTES(ADOBE XMP("8"))}, later = {BYTES(ADOBE XMP("3"))}, empty = {BYTES("Exif\0\0")};
    const struct segment half = {BYTES("Exif\0\0II*\0\010\0\0\0\1\0\022\1\5\0\1\0\0\0\026\0\0\0")};
    const struct segment rest = {BYTES("Exif\0\0\014\0\0\0\2\0\0\0")};
    const struct { struct segment g[3]; int n, want; } of[] = {
        {{exif}, 1, 6}, {{xmp}, 1, 8}, {{xmp, exif}, 2, 6}, {{xmp, later}, 2, 3}, {{empty, xmp}, 2, 8},
        {{none, xmp}, 2, 1},                              /* EXIF says something, though nothing sound */
        {{half, xmp}, 2, 8}, {{half, rest, xmp}, 3, 6},   /* it goes on in another segment */
    };
    for (size_t k = 0; k < sizeof of / sizeof *of; k++)
        ck_assert_msg(jpeg_turn(of[k].g, of[k].n) == of[k].want, "%zu: %d", k, jpeg_turn(of[k].g, of[k].n));
}
END_TEST

/* ---- turned and scaled ------------------------------------------------------------------------------------------- */

static const struct picture_turn turns[] = {
    {0}, {.flip_columns = true}, {.flip_rows = true, .flip_columns = true}, {.flip_rows = true}, {.swap = true},
    {.swap = true, .flip_rows = true}, {.swap = true, .flip_rows = true, .flip_columns = true},
    {.swap = true, .flip_columns = true}};

static uint32_t pixel(int y, int x) { return (uint32_t)(y * 7919 + x * 104729 + y * x * 31) * 2654435761u; }

/* The upright picture of height x width, as it is stored. */
static void stored(struct canvas *c, int height, int width, struct picture_turn t)
{
    const int h = t.swap ? width : height, w = t.swap ? height : width;
    canvas_begin(c, true, 1, h, w);
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++) {
            int row = t.swap ? x : y, column = t.swap ? y : x;
            if (t.flip_rows) row = h - 1 - row;
            if (t.flip_columns) column = w - 1 - column;
            c->at[row * w + column] = pixel(y, x);
        }
}

START_TEST(turned_then_scaled)
{
    static const int sizes[][4] = {{20, 32, 8, 8}, {393, 132, 24, 8}, {132, 393, 8, 24}, {77, 31, 40, 90},
                                   {100, 300, 99, 40}, {300, 100, 40, 99}, {65, 65, 64, 3}, {9, 200, 30, 31}};
    const int *s = sizes[_i];
    const struct crop_frame f = {.height = s[2], .width = s[3], .resize = {s[2] + 3, s[3] + 2}};
    struct canvas want = {0}, c = {0};
    for (size_t k = 0; k < sizeof turns / sizeof *turns; k++) {
        struct canvas *to = k ? &c : &want;
        stored(to, s[0], s[1], turns[k]);
        struct crop_place p = crop_place(&f, to->width, to->height, turns[k]);
        crop_scale(&p, to);
        ck_assert(to->height == s[2] && to->width == s[3]);
        ck_assert_msg(!memcmp(to->at, want.at, (size_t)(s[2] * s[3]) * sizeof *to->at), "turn %zu", k + 1);
    }
    canvas_free(&want);
    canvas_free(&c);
}
END_TEST

static void all(TCase *t)
{
    tcase_add_test(t, orientation_of_exif);
    tcase_add_test(t, orientation_of_xmp);
    tcase_add_test(t, png_chunks);
    tcase_add_test(t, jpeg_segments);
    tcase_add_loop_test(t, turned_then_scaled, 0, 8);
}

int main(void)
{
    const char *srcdir = getenv("srcdir");
    char *full = realpath(srcdir ? srcdir : ".", NULL);
    snprintf(folder, sizeof folder, "%s/tests/images", full ? full : ".");
    free(full);
    return scratch_suite("upright", all);
}
