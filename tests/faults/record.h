/* What faults.c notes of calls that change files, and states.c reads: records one behind the other, in the order in
 * which the calls ended. */
#ifndef FAULTS_RECORD_H
#define FAULTS_RECORD_H
#include <stdint.h>

enum record_kind {
    REC_ROOT,                  /* the folder that is watched: ino */
    REC_CREATE,                /* a file `name` in folder dir, or without a name if dir is 0: ino */
    REC_MKDIR,                 /* a folder `name` in folder dir: ino */
    REC_WRITE,                 /* n bytes, which follow, at `at` of ino */
    REC_SIZE,                  /* ino has at least (grow) or exactly (set) `at` bytes */
    REC_SYNC,                  /* ino, a file or a folder, was synced */
    REC_LINK,                  /* ino has the name `name` in folder dir */
    REC_RENAME,                /* `name` in folder dir is now `to` in folder dir_to: ino */
    REC_UNLINK,                /* `name` is gone from folder dir */
    REC_MARK,                  /* the program said `name` */
    REC_KINDS
};
struct record {
    uint32_t kind, rank;
    uint64_t ino, dir, dir_to, at, n;      /* n: bytes behind the record */
    uint32_t grow, pad;
    char name[80], to[80];
};
#endif
