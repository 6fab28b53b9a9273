/* The options of mpstage-run, mpstage-experiment and mpstage-tokens, and their --help. */
#include <stdio.h>
#include <string.h>
#include "cli.h"

static const struct cli_option run[RUN_OPTIONS] = {
    [RUN_MAX_RESTARTS] = {"max-restarts", "N", "maximum number of restarts (default: unlimited)"},
    [RUN_MAX_FRUITLESS] = {"max-fruitless", "N", "maximum number of restarts without a new checkpoint (default 3)"},
    [RUN_BACKOFF] = {"backoff", "S", "seconds to wait before the second restart without a new checkpoint; doubles for "
                                     "each further one (default 1)"},
    [RUN_STOP_TIMEOUT] = {"stop-timeout", "S", "seconds from a stop request to SIGTERM (default 60)"},
    [RUN_HANG_TIMEOUT] = {"hang-timeout", "S", "kill and restart a command that was ready and sent nothing for this "
                                               "many seconds (default 0: never)"},
};
const struct cli cli_run = {
    "mpstage-run",
    "usage: mpstage-run [option ...] -- COMMAND [argument ...]\n"
    "Runs COMMAND, usually mpirun with mpstaged. If it fails in a way that a restart\n"
    "can repair, starts it again from its last checkpoint.\n",
    run, RUN_OPTIONS, true};

static const struct cli_option experiment[EXPERIMENT_OPTIONS] = {
    [EXPERIMENT_CONFIG] = {"stage-config", "FILE", "configuration file, see mpstaged.conf(5)", .letter = 'c'},
    [EXPERIMENT_RANKS] = {"ranks", "N", "ranks of the pipeline (default: as configured)", .letter = 'n'},
    [EXPERIMENT_REPEAT] = {"repeat", "N", "repetitions of single, naive and pipelined (default 5)"},
    [EXPERIMENT_SWEEP_REPEAT] = {"sweep-repeat", "N", "repetitions of the sweep's other points (default 2)"},
    [EXPERIMENT_STEPS] = {"steps", "N", "measured steps of each repetition (default 1)"},
    [EXPERIMENT_WARM_UP] = {"warm-up", "N", "steps before them (default 1)"},
    [EXPERIMENT_SPLITS] = {"splits", "N,N,...", "split sizes (default: 1/4, 1/2, 1, 2 times the configured one)"},
    [EXPERIMENT_SCHEDULES] = {"schedules", "NAME,...", "pipeline schedules (default: the configured one)",
                              .key = "pipeline.schedule"},
    [EXPERIMENT_OUT] = {"out", "DIR", "folder of the results (default experiments/NAME)"},
    [EXPERIMENT_OVERWRITE] = {"overwrite", NULL, "replace results of an earlier experiment"},
    [EXPERIMENT_NO_PROFILE] = {"no-profile", NULL, "predict with estimated instead of measured costs"},
    [EXPERIMENT_NO_PLOTS] = {"no-plots", NULL, "write no pictures"},
    [EXPERIMENT_MPIRUN] = {"mpirun", "COMMAND", "command that starts ranks (default: mpirun, bound to cores if there "
                                                "are enough)"},
    [EXPERIMENT_MPSTAGED] = {"mpstaged", "FILE", "program to measure (default: the one in the same directory)"},
};
const struct cli cli_experiment = {
    "mpstage-experiment",
    "usage: mpstage-experiment -c FILE [option ...] [-- mpstaged options]\n"
    "Measures one rank, naive model parallelism and the pipeline on the same work,\n"
    "and sweeps the size of micro-batches.\n",
    experiment, EXPERIMENT_OPTIONS, false};

static const struct cli_option tokens[TOKENS_OPTIONS] = {
    [TOKENS_TOKENIZER] = {"tokenizer", "FILE", "tokenizer.json, a folder that has one, or bytes", .letter = 't'},
    [TOKENS_DECODE] = {"decode", NULL, "write the text of a file of tokens", .letter = 'd'},
    [TOKENS_END] = {"end", "TOKEN", "token to write behind each document, <|endoftext|> for example", .letter = 'e'},
    [TOKENS_TYPE] = {"type", "u8|u16|u32", "numbers of the file (default: u16, or u32 for more than 65,536 "
                                            "tokens)"},
};
const struct cli cli_tokens = {
    "mpstage-tokens",
    "usage: mpstage-tokens -t FILE [option ...] IN [IN ...] OUT\n"
    "       mpstage-tokens -d -t FILE [option ...] IN OUT\n"
    "Writes the tokens of texts into a file for data.source = \"tokens\", or the text\n"
    "of such a file. Each IN is a document; in a file that ends in .jsonl each line\n"
    "{\"text\": \"..\"} is one.\n",
    tokens, TOKENS_OPTIONS, false};

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
    if (c->more) c->more(out);
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
