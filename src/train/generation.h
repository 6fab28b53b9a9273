/* Generation of text (run.generate, generate.every_steps): which tokens the network sees next, the drawing of tokens
 * from its logits, and the output. Rank 0. Every function may be called on any thread.
 *
 * Sequences occupy slots of the caches; a sequence that ends gives its slot to the next prompt. Slots are divided into
 * groups, so that a pipeline works on several groups at a time. A decoding batch has a row for each slot of a group. A
 * prefill batch has tokens of one prompt. Rows without a token are of a slot that no sequence uses. What is drawn for a
 * prompt is a function of its logits, its number and generate.seed alone. On CPUs its logits depend neither on other
 * prompts nor on ranks or cuts: products of up to DECODE_ROWS rows compute each row alone. */
#ifndef TRAIN_GENERATION_H
#define TRAIN_GENERATION_H
#include <stdatomic.h>
#include "base/out.h"
#include "job/job.h"

struct generation;
enum generation_next { GENERATION_WAITS, GENERATION_PREFILLS, GENERATION_DECODES, GENERATION_ENDS };
/* at: the output's place, borrowed until the end; NULL: generation_take returns it. stop: nonzero ends writing (75).
 * The job has prompts. 65, 66, 73, 74: nothing was opened. */
int generation_open(const struct job *j, const struct out_place *at, const atomic_int *stop, struct generation **out,
                    struct err *e);
/* Begins again with the first prompt, while no batch is on its way. */
void generation_again(struct generation *g);
/* Fills in the sample ids of the next batch: of job.batch[PLAN_EVAL_FULL] rows if it prefills, of PLAN_EVAL_SHORT if it
 * decodes. WAITS: all groups await the logits of a batch, or without `at` the last lines are not taken yet. */
enum generation_next generation_next(struct generation *g, int64_t *id);
/* Takes the logits of the oldest decoding batch that has not come back, and draws tokens. 74, 75; 79 if a logit is NaN
 * or the largest is infinite. Between steps that ends the text instead. */
int generation_rows(struct generation *g, const float *x, struct err *e);
/* Moves the lines of finished prompts into `out`, in the order of the prompts; without `at`. */
void generation_take(struct generation *g, struct text *out);
/* Adds the time of a batch. */
void generation_time(struct generation *g, bool prefill, uint64_t ns);
/* tokens: drawn so far */
struct generation_sums { int64_t prompts, tokens; uint64_t prefill_ns, decode_ns; };
struct generation_sums generation_sums(struct generation *g);
bool generation_complete(struct generation *g);          /* whether all prompts are done */
int generation_commit(struct generation *g, struct err *e);   /* gives the file its name: 73, 74 */
void generation_free(struct generation *g);              /* without commit removes the file; g may be NULL */
#endif
