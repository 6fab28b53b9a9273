/* Escaping, and ticks of axes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/markup.h"
#include "base/mem.h"

void markup_text(struct text *t, const char *s)
{
    size_t size = 4 * strlen(s) + 1;                      /* a byte becomes \xff at most */
    char *clean = mem_alloc(size);
    text_printable(s, clean, size);
    for (const char *c = clean, *end; *c; c = end) {
        end = c + strcspn(c, "&<>\"'");
        text_add_bytes(t, c, (size_t)(end - c));
        if (*end) text_add(t, "&#%d;", *end++);
    }
    free(clean);
}

double markup_tick(double span, int most)
{
    static const double step[] = {1, 2, 5, 10};
    double power = pow(10, floor(log10(span > 0 ? span / most : 1)));
    int i = 0;
    while (i < 3 && span / (step[i] * power) > most) i++;
    return step[i] * power;
}
