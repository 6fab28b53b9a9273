/* The file's syntax (parse.c), used by conf.c alone. */
#ifndef CONF_PARSE_H
#define CONF_PARSE_H
#include "conf/table.h"
int conf_parse_text(struct conf *c, const char *s, size_t n, struct err *e);   /* 78 "FILE:LINE: ..." */
#endif
