/* What rank 0's loop knows about checkpoints: which score counts as the best, what may be asked for again. The writer
 * and those who are told are doubles made here. */
#include <math.h>
#include <string.h>
#include "daemon/report/log.h"
#include "daemon/run/course.h"
#include "daemon/run/keep.h"
#include "sure.h"

static struct save_note noted;
static int events;

void save_release(struct save *s, const struct save_note *n) { noted = *n; }
void save_forgo(struct save *s) { }
void tally_checkpoint(struct tally *t, bool committed, uint64_t step, uint64_t ns) { }
void ctl_checkpoint_done(struct ctl *c, uint64_t step, int code, const char *text) { }
int metrics_event(struct metrics *m, json_t *o, struct err *e)
{
    json_decref(o);
    events++;
    return 0;
}

static struct conf conf;
static struct graph graph = {.loss = -1};
static const struct job job = {.conf = &conf, .graph = &graph};
static struct keep k;

static void begin(void)
{
    log_quiet(true);
    conf = (struct conf){.checkpoint = {.keep = 3, .best = "loss"}};
    keep_begin(&k, &job, NULL, NULL, NULL);
    k.scores.n = 1;
    k.scores.of[0].name = "loss";
}

/* An evaluation with that loss: is it the best? */
static bool scored(uint64_t step, double loss)
{
    struct sums s = {.score[0] = {loss, 1}};
    return keep_scored(&k, step, &s);
}

/* The checkpoint of that step with that loss; code: what came of it */
static void saved(uint64_t step, double loss, int code)
{
    struct err e = {0};
    struct order o = {.kind = ORDER_CHECKPOINT, .step = step};
    struct save_done d = {.step = step, .code = code, .value = loss};
    keep_ordered(&k);
    keep_release(&k, &o, 0);
    ck_assert(noted.score && !strcmp(noted.score, "loss") && !strcmp(noted.best, "loss"));
    snprintf(d.score, sizeof d.score, "%s", noted.score);
    ring_put(k.done, &d);
    ck_assert(!keep_take(&k, false, &e));
}

/* A score is the best one only as that of a checkpoint that is there. */
START_TEST(best_is_what_is_on_disk)
{
    begin();
    ck_assert(scored(1, 5));
    saved(1, 5, 0);
    ck_assert(!scored(2, 6) && scored(3, 3));
    saved(3, 3, E_IO);
    ck_assert(scored(4, 4));
    saved(4, 4, 0);
    ck_assert(!scored(5, 4) && scored(6, 2) && events == 3);
    keep_end(&k);
}
END_TEST

/* Evaluations since the best one are counted, over roll-backs and in a process that goes on. */
START_TEST(patience_counts)
{
    begin();
    conf.train.patience = 2;
    conf.train.nonfinite = "rollback";
    scored(1, 5);
    ck_assert(!keep_enough(&k));
    scored(2, 5);
    ck_assert(!keep_enough(&k));
    saved(2, 5, 0);
    ck_assert(noted.so_far.waited == 1 && noted.so_far.step == 1 && noted.so_far.value == 5);
    scored(3, (double)NAN);
    ck_assert(keep_enough(&k));
    keep_back(&k, &noted.so_far);
    ck_assert(!keep_enough(&k) && k.so_far.waited == 1);
    scored(3, 4);
    ck_assert(!k.so_far.waited && k.so_far.step == 3);
    /* of another score, or of a checkpoint that cannot be read, nothing is known */
    struct ckpt_best other = {.score = "top1", .value = 0.5, .step = 2, .waited = 1};
    keep_back(&k, &other);
    ck_assert(!*k.so_far.score && !k.so_far.waited);
    keep_back(&k, NULL);
    ck_assert(!*k.so_far.score);
    keep_end(&k);
}
END_TEST

START_TEST(no_number_is_no_best_score)
{
    begin();
    ck_assert(!scored(1, (double)NAN) && !scored(2, (double)INFINITY) && scored(3, 7));
    saved(3, 7, 0);
    ck_assert(!scored(4, (double)NAN) && scored(5, 6));
    keep_end(&k);
}
END_TEST

/* What could not be written may be asked for again, at the same step; what was written may not. */
START_TEST(lost_checkpoint_is_written_again)
{
    struct course c = {.job = &job, .conf = &conf, .step = 9, .saved = 9, .steps = 20, .phase = COURSE_TRAIN};
    begin();
    ck_assert(scored(9, 5) && !course_checkpoint(&c));
    saved(9, 5, E_IO);
    ck_assert(k.lost == 9);
    course_unsaved(&c, 8);
    ck_assert(!course_checkpoint(&c));
    course_unsaved(&c, 9);
    ck_assert(course_checkpoint(&c) && c.phase == COURSE_CHECKPOINT);
    k.lost = 0;
    saved(9, 5, 0);
    ck_assert(!k.lost && k.step == 9);
    keep_end(&k);
}
END_TEST

int main(void)
{
    TCase *t = tcase_create("keep");
    tcase_add_test(t, best_is_what_is_on_disk);
    tcase_add_test(t, patience_counts);
    tcase_add_test(t, no_number_is_no_best_score);
    tcase_add_test(t, lost_checkpoint_is_written_again);
    return suite_run("keep", CK_FORK, t);
}
