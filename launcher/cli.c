/* Reads a command line by its table. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include "cli.h"
#include "config.h"

enum { FIRST = 256, MOST = 32 };                         /* FIRST: getopt's value for index 0 */

static int finished(const struct cli *c, int index, struct err *e)
{
    struct text t = {0};
    if (index == c->n) cli_help(c, &t);
    else text_add(&t, "%s %s\n", c->program, PACKAGE_VERSION);
    fputs(t.s, stdout);
    text_free(&t);
    return text_output_end(e) ? CLI_WRONG : CLI_FINISHED;
}

int cli_next(const struct cli *c, int argc, char **argv, struct err *e)
{
    struct option option[MOST + 1] = {{0}};
    char letters[2 * MOST + 3];
    struct cli_option o;
    int n = snprintf(letters, sizeof letters, "%s:", c->stops ? "+" : "");
    for (int i = 0; i < MOST && cli_row(c, i, &o); i++) {
        option[i] = (struct option){o.name, o.arg != NULL, NULL, FIRST + i};
        if (o.letter)
            n += snprintf(letters + n, sizeof letters - (size_t)n, "%c%s", o.letter, o.arg ? ":" : "");
    }
    opterr = 0;
    int got = getopt_long(argc, argv, letters, option, NULL);
    if (got < 0) return CLI_END;
    if (got == ':') return err_set(e, E_USAGE, "%s needs a value", argv[optind - 1]), CLI_WRONG;
    if (got == '?') {                                     /* an unknown letter may stand behind others */
        const char letter[] = {'-', (char)optopt, 0};
        const char *what = optopt > 0 && optopt < FIRST ? letter : argv[optind - 1];
        return err_set(e, E_USAGE, "unknown option %s (see %s --help)", what, c->program), CLI_WRONG;
    }
    int index = got - FIRST;
    for (int i = 0; got < FIRST && cli_row(c, i, &o); i++) if (o.letter == got) index = i;
    return index >= c->n ? finished(c, index, e) : index;
}

int cli_count(const char *option, const char *text, int least, int *out, struct err *e)
{
    const long BILLION = 1000000000;
    char *end;
    long v = strtol(text, &end, 10);
    if (end == text || *end || v < least || v > BILLION)
        return err_set(e, E_USAGE, "%s: \"%s\" is not a whole number from %d", option, text, least);
    *out = (int)v;
    return 0;
}
