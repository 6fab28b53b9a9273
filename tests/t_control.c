/* The control socket without a run: requests, permissions, waiting clients, and changes when a configuration is read
 * again. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include "conf/reload.h"
#include "service/ctl.h"
#include "service/ctl_request.h"
#include "sure.h"

/* ---- requests ---------------------------------------------------------------------------------------------------- */

static const struct { const char *line, *error; } bad[] = {
    {"", "JSON|JSON|0"},
    {"garbage", "bad JSON"},
    {"[]", "JSON"},
    {"{}", "needs a \"command\""},
    {"{\"command\":3}", "needs a \"command\""},
    {"{\"command\":\"explode\"}", "unknown command \"explode\""},
    {"{\"command\":\"a\\nb\\u001b[2J\"}", "unknown command \"a\\x0ab\\x1b[2J\""},
    {"{\"command\":\"status\",\"wait\":true}", "status:|\"wait"},
    {"{\"command\":\"checkpoint\",\"checkpoint\":true}", "checkpoint:|\"checkpoint"},
    {"{\"command\":\"stop\",\"wait\":1}", "stop: \"wait\""},
    {"{\"command\":\"stop\",\"now\":true}", "stop:|\"now"},
    {"{\"command\":\"set\",\"key\":\"a\"}", "set: needs a \"value\""},
    {"{\"command\":\"set\",\"value\":1}", "set: needs a \"key\""},
    {"{\"command\":\"set\",\"key\":1,\"value\":1}", "set: \"key\" is a text"},
    {"{\"command\":\"set\",\"key\":\"a\",\"value\":[1]}", "set: \"value\" is a text"},
    {"{\"command\":\"log-level\"}", "log-level: needs a \"level\""},
    {"{\"a\":1,\"a\":2}", "bad JSON"},
    {"{\"command\":\"status\"} {}", "bad JSON"},
    {"{\"command\":\"st\\u0000atus\"}", "bad JSON"},
};
START_TEST(bad_requests)
{
    struct ctl_request r;
    struct err e = {0};
    ck_assert_int_eq(ctl_request_parse(bad[_i].line, strlen(bad[_i].line), &r, &e), -1);
    ck_assert_int_eq(e.code, E_USAGE);
    ck_assert_msg(says(e.text, bad[_i].error), "%s: %s", bad[_i].line, e.text);
    ctl_request_free(&r);
}
END_TEST

static void parse(struct ctl_request *r, const char *line)
{
    struct err e = {0};
    ck_assert_msg(ctl_request_parse(line, strlen(line), r, &e) == 0, "%s: %s", line, e.text);
}

START_TEST(good_requests)
{
    struct ctl_request r;
    parse(&r, "{\"command\":\"status\",\"id\":[1]}");
    ck_assert(r.command == CTL_STATUS && r.reads && json_is_array(r.id));
    ctl_request_free(&r);
    parse(&r, "{\"command\":\"stop\",\"checkpoint\":true,\"wait\":false}");
    ck_assert(r.command == CTL_STOP && !r.reads && r.checkpoint && !r.wait && !r.id);
    ctl_request_free(&r);
    parse(&r, "{\"command\":\"set\",\"key\":\"train.learning_rate\",\"value\":0.1}");
    ck_assert_str_eq(r.key, "train.learning_rate");
    ck_assert_str_eq(r.value, "0.1");
    ctl_request_free(&r);
    parse(&r, "{\"command\":\"set\",\"key\":\"k\",\"value\":\"0.10\"}");
    ck_assert_str_eq(r.value, "0.10");
    ctl_request_free(&r);
}
END_TEST

/* A request that is refused keeps its id, for the answer. */
START_TEST(bad_requests_keep_their_id)
{
    struct ctl_request r;
    struct err e = {0};
    static const char line[] = "{\"command\":\"explode\",\"id\":7}";
    ck_assert_int_eq(ctl_request_parse(line, strlen(line), &r, &e), -1);
    ck_assert_int_eq((int)json_integer_value(r.id), 7);
    ctl_request_free(&r);
}
END_TEST

/* ---- the socket -------------------------------------------------------------------------------------------------- */

static struct { uv_loop_t loop; struct ctl *ctl; char dir[40]; int fd, paused; uint64_t next; } rig;

static json_t *say_status(void *ctx) { (void)ctx; return json_pack("{s:s}", "state", "training"); }
static int say_pause(void *ctx, struct err *e)
{
    (void)ctx;
    return rig.paused++ ? err_set(e, E_STOPPED, "pause: enough") : 0;
}
static int say_checkpoint(void *ctx, bool then_stop, uint64_t *step, struct err *e)
{
    (void)ctx;
    (void)e;
    *step = then_stop ? 99 : rig.next;
    return 0;
}

