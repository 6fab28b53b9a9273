/* Letters of 5 x 7 dots for text in pictures. Pure. */
#ifndef DATA_FONT5X7_H
#define DATA_FONT5X7_H
#include <stdbool.h>

enum { LETTER_WIDTH = 5, LETTER_HEIGHT = 7, LETTER_STEP = LETTER_WIDTH + 1 };   /* distance of neighbours' left edges */
/* Is there ink in that row and column of a letter? Anything but printable ASCII looks like a question mark. */
bool letter_dot(char c, int row, int column);

#endif
