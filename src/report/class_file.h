/* RUN/classes.json: the names of the classes that a run trained, a JSON array in the order of the network's outputs.
 * Evaluations and predictions of its weights compare their classes with it. Rank 0 only. */
#ifndef REPORT_CLASS_FILE_H
#define REPORT_CLASS_FILE_H
#include <jansson.h>
#include "data/ds.h"
#include "report/rundir.h"

/* Writes the names of the data set's classes; no file if they have none. 73, 74. */
int class_file_write(const struct rundir *d, const struct ds *data, struct err *e);
/* Reads the names that stand beside the weights `from`: in the run directory, in that of a checkpoint, or in the folder
 * of a file. If there are none, nothing happens. 78 names the first class of the data set that has another name. A data
 * set without names gets these; free them with class_names_free after it. 65, 74 for a file that cannot be read. */
struct class_names { json_t *all; const char **name; };
int class_file_use(const char *from, const struct conf *c, struct ds *data, struct class_names *n, struct err *e);
void class_names_free(struct class_names *n);
#endif
