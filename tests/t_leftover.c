/* Unused entries of folders, lists and archives, and a run's report of them. Labels in another folder than the
 * pictures. Files that operating systems leave. Classes that look like parts of a data set, or like one class in two
 * forms of Unicode. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "data/class_names.h"
#include "data/image_list.h"
#include "data/picture.h"
#include "files.h"

/* Makes the folders on the way, too. */
static void file_put(const char *path, const char *s)
{
    char dir[4096];
    for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
        snprintf(dir, sizeof dir, "%.*s", (int)(slash - path), path);
        mkdir(dir, 0777);
    }
    put_text(path, s);
}

/* The pictures, "NAME CLASS", and what is said; or the error. */
static void lists(const char *path, bool labels, const char *classes_of, const char *pictures, const char *said)
{
    struct image_list l;
    struct err e = {0};
    struct text out = {0}, name = {0}, left = {0};
    text_add(&out, "%s", "");
    text_add(&left, "%s", "");
    int bad = image_list_read(path, labels, classes_of, &l, &e);
    for (int i = 0; i < l.image.n && !bad; i++)
        text_add(&out, "%s%s %d", i ? ", " : "", l.names.s + l.image.v[i].name, (int)l.image.v[i].class);
    leftover_text(&l.left, path, &left);
    const char *found = bad ? e.text : out.s;
    ck_assert_msg(!strcmp(found, pictures), "%s:\n%s\nwanted:\n%s", path, found, pictures);
    ck_assert_msg(bad || !strcmp(left.s, said), "%s:\n%s\nwanted:\n%s", path, left.s, said);
    text_free(&out);
    text_free(&name);
    text_free(&left);
    image_list_free(&l);
}

#define ENDS "does not end with .jpg, .jpeg, .jpe, .jfif or .png"

START_TEST(folders)
{
    static const char *const files[] = {"t/a/0.jpg", "t/a/1.JFIF", "t/a/2.Jpe", "t/a/3.bmp", "t/a/4.WEBP",
                                        "t/b/0.png", "t/b/in/labels.csv"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) file_put(files[i], "x");
    lists("t", true, NULL, "a/0.jpg 0, a/1.JFIF 0, a/2.Jpe 0, b/0.png 1", "t: 3 files are not used: their names do not "
          "end with .jpg, .jpeg, .jpe, .jfif or .png; the first: t/a/3.bmp");
    file_put("t/loose.png", "x");
    file_put("t/b/.hidden.png", "x");
    lists("t", true, NULL, "a/0.jpg 0, a/1.JFIF 0, a/2.Jpe 0, b/0.png 1", "t: 3 files are not used: their names do not "
          "end with .jpg, .jpeg, .jpe, .jfif or .png; the first: t/a/3.bmp\n"
          "t: 1 image is not used: it lies in no folder of a class; the first: t/loose.png\n"
          "t: 1 image is not used: it is hidden, or a system left it; the first: t/b/.hidden.png");
    lists("t/b/", false, NULL, "0.png -1", "t/b/: 1 file is not used: its name " ENDS "; the first: t/b/in/labels.csv\n"
          "t/b/: 1 image is not used: it is hidden, or a system left it; the first: t/b/.hidden.png");
    file_put("u/a/0.jpg", "x");
    file_put("u/b/0.tif", "x");
    lists("u", true, NULL, "u/b: has no picture (.jpg, .jpeg, .jpe, .jfif or .png); not read: u/b/0.tif", "");
}
END_TEST

