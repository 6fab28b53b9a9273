/* See interim_rank.h. */
#include <stdlib.h>
#include <string.h>
#include "train/interim_rank.h"

/* from: for each row of the registry, the row of the training job with the same name; -1: a cache, or not here. */
struct interim {
    const struct job *job; const struct placement *trained; struct exec *exec, *trains; int *from;
    struct exec_beat *beat;
};

static const struct state_row *row_named(const struct placement *pl, const struct state_row *like, int *at)
{
    for (*at = 0; *at < pl->n_state; ++*at) {
        const struct state_row *r = &pl->state[*at];
        if (r->kind == like->kind && !strcmp(r->name, like->name)) return r;
    }
    return NULL;
}

int interim_open(const struct job *j, int rank, const struct exec_request *like, struct interim **out, struct err *e)
{
    const struct job *g = j->interim;
    if (!g || job_coord(j, rank).at[AXIS_DP]) return 0;
    struct interim *s = *out = mem_alloc(sizeof *s);
    *s = (struct interim){.job = g, .trained = j->pl, .beat = like->beat};
    struct exec_request q = *like;
    q.conf = g->conf;
    q.sel = g->sel;
    q.pl = g->pl;
    q.plan = g->plan;
    q.n_plans = g->n_plans;
    q.train = NULL;
    q.test = g->data[DS_TEST];
    q.filled = true;
    q.hold = NULL;
    return exec_open(&q, &s->exec, e);
}

/* Where each weight comes from. */
static int rows_match(struct interim *s, struct err *e)
{
    const struct placement *pl = s->job->pl;
    s->from = mem_alloc((size_t)pl->n_state * sizeof *s->from);
    for (int i = 0; i < pl->n_state; i++) {
        const struct state_row *r = &pl->state[i], *t = row_named(s->trained, r, &s->from[i]);
        if (t && exec_holds(s->exec, i) && exec_holds(s->trains, s->from[i]) && t->file.type == r->file.type) continue;
        if (t && exec_holds(s->exec, i))
            return err_set(e, E_INTERNAL, "%s is on another rank than in training", r->name);
        s->from[i] = -1;
    }
    return 0;
}

int interim_bind(struct interim *s, struct exec *trains, struct err *e)
{
    if (!s) return 0;
    s->trains = trains;
    return exec_bind(s->exec, e) || rows_match(s, e) ? -1 : 0;
}

int interim_weights(struct interim *s, struct err *e)
{
    const struct placement *pl = s->job->pl;
    size_t most = 0;
    for (int i = 0; i < pl->n_state; i++)
        if (s->from[i] >= 0 && state_plain_bytes(&pl->state[i]) > most) most = state_plain_bytes(&pl->state[i]);
    void *plain = mem_alloc(most + 1);
    int bad = exec_averages_use(s->trains, true, e);
    for (int i = 0; i < pl->n_state && !bad; i++) {
        if (s->from[i] < 0) continue;
        bad = exec_state_get(s->trains, s->from[i], plain, e) || exec_state_set(s->exec, i, plain, e);
        if (s->beat) exec_beat_count(s->beat);            /* all of them may take longer than run.hang_timeout */
    }
    free(plain);
    return bad || exec_state_changed(s->exec, e) ? -1 : 0;
}

struct exec *interim_exec(const struct interim *s) { return s ? s->exec : NULL; }

void interim_close(struct interim *s)
{
    if (!s) return;
    if (s->exec) exec_close(s->exec);
    free(s->from);
    free(s);
}
