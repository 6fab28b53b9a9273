/* Parses requests to the control socket: a line of bytes to a struct, by one table of commands (mpstagectl(1),
 * PROTOCOL). Pure; any thread. The bytes are not trusted. */
#ifndef SERVICE_CTL_REQUEST_H
#define SERVICE_CTL_REQUEST_H
#include <jansson.h>
#include <stdbool.h>
#include "base/err.h"

enum ctl_command { CTL_STATUS, CTL_CHECKPOINT, CTL_STOP, CTL_PAUSE, CTL_RESUME, CTL_SET, CTL_RELOAD, CTL_LOG_LEVEL };
struct ctl_request {
    enum ctl_command command;
    bool reads;                                           /* it changes nothing */
    bool wait, checkpoint;
    const char *key, *value, *level;                      /* NULL: not given; value: a number is also text */
    json_t *id;                                           /* NULL: none; set also if the rest is wrong */
    json_t *all; char number[32];                         /* memory of the texts */
};
/* Fills in r, which must be freed also after a failure. 64: one line describes the mistake. */
int ctl_request_parse(const char *s, size_t n, struct ctl_request *r, struct err *e);
void ctl_request_free(struct ctl_request *r);
const char *ctl_command_name(enum ctl_command c);
#endif
