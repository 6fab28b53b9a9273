/* Reads the configuration file again during a run (mpstagectl(1), reload). Rank 0's scheduler thread. */
#ifndef CONF_RELOAD_H
#define CONF_RELOAD_H
#include <jansson.h>
#include "conf/opts.h"

/* The configuration from the text of the file and the command line, with expanded file names. 64, 78. */
struct conf *reload_make(const struct opts *o, const char *text, size_t n, struct err *e);
/* Reads the current file and completes it the same way. Adds to the object `changed` each key whose value differs from
 * `was`, with the new value as text. 78 names keys that may not change during a run; 66 and others if the file cannot
 * be read. */
struct conf *reload_read(const struct opts *o, const struct conf *was, json_t *changed, struct err *e);
#endif
