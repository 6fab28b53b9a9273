/* A data set format: one file ds_NAME.c with one `const struct ds_kind ds_NAME`, its name in DATASETS.
 *
 * A data set is samples 0..count-1, which all have the same fields. Any thread may call read: after open, a handle
 * changes only in its caches. Files are hostile: sizes are compared with the file's before anything is allocated.
 * Errors are 65 "FILE: offset N: ..." or 66 "FILE: ...".
 *
 * This folder: formats of data sets (ds_NAME.c), pictures and volumes, augmentation (aug_NAME.c), and the feed:
 * prefetching threads (feed.c). See docs/design/data.md. */
#ifndef DATA_DS_H
#define DATA_DS_H
#include <sched.h>
#include "base/err.h"
#include "conf/conf.h"
#include "model/graph.h"

struct ds;
enum ds_part { DS_TRAIN, DS_TEST };

/* A field of a sample: row-major, channels first. range: integers are 0 to range - 1, and read refuses others (65); 0:
 * any. ignored: of labels, one more value that is permitted, below 0, and does not count; 0: none. */
struct field {
    const char *name; enum role role; enum dtype type; struct shape shape; int64_t range, ignored;
};

/* What the model takes: one field per graph input that is read, in their order. input: the number of that graph
 * input. */
struct ds_want { int n; struct field field[MAX_INPUTS]; int input[MAX_INPUTS]; };

/* Damaged samples among those a feed has delivered, in sample order: how many were skipped, and why the first was.
 * told: the format's, a bit for each counted one; NULL if there are none; free() it. */
struct ds_damage { uint64_t skipped; struct err first; uint8_t *counted; };

struct ds_sink { void (*put)(void *ctx, const void *p, size_t n); void *ctx; };

struct ds_kind {
    const char *name, *text;
    /* Opens a part and sets its fields. A source that cannot supply `want` is 78 or 65 with a text that names both
     * shapes. *out = NULL without error: the part is not configured (no test set). */
    int (*open)(const struct conf *c, enum ds_part part, const struct ds_want *want, struct ds **out, struct err *e);
    uint64_t (*count)(const struct ds *d);
    /* Writes one field of a sample, a function of sample, visit and field alone. visit: how often this run has used the
     * sample before; 0 in an evaluation. */
    int (*read)(struct ds *d, uint64_t sample, uint64_t visit, int field, void *out, struct err *e);
    /* The weight of a sample in means over a batch or a test set, such as its valid voxels or tokens. It is finite, at
     * least 0, and known without waiting, in any thread. NULL: each counts 1. Rank 0 adds up a batch's weights before
     * its first backward pass. A loss does not see single weights: its numerators and denominators are sums over the
     * elements it counts. NULL for a loss that counts labels (op_kind.ignored): all labels count. */
    double (*weight)(const struct ds *d, uint64_t sample, uint64_t visit);
    /* Positions of a sample of tokens that are no padding, known like the weight. NULL: all. */
    double (*filled)(const struct ds *d, uint64_t sample, uint64_t visit);
    /* Samples of all epochs (= visits) before this one, of which each has at least one. NULL: all have `count`. Any
     * thread. */
    uint64_t (*before)(const struct ds *d, uint64_t epoch);
    /* Called before the first read if samples will be read repeatedly, faster than they can be made: caches what fits.
     * NULL: reading is fast. */
    void (*keep)(struct ds *d);
    /* Appends the sample's name for users, such as a file. NULL: its number. */
    void (*name_of)(const struct ds *d, uint64_t sample, struct text *t);
    /* Adds the damage that reading this field found, unless already counted. Call it after the read, in any thread.
     * NULL: no sample is ever skipped. */
    void (*damage)(const struct ds *d, uint64_t sample, int field, struct ds_damage *sum);
    /* Puts data that distinguish this data set from others of equal size: labels, and bytes of some samples. Fast for
     * any size; unreadable data are left out. NULL: there are no such data. */
    void (*tell)(const struct ds *d, const struct ds_sink *to);
    /* The class of a sample, if its file has one, even if the model takes none; -1: none. For data.validation, which
     * only formats with classes accept. NULL: no classes. */
    int64_t (*class_of)(const struct ds *d, uint64_t sample);
    /* Only these samples are read from now on. NULL: no effect. */
    void (*only)(struct ds *d, const uint64_t *sample, uint64_t n);
    /* Upper bound of bytes that each reading thread keeps for its next sample. 0: almost none, or known only from the
     * files (struct ds). */
    size_t kept;
    bool positions;                                      /* it has the field "positions" (ds_match) */
    bool divides;                                        /* open itself does what data.validation says */
    /* Bytes of text that a label of this sample stands for, on average. NULL: the same for all samples. */
    double (*label_bytes)(const struct ds *d, uint64_t sample);
    /* Bytes of file data cached now, for all threads. NULL: none. Any thread. */
    size_t (*held)(const struct ds *d);
    void (*close)(struct ds *d);
};
/* First member of every format's own struct. of: the field for each graph input that is read, set by ds_open.
 * class_name: names of the n_classes classes, NULL if they have none; valid as long as the data set. picture: channels,
 * height and width of a picture input, even if the model takes it as a row; n 0: not a picture. unit: values lie in 0
 * to 1 before data.mean and data.std. If the kind has held: each is the upper bound of bytes per reading thread, shared
 * that of data cached for all. warning: printed once per run, NULL: none. endless: samples never run out, so no epoch's
 * end shortens a batch. */
