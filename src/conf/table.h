/* The option table: every option once. Parser, ranges, --print-config, manual and error texts come from its rows. For
 * this folder only. */
#ifndef CONF_TABLE_H
#define CONF_TABLE_H
#include <stddef.h>
#include "base/suggest.h"
#include "conf/conf.h"

enum opt_type { OPT_STRING, OPT_FILE, OPT_WORD, OPT_ENUM, OPT_INT, OPT_REAL, OPT_BOOL, OPT_INTS, OPT_REALS, OPT_SIZES,
               OPT_TEXTS };
struct opt {
    const char *key;                                     /* "section.name" */
    enum opt_type type;
    size_t offset;                                       /* in struct conf */
    const char *def;                                     /* default; NULL: unset */
    double lo, hi;                                       /* for numbers, and elements of lists */
    /* OPT_WORD: the field is the word; OPT_ENUM: the field is an enum of words.h. "a b !c"; a word after ! is known but
     * not built, unless it also occurs without ! */
    const char *words, *why;                             /* why: why words after ! are not built */
    const char *text;                                    /* for the manual */
    bool written;                                        /* OPT_FILE: the run writes it and does not read it */
    bool files;                                          /* OPT_TEXTS: a list of file names */
    bool bits;                                           /* decides the bits of a run: see conf_decides */
    const char *bits_of;                                 /* syntax of .of: decides bits only then */
    bool live;                                           /* may change during a run, by reload */
    const char *of;                                      /* "KEY WORD WORD": applies only if KEY has one of these */
};
#define OPT_SECTIONS "run, model, data, train, lora, pipeline, checkpoint, service, generate"

extern const struct opt opt_table[];                     /* ends with key NULL */
int opt_count(void);
const char *opt_former(int i);                           /* the name of an option that was renamed, or NULL */
int opt_find(const char *key, size_t n);                 /* index, by current or former name; -1 */
const char *opt_word_now(const char *key, const char *word);   /* current name of a former word of that option */
const char *opt_removed(const char *key, size_t n);      /* the value that a removed option may keep, or NULL */
const char *opt_nearest(const char *key, size_t n);      /* the most similar key, NULL if none is near */
bool opt_section(const char *name);                      /* is there such a section? */
void opt_sections_try(struct suggest *s);
/* Text to append to an unknown key: the nearest key, or all keys of its section if they fit, or the manual's name. ""
 * if there is no such section. Returns buf. */
enum { OPT_HINT = 160 };
const char *opt_hint(const char *key, size_t n, char buf[OPT_HINT]);

/* ---- values (value.c) ---- */
struct opt_value { int n; bool list, quoted; const char *text[CONF_LIST]; };
/* Sets row i without copying texts: they must live in c->mem. 78 without a line. */
int opt_set(struct conf *c, int i, const struct opt_value *v, struct err *e);
void opt_unset(struct conf *c, int i);                   /* back to the default */
void opt_print(const struct conf *c, int i, struct text *out);   /* the value in file syntax; nothing if unset */
void opt_print_text(const char *s, struct text *out);    /* in quotes, with escapes */
/* Whether that option has one of the words of "KEY WORD WORD", or is unset. key and value, if not NULL, receive the
 * option and its value. */
bool opt_of_holds(const struct conf *c, const char *of, const char **key, const char **value);
const char *opt_enum_word(const struct opt *o, int value, int *n);   /* its word, n bytes; NULL: unset */
bool opt_is_set(const struct conf *c, int i);            /* has a value, default or not */
static inline bool opt_is_text(enum opt_type t) { return t <= OPT_ENUM; }
static inline bool opt_is_list(enum opt_type t)
{
    return t == OPT_INTS || t == OPT_REALS || t == OPT_SIZES || t == OPT_TEXTS;
}
/* The file names of a row, set or not: one of OPT_FILE, those of a list of files; n 0: it has none. */
struct opt_files { int n; const char **name; };
struct opt_files opt_files_of(struct conf *c, int i);
/* 78 if s is not UTF-8 or has control characters other than \n and \t */
int opt_text_check(const char *s, struct err *e);
/* Calls f with each word of a row, whether it is built, and arg. */
void opt_words(const struct opt *o, void (*f)(const char *word, int n, bool built, void *arg), void *arg);

enum { CITE = 72 };
const char *opt_cite(const char *s, char buf[CITE]);     /* s, or its beginning and "..."; for messages */
#endif
