/* Completions of command lines for bash, made from the tables of options and commands. */
#ifndef MAN_COMPLETE_H
#define MAN_COMPLETE_H
#include <stdbool.h>
#include "base/text.h"

/* Adds the file for one of the five programs. False: there is no such program. */
bool complete(const char *program, struct text *out);
#endif
