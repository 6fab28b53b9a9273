/* Numbers by name. */
#include <stdio.h>
#include <string.h>
#include "base/name_table.h"
#include "sure.h"

enum { MANY = 5000 };

START_TEST(empty_has_none)
{
    struct name_table t = {0};
    ck_assert_int_eq(name_table_find(&t, ""), -1);
    ck_assert_int_eq(name_table_find(&t, "a"), -1);
    name_table_free(&t);
    ck_assert_int_eq(name_table_find(&t, "a"), -1);
}
END_TEST

START_TEST(each_is_found)
{
    static char name[MANY][16];
    struct name_table t = {0};
    for (int i = 0; i < MANY; i++) {                     /* whatever has been added is there, and nothing else */
        snprintf(name[i], sizeof name[i], "layer%d.%d", i % 7, i);
        ck_assert_int_eq(name_table_find(&t, name[i]), -1);
        name_table_add(&t, name[i], MANY - i);
        ck_assert_int_eq(t.n, i + 1);
    }
    for (int i = 0; i < MANY; i++) {
        char copy[16];
        ck_assert_int_eq(name_table_find(&t, strcpy(copy, name[i])), MANY - i); /* by its bytes, not by its address */
    }
    ck_assert_int_eq(name_table_find(&t, "layer1.0"), -1);
    ck_assert_int_eq(name_table_find(&t, ""), -1);
    name_table_add(&t, "", 0);
    ck_assert_int_eq(name_table_find(&t, ""), 0);
    name_table_free(&t);
}
END_TEST

int main(void)
{
    TCase *t = suite_case("names", 60);
    tcase_add_test(t, empty_has_none);
    tcase_add_test(t, each_is_found);
    return suite_run("names", CK_FORK, t);
}
