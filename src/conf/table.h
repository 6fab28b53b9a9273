/* The option table: every option once. Parser, ranges, --print-config, manual and error texts come from its rows. */
#ifndef CONF_TABLE_H
#define CONF_TABLE_H
#include <stddef.h>
#include "conf/conf.h"

enum opt_type { OPT_STRING, OPT_WORD, OPT_INT, OPT_REAL, OPT_BOOL, OPT_INTS, OPT_REALS };
struct opt {
    const char *key;                                     /* "section.name" */
    enum opt_type type;
    size_t offset;                                       /* in struct conf */
    const char *def;                                     /* default as in a file; NULL: unset */
    double lo, hi;                                       /* numbers, and elements of lists */
    const char *words;                                   /* OPT_WORD: "a b c"; a word after ! is known but not built */
    const char *text;                                    /* for the manual */
};
extern const struct opt opt_table[];                     /* ends with key NULL */
int opt_count(void);
int opt_find(const char *key, size_t n);                 /* index, -1 */
const char *opt_nearest(const char *key, size_t n);      /* the key spelled most alike, NULL if none is near */
bool opt_section(const char *name, size_t n);            /* is there such a section? */
/* Sets row i from one value (n_values = 1) or a list. Error text without place. */
int opt_set(struct conf *c, int i, int n_values, const char *const *value, bool quoted, bool list, struct err *e);
void opt_print(const struct conf *c, int i, struct text *out);   /* the value as in a file; nothing if it is unset */
bool opt_is_set(const struct conf *c, int i);            /* has a value, default or not */
#endif
