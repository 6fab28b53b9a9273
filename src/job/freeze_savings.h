/* What train.freeze saves, as text for the user. Pure, as job.h. */
#ifndef JOB_FREEZE_SAVINGS_H
#define JOB_FREEZE_SAVINGS_H
#include "job/job.h"

/* Adds a line with the bytes and the time that train.freeze saves; nothing if it is not set. */
int freeze_savings_text(const struct job *j, struct text *out, struct err *e);
#endif
