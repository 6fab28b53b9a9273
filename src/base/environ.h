/* Environment variables that the program itself sets for libraries, which read their settings there.
 *
 * Libraries call getenv at any time and in any thread; so does the C library for the time zone. The C library's setenv
 * moves the table meanwhile: before glibc 2.41 a reader may then access freed memory. Here each change makes a new
 * table and installs it in place of the old one. The old table stays unchanged for its readers and is never freed, so
 * call these functions only a few times in a process. Any thread. */
#ifndef BASE_ENVIRON_H
#define BASE_ENVIRON_H
#include <stdbool.h>

void environ_default(const char *name, const char *value);   /* sets a variable unless it is set; copies both */
void environ_remove(const char *name);
#endif
