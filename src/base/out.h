/* Output files: src/ and launcher/ make files here and nowhere else (tests/check-layers).
 *
 * A file is reached through the descriptor of its folder, so it lands in the folder that was checked, even if that is
 * renamed meanwhile. If a file's name belongs to something other than a regular file (a symbolic link, FIFO, device,
 * socket or folder), it is refused, never followed and never replaced. A file is written without a name (O_TMPFILE;
 * where it could get no name later, under a random name with O_EXCL) and gets its name when all of it is on disk:
 * if the process ends before, the old file stays as it was.
 *
 * Errors: 73 if something cannot be created, 74 if writing fails, 75 if told to stop; texts begin with the path. Any
 * thread; one thread at a time for an object. */
#ifndef BASE_OUT_H
#define BASE_OUT_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>
#include "base/err.h"
#include "base/text.h"

/* ---- a place: a folder, held open, and a name in it ---- */
/* name: the end of path. named: a file without a name would get none here, so files have one from the beginning.
 * over_folder: a folder may have the name, which the caller replaces. */
struct out_place { int dir; char *path; const char *name; bool named, over_folder; };
#define OUT_NOWHERE {.dir = -1}
/* Opens the folder of `path` and checks what has its name. 73 if that is no regular file, or none could be made: one is
 * made for a trial, and goes the whole way of a file to its name. */
int out_place(const char *path, struct out_place *p, struct err *e);
int out_place_over(const char *path, struct out_place *p, struct err *e);   /* the same with over_folder */
/* The file `name` of an open folder, whose descriptor is duplicated. `shown`: the folder's name in texts. The trial
 * syncs nothing: it may be made for each checkpoint. */
int out_place_in(int dir, const char *shown, const char *name, struct out_place *p, struct err *e);
/* Whether a file, and the folder, can be synced: 73. Once, at the start of what takes long. */
int out_sync_try(const struct out_place *p, struct err *e);
/* fsync, of a folder, unless its file system has nothing to sync. -1: errno. */
int out_sync(int fd);
/* Checks again what has the name. st, if not NULL: of the file; st_nlink is 0 if there is none. 73. */
int out_look(const struct out_place *p, struct stat *st, struct err *e);
void out_place_free(struct out_place *p);
/* 73 if the file `name` of a folder could not replace what has that name, by a rename or after its removal: a file
 * system is mounted on it, it or the folder is immutable or append-only, or a sticky folder keeps it for its owner.
 * `path`: its name in texts. */
int out_replaceable(int dir, const char *path, const char *name, struct err *e);
bool out_is_same(const struct out_place *a, const struct out_place *b);   /* whether both are one name in one folder */

/* ---- a file that is written whole ---- */
struct out {
    const struct out_place *at;                            /* borrowed */
    const atomic_int *stop;                                /* NULL, or a word that ends writing (75) when set */
    int fd;
    char aside[40];                                        /* its random name; "": none */
};
/* Begins to write a file. Whether its name still is free or a regular file's is checked at the end. */
int out_begin(struct out *o, const struct out_place *at, const atomic_int *stop, struct err *e);
int out_write(struct out *o, const void *p, size_t n, struct err *e);
/* Keeps room for so many bytes, so that a disk that is too small is told before anything is written: 74. A file system
 * that cannot do that keeps none. */
int out_reserve(struct out *o, uint64_t bytes, struct err *e);
/* Syncs the file and gives it its name, replacing a regular file; with `fresh` it fails (73) if there is one, and
 * leaves nothing. A complete file that cannot get its name stays under another one, which the text says. Ends the
 * object in any case. */
int out_commit(struct out *o, bool fresh, struct err *e);
void out_drop(struct out *o);                              /* removes a file that was not committed */
/* Writes a whole file. */
int out_file(const struct out_place *at, const struct text *t, bool fresh, struct err *e);
int out_file_named(const char *path, const struct text *t, bool fresh, struct err *e);
/* Removes from a folder files with random names that killed processes left, and nothing else. Only if nobody else
 * writes there. */
void out_sweep(int dir);

/* ---- a folder of files that is there whole or not at all ---- */
/* Until it is committed its name ends in ".tmp". One process begins it; others of the run may join it and write files
 * of their own; the first commits it when all of them have closed theirs. Files are made in `fd` by out_place_in. */
