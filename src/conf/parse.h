/* The file's syntax (parse.c), used by conf.c alone. Not thread-safe. */
#ifndef CONF_PARSE_H
#define CONF_PARSE_H
#include "conf/lex.h"
#include "conf/table.h"

/* Sets what the n bytes at s say. 78 "FILE:LINE: ...". e is not NULL. */
int parse_file(struct conf *c, const char *s, size_t n, struct err *e);
/* One value or a list in braces. -1: l->e and l->at say what is wrong and where. */
int parse_value(struct lex *l, struct opt_value *v);
#endif
