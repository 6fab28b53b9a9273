/* Requests to the control socket: an error is one line; an accepted request has everything that its command needs. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "service/ctl_request.h"

static void must(bool right) { if (!right) abort(); }

static void one_line(const struct err *e)
{
    must(e->code == E_USAGE && *e->text);
    for (const char *s = e->text; *s; s++) must((unsigned char)*s >= 0x20);
}

/* A number that was given reads back as the same. */
static void number_check(const struct ctl_request *r)
{
    json_t *x = json_loads(r->number, JSON_DECODE_ANY, NULL);
    must(x && json_number_value(x) == json_number_value(json_object_get(r->all, "value")));
    json_decref(x);
}

static void accepted(const struct ctl_request *r)
{
    must(ctl_command_name(r->command) != NULL);
    must((r->command == CTL_STATUS) == r->reads);
    must((r->command == CTL_SET) == (r->key && r->value));
    must((r->command == CTL_LOG_LEVEL) == (r->level != NULL));
    must(!r->wait || r->command == CTL_STOP || r->command == CTL_CHECKPOINT);
    must(!r->checkpoint || r->command == CTL_STOP);
    if (r->value == r->number) number_check(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ctl_request r;
    struct err e = {0};
    if (ctl_request_parse((const char *)data, size, &r, &e)) one_line(&e);
    else accepted(&r);
    must(!r.id || json_object_get(r.all, "id") == r.id);
    ctl_request_free(&r);
    return 0;
}