struct out_folder { int dir, fd; char *shown, name[64], aside[72]; };
/* Makes it afresh: what an earlier attempt left goes. 73. out_folder_close or out_folder_drop after any result. */
int out_folder_begin(struct out_folder *f, int dir, const char *shown, const char *name, struct err *e);
int out_folder_join(struct out_folder *f, int dir, const char *shown, const char *name, struct err *e);
/* Syncs the folder, gives it its name and syncs the folder above it. Nothing may have that name: remove it before. A
 * folder that cannot get its name stays under the other one, which the text says. In any case it is closed. 73, 74. */
int out_folder_commit(struct out_folder *f, struct err *e);
/* Makes a folder with a file in it for a trial, and removes both. 73, unless it is only that the disk is full: it may
 * have room when it counts. */
int out_folder_try(int dir, const char *shown, struct err *e);
void out_folder_drop(struct out_folder *f);                /* removes it with its regular files, and closes it */
void out_folder_close(struct out_folder *f);               /* leaves it as it is */
/* Removes a committed folder, whose first loss is its name: it is never there in part, after a power cut either. None:
 * no error. 73, 74. */
int out_folder_remove(int dir, const char *shown, const char *name, struct err *e);
/* Gives what has the name another one, which ends in OUT_FOLDER_ASIDE. 1: done, 0: nothing is there. 73: that name is
 * taken, too. */
#define OUT_FOLDER_ASIDE ".old"
int out_folder_aside(int dir, const char *shown, const char *name, struct err *e);
/* Removes what killed processes left of folders whose names begin so. Only if nobody else writes there. */
void out_folder_sweep(int dir, const char *prefix);

/* ---- a file that grows by records, each of which is there whole or not at all ---- */
struct out_records { int fd; char *path; uint64_t size, reserved; };
/* Makes a new file; one that exists is refused. The descriptor may be given to another program, and be read. */
int out_records_open(struct out_records *r, int dir, const char *shown, const char *name, struct err *e);
/* The same, or goes on with a file that exists, a regular one, behind its last whole line; *had: does it? */
int out_records_append(struct out_records *r, int dir, const char *shown, const char *name, bool *had, struct err *e);
/* Adds a record. Space is kept for `last` records, so that the end of a run can be recorded on a full disk. */
int out_records_add(struct out_records *r, const void *p, size_t n, bool last, struct err *e);
/* Goes on in what has the name now, because somebody renamed the file; makes a new one if nothing has. 73: it goes on
 * in the old one. */
int out_records_reopen(struct out_records *r, int dir, const char *name, struct err *e);
void out_records_close(struct out_records *r);             /* also one that was never opened, if r is {-1} */

/* ---- a stream that others read, and write to: standard error ---- */
struct out_stream { int fd, own; bool looked, socket; dev_t dev; ino_t ino; };   /* begins as {.fd = FD} */
/* Writes as much as goes without waiting for the reader, and returns how much that is. -1: there is no reader, or the
 * device failed. Files are written whole. */
ssize_t out_stream_write(struct out_stream *s, const void *p, size_t n);
void out_stream_close(struct out_stream *s);               /* not `fd`, which is the caller's */

/* ---- a lock: a file that names the process that has it ---- */
enum { OUT_LOCK_NONE = -2, OUT_LOCK_BUSY = -3 };
/* Locks a file and returns its descriptor. -1: 73, also if it is no lock file of ours; NONE: there is none, and `make`
 * is not set; BUSY: another process has it, *owner or 0 if unknown. NONE and BUSY set no error. Where the file system
 * has no locks, what the file says of its owner counts; one on another host is refused, for nobody can ask it. */
int out_lock(int dir, const char *shown, const char *name, bool make, long *owner, struct err *e);
/* Writes this process's number into the lock file. Where there are no locks, it is there already, with more. 74. */
int out_lock_sign(int fd, const char *shown, const char *name, struct err *e);
bool out_lock_is_held(int fd);                             /* whether another process has the lock of this open file */

/* The kind of something that is no regular file: "a symbolic link", "a FIFO". */
const char *out_kind(mode_t mode);
#endif
