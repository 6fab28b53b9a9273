/* Names that may not be UTF-8, as JSON. */
#include <stdlib.h>
#include <string.h>
#include "base/mem.h"
#include "base/text.h"
#include "report/json_name.h"

json_t *json_name(const char *s)
{
    size_t space = 8 * strlen(s) + 1;
    char *clean = mem_alloc(space);
    json_t *o = json_string(s);
    if (!o) o = json_string(text_printable(s, clean, space));
    free(clean);
    return o;
}
