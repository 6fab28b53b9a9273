/* RUN/events.out.tfevents.*: loss, accuracy, speed and waiting for TensorBoard. Rank 0's scheduler thread.
 *
 * The file is a TFRecord file (length, masked CRC-32C, data, masked CRC-32C; all little-endian) of Event messages in
 * protocol buffers' wire format. Of these it writes wall_time, step, file_version and summary.value.{tag,
 * simple_value}, and session_log. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "base/out.h"
#include "cluster/thread_liveness.h"
#include "report/reporter.h"

static const char prefix[] = "events.out.tfevents.";

struct tensorboard {
    struct out_records file;
    const struct job *job;
    struct scores scores;
    uint32_t crc[256];
    struct text event, summary, value, record;            /* scratch */
};

/* ---- TFRecord ---------------------------------------------------------------------------------------------------- */

/* CRC-32C (Castagnoli), reflected polynomial 0x82f63b78: RFC 3720, B.4. */
static void crc_table(uint32_t crc[256])
{
    for (uint32_t i = 0; i < 256; i++) {
        crc[i] = i;
        for (int bit = 0; bit < 8; bit++) crc[i] = crc[i] >> 1 ^ (crc[i] & 1 ? 0x82f63b78u : 0);
    }
}

/* Masked, so that a checksum over data that contains checksums is not one of them: TensorFlow,
 * core/lib/hash/crc32c.h. */
static uint32_t crc_masked(const struct tensorboard *v, const void *p, size_t n)
{
    const unsigned char *s = p;
    uint32_t c = 0xffffffffu;
    while (n--) c = v->crc[(c ^ *s++) & 255] ^ c >> 8;
    c = ~c;
    return (c >> 15 | c << 17) + 0xa282ead8u;
}

/* Writes in one call, so that a reader sees whole records. */
static int record_write(struct tensorboard *v, struct err *e)
{
    uint64_t n = v->event.n;
    uint32_t crc = crc_masked(v, &n, sizeof n);
    struct text *t = &v->record;
    t->n = 0;
    text_add_bytes(t, &n, sizeof n);
    text_add_bytes(t, &crc, sizeof crc);
    text_add_bytes(t, v->event.s, v->event.n);
    crc = crc_masked(v, v->event.s, v->event.n);
    text_add_bytes(t, &crc, sizeof crc);
    const char *before = liveness_wait_file("the event file");
    int bad = out_records_add(&v->file, t->s, t->n, false, e);
    liveness_wait_file(before);
    return bad;
}

/* ---- protocol buffers -------------------------------------------------------------------------------------------- */

enum wire { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

static void add_varint(struct text *t, uint64_t x)
{
    for (; x > 127; x >>= 7) text_add_bytes(t, &(unsigned char){(unsigned char)(x | 128)}, 1);
    text_add_bytes(t, &(unsigned char){(unsigned char)x}, 1);
}

static void add_key(struct text *t, unsigned field, enum wire type) { add_varint(t, field << 3 | type); }

static void add_bytes(struct text *t, unsigned field, const void *p, size_t n)
{
    add_key(t, field, WIRE_BYTES);
    add_varint(t, n);
    text_add_bytes(t, p, n);
}

static void event_begin(struct tensorboard *v, uint64_t step)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    double seconds = (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
    v->event.n = v->summary.n = 0;
    add_key(&v->event, 1, WIRE_64);
    text_add_bytes(&v->event, &seconds, sizeof seconds);
    add_key(&v->event, 2, WIRE_VARINT);
    add_varint(&v->event, step);
}

static void add_value(struct tensorboard *v, const char *tag, double x)
{
    float single = (float)x;
    v->value.n = 0;
    add_bytes(&v->value, 1, tag, strlen(tag));
    add_key(&v->value, 2, WIRE_32);
    text_add_bytes(&v->value, &single, sizeof single);
    add_bytes(&v->summary, 1, v->value.s, v->value.n);
}

static int event_end(struct tensorboard *v, struct err *e)
{
    add_bytes(&v->event, 5, v->summary.s, v->summary.n);
    return record_write(v, e);
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

static void add_scores(struct tensorboard *v, const char *part, const struct sums *s, bool test)
{
    char tag[64];
    for (int i = 0; i < v->scores.n; i++) {
        const struct score_style k = score_style(v->scores.of[i].name);
        if ((k.tests_only && !test) || (i && !score_counted(&s->score[i]))) continue;
        snprintf(tag, sizeof tag, "%s/%s", part, k.key);
        add_value(v, tag, score_mean(s->score, i));
    }
}

static int step_write(struct tensorboard *v, const struct event *ev, struct err *e)
{
    const struct result *r = ev->result;
    event_begin(v, r->o.step);
    add_scores(v, "train", ev->sums, false);
    add_value(v, "train/learning_rate", ev->lr);
    add_value(v, "speed/samples_per_second", ev->samples_per_second);
    for (int i = 0; i < job_world(v->job); i++) {
        uint64_t part[ACC_COUNT];
        char tag[64], of[24] = "";
        if (v->job->mesh.size[AXIS_DP] > 1)
            snprintf(of, sizeof of, "%s_%d_", axis_word[AXIS_DP], job_coord(v->job, i).at[AXIS_DP]);
        snprintf(tag, sizeof tag, "bubble/%sstage_%d", of, job_stage(v->job, i));
        add_value(v, tag, account_of(&r->rep[i], r->ns, part));
    }
    return event_end(v, e);
}

static int tensorboard_on(void *self, const struct event *ev, struct err *e)
{
    struct tensorboard *v = self;
    if (ev->kind == EVENT_STEP) return step_write(v, ev, e);
    if (ev->kind != EVENT_EVALUATION) return 0;
    event_begin(v, (uint64_t)ev->step);
    add_scores(v, "test", ev->sums, true);
    return event_end(v, e);
}

/* ---- the file ---------------------------------------------------------------------------------------------------- */

/* Counts the event files of the directory. gone: also removes them. */
static int earlier(int dirfd, bool gone)
{
    int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), n = 0;
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d) return 0;
    for (struct dirent *f; (f = readdir(d));) {
        if (strncmp(f->d_name, prefix, sizeof prefix - 1)) continue;
        n++;
        if (gone) unlinkat(dirfd, f->d_name, 0);
    }
    closedir(d);
    return n;
}

