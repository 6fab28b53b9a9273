/* A sequence of random numbers from Philox words (base/rng.h). For data sets. One thread. */
#ifndef DATA_RANDOM_VARIATES_H
#define DATA_RANDOM_VARIATES_H
#include "base/rng.h"

struct draws { struct rng_at at; uint32_t used, word[4]; };   /* initialise with {at} */
double variate_uniform(struct draws *d);                 /* in [0, 1), of 32 bits */
double variate_between(struct draws *d, double lo, double hi);
uint64_t variate_below(struct draws *d, uint64_t n);     /* 0 to n - 1; n is not 0 */
double variate_normal(struct draws *d);                  /* by Box-Muller */
/* A variate of Beta(a, a), a > 0: x / (x + y) of two gamma variates. Each is by Marsaglia and Tsang, "A simple method
 * for generating gamma variables", 2000; if a < 1, as Gamma(a + 1) U^(1/a). */
double variate_beta(struct draws *d, double a);

#endif
