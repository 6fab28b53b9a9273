/* A handshake: ranks set something up together, on a transport that already connects them. Each rank sends others what
 * they need for it, and all learn whether every rank succeeded. A rank that fails sends the cause to all others. So no
 * rank waits in vain, and all return the same cause.
 *
 * Users: transports on top of another transport, on TP_UNDER. Thread: the executor's. Collective: every rank of the
 * transport calls begin and end, whatever happens in between. Until end nothing else uses that stream. */
#ifndef TRANSPORT_TP_HANDSHAKE_H
#define TRANSPORT_TP_HANDSHAKE_H
#include "transport/tp.h"

enum { MEET_GIFT = 128 };                                /* bytes that one rank gives another */

struct meet {
    struct tp *under;
    int me, n;
    bool *through;                                       /* of each rank: it succeeded and sends no more */
    bool heard;                                          /* another rank failed */
    void (*take)(void *ctx, int from, const void *gift); /* called by handshake_poll and handshake_end */
    void *ctx;
};

void handshake_begin(struct meet *m, struct tp *under, void (*take)(void *ctx, int from, const void *gift), void *ctx);
int handshake_give(struct meet *m, int to, const void *gift, struct err *e);
/* Takes messages without waiting. -1: another rank or the transport below failed; e is that error, with the text of the
 * rank where it happened. */
int handshake_poll(struct meet *m, struct err *e);
/* For an error that may follow from another rank's failure: waits a moment for that rank's message. 1: e is now the
 * cause; 0: no message came. */
int handshake_cause(struct meet *m, struct err *e);
/* bad: this rank failed, with e. Otherwise it waits for all others. Returns 0 if all succeeded, else -1 with e as in
 * handshake_poll. m is not used after it. */
int handshake_end(struct meet *m, int bad, struct err *e);
#endif
