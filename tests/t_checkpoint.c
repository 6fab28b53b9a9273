/* Checkpoints on disk: what was written can be read, and no damaged checkpoint is accepted. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/rng.h"
#include "ckpt/checkpoint.h"
#include "files.h"
#include "sure.h"

static struct err e;
static int dir = -1;
static bool is_default(const char *key, const char *value) { return !strcmp(key, "a.b") && !strcmp(value, "no"); }
enum { FILES = 3, BYTES = 4000, STEP = 1200 };
static struct ckpt_file file[FILES + 1];                 /* the last is the index */
static struct ckpt saved = {.step = STEP, .position = 38400, .seed = UINT64_C(18446744073709551557),
                            .numerics = "device cpu, threads 1", .config = "0123456789abcdef0123456789abcdef",
                            .score = "accuracy", .value = 0.625, .n_files = FILES + 1, .file = file};

static void enter(void)
{
    e = (struct err){0};
    scratch_enter();
    dir = open(".", O_RDONLY | O_DIRECTORY);
}

static void leave(void)
{
    close(dir);
    scratch_leave();
}

static void file_write(const struct out_folder *f, int i)
{
    char x[BYTES];
    struct out_place at;
    struct out o;
    for (int k = 0; k < BYTES; k++) x[k] = (char)(k * 7 + i);
    snprintf(file[i].name, sizeof file[i].name, "model-%05d-of-%05d.safetensors", i + 1, FILES);
    file[i].bytes = BYTES;
    file[i].rank = 2 * i;
    text_hash(x, BYTES, file[i].hash);
    ck_assert(!out_place_in(f->fd, "run", file[i].name, &at, &e) && !out_begin(&o, &at, NULL, &e));
    ck_assert_msg(!out_write(&o, x, BYTES, &e) && !out_commit(&o, true, &e), "%s", e.text);
    out_place_free(&at);
}

static void save(uint64_t step)
{
    struct out_folder f;
    char name[CKPT_NAME];
    saved.step = step;
    const struct ckpt_tensor t[] = {{"fc.weight", "model-00001-of-00003.safetensors"},
                                    {"fc.bias", "model-00002-of-00003.safetensors"}};
    ck_assert_msg(!out_folder_begin(&f, dir, "run", ckpt_name(step, name), &e), "%s", e.text);
    for (int i = 0; i < FILES; i++) file_write(&f, i);
    ck_assert(!ckpt_index_write(&f, t, 2, 2 * BYTES, &file[FILES], &e) && !ckpt_manifest_write(&f, &saved, &e));
    ck_assert_msg(!out_folder_commit(&f, &e), "%s", e.text);
}

static void refused(const char *part)
{
    struct ckpt c;
    e = (struct err){0};
    ck_assert_int_eq(ckpt_verify(dir, "run", STEP, NULL, &c, &e), -1);
    expect(&e, E_DATA, part);
}

START_TEST(names)
{
    char name[CKPT_NAME];
    uint64_t step;
    ck_assert_str_eq(ckpt_name(1200, name), "step-00001200");
    ck_assert_str_eq(ckpt_name(1234567890, name), "step-1234567890");
    ck_assert(ckpt_step("step-00001200", &step) && step == 1200 && ckpt_step("step-1234567890", &step));
    static const char *const none[] = {"step-1200", "step-00001200.tmp", "step-", "step-000012000", "step--0000012",
                                       "step-0000120x", "steps-00001200", "step-99999999999999999999"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) ck_assert_msg(!ckpt_step(none[i], &step), "%s", none[i]);
}
END_TEST

