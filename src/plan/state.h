/* The registry of state: a row for each tensor that outlives a step. All code that initialises, reads, writes, hashes,
 * counts or updates state uses these rows; no code keeps its own list. Pure, part of a placement, frozen. */
#ifndef PLAN_STATE_H
#define PLAN_STATE_H
#include "model/op.h"
#include "plan/mesh.h"
#include "plan/select.h"

/* the first four equal enum param_kind */
enum state_kind { STATE_WEIGHT, STATE_STATISTIC, STATE_COUNTER, STATE_CACHE, STATE_OPTIMIZER, STATE_AVERAGE,
                  STATE_KINDS };
enum state_region { IN_PARAM, IN_STATE, STATE_REGIONS };
/* Where a row lies. FILE: outside the device, in a file or, beside a GPU, in the host's memory. A rank's copy of a
 * parameter has a place in a slot of weights while it is used; of an optimizer's buffer, off is its place outside
 * (struct state_file). */
enum home { HOME_DEVICE, HOME_FILE };
#define STATE_NOWHERE SIZE_MAX

struct state_row {
    /* as files spell it: "layer1.0.conv1.weight"; an optimizer's buffer appends its own name:
     * "layer1.0.conv1.weight.exp_avg"; an average is "layer1.0.conv1.weight.ema" */
    const char *name;
    enum state_kind kind;
    /* index in graph->param, of the buffer's weight for a buffer */
    int param;
    int buffer;                                          /* OPTIMIZER: which of the weight's */
    struct shape shape; struct format file;              /* as in files, unless turned: row-major */
    bool turned;                                         /* files have its two dimensions in the other order */
    struct format stored;                                /* in memory */
    enum home home;
    enum state_region region;
    size_t bytes;                                        /* stored bytes: whole lines of 64 */
    int owner;                                           /* the rank in each pipeline that may change it */
    struct shard shard;                                  /* the owners that do; the first of them writes checkpoints */
    /* [rank] offset in its region; STATE_NOWHERE: not on that rank */
    size_t *off;
    bool tied;                                           /* several uses; each rank that uses it has a copy */
    bool base;                                           /* struct param: in no file of the run */
    bool trained;                                        /* a weight that is not frozen: has gradients */
    double lr_factor, decay_factor;
};

/* Rows without places (no owner, off NULL): the graph's parameters in their order, then the buffers of each trained
 * weight, then the averages. Names live as long as arena and graph. */
int state_rows_make(struct arena *mem, const struct selection *s, const struct state_buffers *b,
                    struct state_row **out);
/* Stored bytes of all rows of a kind; trained: only of rows that have gradients. */
uint64_t state_bytes(const struct state_row *row, int n, enum state_kind kind, bool trained);
struct shape state_file_shape(const struct state_row *r);
static inline size_t state_plain_bytes(const struct state_row *r)      /* as files hold it */
{
    return format_bytes(&r->file, &r->shape);
}

#endif
