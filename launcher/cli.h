/* Command lines of mpstage-run, mpstage-experiment, mpstage-tokens and mpstagectl: one table for each gives --help, the
 * options for getopt, and the completions of shells. One thread. */
#ifndef LAUNCHER_CLI_H
#define LAUNCHER_CLI_H
#include <stdbool.h>
#include "base/err.h"
#include "base/text.h"

/* arg: the option's value, NULL: none; FILE and DIR are completed as such. key: the option of the configuration that
 * has the words for it, NULL: none. letter: 0: none. */
struct cli_option { const char *name, *arg, *help, *key; char letter; };
/* stops: options end with the first word that is no option. more: adds the part of --help before the options, or NULL.
 * The table does not contain --help and --version, which all programs have. */
struct cli {
    const char *program, *usage;
    const struct cli_option *option;
    int n;
    bool stops;
    void (*more)(struct text *out);
};

enum run_option { RUN_MAX_RESTARTS, RUN_MAX_FRUITLESS, RUN_BACKOFF, RUN_STOP_TIMEOUT, RUN_HANG_TIMEOUT, RUN_OPTIONS };
enum experiment_option { EXPERIMENT_CONFIG, EXPERIMENT_RANKS, EXPERIMENT_REPEAT, EXPERIMENT_SWEEP_REPEAT,
                         EXPERIMENT_STEPS, EXPERIMENT_WARM_UP, EXPERIMENT_SPLITS, EXPERIMENT_SCHEDULES, EXPERIMENT_OUT,
                         EXPERIMENT_OVERWRITE, EXPERIMENT_NO_PROFILE, EXPERIMENT_NO_PLOTS, EXPERIMENT_MPIRUN,
                         EXPERIMENT_MPSTAGED, EXPERIMENT_OPTIONS };
enum tokens_option { TOKENS_TOKENIZER, TOKENS_DECODE, TOKENS_END, TOKENS_TYPE, TOKENS_OPTIONS };
extern const struct cli cli_run, cli_experiment, cli_tokens;
/* Row i of a program's options, with --help and --version after the table; false: there are no more. */
bool cli_row(const struct cli *c, int i, struct cli_option *o);
void cli_help(const struct cli *c, struct text *out);
/* Reads the next option of the command line: returns its index in the table, with its value in optarg. CLI_END: there
 * are no more; optind is the first word after them. CLI_FINISHED: finished, as after --help. CLI_WRONG: 64, or the
 * output failed. */
enum { CLI_END = -1, CLI_FINISHED = -2, CLI_WRONG = -3 };
int cli_next(const struct cli *c, int argc, char **argv, struct err *e);
/* Reads a whole number from `least` to a billion. 64. */
int cli_count(const char *option, const char *text, int least, int *out, struct err *e);
#endif
