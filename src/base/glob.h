/* Patterns of dotted names, as in layer1.0.conv1.weight: * is any text, dots included, and ? any byte. Pure; any
 * thread. */
#ifndef BASE_GLOB_H
#define BASE_GLOB_H
#include <stdbool.h>
#include <stddef.h>
#include "base/text.h"

/* All of the n bytes at s. In time of the product of both lengths, whatever the pattern. */
bool glob_matches(const char *pattern, const char *s, size_t n);
/* Whole components from the beginning of the name: "layer1" and "layer*" match layer1.0.conv1.weight. */
bool glob_names(const char *pattern, const char *name);
/* Bytes of a pattern without what it ends with of * and . : what somebody may have meant to spell. */
size_t glob_stem(const char *pattern);

/* A rule "PATTERN -> NAME": what PATTERN matches of a name, as glob_names does, becomes NAME, in which the k-th *
 * stands for what the k-th * of PATTERN took, the earlier ones as little as possible; the rest of the name stays. */
enum { PATTERN_MOST = 256, PATTERN_STARS = 8 };
struct glob_rule { char from[PATTERN_MOST], to[PATTERN_MOST]; };
/* False: it is no such rule, or has more * on its right than on its left. */
bool glob_rule_parse(const char *s, struct glob_rule *r);
/* Adds the new name to out. False: the name is not matched. */
bool glob_rename(const struct glob_rule *r, const char *name, struct text *out);

#endif
