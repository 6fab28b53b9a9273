#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>
#include "base/file.h"
#include "base/mem.h"
#include "base/file_kind.h"
#include "base/text.h"

static void reserve(struct text *t, size_t more)
{
    if (t->n + more + 1 <= t->cap) return;
    size_t cap = t->cap ? t->cap : 256;
    while (cap < t->n + more + 1) cap *= 2;
    t->s = mem_resize(t->s, cap);
    t->cap = cap;
}

void text_add(struct text *t, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    reserve(t, (size_t)n);
    vsnprintf(t->s + t->n, (size_t)n + 1, fmt, again);
    t->n += (size_t)n;
    va_end(ap);
    va_end(again);
}

void text_add_bytes(struct text *t, const void *p, size_t n)
{
    reserve(t, n);
    if (n) memcpy(t->s + t->n, p, n);
    t->n += n;
    t->s[t->n] = 0;
}

void text_free(struct text *t)
{
    free(t->s);
    *t = (struct text){0};
}

bool text_ends(const char *s, const char *end)
{
    const size_t n = strlen(s), m = strlen(end);
    return n > m && !strcmp(s + n - m, end);
}

static int read_on(struct text *t, int fd, const char *path, size_t max, struct err *e)
{
    char buf[65536];
    for (;;) {
        ssize_t n = read(fd, buf, sizeof buf);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EISDIR) return err_set(e, E_DATA, "%s: is a directory", path);
        if (n < 0 && errno == EAGAIN) return err_set(e, E_DATA, "%s: is not a regular file", path);
        if (n < 0) return err_set(e, E_IO, "%s: %s", path, strerror(errno));
        if (n == 0) break;
        if (t->n + (size_t)n > max) return err_set(e, E_DATA, "%s: larger than %zu bytes", path, max);
        text_add_bytes(t, buf, (size_t)n);
    }
    text_add_bytes(t, "", 0);
    return 0;
}

/* After a failure an initially empty text owns nothing, so callers need not free it. */
static int read_all(struct text *t, int fd, const char *path, size_t max, struct err *e)
{
    size_t before = t->n;
    int bad = read_on(t, fd, path, max, e);
    if (bad && !before) text_free(t);
    return bad;
}

int text_output_end(struct err *e)
{
    errno = 0;
    if (!fflush(stdout) && !ferror(stdout)) return 0;
    return err_set(e, E_IO, "standard output: %s", errno ? strerror(errno) : "cannot be written");
}

char *text_duration(uint64_t seconds, char buf[24])
{
    unsigned s = (unsigned)seconds;
    snprintf(buf, 24, "%u:%02u:%02u", s / 3600, s / 60 % 60, s % 60);
    return buf;
}

/* Removes the byte order mark with which editors on Windows begin UTF-8. */
static int text_check(struct text *t, size_t from, const char *path, struct err *e)
{
    if (t->n >= from + 3 && !memcmp(t->s + from, "\xef\xbb\xbf", 3)) {
        t->n -= 3;
        memmove(t->s + from, t->s + from + 3, t->n - from + 1);
    }
    return file_kind_text(path, t->s + from, t->n - from, e);
}

int text_read_fd(struct text *t, int fd, const char *path, size_t max, struct err *e)
{
    const size_t from = t->n;
    if (lseek(fd, 0, SEEK_SET)) return err_set(e, E_IO, "%s: %s", path, strerror(errno));
    return read_all(t, fd, path, max, e) ? -1 : text_check(t, from, path, e);
}

int text_read_bytes(struct text *t, const char *path, size_t max, struct err *e)
{
    uint64_t size;
    int fd = file_open(path, &size, e);
    if (fd < 0) return -1;
    int bad = read_all(t, fd, path, max, e);
    close(fd);
    return bad;
}

int text_read_any(struct text *t, const char *path, size_t max, struct err *e)
{
    const size_t from = t->n;
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return file_missing(path, e);
    int bad = read_all(t, fd, path, max, e);
    if (!bad && !t->n && strcmp(path, "/dev/null") && !fstat(fd, &st) && !S_ISREG(st.st_mode))
        bad = err_set(e, E_DATA, "%s: is empty, and not a regular file: a pipe can be read only once", path);
    close(fd);
    return bad ? -1 : text_check(t, from, path, e);
}

int text_read_file(struct text *t, const char *path, size_t max, struct err *e)
{
    const size_t from = t->n;
    return text_read_bytes(t, path, max, e) ? -1 : text_check(t, from, path, e);
}

void text_hash(const void *p, size_t n, char out[33])
{
    XXH128_canonical_t c;
    XXH128_canonicalFromHash(&c, XXH3_128bits(p, n));
    for (int i = 0; i < 16; i++) snprintf(out + 2 * i, 3, "%02x", c.digest[i]);
}

/* Divides *x by `base` until it is smaller, at most `most` times. Returns the number of divisions. */
static int scaled(double *x, double base, int most)
{
    int k = 0;
    while (*x >= base && k < most) { *x /= base; k++; }
    return k;
}

