/* --init DIR and --init-lm PATH: write a first configuration, with comments. One thread. */
#ifndef CLI_INIT_H
#define CLI_INIT_H
#include "base/text.h"
/* For a folder of pictures. Looks at DIR/train and DIR/val, or other names of these parts (split_of), or at DIR itself:
 * its classes and the sizes of some pictures. Writes the configuration to `file`; NULL: NAME.conf by the folder's name,
 * which must not exist. out: gets what is not used, and the next command. 65, 66, 73, 74 */
int init_write(const char *dir, const char *file, struct text *out, struct err *e);
/* For a language model: a text, a folder of texts (*.txt) or a file of records (*.jsonl), to learn from scratch, or a
 * folder of Hugging Face, to fine-tune. The same, and 78: a network that is not built. */
int init_lm_write(const char *path, const char *file, struct text *out, struct err *e);

/* ---- shared by both ---- */
/* The last part of a path without `end`, for a name of a run; `otherwise` if it has none. The caller frees it. */
char *init_name(const char *path, const char *end, const char *otherwise);
void init_path_add(struct text *t, const char *s);       /* as a string of the configuration */
int init_file(const char *file, const struct text *conf, struct err *e);   /* a new file. 73, 74 */
#endif
