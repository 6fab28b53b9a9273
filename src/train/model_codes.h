/* Weights in bitsandbytes' form of 8 bits, for other programs: of each linear layer but the head codes (X.weight),
 * their factors (X.SCB) and the order of the codes (X.weight_format). Executor's thread of rank 0. */
#ifndef TRAIN_MODEL_CODES_H
#define TRAIN_MODEL_CODES_H
#include "ckpt/st_out.h"
#include "model/graph.h"

/* of: for each entry, that of `from`; part: weight, factors or order. */
struct model_codes { const struct st_body *from; const struct graph *g; int *of; char *part; struct st_entry *entry;
                     struct arena *mem; };
/* The body with codes in place of the floats of `from`, whose names are of g's parameters. Both are borrowed. */
struct st_body model_codes_body(struct model_codes *m, const struct st_body *from, const struct graph *g);
void model_codes_free(struct model_codes *m);
bool model_codes_are_factors(const char *name);           /* X.SCB */
bool model_codes_follows(const char *name);               /* X.SCB or X.weight_format, which follow X.weight */
#endif
