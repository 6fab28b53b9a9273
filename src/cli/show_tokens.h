/* --show-batch FILE.txt: the tokens of the first training batch as text. Main thread. */
#ifndef CLI_SHOW_TOKENS_H
#define CLI_SHOW_TOKENS_H
#include "base/text.h"
#include "job/job.h"

/* Adds the batch to out, what is trained in brackets, and a line about it to said. The job's model must have been read.
 * Opens the training samples. 78 if they are no tokens, and errors of ds_open and of reading. */
int show_tokens(struct job *j, struct text *out, struct text *said, struct err *e);

#endif
