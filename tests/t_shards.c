/* Pictures in tar archives: headers in all forms, and false ones; which members belong together; labels; names of many
 * archives; the same pixels as from files. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "data/image_list.h"
#include "data/tar.h"
#include "data_rig.h"

static char pictures[PATH_MAX];

/* ---- writing ----------------------------------------------------------------------------------------------------- */

enum { BLOCK = 512, SIZE = 124, SUM = 148, TYPE = 156, MAGIC = 257, PREFIX = 345 };

static void sum_set(char *h)
{
    unsigned sum = 0;
    memset(h + SUM, ' ', 8);
    for (int i = 0; i < BLOCK; i++) sum += (uint8_t)h[i];
    snprintf(h + SUM, 8, "%06o", sum);
}

/* Adds a header alone; magic: "ustar" with its version, POSIX's or GNU's. */
static char *head(struct text *t, const char *magic, char type, const char *name, size_t n)
{
    char h[BLOCK] = {0};
    strncpy(h, name, 100);
    snprintf(h + SIZE, 12, "%011zo", n);
    h[TYPE] = type;
    memcpy(h + MAGIC, magic, 8);
    sum_set(h);
    text_add_bytes(t, h, BLOCK);
    return t->s + t->n - BLOCK;
}

#define POSIX "ustar\0" "00"
#define GNU "ustar  \0"
static void pad(struct text *t) { while (t->n % BLOCK) text_add_bytes(t, "", 1); }
static void member(struct text *t, const char *magic, char type, const char *name, const char *s, size_t n)
{
    head(t, magic, type, name, n);
    text_add_bytes(t, s, n);
    pad(t);
}
static void file(struct text *t, const char *name, const char *s) { member(t, POSIX, '0', name, s, strlen(s)); }

static void end(struct text *t, const char *path)
{
    static const char zeros[2 * BLOCK];
    text_add_bytes(t, zeros, sizeof zeros);
    put(path, t->s, t->n);
    text_free(t);
}

/* ---- members ----------------------------------------------------------------------------------------------------- */

static int listed(void *ctx, const struct tar_member *m, struct err *e)
{
    char s[100] = "";
    ck_assert(m->size < sizeof s && pread(m->fd, s, (size_t)m->size, (off_t)m->at) == (ssize_t)m->size);
    text_add(ctx, "%s%s%s\n", m->name, m->link ? "@" : "=", s);
    return strstr(m->name, "enough") ? err_set(e, E_DATA, "enough") : 0;
}

/* What the archive holds, or the error. */
static void holds(const char *path, const char *wanted)
{
    struct text out = {0};
    struct err e = {0};
    text_add(&out, "%s", "");
    int bad = tar_read(path, listed, &out, &e);
    ck_assert_msg(!strcmp(bad ? e.text : out.s, wanted), "%s:\n%s\nwanted:\n%s", path, bad ? e.text : out.s, wanted);
    text_free(&out);
}

static void long_name(char *s, int n)
{
    memset(s, 'n', (size_t)n);
    for (int i = 9; i < n; i += 10) s[i] = '/';
    s[n] = 0;
}

