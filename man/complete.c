/* Completions of command lines. */
#include <string.h>
#include "conf/conf.h"
#include "conf/opts.h"
#include "launcher/cli.h"
#include "launcher/ctl_table.h"
#include "man/complete.h"

/* Adds a command that offers words, or files (f) and folders (d). option: of compopt, or NULL. */
static void offer(struct text *out, const char *option, const char *from, const char *words)
{
    if (option) text_add(out, "compopt -o %s; ", option);
    text_add(out, "COMPREPLY=($(compgen -%s", from);
    if (words) text_add(out, " '%s'", words);
    text_add(out, " -- \"$cur\"))");
}

static void keys_offer(struct text *out)
{
    struct text all = {0};
    for (int i = 0; conf_key(i); i++) text_add(&all, "%s%s=", i ? " " : "", conf_key(i));
    offer(out, "nospace", "W", all.s);
    text_free(&all);
}

/* What may follow the option or setting `key` of the configuration: words, a file, or, with "" offered, anything. */
static void value_offer(struct text *out, const char *key)
{
    struct text words = {0};
    bool file;
    conf_words(key, &file, &words);
    if (file) offer(out, "filenames", "f", NULL);
    else offer(out, NULL, "W", words.n ? words.s : "");
    text_free(&words);
}

/* zsh's bashcompinit does not split a word at "=", has no compopt, and takes a space only from the end of a reply. It
 * calls the function in a subshell, so what is changed there ends with it. */
static void complete_add(struct text *out, const char *program)
{
    text_add(out, "if [[ -z ${ZSH_VERSION-} ]]; then complete -F _%s %s; return; fi\n_%s_zsh() {\n"
                  "    local word=${COMP_WORDS[COMP_CWORD]} before= i\n    compopt() { :; }\n"
                  "    if [[ $word == *=* ]]; then\n        before=${word%%=*}=\n        PREFIX=${PREFIX##*=}\n"
                  "        i=${word%%=*}\n        COMP_WORDS[COMP_CWORD]=${i##*=}\n"
                  "        COMP_WORDS[COMP_CWORD+1]='='\n        COMP_WORDS[COMP_CWORD+2]=${word##*=}\n"
                  "        ((COMP_CWORD += 2))\n    fi\n    _%s\n"
                  "    for ((i = 0; i < ${#COMPREPLY[@]}; i++)); do\n        word=${COMPREPLY[i]}\n"
                  "        if [[ -d $word ]]; then word+=/; elif [[ $word != *= ]]; then word+=' '; fi\n"
                  "        COMPREPLY[i]=$before$word\n    done\n}\ncomplete -o nospace -F _%s_zsh %s\n",
             program, program, program, program, program, program);
}

/* ---- programs with options --------------------------------------------------------------------------------------- */

static bool row_of(const struct cli *c, int i, struct opts_row *row)
{
    struct cli_option o;
    if (!cli_row(c, i, &o)) return false;
    *row = (struct opts_row){o.name, o.arg, o.key, o.letter};
    return true;
}

static bool run_row(int i, struct opts_row *row) { return row_of(&cli_run, i, row); }
static bool experiment_row(int i, struct opts_row *row) { return row_of(&cli_experiment, i, row); }
static bool tokens_row(int i, struct opts_row *row) { return row_of(&cli_tokens, i, row); }

/* Offers the words of "this|that". */
static void words_offer(struct text *out, const char *arg)
{
    struct text words = {0};
    text_add(&words, "%s", arg);
    for (char *c = words.s; *c; c++) if (*c == '|') *c = ' ';
    offer(out, NULL, "W", words.s);
    text_free(&words);
}

static bool two_words(const struct opts_row *o) { return o->arg && !strcmp(o->arg, "RUN RUN"); }

/* Adds what to do where the second word of an option's two is due. */
static void second_word(struct text *out, const struct opts_row *o)
{
    text_add(out, "    if ((COMP_CWORD > 2)) && [[ $cur != -* && ${COMP_WORDS[COMP_CWORD-2]} == --%s ]]; then ",
             o->name);
    offer(out, "filenames", "d", NULL);
    text_add(out, "; return; fi\n");
}

/* Adds what to do behind an option with an argument; one that may be left out stands behind "=". */
static void option_case(struct text *out, const struct opts_row *o)
{
    bool optional = *o->arg == '[';
    text_add(out, o->letter ? "    -%c|" : "    ", o->letter);
    text_add(out, "--%s) ", o->name);
    if (optional)
        text_add(out, "if [[ ${COMP_WORDS[COMP_CWORD]} == = || ${COMP_WORDS[COMP_CWORD-1]} == = ]]; then\n        ");
    if (o->key) value_offer(out, o->key);
    else if (!strcmp(o->arg, "[=search]")) offer(out, NULL, "W", "search");
    else if (!strcmp(o->arg, "FILE") || !strcmp(o->arg, "PATH")) offer(out, "filenames", "f", NULL);
    else if (!strcmp(o->arg, "DIR") || two_words(o)) offer(out, "filenames", "d", NULL);
    else if (strstr(o->arg, "KEY=")) keys_offer(out);
    else if (strchr(o->arg, '|')) words_offer(out, o->arg);
    else offer(out, NULL, "W", "");
    text_add(out, optional ? "; return; fi ;;\n" : "; return ;;\n");
}

static void setting_case(struct text *out, const char *key)
{
    struct text words = {0};
    bool file;
    conf_words(key, &file, &words);
    if (words.n || file) {
        text_add(out, "    %s) ", key);
        value_offer(out, key);
        text_add(out, "; return ;;\n");
    }
    text_free(&words);
}

