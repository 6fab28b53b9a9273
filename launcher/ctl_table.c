/* The commands and options of mpstagectl. */
#include <stdio.h>
#include <string.h>
#include "ctl_table.h"

const struct ctl_verb_info ctl_verbs[VERBS] = {
    [VERB_STATUS] = {"status", NULL, "json", NULL, "print step, loss, speed and remaining time"},
    [VERB_WATCH] = {"watch", "[SECONDS]", "json", NULL, "print the status and times of each stage until the run ends"},
    [VERB_TOP] = {"top", "[SECONDS]", "json", NULL, "show a table of the stages and refresh it; q quits"},
    [VERB_CHECKPOINT] = {"checkpoint", NULL, "wait", NULL, "write a checkpoint and continue"},
    [VERB_STOP] = {"stop", NULL, "checkpoint wait", NULL, "finish the ordered steps, write the weights, end the run"},
    [VERB_PAUSE] = {"pause", NULL, "", NULL, "start no further step until resume"},
    [VERB_RESUME] = {"resume", NULL, "", NULL, "continue after a pause"},
    [VERB_SET] = {"set", "KEY=VALUE", "", "train.learning_rate=", "set train.learning_rate from the next step on"},
    [VERB_RELOAD] = {"reload", NULL, "", NULL, "read the configuration file again"},
    [VERB_LOG_LEVEL] = {"log-level", "LEVEL", "", "error warning note info debug",
                        "set it to error, warning, note, info or debug"},
    [VERB_WHY] = {"why", NULL, "json", NULL, "print why the last run of a run directory failed", true},
    [VERB_REPORT] = {"report", NULL, "json html", NULL, "print what became of the time of a run", true},
    [VERB_LIST] = {"list", NULL, "json", NULL, "list the checkpoints of a run directory", true},
    [VERB_VERIFY] = {"verify", NULL, "json", NULL, "check the files of a checkpoint, or all of a run directory", true},
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

static void commands_add(struct text *out)
{
    char left[40];
    text_add(out, "Commands:\n");
    for (int i = 0; i < VERBS; i++) {
        const struct ctl_verb_info *v = &ctl_verbs[i];
        snprintf(left, sizeof left, "%s%s%s%s", v->name, v->arg ? " " : "", v->arg ? v->arg : "",
                 v->files ? " DIR" : "");
        text_add(out, "  %-18s %s\n", left, v->help);
    }
    text_add(out, "\nOptions:\n");
}

static const struct cli_option options[CTL_OPTIONS] = {
    [CTL_JSON] = {"json", NULL, "print JSON: status, watch, top, why, report, list, verify"},
    [CTL_HTML] = {"html", "FILE", "report: write it as a page with curves; FILE.html, or - for standard output"},
    [CTL_WAIT] = {"wait", NULL, "wait until the checkpoint is written or the run has ended"},
    [CTL_CHECKPOINT] = {"checkpoint", NULL, "stop: write a checkpoint first"},
};
const struct cli cli_ctl = {
    "mpstagectl",
    "usage: mpstagectl RUNDIR COMMAND [option]\n"
    "       mpstagectl why|report|list|verify DIR [option]\n"
    "Command and directory come in either order.\n"
    "Queries and controls the mpstaged with run directory RUNDIR.\n",
    options, CTL_OPTIONS, false, commands_add};