struct mix;
struct ds {
    const struct ds_kind *kind;
    struct mix *mix;                                     /* set by ds_open: what ds_read does besides kind->read */
    int n_fields;
    struct field field[MAX_INPUTS];
    int of[MAX_INPUTS];
    int64_t n_classes;
    const char *const *class_name;
    struct shape picture;
    bool unit, endless;
    size_t each, shared;
    const char *warning;
    double label_bytes;                                  /* of text that a label stands for, on average; 0: unknown */
    double labels;                                       /* that count in a sample without `weight`; 0: it weighs 1 */
    int positions;                                       /* 1 + the field that ds_match has added; 0: none */
};
extern const struct ds_kind *const ds_list[];            /* NULL-terminated, order of DATASETS */
const struct ds_kind *ds_kind_of(const struct conf *c);  /* of data.source; NULL: unset */
/* Opens data.source. Each graph input that is read gets the field of its name. If it is the only such input of its
 * role, it gets the only field of that role. 78 if none matches, or its type, shape or range does not fit. */
int ds_open(const struct conf *c, enum ds_part part, const struct graph *g, struct ds **out, struct err *e);
/* Matches the fields of a data set that was not opened by ds_open. If a graph reads "positions" (I32) and the format
 * has none, they are 0, 1, 2 ... */
int ds_match(struct ds *d, const struct graph *g, struct err *e);
void ds_close(struct ds *d);                             /* d may be NULL */
/* A field of a sample as the network receives it. Any thread. */
struct ds_at { uint64_t sample, visit; int field; };
int ds_read(struct ds *d, const struct ds_at *at, void *out, struct err *e);
/* Adds the damage that reading this field found, unless already counted. */
void ds_damage(const struct ds *d, const struct ds_at *at, struct ds_damage *sum);
/* The weights of the n samples from a position of an order, added in their order. d may be NULL: each counts 1.
 * o NULL: in the first epoch. */
struct feed_order;
double ds_weight(const struct ds *d, const struct feed_order *o, uint64_t position, const int64_t *id, int n);
/* The positions of these samples that are no padding; 0: all. */
double ds_filled(const struct ds *d, const struct feed_order *o, uint64_t position, const int64_t *id, int n);
uint64_t ds_before(const struct ds *d, uint64_t epoch);  /* of a data set with kind->before */
const struct ds *ds_epochs_of(const struct ds *d);       /* d if its epochs differ in samples, otherwise NULL */

/* A hash that distinguishes data sets, so that a resumed run can report that its samples have changed. "" if d is NULL
 * or its kind has no `tell`. */