START_TEST(systems)
{
    static const char *const dirs[] = {"@eaDir", "__MACOSX", "lost+found", "$RECYCLE.BIN", "$Recycle.Bin",
        "System Volume Information", ".Trash-1000", ".ipynb_checkpoints", "__pycache__", ".git", "#recycle",
        ".snapshot", "#snapshot", "RECYCLED", ".Spotlight-V100", "found.000", "@Recycle", ".@__thumb", "LOST.DIR",
        "Network Trash Folder"};
    static const char *const files[] = {"._0.png", "Thumbs.db", "desktop.ini", ".DS_Store", "ehthumbs_vista.db",
        "Icon\r"};
    static const char *const kept[] = {"lost", "found", "recycle", "git", "snapshot", "thumbs", "trash", "foundry",
        "@home", "Recycled", "recycler"};
    char path[200];
    file_put("s/a/0.png", "x");
    file_put("s/b/0.png", "x");
    for (size_t i = 0; i < sizeof dirs / sizeof *dirs; i++) {
        ck_assert_msg(leftover_system(dirs[i], strlen(dirs[i])), "%s", dirs[i]);
        snprintf(path, sizeof path, "s/%s/in/0.png", dirs[i]);
        file_put(path, "x");
        snprintf(path, sizeof path, "s/a/%s/0.jpg", dirs[i]);
        file_put(path, "x");
    }
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        ck_assert_msg(leftover_system(files[i], strlen(files[i])), "%s", files[i]);
        snprintf(path, sizeof path, "s/b/%s", files[i]);
        file_put(path, "x");
    }
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        ck_assert_msg(!leftover_system(kept[i], strlen(kept[i])), "%s", kept[i]);
    struct image_list l;
    struct err e = {0};
    ck_assert_msg(!image_list_read("s", true, NULL, &l, &e), "%s", e.text);
    ck_assert_int_eq(l.image.n, 2);
    ck_assert_int_eq(l.n_classes, 2);
    ck_assert_int_eq(l.left.n[LEFT_SYSTEM], 2 * sizeof dirs / sizeof *dirs + 1);
    ck_assert_int_eq(l.left.n[LEFT_OTHER], 0);
    image_list_free(&l);
}
END_TEST

/* Of snapshots and the like only some entries are looked at. */
START_TEST(many)
{
    char path[100];
    struct leftover l = {0};
    struct text t = {0};
    file_put("m/0.png", "x");
    for (int i = 1; i < 10010; i++) {
        snprintf(path, sizeof path, "m/%d.png", i);
        put_text(path, "");
    }
    leftover_folder(&l, "m");
    leftover_text(&l, "m", &t);
    ck_assert_msg(!strncmp(t.s, "m: at least 10000 images are not used", 37), "%s", t.s);
    text_free(&t);
    leftover_free(&l);
    leftover_folder(NULL, "m");
}
END_TEST

/* ---- archives ---------------------------------------------------------------------------------------------------- */

/* Members NAME or NAME=CONTENT, as ustar. */
static void tar_put(const char *path, const char *const *member)
{
    struct text t = {0};
    for (; *member; member++) {
        char h[512] = "";
        const char *is = strchr(*member, '=');
        const size_t n = is ? (size_t)(is - *member) : strlen(*member), size = is ? strlen(is + 1) : 1;
        unsigned sum = 0;
        memcpy(h, *member, n);
        memcpy(h + 100, "0000644\0000000000\0000000000", 23);
        snprintf(h + 124, 12, "%011zo", size);
        snprintf(h + 136, 12, "%011o", 0);
        memset(h + 148, ' ', 8);
        h[156] = '0';
        memcpy(h + 257, "ustar\00000", 8);
        for (int i = 0; i < 512; i++) sum += (unsigned char)h[i];
        snprintf(h + 148, 8, "%06o", sum);
        text_add_bytes(&t, h, 512);
        memset(h, 0, 512);
        memcpy(h, is ? is + 1 : "x", size);
        text_add_bytes(&t, h, 512);
    }
    put(path, t.s, t.n);
    text_free(&t);
}

