/* Variables of the environment that the program itself sets, for the libraries that read their settings there.
 *
 * Libraries call getenv at any time from any thread, the C library does so for the time zone, and setenv of the C
 * library moves the table meanwhile: before glibc 2.41 a reader then runs into freed memory. Here each change makes a
 * new table and puts it in the old one's place; the old one stays as it was, and so readers may be anywhere in it. It
 * is never freed: call these a few times in a process's life. Any thread. */
#ifndef BASE_ENVIRON_H
#define BASE_ENVIRON_H
#include <stdbool.h>

void environ_default(const char *name, const char *value);   /* sets a variable unless it is set; copies both */
void environ_remove(const char *name);
#endif