START_TEST(what_is_written_is_read)
{
    struct ckpt c, now = {0};
    const char *old;
    saved.evaluate = saved.has_rate = true;
    saved.skipped = 2;
    saved.updates = STEP - 7;
    saved.before = 11;
    saved.rate = 0.1;
    ckpt_setting_add(&saved, "train.batch_size", "32");
    ckpt_setting_add(&saved, "model.input", NULL);
    save(STEP);
    ck_assert_msg(!ckpt_verify(dir, "run", STEP, NULL, &c, &e), "%s", e.text);
    ck_assert(c.step == STEP && c.position == saved.position && c.seed == saved.seed && c.value == 0.625);
    ck_assert_str_eq(c.numerics, saved.numerics);
    ck_assert_str_eq(c.config, saved.config);
    ck_assert_str_eq(c.score, "accuracy");
    ck_assert(c.evaluate && c.has_rate && c.rate == 0.1 && c.skipped == 2);
    ck_assert(c.updates == STEP - 7 && c.before == 11);
    ck_assert(c.n_settings == 2 && !ckpt_differs(&c, &saved, NULL, NULL, &old));
    ckpt_setting_add(&now, "model.input", "{3, 8}");
    ck_assert_str_eq(ckpt_differs(&c, &now, NULL, NULL, &old)->key, "model.input");
    ck_assert_ptr_null(old);
    ckpt_setting_add(&now, "train.batch_size", "16");
    ck_assert(ckpt_differs(&c, &now, NULL, &now.setting[0], &old) == &now.setting[1]);
    ck_assert(!ckpt_differs(&c, &now, NULL, &now.setting[1], &old));
    ck_assert(ckpt_differs(&c, &now, NULL, NULL, &old) == &now.setting[0]);
    free(now.setting[0].value);
    now.setting[0].value = NULL;
    ck_assert(ckpt_differs(&c, &now, NULL, NULL, &old) == &now.setting[1]);
    ck_assert_str_eq(old, "32");
    ckpt_setting_add(&now, "a.b", "no");
    ckpt_setting_add(&now, "a.b", "yes");
    ck_assert(ckpt_differs(&c, &now, NULL, &now.setting[1], &old) == &now.setting[2]);
    ck_assert_msg(ckpt_differs(&c, &now, is_default, &now.setting[1], &old) == &now.setting[3],
                  "an option that an older version did not have");
    ckpt_free(&now);
    ck_assert_int_eq(c.n_files, FILES + 1);
    for (int i = 0; i < FILES; i++) ck_assert(!memcmp(&c.file[i], &file[i], sizeof *file));
    ck_assert_int_eq(c.file[FILES].rank, -1);             /* the index is of all ranks */
    ckpt_free(&c);
    atomic_int stop = 75;
    ck_assert_int_eq(ckpt_verify(dir, "run", STEP, &stop, &c, &e), -1);
    ck_assert_int_eq(e.code, E_STOPPED);
}
END_TEST

START_TEST(the_newest_comes_first)
{
    uint64_t *step;
    int n;
    save(3);
    save(12);
    save(7);
    ck_assert(!mkdir("step-00000099.tmp", 0777) && !mkdir("else", 0777));
    PUT("step-00000100", "a file");
    ck_assert_msg(!ckpt_list(dir, "run", &step, &n, &e), "%s", e.text);
    ck_assert(n == 3 && step[0] == 12 && step[1] == 7 && step[2] == 3);
    free(step);
}
END_TEST

/* Every byte of every file, changed; every file shorter, longer, gone. */
START_TEST(damage_is_found)
{
    save(STEP);
    ck_assert_int_eq(chdir("step-00001200"), 0);
    for (int i = 0; i < FILES; i++)
        for (off_t at = 0; at < BYTES; at += 97) {
            char was, is;
            int fd = open(file[i].name, O_RDWR);
            ck_assert(fd >= 0 && pread(fd, &was, 1, at) == 1);
            is = (char)(was ^ 4);
            ck_assert(pwrite(fd, &is, 1, at) == 1);
            refused("its hash differs from the manifest");
            expect(&e, E_DATA, file[i].name);
            ck_assert(pwrite(fd, &was, 1, at) == 1);
            close(fd);
        }
    ck_assert_int_eq(truncate(file[1].name, BYTES - 1), 0);
    refused("its size differs");
    ck_assert_int_eq(truncate(file[1].name, BYTES + 1), 0);
    refused("its size differs");
    ck_assert_int_eq(unlink(file[1].name), 0);
    refused("No such file");
    ck_assert_int_eq(symlink(file[0].name, file[1].name), 0);
    refused(file[1].name);
    ck_assert(!unlink("manifest.json") && !mkfifo("manifest.json", 0666));
    refused("manifest.json: it is not a regular file");
}
END_TEST

/* It says what was saved. Frees it. */
static void same(struct ckpt *c)
{
    struct text a = {0}, b = {0};
    ckpt_print(c, &a);
    ckpt_print(&saved, &b);
    ck_assert_str_eq(a.s, b.s);
    text_free(&a);
    text_free(&b);
    ckpt_free(c);
}

/* Random bytes of random files, changed: the file is named; what a manifest says stays the same otherwise. LONG=1 tries
 * 10,000. */
START_TEST(damage_at_random)
{
    static const char *const name[] = {"manifest.json", "model.safetensors.index.json",
                                       "model-00001-of-00003.safetensors", "model-00003-of-00003.safetensors"};
    uint32_t random = 7;
    int refusals = 0, tries = getenv("LONG") ? 10000 : 300;
    save(STEP);
    ck_assert_int_eq(chdir("step-00001200"), 0);
    for (int i = 0; i < tries; i++) {
        struct ckpt c;
        const char *path = name[next_random(&random) % 4];
        int fd = open(path, O_RDWR);
        off_t at = (off_t)(next_random(&random) % (uint32_t)lseek(fd, 0, SEEK_END));
        char was, is;
        sure(pread(fd, &was, 1, at) == 1, "%s", path);
        is = (char)(was ^ (1 + next_random(&random) % 255));
        sure(pwrite(fd, &is, 1, at) == 1, "%s", path);
        e = (struct err){0};
        if (!ckpt_verify(dir, "run", STEP, NULL, &c, &e)) {
            sure(!strcmp(path, "manifest.json"), "%s, byte %ld: damage passes", path, (long)at);
            same(&c);
        } else {
            sure(e.code == E_DATA && strstr(e.text, path), "%s, byte %ld: %d %s", path, (long)at, e.code, e.text);
            refusals++;
        }
        sure(pwrite(fd, &was, 1, at) == 1, "%s", path);
        close(fd);
    }
    ck_assert_int_gt(refusals, tries * 9 / 10);
}
END_TEST

