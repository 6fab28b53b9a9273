/* --profile: measures what each kernel group costs on the devices at hand, all ranks busy, and writes RUN/profile.json.
 *
 * Collective: every rank calls it, between votes. Thread: the executor's. */
#ifndef DAEMON_PROFILE_H
#define DAEMON_PROFILE_H
#include "daemon/boot_int.h"
/* The network and the data, sizes to measure: what can be wrong with the configuration. 65, 66, 78. */
int profile_check(struct boot *b, struct err *e);
/* Opens the device with one plan a size; to be bound then. 69. */
int profile_open(struct boot *b, struct err *e);
int profile_connect(struct boot *b, struct err *e);       /* 69 */
/* The steps, then the links. */
int profile_measure(struct boot *b, struct err *e);
/* Rank 0: the directory and the file. 73, 74. */
int profile_write(struct boot *b, struct err *e);
void profile_free_all(struct boot *b);
#endif
