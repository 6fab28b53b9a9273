/* A walk over a line of JSON. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "history.h"

/* depth: open brackets. element: in which object of "stages"; -1: in none. */
struct json_place { const char *at, *end; int depth, element; scan_take *take; void *to; };

static bool space_skip(struct json_place *p)
{
    while (p->at < p->end && (*p->at == ' ' || *p->at == '\t' || *p->at == '\r')) p->at++;
    return p->at < p->end;
}

static bool sign_skip(struct json_place *p, char c)
{
    if (!space_skip(p) || *p->at != c) return false;
    p->at++;
    return true;
}

static bool string_skip(struct json_place *p, const char **from, size_t *n)
{
    if (!sign_skip(p, '"')) return false;
    const char *at = *from = p->at;
    for (; at < p->end && *at != '"'; at++) {
        if ((unsigned char)*at < 0x20) return false;
        if (*at == '\\') at++;
    }
    *n = (size_t)(at - *from);
    p->at = at;
    return sign_skip(p, '"');
}

static bool word_skip(struct json_place *p, const char *word)
{
    size_t n = strlen(word);
    if ((size_t)(p->end - p->at) < n || memcmp(p->at, word, n) != 0) return false;
    p->at += n;
    return true;
}

/* A number of few digits and without an exponent, as most are: a quotient of two numbers that a double holds is rounded
 * as strtod rounds it. NULL: another number. */
static const char *plain_number(const char *at, const char *end, double *x)
{
    enum { DIGITS = 15 };
    int64_t whole = 0, under = 1;
    int digits = 0;
    bool point = false;
    for (; at < end && digits <= DIGITS; at++) {
        if (*at == '.' && !point && digits) point = true;
        else if (*at >= '0' && *at <= '9') whole = whole * 10 + (*at - '0'), digits++, under *= point ? 10 : 1;
        else break;
    }
    if (!digits || digits > DIGITS || (at < end && (*at == 'e' || *at == 'E'))) return NULL;
    *x = (double)whole / (double)under;
    return at;
}

static bool number_skip(struct json_place *p, double *x)
{
    const char *plain = plain_number(p->at, p->end, x);
    char *end;
    if (plain) p->at = plain;
    else if (word_skip(p, "null")) *x = NAN;
    else if (word_skip(p, "true")) *x = 1;
    else if (word_skip(p, "false")) *x = 0;
    else {
        if (*p->at != '-' && (*p->at < '0' || *p->at > '9')) return false;
        *x = strtod(p->at, &end);
        if (end == p->at || end > p->end) return false;
        p->at = end;
    }
    return true;
}

static bool value_scan(struct json_place *p, const char *key, size_t n);

static bool object_scan(struct json_place *p)
{
    const char *key;
    size_t n;
    if (sign_skip(p, '}')) return true;
    do {
        if (!string_skip(p, &key, &n) || !sign_skip(p, ':') || !value_scan(p, key, n)) return false;
    } while (sign_skip(p, ','));
    return sign_skip(p, '}');
}

static bool array_scan(struct json_place *p, bool stages)
{
    bool good = true;
    if (sign_skip(p, ']')) return true;
    do {
        if (stages) p->element++;
        good = value_scan(p, "", 0);
    } while (good && sign_skip(p, ','));
    if (stages) p->element = -1;
    return good && sign_skip(p, ']');
}

static bool value_scan(struct json_place *p, const char *key, size_t n)
{
    enum { DEEPEST = 32 };
    double x;
    bool good;
    if (!space_skip(p)) return false;
    char c = *p->at;
    if (c == '"') return string_skip(p, &key, &n);
    if (c != '{' && c != '[') {
        if (!number_skip(p, &x)) return false;
        if (n && (p->depth == 1 || (p->depth == 3 && p->element >= 0))) p->take(p->to, p->element, key, n, x);
        return true;
    }
    p->at++;
    if (++p->depth > DEEPEST) return false;
    if (c == '{') good = object_scan(p);
    else good = array_scan(p, p->depth == 2 && n == 6 && !memcmp(key, "stages", 6));
    p->depth--;
    return good;
}

bool json_scan(const char *line, size_t n, scan_take *take, void *to)
{
    struct json_place p = {line, line + n, 0, -1, take, to};
    return space_skip(&p) && *p.at == '{' && value_scan(&p, "", 0) && !space_skip(&p);
}
