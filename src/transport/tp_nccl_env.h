/* What NCCL reads from the environment, and the log that it writes: no call of NCCL's.
 *
 * Who may use it: tp_nccl.c, before its first call of NCCL, which reads the environment once a process. */
#ifndef TRANSPORT_TP_NCCL_ENV_H
#define TRANSPORT_TP_NCCL_ENV_H
#include "transport/tp.h"

/* Sets what ranks that share a GPU need; the user's settings win. Nothing where every rank has a GPU of its own. */
void nccl_env_set(const struct tp_seats *s, int me, int n);
/* What the user could try when ranks cannot connect: "; ..." or nothing, where all of that is set. Returns buf. */
enum { NCCL_ADVICE = 160 };
const char *nccl_env_advice(char buf[NCCL_ADVICE]);
#endif