START_TEST(archives)
{
#define NO_CLASS " is a number, but not a class: write whole numbers from 0, or names"
#define APART "lies apart from its image and belongs to it by its name, which other readers may not see; the first: "
    static const struct { const char *member[9], *pictures, *said; } of[] = {
        {{"p0/a.png", "p1/b.png", "p0/a.cls=1", "p1/b.CLS=0"}, "p0/a.png 1, p1/b.png 0",
         "t.tar: 2 labels lie apart from their images and belong to them by their names, which other readers may not "
         "see; the first: t.tar: p0/a.cls"},
        {{"a.png", "b.png", "b.cls=0", "a.cls=1"}, "a.png 1, b.png 0", "t.tar: 1 label " APART "t.tar: a.cls"},
        {{"a.cls=1", "b.cls=0", "b.png", "a.png"}, "b.png 0, a.png 1", "t.tar: 1 label " APART "t.tar: a.cls"},
        {{"a.png", "a.cls=1", "b.cls=0"}, "a.png 1",
         "t.tar: 1 label is not used: there is no image of its name; the first: t.tar: b.cls"},
        {{"im/a.png", "im/b.png", "lab/a.cls=1"}, "t.tar: lab/a.cls: no image of that name in its archive, and no "
         "other image has a label, NAME.cls", ""},
        {{"p/a.png", "q/b.png", "p/a.cls=1"}, "t.tar: q/b.png: has no label NAME.cls, but others have", ""},
        {{"a.png", "b.png", "b.cls=1"}, "t.tar: a.png: has no label NAME.cls, but others have", ""},
        {{"a.png", "a.cls=1", "b.png", "b.cls=1", "a.cls=2"}, "t.tar: a.cls: is it the label of a.png, or of another "
         "one of that name? Put each label after its image", ""},
        {{"a.png", "b.png", "a.png", "a.cls=1", "b.cls=1"}, "a.png -9", ""},
        {{"a.png", "b.png", "b.cls=1", "a.cls=1", "c.png", "c.cls=0", "a.cls=0"}, "t.tar: a.cls: a second label of "
         "that name", ""},
        {{"a.png", "a.cls=1", "a.cls=2"}, "t.tar: a.cls: a second label of that name", ""},
        {{"a.png", "a.jpg", "a.cls=2"}, "t.tar: a.jpg: a second picture of that name", ""},
        {{"a.png", "a.cls=1", "a.cls.json", "b.jpe", "b.cls=0", "a.bmp", "README"}, "a.png 1, b.jpe 0",
         "t.tar: 3 files are not used: their names do not end with .jpg, .jpeg, .jpe, .jfif or .png; the first: t.tar: "
         "a.cls.json"},
        {{"a.png", "a.cls=1", "a.mask.png", "b.png", "b.cls=0", "b.mask.png"}, "a.png 1, b.png 0",
         "t.tar: 2 images are not used: their names have several dots, and a sample is KEY.jpg or the like; the first: "
         "t.tar: a.mask.png"},
        {{"a.png", "a.cls=\xef\xbb\xbf" "1", "b.png", "b.cls=0\r\n"}, "a.png 1, b.png 0", ""},
        {{"a.png", "a.cls=1", "b.png", "b.cls=-1"}, "t.tar: label -1 of b.png" NO_CLASS, ""},
        {{"a.in.png"}, "t.tar: has no picture (.jpg, .jpeg, .jpe, .jfif or .png); not read: t.tar: a.in.png", ""},
        {{"a/0.png", "b/0.png", ".hidden/0.png", "a/.old/1.png"}, "a/0.png 0, b/0.png 1",
         "t.tar: 2 images are not used: they are hidden, or a system left them; the first: t.tar: .hidden/0.png"},
        {{"../a/0.png", "./../b/0.png"}, "../a/0.png 0, ../b/0.png 1", ""},
        {{"a/0.png", "b/0.png", "__MACOSX/a/._0.png", "a/@eaDir/0.png", "b/.x.jpg"}, "a/0.png 0, b/0.png 1",
         "t.tar: 3 images are not used: they are hidden, or a system left them; the first: t.tar: __MACOSX/a/._0.png"},
    };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        tar_put("t.tar", of[i].member);
        if (strcmp(of[i].pictures, "a.png -9")) lists("t.tar", true, NULL, of[i].pictures, of[i].said);
        struct image_list l;
        struct err e = {0};
        bool ambiguous = image_list_read("t.tar", true, NULL, &l, &e) != 0;
        image_list_free(&l);
        ck_assert(strcmp(of[i].pictures, "a.png -9") || ambiguous);
    }
    /* keys are an archive's own; without labels none are missed */
    static const char *const one[] = {"a.png", "a.cls=1", NULL},
                      *const two[] = {"a.png", "b.png", "b.cls=1", "a.cls=0", NULL};
    tar_put("k-0.tar", one);
    tar_put("k-1.tar", two);
    lists("k-*.tar", true, NULL, "a.png 1, a.png 0, b.png 1", "k-*.tar: 1 label " APART "k-1.tar: a.cls");
    lists("k-*.tar", false, NULL, "a.png -1, a.png -1, b.png -1", "");
}
END_TEST

