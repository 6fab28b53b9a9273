/* Completions of command lines for bash, zsh and fish, made from the tables of options and commands. */
#ifndef MAN_COMPLETE_H
#define MAN_COMPLETE_H
#include <stdbool.h>
#include "base/text.h"

/* Adds the file for a shell and one of the four programs. False: it knows no such shell or program. */
bool complete(const char *shell, const char *program, struct text *out);
#endif
