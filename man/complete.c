/* Completions of command lines. */
#include <string.h>
#include "conf/conf.h"
#include "conf/opts.h"
#include "launcher/cli.h"
#include "launcher/ctl_table.h"
#include "man/complete.h"

/* ---- what follows an option of mpstaged -------------------------------------------------------------------------- */

/* words: what its value may be, "": anything; file: a file; keys: SECTION.KEY=VALUE */
struct value { struct text words; bool file, keys; };

static struct value value_of(const struct opts_row *o)
{
    struct value v = {0};
    if (o->key) conf_words(o->key, &v.file, &v.words);
    else if (o->arg && !strcmp(o->arg, "[=search]")) text_add(&v.words, "search");
    else if (o->arg && !strcmp(o->arg, "FILE")) v.file = true;
    else if (o->arg) v.keys = true;
    if (!v.words.n) text_add(&v.words, "%s", "");
    return v;
}

static void keys_add(struct text *out)
{
    for (int i = 0; conf_key(i); i++) text_add(out, "%s%s=", i ? " " : "", conf_key(i));
}

/* Adds s with each character of `special` behind the text `escape`. */
static void escaped(struct text *out, const char *s, const char *special, const char *escape)
{
    for (; *s; s++) text_add(out, "%s%c", strchr(special, *s) ? escape : "", *s);
}

/* ---- bash -------------------------------------------------------------------------------------------------------- */

static void bash_case(struct text *out, const char *what, const char *words, bool file)
{
    if (file) text_add(out, "    %s) compopt -o filenames; COMPREPLY=($(compgen -f -- \"$cur\")); return ;;\n", what);
    else text_add(out, "    %s) COMPREPLY=($(compgen -W '%s' -- \"$cur\")); return ;;\n", what, words);
}

static void bash_mpstaged(struct text *out)
{
    struct opts_row o;
    struct text all = {0};
    text_add(out, "_mpstaged() {\n    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
                  "    # \"=\" is a word of its own\n    if [[ $cur == = ]]; then cur=\n"
                  "    elif [[ $prev == = ]]; then prev=${COMP_WORDS[COMP_CWORD-2]}; fi\n    case $prev in\n");
    for (int i = 0; opts_row(i, &o); i++) {
        struct text name = {0};
        struct value v = value_of(&o);
        text_add(&name, o.letter ? "-%c|" : "", o.letter);
        text_add(&name, "--%s", o.name);
        text_add(&all, "%s--%s", i ? " " : "", o.name);
        if (v.keys) {
            text_add(out, "    %s) compopt -o nospace; COMPREPLY=($(compgen -W '", name.s);
            keys_add(out);
            text_add(out, "' -- \"$cur\")); return ;;\n");
        } else if (o.arg && *o.arg != '[') bash_case(out, name.s, v.words.s, v.file);
        else if (o.arg) {
            text_add(out, "    %s) if [[ ${COMP_WORDS[COMP_CWORD]} == = || ${COMP_WORDS[COMP_CWORD-1]} == = ]]; then\n"
                          "        COMPREPLY=($(compgen -W '%s' -- \"$cur\")); return; fi ;;\n", name.s, v.words.s);
        }
        text_free(&name);
        text_free(&v.words);
    }
    for (int i = 0; conf_key(i); i++) {
        struct text words = {0};
        bool file;
        conf_words(conf_key(i), &file, &words);
        if (words.n || file) bash_case(out, conf_key(i), words.s, file);
        text_free(&words);
    }
    text_add(out, "    esac\n    COMPREPLY=($(compgen -W '%s' -- \"$cur\"))\n}\n", all.s);
    text_add(out, "complete -F _mpstaged mpstaged\n");
    text_free(&all);
}

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