static void rig_open(void)
{
    struct ctl_calls calls = {.status = say_status, .pause = say_pause, .checkpoint = say_checkpoint};
    struct err e = {0};
    rig.paused = 0;
    snprintf(rig.dir, sizeof rig.dir, "/tmp/t_control.XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(rig.dir));
    rig.fd = open(rig.dir, O_RDONLY | O_DIRECTORY);
    ck_assert_int_eq(uv_loop_init(&rig.loop), 0);
    ck_assert_msg(ctl_open(&rig.loop, rig.fd, rig.dir, &calls, &rig.ctl, &e) == 0, "%s", e.text);
}

static void turn(void)
{
    for (int i = 0; i < 10; i++) uv_run(&rig.loop, UV_RUN_NOWAIT);
}

static void rig_close(int code, const char *how)
{
    ctl_close(rig.ctl, code, how);
    uv_run(&rig.loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&rig.loop), 0);
    ctl_free(rig.ctl);
    unlinkat(rig.fd, "control.sock", 0);
    close(rig.fd);
    rmdir(rig.dir);
}

static int client(void)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    snprintf(to.sun_path, sizeof to.sun_path, "%s/control.sock", rig.dir);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    turn();
    return fd;
}

/* What has come since, "closed" at the end of the connection, "" if nothing has. */
static const char *heard(int fd)
{
    static char buf[4096];
    turn();
    ssize_t n = recv(fd, buf, sizeof buf - 1, 0);
    if (n == 0) return "closed";
    buf[n > 0 ? n : 0] = 0;
    return buf;
}

static const char *asked(int fd, const char *line)
{
    ck_assert_int_eq((int)send(fd, line, strlen(line), MSG_NOSIGNAL), (int)strlen(line));
    return heard(fd);
}

static const char status_line[] = "{\"command\":\"status\",\"id\":5}\n";

START_TEST(the_socket_answers_in_lines)
{
    struct stat st;
    rig_open();
    int fd = client();
    ck_assert_int_eq(fstatat(rig.fd, "control.sock", &st, 0), 0);
    ck_assert_int_eq((int)(st.st_mode & 0777), 0660);
    ck_assert_str_eq(asked(fd, status_line), "{\"ok\":true,\"state\":\"training\",\"id\":5}\n");
    ck_assert_str_eq(asked(fd, "{\"command\":"), "");
    ck_assert_str_eq(asked(fd, "\"pause\"}\n"), "{\"ok\":true,\"state\":\"pausing\"}\n");
    ck_assert_str_eq(asked(fd, "{\"command\":\"pause\",\"id\":\"b\"}\n"),
                     "{\"ok\":false,\"error\":\"pause: enough\",\"code\":75,\"id\":\"b\"}\n");
    const char *two = asked(fd, "no\n{\"command\":\"status\"}\n");
    ck_assert(strstr(two, "bad JSON") && strstr(two, "}\n{\"ok\":true"));
    close(fd);
    rig_close(0, "finished");
}
END_TEST

START_TEST(who_waits_for_a_checkpoint_hears_of_the_right_one)
{
    rig_open();
    rig.next = 10;
    int early = client(), none = client(), end = client();
    ck_assert_ptr_nonnull(strstr(asked(early, "{\"command\":\"checkpoint\",\"wait\":true}\n"), "\"step\":10"));
    ck_assert_ptr_nonnull(strstr(asked(none, "{\"command\":\"checkpoint\"}\n"), "\"step\":10"));
    rig.next = 20;
    int late = client();
    asked(late, "{\"command\":\"checkpoint\",\"wait\":true}\n");
    asked(end, "{\"command\":\"stop\",\"checkpoint\":true,\"wait\":true}\n");
    ctl_checkpoint_done(rig.ctl, 10, 0, NULL);
    ck_assert_str_eq(heard(early), "{\"ok\":true,\"state\":\"checkpoint\",\"step\":10}\n");
    ck_assert_str_eq(heard(none), "");
    ck_assert_str_eq(heard(late), "");
    ctl_checkpoint_done(rig.ctl, 20, 74, "no space");
    ck_assert_str_eq(heard(late), "{\"ok\":false,\"error\":\"no space\",\"code\":74,\"step\":20}\n");
    ck_assert_str_eq(heard(early), "");
    ck_assert_str_eq(heard(end), "");
    asked(late, "{\"command\":\"checkpoint\",\"wait\":true}\n");
    ctl_close(rig.ctl, 0, "stopped");
    ck_assert_str_eq(heard(end), "{\"ok\":true,\"state\":\"stopped\"}\n");
    ck_assert_str_eq(heard(late), "{\"ok\":true,\"state\":\"stopped\"}\n");
    ck_assert_str_eq(heard(none), "closed");
    close(early), close(none), close(end), close(late);
    rig_close(0, "stopped");
}
END_TEST

