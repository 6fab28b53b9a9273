/* What rank 0's loop knows about checkpoints: which score counts as the best, what may be requested again, which
 * learning rates were set. And a folder that cannot be read completely does not count as complete. The writer, the
 * receivers of reports and readdir are doubles of this test. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "cluster/log.h"
#include "report/rundir.h"
#include "train/sequencer.h"
#include "train/ckpt_policy.h"
#include "files.h"
#include "sure.h"

static struct save_note noted;
static int events;

void save_release(struct save *s, const struct save_note *n) { noted = *n; }
void save_forgo(struct save *s) { }
int reporters_tell(struct reporters *all, const struct event *ev, struct err *e)
{
    events++;
    return 0;
}

static struct conf conf;
static struct graph graph = {.loss = -1};
static const struct job job = {.conf = &conf, .graph = &graph};
static struct ckpt_policy k;

static void begin(void)
{
    log_quiet(true);
    conf = (struct conf){.checkpoint = {.keep = 3, .best = "loss"}};
    ckpt_policy_begin(&k, &job, NULL, NULL, NULL);
    k.scores.n = 1;
    k.scores.of[0].name = "loss";
}

/* An evaluation with that loss: is it the best? */
static bool scored(uint64_t step, double loss)
{
    struct sums s = {.score[0] = {loss, 1}};
    return ckpt_policy_scored(&k, step, &s);
}

/* The checkpoint of that step with that loss; code: what came of it */
static void saved(uint64_t step, double loss, int code)
{
    struct err e = {0};
    struct order o = {.kind = ORDER_CHECKPOINT, .step = step};
    struct save_done d = {.step = step, .e.code = code, .value = loss};
    ckpt_policy_ordered(&k);
    ckpt_policy_release(&k, &o, 0);
    ck_assert(noted.score && !strcmp(noted.score, "loss") && !strcmp(noted.best, "loss"));
    snprintf(d.score, sizeof d.score, "%s", noted.score);
    queue_put(k.done, &d);
    ck_assert(!ckpt_policy_take(&k, false, &e));
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
    ckpt_policy_end(&k);
}
END_TEST

/* Evaluations since the best one are counted, over roll-backs and in a process that goes on. */
START_TEST(patience_counts)
{
    begin();
    conf.train.patience = 2;
    conf.train.nonfinite = NONFINITE_ROLLBACK;
    scored(1, 5);
    ck_assert(!ckpt_policy_enough(&k));
    scored(2, 5);
    ck_assert(!ckpt_policy_enough(&k));
    saved(2, 5, 0);
    ck_assert(noted.so_far.waited == 1 && noted.so_far.step == 1 && noted.so_far.value == 5);
    scored(3, (double)NAN);
    ck_assert(ckpt_policy_enough(&k));
    ckpt_policy_back(&k, &noted.so_far);
    ck_assert(!ckpt_policy_enough(&k) && k.so_far.waited == 1);
    scored(3, 4);
    ck_assert(!k.so_far.waited && k.so_far.step == 3);
    /* of another score, or of a checkpoint that cannot be read, nothing is known */
    struct ckpt_best other = {.score = "top1", .value = 0.5, .step = 2, .waited = 1};
    ckpt_policy_back(&k, &other);
    ck_assert(!*k.so_far.score && !k.so_far.waited);
    ckpt_policy_back(&k, NULL);
    ck_assert(!*k.so_far.score);
    ckpt_policy_end(&k);
}
END_TEST

START_TEST(no_number_is_no_best_score)
{
    begin();
    ck_assert(!scored(1, (double)NAN) && !scored(2, (double)INFINITY) && scored(3, 7));
    saved(3, 7, 0);
    ck_assert(!scored(4, (double)NAN) && scored(5, 6));
    ckpt_policy_end(&k);
}
END_TEST

/* What could not be written may be asked for again, at the same step; what was written may not. */
START_TEST(lost_checkpoint_is_written_again)
{
    struct sequencer c = {.job = &job, .conf = &conf, .step = 9, .saved = 9, .steps = 20, .phase = SEQUENCER_TRAIN};
    begin();
    ck_assert(scored(9, 5) && !sequencer_checkpoint(&c));
    saved(9, 5, E_IO);
    ck_assert(k.lost == 9);
    sequencer_unsaved(&c, 8);
    ck_assert(!sequencer_checkpoint(&c));
    sequencer_unsaved(&c, 9);
    ck_assert(sequencer_checkpoint(&c) && c.phase == SEQUENCER_CHECKPOINT);
    k.lost = 0;
    saved(9, 5, 0);
    ck_assert(!k.lost && k.step == 9);
    ckpt_policy_end(&k);
}
END_TEST

/* ---- live_settings.h
 * ----------------------------------------------------------------------------------------------------- */

