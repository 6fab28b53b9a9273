/* NCCL's environment variables and log, without calls of NCCL.
 *
 * User: tp_nccl_connect.c, before its first call of NCCL, which reads the environment once a process. */
#ifndef TRANSPORT_TP_NCCL_ENV_H
#define TRANSPORT_TP_NCCL_ENV_H
#include "transport/tp.h"

/* Sets what ranks that share a GPU need; the user's settings win. Sets nothing if every rank has its own GPU. */
void nccl_env_set(const struct tp_seats *s, int me, int n);
/* What the user could try if ranks cannot connect: "; ...", or "" if all of it is set already. Returns buf. */
enum { NCCL_ADVICE = 160 };
const char *nccl_env_advice(char buf[NCCL_ADVICE]);

/* NCCL's log, kept in memory unless the user asked for a log. It names the way of each link. */
struct nccl_log { int fd; size_t seen; };                /* fd -1: there is none */
void nccl_log_begin(struct nccl_log *l);
/* The way that was logged since the beginning or the last call: "P2P/CUMEM", "NET/IB/0/GDRDMA"; "": none. */
enum { NCCL_VIA = 48 };
void nccl_log_via(struct nccl_log *l, char via[NCCL_VIA]);
/* The same from a text: the last line that names a way which can lead from rank 0 to rank 1. */
void nccl_via(const char *log, char via[NCCL_VIA]);
void nccl_log_end(struct nccl_log *l);                   /* call it when no communicator is left */
#endif