START_TEST(members)
{
    struct text t = {0}, wanted = {0};
    char name[206], exact[101];
    file(&t, "a.txt", "first");
    file(&t, "./b/c", "");
    member(&t, POSIX, '5', "b/", "", 0);
    memcpy(head(&t, POSIX, '5', "folder", 99) + SIZE, "00000000143", 11);   /* not there: a folder has no bytes */
    member(&t, POSIX, '2', "link", "", 0);
    member(&t, GNU, 0, "old", "x", 1);
    member(&t, GNU, 0, "oldfolder/", "", 0);
    char *h = head(&t, POSIX, '0', "tail", 2);
    strcpy(h + PREFIX, "some/prefix");
    sum_set(h);
    text_add_bytes(&t, "y\n", 2);
    pad(&t);
    memset(exact, 'e', 100);
    exact[100] = 0;
    file(&t, exact, "100");
    long_name(name, 205);
    member(&t, GNU, 'L', "././@LongLink", name, 206);
    member(&t, GNU, '0', name, "gnu", 3);
    member(&t, POSIX, 'g', "pax_global_header", "19 comment=abcdefg\n", 19);
    member(&t, POSIX, 'x', "PaxHeaders/p", "16 path=p/q.jpg\n9 size=3\n", 25);
    memcpy(head(&t, POSIX, '0', "short", 0) + SIZE, "00000000000", 11);
    text_add_bytes(&t, "pax", 3);
    pad(&t);
    h = head(&t, GNU, '0', "binary", 0);
    memcpy(h + SIZE, "\x80\0\0\0\0\0\0\0\0\0\0\4", 12);
    sum_set(h);
    text_add_bytes(&t, "base", 4);
    pad(&t);
    file(&t, "last", "z");
    end(&t, "all.tar");
    text_add(&wanted, "a.txt=first\nb/c=\nlink@\nold=x\nsome/prefix/tail=y\n\n%s=100\n%s=gnu\np/q.jpg=pax\n"
             "binary=base\nlast=z\n", exact, name);
    holds("all.tar", wanted.s);
    text_free(&wanted);
    file(&t, "a", "1");
    file(&t, "enough", "2");
    file(&t, "c", "3");
    end(&t, "enough.tar");
    holds("enough.tar", "enough");
    file(&t, "a", "1");
    put("bare.tar", t.s, BLOCK + 1);                     /* without what fills the block, and without an end */
    text_free(&t);
    holds("bare.tar", "a=1\n");
}
END_TEST

START_TEST(archives_that_lie)
{
    struct text t = {0};
    holds("none.tar", "none.tar: No such file or directory");
    put("t.tar", "", 0);
    holds("t.tar", "t.tar: the file is empty");
    put("t.tar", "\x1f\x8b\b\0", 4);
    holds("t.tar", "t.tar: this is a gzip file, not a tar archive: gunzip it first");
    char zipped[BLOCK] = "\x1f\x8b\b";
    put("t.tar", zipped, sizeof zipped);
    holds("t.tar", "t.tar: this is a gzip file, not a tar archive: gunzip it first");
    file(&t, "a", "1");
    t.s[3] = 'x';
    end(&t, "t.tar");
    holds("t.tar", "t.tar: offset 0: not a header of a tar archive: its checksum is wrong");
    head(&t, POSIX, '0', "a", 77777);
    end(&t, "t.tar");
    holds("t.tar", "t.tar: offset 0: a member of 77777 bytes, but the file ends after 1024");
    char *h = head(&t, GNU, '0', "a", 0);
    memset(h + SIZE, 0xff, 12);
    sum_set(h);
    end(&t, "t.tar");
    holds("t.tar", "t.tar: offset 124: an invalid size");
    h = head(&t, GNU, '0', "a", 0);
    memcpy(h + SIZE, "\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff", 12);
    sum_set(h);
    end(&t, "t.tar");
    holds("t.tar", "t.tar: offset 0: a member of 9223372036854775807 bytes, but the file ends after 1024");
    h = head(&t, GNU, '0', "a", 0);
    memcpy(h + SIZE, "0000000009\0", 12);
    sum_set(h);
    end(&t, "t.tar");
    holds("t.tar", "t.tar: offset 124: an invalid size");
    member(&t, GNU, 'S', "sparse", "", 0);
    end(&t, "t.tar");
    holds("t.tar", "t.tar: offset 0: a member that is sparse or continues elsewhere");
    static const char *const pax[] = {"5 a=b", "99 a=b\n", "7 abcd\n", " a=b\n", "6 a=b\nx", "0 a=b\n", "-6 a=b\n",
                                      "99999999999999999999999 a=b\n"};
    for (size_t i = 0; i < sizeof pax / sizeof *pax; i++) {
        member(&t, POSIX, 'x', "h", pax[i], strlen(pax[i]));
        end(&t, "t.tar");
        holds("t.tar", "t.tar: offset 512: an invalid pax header");
    }
    member(&t, POSIX, 'x', "h", "12 size=1x3\n", 12);
    end(&t, "t.tar");
    holds("t.tar", "t.tar: offset 512: an invalid size");
    member(&t, POSIX, 'x', "h", "22 GNU.sparse.major=1\n", 22);
    end(&t, "t.tar");
    holds("t.tar", "t.tar: offset 512: a sparse file cannot be read in place");
    static const char zeros[10240 - 2 * BLOCK], noise[BLOCK] = "x";
    struct text two = {0};
    file(&t, "a", "1");
    text_add_bytes(&two, t.s, t.n);
    text_add_bytes(&two, zeros, sizeof zeros);
    text_add_bytes(&two, t.s, t.n);
    text_add_bytes(&t, zeros, sizeof zeros);
    text_add_bytes(&t, noise, sizeof noise);
    end(&two, "t.tar");
    holds("t.tar", "t.tar: offset 10240: another archive begins after the end of the first; tar --concatenate joins "
                   "them");
    end(&t, "t.tar");
    holds("t.tar", "a=1\n");
}
END_TEST

