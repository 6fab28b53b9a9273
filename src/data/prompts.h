/* The prompts of a run that generates text, and its samples: single tokens of sequences. Pure, apart from reading the
 * files that the configuration names; any thread. */
#ifndef DATA_PROMPTS_H
#define DATA_PROMPTS_H
#include "data/ds.h"

/* line: in generate.prompts; 0: of generate.prompt. ids: at least one. */
struct prompt { int line; VEC(int64_t) id; };
struct prompts { VEC(struct prompt) of; int64_t longest, tokens; };   /* tokens: of the tokenizer; 0: there is none */

/* Reads generate.prompts, then generate.prompt. 78: there are none; 66; 65: "FILE:LINE: ...". */
int prompts_read(const struct conf *c, struct prompts **out, struct err *e);
/* 65 if a token is not in the network's vocabulary, or a prompt leaves no position for another token. */
int prompts_check(const struct prompts *p, const struct conf *c, const struct graph *g, struct err *e);
void prompts_free(struct prompts *p);                    /* p may be NULL */

/* A sample is a token of the sequence in a slot, at a position; its id holds all three. */
struct prompt_sample { int64_t token, position, slot; };
int64_t prompt_sample_id(struct prompt_sample s);
enum { PROMPT_SLOTS = 1 << 14, PROMPT_POSITIONS = 1 << 24 };   /* the most of each */
/* The data set of all such samples. 78 if the network takes other inputs. */
int prompts_open(const struct graph *g, struct ds **out, struct err *e);
#endif