static void function_begin(struct text *out, const char *program)
{
    text_add(out, "_%s() {\n    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} i\n"
                  "    # \"=\" is a word of its own\n    if [[ $cur == = ]]; then cur=\n"
                  "    elif [[ $prev == = ]]; then prev=${COMP_WORDS[COMP_CWORD-2]}; fi\n", program);
}

/* What stands behind -- is another command line, of which files are completed here. files: other words are, too. */
static void options_complete(struct text *out, const char *program, bool (*row)(int i, struct opts_row *row),
                             bool settings, bool files)
{
    struct opts_row o;
    struct text all = {0};
    function_begin(out, program);
    text_add(out, "    for ((i = 1; i < COMP_CWORD; i++)); do\n        if [[ ${COMP_WORDS[i]} == -- ]]; then ");
    offer(out, "filenames", "f", NULL);
    text_add(out, "; return; fi\n    done\n");
    for (int i = 0; row(i, &o); i++) if (two_words(&o)) second_word(out, &o);
    text_add(out, "    case $prev in\n");
    for (int i = 0; row(i, &o); i++) {
        text_add(&all, "%s--%s", i ? " " : "", o.name);
        if (o.arg) option_case(out, &o);
    }
    for (int i = 0; settings && conf_key(i); i++) setting_case(out, conf_key(i));
    text_add(out, "    esac\n    ");
    if (files) {
        text_add(out, "if [[ $cur != -* ]]; then ");
        offer(out, "filenames", "f", NULL);
        text_add(out, "; return; fi\n    ");
    }
    offer(out, NULL, "W", all.s);
    text_add(out, "\n}\n");
    text_free(&all);
}

/* ---- mpstagectl -------------------------------------------------------------------------------------------------- */

/* Adds the names of commands: those that look at files, or the others. */
static void verbs_add(struct text *out, bool files, const char *between)
{
    for (int i = 0, n = 0; i < VERBS; i++)
        if (ctl_verbs[i].files == files) text_add(out, "%s%s", n++ ? between : "", ctl_verbs[i].name);
}

/* Adds "--json --wait" of "json wait". */
static void flags_add(struct text *out, const char *names)
{
    for (const char *s = names; *s; s += strcspn(s, " "), s += strspn(s, " "))
        text_add(out, "--%.*s ", (int)strcspn(s, " "), s);
}

static void ctl_complete(struct text *out)
{
    struct opts_row row;
    function_begin(out, "mpstagectl");
    text_add(out, "    local verb= n=0\n    case $prev in\n");
    for (int i = 0; row_of(&cli_ctl, i, &row); i++) if (row.arg) option_case(out, &row);
    text_add(out, "    esac\n    for ((i = 1; i < COMP_CWORD; i++)); do\n        [[ ${COMP_WORDS[i]} == [-=]* || "
                  "${COMP_WORDS[i-1]} == =");
    for (int i = 0; row_of(&cli_ctl, i, &row); i++)
        if (row.arg) text_add(out, " || ${COMP_WORDS[i-1]} == --%s", row.name);
    text_add(out, " ]] && continue\n        case $((n++)) in\n        0) case ${COMP_WORDS[i]} in ");
    verbs_add(out, true, "|");
    text_add(out, ") verb=${COMP_WORDS[i]} ;; esac ;;\n        1) : \"${verb:=${COMP_WORDS[i]}}\" ;;\n"
                  "        esac\n    done\n    if [[ $cur == -* ]]; then\n        case $verb in\n");
    for (int i = 0; i < VERBS; i++) {
        text_add(out, "        %s) COMPREPLY=($(compgen -W '", ctl_verbs[i].name);
        flags_add(out, ctl_verbs[i].options);
        text_add(out, "--help' -- \"$cur\")) ;;\n");
    }
    text_add(out, "        *) COMPREPLY=($(compgen -W '");
    struct cli_option o;
    for (int i = 0; cli_row(&cli_ctl, i, &o); i++) text_add(out, "--%s ", o.name);
    text_add(out, "' -- \"$cur\")) ;;\n        esac\n        return\n    fi\n    case $n$verb in\n"
                  "    0) compopt -o filenames; COMPREPLY=($(compgen -d -- \"$cur\") $(compgen -W '");
    verbs_add(out, true, " ");
    text_add(out, "' -- \"$cur\")) ;;\n");
    for (int i = 0; i < VERBS; i++) {
        const struct ctl_verb_info *v = &ctl_verbs[i];
        if (!v->files && !v->words) continue;
        text_add(out, "    %d%s) ", v->files ? 1 : 2, v->name);
        if (v->files) offer(out, "filenames", "d", NULL);
        else offer(out, strchr(v->words, '=') ? "nospace" : NULL, "W", v->words);
        text_add(out, " ;;\n");
    }
    text_add(out, "    1) COMPREPLY=($(compgen -W '");
    verbs_add(out, false, " ");
    text_add(out, "' -- \"$cur\")) ;;\n    esac\n}\n");
}

bool complete(const char *program, struct text *out)
{
    if (!strcmp(program, "mpstaged")) options_complete(out, program, opts_row, true, false);
    else if (!strcmp(program, "mpstage-run")) options_complete(out, program, run_row, false, false);
    else if (!strcmp(program, "mpstage-experiment")) options_complete(out, program, experiment_row, false, false);
    else if (!strcmp(program, "mpstage-tokens")) options_complete(out, program, tokens_row, false, true);
    else if (!strcmp(program, "mpstagectl")) ctl_complete(out);
    else return false;
    complete_add(out, program);
    return true;
}