static void bash_mpstagectl(struct text *out)
{
    text_add(out, "_mpstagectl() {\n    local cur=${COMP_WORDS[COMP_CWORD]} verb= n=0 i\n"
                  "    for ((i = 1; i < COMP_CWORD; i++)); do\n        [[ ${COMP_WORDS[i]} == -* ]] && continue\n"
                  "        case $((n++)) in\n        0) case ${COMP_WORDS[i]} in ");
    verbs_add(out, true, "|");
    text_add(out, ") verb=${COMP_WORDS[i]} ;; esac ;;\n        1) : \"${verb:=${COMP_WORDS[i]}}\" ;;\n"
                  "        esac\n    done\n    if [[ $cur == -* ]]; then\n        case $verb in\n");
    for (int i = 0; i < VERBS; i++) {
        text_add(out, "        %s) COMPREPLY=($(compgen -W '", ctl_verbs[i].name);
        flags_add(out, ctl_verbs[i].options);
        text_add(out, "--help' -- \"$cur\")) ;;\n");
    }
    text_add(out, "        *) COMPREPLY=($(compgen -W '");
    for (const struct ctl_option *o = ctl_options; o->name; o++) text_add(out, "--%s ", o->name);
    text_add(out, "' -- \"$cur\")) ;;\n        esac\n        return\n    fi\n    case $n$verb in\n"
                  "    0) compopt -o filenames; COMPREPLY=($(compgen -d -- \"$cur\") $(compgen -W '");
    verbs_add(out, true, " ");
    text_add(out, "' -- \"$cur\")) ;;\n");
    for (int i = 0; i < VERBS; i++) {
        const struct ctl_verb_info *v = &ctl_verbs[i];
        if (v->files)
            text_add(out, "    1%s) compopt -o filenames; COMPREPLY=($(compgen -d -- \"$cur\")) ;;\n", v->name);
        if (v->words)
            text_add(out, "    2%s) %sCOMPREPLY=($(compgen -W '%s' -- \"$cur\")) ;;\n", v->name,
                     strchr(v->words, '=') ? "compopt -o nospace; " : "", v->words);
    }
    text_add(out, "    1) COMPREPLY=($(compgen -W '");
    verbs_add(out, false, " ");
    text_add(out, "' -- \"$cur\")) ;;\n    esac\n}\ncomplete -F _mpstagectl mpstagectl\n");
}

/* The value of an option of mpstage-run or mpstage-experiment. */
static struct value cli_value(const struct cli_option *o)
{
    struct value v = {.file = o->arg && !strcmp(o->arg, "FILE")};
    bool file;
    if (o->key) conf_words(o->key, &file, &v.words);
    if (!v.words.n) text_add(&v.words, "%s", "");
    return v;
}

static bool is_dir(const struct cli_option *o) { return o->arg && !strcmp(o->arg, "DIR"); }

/* What stands behind -- is another command line, of which a shell completes files here. */
static void bash_cli(const struct cli *c, struct text *out)
{
    struct cli_option o;
    struct text all = {0};
    text_add(out, "_%s() {\n    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} i\n"
                  "    if [[ $cur == = ]]; then cur=\n"
                  "    elif [[ $prev == = ]]; then prev=${COMP_WORDS[COMP_CWORD-2]}; fi\n"
                  "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
                  "        if [[ ${COMP_WORDS[i]} == -- ]]; then\n"
                  "            compopt -o filenames; COMPREPLY=($(compgen -f -- \"$cur\")); return; fi\n"
                  "    done\n    case $prev in\n", c->program);
    for (int i = 0; cli_row(c, i, &o); i++) {
        struct text name = {0};
        struct value v = cli_value(&o);
        text_add(&name, o.letter ? "-%c|" : "", o.letter);
        text_add(&name, "--%s", o.name);
        text_add(&all, "%s--%s", i ? " " : "", o.name);
        if (is_dir(&o))
            text_add(out, "    %s) compopt -o filenames; COMPREPLY=($(compgen -d -- \"$cur\")); return ;;\n", name.s);
        else if (o.arg) bash_case(out, name.s, v.words.s, v.file);
        text_free(&name);
        text_free(&v.words);
    }
    text_add(out, "    esac\n    COMPREPLY=($(compgen -W '%s' -- \"$cur\"))\n}\ncomplete -F _%s %s\n", all.s,
             c->program, c->program);
    text_free(&all);
}

static void bash_run(struct text *out) { bash_cli(&cli_run, out); }
static void bash_experiment(struct text *out) { bash_cli(&cli_experiment, out); }

/* ---- zsh --------------------------------------------------------------------------------------------------------- */

/* In single quotes; brackets and colons mean something to _arguments. */
static void zsh_text(struct text *out, const char *s)
{
    for (; *s; s++) text_add(out, *s == '\'' ? "'\\''" : strchr("[]:\\", *s) ? "\\%c" : "%c", *s);
}