/* A manifest of each length shorter than its own, and with each byte another, is refused or says the same. */
START_TEST(a_manifest_is_whole_or_refused)
{
    struct text t = {0};
    save(STEP);
    ck_assert_int_eq(text_read_file(&t, "step-00001200/manifest.json", 1 << 20, &e), 0);
    for (size_t n = 0; n + 1 < t.n; n++) {
        put("step-00001200/manifest.json", t.s, n);
        refused(t.n - n > 2 ? "manifest.json: it is not a JSON object" : "manifest.json: ");
    }
    for (size_t i = 0; i < t.n; i++) {
        struct ckpt c;
        char was = t.s[i];
        t.s[i] ^= 1;
        put("step-00001200/manifest.json", t.s, t.n);
        e = (struct err){0};
        if (!ckpt_verify(dir, "run", STEP, NULL, &c, &e)) same(&c);
        else expect(&e, E_DATA, "run/step-00001200/manifest.json: ");
        t.s[i] = was;
    }
    text_free(&t);
}
END_TEST

START_TEST(hostile_manifests)
{
    static const char *const one = "\"xxh3_128\":\"0123456789abcdef0123456789abcdef\",\"bytes\":1";
    static const char head[] = "\"version\":1,\"step\":1200,\"position\":1,\"seed\":\"1\",\"numerics\":\"n\","
                               "\"configuration\":\"c\",\"settings\":{}";
    static const struct { const char *form, *part; } of[] = {
        {"{}", "no version"}, {"[]", "JSON object"},
        {"{\"version\":1,\"step\":1200,\"position\":1,\"seed\":\"1\",\"numerics\":\"n\",\"configuration\":\"c\"}",
         "settings are missing"},
        {"{\"version\":1,\"step\":1200,\"position\":1,\"seed\":\"1\",\"numerics\":\"n\",\"configuration\":\"c\","
         "\"settings\":{\"a\":1}}", "a setting is not text"},
        {"{\"version\":1,\"step\":7}", "its step is not"}, {"{\"version\":1,\"step\":1200}", "is missing"},
        {"{%s,\"learning_rate\":\"x\"}", "learning_rate is not a number"},
        {"{%s,\"skipped_in_a_row\":-1}", "skipped_in_a_row is not a number"},
        {"{%s,\"updates\":1201}", "updates is not a number from 0 to its step"}, {"{%s,\"updates\":\"x\"}", "updates "
                                                                                                            "is"},
        {"{%s,\"updates\":2,\"updates_of_other_optimizers\":3}", "updates_of_other_optimizers is not a number"},
        {"{%s}", "names no files"}, {"{%s,\"files\":[{}]}", "a file has no name"},
        {"{%s,\"files\":[{\"name\":\"../x\",%s}]}", "a file has no name"},
        {"{%s,\"files\":[{\"name\":\"a/x\",%s}]}", "a file has no name"},
        {"{%s,\"files\":[{\"name\":\"manifest.json\",%s}]}", "a file has no name"},
        {"{%s,\"files\":[{\"name\":\"x\",%s},{\"name\":\"x\",%s}]}", "names a file twice"},
        {"{%s,\"files\":[{\"name\":\"x\",%s}],\"score\":{}}", "no name or value"},
        {"{%s,\"files\":[{\"name\":\"x\",%s}]}", "no hash of its own"},
        {"{%s,\"manifest_xxh3_128\":\"0123456789abcdef0123456789abcdef\",\"files\":[{\"name\":\"x\",%s}]}",
         "its own hash does not match"},
    };
    ck_assert_int_eq(mkdir("step-00001200", 0777), 0);
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        struct text t = {0};
        const char *s = of[i].form, *hole;
        for (int k = 0; (hole = strstr(s, "%s")); s = hole + 2)
            text_add(&t, "%.*s%s", (int)(hole - s), s, k++ ? one : head);
        text_add(&t, "%s", s);
        put("step-00001200/manifest.json", t.s, t.n);
        refused(of[i].part);
        text_free(&t);
    }
}
END_TEST

int main(void)
{
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, enter, leave);
    tcase_set_timeout(t, 120);
    tcase_add_test(t, names);
    tcase_add_test(t, what_is_written_is_read);
    tcase_add_test(t, the_newest_comes_first);
    tcase_add_test(t, damage_is_found);
    tcase_add_test(t, damage_at_random);
    tcase_add_test(t, a_manifest_is_whole_or_refused);
    tcase_add_test(t, hostile_manifests);
    return suite_run("checkpoint", CK_FORK, t);
}