/* ---- lists ------------------------------------------------------------------------------------------------------- */

START_TEST(list_files)
{
    static const struct { const char *text, *pictures, *said; bool plain; } of[] = {
        {"a.png 1\rb.png 0\r", "a.png 1, b.png 0", "", false},
        {"a.png 1\r\n\r\nb.png 0", "a.png 1, b.png 0", "", false},
        {"a.png,1\nb c.png,0\n", "a.png 1, b c.png 0", "", false},
        {"a.png;great dane\nb.png; cat\n", "a.png 1, b.png 0", "", false},
        {"\"a,b.png\",\"dog \"\"x\"\"\"\n\"b.png\",cat\n", "a,b.png 1, b.png 0", "", false},
        {"\"a.png\"\t1\n\"b.png\" 0\n", "a.png 1, b.png 0", "", false},
        {"path label\na.png 1\nb.png 0\n", "a.png 1, b.png 0",
         "l: 1 line is not used: it is a header or a comment; the first: path", false},
        {"filename,label\na.png,cat\nb.png,dog\n", "a.png 0, b.png 1",
         "l: 1 line is not used: it is a header or a comment; the first: filename", false},
        {"image\na.png\n", "a.png -1", "l: 1 line is not used: it is a header or a comment; the first: image", true},
        {"# mine\n\na.png 1\n#b.png 0\n# c.png 0\n##\n#x/c.png 0\n", "a.png 1, #b.png 0, #x/c.png 0",
         "l: 3 lines are not used: they are a header or comments; the first: line 1", false},
        {"path label\na.png 1\n# mine\nb.png 0\n", "a.png 1, b.png 0",
         "l: 2 lines are not used: they are a header or comments; the first: path", false},
        {"# mine\npath label\na.png 1\nb.png 0\n", "a.png 1, b.png 0",
         "l: 2 lines are not used: they are a header or comments; the first: line 1", false},
        {"\"a.png\" , dog\nb.png ; cat\n\"c.png\" cat\n", "a.png 1, b.png 0, c.png 0", "", false},
        {"abc 1\ndef 0\n", "abc 1, def 0", "", false},     /* names without an end are no header */
        {"x/y 1\na.png 0\n", "x/y 1, a.png 0", "", false},
        {"a.png 1\nb.bmp 0\nc.webp 1\n", "a.png 1, b.bmp 0, c.webp 1", "l: 2 names are not those of JPEG or PNG files, "
         "and others cannot be read; the first: b.bmp", false},
        {"a.png,1,train\n", "l:1: more than two columns: expected path and label", "", false},
        {"\"a.png,1\n", "l:1: a quote without an end, or text after it", "", false},
        {"\"a.png\"x 1\n", "l:1: a quote without an end, or text after it", "", false},
        {"a.png \"1\n", "l:1: a quote without an end, or text after it", "", false},
        {"a.png,\n", "l:1: no label after the path and a tab, blanks or a comma", "", false},
        {"a.png 1.0\nb.png 0.0\n", "l: label 1.0 of a.png" NO_CLASS, "", false},
        {"a.png 1\nb.png -1\n", "l: label -1 of b.png" NO_CLASS, "", false},
        {"a.png 0.5\nb.png 1.5\n", "a.png 0, b.png 1", "", false},
        {"a.png -1\nb.png x\n", "a.png 0, b.png 1", "", false},
        {"# only\n", "l: names no pictures", "", false},
        {"no-such-name.tar\n# b.tar\n", "no-such-name.tar: No such file or directory", "", false},
    };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        put_text("l", of[i].text);
        lists("l", !of[i].plain, NULL, of[i].pictures, of[i].said);
    }
}
END_TEST

