/* The file's syntax (parse.c). Only conf.c uses it. Not thread-safe. */
#ifndef CONF_PARSE_H
#define CONF_PARSE_H
#include "conf/lex.h"
#include "conf/table.h"

/* Sets the values in the n bytes at s. 78 "FILE:LINE: ...". e is not NULL. */
int parse_file(struct conf *c, const char *s, size_t n, struct err *e);
/* One value or a list in braces. -1: l->e is the error, l->at its line. */
int parse_value(struct lex *l, struct opt_value *v);
#endif
