/* --profile: measures what each kernel group costs on the devices at hand, all ranks busy, and writes RUN/profile.json.
 *
 * Collective: every rank calls it, between votes. Thread: the executor's. */
#ifndef DAEMON_RUN_PROFILE_H
#define DAEMON_RUN_PROFILE_H
#include "daemon/run/boot_int.h"
/* The sizes to measure, and, before kernels are measured, a plan of the widest: what can be wrong with the
 * configuration. 65, 66, 78. */
int profile_check(struct boot *b, struct err *e);
/* One plan a size; b->conf becomes a copy that says what is measured. 65, 66, 78. */
int profile_plan(struct boot *b, struct err *e);
/* Opens the device with these plans; to be bound then. 69. */
int profile_open(struct boot *b, struct err *e);
/* The steps, then the links. After a failure all ranks have been told, as by side_lead and side_follow, and nothing is
 * taken down. */
int profile_measure(struct boot *b, struct err *e);
/* Rank 0: the directory and the file. 73, 74. */
int profile_write(struct boot *b, struct err *e);
void profile_plans_free(struct boot *b);               /* of the maker */
#endif
