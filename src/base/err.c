#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "base/err.h"

/* An error stays one line even if a file name or a value contains control characters. */
static void one_line(char *s)
{
    for (; *s; s++) if ((unsigned char)*s < 0x20 || *s == 0x7f) *s = '?';
}

int err_set(struct err *e, int code, const char *fmt, ...)
{
    if (!e || e->code) return -1;
    va_list ap;
    va_start(ap, fmt);
    e->code = code;
    vsnprintf(e->text, sizeof e->text, fmt, ap);
    va_end(ap);
    one_line(e->text);
    return -1;
}

int err_where(struct err *e, const char *fmt, ...)
{
    if (!e || !e->code) return -1;
    char where[sizeof e->text], old[sizeof e->text / 2];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(where, sizeof where, fmt, ap);
    va_end(ap);
    snprintf(old, sizeof old, "%s", e->text);
    size_t n = strlen(where);
    if (n > sizeof e->text / 2 - 4) n = sizeof e->text / 2 - 4;
    memcpy(e->text, where, n);
    snprintf(e->text + n, sizeof e->text - n, ": %s", old);
    one_line(e->text);
    return -1;
}
