/* The parts of the daemon that need no ranks and no clock: command line, queue, accounts. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "report/result.h"
#include "report/scores.h"
#include "cluster/queue.h"
#include "conf/opts.h"
#include "sure.h"

/* ---- command line ------------------------------------------------------------------------------------------------ */

static int parse(struct opts *o, struct err *e, const char *line)
{
    static char copy[400];
    char *argv[32];
    int argc = 0;
    snprintf(copy, sizeof copy, "%s", line);
    for (char *s = strtok(copy, " "); s; s = strtok(NULL, " ")) argv[argc++] = s;
    argv[argc] = NULL;
    *e = (struct err){0};
    return opts_parse(o, argc, argv, e);
}

START_TEST(options_become_overrides)
{
    struct opts o;
    struct err e;
    ck_assert_int_eq(parse(&o, &e, "mpstaged -c a.conf --steps 3 -o train.loss=mse --overwrite --stages=4"), 0);
    ck_assert_str_eq(o.config, "a.conf");
    ck_assert_int_eq(o.mode, MODE_RUN);
    ck_assert_int_eq(o.set.n, 4);
    ck_assert_str_eq(o.set.v[0].assignment, "train.steps=3");
    ck_assert_str_eq(o.set.v[0].what, "--steps");
    ck_assert_str_eq(o.set.v[1].assignment, "train.loss=mse");
    ck_assert_str_eq(o.set.v[1].what, "-o train.loss=mse");
    ck_assert_str_eq(o.set.v[2].assignment, "run.overwrite=yes");
    ck_assert_str_eq(o.set.v[3].assignment, "pipeline.stages=4");
    opts_free(&o);
}
END_TEST

static const struct { const char *line, *text; } wrong[] = {
    {"mpstaged", "--stage-config"},
    {"mpstaged -c a.conf --colour", "--colour"},
    {"mpstaged -c a.conf -x", "-x"},
    {"mpstaged -c a.conf --lr 3", "--lr|--learning-rate?)"},
    {"mpstaged -c a.conf --lr=3", "--lr|--learning-rate?)"},
    {"mpstaged -c a.conf --batchsize 3", "--batchsize|--batch-size?)"},
    {"mpstaged -c a.conf --momentum=0.9", "--momentum|-o train.momentum=VALUE?)"},
    {"mpstaged -c a.conf --colour", "unknown option --colour (see mpstaged --help)"},
    {"mpstaged -c a.conf --st 3", "ambiguous option --st: --stage-config, --steps, --stages"},
    {"mpstaged -c a.conf --steps", "--steps needs a value (N)"},
    {"mpstaged -c a.conf --generate --prompt x", "--generate needs a value (FILE.jsonl|-), not --prompt"},
    {"mpstaged -c", "needs a value"},
    {"mpstaged -c a.conf --overwrite=yes", "--overwrite takes no value"},
    {"mpstaged -c a.conf -c b.conf", "twice"},
    {"mpstaged -c a.conf -o steps", "SECTION.KEY=VALUE"},
    {"mpstaged -c a.conf -o =3", "SECTION.KEY=VALUE"},
    {"mpstaged -c a.conf b.conf", "unexpected argument b.conf"},
    {"mpstaged --plan search -c a.conf", "unexpected argument search (did you mean --plan=search?)"},
    {"mpstaged -c a.conf --resume force", "unexpected argument force (did you mean --resume=force?)"},
    {"mpstaged -np 2 -c a.conf", "unknown option -n: -n and -np belong to mpirun, before mpstaged"},
    {"mpstaged a.conf", "unexpected argument a.conf: write -c before the configuration file"},
    {"mpstaged -c a.conf -o model.input=3 model.input=32", "model.input=32: |-o"},
    {"mpstaged -c a.conf --plan --summary", "another mode"},
    {"mpstaged -c a.conf --json", "--json"},
    {"mpstaged -c a.conf --draw-schedule x.png", "x.png"},
    {"mpstaged --compare", "--compare needs a value (RUN RUN)"},
    {"mpstaged --compare a", "--compare a: expected two run directories"},
    {"mpstaged --compare a b c", "unexpected argument c"},
    {"mpstaged --compare a b -c a.conf", "no configuration: --stage-config"},
    {"mpstaged --steps 3 --compare a b", "no configuration: --steps"},
};
START_TEST(wrong_command_lines)
{
    struct opts o;
    struct err e;
    ck_assert_int_eq(parse(&o, &e, wrong[_i].line), -1);
    ck_assert_int_eq(e.code, E_USAGE);
    ck_assert_msg(says(e.text, wrong[_i].text), "\"%s\" says: %s", wrong[_i].line, e.text);
    opts_free(&o);
}
END_TEST

