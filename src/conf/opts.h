/* The command line of mpstaged. The parser, --help and the manual's option list come from one table (opts.c). Pure; any
 * thread. */
#ifndef CONF_OPTS_H
#define CONF_OPTS_H
#include <stdbool.h>
#include "conf/conf.h"

enum mode {
    MODE_RUN, MODE_PROFILE, MODE_CHECK_HOSTS,              /* these run under mpirun */
    MODE_HELP, MODE_VERSION,
    MODE_CHECK_CONFIG, MODE_PRINT_CONFIG, MODE_SUMMARY, MODE_PRINT_GRAPH, MODE_PLAN, MODE_PRINT_SCHEDULE,
    MODE_DRAW_SCHEDULE, MODE_SEARCH, MODE_INIT, MODE_INIT_LM, MODE_SHOW_BATCH, MODE_WRITE_ONNX,
    MODE_COMPARE
};
struct opts_set { const char *what; char *assignment; };   /* "--steps", "train.steps=3" */
struct opts {
    enum mode mode;
    bool json;
    const char *config;                                    /* NULL: not given */
    const char *picture;                                   /* output of --draw-schedule, --show-batch or --write-onnx */
    const char *write_config;                              /* --plan=search, --init, --init-lm: output file, or NULL */
    const char *folder;                                    /* --init, --init-lm */
    const char *run[2];                                    /* --compare */
    double seconds;                                        /* --check-hosts: how long it measures */
    VEC(const char *) prompt;                              /* --prompt, borrowed */
    VEC(struct opts_set) set;                              /* in command line order */
};

/* Does the run only measure? Then there are steps for profiles in place of training. */
static inline bool opts_measures(const struct opts *o)
{
    return o->mode == MODE_PROFILE || o->mode == MODE_CHECK_HOSTS;
}
/* Fails with 64 and names the option. Strings of argv are borrowed, not copied. */
int opts_parse(struct opts *o, int argc, char **argv, struct err *e);
void opts_help(int columns, struct text *out);
void opts_manual(struct text *out);                        /* adds mdoc list items for mpstaged(8) */
/* The i-th option, for texts made from the table. key: the configuration value that it sets, or NULL. False after the
 * last. */
struct opts_row { const char *name, *arg, *key; char letter; };
bool opts_row(int i, struct opts_row *row);
/* The whole number that the command line sets the key to, before there is a configuration. */
int64_t opts_number(const struct opts *o, const char *key, int64_t otherwise);
/* Applies the options to a parsed configuration and finishes it. 78 or 64. */
int opts_apply(const struct opts *o, struct conf *c, struct err *e);
void opts_free(struct opts *o);

#endif
