/* Texts and scales for pictures and pages: SVG and HTML that is well-formed XML. Pure, any thread. */
#ifndef BASE_MARKUP_H
#define BASE_MARKUP_H
#include "base/text.h"

/* Appends any text so that it stays text, in an element or a quoted attribute. What XML may not have, or would not
 * show, is printed as text_printable does. */
void markup_text(struct text *t, const char *s);
/* Distance of the ticks of an axis: 1, 2 or 5 times a power of ten, so that at most `most` fit into span. */
double markup_tick(double span, int most);
#endif
