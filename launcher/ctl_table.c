/* The commands and options of mpstagectl. */
#include <stdio.h>
#include <string.h>
#include "ctl_table.h"

const struct ctl_verb_info ctl_verbs[VERBS] = {
    [VERB_STATUS] = {"status", NULL, "json", NULL, "say what the run is doing"},
    [VERB_WATCH] = {"watch", "[SECONDS]", "json", NULL, "status and where each stage's time goes, until the run ends"},
    [VERB_TOP] = {"top", "[SECONDS]", "json", NULL, "a table of the stages that is kept up to date; q ends it"},
    [VERB_CHECKPOINT] = {"checkpoint", NULL, "wait", NULL, "write a checkpoint and go on"},
    [VERB_STOP] = {"stop", NULL, "checkpoint wait", NULL, "finish the steps under way, write the weights, end"},
    [VERB_PAUSE] = {"pause", NULL, "", NULL, "begin no further step until resume"},
    [VERB_RESUME] = {"resume", NULL, "", NULL, "go on after a pause"},
    [VERB_SET] = {"set", "KEY=VALUE", "", "train.learning_rate=", "train.learning_rate from the next step on"},
    [VERB_RELOAD] = {"reload", NULL, "", NULL, "read the configuration file again"},
    [VERB_LOG_LEVEL] = {"log-level", "LEVEL", "", "error warning note info debug",
                        "error, warning, note, info or debug"},
    [VERB_LIST] = {"list", NULL, "json", NULL, "show the checkpoints of a run directory", true},
    [VERB_VERIFY] = {"verify", NULL, "json", NULL, "read a checkpoint, or all of a run directory", true},
};

const struct ctl_option ctl_options[] = {
    {"json", "JSON for programs: status, watch, top, list, verify"},
    {"wait", "return when the checkpoint is written, or the run has ended"},
    {"checkpoint", "stop writes a checkpoint first"},
    {"help", "print this text", 'h'},
    {"version", "print the version", 'V'},
    {NULL},
};

int ctl_verb_find(const char *name)
{
    for (int i = 0; i < VERBS; i++) if (!strcmp(ctl_verbs[i].name, name)) return i;
    return -1;
}

bool ctl_listed(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *s = list; *s; s += strcspn(s, " "), s += strspn(s, " "))
        if (strcspn(s, " ") == n && !memcmp(s, word, n)) return true;
    return false;
}

void ctl_help(struct text *out)
{
    char left[40];
    text_add(out, "usage: mpstagectl RUNDIR COMMAND [option]\n"
                  "       mpstagectl list|verify DIR [option]\n"
                  "Command and directory come in either order.\n"
                  "Asks and steers the mpstaged whose run directory is RUNDIR.\n\nCommands:\n");
    for (int i = 0; i < VERBS; i++) {
        const struct ctl_verb_info *v = &ctl_verbs[i];
        snprintf(left, sizeof left, "%s%s%s%s", v->name, v->arg ? " " : "", v->arg ? v->arg : "",
                 v->files ? " DIR" : "");
        text_add(out, "  %-18s %s\n", left, v->help);
    }
    text_add(out, "\nOptions:\n");
    for (const struct ctl_option *o = ctl_options; o->name; o++) {
        if (o->letter) snprintf(left, sizeof left, "-%c, --%s", o->letter, o->name);
        else snprintf(left, sizeof left, "--%s", o->name);
        text_add(out, "  %-18s %s\n", left, o->help);
    }
}
