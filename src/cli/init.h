/* --init DIR: a first configuration for a folder of pictures, with comments. */
#ifndef CLI_INIT_H
#define CLI_INIT_H
#include "base/text.h"
/* Looks at DIR/train and DIR/val or other names of such parts (split_of), or at DIR itself, at its classes and the
 * sizes of some of its pictures, and writes the configuration into `file`, NULL: NAME.conf by the folder's name, which
 * must not be there. out: gets what is not used there, and what is to be done next. 65, 66, 73, 74 */
int init_write(const char *dir, const char *file, struct text *out, struct err *e);
#endif