static void zsh_mpstaged(struct text *out)
{
    struct opts_row o;
    text_add(out, "#compdef mpstaged\n_arguments -s");
    for (int i = 0; opts_row(i, &o); i++) {
        struct text help = {0};
        struct value v = value_of(&o);
        bool optional = o.arg && *o.arg == '[';
        opts_text(i, &help);
        text_add(out, " \\\n  ");
        if (o.letter) text_add(out, "%s{-%c,--%s}'", v.keys ? "'*'" : "", o.letter, o.name);
        else text_add(out, "'--%s%s", o.name, optional ? "=-" : o.arg ? "=" : "");
        text_add(out, "[");
        zsh_text(out, help.s);
        text_add(out, "]");
        if (o.arg) text_add(out, "%s:%s:", optional ? ":" : "", optional ? "how" : o.arg);
        if (o.arg && v.keys) {
            text_add(out, "(");
            keys_add(out);
            text_add(out, ")");
        } else if (o.arg && v.file) text_add(out, "_files");
        else if (o.arg && *v.words.s) text_add(out, "(%s)", v.words.s);
        text_add(out, "'");
        text_free(&help);
        text_free(&v.words);
    }
    text_add(out, "\n");
}

static void zsh_mpstagectl(struct text *out)
{
    text_add(out, "#compdef mpstagectl\nlocal verb=$words[3] first=$words[2]\ncase $first in ");
    verbs_add(out, true, "|");
    text_add(out, ") verb=$first ;; esac\nif [[ $PREFIX == -* ]]; then\n  case $verb in\n");
    for (int i = 0; i < VERBS; i++) {
        text_add(out, "  %s) compadd -- ", ctl_verbs[i].name);
        flags_add(out, ctl_verbs[i].options);
        text_add(out, "--help ;;\n");
    }
    text_add(out, "  *) compadd -- ");
    for (const struct ctl_option *o = ctl_options; o->name; o++) text_add(out, "--%s ", o->name);
    text_add(out, ";;\n  esac\n  return\nfi\nif (( CURRENT == 2 )); then\n  compadd -- ");
    verbs_add(out, true, " ");
    text_add(out, "\n  _files -/\nelif (( CURRENT == 3 )) && [[ $verb == $first ]]; then\n  _files -/\n"
                  "elif (( CURRENT == 3 )); then\n  local -a verbs=(");
    for (int i = 0; i < VERBS; i++) {
        if (ctl_verbs[i].files) continue;
        text_add(out, "\n    '%s:", ctl_verbs[i].name);
        zsh_text(out, ctl_verbs[i].help);
        text_add(out, "'");
    }
    text_add(out, ")\n  _describe command verbs\nelif (( CURRENT == 4 )); then\n  case $verb in\n");
    for (int i = 0; i < VERBS; i++)
        if (ctl_verbs[i].words)
            text_add(out, "  %s) compadd %s-- %s ;;\n", ctl_verbs[i].name,
                     strchr(ctl_verbs[i].words, '=') ? "-S '' " : "", ctl_verbs[i].words);
    text_add(out, "  esac\nfi\n");
}

static void zsh_cli(const struct cli *c, struct text *out)
{
    struct cli_option o;
    text_add(out, "#compdef %s\n_arguments -s", c->program);
    for (int i = 0; cli_row(c, i, &o); i++) {
        struct value v = cli_value(&o);
        text_add(out, " \\\n  ");
        if (o.letter) text_add(out, "{-%c,--%s}'", o.letter, o.name);
        else text_add(out, "'--%s%s", o.name, o.arg ? "=" : "");
        text_add(out, "[");
        zsh_text(out, o.help);
        text_add(out, "]");
        if (o.arg) text_add(out, ":%s:", o.arg);
        if (is_dir(&o)) text_add(out, "_files -/");
        else if (v.file) text_add(out, "_files");
        else if (*v.words.s) text_add(out, "(%s)", v.words.s);
        text_add(out, "'");
        text_free(&v.words);
    }
    text_add(out, c->stops ? " \\\n  '*:::command:_normal'\n" : " \\\n  '*:file:_files'\n");
}

static void zsh_run(struct text *out) { zsh_cli(&cli_run, out); }
static void zsh_experiment(struct text *out) { zsh_cli(&cli_experiment, out); }

/* ---- fish -------------------------------------------------------------------------------------------------------- */

static void fish_text(struct text *out, const char *s)
{
    text_add(out, " -d '");
    escaped(out, s, "'\\", "\\");
    text_add(out, "'\n");
}

