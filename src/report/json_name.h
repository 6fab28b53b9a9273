/* A name of a file or class as JSON, which requires UTF-8: other bytes become \xff. Pure. */
#ifndef REPORT_JSON_NAME_H
#define REPORT_JSON_NAME_H
#include <jansson.h>

json_t *json_name(const char *s);                         /* a string; the caller's reference */
#endif
