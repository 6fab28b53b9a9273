/* What mpstagectl can be told: one table gives --help, the check of the command line and the completions of shells. */
#ifndef LAUNCHER_CTL_TABLE_H
#define LAUNCHER_CTL_TABLE_H
#include <stdbool.h>
#include "base/text.h"

enum ctl_verb { VERB_STATUS, VERB_WATCH, VERB_TOP, VERB_CHECKPOINT, VERB_STOP, VERB_PAUSE, VERB_RESUME, VERB_SET,
                VERB_RELOAD, VERB_LOG_LEVEL, VERB_LIST, VERB_VERIFY, VERBS };
struct ctl_verb_info {
    const char *name, *arg;                               /* arg: what follows, in brackets if it may; NULL: nothing */
    const char *options;                                  /* names of those that go with it, with spaces between */
    const char *words;                                    /* what arg may be; NULL: anything */
    const char *help;
    bool files;                                           /* reads files, needs no run: stands before its directory */
};
extern const struct ctl_verb_info ctl_verbs[VERBS];
struct ctl_option { const char *name, *help; char letter; };
extern const struct ctl_option ctl_options[];             /* ends with name NULL; the first are those of commands */
int ctl_verb_find(const char *name);                      /* -1: there is none */
bool ctl_listed(const char *list, const char *word);      /* is it one of the words? */
void ctl_help(struct text *out);
#endif
