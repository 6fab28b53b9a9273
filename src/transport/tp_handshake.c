/* Handshakes: ranks set something up together. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "base/deadline.h"
#include "base/mem.h"
#include "transport/tp_handshake.h"

enum handshake_kind { GIFT, THROUGH, FAILED };
struct handshake_word {
    int32_t kind, code;
    union { char gift[MEET_GIFT]; char text[sizeof ((struct err *)NULL)->text]; } u;
};

void handshake_begin(struct meet *m, struct tp *under, void (*take)(void *ctx, int from, const void *gift), void *ctx)
{
    *m = (struct meet){
        .under = under, .me = under->ops->rank(under), .n = under->ops->size(under), .take = take, .ctx = ctx};
    m->through = mem_alloc((size_t)m->n * sizeof *m->through);
    m->through[m->me] = true;
}

static int word_say(struct meet *m, int to, const struct handshake_word *w, struct err *e)
{
    return m->under->ops->send_msg(m->under, to, TP_UNDER, w, sizeof *w, e);
}

int handshake_give(struct meet *m, int to, const void *gift, struct err *e)
{
    struct handshake_word w = {.kind = GIFT};
    memcpy(w.u.gift, gift, MEET_GIFT);
    return word_say(m, to, &w, e);
}

/* Takes the messages of a rank until it is through; later messages do not belong to the handshake. */
static int rank_poll(struct meet *m, int rank, struct err *e)
{
    struct handshake_word w;
    struct tp_message heard = {rank, TP_UNDER, &w, sizeof w};
    int got = 0;
    while (!m->through[rank] && (got = m->under->ops->recv_msg(m->under, &heard, e)) > 0) {
        if (heard.n != sizeof w)
            return err_set(e, E_INTERNAL, "rank %d heard %zu bytes of rank %d while they connect", m->me, heard.n,
                           rank);
        switch ((enum handshake_kind)w.kind) {
        case GIFT: m->take(m->ctx, rank, w.u.gift); break;
        case THROUGH: m->through[rank] = true; break;
        case FAILED: m->heard = true; return err_set(e, w.code, "%s", w.u.text);
        }
    }
    return got < 0 ? -1 : 0;
}

int handshake_poll(struct meet *m, struct err *e)
{
    if (m->under->ops->progress(m->under, e)) return -1;
    for (int r = 0; r < m->n; r++) if (rank_poll(m, r, e)) return -1;
    return 0;
}

int handshake_cause(struct meet *m, struct err *e)
{
    struct err first = {0};
    uint64_t until = clock_ns() + DEADLINE_NS(DEADLINE_MEET);
    if (m->heard) return 0;
    while (!handshake_poll(m, &first) && clock_ns() < until) sched_yield();
    if (!m->heard) return 0;
    *e = first;
    return 1;
}

/* A rank that received the failure from another rank does not pass it on: the failed rank sends it to all. */
static void failure_report(struct meet *m, const struct err *e)
{
    struct handshake_word w = {.kind = FAILED, .code = e->code};
    struct err none = {0};
    memcpy(w.u.text, e->text, sizeof w.u.text);
    for (int r = 0; r < m->n && !m->heard; r++) if (r != m->me && word_say(m, r, &w, &none)) return;
}

static int all_wait(struct meet *m, struct err *e)
{
    struct handshake_word w = {.kind = THROUGH};
    int missing = m->n;
    for (int r = 0; r < m->n; r++) if (r != m->me && word_say(m, r, &w, e)) return -1;
    while (missing) {
        if (handshake_poll(m, e)) return -1;
        missing = 0;
        for (int r = 0; r < m->n; r++) missing += !m->through[r];
        if (missing) sched_yield();
    }
    return 0;
}

int handshake_end(struct meet *m, int bad, struct err *e)
{
    if (bad) failure_report(m, e);
    else bad = all_wait(m, e);
    free(m->through);
    return bad ? -1 : 0;
}