char *ds_digest(const struct ds *d, char hash[33]);
/* For ds_kind.tell: number i of DS_TOLD samples spread evenly over `count`. At most DS_TOLD_BYTES of each are put. */
enum { DS_TOLD = 64, DS_TOLD_BYTES = 64 << 10 };
uint64_t ds_message(uint64_t count, int i);

/* Sample order (feed.c): pure functions of (seed, epoch, cursor). position = number of samples passed since the start.
 * of: the data set, if its epochs differ in their number of samples; then `count` is that of the first, and end is
 * FEED_FILL. end: the rule for samples at an epoch's end that do not fill a batch (train.last_batch, R12). They form a
 * short batch, or they are left out, or the batch continues into the next epoch and has samples of two visits.
 * feed_place: the epoch of a position, which is also how often its sample was used before; which sample of that epoch
 * it is; how many that has.
 * feed_batch: fills id[0..n) for the batch that begins at position, and returns its size.
 * feed_next: where the next batch begins, if the last one ended at position.
 * feed_batches: how many batches begin before the end of `epochs` epochs; feed_epochs: in how many so many begin.
 * feed_taken: how many samples batches have had up to a position. */
enum feed_end { FEED_SHORT, FEED_DROP, FEED_FILL };
struct feed_order { uint64_t seed, count; bool shuffle; enum feed_end end; const struct ds *of; };
struct feed_place { uint64_t epoch, within, count; };
struct feed_place feed_place(const struct feed_order *o, uint64_t position);
int feed_batch(const struct feed_order *o, uint64_t position, int batch, int64_t *id, uint64_t *epoch);
uint64_t feed_next(const struct feed_order *o, uint64_t position, int batch);
uint64_t feed_batches(const struct feed_order *o, int batch, uint64_t epochs);
uint64_t feed_epochs(const struct feed_order *o, int batch, uint64_t batches);
uint64_t feed_taken(const struct feed_order *o, uint64_t position, int batch);

/* Prefetch (feed.c): threads read the samples of future micro-batches into the feed's buffers, one for each wanted
 * field. The values do not depend on which thread reads a sample. Nor do errors: a micro-batch has the error of its
 * first unreadable sample. One thread uses a feed. */
struct feed;
struct feed_want {
    struct ds *ds;
    int n_fields, field[MAX_INPUTS];                     /* fields of the data set that this rank needs */
    int max_samples;                                     /* maximum of samples in a request */
    int depth;                                           /* maximum of requests that are not given back */
    int readers;                                         /* threads; 0: feed_take reads the samples */
    const cpu_set_t *cores;                              /* where they run, if permitted; NULL: the caller's */
};
size_t feed_bytes(const struct feed_want *w);            /* bytes of its buffers */
/* 71 if the system cannot create a thread. */
int feed_open(const struct feed_want *w, struct feed **out, struct err *e);
/* Requests n samples, the first at `position` of the sample order. Requests are taken in order. 70 if more than `depth`
 * are open, which the caller must avoid. */
int feed_request(struct feed *f, int n, const int64_t *id, uint64_t position, struct err *e);
/* Called every few milliseconds while a thread waits for samples. -1: waiting ends with e. */
struct feed_meanwhile { int (*run)(void *ctx, struct err *e); void *ctx; };
/* Waits for the oldest request that is not taken; 70 if there is none. Its values, an array of samples for each wanted
 * field, stay valid until feed_give, which must precede the next take. An error gives no values. meanwhile may be
 * NULL. */
int feed_take(struct feed *f, const struct feed_meanwhile *meanwhile, void *const **value, struct err *e);
void feed_give(struct feed *f);
/* Cancels all requests, none of which is taken; waits for reads in progress. */
int feed_drop(struct feed *f, const struct feed_meanwhile *meanwhile, struct err *e);
/* whether feed_take would return at once and without an error */
bool feed_ready(struct feed *f);
/* Of all samples taken so far. */
const struct ds_damage *feed_damage(const struct feed *f);
void feed_close(struct feed *f);                         /* f may be NULL */

#endif
