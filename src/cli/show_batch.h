/* --show-batch: what the network is given in the first batch of training, as a contact sheet. Boot's thread. */
#ifndef CLI_SHOW_BATCH_H
#define CLI_SHOW_BATCH_H
#include "base/text.h"
#include "job/job.h"

/* Adds a PNG of the first training batch of a job whose model is read, and to said a line about it. Opens the training
 * samples. 78 if they are no pictures, and what ds_open and reading find wrong. */
int show_batch(struct job *j, struct text *png, struct text *said, struct err *e);

#endif
