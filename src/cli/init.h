/* --init DIR: writes a first configuration, with comments, for a folder of pictures. */
#ifndef CLI_INIT_H
#define CLI_INIT_H
#include "base/text.h"
/* Looks at DIR/train and DIR/val, or other names of these parts (split_of), or at DIR itself: its classes and the sizes
 * of some pictures. Writes the configuration to `file`; NULL: NAME.conf by the folder's name, which must not exist.
 * out: gets what is not used, and the next command. 65, 66, 73, 74 */
int init_write(const char *dir, const char *file, struct text *out, struct err *e);
#endif
