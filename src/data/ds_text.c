/* data.source = text: the format's functions are those of ds_tokens.c, which has ds_text beside ds_tokens. */
#include "data/ds_int.h"
