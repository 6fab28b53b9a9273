/* A data set format: one file ds_NAME.c with one `const struct ds_kind ds_NAME`, its name in DATASETS.
 *
 * A data set is samples 0..count-1, each made of the same fields. read may be called from any thread: after open a
 * handle changes only in what it keeps. Files are hostile: sizes are compared with the file's before anything is
 * allocated; errors are 65 "FILE: offset N: ..." or 66 "FILE: ...".
 *
 * This folder: formats of data sets (ds_NAME.c), pictures and volumes, augmentation (aug_NAME.c), and the feed:
 * threads that read ahead (feed.c). See docs/design/data.md. */
#ifndef DATA_DS_H
#define DATA_DS_H
#include <sched.h>
#include "base/err.h"
#include "conf/conf.h"
#include "model/graph.h"

struct ds;
enum ds_part { DS_TRAIN, DS_TEST };

/* A field of a sample: row-major, channels first. range: integers are 0 to range - 1, and read refuses others (65); 0:
 * any. */
struct field { const char *name; enum role role; enum dtype type; struct shape shape; int64_t range; };

/* What the model takes: a field for each graph input that is read, in their order; input: which one it is. */
struct ds_want { int n; struct field field[MAX_INPUTS]; int input[MAX_INPUTS]; };

/* What was damaged among the samples that a feed has given so far, in the order of samples: how many were skipped, why
 * the first one was. told: the format's, a bit for each that is counted; NULL as long as there is none, free() it. */
struct ds_damage { uint64_t skipped; struct err first; uint8_t *told; };

struct ds_sink { void (*put)(void *ctx, const void *p, size_t n); void *ctx; };

struct ds_kind {
    const char *name, *text;
    /* Opens a part and says which fields it has. A source that cannot give what is wanted is 78 or 65 with a text that
     * names both shapes. *out = NULL without error: the part is not configured (no test set). */
    int (*open)(const struct conf *c, enum ds_part part, const struct ds_want *want, struct ds **out, struct err *e);
    uint64_t (*count)(const struct ds *d);
    /* Writes one field of a sample, a function of sample, visit and field alone. visit: how often the sample has come
     * before in this run; 0 in an evaluation. */
    int (*read)(struct ds *d, uint64_t sample, uint64_t visit, int field, void *out, struct err *e);
    /* The weight of a sample in means over a batch or a test set, such as its valid voxels or tokens: finite, at least
     * 0, known without waiting, from any thread. NULL: each counts 1. Rank 0 adds up a batch before its first backward
     * pass. A loss does not see the weights of single samples: its numerators and denominators are sums over what they
     * count. */
    double (*weight)(const struct ds *d, uint64_t sample);
    /* Called before the first read if samples will be read again, faster than they can be made: keeps what it can.
     * NULL: reading is fast. */
    void (*keep)(struct ds *d);
    /* What people call a sample, such as a file: adds it to t. NULL: its number. */
    void (*name_of)(const struct ds *d, uint64_t sample, struct text *t);
    /* Adds what reading this field of a sample has come upon, if it is not told yet. After its read, from any thread.
     * NULL: nothing is ever skipped. */
    void (*damage)(const struct ds *d, uint64_t sample, int field, struct ds_damage *sum);
    /* Puts what tells this data set from others that have as many samples: labels, and bytes of some of them. Quick,
     * however many there are; what cannot be read is left out. NULL: nothing does. */
    void (*tell)(const struct ds *d, const struct ds_sink *to);
    /* The class of a sample, as far as its file says one, also where the model takes none; -1: none. For
     * data.validation, which only formats with classes take. NULL: there are none. */
    int64_t (*class_of)(const struct ds *d, uint64_t sample);
    /* From now on only these samples are read. NULL: it makes no difference. */
    void (*only)(struct ds *d, const uint64_t *sample, uint64_t n);
    /* What each thread that reads keeps for its next sample, in bytes at most; 0: next to nothing, or known only of the
     * files (struct ds). */
    size_t kept;
    /* Bytes that are kept now of files, for all threads. NULL: none. Any thread. */
    size_t (*held)(const struct ds *d);
    void (*close)(struct ds *d);
};
/* First member of every format's own struct. of: the field of each graph input that is read, found by ds_open.
 * class_name: names of the n_classes classes, NULL where they have none; they live as long as the data set. picture: of
 * an input that is one, its channels, height and width, also where the model takes it as a row; n 0: it is none. unit:
 * its values lie in 0 to 1 before data.mean and data.std. Where the kind has held, each: bytes that a thread that reads
 * takes, at most; shared: what is kept for all of them, at most. warning: what a run should say once of the files,
 * NULL: nothing. endless: samples never run out, so no epoch's end makes a batch short. */
