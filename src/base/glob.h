/* Patterns of dotted names such as layer1.0.conv1.weight: * matches any text, including dots, and ? any byte. Pure; any
 * thread. */
#ifndef BASE_GLOB_H
#define BASE_GLOB_H
#include <stdbool.h>
#include <stddef.h>
#include "base/text.h"

/* Whether the pattern matches all n bytes at s. The time is at most the product of both lengths. */
bool glob_matches(const char *pattern, const char *s, size_t n);
/* Whether the pattern matches whole leading components: "layer1" and "layer*" match layer1.0.conv1.weight. */
bool glob_names(const char *pattern, const char *name);
/* Length of the pattern without trailing * and . : the name that the user may have meant. */
size_t glob_stem(const char *pattern);

/* A rule "PATTERN -> NAME". NAME replaces the components that PATTERN matches (see glob_names); the rest of the name
 * stays. The k-th * in NAME stands for the text that the k-th * of PATTERN matched; earlier ones match as little as
 * possible. */
enum { PATTERN_MOST = 256, PATTERN_STARS = 8 };
struct glob_rule { char from[PATTERN_MOST], to[PATTERN_MOST]; };
/* False: s is not such a rule, or has more * on its right than on its left. */
bool glob_rule_parse(const char *s, struct glob_rule *r);
/* Appends the new name to out. False: the rule does not match the name. */
bool glob_rename(const struct glob_rule *r, const char *name, struct text *out);

#endif
