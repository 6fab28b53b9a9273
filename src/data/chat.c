/* See chat.h. */
#include <ctype.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include "base/text.h"
#include "data/chat.h"

enum { MAX_TEMPLATE = 1 << 20 };

/* What stands around a message of a role. after: the role before it; NULL: any. */
struct chat_rule { const char *role, *after, *before, *behind; size_t n_before, n_behind; bool first, last; };
struct chat_string { const char *s; size_t n; };
struct chat {
    struct arena *mem;
    const char *generate, *default_role;
    struct chat_string start, content, end;              /* content: of the default message; end: the end token's */
    int64_t end_id;                                      /* -1: none, or it has a text */
    bool trim, ends;
    VEC(struct chat_rule) rule;
};

/* The forms that models of these names were trained with. */
#define EACH_ROLE(rule) rule("system") rule("user") rule("assistant") rule("tool")
#define RULE_CHATML(role) role " \"<|im_start|>" role "\\n\" \"<|im_end|>\\n\"\n"
#define RULE_LLAMA3(role) role " \"<|start_header_id|>" role "<|end_header_id|>\\n\\n\" \"<|eot_id|>\"\n"
#define RULE_ZEPHYR(role) role " \"<|" role "|>\\n\" \"</s>\\n\"\n"
static const struct { const char *name, *text; } built_in[] = {
    {"chatml", EACH_ROLE(RULE_CHATML)},
    {"llama3", "trim\nstart \"<|begin_of_text|>\"\n" EACH_ROLE(RULE_LLAMA3)},
    {"llama2", "trim\nsystem \"<s>[INST] <<SYS>>\\n\" \"\\n<</SYS>>\\n\\n\"\nuser after system \"\" \" [/INST]\"\n"
               "user \"<s>[INST] \" \" [/INST]\"\nassistant \" \" \" </s>\"\n"},
    {"zephyr", EACH_ROLE(RULE_ZEPHYR)},
    {"plain", "ends\nsystem \"\" \"\\n\\n\"\nuser \"User: \" \"\\n\"\nassistant \"Assistant: \" \"\\n\"\n"}};

/* ---- templates --------------------------------------------------------------------------------------------------- */

struct chat_line { const char *file; int line; const char *s; struct chat *c; };

static int line_fail(const struct chat_line *l, const char *why, const char *what, struct err *e)
{
    return err_set(e, E_DATA, "%s:%d: %s%s", l->file, l->line, why, what);
}

static void blanks_skip(struct chat_line *l) { l->s += strspn(l->s, " \t\r"); }

/* The next word of the line; NULL: there is none. */
static const char *word_take(struct chat_line *l)
{
    blanks_skip(l);
    const size_t n = strcspn(l->s, " \t\r\"#");
    const char *s = n ? arena_strndup(l->c->mem, l->s, n) : NULL;
    l->s += n;
    return s;
}

static int string_take(struct chat_line *l, struct chat_string *out, struct err *e)
{
    json_error_t why;
    blanks_skip(l);
    if (*l->s != '"') return line_fail(l, "expected a text in quotation marks", "", e);
    json_t *s = json_loadb(l->s, strlen(l->s), JSON_DECODE_ANY | JSON_DISABLE_EOF_CHECK | JSON_ALLOW_NUL, &why);
    if (!s) return line_fail(l, why.text, "", e);
    *out = (struct chat_string){arena_strndup(l->c->mem, json_string_value(s), json_string_length(s)),
                                json_string_length(s)};
    l->s += why.position;
    json_decref(s);
    return 0;
}

static int role_take(struct chat_line *l, const char **role, struct err *e)
{
    *role = word_take(l);
    return *role ? 0 : line_fail(l, "expected a role", "", e);
}

static int rule_take(struct chat_line *l, const char *role, struct err *e)
{
    struct chat_rule r = {.role = role};
    struct chat_string before, behind;
    for (const char *w; (w = word_take(l)) != NULL;) {
        if (!strcmp(w, "first")) r.first = true;
        else if (!strcmp(w, "last")) r.last = true;
        else if (strcmp(w, "after")) return line_fail(l, "expected first, last or after ROLE, not ", w, e);
        else if (role_take(l, &r.after, e)) return -1;
    }
    if (string_take(l, &before, e) || string_take(l, &behind, e)) return -1;
    r.before = before.s;
    r.n_before = before.n;
    r.behind = behind.s;
    r.n_behind = behind.n;
    *vec_push(&l->c->rule) = r;
    return 0;
}

