/* Ranks that set something up together, upon a transport that already connects them: each gives others what they need
 * for it, and all learn whether it became something everywhere. The rank that fails tells all others why, so nobody
 * waits for what will not come, and all return the same cause.
 *
 * Who may use it: transports that stand on another one, on TP_UNDER. Thread: the executor's. Collective: every rank of
 * the transport begins a meeting and ends it, whatever happened to it between; meanwhile and before nothing else goes
 * on that stream. */
#ifndef TRANSPORT_TP_MEET_H
#define TRANSPORT_TP_MEET_H
#include "transport/tp.h"

enum { MEET_GIFT = 128 };                                /* bytes that one rank gives another */

struct meet {
    struct tp *under;
    int me, n;
    bool *through;                                       /* of each rank: it succeeded, and says nothing more here */
    bool heard;                                          /* another rank failed */
    void (*take)(void *ctx, int from, const void *gift); /* called by meet_hear and meet_end */
    void *ctx;
};

void meet_begin(struct meet *m, struct tp *under, void (*take)(void *ctx, int from, const void *gift), void *ctx);
int meet_give(struct meet *m, int to, const void *gift, struct err *e);
/* Takes what has come, does not wait. -1: another rank failed, or the transport below; e is that error, with the text
 * of the one who knows it. */
int meet_hear(struct meet *m, struct err *e);
/* Before an error that may only follow from another rank's: waits a moment for that one's word. 1: e is the cause now;
 * 0: nobody spoke. */
int meet_cause(struct meet *m, struct err *e);
/* bad: this rank failed, with e. Otherwise waits for all others. Returns 0 if all succeeded, else -1 with e as in
 * meet_hear. m is not used any more. */
int meet_end(struct meet *m, int bad, struct err *e);
#endif
