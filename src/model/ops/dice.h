/* For the operators dice and dice_ce, and backends.
 *
 * Soft Dice (Milletari and others 2016) of one sample, p = softmax of a point's channels, or the sigmoid of each, y the
 * one-hot target, a the power, s the smoothing, S the K counted classes, all or all but class 0:
 *   I = sum p y, P = sum p^a, Y = sum y^a over the points; N = 2 I + s, D = P + Y + s; loss = 1 - 1/K sum_S N / D.
 * Its gradient: q_c = dloss/dp_c = -(2 y_c D - a N p_c^(a-1)) / (K D^2) within S, else 0; of softmax's inputs p_k
 * (q_k - sum q_c p_c), of sigmoid's q p (1 - p).
 * dice_ce adds the mean cross-entropy over points, and with sigmoids also over channels. */
#ifndef OPS_DICE_H
#define OPS_DICE_H
#include "model/ops/segment.h"
#include "model/ops/segment_rule.h"

/* first: the first counted class. ce: with cross-entropy. */
struct dice { int64_t c, points, first; bool sigmoid, ce; int power; double smooth; };
struct dice dice_of(const struct graph *g, const struct node *n);

/* Saved for each sample and channel: I, P and Y. */
size_t dice_saved(const struct graph *g, const struct node *n, int samples);
int dice_infer(const struct node *n, const struct shape *const *in, struct infer *f, struct err *e);
void dice_forward(const struct op_call *c);
void dice_backward(const struct op_call *c);
extern const struct attr_kind dice_attrs[];
extern const struct score_row dice_rows[];
extern const char *const dice_examples[];
#endif
