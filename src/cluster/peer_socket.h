/* Connections between the processes of a job beside MPI: frames of a fixed size, over a unix socket on one host and TCP
 * between hosts. The process that connects sends a token that it got through MPI, and receives another one. So neither
 * end takes a stranger for a rank.
 *
 * One thread per connection. Only peer_accept and peer_join block, for as long as the caller allows. */
#ifndef CLUSTER_PEER_SOCKET_H
#define CLUSTER_PEER_SOCKET_H
#include "cluster/failure.h"
#include "cluster/failure_detector.h"

enum frame_kind { FRAME_BEAT, FRAME_FAILURE, FRAME_BYE, FRAME_MET };
/* FAILURE: found by a failure detector. BYE: the end of this connection is no failure; e.code: 0, or why the rank
 * ends. MET: the rank, to rank 0 all ranks, called heartbeat_meet. */
struct frame { uint32_t kind, pad; struct beat beat; struct failure failure; };

struct peer {
    int fd;                                               /* -1: there is none */
    size_t n_in, n_out, sent;
    char in[sizeof (struct frame)], out[sizeof (struct frame)];
};
#define PEER_NONE ((struct peer){.fd = -1})
/* 1: f has a frame; 0: none has arrived yet; -1: the other end was lost. */
int peer_read(struct peer *w, struct frame *f);
/* 0, or -1: the frame was dropped, because the buffer is full: the other end does not read. */
int peer_write(struct peer *w, const struct frame *f);
void peer_close(struct peer *w);

/* Where rank 0 listens, as it sends that to the others: plain bytes. */
enum { PEER_TOKEN = 16, PEER_ADDRESSES = 8 };
struct peer_address { uint8_t family; uint8_t pad; uint16_t port; unsigned char bytes[16]; };   /* family: 4, 6 */
struct peer_place {
    unsigned char ask[PEER_TOKEN], answer[PEER_TOKEN], name[PEER_TOKEN];
    struct peer_address at[PEER_ADDRESSES];               /* none if all ranks are on one host */
    int32_t n_at;
};
struct peer_listener { int fd[PEER_ADDRESSES + 1], n; };
/* Listens on a unix socket; remote: also on all addresses by which other hosts may reach this one. */
int peer_open(struct peer_listener *d, struct peer_place *p, bool remote);
/* Accepts connections that send the token, until `missing` ranks have connected or ms have passed. peer: one for each
 * of n ranks. */
void peer_accept(struct peer_listener *d, const struct peer_place *p, struct peer *peer, int n, int missing, int ms);
void peer_shut(struct peer_listener *d);                      /* closes the listening sockets */
/* Connects rank `me` to rank 0. here: rank 0 is on this host. 0 or -1. */
int peer_join(const struct peer_place *p, int me, bool here, struct peer *w, int ms);
#endif
