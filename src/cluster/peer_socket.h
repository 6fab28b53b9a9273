/* Connections between the processes of a job beside MPI: frames of a fixed size, by a unix socket on one host and by
 * TCP between hosts. Whoever connects shows a token that MPI brought it, and gets to see another one, so neither end
 * takes a stranger for a rank.
 *
 * One thread a connection; nothing blocks but peer_meet and peer_join, for as long as they are told. */
#ifndef CLUSTER_PEER_SOCKET_H
#define CLUSTER_PEER_SOCKET_H
#include "cluster/failure_detector.h"

enum frame_kind { FRAME_BEAT, FRAME_SUSPICION, FRAME_BYE };
/* VERDICT: a cause, about rank who. BYE: the end of this connection means nothing any more; code 0 or why the rank
 * ends. */
struct frame { uint32_t kind; int32_t code, who; uint32_t pad; struct beat beat; char text[400]; };

struct peer {
    int fd;                                               /* -1: there is none */
    size_t n_in, n_out, sent;
    char in[sizeof (struct frame)], out[sizeof (struct frame)];
};
#define PEER_NONE ((struct peer){.fd = -1})
/* 1: a frame; 0: none is there yet; -1: the other end is gone. */
int peer_read(struct peer *w, struct frame *f);
/* 0, or -1: there was no room, because the other end does not read, and the frame is dropped. */
int peer_write(struct peer *w, const struct frame *f);
void peer_close(struct peer *w);

/* Where rank 0 listens, as it tells others: plain bytes. */
enum { PEER_TOKEN = 16, PEER_ADDRESSES = 8 };
struct peer_address { uint8_t family; uint8_t pad; uint16_t port; unsigned char bytes[16]; };   /* family: 4, 6 */
struct peer_place {
    unsigned char ask[PEER_TOKEN], answer[PEER_TOKEN], name[PEER_TOKEN];
    struct peer_address at[PEER_ADDRESSES];               /* none where all ranks are on one host */
    int32_t n_at;
};
struct peer_door { int fd[PEER_ADDRESSES + 1], n; };
/* Listens by a unix socket; remote: also on all addresses by which other hosts may reach this one. */
int peer_open(struct peer_door *d, struct peer_place *p, bool remote);
/* Lets in what knows the token, until `missing` ranks are in or ms have passed. wire: of each of n ranks. */
void peer_meet(struct peer_door *d, const struct peer_place *p, struct peer *peer, int n, int missing, int ms);
void peer_shut(struct peer_door *d);                      /* nobody else is let in; the door is gone */
/* Connects to rank 0 from rank `me`. here: it is on this host. 0 or -1. */
int peer_join(const struct peer_place *p, int me, bool here, struct peer *w, int ms);
#endif