static void fish_mpstaged(struct text *out)
{
    struct opts_row o;
    text_add(out, "complete -c mpstaged -f\n");
    for (int i = 0; opts_row(i, &o); i++) {
        struct text help = {0};
        struct value v = value_of(&o);
        opts_text(i, &help);
        text_add(out, "complete -c mpstaged -l %s", o.name);
        text_add(out, o.letter ? " -s %c" : "", o.letter);
        if (v.keys) {
            text_add(out, " -x -a '");
            keys_add(out);
            text_add(out, "'");
        } else if (o.arg && v.file) text_add(out, " -r -F");
        else if (o.arg && *o.arg == '[') text_add(out, " -a '%s'", v.words.s);
        else if (o.arg) text_add(out, *v.words.s ? " -x -a '%s'" : " -x", v.words.s);
        fish_text(out, help.s);
        text_free(&help);
        text_free(&v.words);
    }
}

static void fish_mpstagectl(struct text *out)
{
    text_add(out, "complete -c mpstagectl -f\n"
                  "# how many words without a dash stand before the cursor, the program itself among them\n"
                  "function __mpstagectl_at\n    set -l words (commandline -opc | string match -v -- '-*')\n"
                  "    test (count $words) -eq $argv[1]\nend\n"
                  "complete -c mpstagectl -n '__mpstagectl_at 1' -a '(__fish_complete_directories)'\n");
    for (int i = 0; i < VERBS; i++) {
        const struct ctl_verb_info *v = &ctl_verbs[i];
        text_add(out, "complete -c mpstagectl -n '__mpstagectl_at %d", v->files ? 1 : 2);
        if (!v->files) {
            text_add(out, "; and not __fish_seen_subcommand_from ");
            verbs_add(out, true, " ");
        }
        text_add(out, "' -a %s", v->name);
        fish_text(out, v->help);
        if (v->files)
            text_add(out, "complete -c mpstagectl -n '__mpstagectl_at 2; and __fish_seen_subcommand_from %s' "
                          "-a '(__fish_complete_directories)'\n", v->name);
        if (v->words)
            text_add(out, "complete -c mpstagectl -n '__mpstagectl_at 3; and __fish_seen_subcommand_from %s' -a '%s'\n",
                     v->name, v->words);
    }
    for (const struct ctl_option *o = ctl_options; o->name; o++) {
        text_add(out, "complete -c mpstagectl -l %s", o->name);
        text_add(out, o->letter ? " -s %c" : "", o->letter);
        if (!o->letter) text_add(out, " -n '__fish_seen_subcommand_from");
        for (int i = 0; !o->letter && i < VERBS; i++)
            if (ctl_listed(ctl_verbs[i].options, o->name)) text_add(out, " %s", ctl_verbs[i].name);
        if (!o->letter) text_add(out, "'");
        fish_text(out, o->help);
    }
}

static void fish_cli(const struct cli *c, struct text *out)
{
    struct cli_option o;
    text_add(out, c->stops ? "" : "complete -c %s -f\n", c->program);
    for (int i = 0; cli_row(c, i, &o); i++) {
        struct value v = cli_value(&o);
        text_add(out, "complete -c %s -l %s", c->program, o.name);
        text_add(out, o.letter ? " -s %c" : "", o.letter);
        if (is_dir(&o)) text_add(out, " -x -a '(__fish_complete_directories)'");
        else if (v.file) text_add(out, " -r -F");
        else if (o.arg) text_add(out, *v.words.s ? " -x -a '%s'" : " -x", v.words.s);
        fish_text(out, o.help);
        text_free(&v.words);
    }
}

static void fish_run(struct text *out) { fish_cli(&cli_run, out); }
static void fish_experiment(struct text *out) { fish_cli(&cli_experiment, out); }

bool complete(const char *shell, const char *program, struct text *out)
{
    static const struct { const char *shell, *program; void (*print)(struct text *out); } known[] = {
        {"bash", "mpstaged", bash_mpstaged}, {"bash", "mpstagectl", bash_mpstagectl},
        {"zsh", "mpstaged", zsh_mpstaged},   {"zsh", "mpstagectl", zsh_mpstagectl},
        {"fish", "mpstaged", fish_mpstaged}, {"fish", "mpstagectl", fish_mpstagectl},
        {"bash", "mpstage-run", bash_run},   {"bash", "mpstage-experiment", bash_experiment},
        {"zsh", "mpstage-run", zsh_run},     {"zsh", "mpstage-experiment", zsh_experiment},
        {"fish", "mpstage-run", fish_run},   {"fish", "mpstage-experiment", fish_experiment},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(known[i].shell, shell) || strcmp(known[i].program, program)) continue;
        known[i].print(out);
        return true;
    }
    return false;
}
