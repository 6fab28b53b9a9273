/* The time of each kernel group: a value, estimated or measured (--profile). Pure. */
#ifndef PLAN_COST_H
#define PLAN_COST_H
#include "plan/act.h"
#include "plan/select.h"

struct cost {
    char *origin;                                        /* "estimated", or the name of the profile */
    int n_groups, n_sizes, *size;                        /* micro-batch sizes that were measured, ascending */
    double *ns;                                          /* cost_cell: time of a whole micro-batch */
    double disk_ns_per_byte;                             /* of state that lies outside; 0: not known */
    double host_ns_per_byte;                             /* of its part in the host's memory; 0: as all of it */
    double load_ns;                                      /* to load one sample, on the stage that reads it */
    double latency_ns, bytes_per_ns;                     /* of a transfer */
    double busy_ns_per_byte;                             /* that a rank's thread spends on what it sends or receives */
    double optimizer_ns_per_byte;                        /* per byte of gradients */
    double sum_ns_per_byte;                              /* per byte of gradients added to others; 0: not measured */
    /* Per byte copied out of another pipeline's memory, where it is read in place. 0: the bytes are sent. */
    double read_ns_per_byte;
    /* speed of each rank's device, relative to the measured one; none: all equal */
    int n_speed; double *speed;
    double spread;                                       /* kernel times divided by their shortest times; 0: unknown */
    int threads;                                         /* compute threads of each rank; 0: as in the selection */
    struct cost *other;                                  /* a list of costs with other numbers of threads; owned */
};
double cost_speed(const struct cost *k, int rank);
struct cost *cost_new(const char *origin, int n_groups, int n_sizes);   /* all zero */
double *cost_cell(const struct cost *k, int size, enum phase ph, int group);  /* size: an index */
double cost_ns(const struct cost *k, enum phase ph, int group, int n);  /* of a micro-batch of n samples */
struct cost *cost_estimate(const struct selection *s);   /* from FLOPs and bytes */
/* cost_json prints profile.json: groups by name with their times and bytes, and the times of k->other; free() it.
 * cost_parse reads the times for the selection's number of threads, cost_parse_all for all numbers. 65 for damage,
 * another network or device. */
char *cost_json(const struct cost *k, const struct selection *s);
struct cost *cost_parse(const char *file, const char *text, size_t n, const struct selection *s, struct err *e);
struct cost *cost_parse_all(const char *file, const char *text, size_t n, const struct selection *s, struct err *e);
/* A measurement that other programs disturbed makes a bad plan. cost_doubt adds a line if the spread is above 1.3.
 * cost_spread_check fails with `code` if the spread is above the limit. what: the file, or --profile. */
void cost_doubt(double spread, const char *what, struct text *out);
int cost_spread_check(const struct cost *k, const char *what, double limit, int code, struct err *e);
/* Returns how many numbers of threads the profile has costs for within this spread; *threads is to be freed. An
 * unreadable profile has none. */
int cost_threads(const char *text, size_t n, double spread, int **threads);
/* Removes the costs for this number of threads from the list and returns them; NULL: none. */
struct cost *cost_take(struct cost **list, int threads);
void cost_free(struct cost *k);

#endif
