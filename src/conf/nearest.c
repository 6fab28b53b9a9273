/* What a user may have meant by an unknown key or section. */
#include <stdio.h>
#include <string.h>
#include "base/suggest.h"
#include "conf/table.h"

/* Searches the key's own section first, then the others: two sections may have equal names. */
const char *opt_nearest(const char *key, size_t n)
{
    const char *dot = memchr(key, '.', n), *name = dot ? dot + 1 : key, *found = NULL;
    size_t section = (size_t)(name - key);
    struct suggest s = suggest_begin(name, n - section);
    for (int i = 0; opt_table[i].key; i++) {
        const char *own = strchr(opt_table[i].key, '.') + 1;
        bool elsewhere = (size_t)(own - opt_table[i].key) != section || memcmp(opt_table[i].key, key, section);
        if (suggest_try(&s, own, strlen(own), elsewhere)) found = opt_table[i].key;
    }
    return found;
}

const char *conf_nearest(const char *name) { return opt_nearest(name, strlen(name)); }

const char *opt_hint(const char *key, size_t n, char buf[OPT_HINT])
{
    const char *near = opt_nearest(key, n), *dot = memchr(key, '.', n), *still = opt_removed(key, n);
    size_t section = dot ? (size_t)(dot + 1 - key) : 0, at = 0;
    *buf = 0;
    if (still) snprintf(buf, OPT_HINT, " (it was removed, and only %s is accepted)", still);
    else if (near) snprintf(buf, OPT_HINT, " (did you mean %s?)", near);
    for (int i = 0; !near && !still && section && opt_table[i].key && at < OPT_HINT; i++) {
        if (strncmp(opt_table[i].key, key, section)) continue;
        if (!at) at = (size_t)snprintf(buf, OPT_HINT, ": %.*s has ", (int)section - 1, key);
        else at += (size_t)snprintf(buf + at, OPT_HINT - at, ", ");
        if (at < OPT_HINT) at += (size_t)snprintf(buf + at, OPT_HINT - at, "%s", opt_table[i].key + section);
    }
    if (at >= OPT_HINT) snprintf(buf, OPT_HINT, " (see mpstaged.conf(5))");
    return buf;
}

void opt_sections_try(struct suggest *s)
{
    for (const char *name = OPT_SECTIONS; *name; name += strcspn(name, " "), name += strspn(name, " "))
        suggest_try(s, name, strcspn(name, ", "), 0);
}
