#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "base/mem.h"
#include "data/leftover.h"
#include "data/picture.h"

void leftover_add(struct leftover *l, enum leftover_why why, const char *fmt, ...)
{
    char name[4200];
    if (!l || l->n[why]++) return;
    va_list args;
    va_start(args, fmt);
    vsnprintf(name, sizeof name, fmt, args);
    va_end(args);
    l->first[why] = mem_strdup(name);
}

/* left: how many entries may still be examined. Snapshots of file systems may repeat all entries many times. */
static void folder_count(struct leftover *l, const char *path, int deep, int *left)
{
    enum { DEEP_MOST = 16 };
    DIR *dir = deep < DEEP_MOST ? opendir(path) : NULL;
    for (const struct dirent *d; dir && (d = readdir(dir)) != NULL;) {
        struct text name = {0};
        if (!strcmp(d->d_name, ".") || !strcmp(d->d_name, "..")) continue;
        if (--*left < 0) {
            l->more = true;
            break;
        }
        text_add(&name, "%s/%s", path, d->d_name);
        if (d->d_type == DT_DIR) folder_count(l, name.s, deep + 1, left);
        else if (picture_name(d->d_name, strlen(d->d_name))) leftover_add(l, LEFT_SYSTEM, "%s", name.s);
        text_free(&name);
    }
    if (dir) closedir(dir);
}

void leftover_folder(struct leftover *l, const char *path)
{
    int left = 10000;
    if (l) folder_count(l, path, 0, &left);
}

/* The text after the number: a noun, and predicates for one and for several. */
static const struct { const char *noun, *one, *several; } said[LEFT_REASONS] = {
    [LEFT_OTHER] = {"file", "is not used: its name does not end with " PICTURE_NAMES,
                    "are not used: their names do not end with " PICTURE_NAMES},
    [LEFT_OUTSIDE] = {"image", "is not used: it lies in no folder of a class",
                      "are not used: they lie in no folder of a class"},
    [LEFT_SYSTEM] = {"image", "is not used: it is hidden, or a system left it", "are not used: they are hidden, or a "
                     "system left them"},
    [LEFT_LABEL] = {"label", "is not used: there is no image of its name", "are not used: there are no images of their "
                    "names"},
    [LEFT_APART] = {"label", "lies apart from its image and belongs to it by its name, which other readers may not see",
                    "lie apart from their images and belong to them by their names, which other readers may not see"},
    [LEFT_LINE] = {"line", "is not used: it is a header or a comment", "are not used: they are a header or comments"},
    [LEFT_FORMAT] = {"name", "is not that of a JPEG or PNG file, and others cannot be read", "are not those of JPEG or "
                     "PNG files, and others cannot be read"},
    [LEFT_DOTS] = {"image", "is not used: its name has several dots, and a sample is KEY.jpg or the like",
                   "are not used: their names have several dots, and a sample is KEY.jpg or the like"},
};

void leftover_text(const struct leftover *l, const char *of, struct text *t)
{
    for (int i = 0; i < LEFT_REASONS; i++) {
        char name[600];
        const uint64_t n = l->n[i];
        if (!n) continue;
        text_add(t, "%s%s: %s%llu %s%s %s; the first: %s", t->n ? "\n" : "", of,
                 i == LEFT_SYSTEM && l->more ? "at least " : "", (unsigned long long)n, said[i].noun,
                 n == 1 ? "" : "s", n == 1 ? said[i].one : said[i].several,
                 text_printable(l->first[i], name, sizeof name));
    }
}

void leftover_free(struct leftover *l)
{
    for (int i = 0; i < LEFT_REASONS; i++) free(l->first[i]);
    *l = (struct leftover){0};
}

/* Names from Windows, macOS, Linux, Synology, QNAP, NetApp, AFP servers, Jupyter, Python and version control. A final *
 * matches any ending. Case is ignored, except in words, which may be classes. */
bool leftover_system(const char *name, size_t n)
{
    static const char *const words[] = {"RECYCLER", "RECYCLED"};
    static const char *const names[] = {
        "$RECYCLE.BIN", "System Volume Information", "found.0*", "Thumbs.db",
        "ehthumbs*", "desktop.ini", "__MACOSX", "._*", ".DS_Store", ".AppleDouble", ".AppleDB", ".AppleDesktop",
        ".Spotlight-V100", ".fseventsd", ".DocumentRevisions-V100", ".TemporaryItems", ".Trashes", "Icon\r",
        "Network Trash Folder", "Temporary Items", "LOST.DIR", "lost+found", ".Trash*", ".thumbnails", ".directory",
        ".nfs*",
        ".snapshot*", ".zfs", "~snapshot", "@eaDir", "@tmp", "@Recycle", "@Recently-Snapshot", "@Transcode",
        ".@__thumb", "@__thumb", "#recycle", "#snapshot", "@sharesnap", "__pycache__", ".ipynb_checkpoints", ".git",
        ".svn", ".hg", ".dvc", ".cache"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (n == strlen(words[i]) && !memcmp(name, words[i], n)) return true;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *s = names[i], *star = strchr(s, '*');
        const size_t m = star ? (size_t)(star - s) : strlen(s);
        if (star ? n >= m && !strncasecmp(name, s, m) : n == m && !strncasecmp(name, s, m)) return true;
    }
    return false;
}
