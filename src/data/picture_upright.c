/* A picture's orientation, as Pillow's exif_transpose finds it: by EXIF, or else by XMP. Malformed data that Pillow
 * ignores are ignored; where Pillow would fail, the picture stays as stored. */
#include <string.h>
#include "data/picture_int.h"

/* A TIFF file: byte order, 42, offset of the first directory. A directory is a count and entries of 12 bytes: tag,
 * type, count, value or its offset. */
struct exif { const uint8_t *s; size_t n; bool big; };

static uint64_t exif_at(const struct exif *x, size_t at, int bytes)
{
    uint64_t v = 0;
    for (int i = 0; i < bytes; i++) v |= (uint64_t)x->s[at + (size_t)i] << 8 * (x->big ? bytes - 1 - i : i);
    return v;
}

enum { SHORT = 3, LONG = 4, RATIONAL = 5, SBYTE = 6, SSHORT = 8, SLONG = 9, SRATIONAL = 10, FLOAT = 11, DOUBLE = 12,
       IFD = 13, LONG8 = 16 };

/* The first number of a value; 0: not a number. */
static double exif_number(const struct exif *x, size_t at, unsigned type)
{
    const uint64_t v = exif_at(x, at, type == SBYTE ? 1 : type == SHORT || type == SSHORT ? 2 : 4);
    const bool pair = type == RATIONAL || type == SRATIONAL, wide = type == DOUBLE || type == LONG8;
    const uint64_t second = pair ? exif_at(x, at + 4, 4) : 0, all = wide ? exif_at(x, at, 8) : 0;
    const uint32_t bits = (uint32_t)v;
    float single;
    double twice;
    memcpy(&single, &bits, sizeof single);
    memcpy(&twice, &all, sizeof twice);
    switch (type) {
    case SHORT: case LONG: case IFD: return (double)v;
    case SBYTE: return (int8_t)v;
    case SSHORT: return (int16_t)v;
    case SLONG: return (int32_t)v;
    case RATIONAL: return second ? (double)v / (double)second : 0;
    case SRATIONAL: return second ? (double)(int32_t)v / (double)(int32_t)second : 0;
    case FLOAT: return single;
    case DOUBLE: return twice;
    case LONG8: return (double)all;
    default: return 0;
    }
}

static int orientation_of(double v)
{
    for (int i = 2; i <= 8; i++) if (v == i) return i;
    return 1;
}

int picture_exif(const uint8_t *exif, size_t n)
{
    enum { ORIENTATION = 0x112, ENTRY = 12, TYPES = 17 };
    static const uint8_t bytes_of[TYPES] = {0, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4, 0, 0, 8};
    for (int i = 0; i < 2 && n >= 6 && !memcmp(exif, "Exif\0", 6); i++) exif += 6, n -= 6;
    struct exif x = {exif, n, n && exif[0] == 'M'};
    if (n < 8 || (memcmp(exif, "II", 2) && memcmp(exif, "MM", 2))) return 0;
    if (exif_at(&x, 2, 2) != 42 && exif_at(&x, 2, 2) != 42 << 8) return 0;
    size_t at = (size_t)exif_at(&x, 4, 4), elsewhere = 0;
    if (at > n - 2) return 0;
    uint64_t entries = exif_at(&x, at, 2);
    for (at += 2; entries && at + ENTRY <= n; entries--, at += ENTRY) {
        const unsigned type = (unsigned)exif_at(&x, at + 2, 2);
        const size_t bytes = type < TYPES ? bytes_of[type] * (size_t)exif_at(&x, at + 4, 4) : 0;
        size_t value = at + 8;
        if (!bytes) continue;
        if (bytes > 4) {                                  /* the value is stored elsewhere */
            elsewhere += bytes;
            if (elsewhere > n) continue;
            value = (size_t)exif_at(&x, value, 4);
            if (value > n || bytes > n - value) return 0;
        }
        if (exif_at(&x, at, 2) == ORIENTATION) return orientation_of(exif_number(&x, value, type));
    }
    return 0;
}

int picture_xmp(const uint8_t *xmp, size_t n)
{
    static const char tag[] = "tiff:Orientation";
    const size_t tag_n = sizeof tag - 1;
    for (const uint8_t *at; n && (at = memmem(xmp, n, tag, tag_n)) != NULL;) {
        const uint8_t *s = at + tag_n;
        const size_t left = n - (size_t)(s - xmp), skip = left > 2 && !memcmp(s, "=\"", 2) ? 2 : left > 1 && *s == '>';
        if (skip && s[skip] >= '0' && s[skip] <= '9') return orientation_of(s[skip] - '0');
        n = left;
        xmp = s;
    }
    return 0;
}