static int chat_line_take(struct chat_line *l, struct err *e)
{
    const char *word = word_take(l);
    int bad = 0;
    blanks_skip(l);
    if (!word && (!*l->s || *l->s == '#')) return 0;
    if (!word) return line_fail(l, "expected a role, start, generate, default, trim or ends", "", e);
    if (!strcmp(word, "start")) bad = string_take(l, &l->c->start, e);
    else if (!strcmp(word, "generate")) bad = role_take(l, &l->c->generate, e);
    else if (!strcmp(word, "trim")) l->c->trim = true;
    else if (!strcmp(word, "ends")) l->c->ends = true;
    else if (!strcmp(word, "default")) bad = role_take(l, &l->c->default_role, e) || string_take(l, &l->c->content, e);
    else bad = rule_take(l, word, e);
    if (bad) return -1;
    blanks_skip(l);
    return !*l->s || *l->s == '#' ? 0 : line_fail(l, "this is too much: ", l->s, e);
}

static const struct chat_rule *rule_of(const struct chat *c, const char *role)
{
    for (int i = 0; i < c->rule.n; i++) if (!strcmp(c->rule.v[i].role, role)) return &c->rule.v[i];
    return NULL;
}

static int lines_take(struct chat *c, const char *file, char *text, struct err *e)
{
    struct chat_line l = {.file = file, .c = c};
    for (char *s = text, *next; s; s = next) {
        next = strchr(s, '\n');
        if (next) *next++ = '\0';
        l.s = s;
        l.line++;
        if (chat_line_take(&l, e)) return -1;
    }
    if (!rule_of(c, c->generate)) return err_set(e, E_DATA, "%s: has no rule for %s", file, c->generate);
    if (c->default_role && !rule_of(c, c->default_role))
        return err_set(e, E_DATA, "%s: has no rule for %s", file, c->default_role);
    return 0;
}

static int rules_load(const char *of, struct text *t, struct err *e)
{
    struct err why = {0};
    struct text words = {0};
    if (!text_read_file(t, of, MAX_TEMPLATE, &why)) {
        const char *s = t->n ? t->s + strspn(t->s, " \t\r\n") : "";
        if (strncmp(s, "{%", 2) && strncmp(s, "{{", 2) && strncmp(s, "{#", 2)) return 0;
        return err_set(e, E_DATA, "%s: is a Jinja template, no file of rules: render the chats by contrib/render-chats",
                       of);
    }
    for (size_t i = 0; i < sizeof built_in / sizeof *built_in; i++) text_add(&words, ", %s", built_in[i].name);
    if (why.code == E_NOINPUT && !strchr(of, '/')) err_set(e, why.code, "%s; the words are %s", why.text, words.s + 2);
    else err_set(e, why.code, "%s", why.text);
    text_free(&words);
    return -1;
}

int chat_open(const char *of, struct chat **out, struct err *e)
{
    struct chat *c = mem_alloc(sizeof *c);
    struct text t = {0};
    *c = (struct chat){.mem = arena_new(), .generate = "assistant", .start = {"", 0}, .end_id = -1};
    for (size_t i = 0; i < sizeof built_in / sizeof *built_in; i++)
        if (!strcmp(of, built_in[i].name)) text_add(&t, "%s", built_in[i].text);
    int bad = t.n ? 0 : rules_load(of, &t, e);
    if (!bad && t.n && strlen(t.s) < t.n) bad = err_set(e, E_DATA, "%s: byte %zu is zero", of, strlen(t.s));
    if (!bad) text_add(&t, "%s", "");
    if (!bad) bad = lines_take(c, of, t.s, e);
    text_free(&t);
    if (bad) chat_close(c);
    *out = bad ? NULL : c;
    return bad ? -1 : 0;
}

void chat_close(struct chat *c)
{
    if (!c) return;
    vec_free(&c->rule);
    arena_free(c->mem);
    free(c);
}

/* A token that its text does not give, such as 256 beside bytes, stays a number. */
void chat_end_set(struct chat *c, const struct tokenizer *t, int64_t id)
{
    const uint32_t end = (uint32_t)id;
    struct token_ids back = {0};
    struct text s = {0};
    struct err none = {0};
    if (!c->ends || !t || id < 0) return;
    if (id < tokenizer_size(t)) tokenizer_show(t, &end, 1, &s);
    const bool same = s.n && !tokenizer_encode(t, s.s, s.n, false, &back, &none) && back.n == 1 && back.v[0] == end;
    if (same) c->end = (struct chat_string){arena_strndup(c->mem, s.s, s.n), s.n};
    c->end_id = same ? -1 : id;
    vec_free(&back);
    text_free(&s);
}