/* Who waits for a checkpoint behind which the run goes back hears of the first one after that. */
START_TEST(a_roll_back_makes_nobody_wait_longer)
{
    rig_open();
    rig.next = 10;
    int before = client();
    asked(before, "{\"command\":\"checkpoint\",\"wait\":true}\n");
    rig.next = 20;
    int behind = client();
    asked(behind, "{\"command\":\"checkpoint\",\"wait\":true}\n");
    ctl_checkpoint_back(rig.ctl, 15);
    ctl_checkpoint_done(rig.ctl, 15, 0, NULL);
    ck_assert_str_eq(heard(before), "{\"ok\":true,\"state\":\"checkpoint\",\"step\":15}\n");
    ck_assert_str_eq(heard(behind), "");
    ctl_checkpoint_done(rig.ctl, 16, 0, NULL);
    ck_assert_str_eq(heard(behind), "{\"ok\":true,\"state\":\"checkpoint\",\"step\":16}\n");
    close(before), close(behind);
    rig_close(0, "finished");
}
END_TEST

enum { MOST = 32, FLOOD = 1000 };

START_TEST(silent_clients_make_room)
{
    int fd[MOST];
    rig_open();
    for (int i = 0; i < MOST; i++) fd[i] = client();
    for (int i = 2; i < MOST; i++) asked(fd[i], i == 3 ? "{\"command\"" : status_line);
    int more = client();
    ck_assert_str_eq(heard(fd[0]), "closed");
    ck_assert_ptr_nonnull(strstr(asked(more, status_line), "\"ok\":true"));
    int again = client();
    ck_assert_str_eq(heard(fd[1]), "closed");
    asked(again, status_line);
    int third = client();                                 /* part of a line is nothing yet */
    ck_assert_str_eq(heard(fd[3]), "closed");
    asked(third, status_line);
    int refused = client();
    ck_assert_str_eq(heard(refused),
                     "{\"ok\":false,\"error\":\"too many clients (32), try again later\",\"code\":75}\n");
    ck_assert_str_eq(heard(refused), "closed");
    ck_assert_ptr_nonnull(strstr(asked(fd[4], status_line), "\"ok\":true"));
    for (int i = 0; i < MOST; i++) close(fd[i]);
    close(more), close(again), close(third), close(refused);
    rig_close(0, "finished");
}
END_TEST

START_TEST(a_flood_of_silent_clients_leaves_room)
{
    int *fd = mem_alloc(FLOOD * sizeof *fd);
    struct rlimit files;
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &files), 0);
    files.rlim_cur = files.rlim_max;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &files), 0);
    rig_open();
    for (int i = 0; i < FLOOD; i++) fd[i] = client();
    int open_still = 0, asks = client();
    ck_assert_ptr_nonnull(strstr(asked(asks, status_line), "\"ok\":true"));
    for (int i = 0; i < FLOOD; i++) open_still += strcmp(heard(fd[i]), "closed") != 0;
    ck_assert_int_eq(open_still, MOST - 1);
    for (int i = 0; i < FLOOD; i++) close(fd[i]);
    close(asks);
    free(fd);
    rig_close(0, "finished");
}
END_TEST

/* However many requests are sent at once, the loop does other things after a few of them: libuv calls back up to nine
 * times in a turn. */
START_TEST(requests_take_turns)
{
    enum { MANY = 1000 };
    static char all[MANY * sizeof status_line];
    int answers = 0, turns = 0;
    rig_open();
    int fd = client();
    for (int i = 0; i < MANY; i++) strcat(all, status_line);
    ck_assert_int_eq((int)send(fd, all, strlen(all), MSG_NOSIGNAL), (int)strlen(all));
    for (; answers < MANY && turns < 10 * MANY; turns++) {
        static char buf[1 << 16];
        int n = 0;
        uv_run(&rig.loop, UV_RUN_NOWAIT);
        ssize_t k = recv(fd, buf, sizeof buf, 0);
        for (ssize_t i = 0; i < k; i++) n += buf[i] == '\n';
        ck_assert_int_le(n, 16);
        answers += n;
    }
    ck_assert_int_eq(answers, MANY);
    close(fd);
    rig_close(0, "finished");
}
END_TEST

