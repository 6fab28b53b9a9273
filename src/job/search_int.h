/* Shared by the files of the search: search.c tries candidates, search_report.c prints them, search_best.c writes the
 * best as a configuration. */
#ifndef JOB_SEARCH_INT_H
#define JOB_SEARCH_INT_H
#include <jansson.h>
#include "job/search.h"

enum { MAX_FOUND = 10, MAX_SPLITS = 15, MAX_MICRO = 64, MAX_LAYOUTS = 128 };

/* How cores are used: pipelines in parallel, ranks of each, threads of a rank. A device with a stream (a GPU) counts as
 * one core; run.threads changes nothing there. */
struct run_layout { int dp, ranks, threads; };
struct found {
    struct run_layout at;
    const char *schedule; enum recompute_mode recompute;
    int split, chunks;                                     /* chunks: stages a rank */
    double seconds, bubble;                                /* seconds 0: nothing fits */
    double least;                                          /* seconds, a lower bound of all cuts */
    int layout, order;                                     /* its layout's index; how many were tried before it */
    bool proven;                                           /* no cut is faster */
    double spread;                                         /* of the profile */
    uint64_t peak, missing;                                /* missing: bytes that the worst rank lacks */
    json_t *stages;                                        /* first and last layer and bytes of each; owned */
};
struct search {
    struct job *j;
    const struct search_request *q;
    int cores, ranks;                                      /* ranks: of all pipelines, as configured */
    int n_split, split[MAX_SPLITS], tried, unfit, done;
    struct run_layout layout[MAX_LAYOUTS]; int n_layouts;
    struct found of[MAX_LAYOUTS];                          /* the best of each layout */
    uint64_t missing[MAX_LAYOUTS];                         /* bytes that its nearest candidate lacks; 0: not known */
    struct found best[MAX_FOUND]; int n;
    VEC(struct found) rough; double fastest;               /* first cuts of all that fit; the fastest, 0: none */
    int unmeasured[MAX_LAYOUTS], n_unmeasured;             /* numbers of threads that the profile lacks */
};

/* "": nothing fits */
static inline const char *search_recompute(const struct found *x)
{
    switch (x->recompute) { WORDS_RECOMPUTE(WORD_CASE) default: return ""; }
}

static inline bool run_layout_equal(struct run_layout a, struct run_layout b)
{
    return a.dp == b.dp && a.ranks == b.ranks && a.threads == b.threads;
}
static inline bool search_gpus(const struct search *s) { return s->j->be->stream != NULL; }
static inline int run_layout_ranks(struct run_layout l) { return l.dp * l.ranks; }
/* One device, with the configured number of threads or the cores, whichever is less. */
struct run_layout search_alone(const struct search *s);
/* train.gradient_groups for this number of pipelines. */
int search_groups(const struct conf *c, int dp);
/* Makes c, a copy, the configuration of a candidate. */
void search_candidate(struct conf *c, const struct found *x);
/* Prints where all stages but the first begin. */
void search_cut(const struct found *x, struct text *out);
/* Prints the command that starts a run of x. */
void search_command(const struct search *s, const struct found *x, struct text *out);
void search_table(const struct search *s, const char *origin, int columns, struct text *out);
void search_json(const struct search *s, const char *origin, struct text *out);
/* 65, 78 */
int search_best(const struct search *s, const char *origin, struct text *out, struct err *e);
#endif