/* ---- classes ----------------------------------------------------------------------------------------------------- */

START_TEST(splits)
{
    static const struct { const char *name; enum split want; } of[] = {
        {"train", SPLIT_TRAIN}, {"Train", SPLIT_TRAIN}, {"TRAINING", SPLIT_TRAIN}, {"train", SPLIT_TRAIN},
        {"images-train", SPLIT_TRAIN}, {"TrainSet", SPLIT_TRAIN}, {"Training Set", SPLIT_TRAIN},
        {"train2017", SPLIT_TRAIN}, {"imgs_train", SPLIT_TRAIN}, {"val", SPLIT_VALIDATION}, {"Valid", SPLIT_VALIDATION},
        {"dev", SPLIT_VALIDATION}, {"validation_data", SPLIT_VALIDATION}, {"eval", SPLIT_VALIDATION},
        {"test", SPLIT_TEST}, {"Testing", SPLIT_TEST},
        {"testset", SPLIT_TEST}, {"test", SPLIT_TEST}, {"cat", SPLIT_NONE}, {"trainer", SPLIT_NONE},
        {"images", SPLIT_NONE}, {"train_station", SPLIT_NONE}, {"train-val", SPLIT_NONE}, {"", SPLIT_NONE},
        {"2017", SPLIT_NONE}, {"\xc3\xa9", SPLIT_NONE}, {"contest", SPLIT_NONE}, {"valley", SPLIT_NONE},
    };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        ck_assert_msg(split_of(of[i].name) == of[i].want, "%s", of[i].name);
}
END_TEST

/* e and a mark above it, or one letter; syllables of Hangul, kana with a mark. */
START_TEST(forms)
{
    ck_assert(class_names_forms("caf\xc3\xa9", "cafe\xcc\x81"));
    ck_assert(class_names_forms("\xea\xb0\x80", "\xe1\x84\x80\xe1\x85\xa1"));
    ck_assert(class_names_forms("\xe3\x81\x8c", "\xe3\x81\x8b\xe3\x82\x99"));
    ck_assert(!class_names_forms("cafe", "caf\xc3\xa9"));
    ck_assert(!class_names_forms("a", "a"));
    ck_assert(!class_names_forms("\xff", "\xfe"));
    static const char *const two[] = {"cafe\xcc\x81", "caf\xc3\xa9"}, *const plain[] = {"bird", "train", "truck"},
                      *const parts[] = {"Train", "misc", "Val"};
    struct text t = {0};
    class_names_doubt(plain, 3, "im", &t);
    ck_assert_int_eq(t.n, 0);
    class_names_doubt(two, 2, "im", &t);
    ck_assert_msg(strstr(t.s, "im: two classes are called caf\xc3\xa9: their names differ only in the"), "%s", t.s);
    t.n = 0;
    class_names_doubt(parts, 3, "im", &t);
    ck_assert_msg(strstr(t.s, "im: Train and Val are taken for classes, though"), "%s", t.s);
    text_free(&t);
    file_put("nfc/caf\xc3\xa9/0.png", "x");
    file_put("nfd/cafe\xcc\x81/0.png", "x");
    lists("nfd", true, "nfc", "nfd: the name of class cafe\xcc\x81 has another form of Unicode (NFC, NFD) than in nfc: "
          "rename one of them", "");
}
END_TEST

static void all(TCase *t)
{
    tcase_add_test(t, folders);
    tcase_add_test(t, systems);
    tcase_add_test(t, many);
    tcase_add_test(t, archives);
    tcase_add_test(t, list_files);
    tcase_add_test(t, splits);
    tcase_add_test(t, forms);
}

int main(void) { return scratch_suite("leftover", all); }
