/* Files of a wrong kind: each reader names the kind that it found. The first bytes of text files on Windows. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/file_kind.h"
#include "base/text.h"
#include "ckpt/st.h"
#include "data/idx.h"
#include "data/image_list.h"
#include "data/nifti.h"
#include "data/npy.h"
#include "data/picture.h"
#include "data/tar.h"
#include "files.h"
#include "sure.h"

#define LFS "version https://git-lfs.github.com/spec/v1\noid sha256:0123456789abcdef\nsize 46807446\n"
#define S(s) s, sizeof s - 1
static const struct { const char *bytes; size_t n; const char *name; } kinds[] = {
    {S(LFS), "a pointer of Git LFS"},
    {S("\n <!DOCTYPE html>\n<html>"), "an HTML page"},
    {S("\xef\xbb\xbf<HTML lang=en>"), "an HTML page"},
    {S("<?xml version=\"1.0\"?><Error><Code>AccessDenied</Code>"), "XML"},
    {S("<Error><Code>NoSuchKey</Code></Error>"), "XML"},
    {S("{\"error\":\"Repository not found\"}"), "JSON text"},
    {S("Entry not found"), "text"},
    {S("GGUF\3\0\0\0\1\0\0\0"), "a GGUF file"},
    {S("\x89HDF\r\n\032\n\0\0\0\0"), "an HDF5 file"},
    {S("PK\3\4\24\0\0\0"), "a ZIP archive"},
    {S("\200\2\212\12l\374\234F\371"), "a pickle of Python"},
    {S("\200\4\225\0\0\0\0\0"), "a pickle of Python"},
    {S("\x8\x8\x12\x7pytorch\x1a\x5" "2.1.0"), "an ONNX model"},
    {S("\x8\1\x12\x80\1\n\0"), "a TensorFlow model"},
    {S("\34\0\0\0TFL3\24\0"), "a TensorFlow Lite model"},
    {S("\x1f\x8b\b\0\0\0"), "a gzip file"},
    {S("\xfd" "7zXZ\0\0"), "an xz file"},
    {S("\x28\xb5\x2f\xfd\4"), "a zstd file"},
    {S("\x93NUMPY\1\0v\0"), "a NumPy array"},
    {S("\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"), "a file of zeros"},
    {S("\xff\xfe" "a\0b\0"), "UTF-16 text"},
    {S("r\0u\0n\0 \0a\0"), "UTF-16 text"},
    {S("\0r\0u\0n\0 \0{"), "UTF-16 text"},
    {S("\xff\xfe\0\0a\0\0\0"), "UTF-32 text"},
    {S("RIFF\0\0\0\0WEBPVP8 "), "a WebP picture"},
    {S("GIF89a\1\0\1\0\0\0\0"), "a GIF picture"},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

START_TEST(kinds_have_names)
{
    const struct file_kind *is = file_kind(kinds[_i].bytes, kinds[_i].n);
    ck_assert_msg(is && !strncmp(is->name, kinds[_i].name, strlen(kinds[_i].name)), "%d: %s", _i, is ? is->name : "-");
}
END_TEST

START_TEST(others_have_none)
{
    static const char header[16] = {0x40, 2, 0, 0, 0, 0, 0, 0, '{', '}'};
    ck_assert(!file_kind("", 0) && !file_kind("\0\0\10\3\0\0\352\140\0\0\0\34\0\0\0\34", 16)); /* IDX */
    ck_assert(!file_kind(header, 10) && !file_kind("\x5c\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 16)); /* safetensors, NIfTI */
    ck_assert(!file_kind("\xff\xd8junk", 6));              /* a JPEG file that is spoiled is no text */
    ck_assert(!file_kind("a\0b.jpg 1\n", 10) && !file_kind("PK", 2) && !file_kind("\200\11\1", 3));
}
END_TEST

/* ---- text -------------------------------------------------------------------------------------------------------- */

START_TEST(text_passes_a_byte_order_mark)
{
    struct text t = {0};
    struct err e = {0};
    PUT("f", "\xef\xbb\xbf" "abc");
    ck_assert(!text_read_file(&t, "f", 10, &e) && t.n == 3 && !strcmp(t.s, "abc"));
    ck_assert(!text_read_file(&t, "f", 10, &e) && !strcmp(t.s, "abcabc"));
    text_free(&t);
    ck_assert(!text_read_bytes(&t, "f", 10, &e) && t.n == 6);
    text_free(&t);
    PUT("f", "\xef\xbb\xbf");
    ck_assert(!text_read_file(&t, "f", 10, &e) && t.n == 0 && !*t.s);
    text_free(&t);
}
END_TEST

/* Names of files hold what others begin with. */
START_TEST(lists_are_text)
{
    static const struct { const char *letters; int at; } cases[] = {
        {"GIF8", 0}, {"TFL3", 4}, {"WEBPVP8", 8}, {"DICM", 128}, {"ustar", 257}, {"GGUF", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct text t = {0}, back = {0};
        struct err e = {0};
        while (t.n < (size_t)cases[i].at) text_add(&t, t.n % 8 == 7 ? "\n" : "x");
        text_add(&t, "%s.jpg 1\nother.jpg 2\n", cases[i].letters);
        put("f", t.s, t.n);
        ck_assert_msg(!text_read_file(&back, "f", 1000, &e), "%s", e.text);
        text_free(&back);
        text_free(&t);
    }
}
END_TEST

START_TEST(text_is_told_from_the_rest)
{
    for (int i = 0; i < KINDS; i++) {
        struct text t = {0};
        struct err e = {0};
        const bool good = kinds[i].bytes[0] == '{' || kinds[i].bytes[0] == 'E';
        put("f", kinds[i].bytes, kinds[i].n);
        ck_assert_int_eq(text_read_file(&t, "f", 100, &e), good ? 0 : -1);
        if (!good) expect(&e, E_DATA, kinds[i].name);
        if (!good) expect(&e, E_DATA, ", not plain text");
        text_free(&t);
    }
}
END_TEST

/* ---- data -------------------------------------------------------------------------------------------------------- */

static int no_member(void *ctx, const struct tar_member *m, struct err *e)
{
    (void)ctx, (void)m;
    return err_set(e, E_INTERNAL, "no member");
}

static int picture_try(struct err *e)
{
    struct text t = {0};
    struct picture *p;
    int bad = text_read_bytes(&t, "f", 1 << 16, e) || picture_open("f", (const uint8_t *)t.s, t.n, &p, e);
    text_free(&t);
    return bad ? -1 : 0;
}

static void each_says(const char *name)
{
    struct err e[6] = {{0}};
    struct idx_file idx;
    struct nifti volume;
    struct npy array;
    struct st **weights;
    int n;
    ck_assert_int_eq(idx_file_load("f", 1, 3, &idx, &e[0]), -1);
    ck_assert_int_eq(nifti_open("f", &volume, &e[1]), -1);
    ck_assert_int_eq(npy_open("f", &array, &e[2]), -1);
    ck_assert_int_eq(tar_read("f", no_member, NULL, &e[3]), -1);
    ck_assert_int_eq(picture_try(&e[4]), -1);
    ck_assert_int_eq(st_open_all("f", &weights, &n, &e[5]), -1);
    for (int i = 0; i < 6; i++) expect(&e[i], E_DATA, name);
    for (int i = 0; i < 6; i++) ck_assert_msg(!strncmp(e[i].text, "f: ", 3), "%s", e[i].text);
}

START_TEST(data_are_told_from_pointers_and_pages)
{
    char page[2000] = "<!doctype HTML>\n<head>";
    memset(page + strlen(page), 'x', sizeof page - 30);
    PUT("f", LFS);
    each_says("this is a pointer of Git LFS, not ");
    put("f", page, sizeof page);
    each_says("this is an HTML page, as servers send it instead of a file, not ");
    memset(page, 0, sizeof page);
    memcpy(page, "\x89HDF\r\n\032\n", 8);
    put("f", page, sizeof page);
    each_says("this is an HDF5 file, not ");
}
END_TEST

/* ---- weights ----------------------------------------------------------------------------------------------------- */

static void weights_bad(const char *path, const char *part)
{
    struct err e = {0};
    struct st **f;
    int n;
    ck_assert_int_eq(st_open_all(path, &f, &n, &e), -1);
    expect(&e, E_DATA, part);
}

START_TEST(weights_of_others)
{
    for (int i = 0; i < KINDS; i++) {
        put("f", kinds[i].bytes, kinds[i].n);
        weights_bad("f", kinds[i].name);
    }
    PUT("f", "{\"error\":\"Repository not found\"}");
    weights_bad("f", "f: offset 0:|JSON");
}
END_TEST

START_TEST(an_index_by_its_own_name)
{
    struct err e = {0};
    struct st **f;
    int n;
    static const char *const index[] = {"hf/model.fp16.safetensors.index.json", "hf/any", "here.json"};
    ck_assert_int_eq(mkdir("hf", 0777), 0);
    PUT("hf/one", "\70\0\0\0\0\0\0\0{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}  \0\0\0\0");
    PUT("one", "\70\0\0\0\0\0\0\0{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}  \0\0\0\0");
    for (int i = 0; i < 3; i++) {
        const char *mark = i == 1 ? "\xef\xbb\xbf " : "";
        char text[64];
        snprintf(text, sizeof text, "%s{\"weight_map\": {\"a\": \"one\"}}", mark);
        put_text(index[i], text);
        ck_assert_msg(!st_open_all(index[i], &f, &n, &e), "%s", e.text);
        ck_assert_int_eq(n, 1);
        ck_assert_str_eq(f[0]->path, i < 2 ? "hf/one" : "./one");
        st_close(f[0]);
        free(f);
    }
}
END_TEST

/* The first bytes of what torch.save writes now and wrote before; and a header whose length looks like a pickle's. */
START_TEST(files_of_torch_are_told)
{
    PUT("net.pth", "PK\3\4\0\0\10\10\0\0\0\0\0\0net/data.pkl");
    weights_bad("net.pth", "net.pth: this is a ZIP archive, as torch.save writes it, not safetensors; to convert it: "
                           "python3 -c \"import ctypes,json,sys,torch as t;");
    weights_bad("net.pth", "t.load(p,'cpu',");
    weights_bad("net.pth", "v in w.values()]\" net.pth");
    PUT("o'ld.pt", "\200\2\212\12l\374\234F\371 j\250P\31.");
    weights_bad("o'ld.pt",
                "o'ld.pt:|Python|torch.save");
    weights_bad("o'ld.pt", "w.values()]\" x.pth");
    PUT("s.pt", "PK\3\4\0\0\10\10\0\0\0\0\0\0net/data.pkl and net/constants.pkl");
    weights_bad("s.pt", "s.pt: this is a ZIP archive, of TorchScript, not");
    weights_bad("s.pt", "(u(t.jit.load(p,'cpu'))or exit(");
    PUT("a.npz", "PK\3\4\0\0\10\10\0\0\0\0\0\0arr_0.npy");
    weights_bad("a.npz", "a.npz: this is a ZIP archive, of NumPy arrays (.npz), not");
    char header[649] = "\200\2\0\0\0\0\0\0{}";           /* 640 */
    memset(header + 10, ' ', 638);
    put("long.safetensors", header, 648);
    struct err e = {0};
    struct st *s = st_open("long.safetensors", &e);
    ck_assert_msg(s != NULL, "%s", e.text);
    st_close(s);
}
END_TEST

/* The command that is said of a file of weights. */
static const char *command_of(const char *name, struct err *e)
{
    struct st **f;
    int n;
    ck_assert_int_eq(st_open_all(name, &f, &n, e), -1);
    const char *command = strstr(e->text, "python3 -c");
    ck_assert_msg(command != NULL, "%s", e->text);
    return command;
}

/* It makes of each file the same tensors. */
static void converted(const char *name)
{
    struct err e = {0};
    struct st *s;
    char path[40];
    float w[6], h[2];
    snprintf(path, sizeof path, "%s.safetensors", name);
    ck_assert_msg((s = st_open(path, &e)) != NULL, "%s", e.text);
    ck_assert_int_eq(s->n, 5);
    const int i = st_find(s, "fc.weight"), k = st_find(s, "halves");
    ck_assert(i >= 0 && k >= 0 && st_find(s, "steps") >= 0 && st_find(s, "none") >= 0 && st_find(s, "on") >= 0);
    ck_assert(!st_read_float(s, i, w, &e) && !st_read_float(s, k, h, &e));
    for (int j = 0; j < 6; j++) ck_assert(w[j] == (float)(j % 2 * 3 + j / 2));   /* stored transposed */
    ck_assert(h[0] == 0.5f && h[1] == -2);
    st_close(s);
}

START_TEST(what_is_said_converts)
{
    static const char *const names[] = {"plain", "model", "state_dict", "model_state_dict", "module", "ema", "net",
                                        "in_two", "old", "script"};
    static const char torch[] = "python3 -c 'import importlib.util as u; exit(not u.find_spec(\"torch\"))' 2>/dev/null";
    if (system(torch)) {                                  /* another Python may come before the system's */
        char path[8192];
        snprintf(path, sizeof path, "/usr/bin:%s", getenv("PATH"));
        setenv("PATH", path, 1);
    }
    if (system(torch)) {
        fprintf(stderr, "SKIPPED: PyTorch is not installed\n");
        return;
    }
    put_text("make.py",
             "import torch\n"
             "w = {'fc.weight': torch.arange(6.).reshape(2, 3).t(), 'halves': torch.tensor([.5, -2]).half(), 'steps':\n"
             "     torch.tensor(3), 'none': torch.zeros(0, 2), 'on': torch.tensor([True])}\n"
             "o = {'state': {0: {'exp_avg': torch.ones(2), 'step': torch.tensor(1.)}}, 'param_groups': []}\n"
             "for k in ('model', 'state_dict', 'model_state_dict', 'module', 'ema', 'net'):\n"
             "    torch.save({'epoch': torch.tensor(2), 'optimizer': o, k: w, 'args': [1]}, k)\n"
             "torch.save({'optimizer_states': [o], 'state_dict': {'model': w}}, 'in_two')\n"
             "torch.save(w, 'plain')\n"
             "torch.save(w, 'old', _use_new_zipfile_serialization=False)\n"
             "class Net(torch.nn.Module):\n"
             "    def __init__(s):\n"
             "        super().__init__()\n"
             "        s.fc = torch.nn.Module()\n"
             "        s.fc.register_buffer('weight', w['fc.weight'])\n"
             "        for k in ('halves', 'steps', 'none', 'on'): s.register_buffer(k, w[k])\n"
             "    def forward(s, x): return x\n"
             "torch.jit.trace(Net(), torch.ones(1)).save('script')\n");
    ck_assert_int_eq(system("python3 make.py 2>make.log || { cat make.log >&2; false; }"), 0);
    put_text("run.py",
             "import os, shlex, sys, torch\n"
             "for line in open('commands'):\n"
             "    if not os.fork():\n"
             "        _, _, code, *sys.argv[1:] = shlex.split(line)\n"
             "        exec(code, globals())\n"
             "        sys.exit()\n"
             "    if os.wait()[1]: sys.exit(1)\n");
    struct err e = {0};
    ck_assert_int_eq(system(command_of(names[0], &e)), 0);
    FILE *commands = fopen("commands", "w");              /* the others at once: PyTorch takes a second to start */
    for (int i = 1; i < N_OF(names); i++) {
        e = (struct err){0};
        fprintf(commands, "%s\n", command_of(names[i], &e));
    }
    fclose(commands);
    ck_assert_int_eq(system("python3 run.py"), 0);
    for (int i = 0; i < N_OF(names); i++) converted(names[i]);
}
END_TEST

static void all(TCase *t)
{
    tcase_set_timeout(t, 300);
    tcase_add_loop_test(t, kinds_have_names, 0, KINDS);
    tcase_add_test(t, others_have_none);
    tcase_add_test(t, text_passes_a_byte_order_mark);
    tcase_add_test(t, lists_are_text);
    tcase_add_test(t, text_is_told_from_the_rest);
    tcase_add_test(t, data_are_told_from_pointers_and_pages);
    tcase_add_test(t, weights_of_others);
    tcase_add_test(t, an_index_by_its_own_name);
    tcase_add_test(t, files_of_torch_are_told);
    tcase_add_test(t, what_is_said_converts);
}

int main(void) { return scratch_suite("what files are", all); }