static int tensorboard_check(const struct rundir *d, const struct conf *c, struct err *e)
{
    bool adds = c->run.overwrite || c->run.resume != RESUME_NO;
    adds |= d->fd >= 0 && !faccessat(d->fd, "metrics.jsonl", F_OK, 0);   /* a run without results: rundir.c */
    if (!c->service.tensorboard || adds || d->fd < 0 || !earlier(d->fd, false)) return 0;
    return err_set(e, E_CANTCREAT, "%s: holds event files for TensorBoard (%s*); use --overwrite or another --run-dir",
                   d->path, prefix);
}

/* Records that the run begins again at this step: TensorBoard then drops this step and later ones of earlier files
 * (Event.session_log 7, SessionLog.status 1 = START). */
static int session_begin(struct tensorboard *v, uint64_t step, struct err *e)
{
    event_begin(v, step);
    v->value.n = 0;
    add_key(&v->value, 1, WIRE_VARINT);
    add_varint(&v->value, 1);
    add_bytes(&v->event, 7, v->value.s, v->value.n);
    return record_write(v, e);
}

static int tensorboard_open(const struct report_run *q, void **self, struct err *e)
{
    static const char version[] = "brain.Event:2";
    const struct job *j = q->job;
    char host[64] = "host", name[160];
    if (!j->conf->service.tensorboard) return 0;
    struct tensorboard *v = *self = mem_alloc(sizeof *v);
    *v = (struct tensorboard){.file = {.fd = -1}, .job = j};
    graph_scores(j->graph, &v->scores);
    crc_table(v->crc);
    gethostname(host, sizeof host - 1);
    snprintf(name, sizeof name, "%s%010lld.%s.%d.0", prefix, (long long)time(NULL), host, (int)getpid());
    /* TensorBoard would draw every file of the folder into one curve */
    if (j->conf->run.overwrite) earlier(q->dir->fd, true);
    if (out_records_open(&v->file, q->dir->fd, q->dir->path, name, e)) return -1;
    event_begin(v, 0);
    add_bytes(&v->event, 3, version, sizeof version - 1);
    return record_write(v, e) || (q->from && session_begin(v, q->from->step + 1, e)) ? -1 : 0;
}

static void tensorboard_undo(void *self, int dirfd)
{
    const struct tensorboard *v = self;
    if (v->file.fd >= 0) unlinkat(dirfd, strrchr(v->file.path, '/') + 1, 0);
}

static void tensorboard_close(void *self)
{
    struct tensorboard *v = self;
    out_records_close(&v->file);
    text_free(&v->event);
    text_free(&v->summary);
    text_free(&v->value);
    text_free(&v->record);
    free(v);
}

const struct reporter reporter_tensorboard = {
    .name = "tensorboard", .required = true, .check = tensorboard_check, .open = tensorboard_open,
    .on = tensorboard_on, .undo = tensorboard_undo, .close = tensorboard_close};
