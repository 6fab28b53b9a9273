/* Output of mpstagectl, shared by its parts: messages, and lines that fit the terminal. One thread. */
#ifndef LAUNCHER_CTL_SAY_H
#define LAUNCHER_CTL_SAY_H
#include <jansson.h>
#include <stdbool.h>
#include "ctl_call.h"

/* Prints one line to standard error. Returns code. */
int ctl_fail(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void ctl_said(const char *dir, const char *fmt, ...) __attribute__((format(printf, 2, 3)));   /* "DIR: ..." */
/* Reports once if the output could not be written. code: the return value otherwise. */
int ctl_output_end(int code);
/* Prints why a command waits, once for each period without an answer. */
void ctl_silence_report(bool *reported, const struct err *e);
int ctl_columns(void);                                    /* columns of the output, at least enough for a few words */
/* Prints a line, folded after commas if there are any, otherwise between words. Leaves the last column free, because
 * some terminals wrap when it is written. Returns the number of printed lines. */
int ctl_line_print(const char *line, int columns);
void ctl_json_print(const json_t *o, bool one_line);
/* Appends to a line whose buffer ends at `end`. */
void ctl_add(char **at, const char *end, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* ---- fields of a status ---- */
const char *ctl_text_of(const json_t *o, const char *key);      /* "?": missing */
long long ctl_integer_of(const json_t *o, const char *key);
double ctl_number_of(const json_t *o, const char *key);
int ctl_status_print(const json_t *o);                    /* returns the number of printed lines */
/* The display of a stage's account: waiting is one number, whatever the stage waits for. Names have at most 7
 * characters, so that a line fits 80 columns. sgr: of the bar on a terminal. */
enum { CTL_PARTS = 9 };
struct ctl_part { const char *name, *keys[2]; char letter; int sgr; };
extern const struct ctl_part ctl_parts[CTL_PARTS];
double ctl_part_seconds(const json_t *stage, int part);
/* "1"; in the second of several pipelines "1:1". */
const char *ctl_stage_name(const json_t *stage, char buf[24]);
/* Prints a stage as a sentence, for outputs that are too narrow for a table. Returns the number of printed lines. */
int ctl_stage_print(const json_t *stage, double seconds, int columns);

/* ---- commands that print until the run ends; the exit status ---- */
extern const char ctl_ask_status[];
/* Requests and shows the status until the run ends or pause returns true. A run that does not answer may still be
 * running, so it does not count as ended. last: the status shown before, NULL at first. */
struct ctl_show {
    void (*show)(struct ctl_show *s, const json_t *last, const json_t *o);
    bool (*pause)(struct ctl_show *s);                    /* waits for s->seconds; true: stop */
    double seconds;
    bool json;
    int lines;                                            /* lines on the terminal, to be rewritten */
};
/* Shows a run until it ends or s->pause returns true, and prints how it ended. Returns 0; 69 if the run was killed or
 * does not exist; 70, 74, 77 as from call_ask and ctl_output_end. */
int ctl_follow(struct call *c, struct ctl_show *s);
/* On a terminal moves back to the first of the lines. False: elsewhere, if the run has not changed since. */
bool ctl_show_again(struct ctl_show *s, const json_t *last, const json_t *o);
int ctl_watch(struct call *c, double seconds, bool json);
int ctl_top(struct call *c, double seconds, bool json);
/* ---- files ---- */
int ctl_why(const char *dir, bool json);                  /* 0: a restart may help; otherwise the status; 66: none */
/* html: NULL, or the file of the page, - for standard output. */
int ctl_report(const char *dir, bool json, const char *html);
int ctl_list(const char *dir, bool json);
int ctl_verify(const char *dir, bool json);
#endif