START_TEST(every_option_is_in_help_and_manual)
{
    struct text help = {0}, manual = {0};
    opts_help(80, &help);
    opts_manual(&manual);
    int n = 0;
    for (const char *s = manual.s; (s = strstr(s, "Fl -")); n++) {
        char name[40] = "--";
        sscanf(s + 4, "%37[a-z-]", name + 2);
        ck_assert_msg(strstr(help.s, name) != NULL, "%s is not in --help", name);
        s += 4;
    }
    ck_assert_int_gt(n, 20);
    text_free(&help);
    text_free(&manual);
}
END_TEST

/* ---- queue ------------------------------------------------------------------------------------------------------- */

START_TEST(ring_keeps_order_and_bounds)
{
    struct queue *r = queue_new(3, sizeof(int));
    int x = 0;
    ck_assert(!queue_get(r, &x, 0));
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < 3; i++) ck_assert(queue_put(r, &(int){10 * round + i}));
        ck_assert(!queue_put(r, &x));
        for (int i = 0; i < 3; i++) {
            ck_assert(queue_get(r, &x, 0));
            ck_assert_int_eq(x, 10 * round + i);
        }
    }
    ck_assert(!queue_get(r, &x, 1));
    queue_free(r);
}
END_TEST

/* ---- accounts ---------------------------------------------------------------------------------------------------- */

static uint64_t total(const uint64_t *part)
{
    uint64_t sum = 0;
    for (int i = 0; i < ACC_COUNT; i++) sum += part[i];
    return sum;
}

START_TEST(accounts_add_up)
{
    uint64_t part[ACC_COUNT] = {[ACC_FORWARD] = 100, [ACC_WAIT_UP] = 30, [ACC_OTHER] = 5};
    account_fit(part, 150);
    ck_assert_uint_eq(part[ACC_WAIT_UP], 45);
    ck_assert_uint_eq(total(part), 150);
    account_fit(part, 120);
    ck_assert_uint_eq(part[ACC_WAIT_UP], 15);
    ck_assert_uint_eq(part[ACC_FORWARD], 100);
    account_fit(part, 90);
    ck_assert_uint_eq(part[ACC_FORWARD], 90);
    ck_assert_uint_eq(total(part), 90);
}
END_TEST

START_TEST(sums_are_of_all_ranks)
{
    struct result *r = mem_alloc(result_bytes(2));
    struct sums s = {0};
    r->ns = 7;
    r->rep[0] = (struct report){.score = {[1] = {3, 4}}};
    r->rep[1] = (struct report){.score = {{2.5, 5}, [2] = {4, 5}}, .samples = 5};
    sums_add(&s, r, 2);
    sums_add(&s, r, 2);
    ck_assert(s.score[0].numerator == 5 && s.score[0].denominator == 10 && s.score[1].numerator == 6);
    ck_assert(score_mean(s.score, 1) == 0.75 && score_mean(s.score, 2) == 0.8 && isnan(score_mean(s.score, 3)));
    ck_assert(score_mean(&s.score[3], 0) == 0);          /* a loss of nothing */
    ck_assert(s.samples == 10 && s.ns == 14);
    free(r);
}
END_TEST

int main(void)
{
    TCase *t = tcase_create("pure");
    tcase_add_test(t, options_become_overrides);
    tcase_add_loop_test(t, wrong_command_lines, 0, sizeof wrong / sizeof *wrong);
    tcase_add_test(t, every_option_is_in_help_and_manual);
    tcase_add_test(t, ring_keeps_order_and_bounds);
    tcase_add_test(t, accounts_add_up);
    tcase_add_test(t, sums_are_of_all_ranks);
    return suite_run("daemon", CK_FORK, t);
}
