/* Sums over the ranks of a task, and the account of a step. */
#include <stdio.h>
#include <string.h>
#include "report/result.h"

size_t result_bytes(int n_ranks) { return sizeof(struct result) + (size_t)n_ranks * sizeof(struct report); }

void sums_add(struct sums *s, const struct result *r, int n_ranks)
{
    for (int i = 0; i < n_ranks; i++) {
        for (int k = 0; k < MAX_SCORES; k++) {
            s->score[k].numerator += r->rep[i].score[k].numerator;
            s->score[k].denominator += r->rep[i].score[k].denominator;
        }
        s->samples += r->rep[i].samples;
    }
    s->ns += r->ns;
}

char *nonfinite_text(const struct graph *g, int nonfinite, char *buf, size_t n)
{
    if (nonfinite == NONFINITE_LOSS) snprintf(buf, n, "the loss");
    else snprintf(buf, n, "the gradient of %s", g->param[nonfinite - NONFINITE_GRADIENT].name);
    return buf;
}

static void spent_take(uint64_t *part, uint64_t *excess)
{
    uint64_t n = *part < *excess ? *part : *excess;
    *part -= n;
    *excess -= n;
}

void account_fit(uint64_t part[ACC_COUNT], uint64_t ns)
{
    static const enum account first[] = {ACC_WAIT_UP, ACC_WAIT_DOWN, ACC_OTHER, ACC_TRANSFER};
    uint64_t sum = 0;
    for (int i = 0; i < ACC_COUNT; i++) sum += part[i];
    if (sum <= ns) { part[ACC_WAIT_UP] += ns - sum; return; }
    uint64_t excess = sum - ns;
    for (size_t i = 0; i < sizeof first / sizeof *first; i++) spent_take(&part[first[i]], &excess);
    for (int i = 0; i < ACC_COUNT; i++) spent_take(&part[i], &excess);
}

double account_of(const struct report *r, uint64_t ns, uint64_t part[ACC_COUNT])
{
    memcpy(part, r->ns, sizeof r->ns);
    account_fit(part, ns);
    return ns ? (double)(part[ACC_WAIT_UP] + part[ACC_WAIT_DOWN]) / (double)ns : 0;
}
