/* RUN/events.out.tfevents.*: loss, accuracy, speed and waiting for TensorBoard. Rank 0's loop thread.
 *
 * The file is a TFRecord file (length, masked CRC-32C, data, masked CRC-32C; all little-endian) of Event messages in protocol buffers' wire
 * format, of which wall_time, step, file_version and summary.value.{tag, simple_value} are written. */
#ifndef DAEMON_EVENTS_H
#define DAEMON_EVENTS_H
#include "daemon/metrics.h"
struct events;
/* Removes what an earlier run left in the directory. 73. */
int events_open(int dirfd, const char *dir, const struct job *j, struct events **out, struct err *e);
int events_step(struct events *v, const struct result *r, struct err *e);
int events_evaluation(struct events *v, uint64_t step, const struct sums *s, struct err *e);
void events_close(struct events *v);
#endif
