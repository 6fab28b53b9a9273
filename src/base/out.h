/* Output files: src/ and launcher/ make files only through this interface (tests/check-layers).
 *
 * A file is reached through its folder's descriptor, so it lands in the folder that was checked, even after a rename. A
 * name that belongs to a symbolic link, FIFO, device, socket or folder is refused, never followed and never replaced. A
 * file is written without a name (O_TMPFILE; with a random name and O_EXCL where a nameless file cannot get a name
 * later). It gets its name when all of it is on disk: if the process ends before that, the old file stays unchanged.
 *
 * Errors: 73 if something cannot be created, 74 if writing fails, 75 if stopped; texts begin with the path. Any thread,
 * but one thread at a time for an object. */
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

/* ---- a place: an open folder, and a name in it ---- */
/* name: the last component of path. named: files have a name from the beginning, because a nameless file could get none
 * here. over_folder: a folder may have the name; the caller replaces it. */
struct out_place { int dir; char *path; const char *name; bool named, over_folder; };
#define OUT_NOWHERE {.dir = -1}
/* Opens the folder of `path` and checks what has its name. Makes a trial file and takes it through all steps of a
 * commit, except the final name. 73 if the name is taken by anything but a regular file, or the trial fails. */
int out_place(const char *path, struct out_place *p, struct err *e);
int out_place_over(const char *path, struct out_place *p, struct err *e);   /* the same with over_folder */
/* The file `name` of an open folder, whose descriptor is duplicated. `shown`: the folder's name in texts. The trial
 * syncs nothing, so it is cheap enough for each checkpoint. */
int out_place_in(int dir, const char *shown, const char *name, struct out_place *p, struct err *e);
/* Fails (73) if the file or the folder cannot be synced. Call it once, before long work. */
int out_sync_try(const struct out_place *p, struct err *e);
/* fsync of a folder, unless its file system has nothing to sync. -1: see errno. */
int out_sync(int fd);
/* Checks again what has the name. st: NULL, or gets the file's status; st_nlink is 0 if there is none. 73. */
int out_stat(const struct out_place *p, struct stat *st, struct err *e);
void out_place_free(struct out_place *p);
/* 73 if the file `name` of a folder could not be replaced, by a rename or after its removal: a file system is mounted
 * on it, it or the folder is immutable or append-only, or a sticky folder reserves it for its owner. `path`: its name
 * in texts. */
int out_replaceable(int dir, const char *path, const char *name, struct err *e);
bool out_is_same(const struct out_place *a, const struct out_place *b);   /* both are the same name in one folder */

/* ---- a file that is written as a whole ---- */
struct out {
    const struct out_place *at;                            /* borrowed */
    const atomic_int *stop;                                /* NULL, or a word that ends writing (75) when set */
    int fd;
    char aside[40];                                        /* the file's random name; "": none */
};
/* Begins a file. out_commit checks whether the name is still free or a regular file's. */
int out_begin(struct out *o, const struct out_place *at, const atomic_int *stop, struct err *e);
/* A file to write and read that never gets its name: out_drop, or the end of the process, removes it. */
int out_scratch(struct out *o, const struct out_place *at, struct err *e);
int out_write(struct out *o, const void *p, size_t n, struct err *e);
/* Reserves disk space, so that a full disk is reported (74) before anything is written. Reserves nothing on a file
 * system that cannot do it. */
int out_reserve(struct out *o, uint64_t bytes, struct err *e);
/* Syncs the file and gives it its name, replacing a regular file. With `fresh` it fails (73) if the name exists, and
 * leaves nothing. A complete file that cannot get its name stays under another one, which the text names. Ends the
 * object in any case. */
int out_commit(struct out *o, bool fresh, struct err *e);
void out_drop(struct out *o);                              /* removes an uncommitted file */
/* Gives a file of one folder a second name in another, where both are on one file system. -1: see errno. */
int out_link(int from, const char *name, int to, const char *other);
/* Writes a whole file. */
int out_file(const struct out_place *at, const struct text *t, bool fresh, struct err *e);
int out_file_named(const char *path, const struct text *t, bool fresh, struct err *e);
/* Removes from a folder only the files with random names that killed processes left. Call it only if no other process
 * writes there. */
void out_sweep(int dir);

/* ---- a folder of files that exists as a whole or not at all ---- */
/* Until commit its name ends in ".tmp". One process begins it. Other processes of the run may join it and write their
 * own files. The first one commits it when all have closed theirs. out_place_in makes files in `fd`. */
