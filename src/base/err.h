/* Errors as values. Any code may use this, in any thread. An error belongs to the code that holds it.
 *
 * The function that knows the cause writes the text (err_set). Its callers pass the -1 on and may prepend where it
 * happened (err_where). Only the daemon prints. The code is the exit status of the program (mpstaged(8), EXIT STATUS).
 *
 * This folder: errors, memory, text, input and output files, the clock and all deadlines, random numbers, name tables,
 * the launcher's environment variables. Nothing here knows of networks or ranks. See docs/design/conf.md. */
#ifndef BASE_ERR_H
#define BASE_ERR_H

enum err_code {
    E_OK = 0,
    E_DIFFERS = 1,    /* two runs differ: no failure (mpstaged --compare) */
    E_USAGE = 64,     /* bad command line */
    E_DATA = 65,      /* bad data, weight or graph file */
    E_NOINPUT = 66,   /* missing input file */
    E_DEVICE = 69,    /* device or peer lost, library failed */
    E_INTERNAL = 70,  /* our own bug, or out of memory */
    E_OS = 71,        /* a limit of the system is too low: open files, threads */
    E_CANTCREAT = 73, /* cannot create output */
    E_IO = 74,        /* reading or writing failed */
    E_STOPPED = 75,   /* stopped before the end, or in use: try again */
    E_PERM = 77,      /* not permitted */
    E_CONF = 78,      /* bad configuration */
    E_NONFINITE = 79, /* loss or gradient not finite */
    E_CORRUPT = 80,   /* two computations of the same values differ */
    E_HANG = 81       /* a rank is not responding */
};

struct err {
    int code;         /* 0: no error */
    char text[1000];
};

/* Sets code and text unless an error is already set: the first one wins. A text is one line: control characters become
 * '?'. Always returns -1, so callers can write: return err_set(e, E_CONF, "..."). e may be NULL. */
int err_set(struct err *e, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Prepends "fmt: " to the text of a set error. Returns -1 always. */
int err_where(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
