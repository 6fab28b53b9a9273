/* device: prints cuDNN's description of the first GPU as JSON on standard output. Another machine can use it to build
 * plans for that GPU. */
#include <stdio.h>
#include <stdlib.h>
#include "backend/cuda/dnn.h"

int main(void)
{
    struct err e = {0};
    struct dnn *d = NULL;
    char *text = dnn_open(0, NULL, NULL, NULL, &d, &e) ? NULL : dnn_properties(d, &e);
    if (text) puts(text);
    else fprintf(stderr, "device: %s\n", e.text);
    free(text);
    dnn_close(d);
    return e.code;
}
