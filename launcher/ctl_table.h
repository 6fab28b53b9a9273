/* The commands of mpstagectl: one table gives --help, the check of the command line and the completions of shells. */
#ifndef LAUNCHER_CTL_TABLE_H
#define LAUNCHER_CTL_TABLE_H
#include <stdbool.h>
#include "cli.h"

enum ctl_verb { VERB_STATUS, VERB_WATCH, VERB_TOP, VERB_CHECKPOINT, VERB_STOP, VERB_PAUSE, VERB_RESUME, VERB_SET,
                VERB_RELOAD, VERB_LOG_LEVEL, VERB_WHY, VERB_REPORT, VERB_LIST, VERB_VERIFY, VERBS };
struct ctl_verb_info {
    const char *name, *arg;                               /* arg: the argument, in brackets if optional; NULL: none */
    const char *options;                                  /* names of the options that it takes, separated by spaces */
    const char *words;                                    /* possible values of arg; NULL: anything */
    const char *help;
    bool files;                                           /* reads files, needs no run: comes before its directory */
};
extern const struct ctl_verb_info ctl_verbs[VERBS];
enum ctl_option { CTL_JSON, CTL_HTML, CTL_WAIT, CTL_CHECKPOINT, CTL_OPTIONS };
extern const struct cli cli_ctl;
int ctl_verb_find(const char *name);                      /* -1: none */
bool ctl_listed(const char *list, const char *word);      /* whether it is one of the words */
#endif
