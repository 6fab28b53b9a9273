/* What each kernel group takes: a value, estimated or measured (--profile). Pure. */
#ifndef PLAN_COST_H
#define PLAN_COST_H
#include "plan/act.h"
#include "plan/select.h"

/* what each group takes; a value: estimated, or measured by --profile */
struct cost {
    char *origin;                                        /* "estimated", or the file's name */
    int n_groups, n_sizes, *size;                        /* micro-batch sizes that were measured, ascending */
    double *ns;                                          /* cost_cell: of a whole micro-batch */
    double load_ns;                                      /* of one sample, on the stage that reads it */
    double latency_ns, bytes_per_ns;                     /* of a transfer */
    double busy_ns_per_byte;                             /* that a rank's thread gives to what it sends or receives */
    double optimizer_ns_per_byte;                        /* of gradient bytes */
    double sum_ns_per_byte;                              /* of gradients that are added to others; 0: not measured */
    /* Of what is copied out of another replica's memory, in a run whose replicas read it in place. 0: they send it. */
    double read_ns_per_byte;
    /* of each rank's device, relative to the one measured; none: all alike */
    int n_speed; double *speed;
    double spread;                                       /* what kernels took, by their shortest times; 0: unknown */
    int threads;                                         /* computing ones of each rank; 0: the selection's */
    struct cost *other;                                  /* a list: with other numbers of threads; owned */
};
double cost_speed(const struct cost *k, int rank);
struct cost *cost_new(const char *origin, int n_groups, int n_sizes);   /* all zero */
double *cost_cell(const struct cost *k, int size, enum phase ph, int group);  /* size: index */
double cost_ns(const struct cost *k, enum phase ph, int group, int n);  /* of a micro-batch of n samples */
struct cost *cost_estimate(const struct selection *s);   /* from FLOPs and bytes */
/* profile.json: groups by name with their times and bytes (free() it), and the times of k->other; and back: those for
 * the selection's number of threads, or all. 65 for damage, another network or device. */
char *cost_json(const struct cost *k, const struct selection *s);
struct cost *cost_parse(const char *file, const char *text, size_t n, const struct selection *s, struct err *e);
struct cost *cost_parse_all(const char *file, const char *text, size_t n, const struct selection *s, struct err *e);
/* What was measured while other programs disturbed the machine makes a bad plan. cost_doubt adds a line where the
 * spread is above 1.3, otherwise nothing; cost_spread_check refuses what is above the limit with that code. what: the
 * file, or --profile. */
void cost_doubt(double spread, const char *what, struct text *out);
int cost_spread_check(const struct cost *k, const char *what, double limit, int code, struct err *e);
/* The numbers of threads that a profile has costs for within that limit of their spread, to be freed; what cannot be
 * read has none. How many. */
int cost_threads(const char *text, size_t n, double spread, int **threads);
/* Takes those with that number of threads out of the list; NULL: none. */
struct cost *cost_take(struct cost **list, int threads);
void cost_free(struct cost *k);

#endif
