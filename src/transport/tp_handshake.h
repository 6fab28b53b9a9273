/* A meeting: ranks set something up together, on a transport that already connects them. Each gives others what they
 * need for it, and all learn whether it succeeded everywhere. A rank that fails tells all others why, so that nobody
 * waits in vain and all return the same cause.
 *
 * Who may use it: transports that stand on another one, on TP_UNDER. Thread: the executor's. Collective: every rank of
 * the transport begins a meeting and ends it, whatever happens between; nothing else uses that stream before it
 * ends. */
#ifndef TRANSPORT_TP_HANDSHAKE_H
#define TRANSPORT_TP_HANDSHAKE_H
#include "transport/tp.h"

enum { MEET_GIFT = 128 };                                /* bytes that one rank gives another */

struct meet {
    struct tp *under;
    int me, n;
    bool *through;                                       /* of each rank: it succeeded and sends no more */
    bool heard;                                          /* another rank failed */
    void (*take)(void *ctx, int from, const void *gift); /* called by handshake_hear and handshake_end */
    void *ctx;
};

void handshake_begin(struct meet *m, struct tp *under, void (*take)(void *ctx, int from, const void *gift), void *ctx);
int handshake_give(struct meet *m, int to, const void *gift, struct err *e);
/* Takes messages, does not wait. -1: another rank failed, or the transport below; e is that error, with the text of the
 * rank where it happened. */
int handshake_hear(struct meet *m, struct err *e);
/* Called with an error that may follow from another rank's: waits a moment for that one's message. 1: e is the cause
 * now; 0: none came. */
int handshake_cause(struct meet *m, struct err *e);
/* bad: this rank failed, with e. Otherwise waits for all others. Returns 0 if all succeeded, else -1 with e as in
 * handshake_hear. Ends the use of m. */
int handshake_end(struct meet *m, int bad, struct err *e);
#endif
