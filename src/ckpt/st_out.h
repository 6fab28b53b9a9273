/* A safetensors file in two steps, write and commit. Steps that wait for its contents to be read need not wait for the
 * disk. One thread at a time. */
#ifndef CKPT_ST_OUT_H
#define CKPT_ST_OUT_H
#include <stdatomic.h>
#include "base/out.h"
#include "ckpt/st.h"

struct st_out { struct out out; struct XXH3_state_s *hash; uint64_t bytes; bool open; };
/* Writes everything; reserves space first, so that a full disk is reported early. Does not call data after it returns.
 * at is borrowed until the end; stop: NULL, or a word that ends writing (75). A failure leaves nothing. */
int st_out_write(struct st_out *f, const struct out_place *at, const atomic_int *stop, const struct st_body *b,
                 struct err *e);
/* Syncs the file and gives it its name; f->bytes stays. hash: XXH3-128, as printed by xxh128sum. 73, 74. */
int st_out_commit(struct st_out *f, char hash[33], struct err *e);
void st_out_drop(struct st_out *f);                       /* instead of commit; harmless after it or if empty */
#endif
