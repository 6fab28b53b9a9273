#include <math.h>
#include "data/random_variates.h"

static uint32_t word_next(struct draws *d)
{
    if (d->used % 4 == 0) rng_words(d->at, d->used / 4, d->word);
    return d->word[d->used++ % 4];
}

double variate_uniform(struct draws *d) { return (double)word_next(d) * 0x1p-32; }

double variate_between(struct draws *d, double lo, double hi) { return lo + (hi - lo) * variate_uniform(d); }

/* The upper half of a 64 x 64 bit product: the bias is negligible for every n. */
uint64_t variate_below(struct draws *d, uint64_t n)
{
    uint64_t high = word_next(d), low = word_next(d);
    return (uint64_t)(((unsigned __int128)(high << 32 | low) * n) >> 64);
}

double variate_normal(struct draws *d)
{
    double u = ((double)word_next(d) + 1) * 0x1p-32, v = (double)word_next(d) * 0x1p-32;
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

/* The logarithm, because with a small a the value may underflow a double. */
static double gamma_log(struct draws *d, double a)
{
    double more = a < 1 ? log(((double)word_next(d) + 1) * 0x1p-32) / a : 0;
    double shape = (a < 1 ? a + 1 : a) - 1.0 / 3, c = 1 / sqrt(9 * shape), x, v;
    do {
        do {
            x = variate_normal(d);
            v = 1 + c * x;
        } while (v <= 0);
        v = v * v * v;
    } while (log(((double)word_next(d) + 1) * 0x1p-32) >= 0.5 * x * x + shape * (1 - v + log(v)));
    return log(shape * v) + more;
}

double variate_beta(struct draws *d, double a)
{
    double x = gamma_log(d, a), y = gamma_log(d, a);
    return 1 / (1 + exp(y - x));
}
