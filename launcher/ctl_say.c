/* What mpstagectl prints. */
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/text.h"
#include "ctl_say.h"

int ctl_fail(int code, const char *fmt, ...)
{
    char line[1200], clean[2400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    fprintf(stderr, "mpstagectl: %s\n", text_printable(line, clean, sizeof clean));
    return code;
}

void ctl_said(const char *dir, const char *fmt, ...)
{
    char what[1000], line[1200];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    snprintf(line, sizeof line, "%s: %s", dir, what);
    /* scripts read whole lines */
    ctl_line_print(line, isatty(STDOUT_FILENO) ? ctl_columns() : INT_MAX);
}

int ctl_output_end(int code)
{
    struct err e = {0};
    if (!text_output_end(&e)) return code;
    ctl_fail(e.code, "%s", e.text);
    clearerr(stdout);
    return code ? code : E_IO;
}

void ctl_silence_report(bool *reported, const struct err *e)
{
    if (!*reported) ctl_fail(e->code, "%s; waiting for it", e->text);
    *reported = true;
}

int ctl_columns(void)
{
    const int LEAST = 20;
    int n = text_output_columns();
    return n > LEAST ? n : LEAST;
}

int ctl_line_print(const char *line, int columns)
{
    char clean[2400];
    const char *s = text_printable(line, clean, sizeof clean);
    int lines = 1;
    for (int space = columns - 1; text_columns(s, strlen(s)) > space; lines++, space = columns - 3) {
        size_t end = 0;
        for (int i = 0; i < space; i++) if (s[i] == ',' && s[i + 1] == ' ') end = (size_t)i + 1;
        if (!end) end = text_line(s, space);
        if (!s[end]) break;
        printf("%.*s\n  ", (int)end, s);
        s += end + 1;
    }
    puts(s);
    return lines;
}

void ctl_json_print(const json_t *o, bool one_line)
{
    json_dumpf(o, stdout, (one_line ? JSON_COMPACT : JSON_INDENT(2)) | JSON_ENSURE_ASCII);
    putchar('\n');
}

void ctl_add(char **at, const char *end, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(*at, (size_t)(end - *at), fmt, ap);
    va_end(ap);
    *at += n < end - *at ? n : end - *at - 1;
}

/* ---- status ------------------------------------------------------------------------------------------------------ */

const char *ctl_text_of(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "?";
}

long long ctl_integer_of(const json_t *o, const char *key)
{
    return (long long)json_integer_value(json_object_get(o, key));
}

double ctl_number_of(const json_t *o, const char *key) { return json_number_value(json_object_get(o, key)); }

int ctl_status_print(const json_t *o)
{
    char line[1000], *at = line, *end = line + sizeof line, left[24];
    ctl_add(&at, end, "%s: %s", ctl_text_of(o, "name"), ctl_text_of(o, "state"));
    if (json_object_get(o, "evaluation_samples"))
        ctl_add(&at, end, " (%lld of %lld samples)", ctl_integer_of(o, "evaluated_samples"),
                ctl_integer_of(o, "evaluation_samples"));
    ctl_add(&at, end, ", step %lld/%lld, epoch %lld", ctl_integer_of(o, "step"), ctl_integer_of(o, "steps"),
            ctl_integer_of(o, "epoch"));
    if (json_object_get(o, "epochs")) ctl_add(&at, end, "/%lld", ctl_integer_of(o, "epochs"));
    if (json_object_get(o, "scores")) ctl_add(&at, end, ", %s", ctl_text_of(o, "scores"));
    if (json_object_get(o, "idle_seconds"))
        ctl_add(&at, end, ", no %s has ended for %.0f s",
                json_object_get(o, "evaluation_samples") ? "batch" : "step", ctl_number_of(o, "idle_seconds"));
    else if (json_object_get(o, "samples_per_second")) {
        double rate = ctl_number_of(o, "samples_per_second");
        ctl_add(&at, end, rate < 1000 ? ", %.4g samples/s" : ", %.0f samples/s", rate);
    }
    if (json_object_get(o, "eta_seconds"))
        ctl_add(&at, end, ", %s left", text_duration((uint64_t)ctl_number_of(o, "eta_seconds"), left));
    if (json_object_get(o, "test_scores")) ctl_add(&at, end, ", %s", ctl_text_of(o, "test_scores"));
    if (json_object_get(o, "checkpoint_step"))
        ctl_add(&at, end, ", checkpoint of step %lld %.0f s ago", ctl_integer_of(o, "checkpoint_step"),
                ctl_number_of(o, "checkpoint_seconds"));
    ctl_add(&at, end, " (%lld ranks, pid %lld)", ctl_integer_of(o, "ranks"), ctl_integer_of(o, "pid"));
    return ctl_line_print(line, ctl_columns());
}

/* ---- accounts ---------------------------------------------------------------------------------------------------- */

const struct ctl_part ctl_parts[CTL_PARTS] = {
    {"forward", {"forward_seconds"}, 'F', 44}, {"in.grad", {"input_grad_seconds"}, 'B', 43},
    {"wt.grad", {"weight_grad_seconds"}, 'W', 42}, {"recomp.", {"recompute_seconds"}, 'R', 45},
    {"optim.", {"optimizer_seconds"}, 'O', 100}, {"transf.", {"transfer_seconds"}, 'T', 46},
    {"waiting", {"wait_upstream_seconds", "wait_downstream_seconds"}, '.', 0},
    {"load", {"load_seconds", "weights_wait_seconds"}, 'L', 47},
    {"other", {"other_seconds", "checkpoint_seconds"}, 'o', 47},
};

double ctl_part_seconds(const json_t *stage, int part)
{
    double sum = 0;
    for (int k = 0; k < 2 && ctl_parts[part].keys[k]; k++) sum += ctl_number_of(stage, ctl_parts[part].keys[k]);
    return sum;
}

const char *ctl_stage_name(const json_t *stage, char buf[24])
{
    long long n = ctl_integer_of(stage, "stage");
    if (json_object_get(stage, "replica")) snprintf(buf, 24, "%d:%d", (int)ctl_integer_of(stage, "replica"), (int)n);
    else snprintf(buf, 24, "%d", (int)n);
    return buf;
}

int ctl_stage_print(const json_t *stage, double seconds, int columns)
{
    char line[400], *at = line, *end = line + sizeof line, name[24];
    ctl_add(&at, end, "stage %s: ", ctl_stage_name(stage, name));
    for (int i = 0, n = 0; i < CTL_PARTS; i++) {
        double part = seconds > 0 ? ctl_part_seconds(stage, i) / seconds : 0;
        if (part >= 0.0005) ctl_add(&at, end, "%s%s %.1f %%", n++ ? ", " : "", ctl_parts[i].name, 100 * part);
    }
    return ctl_line_print(line, columns);
}
