/* Output files: all that this program makes is opened here and nowhere else in src/ and launcher/ (tests/check-layers).
 *
 * A file is reached through the descriptor of its folder, so a folder that gets another name meanwhile is still the
 * one that was looked at. What is there under a file's name and is no regular file (a symbolic link, FIFO, device,
 * socket or folder) is refused, never followed and never replaced. Whole files come by a file without a name
 * (O_TMPFILE; where the file system has none, by one with a random name, made with O_EXCL) and get their name when
 * all of it is on disk: a process that ends before leaves the old file as it was.
 *
 * Errors: 73 where something cannot be created, 74 where writing fails, 75 told to stop; texts begin with the path. Any
 * thread; an object is one thread's at a time. */
#ifndef BASE_OUT_H
#define BASE_OUT_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include "base/err.h"
#include "base/text.h"

/* ---- a place: a folder, held open, and a name in it ---- */
struct out_place { int dir; char *path; const char *name; };   /* name: within path */
#define OUT_NOWHERE {-1, NULL, NULL}
/* Opens the folder of `path` and looks at what is there under its name. 73 if no regular file is or could be made. */
int out_place(const char *path, struct out_place *p, struct err *e);
/* The file `name` of a folder that is open; its descriptor is duplicated. `shown`: how that folder is called in
 * texts. */
int out_place_in(int dir, const char *shown, const char *name, struct out_place *p, struct err *e);
/* Looks again at what is there. st, if not NULL: of the file; st_nlink is 0 where there is none. 73. */
int out_look(const struct out_place *p, struct stat *st, struct err *e);
void out_place_free(struct out_place *p);
/* Could the file `name` of a folder take the place of what is there, by a rename or after it is removed? Not where a
 * file system is mounted on it, where it or the folder is immutable or append-only, or where a sticky folder keeps it
 * for its owner. `path`: how it is called in texts. 73. */
int out_replaceable(int dir, const char *path, const char *name, struct err *e);
bool out_is_same(const struct out_place *a, const struct out_place *b);   /* one name in one folder */

/* ---- a file that is written whole ---- */
struct out {
    const struct out_place *at;                            /* borrowed */
    const atomic_int *stop;                                /* NULL, or a word: writing ends with 75 when it is set */
    int fd;
    char aside[40];                                        /* its random name; "": it has none */
};
/* What may have come under its name since the place was made is looked at in the end: what is computed is written
 * first. */
int out_begin(struct out *o, const struct out_place *at, const atomic_int *stop, struct err *e);
int out_write(struct out *o, const void *p, size_t n, struct err *e);
/* Synced, then named: takes the place of a regular file, or with `fresh` fails (73) if there is any. Where it cannot
 * get its name, but is complete, it stays under another one, which the text says. Ends the object in any case. */
int out_commit(struct out *o, bool fresh, struct err *e);
void out_drop(struct out *o);                              /* nothing is left of it; for one that was not committed */
/* All of it in one call. */
int out_file(const struct out_place *at, const struct text *t, bool fresh, struct err *e);
int out_file_named(const char *path, const struct text *t, bool fresh, struct err *e);
/* Removes from a folder what processes that were killed left of files with random names, and nothing else that begins
 * as these do. Only where nobody else writes. */
void out_sweep(int dir);

/* ---- a file that grows by records, each of which is there whole or not at all ---- */
struct out_records { int fd; char *path; uint64_t size, reserved; };
/* A file that is made now; one that is there already is refused. The descriptor may be given to another program, and be
 * read. */
int out_records_open(struct out_records *r, int dir, const char *shown, const char *name, struct err *e);
/* Room for `last` records is kept ahead, so that how a run ended finds room on a full disk. */
int out_records_add(struct out_records *r, const void *p, size_t n, bool last, struct err *e);
void out_records_close(struct out_records *r);             /* also one that was never opened, if it is {-1} */

/* ---- a lock: a file that names the process that has it ---- */
enum { OUT_LOCK_NONE = -2, OUT_LOCK_BUSY = -3 };
/* The descriptor; -1: 73, also for what is no lock of ours; NONE: there is no such file, and `make` was not asked for;
 * BUSY: another process has it, *owner as far as it is known, otherwise 0. The latter two set no error. */
int out_lock(int dir, const char *shown, const char *name, bool make, long *owner, struct err *e);
/* Writes this process's number into it. 74. */
int out_lock_sign(int fd, const char *shown, const char *name, struct err *e);

/* What a file that is not a regular one is: "a symbolic link", "a FIFO"... */
const char *out_kind(mode_t mode);
#endif
