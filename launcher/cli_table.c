/* The options of mpstage-run and mpstage-experiment, and their --help. */
#include <stdio.h>
#include <string.h>
#include "cli.h"

static const struct cli_option run[RUN_OPTIONS] = {
    [RUN_MAX_RESTARTS] = {"max-restarts", "N", "restarts at most (default: any number)"},
    [RUN_MAX_FRUITLESS] = {"max-fruitless", "N", "restarts without a new checkpoint at most (default 3)"},
    [RUN_BACKOFF] = {"backoff", "S", "seconds before the second of these, twice that before the third and so on "
                                     "(default 1)"},
    [RUN_STOP_TIMEOUT] = {"stop-timeout", "S", "seconds from a request to stop to SIGTERM (default 60)"},
    [RUN_HANG_TIMEOUT] = {"hang-timeout", "S", "seconds of silence after which a command that was ready is ended and "
                                               "started again (default 0: any time)"},
};
const struct cli cli_run = {
    "mpstage-run",
    "usage: mpstage-run [option ...] -- COMMAND [argument ...]\n"
    "Runs COMMAND, usually mpirun with mpstaged; when it fails in a way that a\n"
    "restart can mend, starts it again to go on from its last checkpoint.\n",
    run, RUN_OPTIONS, true};

static const struct cli_option experiment[EXPERIMENT_OPTIONS] = {
    [EXPERIMENT_CONFIG] = {"stage-config", "FILE", "configuration file, see mpstaged.conf(5)", .letter = 'c'},
    [EXPERIMENT_RANKS] = {"ranks", "N", "ranks of the pipeline (default: as configured)", .letter = 'n'},
    [EXPERIMENT_REPEAT] = {"repeat", "N", "repetitions of the bars (default 5)"},
    [EXPERIMENT_SWEEP_REPEAT] = {"sweep-repeat", "N", "repetitions of the sweep's other points (default 2)"},
    [EXPERIMENT_STEPS] = {"steps", "N", "measured steps of each repetition (default 1)"},
    [EXPERIMENT_WARM_UP] = {"warm-up", "N", "steps before them (default 1)"},
    [EXPERIMENT_SPLITS] = {"splits", "N,N,...", "sizes of the sweep (default: 1/4, 1/2, 1 and 2 times the split size)"},
    [EXPERIMENT_SCHEDULES] = {"schedules", "NAME,...", "pipeline schedules (default: the configured one)",
                              .key = "pipeline.schedule"},
    [EXPERIMENT_OUT] = {"out", "DIR", "folder of the results (default experiments/NAME)"},
    [EXPERIMENT_OVERWRITE] = {"overwrite", NULL, "replace the results of an earlier experiment"},
    [EXPERIMENT_NO_PROFILE] = {"no-profile", NULL, "predict with estimated costs, measure none before"},
    [EXPERIMENT_NO_PLOTS] = {"no-plots", NULL, "write no pictures"},
    [EXPERIMENT_MPIRUN] = {"mpirun", "COMMAND", "how ranks are started (default: mpirun, bound to cores where they "
                                                "suffice)"},
    [EXPERIMENT_MPSTAGED] = {"mpstaged", "FILE", "the program to measure (default: beside this one)"},
};
const struct cli cli_experiment = {
    "mpstage-experiment",
    "usage: mpstage-experiment -c FILE [option ...] [-- mpstaged options]\n"
    "Measures one rank, naive model parallelism and the pipeline on the same work,\n"
    "and sweeps the size of micro-batches.\n",
    experiment, EXPERIMENT_OPTIONS, false};

bool cli_row(const struct cli *c, int i, struct cli_option *o)
{
    static const struct cli_option common[] = {{"help", NULL, "print this text", .letter = 'h'},
                                               {"version", NULL, "print the version", .letter = 'V'}};
    if (i >= c->n + 2) return false;
    *o = i < c->n ? c->option[i] : common[i - c->n];
    return true;
}

void cli_help(const struct cli *c, struct text *out)
{
    enum { LEFT = 28, COLUMNS = 79 };
    struct cli_option o;
    text_add(out, "%s\n", c->usage);
    for (int i = 0; cli_row(c, i, &o); i++) {
        char letter[8] = "    ", left[60];
        struct text help = {0};
        if (o.letter) snprintf(letter, sizeof letter, "-%c, ", o.letter);
        snprintf(left, sizeof left, "  %s--%s%s%s", letter, o.name, o.arg ? " " : "", o.arg ? o.arg : "");
        text_add(&help, "%-*s%s", LEFT, left, o.help);
        text_fold(help.s, COLUMNS, LEFT, out);
        text_free(&help);
    }
}