static bool end_known(const struct chat *c) { return c->end.n || c->end_id >= 0; }

/* ---- rendering --------------------------------------------------------------------------------------------------- */

static void chat_span_add(struct chat_text *out, const char *s, size_t n, bool plain, bool counts)
{
    if (!n) return;
    text_add_bytes(&out->t, s, n);
    *vec_push(&out->span) = (struct text_span){n, plain, counts};
}

/* What stands before a message, but the spaces at its end. */
static size_t before_bare(const struct chat_rule *r)
{
    size_t n = r->n_before;
    while (n && r->before[n - 1] == ' ') n--;
    return n;
}

static void message_add(const struct chat *c, const struct tokenizer *t, const struct chat_rule *r,
                        const struct chat_message *m, struct chat_text *out)
{
    const char *s = m->content, *end = s + m->n;
    const bool counts = !strcmp(m->role, c->generate);
    while (c->trim && s < end && isspace((unsigned char)*s)) s++;
    while (c->trim && s < end && isspace((unsigned char)end[-1])) end--;
    const size_t end_token = counts ? tokenizer_added_end(t, r->behind, r->n_behind, NULL) : 0,
                 stop = counts && !end_token && !end_known(c) ? r->n_behind : end_token,
                 bare = counts ? before_bare(r) : r->n_before;
    chat_span_add(out, r->before, bare, false, false);
    chat_span_add(out, r->before + bare, r->n_before - bare, false, true);
    chat_span_add(out, s, (size_t)(end - s), true, counts);
    if (counts && !end_token) chat_span_add(out, c->end.s, c->end.n, false, true);
    if (counts && !end_token && c->end_id >= 0) *vec_push(&out->end) = out->span.n;
    chat_span_add(out, r->behind, stop, false, counts);
    chat_span_add(out, r->behind + stop, r->n_behind - stop, false, false);
}

/* before: the role before it; NULL: none. */
static const struct chat_rule *rule_fits(const struct chat *c, const char *role, const char *before, bool last,
                                         struct err *e)
{
    for (int k = 0; k < c->rule.n; k++) {
        const struct chat_rule *r = &c->rule.v[k];
        if (!strcmp(r->role, role) && (!r->first || !before) && (!r->last || last) &&
            (!r->after || (before && !strcmp(r->after, before))))
            return r;
    }
    err_set(e, E_DATA, "the role %.60s has no rule in the template; data.chat may be a file of rules", role);
    return NULL;
}

int chat_render(const struct chat *c, const struct tokenizer *t, const struct chat_message *m, int n, bool asks,
                struct chat_text *out, struct err *e)
{
    const struct chat_message other = {c->default_role, c->content.s, c->content.n};
    const bool adds = c->default_role && n && strcmp(m[0].role, c->default_role);
    const char *before = NULL;
    const struct chat_rule *r;
    chat_span_add(out, c->start.s, c->start.n, false, false);
    for (int i = adds ? -1 : 0; i < n; i++, before = r->role) {
        const struct chat_message *x = i < 0 ? &other : &m[i];
        if (!(r = rule_fits(c, x->role, before, i == n - 1 && !asks, e))) return -1;
        message_add(c, t, r, x, out);
    }
    if (!asks) return 0;
    if (!(r = rule_fits(c, c->generate, before, true, e))) return -1;
    chat_span_add(out, r->before, before_bare(r), false, false);
    return 0;
}

const char *chat_ends_badly(const struct chat *c, const struct tokenizer *t, bool *ends)
{
    *ends = c->ends;
    for (int i = 0; i < c->rule.n; i++) {
        const struct chat_rule *r = &c->rule.v[i];
        if (!strcmp(r->role, c->generate) && !end_known(c) && !tokenizer_added_end(t, r->behind, r->n_behind, NULL))
            return r->behind;
    }
    return NULL;
}

int chat_end_of(const char *of, const struct tokenizer *t, int64_t *id, struct err *e)
{
    struct chat *c;
    uint32_t found;
    *id = -1;
    if (chat_open(of, &c, e)) return -1;
    const struct chat_rule *r = rule_of(c, c->generate);
    if (tokenizer_added_end(t, r->behind, r->n_behind, &found)) *id = found;
    chat_close(c);
    return 0;
}

void chat_text_free(struct chat_text *t)
{
    text_free(&t->t);
    vec_free(&t->span);
    vec_free(&t->end);
}
