/* Connections between the processes of a job beside MPI: frames of a fixed size, by a unix socket on one host and by
 * TCP between hosts. Whoever connects shows a token that MPI brought it, and gets to see another one, so neither end
 * takes a stranger for a rank.
 *
 * One thread a wire; nothing blocks but wire_meet and wire_join, for as long as they are told. */
#ifndef DAEMON_RUN_WIRE_H
#define DAEMON_RUN_WIRE_H
#include "daemon/run/judge.h"

enum frame_kind { FRAME_BEAT, FRAME_VERDICT, FRAME_BYE };
/* VERDICT: a cause, about rank who. BYE: the end of this wire means nothing any more; code 0 or why the rank ends. */
struct frame { uint32_t kind; int32_t code, who; uint32_t pad; struct beat beat; char text[400]; };

struct wire {
    int fd;                                               /* -1: there is none */
    size_t n_in, n_out, sent;
    char in[sizeof (struct frame)], out[sizeof (struct frame)];
};
#define WIRE_NONE ((struct wire){.fd = -1})
/* 1: a frame; 0: none is there yet; -1: the other end is gone. */
int wire_read(struct wire *w, struct frame *f);
/* 0, or -1: there was no room, because the other end does not read, and the frame is dropped. */
int wire_write(struct wire *w, const struct frame *f);
void wire_close(struct wire *w);

/* Where rank 0 listens, as it tells others: plain bytes. */
enum { WIRE_TOKEN = 16, WIRE_ADDRESSES = 8 };
struct wire_address { uint8_t family; uint8_t pad; uint16_t port; unsigned char bytes[16]; };   /* family: 4, 6 */
struct wire_place {
    unsigned char ask[WIRE_TOKEN], answer[WIRE_TOKEN], name[WIRE_TOKEN];
    struct wire_address at[WIRE_ADDRESSES];               /* none where all ranks are on one host */
    int32_t n_at;
};
struct wire_door { int fd[WIRE_ADDRESSES + 1], n; };
/* Listens by a unix socket; remote: also on all addresses by which other hosts may reach this one. */
int wire_open(struct wire_door *d, struct wire_place *p, bool remote);
/* Lets in what knows the token, until `missing` ranks are in or ms have passed. wire: of each of n ranks. */
void wire_meet(struct wire_door *d, const struct wire_place *p, struct wire *wire, int n, int missing, int ms);
void wire_shut(struct wire_door *d);                      /* nobody else is let in; the door is gone */
/* Connects to rank 0 from rank `me`. here: it is on this host. 0 or -1. */
int wire_join(const struct wire_place *p, int me, bool here, struct wire *w, int ms);
#endif