static void holds(const struct live_settings *r, uint64_t step, bool any, double rate)
{
    struct rate_from f = live_settings_at(r, step);
    ck_assert_msg(f.any == any && (!any || f.rate == rate), "step %lu: %d %g", (unsigned long)step, f.any, f.rate);
}

/* A later one counts instead of what was set for its step and those behind it. */
START_TEST(live_settings_by_step)
{
    struct live_settings r = {.first = {.any = true, .rate = 3}};
    holds(NULL, 5, false, 0);
    holds(&r, 5, true, 3);
    static const struct rate_from set[] = {{5, true, 1}, {9, true, 2}, {7, true, 0.5}, {8, false, 0}, {8, true, 4}};
    for (int i = 0; i < 4; i++) live_settings_add(&r, &set[i]);
    holds(&r, 4, true, 3);
    holds(&r, 5, true, 1);
    holds(&r, 6, true, 1);
    holds(&r, 7, true, 0.5);
    holds(&r, 9, false, 0);
    live_settings_add(&r, &set[4]);
    holds(&r, 8, true, 4);
    live_settings_free(&r);
}
END_TEST

static const struct rate_from none;

/* What is noted is read again, to the bit, behind the checkpoint's step; half a line was never said. */
START_TEST(live_settings_outlive)
{
    struct live_settings r = {0}, again;
    struct err e = {0};
    scratch_enter();
    int dir = open(".", O_RDONLY | O_DIRECTORY);
    ck_assert(!live_settings_read(&r, dir, "run", 0, &none, &e) && !r.v.n);
    static const struct rate_from set[] = {{5, true, 0.1}, {6, true, 1.0 / 3}, {9, false, 0}};
    for (int i = 0; i < 3; i++) ck_assert_msg(!live_settings_note(&r, dir, "run", &set[i], NULL, &e), "%s", e.text);
    int fd = open(LIVE_SETTINGS_FILE, O_WRONLY | O_APPEND);
    ck_assert(fd >= 0 && write(fd, "{\"step\":11,", 11) == 11 && !close(fd));
    ck_assert(!live_settings_read(&again, dir, "run", 5, &(struct rate_from){.any = true, .rate = 7}, &e) &&
              again.v.n == 2);
    holds(&again, 5, true, 7);
    holds(&again, 6, true, 1.0 / 3);
    holds(&again, 12, false, 0);
    ck_assert(!live_settings_note(&again, dir, "run", &(struct rate_from){8, true, 2}, NULL, &e));
    live_settings_free(&again);
    ck_assert_msg(!live_settings_read(&again, dir, "run", 0, &none, &e) && again.v.n == 3, "%s", e.text);
    holds(&again, 4, false, 0);
    holds(&again, 12, true, 2);
    live_settings_free(&again);
    live_settings_free(&r);
    close(dir);
    scratch_leave();
}
END_TEST

static void is(const struct live_settings *r, const char *key, uint64_t step, const char *value)
{
    const char *s = json_string_value(live_settings_value(r, key, step));
    ck_assert_msg(!s == !value && (!s || !strcmp(s, value)), "%s, step %lu: %s", key, (unsigned long)step, s);
}

static struct rate_change change(uint64_t step, const char *json)
{
    return (struct rate_change){step, json_loads(json, 0, NULL), NULL};
}

/* What was reloaded has a value before its step, too; a later reload counts instead of those of its step and behind it,
 * and leaves rates alone. */
START_TEST(reloads_outlive)
{
    struct live_settings r = {0}, again;
    struct err e = {0};
    scratch_enter();
    int dir = open(".", O_RDONLY | O_DIRECTORY);
    struct rate_change first = change(5, "{\"train.gamma\":[null,\"0.5\"],\"train.power\":[\"1\",\"2\"]}"),
                       next = change(9, "{\"train.gamma\":[\"0.5\",null]}"),
                       last = change(7, "{\"train.power\":[\"2\",\"3\"]}");
    ck_assert(!live_settings_note(&r, dir, "run", NULL, &first, &e));
    ck_assert(!live_settings_note(&r, dir, "run", &(struct rate_from){9, true, 0.25}, &next, &e));
    is(&r, "train.gamma", 4, NULL);
    is(&r, "train.gamma", 8, "0.5");
    is(&r, "train.gamma", 9, NULL);
    is(&r, "train.power", 1, "1");
    is(&r, "train.power", 99, "2");
    ck_assert(!live_settings_value(&r, "train.milestones", 5));
    ck_assert(!live_settings_note(&r, dir, "run", NULL, &last, &e));
    ck_assert(!live_settings_read(&again, dir, "run", 0, &none, &e) && again.w.n == 2 && again.v.n == 1);
    is(&again, "train.power", 6, "2");
    is(&again, "train.power", 7, "3");
    is(&again, "train.gamma", 99, "0.5");
    live_settings_free(&again);
    ck_assert(!live_settings_read(&again, dir, "run", 5, &none, &e) && again.w.n == 1); /* behind a checkpoint */
    is(&again, "train.power", 6, "2");
    ck_assert(!live_settings_value(&again, "train.gamma", 6));
    live_settings_free(&again);
    live_settings_free(&r);
    close(dir);
    scratch_leave();
}
END_TEST