/* ---- pictures ---------------------------------------------------------------------------------------------------- */

/* "PATH CLASS" of each picture, or the error */
static void lists(const char *path, bool labels, const char *classes_of, const char *wanted)
{
    struct image_list l;
    struct err e = {0};
    struct text out = {0}, name = {0};
    text_add(&out, "%s", "");
    int bad = image_list_read(path, labels, classes_of, &l, &e);
    for (int i = 0; i < l.image.n && !bad; i++) {
        image_list_path(&l, (uint64_t)i, &name);
        text_add(&out, "%s %d\n", name.s, (int)l.image.v[i].class);
    }
    ck_assert_msg(!strcmp(bad ? e.text : out.s, wanted), "%s:\n%s\nwanted:\n%s", path, bad ? e.text : out.s, wanted);
    text_free(&out);
    text_free(&name);
    image_list_free(&l);
}

START_TEST(samples)
{
    struct text t = {0};
    file(&t, "a.cls", "2\n");
    file(&t, "a.jpg", "x");
    file(&t, "a.json", "{}");
    file(&t, "d.1/b.JPEG", "x");                          /* a dot in a folder's name is no end of a key */
    file(&t, "d.1/b.cls", " 0 ");
    file(&t, "d.1/.b.jpg", "x");
    file(&t, "c.seg.png", "x");                           /* not a picture but something of c */
    file(&t, "c.png", "x");
    file(&t, "c.cls", "1");
    file(&t, "README", "x");
    end(&t, "n-000.tar");
    lists("n-000.tar", true, NULL, "n-000.tar: a.jpg 2\nn-000.tar: d.1/b.JPEG 0\nn-000.tar: c.png 1\n");
    lists("n-000.tar", false, NULL, "n-000.tar: a.jpg -1\nn-000.tar: d.1/b.JPEG -1\nn-000.tar: c.png -1\n");
    file(&t, "x.jpg", "x");
    file(&t, "x.cls", "7");
    end(&t, "n-001.tar");
    lists("n-00{0..1}.tar", true, NULL,
          "n-000.tar: a.jpg 2\nn-000.tar: d.1/b.JPEG 0\nn-000.tar: c.png 1\nn-001.tar: x.jpg 7\n");
    lists("n-{001..000}.tar", false, NULL,
          "n-001.tar: x.jpg -1\nn-000.tar: a.jpg -1\nn-000.tar: d.1/b.JPEG -1\nn-000.tar: c.png -1\n");
    lists("n-*1.tar", true, NULL, "n-001.tar: x.jpg 7\n");
    lists("{n-001,n-*1}.tar", true, NULL, "n-001.tar: x.jpg 7\nn-001.tar: x.jpg 7\n");
    ck_assert(!mkdir("in", 0777));
    put_text("in/list", "\n../n-001.tar\n\n");
    lists("in/list", true, NULL, "in/../n-001.tar: x.jpg 7\n");
    put_text("in/list", "../n-001.tar\nx.jpg 7\n");
    lists("in/list", true, NULL, "in/list:2: not an archive, NAME.tar, unlike the first line");
    lists("n-{0..}.tar", true, NULL, "n-{0..}.tar: braces hold words, {a,b}, or numbers, {000..127}");
    lists("n-{-1..3}.tar", true, NULL, "n-{-1..3}.tar: braces hold words, {a,b}, or numbers, {000..127}");
    lists("n-{0..1.tar", true, NULL, "n-{0..1.tar: a brace is not closed");
    lists("n-{a,{b}.tar", true, NULL, "n-{a,{b}.tar: a brace is not closed");
    lists("n-{0..999999999}.tar", true, NULL, "n-{0..999999999}.tar: names more than 100000 archives");
    lists("m-*.tar", true, NULL, "m-*.tar: there is no such archive");
    lists("missing-{00..01}.tar", true, NULL, "missing-00.tar: No such file or directory");
}
END_TEST

