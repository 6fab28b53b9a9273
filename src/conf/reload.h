/* Reading the configuration file again while the run goes on (mpstagectl(1), reload). Rank 0's loop thread. */
#ifndef CONF_RELOAD_H
#define CONF_RELOAD_H
#include <jansson.h>
#include "conf/opts.h"

/* The configuration that the text of the file and the command line make, with file names as they are meant. 64, 78. */
struct conf *reload_make(const struct opts *o, const char *text, size_t n, struct err *e);
/* The file as it is now, completed like that. Adds to the object `changed` each key that has another value than in
 * `was`, with the new one as text. 78 names those that may not change while a run goes on; 66 and others if the file
 * cannot be read. */
struct conf *reload_read(const struct opts *o, const struct conf *was, json_t *changed, struct err *e);
#endif