START_TEST(live_settings_that_are_damaged)
{
    static const char *const text[] = {"{\"step\":5}\n", "{\"step\":0,\"learning_rate\":1}\n", "\n", "x\n", "[]\n",
        "{\"step\":5,\"learning_rate\":-1}\n", "{\"step\":5,\"learning_rate\":\"1\"}\n",
        "{\"step\":5,\"learning_rate\":1,\"step\":6}\n", "{\"step\":5.5,\"learning_rate\":1}\n",
        "{\"step\":5,\"changed\":[]}\n", "{\"step\":5,\"changed\":{\"run.seed\":[\"1\",\"2\"]}}\n",
        "{\"step\":5,\"changed\":{\"train.gamma\":[\"1\"]}}\n",
        "{\"step\":5,\"changed\":{\"train.gamma\":[1,null]}}\n"};
    scratch_enter();
    int dir = open(".", O_RDONLY | O_DIRECTORY);
    for (size_t i = 0; i < sizeof text / sizeof *text; i++) {
        struct live_settings r;
        struct err e = {0};
        FILE *f = fopen(LIVE_SETTINGS_FILE, "w");
        fprintf(f, "{\"step\":3,\"learning_rate\":1}\n%s", text[i]);
        fclose(f);
        ck_assert_msg(live_settings_read(&r, dir, "run", 0, &none, &e), "%s", text[i]);
        expect(&e, E_DATA, "run/rates.jsonl:2: ");
        live_settings_free(&r);
    }
    close(dir);
    scratch_leave();
}
END_TEST

/* ---- folders ----------------------------------------------------------------------------------------------------- */

static int reads = -1;                                   /* so many calls succeed, the next one fails; -1: all do */

struct dirent *readdir(DIR *d)
{
    struct dirent *(*next)(DIR *) = NULL;
    *(void **)&next = dlsym(RTLD_NEXT, "readdir64");
    if (reads < 0 || reads-- > 0) return next(d);
    errno = EIO;
    return NULL;
}

START_TEST(folder_not_read_to_its_end)
{
    struct err e = {0};
    uint64_t *step;
    int n;
    scratch_enter();
    ck_assert(!mkdir("run", 0777) && !mkdir("run/checkpoints", 0777) && !mkdir("run/checkpoints/step-00000004", 0777));
    ck_assert(!mkdir("run/checkpoints/step-00000008", 0777));
    int dir = open("run/checkpoints", O_RDONLY | O_DIRECTORY);
    ck_assert(!ckpt_list(dir, "run/checkpoints", &step, &n, &e) && n == 2 && step[0] == 8);
    free(step);
    for (int i = 0; i < 4; i++) {                 /* two names, . and .. */
        reads = i;
        ck_assert(ckpt_list(dir, "run/checkpoints", &step, &n, &e) == -1 && !step && !n);
        expect(&e, E_IO, "run/checkpoints: Input/output error");
        e = (struct err){0};
    }
    struct rundir d;
    struct conf c = {.run = {.directory = "run", .resume = RESUME_NO}};
    reads = 0;
    ck_assert(rundir_check(&d, &c, RUNDIR_TRAIN, &e) == -1);
    expect(&e, E_IO, "run/checkpoints: Input/output error");
    rundir_close(&d);
    e = (struct err){0};
    reads = -1;
    ck_assert(rundir_check(&d, &c, RUNDIR_TRAIN, &e) == -1);
    expect(&e, E_CANTCREAT, "run: holds the results of an earlier run (checkpoints)");
    rundir_close(&d);
    close(dir);
    scratch_leave();
}
END_TEST

int main(void)
{
    TCase *t = tcase_create("keep");
    tcase_add_test(t, best_is_what_is_on_disk);
    tcase_add_test(t, patience_counts);
    tcase_add_test(t, no_number_is_no_best_score);
    tcase_add_test(t, lost_checkpoint_is_written_again);
    tcase_add_test(t, live_settings_by_step);
    tcase_add_test(t, live_settings_outlive);
    tcase_add_test(t, reloads_outlive);
    tcase_add_test(t, live_settings_that_are_damaged);
    tcase_add_test(t, folder_not_read_to_its_end);
    return suite_run("keep", CK_FORK, t);
}