char *text_bytes(uint64_t bytes, char buf[32])
{
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double x = (double)bytes;
    int k = scaled(&x, 1024, 6);
    if (k) snprintf(buf, 32, "%.2f %s", x, unit[k]);
    else snprintf(buf, 32, "%llu B", (unsigned long long)bytes);
    return buf;
}

char *text_count(double n, char buf[32])
{
    static const char *const unit[] = {"", " k", " M", " G", " T"};
    int k = scaled(&n, 1000, 4);
    snprintf(buf, 32, "%.*f%s", k ? 2 : 0, n, unit[k]);
    return buf;
}

char *text_number(double x, char buf[32])
{
    snprintf(buf, 32, x >= 1000 ? "%.0f" : "%.4g", x);
    return buf;
}

char *text_exact(double x, char buf[32])
{
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(buf, 32, "%.*g", digits, x);
        if (strtod(buf, NULL) == x) break;
    }
    return buf;
}

struct text_unit text_unit(double seconds)
{
    if (seconds >= 1) return (struct text_unit){"s", "seconds", 1};
    if (seconds >= 1e-3) return (struct text_unit){"ms", "milliseconds", 1e-3};
    return (struct text_unit){"µs", "microseconds", 1e-6};
}

char *text_seconds(double seconds, char buf[32])
{
    struct text_unit u = text_unit(seconds);
    double x = seconds / u.seconds;
    snprintf(buf, 32, x < 999.95 ? "%#.4g %s" : "%.0f %s", x, u.name);
    return buf;
}

/* ---- untrusted text
 * ------------------------------------------------------------------------------------------------ */

/* The character at the beginning of s, and its length in *n; 0: invalid (RFC 3629). */
static uint32_t character(const unsigned char *s, int *n)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    *n = *s < 0x80 ? 1 : *s >= 0xc2 && *s < 0xe0 ? 2 : *s >= 0xe0 && *s < 0xf0 ? 3 : *s >= 0xf0 && *s < 0xf5 ? 4 : 0;
    uint32_t c = *n < 2 ? *s : *s & (0x7fu >> *n);
    for (int i = 1; i < *n; i++) {
        if ((s[i] & 0xc0) != 0x80) { *n = 0; return *s; }
        c = c << 6 | (s[i] & 0x3f);
    }
    if (*n > 1 && (c < least[*n] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))) *n = 0;
    return c;
}

static bool controls(uint32_t c)
{
    return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x61c || c == 0x200e || c == 0x200f ||
           (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069) || (c & 0xfffe) == 0xfffe;
}

char *text_printable(const char *s, char *buf, size_t size)
{
    size_t at = 0;
    for (int n; *s; s += n ? n : 1) {
        char as[16];
        uint32_t c = character((const unsigned char *)s, &n);
        if (!n || (n == 1 && controls(c))) snprintf(as, sizeof as, "\\x%02x", (unsigned char)*s);
        else if (controls(c)) snprintf(as, sizeof as, "\\u{%x}", (unsigned)c);
        else snprintf(as, sizeof as, "%.*s", n, s);
        size_t length = strlen(as);
        if (at + length >= size) break;
        memcpy(buf + at, as, length);
        at += length;
    }
    buf[at] = 0;
    return buf;
}

/* ---- columns ----------------------------------------------------------------------------------------------------- */

int text_output_columns(void)
{
    const int USUAL = 80;
    struct winsize w;
    const char *env = getenv("COLUMNS");
    if (env && atoi(env) > 0) return atoi(env);
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col ? w.ws_col : USUAL;
}

int text_columns(const char *s, size_t n)
{
    int columns = 0;
    for (size_t i = 0; i < n; i++) columns += ((unsigned char)s[i] & 0xc0) != 0x80;
    return columns;
}

void text_right(struct text *t, int width, const char *s)
{
    int n = text_columns(s, strlen(s));
    text_add(t, "%*s%s", n < width ? width - n : 0, "", s);
}

size_t text_line(const char *s, int columns)
{
    size_t end = strcspn(s, "\n"), fits = 0;
    if (text_columns(s, end) <= columns) return end;
    for (size_t at = strspn(s, " "); at < end; at += strspn(s + at, " ")) {
        at += strcspn(s + at, " \n");
        if (fits && text_columns(s, at) > columns) break;
        fits = at;
    }
    return fits ? fits : end;
}

void text_fold(const char *s, int columns, int indent, struct text *out)
{
    while (*s) {
        size_t n = text_line(s, columns);
        text_add_bytes(out, s, n);
        for (s += n; *s == ' '; s += n) {
            s += strspn(s, " ");
            n = text_line(s, columns - indent);
            if (n) text_add(out, "\n%*s%.*s", indent, "", (int)n, s);
        }
        text_add(out, "\n");
        s += *s == '\n';
    }
}
