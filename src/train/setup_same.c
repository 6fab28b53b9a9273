/* Checks that all ranks are about to compute the same. */
#include <stdlib.h>
#include <string.h>
#include "train/setup.h"
#include "cluster/vote.h"

void setup_name(struct setup *b, struct plan *const *plan, int n)
{
    struct text hashes = {0};
    numerics_line(b->job.sel, b->conf, &b->numerics);
    for (int i = 0; i < n; i++) {
        char h[33];
        plan_hash(plan[i], h);
        text_add(&hashes, "%s\n", h);
    }
    text_hash(hashes.s, hashes.n, b->plan);
    text_free(&hashes);
}

/* Names the first line that differs. */
static int conf_match(const struct setup *b, char *first, struct err *e)
{
    struct text mine = {0};
    char *own_save, *first_save;
    int bad = 0;
    conf_print(b->conf, &mine);
    char *own = strtok_r(mine.s, "\n", &own_save), *other = strtok_r(first, "\n", &first_save);
    while (own && other && strcmp(own, other) == 0) {
        own = strtok_r(NULL, "\n", &own_save);
        other = strtok_r(NULL, "\n", &first_save);
    }
    if (own || other)
        bad = err_set(e, E_CONF, "rank %d has another configuration than rank 0: \"%.200s\" and \"%.200s\"",
                      b->world->rank, own ? own + strspn(own, " ") : "", other ? other + strspn(other, " ") : "");
    text_free(&mine);
    return bad;
}

int setup_same(struct setup *b, struct err *e)
{
    struct text first = {0}, plan = {0}, conf = {0};
    int rank = b->world->rank, bad = 0;
    text_add(&first, "%s", b->numerics.s);
    text_add(&plan, "%s", b->plan);
    vote_share(b->world, &first);
    vote_share(b->world, &plan);
    conf_print(b->conf, &conf);
    vote_share(b->world, &conf);
    if (strcmp(first.s, b->numerics.s) != 0)
        bad = err_set(e, E_CONF, "rank %d would compute other numbers than rank 0: \"%.300s\" and \"%.300s\"", rank,
                      b->numerics.s, first.s);
    else if (strcmp(plan.s, b->plan) != 0)
        bad = err_set(e, E_CONF, "rank %d has another plan than rank 0 (%s and %s); do all ranks run the same "
                      "program on the same files?", rank,
                      b->plan, plan.s);
    else bad = conf_match(b, conf.s, e);
    text_free(&conf);
    text_free(&first);
    text_free(&plan);
    return bad;
}
