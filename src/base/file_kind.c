#include <ctype.h>
#include <stdbool.h>
#include <string.h>
#include "base/file.h"
#include "base/file_kind.h"

#define DOWNLOAD "download the file again"
#define UTF8 "save it as UTF-8"

/* Bytes at an offset of the file. */
struct magic { const char *s; size_t n, at; struct file_kind is; };
#define MAGIC(s, at, ...) {s, sizeof s - 1, at, {__VA_ARGS__}}

static const struct magic magics[] = {
    MAGIC("version https://git-lfs.github.com/spec/", 0, "a pointer of Git LFS", "get the file itself by git lfs pull"),
    MAGIC("version https://hawser.github.com/spec/", 0, "a pointer of Git LFS", "get the file itself by git lfs pull"),
    MAGIC("\xff\xfe\0\0", 0, "UTF-32 text", UTF8),
    MAGIC("\0\0\xfe\xff", 0, "UTF-32 text", UTF8),
    MAGIC("\xff\xfe", 0, "UTF-16 text", UTF8),
    MAGIC("\xfe\xff", 0, "UTF-16 text", UTF8),
    MAGIC("\x89HDF\r\n\032\n", 0, "an HDF5 file", NULL),
    MAGIC("PK\3\4", 0, "a ZIP archive", NULL, FILE_KIND_ZIP),
    MAGIC("PK\5\6", 0, "an empty ZIP archive", NULL),
    MAGIC("\x1f\x8b", 0, "a gzip file", "gunzip it first"),
    MAGIC("\xfd" "7zXZ\0", 0, "an xz file", "unpack it first"),
    MAGIC("\x28\xb5\x2f\xfd", 0, "a zstd file", "unpack it first"),
    MAGIC("BZh91AY&SY", 0, "a bzip2 file", "unpack it first"),
    MAGIC("7z\xbc\xaf\x27\x1c", 0, "a 7z archive", "unpack it first"),
    MAGIC("Rar!\032\a", 0, "a RAR archive", "unpack it first"),
    MAGIC("ustar", 257, "a tar archive", "unpack it first"),
    MAGIC("\x93NUMPY", 0, "a NumPy array (.npy)", NULL),
    MAGIC("\x89PNG\r\n\032\n", 0, "a PNG picture", NULL),
    MAGIC("\xff\xd8\xff", 0, "a JPEG picture", NULL),
    MAGIC("GIF8", 0, "a GIF picture", NULL),
    MAGIC("WEBPVP8", 8, "a WebP picture", NULL),
    MAGIC("II*\0", 0, "a TIFF picture", NULL),
    MAGIC("MM\0*", 0, "a TIFF picture", NULL),
    MAGIC("DICM", 128, "a DICOM file", NULL),
    MAGIC("%PDF-", 0, "a PDF file", NULL),
    MAGIC("TFL3", 4, "a TensorFlow Lite model", NULL),
    MAGIC("GGUF", 0, "a GGUF file", NULL),
    MAGIC("{\"", 8, "a safetensors file", NULL),
};
static const struct file_kind page = {"an HTML page, as servers send it instead of a file", DOWNLOAD, FILE_KIND_OTHER},
    xml = {"XML, as servers send it instead of a file", DOWNLOAD, FILE_KIND_OTHER},
    json = {"JSON text", NULL, FILE_KIND_JSON},
    text = {"text", NULL, FILE_KIND_PLAIN},
        zeros = {"a file of zeros", DOWNLOAD, FILE_KIND_OTHER},
    pickle = {"a pickle of Python", NULL, FILE_KIND_PICKLE}, onnx = {"an ONNX model", NULL, FILE_KIND_OTHER},
    tensorflow = {"a TensorFlow model", NULL, FILE_KIND_OTHER}, utf16 = {"UTF-16 text", UTF8, FILE_KIND_OTHER};

/* Only control characters of text, and no byte that UTF-8 never has. */
static bool readable(const unsigned char *b, size_t n)
{
    for (size_t i = 0; i < n; i++) if ((b[i] < ' ' && !isspace(b[i])) || b[i] == 127 || b[i] == 255) return false;
    return n >= 4;
}

/* Checks more where the magic is short or could be text: a text file, such as a list of file names, may contain the
 * same letters. */