START_TEST(labels)
{
    struct text t = {0};
    file(&t, "train/pear/a.jpg", "x");
    file(&t, "train/10/b.jpg", "x");
    file(&t, "train/apple/c.jpg", "x");
    end(&t, "f.tar");
    lists("f.tar", true, NULL, "f.tar: train/pear/a.jpg 2\nf.tar: train/10/b.jpg 0\nf.tar: train/apple/c.jpg 1\n");
    file(&t, "x.jpg", "x");
    file(&t, "x.cls", "pear");
    file(&t, "y.jpg", "x");
    file(&t, "y.cls", "7 dogs");
    end(&t, "w.tar");
    lists("w.tar", true, NULL, "w.tar: x.jpg 1\nw.tar: y.jpg 0\n");
    lists("w.tar", true, "f.tar", "w.tar: there is no class 7 dogs in f.tar");
    file(&t, "v/apple/x.png", "x");
    end(&t, "v.tar");
    lists("v.tar", true, "f.tar", "v.tar: v/apple/x.png 1\n");
    put_text("list", "z.jpg apple\n");
    lists("list", true, "f.tar", "z.jpg 1\n");
    /* as ImageFolder: the first folder below the one that has all of them, however deep the picture lies */
    file(&t, "./set/cat/young/a.jpg", "x");
    file(&t, "./set/cat/b.jpg", "x");
    end(&t, "deep-0.tar");
    file(&t, "set/dog/c.jpg", "x");
    file(&t, "set/cat/old/grey/d.jpg", "x");
    end(&t, "deep-1.tar");
    lists("deep-{0,1}.tar", true, NULL,
          "deep-0.tar: set/cat/young/a.jpg 0\ndeep-0.tar: set/cat/b.jpg 0\n"
          "deep-1.tar: set/dog/c.jpg 1\ndeep-1.tar: set/cat/old/grey/d.jpg 0\n");
    file(&t, "set/e.jpg", "x");
    file(&t, "set/dog/f.jpg", "x");
    end(&t, "t.tar");
    lists("t.tar", true, NULL, "t.tar: set/e.jpg: has neither a label NAME.cls nor a folder of its class "
                               "below that of all");
    file(&t, "a/x.jpg", "x");
    file(&t, "a/x.cls", "0");
    file(&t, "a/y.jpg", "x");
    end(&t, "t.tar");
    lists("t.tar", true, NULL, "t.tar: a/y.jpg: has no label NAME.cls, but others have");
    file(&t, "x.jpg", "x");
    end(&t, "t.tar");
    lists("t.tar", true, NULL, "t.tar: x.jpg: has neither a label NAME.cls nor a folder");
    file(&t, "a/x.jpg", "x");
    file(&t, "a/x.png", "x");
    end(&t, "t.tar");
    lists("t.tar", true, NULL, "t.tar: a/x.png: a second picture of that name");
    file(&t, "a/x.jpg", "1");
    member(&t, POSIX, '2', "a/notes.txt", "", 0);         /* of what does not count anyway */
    member(&t, POSIX, '1', "a/y.jpg", "", 0);
    end(&t, "t.tar");
    lists("t.tar", true, NULL,
          "t.tar: a/y.jpg: is a link; tar's --dereference --hard-dereference puts the file itself there");
    file(&t, "x.jpg", "1");
    member(&t, GNU, '2', "x.cls", "", 0);
    end(&t, "t.tar");
    lists("t.tar", true, NULL,
          "t.tar: x.cls: is a link; tar's --dereference --hard-dereference puts the file itself there");
    file(&t, "x.cls", " \n");
    end(&t, "t.tar");
    lists("t.tar", true, NULL, "t.tar: x.cls: no label");
    member(&t, POSIX, '0', "x.cls", "1\0002", 3);
    end(&t, "t.tar");
    lists("t.tar", true, NULL, "t.tar: x.cls: no label");
    file(&t, "x.cls", "12345678901234567890123456789012345678901234567890123456789012345");
    end(&t, "t.tar");
    lists("t.tar", true, NULL, "t.tar: x.cls: a label has more than 64 bytes");
    file(&t, "x.txt", "x");
    end(&t, "t.tar");
    lists("t.tar", true, NULL, "t.tar: has no picture (.jpg, .jpeg, .jpe, .jfif or .png); not read: t.tar: x.txt");
}
END_TEST

