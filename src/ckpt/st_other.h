/* Weights in another format than safetensors: what they are, and what makes safetensors of them. Any thread. */
#ifndef CKPT_ST_OTHER_H
#define CKPT_ST_OTHER_H
#include "ckpt/st.h"

/* 65 where the first bytes of an open file say that it is something else, with a command that converts what PyTorch and
 * NumPy write; 0 where it may be safetensors. */
int st_other_refuse(const struct st *s, struct err *e);
#endif
