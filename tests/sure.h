/* Check's assertions note every success, and the suite's process reads all notes of a test back in time that grows with
 * the square of their number. For loops over many values: nothing is noted but a failure. */
#ifndef TESTS_SURE_H
#define TESTS_SURE_H
#include <check.h>
#define sure(condition, ...) do { if (!(condition)) ck_abort_msg(__VA_ARGS__); } while (0)
#endif
