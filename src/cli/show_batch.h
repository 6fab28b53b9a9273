/* --show-batch: draws the network's input in the first batch of training as a contact sheet. Main thread. */
#ifndef CLI_SHOW_BATCH_H
#define CLI_SHOW_BATCH_H
#include "base/text.h"
#include "job/job.h"

/* Adds a PNG of the first training batch to png, and a line about it to said. The job's model must have been read.
 * Opens the training samples. 78 if they are no pictures, and errors of ds_open and of reading. */
int show_batch(struct job *j, struct text *png, struct text *said, struct err *e);

#endif