struct out_folder { int dir, fd; char *shown, name[64], aside[72]; };
/* Makes the folder, and removes what an earlier attempt left. 73. Call out_folder_close or out_folder_drop after any
 * result. */
int out_folder_begin(struct out_folder *f, int dir, const char *shown, const char *name, struct err *e);
int out_folder_join(struct out_folder *f, int dir, const char *shown, const char *name, struct err *e);
/* Syncs the folder, gives it its name and syncs the parent folder. Nothing may have that name: remove it before. If the
 * folder cannot get its name, it keeps the temporary one, which the text names. Closes it in any case. 73, 74. */
int out_folder_commit(struct out_folder *f, struct err *e);
/* Makes a trial folder with a file in it, and removes both. 73; 74 if the disk fails (EIO). A full disk is no error: it
 * may have space when it counts. */
int out_folder_try(int dir, const char *shown, struct err *e);
void out_folder_drop(struct out_folder *f);               /* removes the folder with its regular files, and closes it */
void out_folder_close(struct out_folder *f);               /* leaves the folder and its files unchanged */
/* Removes a committed folder. It loses its name first, so a part never exists under the name, even after a power cut. A
 * folder that does not exist is no error. 73, 74. */
int out_folder_remove(int dir, const char *shown, const char *name, struct err *e);
/* Appends OUT_FOLDER_ASIDE to the name of whatever has the name. 1: done, 0: nothing has it. 73: the new name is taken,
 * too. */
#define OUT_FOLDER_ASIDE ".old"
int out_folder_aside(int dir, const char *shown, const char *name, struct err *e);
/* Removes temporary folders with this prefix that killed processes left. Call it only if no other process writes
 * there. */
void out_folder_sweep(int dir, const char *prefix);

/* ---- a file that grows by records, each of which is written as a whole or not at all ---- */
struct out_records { int fd; char *path; uint64_t size, reserved; };
/* Makes a new file; 73 if it exists. Another program may get the descriptor, and read from it. */
int out_records_open(struct out_records *r, int dir, const char *shown, const char *name, struct err *e);
/* The same, or continues an existing regular file after its last whole line. *had: the file existed. */
int out_records_append(struct out_records *r, int dir, const char *shown, const char *name, bool *had, struct err *e);
/* Appends a record. Space is reserved for `last` records, so that a full disk can still record the end of a run. */
int out_records_add(struct out_records *r, const void *p, size_t n, bool last, struct err *e);
/* Removes the last lines while `drop` says so, up to the first line that it keeps. first: the line begins the file. Of
 * a line of more than 4 KiB `drop` sees the end. 74. */
typedef bool out_drop_fn(void *ctx, const char *line, bool first);
int out_records_cut(struct out_records *r, out_drop_fn *drop, void *ctx, struct err *e);
/* Continues in the file that has the name now, because a user renamed the old one; makes it if needed. 73: continues in
 * the old file. */
int out_records_reopen(struct out_records *r, int dir, const char *name, struct err *e);
void out_records_close(struct out_records *r);             /* also accepts {-1}, a file that was never opened */

/* ---- a stream shared with other readers and writers: standard error ---- */
struct out_stream { int fd, own; bool checked, socket; dev_t dev; ino_t ino; };   /* initialise with {.fd = FD} */
/* Writes as much as the reader accepts without waiting, and returns that number. -1: no reader, or the device failed.
 * Writes to regular files in full. */
ssize_t out_stream_write(struct out_stream *s, const void *p, size_t n);
void out_stream_close(struct out_stream *s);               /* leaves `fd` open, which the caller owns */

/* ---- a lock: a file that names the process that holds it ---- */
enum { OUT_LOCK_NONE = -2, OUT_LOCK_BUSY = -3 };
/* Locks a file and returns its descriptor. -1: 73, also if it is not a lock file of ours. NONE: it does not exist, and
 * `make` is not set. BUSY: another process holds it, *owner or 0 if unknown. NONE and BUSY set no error. Where the file
 * system has no locks, the owner named in the file counts. An owner on another host is an error, because it cannot be
 * checked. */
int out_lock(int dir, const char *shown, const char *name, bool make, long *owner, struct err *e);
/* Writes this process's number into the lock file. Without locks in the file system, out_lock already wrote it, with
 * more. 74. */
int out_lock_sign(int fd, const char *shown, const char *name, struct err *e);
bool out_lock_is_held(int fd);                            /* whether another process holds the lock of this open file */

/* Names the type of an irregular file: "a symbolic link", "a FIFO". */
const char *out_kind(mode_t mode);
#endif
