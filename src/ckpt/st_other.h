/* Recognises weights in formats other than safetensors, and suggests how to convert them. Any thread. */
#ifndef CKPT_ST_OTHER_H
#define CKPT_ST_OTHER_H
#include "ckpt/st.h"

/* 65 if an open file's first bytes show another format, with a conversion command for files of PyTorch and NumPy. 0 if
 * it may be safetensors. */
int st_other_refuse(const struct st *s, struct err *e);
#endif
