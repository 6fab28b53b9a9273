/* The tokens of a configuration file. parse.c uses them, and conf.c for lists in overrides. Not thread-safe. */
#ifndef CONF_LEX_H
#define CONF_LEX_H
#include <stdbool.h>
#include "base/err.h"
#include "base/mem.h"

enum token { T_END, T_WORD, T_STRING, T_OPEN, T_CLOSE, T_EQUALS, T_COMMA, T_BAD };
#define LEX_SEPARATE "separate settings by blanks or line ends"
enum { LEX_WORD_MAX = 255, LEX_STRING_MAX = 4095 };      /* bytes; a file name fits */

struct lex {
    struct arena *mem;                                   /* owns the words */
    const char *s, *end;                                 /* the rest of the text */
    int line;                                            /* of s */
    int at;                                              /* line on which the token, or the error, begins */
    const char *word;                                    /* the token's text, without quotes and escapes */
    struct err *e;                                       /* the error, without its line; not NULL */
};

/* The next token. T_BAD: l->e is the error, l->at its line. */
enum token lex_next(struct lex *l);
/* Sets l->at and l->e (78). Returns -1. */
int lex_fail(struct lex *l, int line, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
#endif
