/* RUN/events.out.tfevents.*: loss, accuracy, speed and waiting for TensorBoard. Rank 0's scheduler thread.
 *
 * The file is a TFRecord file (length, masked CRC-32C, data, masked CRC-32C; all little-endian) of Event messages in
 * protocol buffers' wire format. Of these it writes wall_time, step, file_version and summary.value.{tag,
 * simple_value}, and session_log. */
#ifndef REPORT_TENSORBOARD_H
#define REPORT_TENSORBOARD_H
#include "report/metrics.h"
struct tensorboard;
/* 73 if event files are requested and the directory (-1: does not exist) has some that may not be overwritten. */
int tensorboard_check(int dirfd, const char *dir, const struct conf *c, struct err *e);
/* Removes event files of an earlier run from the directory, if they may be overwritten. 73. */
int tensorboard_open(int dirfd, const char *dir, const struct job *j, const struct ckpt *from, struct tensorboard **out,
                     struct err *e);
int tensorboard_step(struct tensorboard *v, const struct result *r, struct err *e);
int tensorboard_evaluation(struct tensorboard *v, uint64_t step, const struct sums *s, struct err *e);
/* the run could not begin: removes the file; v may be NULL */
void tensorboard_undo(const struct tensorboard *v, int dirfd);
void tensorboard_close(struct tensorboard *v);
#endif
