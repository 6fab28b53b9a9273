/* mpstagectl report --html: a run as one page, from the files of its directory alone. The page is well-formed XML and
 * HTML, loads nothing and has no script. One thread. */
#ifndef LAUNCHER_PAGE_H
#define LAUNCHER_PAGE_H
#include "base/text.h"
#include "chart.h"
#include "history.h"

struct html_page {
    const char *dir;
    const struct history *h;
    const json_t *config;                                 /* of the last start; NULL: unknown */
    bool running;                                         /* a process holds the run directory */
    int id;                                               /* of the last picture */
    struct text *out;
};
/* Writes the whole page; *out may be partly written after an error. */
void page_write(struct html_page *p);

/* ---- sections, in page_run.c ---- */
void page_curves(struct html_page *p);
void page_account(struct html_page *p);
void page_plan(struct html_page *p);
void page_trace(struct html_page *p);
void page_layers(struct html_page *p);

/* ---- shared ---- */
/* The last event of a name; NULL: none. */
const json_t *page_event(const struct html_page *p, const char *name);
/* A value of the configuration; NULL: none. */
const json_t *page_config(const struct html_page *p, const char *section, const char *key);
/* A file of the run directory as JSON; NULL: there is none that can be read. */
json_t *page_json(const struct html_page *p, const char *name);
void page_none(struct html_page *p, const char *what);         /* says that something is not there */
#endif
