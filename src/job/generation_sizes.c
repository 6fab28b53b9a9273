/* See generation_sizes.h. */
#include "job/generation_sizes.h"

/* The caches have a slot for each sequence, and one for rows without a token; positions for the longest prompt and what
 * follows it, as far as the network's context. */
int generation_find(struct job *j, struct err *e)
{
    if (prompts_read(j->conf, &j->prompts, e)) return -1;
    struct conf *c = conf_copy(j->conf);
    const int64_t n = j->prompts->of.n, most = c->train.evaluate_batch_size;
    c->generate.slots = (n < most ? n : most) + 1;
    if (c->generate.slots > PROMPT_SLOTS) c->generate.slots = PROMPT_SLOTS;
    c->generate.context = j->prompts->longest + c->generate.max_tokens;
    if (c->generate.context > PROMPT_POSITIONS) c->generate.context = PROMPT_POSITIONS;
    j->conf = c;
    return 0;
}

struct generation_sizes generation_sizes(const struct job *j)
{
    enum { PREFILL_ROWS = 64, MAX_GROUPS = 3 };   /* as many as batches in flight */
    const int slots = (int)j->conf->generate.slots - 1, least = (slots + DECODE_ROWS - 1) / DECODE_ROWS,
              ranks = j->mesh.size[AXIS_PP] < MAX_GROUPS ? j->mesh.size[AXIS_PP] : MAX_GROUPS,
              groups = least > ranks ? least : ranks < slots ? ranks : slots, rows = (slots + groups - 1) / groups;
    return (struct generation_sizes){slots, (slots + rows - 1) / rows, rows, PREFILL_ROWS};
}
