#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "files.h"
#include "sure.h"

static char dir[32];

void scratch_enter(void)
{
    snprintf(dir, sizeof dir, "/tmp/mpstaged-test.XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    ck_assert_int_eq(chdir(dir), 0);
}

void scratch_leave(void)
{
    char command[64];
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    ck_assert_int_eq(chdir("/"), 0);
    ck_assert_int_eq(system(command), 0);
}

int scratch_suite(const char *name, void (*add)(TCase *t))
{
    TCase *t = suite_case("all", 60);
    tcase_add_unchecked_fixture(t, scratch_enter, scratch_leave);
    add(t);
    return suite_run(name, CK_FORK, t);
}

void put(const char *path, const void *p, size_t n)
{
    FILE *f = fopen(path, "wb");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(p, 1, n, f), n);
    ck_assert_int_eq(fclose(f), 0);
}

void put_text(const char *path, const char *s) { put(path, s, strlen(s)); }

void expect(const struct err *e, int code, const char *words)
{
    ck_assert_msg(e->code == code && says(e->text, words), "error %d \"%s\", expected %d \"%s\"", e->code, e->text,
                  code, words);
    ck_assert_msg(!strchr(e->text, '\n'), "the text has several lines");
}
