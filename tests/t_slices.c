/* Slices of volumes with outlines: which slice, the positions of its voxels, and its colours. */
#include <string.h>
#include "data/slices.h"
#include "files.h"

enum { X = 5, Y = 4, Z = 3 };
static float values[X * Y * Z];
static uint8_t truth[X * Y * Z], guess[X * Y * Z];

static int place(int x, int y, int z) { return (x * Y + y) * Z + z; }

static struct slices made(void)
{
    memset(truth, 0, sizeof truth);
    memset(guess, 0, sizeof guess);
    for (int x = 0; x < X; x++)
        for (int y = 0; y < Y; y++)
            for (int z = 0; z < Z; z++) values[place(x, y, z)] = (float)(x + X * y) / (X * Y - 1);
    return (struct slices){values, truth, guess, {X, Y, Z}};
}

START_TEST(slices_finds_the_fullest)
{
    struct slices s = made();
    ck_assert_int_eq(slices_best(&s), 1);
    guess[place(0, 0, 0)] = 1;
    ck_assert_int_eq(slices_best(&s), 1);                /* of the truth */
    s.truth = NULL;
    ck_assert_int_eq(slices_best(&s), 0);
    guess[place(0, 0, 1)] = guess[place(3, 3, 2)] = guess[place(2, 3, 2)] = 2;
    ck_assert_int_eq(slices_best(&s), 2);
    guess[place(2, 0, 1)] = 1;
    ck_assert_int_eq(slices_best(&s), 1);
    s.guess = NULL;
    ck_assert_int_eq(slices_best(&s), 1);
}
END_TEST

static void is(const uint8_t *rgb, int width, int row, int column, const uint8_t want[3])
{
    const uint8_t *p = rgb + 3 * (row * width + column);
    ck_assert_msg(!memcmp(p, want, 3), "%d, %d: %d %d %d", row, column, p[0], p[1], p[2]);
}

START_TEST(slices_draws_outlines)
{
    static const uint8_t black[3], white[3] = {255, 255, 255}, red[3] = {255, 0, 0}, green[3] = {0, 255, 0},
                         yellow[3] = {255, 255, 0};
    struct slices s = made();
    uint8_t rgb[6 * 9 * 3];
    memset(rgb, 7, sizeof rgb);
    /* truth: x 0 to 2, y 0 to 2; guess: x 1 to 3, all y; so 1, 1 is inside of the truth, on the guess's outline */
    for (int x = 0; x < X; x++)
        for (int y = 0; y < Y; y++) {
            truth[place(x, y, 1)] = x < 3 && y < 3;
            guess[place(x, y, 1)] = x > 0 && x < 4;
        }
    slices_draw(&s, 1, rgb, 6, 9);                       /* the slice is columns 2 to 6, rows 1 to 4, y up */
    for (int i = 0; i < 9; i++) {
        is(rgb, 9, 0, i, black);
        is(rgb, 9, 5, i, black);
    }
    is(rgb, 9, 2, 1, black);
    is(rgb, 9, 2, 7, black);
    is(rgb, 9, 4, 2, black);                             /* 0, 0: what lies outside of the picture is no other class */
    is(rgb, 9, 2, 2, green);                             /* 0, 2 */
    is(rgb, 9, 2, 4, green);                             /* 2, 2: within the guess */
    is(rgb, 9, 2, 3, yellow);                            /* 1, 2 */
    is(rgb, 9, 3, 3, red);                               /* 1, 1 */
    is(rgb, 9, 1, 5, red);                               /* 3, 3 */
    is(rgb, 9, 1, 6, white);                             /* 4, 3: the greatest value */
    is(rgb, 9, 3, 6, (uint8_t[]){121, 121, 121});        /* 4, 1: 9 of 19 */
    s.truth = NULL;
    slices_draw(&s, 1, rgb, 2, 3);                       /* less room: x 1 to 3, y 1 and 2 */
    is(rgb, 3, 0, 0, red);
    is(rgb, 3, 1, 1, (uint8_t[]){94, 94, 94});           /* 2, 1: 7 of 19 */
}
END_TEST

static void all(TCase *t)
{
    tcase_add_test(t, slices_finds_the_fullest);
    tcase_add_test(t, slices_draws_outlines);
}

int main(void) { return scratch_suite("slices", all); }
