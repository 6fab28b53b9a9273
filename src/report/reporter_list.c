/* All reporters, in the order of the list in Makefile.am. A file of its own, so that tests link only theirs. */
#include "report/reporter.h"

#define REPORTER(x) extern const struct reporter reporter_##x;
#include "registry.inc"
const struct reporter *const reporter_list[] = {
#define REPORTER(x) &reporter_##x,
#include "registry.inc"
    NULL};