/* The same pixels and errors as of files. */
START_TEST(pixels)
{
    enum { N = 3 * 29 * 37 };
    static const char *const name[] = {"rgb.jpg", "ink.jpg", "rgb.png"};
    static float x[N], y[N];
    const struct ds_pair want = {.input = {3, {3, 29, 37}}, .target_type = I64, .classes = 3};
    struct text tar = {0}, list = {0};
    struct err e = {0};
    int64_t label;
    for (int i = 0; i < 3; i++) {
        char path[PATH_MAX + 100], as[20];
        struct text t = {0};
        snprintf(path, sizeof path, "%s/%s", pictures, name[i]);
        ck_assert_msg(!text_read_bytes(&t, path, 1 << 20, &e), "%s", e.text);
        snprintf(as, sizeof as, "%d/%s", i, name[i]);
        member(&tar, POSIX, '0', as, t.s, t.n);
        text_add(&list, "%s %d\n", path, i);
        text_free(&t);
    }
    file(&tar, "0/bad.jpg", "x");
    end(&tar, "s.tar");
    put_text("list", list.s);
    text_free(&list);
#define OPEN(path) open_good("source = images damaged = error upright = yes train = " path, want)
    struct ds *a = OPEN("\"s.tar\""), *b = OPEN("list");
    ck_assert_uint_eq(a->kind->count(a), 4);
    ck_assert_str_eq(a->class_name[2], "2");
    for (uint64_t i = 0; i < 3; i++) {
        get(a, i, x, &label);
        ck_assert_int_eq(label, (int64_t)i);
        get(b, i, y, NULL);
        ck_assert_mem_eq(x, y, sizeof x);
    }
    ck_assert_int_eq(a->kind->read(a, 3, 0, PAIR_INPUT, x, &e), -1);
    expect(&e, E_DATA, "s.tar: 0/bad.jpg: neither JPEG nor PNG");
    ck_assert(!truncate("s.tar", 1000));
    e = (struct err){0};
    ck_assert_int_eq(a->kind->read(a, 2, 0, PAIR_INPUT, x, &e), -1);
    expect(&e, E_DATA, "s.tar: 2/rgb.png: offset 4096: the file ends here");
    ds_close(a);
    ds_close(b);
}
END_TEST

static void all(TCase *t)
{
    tcase_add_test(t, members);
    tcase_add_test(t, archives_that_lie);
    tcase_add_test(t, samples);
    tcase_add_test(t, labels);
    tcase_add_test(t, pixels);
}

int main(void)
{
    char path[PATH_MAX];
    const char *srcdir = getenv("srcdir");
    snprintf(path, sizeof path, "%s/tests/images", srcdir ? srcdir : ".");
    if (!realpath(path, pictures)) return 1;
    return scratch_suite("shards", all);
}