START_TEST(long_lines_are_refused)
{
    char *x = mem_alloc(65537);
    rig_open();
    int fd = client();
    memset(x, 'x', 65536);
    ck_assert_str_eq(asked(fd, x), "{\"ok\":false,\"error\":\"a line is longer than 64 KiB\",\"code\":64}\n");
    free(x);
    close(fd);
    rig_close(0, "finished");
}
END_TEST

/* ---- reading the configuration again ----------------------------------------------------------------------------- */

static char conf_name[] = "/tmp/t_control.XXXXXX";
static const char began[] = "model { network = \"toy\" }\ndata { source = \"synthetic\" }\n"
                            "train { steps = 5  learning_rate = 0.1 }\n";

static void conf_write(const char *more, const char *rate)
{
    FILE *f = fopen(conf_name, "w");
    ck_assert_ptr_nonnull(f);
    fprintf(f, "model { network = \"toy\" }\ndata { source = \"synthetic\" }\n"
            "train { steps = 5  learning_rate = %s%s }\n", rate, more);
    ck_assert_int_eq(fclose(f), 0);
}

/* changes: JSON of them, or NULL; error: what the error has, or NULL */
static void reload_check(const char *more, const char *rate, const char *changes, const char *error)
{
    char *argv[] = {"mpstaged", "-c", conf_name, "--batch-size=8", NULL};
    struct opts o;
    struct err e = {0};
    json_t *changed = json_object();
    conf_write(more, rate);
    ck_assert_int_eq(opts_parse(&o, 4, argv, &e), 0);
    struct conf *was = reload_make(&o, began, strlen(began), &e);
    ck_assert_msg(was != NULL, "%s", e.text);
    struct conf *now = reload_read(&o, was, changed, &e);
    char *got = json_dumps(changed, JSON_COMPACT | JSON_SORT_KEYS);
    ck_assert_msg(!now == !!error, "%s: %s", more, e.text);
    if (error) ck_assert_msg(says(e.text, error), "%s: %s", error, e.text);
    else ck_assert_str_eq(got, changes);
    free(got);
    json_decref(changed);
    conf_free(was);
    conf_free(now);
    opts_free(&o);
}

START_TEST(reload_takes_what_may_change_and_names_the_rest)
{
    int fd = mkstemp(conf_name);
    close(fd);
    reload_check("", "0.1", "{}", NULL);
    reload_check("", "0.2", "{\"train.learning_rate\":\"0.2\"}", NULL);
    reload_check(" batch_size = 7", "0.1", "{}", NULL);   /* the command line has the last word */
    reload_check("  schedule = \"step\"  milestones = {2, 3}", "0.1",
                 "{\"train.gamma\":\"0.1\",\"train.milestones\":\"{2, 3}\",\"train.schedule\":\"\\\"step\\\"\"}", NULL);
    reload_check("  momentum = 0.9  split_size = 2", "0.2", NULL,
                 "train.split_size, train.momentum");
    reload_check("  momentum = ", "0.2", NULL, ":3: ");
    reload_check(" } pipeline { stage { first = \"a\" last = \"b\" }", "0.1", NULL, "pipeline.stage;");
    unlink(conf_name);
}
END_TEST

START_TEST(a_file_that_is_gone_changes_nothing)
{
    char *argv[] = {"mpstaged", "-c", "/nowhere/x.conf", NULL};
    struct opts o;
    struct err e = {0};
    ck_assert_int_eq(opts_parse(&o, 3, argv, &e), 0);
    struct conf *was = reload_make(&o, began, strlen(began), &e);
    json_t *changed = json_object();
    ck_assert_ptr_null(reload_read(&o, was, changed, &e));
    ck_assert_int_eq(e.code, E_NOINPUT);
    json_decref(changed);
    conf_free(was);
    opts_free(&o);
}
END_TEST

int main(void)
{
    TCase *t = suite_case("control", 60);
    tcase_add_loop_test(t, bad_requests, 0, (int)(sizeof bad / sizeof *bad));
    tcase_add_test(t, good_requests);
    tcase_add_test(t, bad_requests_keep_their_id);
    tcase_add_test(t, the_socket_answers_in_lines);
    tcase_add_test(t, who_waits_for_a_checkpoint_hears_of_the_right_one);
    tcase_add_test(t, a_roll_back_makes_nobody_wait_longer);
    tcase_add_test(t, silent_clients_make_room);
    tcase_add_test(t, a_flood_of_silent_clients_leaves_room);
    tcase_add_test(t, requests_take_turns);
    tcase_add_test(t, long_lines_are_refused);
    tcase_add_test(t, reload_takes_what_may_change_and_names_the_rest);
    tcase_add_test(t, a_file_that_is_gone_changes_nothing);
    return suite_run("control", CK_FORK, t);
}
