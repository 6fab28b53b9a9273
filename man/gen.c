/* gen TEMPLATE: prints a manual page, with each line "@NAME@" replaced by mdoc source made from the tables of the
 * program. gen completion PROGRAM: prints what completes the program's command line (complete.h). gen events: prints
 * the keys of metrics.jsonl for tests/documented.sh.
 *
 * Options, actions, schedules, partitions, operators, data sources, augmentations, optimizers and events are thus
 * documented where they are defined, once. Text is folded at 78 columns, as mandoc's lint wants it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/text.h"
#include "conf/conf.h"
#include "conf/opts.h"
#include "data/augment.h"
#include "data/ds.h"
#include "man/complete.h"
#include "model/op.h"
#include "model/zoo.h"
#include "optim/optim.h"
#include "optim/rate.h"
#include "plan/part.h"
#include "plan/plan.h"
#include "plan/sched.h"
#include "report/event.h"

/* "\&" keeps a leading dot or a two-letter word from being read as a request or macro. */
static void item(struct text *out, const char *macro, const char *name, const char *help)
{
    text_add(out, ".It %s %s\n\\&%s\n", macro, name, help);
}

static void actions(struct text *out)
{
    for (int i = 0; i < ACT_COUNT; i++) item(out, "Sy", act_info[i].text, act_info[i].help);
}

static void schedules(struct text *out)
{
    for (int i = 0; sched_list[i]; i++) item(out, "Sy", sched_list[i]->name, sched_list[i]->text);
}

static void partitions(struct text *out)
{
    for (int i = 0; part_list[i]; i++) item(out, "Sy", part_list[i]->name, part_list[i]->text);
}

static void sources(struct text *out)
{
    for (int i = 0; ds_list[i]; i++) item(out, "Sy", ds_list[i]->name, ds_list[i]->text);
}

static void optimizers(struct text *out)
{
    for (int i = 0; optim_list[i]; i++) {
        const char *before = ".\nTakes";
        text_add(out, ".It Sy %s\n%s", optim_list[i]->name, optim_list[i]->text);
        for (int k = 0; k < MAX_HYPER; k++) {
            if (!optim_list[i]->key[k]) continue;
            text_add(out, "%s\n.Cm %s", before, optim_list[i]->key[k]);
            before = " ,";
        }
        text_add(out, " .\n");
        for (int k = 0; k < MAX_STATE && optim_list[i]->buffer[k]; k++)
            text_add(out, "%s%s", k ? ", " : "State of a weight: ", optim_list[i]->buffer[k]);
        text_add(out, optim_list[i]->buffer[0] ? ".\n" : "");
    }
}

static void rates(struct text *out)
{
    for (int i = 0; rate_list[i]; i++) item(out, "Sy", rate_list[i]->name, rate_list[i]->text);
}

static void attribute(struct text *out, const struct attr_kind *a)
{
    static const char *const type[] = {"integer", "integers", "number", "yes or no", "integers", "word"};
    text_add(out, ".It Cm %s\n", a->name);
    if (a->type == A_BOOL) text_add(out, "%s; default %s.\n", type[a->type], a->def != 0 ? "yes" : "no");
    else if (a->type == A_WORD) text_add(out, "one of the words %s; default the first.\n", a->words);
    else if (a->like) text_add(out, "%s from %.10g to %.10g; default that of %s.\n", type[a->type], a->lo, a->hi,
                               a->like);
    else if (a->def < a->lo) text_add(out, "%s from %.10g to %.10g; must be given.\n", type[a->type], a->lo, a->hi);
    else text_add(out, "%s from %.10g to %.10g; default %.10g.\n", type[a->type], a->lo, a->hi, a->def);
    if (a->text) text_add(out, "\\&%s\n", a->text);
}

static void networks(struct text *out)
{
    char s[96];
    for (int f = 0; zoo_list[f]; f++)
        for (const struct zoo_kind *k = zoo_list[f]; k->name; k++) {
            struct shape in = {.n = k->input_n};
            memcpy(in.d, k->input, sizeof k->input);
            text_add(out, ".It Sy %s\n\\&%s.\nInput %s, %lld classes.\n", k->name, k->text, shape_text(&in, s),
                     (long long)k->classes);
        }
}

static void operators(struct text *out)
{
    for (int i = 0; op_list[i]; i++) {
        item(out, "Sy", op_list[i]->name, op_list[i]->text);
        const struct attr_kind *a = op_list[i]->attr;
        if (!a || !a->name) continue;
        text_add(out, ".Bl -tag -width padding -compact\n");
        for (; a->name; a++) attribute(out, a);
        text_add(out, ".El\n");
    }
}

static const struct { const char *name; void (*print)(struct text *out); } part[] = {
    {"@FLAGS@", opts_manual},     {"@OPTIONS@", conf_manual}, {"@ACTIONS@", actions},     {"@SCHEDULES@", schedules},
    {"@PARTITIONS@", partitions}, {"@SOURCES@", sources},     {"@OPERATORS@", operators},
    {"@OPTIMIZERS@", optimizers}, {"@RATES@", rates},           {"@AUGMENTATIONS@", augment_manual},
    {"@NETWORKS@", networks},     {"@EVENTS@", event_manual},
};

/* Requests stay whole; a folded line must not begin like one. */
static void fold(char *line)
{
    enum { WIDTH = 78 };
    char *end = *line == '.' ? NULL : strstr(line, ". ");
    while (end && !(end[2] >= 'A' && end[2] <= 'Z')) end = strstr(end + 1, ". ");
    if (end) {                                             /* mdoc: a new sentence begins a new line */
        end[1] = 0;
        fold(line);
        fold(end + 2);
        return;
    }
    while (*line != '.' && strlen(line) > WIDTH) {
        size_t n = WIDTH;
        while (n > 0 && line[n] != ' ') n--;
        if (n == 0) break;
        printf("%.*s\n%s", (int)n, line, line[n + 1] == '.' || line[n + 1] == '\'' ? "\\&" : "");
        line += n + 1;
    }
    printf("%s\n", line);
}

static void line_print(char *line)
{
    for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
        if (strcmp(line, part[i].name)) continue;
        struct text t = {0};
        part[i].print(&t);
        for (char *s = t.s, *end; s && *s; s = end) {
            end = s + strcspn(s, "\n");
            if (*end) *end++ = 0;
            fold(s);
        }
        text_free(&t);
        return;
    }
    printf("%s\n", line);
}

int main(int argc, char **argv)
{
    struct text in = {0};
    struct err e = {0};
    if (argc == 3 && !strcmp(argv[1], "completion")) {
        bool known = complete(argv[2], &in);
        fputs(known ? in.s : "", stdout);
        text_free(&in);
        return !known ? E_USAGE : fflush(stdout) || ferror(stdout) ? E_IO : 0;
    }
    if (argc == 2 && !strcmp(argv[1], "events")) {
        event_keys(&in);
        fputs(in.s, stdout);
        text_free(&in);
        return fflush(stdout) || ferror(stdout) ? E_IO : 0;
    }
    if (argc != 2) {
        fprintf(stderr, "gen: a template is needed, or: completion PROGRAM\n");
        return E_USAGE;
    }
    if (text_read_file(&in, argv[1], 1 << 20, &e)) {
        fprintf(stderr, "gen: %s\n", e.text);
        return e.code;
    }
    for (char *line = in.s, *end; line && *line; line = end) {
        end = line + strcspn(line, "\n");
        if (*end) *end++ = 0;
        line_print(line);
    }
    text_free(&in);
    return fflush(stdout) || ferror(stdout) ? E_IO : 0;
}
