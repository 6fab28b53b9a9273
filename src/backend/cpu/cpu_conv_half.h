/* Convolutions in bf16 on tensors with channels last, for processors with instructions for bf16. Their weights are
 * floats in the order [points of the kernel][in][out] (LAYOUT_LAST), and so are the gradients; or, with one point and
 * more inputs than outputs, [out][in] (LAYOUT_PLAIN), because weight gradients turn the smaller side. Packed
 * weights are bf16 in two forms, for the forward pass and for input gradients. See docs/design/cpu-bf16.md. */
#ifndef BACKEND_CPU_CPU_CONV_HALF_H
#define BACKEND_CPU_CPU_CONV_HALF_H
#include "backend/cpu/cpu_int.h"

/* Is this node such a convolution, transposed or not? Its output is then LAYOUT_LAST. Pure. */
bool conv_half(const struct selection *s, const struct node *n);
bool conv_half_last(const struct selection *s, int param);   /* the order of the weights */
/* kernel_row.layout and .param_layout */
enum layout conv_half_layout(const struct selection *s, const struct node *n);
enum layout conv_half_param_layout(const struct selection *s, const struct node *n, int slot);
/* kernel_row.refuses: of all other convolutions. */
const char *conv_half_refuses(const struct selection *s, const struct group *k, enum phase ph);
/* kernel_row.packed: the form for the forward pass, and behind conv_half_way_bytes that for input gradients. */
size_t conv_half_packed(const struct selection *s, const struct group *k);
size_t conv_half_way_bytes(const struct graph *g, const struct node *n);
/* The kernel on copies with channels last of what has another layout. */
struct be_kernel *conv_half_on_last(struct be *b, const struct be_kernel *like, kernel_maker *make, struct err *e);

#endif
