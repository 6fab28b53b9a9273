#include <string.h>
#include "base/glob.h"

struct star { const char *at; size_t n; };

/* On a mismatch the last * takes one byte more. star: memory for the text that each * matches, or NULL. */
static bool glob(const char *p, const char *s, const char *end, struct star *star)
{
    const char *again = NULL, *from = s;
    int k = -1;
    while (s < end) {
        if (*p == '*') {
            again = p++, from = s;
            if (star) star[++k] = (struct star){s, 0};
        } else if (*p && (*p == '?' || *p == *s)) p++, s++;
        else if (again) {
            p = again + 1, s = ++from;
            if (star) star[k].n = (size_t)(s - star[k].at);
        } else return false;
    }
    for (; *p == '*'; p++) if (star) star[++k] = (struct star){end, 0};
    return !*p;
}

bool glob_matches(const char *pattern, const char *s, size_t n) { return glob(pattern, s, s + n, NULL); }

/* The end of the matching components; NULL: none match. */
static const char *matched(const char *pattern, const char *name, struct star *star)
{
    for (const char *end = name + strcspn(name, ".");; end += 1 + strcspn(end + 1, ".")) {
        if (glob(pattern, name, end, star)) return end;
        if (!*end) return NULL;
    }
}

bool glob_names(const char *pattern, const char *name) { return matched(pattern, name, NULL) != NULL; }

size_t glob_stem(const char *pattern)
{
    size_t n = strlen(pattern);
    while (n > 1 && (pattern[n - 1] == '*' || pattern[n - 1] == '.')) n--;
    return n;
}

/* ---- rules ------------------------------------------------------------------------------------------------------- */

static bool part_take(const char *s, size_t n, char out[PATTERN_MOST])
{
    while (n && s[n - 1] == ' ') n--;
    while (n && *s == ' ') s++, n--;
    if (!n || n >= PATTERN_MOST) return false;
    memcpy(out, s, n);
    out[n] = 0;
    return true;
}

static int stars(const char *s)
{
    int n = 0;
    for (; *s; s++) n += *s == '*';
    return n;
}

bool glob_rule_parse(const char *s, struct glob_rule *r)
{
    const char *arrow = strstr(s, "->");
    if (!arrow || !part_take(s, (size_t)(arrow - s), r->from) || !part_take(arrow + 2, strlen(arrow + 2), r->to))
        return false;
    return stars(r->from) <= PATTERN_STARS && stars(r->to) <= stars(r->from);
}

bool glob_rename(const struct glob_rule *r, const char *name, struct text *out)
{
    struct star star[PATTERN_STARS];
    const char *rest = matched(r->from, name, star);
    int k = 0;
    if (!rest) return false;
    for (const char *p = r->to; *p; p++) {
        if (*p == '*') text_add_bytes(out, star[k].at, star[k].n), k++;
        else text_add_bytes(out, p, 1);
    }
    text_add(out, "%s", rest);
    return true;
}