struct mix;
struct ds {
    const struct ds_kind *kind;
    struct mix *mix;                                     /* set by ds_open: what ds_read does beyond kind->read */
    int n_fields;
    struct field field[MAX_INPUTS];
    int of[MAX_INPUTS];
    int64_t n_classes;
    const char *const *class_name;
    struct shape picture;
    bool unit, endless;
    size_t each, shared;
    const char *warning;
};
extern const struct ds_kind *const ds_list[];            /* NULL-terminated, order of DATASETS */
/* Opens data.source. Each graph input that is read gets the field of its name, or else the only field of its role if no
 * other such input has that role. 78 if there is none, or its type, shape or range does not fit. */
int ds_open(const struct conf *c, enum ds_part part, const struct graph *g, struct ds **out, struct err *e);
/* Finds the fields of a data set that was opened otherwise. */
int ds_match(struct ds *d, const struct graph *g, struct err *e);
void ds_close(struct ds *d);                             /* d may be NULL */
/* A field of a sample, as the network is given it. Any thread. */
struct ds_at { uint64_t sample, visit; int field; };
int ds_read(struct ds *d, const struct ds_at *at, void *out, struct err *e);
/* Adds what reading it has come upon, if it is not told yet. */
void ds_damage(const struct ds *d, const struct ds_at *at, struct ds_damage *sum);
/* The weights of n samples, added in their order. d may be NULL: each counts 1. */
double ds_weight(const struct ds *d, const int64_t *id, int n);

/* A hash of what tells a data set from others, so that who goes on with a run can say that its samples are not those
 * of before. d NULL, or of a kind that nothing tells apart: "". */
char *ds_digest(const struct ds *d, char hash[33]);
/* For ds_kind.tell: samples that stand for all of `count`, spread evenly; returns which is number i of DS_TOLD. Of each
 * at most so many bytes are put. */
enum { DS_TOLD = 64, DS_TOLD_BYTES = 64 << 10 };
uint64_t ds_told(uint64_t count, int i);

/* Sample order (feed.c): pure functions of (seed, epoch, cursor). position = number of samples passed since the start.
 * end: what becomes of the samples at an epoch's end that do not fill a batch (train.last_batch, R12). They are a short
 * batch, they are left out, or the batch goes on into the next epoch; then it has samples of two visits.
 * feed_batch: fills id[0..n) for the batch that begins at position, and returns its size.
 * feed_next: where the next batch begins, if the last one ended at position.
 * feed_batches: how many batches begin before the end of so many epochs.
 * feed_taken: how many samples batches have had up to a position.
 * feed_visit: how often the sample at a position has come before. */
enum feed_end { FEED_SHORT, FEED_DROP, FEED_FILL };
struct feed_order { uint64_t seed, count; bool shuffle; enum feed_end end; };
int feed_batch(const struct feed_order *o, uint64_t position, int batch, int64_t *id, uint64_t *epoch);
uint64_t feed_next(const struct feed_order *o, uint64_t position, int batch);
uint64_t feed_batches(const struct feed_order *o, int batch, uint64_t epochs);
uint64_t feed_taken(const struct feed_order *o, uint64_t position, int batch);
uint64_t feed_visit(uint64_t count, uint64_t position);

/* Prefetch (feed.c): threads that read the samples of coming micro-batches into the feed's buffers, one for each wanted
 * field. Whichever thread reads a sample, what is taken is the same, errors too: that of a micro-batch is that of its
 * first sample that cannot be read. One thread uses a feed. */
struct feed;
struct feed_want {
    struct ds *ds;
    int n_fields, field[MAX_INPUTS];                     /* fields of the data set that this rank needs */
    int max_samples;                                     /* samples in a request, at most */
    int depth;                                           /* requests that are not given back, at most */
    int readers;                                         /* threads; 0: who takes samples reads them then */
    const cpu_set_t *cores;                              /* where they run, if they may; NULL: where the caller does */
};
size_t feed_bytes(const struct feed_want *w);            /* bytes of its buffers */
/* 71 where the system gives no thread. */
int feed_open(const struct feed_want *w, struct feed **out, struct err *e);
/* Requests n samples, the first of which is at `position` of the order of samples. They are taken in the order of
 * requests. 70 if more than `depth` are open, which the caller must avoid. */
int feed_request(struct feed *f, int n, const int64_t *id, uint64_t position, struct err *e);
/* Called every few milliseconds while somebody waits for samples. -1: waiting ends with e. */
struct feed_meanwhile { int (*run)(void *ctx, struct err *e); void *ctx; };
/* Waits for the oldest request that is not taken; 70 if there is none. Its values, an array of samples for each wanted
 * field, stay until they are given back, which comes before the next take. After an error there are none. meanwhile may
 * be NULL. */
int feed_take(struct feed *f, const struct feed_meanwhile *meanwhile, void *const **value, struct err *e);
void feed_give(struct feed *f);
/* Forgets all requests, none of which is taken; waits until the one that is being read has been. */
int feed_drop(struct feed *f, const struct feed_meanwhile *meanwhile, struct err *e);
/* whether feed_take would return at once and without an error */
bool feed_ready(struct feed *f);
/* Of all samples that were taken so far. */
const struct ds_damage *feed_damage(const struct feed *f);
void feed_close(struct feed *f);                         /* f may be NULL */

#endif