static bool plausible(const struct magic *m, const unsigned char *b, size_t n)
{
    if ((m->at || !strcmp(m->s, "GIF8")) && readable(b, n)) return false;
    if (!strcmp(m->s, "GGUF")) return n >= 8 && b[4] && !b[6] && !b[7];
    if (!strcmp(m->s, "{\"")) return !b[4] && !b[5] && !b[6] && !b[7];
    return true;
}

static bool begins(const unsigned char *b, size_t n, const char *lower)
{
    size_t k = strlen(lower), i = 0;
    while (i < k && i < n && tolower(b[i]) == lower[i]) i++;
    return i == k;
}

/* Recognises the beginning of markup, after the byte order mark of UTF-8 and white space. */
static const struct file_kind *markup(const unsigned char *b, size_t n)
{
    static const char *const html[] = {"<!doctype html", "<html", "<head", "<body", "<!--"},
                      *const other[] = {"<?xml", "<error", "<!doctype"};
    if (n >= 3 && !memcmp(b, "\xef\xbb\xbf", 3)) { b += 3; n -= 3; }
    while (n && isspace(*b)) { b++; n--; }
    for (size_t i = 0; i < sizeof html / sizeof *html; i++) if (begins(b, n, html[i])) return &page;
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) if (begins(b, n, other[i])) return &xml;
    return n && (*b == '{' || *b == '[') ? &json : NULL;
}

/* Either all even or all odd bytes are 0, and no others. */
static bool is_utf16(const unsigned char *b, size_t n)
{
    const size_t k = n < 32 ? n / 2 : 16;
    size_t low = 0, high = 0;
    for (size_t i = 0; i < k; i++) {
        low += b[2 * i] && !b[2 * i + 1];
        high += !b[2 * i] && b[2 * i + 1];
    }
    return k >= 4 && (low == k || high == k);
}

static bool all_zero(const unsigned char *b, size_t n)
{
    for (size_t i = 0; i < n; i++) if (b[i]) return false;
    return n >= 16;
}

/* Protocol buffers have no magic: ir_version 3 to 20, or a SavedModel's version 1, then a message with a low field
 * number. */
static const struct file_kind *protobuf(const unsigned char *b, size_t n)
{
    if (n < 4 || b[0] != 8 || !b[1] || b[1] > 20 || !b[2] || (b[2] & 7) != 2 || b[2] > 0x42) return NULL;
    return b[1] == 1 ? &tensorflow : &onnx;
}

const struct file_kind *file_kind(const void *bytes, size_t n)
{
    const unsigned char *b = bytes;
    if (n > FILE_KIND_BYTES) n = FILE_KIND_BYTES;
    for (size_t i = 0; i < sizeof magics / sizeof *magics; i++) {
        const struct magic *m = &magics[i];
        if (n >= m->at + m->n && !memcmp(b + m->at, m->s, m->n) && plausible(m, b, n)) return &m->is;
    }
    if (n > 2 && b[0] == 0x80 && b[1] >= 2 && b[1] <= 5) return &pickle;
    if (all_zero(b, n)) return &zeros;
    if (is_utf16(b, n)) return &utf16;
    if (!readable(b, n)) return protobuf(b, n);
    const struct file_kind *m = markup(b, n);
    return m ? m : &text;
}

static int refuse(const char *path, const struct file_kind *is, const char *wanted, struct err *e)
{
    return err_set(e, E_DATA, "%s: this is %s, not %s%s%s", path, is->name, wanted, is->remedy ? ": " : "",
                   is->remedy ? is->remedy : "");
}

int file_kind_refuse(const char *path, const void *bytes, size_t n, const char *wanted, struct err *e)
{
    const struct file_kind *is = file_kind(bytes, n);
    return is && strcmp(is->name, wanted) ? refuse(path, is, wanted, e) : 0;
}

int file_kind_file(int fd, const char *path, uint64_t size, const char *wanted, struct err *e)
{
    unsigned char b[FILE_KIND_BYTES];
    const size_t n = size < sizeof b ? size : sizeof b;
    return file_read_at(fd, path, 0, b, n, NULL) ? 0 : file_kind_refuse(path, b, n, wanted, e);
}

int file_kind_text(const char *path, const void *bytes, size_t n, struct err *e)
{
    const struct file_kind *is = file_kind(bytes, n);
    return is && is->kind != FILE_KIND_JSON && is->kind != FILE_KIND_PLAIN ? refuse(path, is, "plain text", e) : 0;
}
