/* For sheet.c and its letters. */
#ifndef DATA_SHEET_INT_H
#define DATA_SHEET_INT_H
#include <stdint.h>

enum { SHEET_LETTERS = 95, SHEET_LETTER_HEIGHT = 7, SHEET_LETTER_WIDTH = 5 };
extern const uint8_t sheet_font[SHEET_LETTERS][SHEET_LETTER_HEIGHT];

#endif
