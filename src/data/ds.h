/* A data set format: one file ds_NAME.c with one `const struct ds_kind ds_NAME`, its name in DATASETS.
 *
 * A data set is samples 0..count-1, each an input of a fixed shape and a target. read may be called from any thread:
 * handles do not change after open, but for what is kept. Files are hostile: sizes are checked against the file's
 * before anything is allocated; errors are 65 "FILE: offset N: ..." or 66 "FILE: ...". */
#ifndef DATA_DS_H
#define DATA_DS_H
#include "base/err.h"
#include "conf/conf.h"
#include "model/graph.h"

struct ds;
enum ds_part { DS_TRAIN, DS_TEST };

/* What the model takes. input: shape of a sample (channels first), F32. target: shape and type of the labels tensor:
 * I64 scalar (a class below `classes`), or an F32 vector (class labels become one-hot where it has one dimension).
 * has_target: the graph has labels at all. */
struct ds_want {
    struct shape input, target;
    enum dtype target_type;
    bool has_target;
    int64_t classes;
};

struct ds_kind {
    const char *name, *text;
    /* A source that cannot give what is wanted is 78 or 65 with a text that names both shapes.
     * *out = NULL without error: the part is not configured (no test set). */
    int (*open)(const struct conf *c, enum ds_part part, const struct ds_want *want, struct ds **out, struct err *e);
    uint64_t (*count)(const struct ds *d);
    /* Writes one sample, row-major. x or y may be NULL: not wanted (inputs on the first stage, labels on the last). */
    int (*read)(struct ds *d, uint64_t index, float *x, void *y, struct err *e);
    /* Samples will be wanted again, faster than they can be made: keeps what it can. Before the first read; NULL:
     * reading is fast. */
    void (*keep)(struct ds *d);
    void (*close)(struct ds *d);
};
struct ds { const struct ds_kind *kind; };               /* first member of every format's own struct */
extern const struct ds_kind *const ds_list[];            /* NULL-terminated, order of DATASETS */
/* by data.source */
int ds_open(const struct conf *c, enum ds_part part, const struct graph *g, struct ds **out, struct err *e);
void ds_close(struct ds *d);                             /* d may be NULL */

/* Sample order (feed.c): pure functions of (seed, epoch, cursor). position = number of samples consumed since the
 * start. Fills id[0..n) for the batch that begins at position; returns how many samples the batch has: shorter at an
 * epoch's end when epochs are counted or samples are shuffled (R12), wrapping otherwise. */
struct feed_order { uint64_t seed, count; bool shuffle, wrap; };
int feed_batch(const struct feed_order *o, uint64_t position, int batch, int64_t *id, uint64_t *epoch);

/* Prefetch (feed.c): a thread that reads the samples of coming micro-batches into its own buffers. want_x, want_y:
 * which part this rank needs. One thread uses a feed. */
struct feed;
int feed_open(struct ds *d, bool want_x, bool want_y, size_t x_bytes, size_t y_bytes, int max_samples, int depth,
              struct feed **out, struct err *e);
/* in the order they will be taken; 70 if more than depth are open... the caller keeps count */
int feed_request(struct feed *f, int n, const int64_t *id, struct err *e);
/* What goes on while somebody waits for samples: called every few milliseconds. -1: waiting ends with e. */
struct feed_meanwhile { int (*run)(void *ctx, struct err *e); void *ctx; };
/* Waits for the oldest request; valid until the next feed_take; 70 if nothing was requested. meanwhile may be NULL. */
int feed_take(struct feed *f, const struct feed_meanwhile *meanwhile, const float **x, const void **y, struct err *e);
/* would feed_take return at once, and without an error? */
bool feed_ready(struct feed *f);
void feed_close(struct feed *f);                         /* f may be NULL */

#endif
