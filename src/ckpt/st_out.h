/* A safetensors file on its way to disk: written, then committed, so that work that waits for its contents to be read
 * need not wait for the disk. One thread at a time. */
#ifndef CKPT_ST_OUT_H
#define CKPT_ST_OUT_H
#include <stdatomic.h>
#include "base/out.h"
#include "ckpt/st.h"

/* what st_write takes */
struct st_body { int n; const struct st_entry *entry;
                 int (*data)(void *ctx, int i, void *buf, struct err *e); void *ctx; };
struct st_out { struct out out; struct XXH3_state_s *hash; uint64_t bytes; bool open; };
/* Writes everything; room is kept first, so that a full disk is told early. Afterwards data is not called any more. at
 * is borrowed until the end; stop: NULL, or a word that ends writing (75). On failure nothing is left. */
int st_out_write(struct st_out *f, const struct out_place *at, const atomic_int *stop, const struct st_body *b,
                 struct err *e);
/* Syncs the file and gives it its name; f->bytes stays. hash: XXH3-128, as xxh128sum prints it. 73, 74. */
int st_out_commit(struct st_out *f, char hash[33], struct err *e);
void st_out_drop(struct st_out *f);                       /* instead of commit; harmless after it, and if empty */
#endif
