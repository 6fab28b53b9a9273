/* For targets of what makes networks: one prints as a text that is parsed to the same text. */
#ifndef FUZZ_ROUND_TRIP_H
#define FUZZ_ROUND_TRIP_H
#include <stdlib.h>
#include <string.h>
#include "model/graph.h"

static void round_trip(const struct graph *g)
{
    struct text first = {0}, second = {0};
    graph_print(g, &first);
    struct graph *again = graph_parse("printed.graph", first.s, first.n, NULL);
    if (!again) abort();
    graph_print(again, &second);
    if (first.n != second.n || memcmp(first.s, second.s, second.n)) abort();
    text_free(&first);
    text_free(&second);
    graph_free(again);
}

#endif
