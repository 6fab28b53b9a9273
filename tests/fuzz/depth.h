/* How far targets go whose parser is the smaller part: FUZZ_DEPTH=parse in the environment leaves out all that is done
 * with what was accepted, so that the parser alone runs many times as often. */
#ifndef FUZZ_DEPTH_H
#define FUZZ_DEPTH_H
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static inline bool goes_deep(void)
{
    static int deep = -1;
    if (deep < 0) {
        const char *depth = getenv("FUZZ_DEPTH");
        deep = !depth || strcmp(depth, "parse") != 0;
    }
    return deep;
}

#endif
