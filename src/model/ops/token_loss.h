/* For the token loss and backends. op_call.saved of a micro-batch has floats [sample][point][2]: the largest logit, and
 * 1 / the sum of e^(logit - largest). Kernels of every backend write this layout. */
#ifndef OPS_TOKEN_LOSS_H
#define OPS_TOKEN_LOSS_H
#include "model/op.h"

enum { TOKEN_CLASSES, TOKEN_BIAS, TOKEN_IGNORE };
/* Columns of a sample: the sum of -log p over its labels that count, how many of them have the largest logit, and how
 * many count. */
enum { TOKEN_SUM, TOKEN_HITS, TOKEN_VALID, TOKEN_COLUMNS };

/* n samples of `points` points with `width` channels each, and the head's classes. */
struct token_loss { int64_t n, points, width, classes, ignore; };
static inline struct token_loss token_loss_of(const struct graph *g, const struct node *node, int n)
{
    const struct extent d = extent_of(g, node->in[0], n);
    const struct attr_value *a = node->attr;
    return (struct token_loss){n, d.points, d.c, a[TOKEN_CLASSES].i[0], a[TOKEN_IGNORE].i[0]};
}
#endif
