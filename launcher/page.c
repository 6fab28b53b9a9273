/* The page as a whole: its style, summary, events, messages, environment and configuration. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cluster/failure.h"
#include "page.h"

static const char style[] =
    ":root{color-scheme:light dark;--fg:#222;--bg:#fff;--mute:#555;--rule:#ccc;--box:#f4f4f4;--link:#0b5394;\n"
    "--train:#0072b2;--test:#c04f00;--bad:#a4131d;--hatch:#888}\n"
    "@media(prefers-color-scheme:dark){:root{--fg:#e6e6e6;--bg:#16181b;--mute:#b4b4b4;--rule:#4a4d52;--box:#22252a;\n"
    "--link:#8ec5ff;--train:#56b4e9;--test:#e69f00;--bad:#ff9a94;--hatch:#999}}\n"
    "*{box-sizing:border-box}body{margin:0;font:16px/1.5 sans-serif;color:var(--fg);background:var(--bg)}\n"
    "header,nav,main,footer{max-width:76rem;margin:0 auto;padding:0 1rem}a{color:var(--link)}\n"
    "h1{font-size:1.7rem;line-height:1.2;margin:1rem 0 .4rem}h3{font-size:1rem;margin:0}\n"
    "h2{font-size:1.25rem;margin:2.2rem 0 .6rem;border-bottom:1px solid var(--rule)}\n"
    "h1,h3,p,li,.d{overflow-wrap:anywhere}p{max-width:60rem;margin:.5rem 0}.lead{font-size:1.1rem}\n"
    ".state{display:inline-block;padding:.1em .6em;border:2px solid;border-radius:.3em;font-weight:bold}\n"
    ".bad,.warn{color:var(--bad)}.none{color:var(--mute);font-style:italic}footer{color:var(--mute);margin:2rem auto}\n"
    "nav ul,.keys{display:flex;flex-wrap:wrap;gap:.2rem 1.2rem;padding:0;margin:.6rem 0;list-style:none}\n"
    ".wide{overflow-x:auto;margin:.8rem 0;max-width:100%}table{border-collapse:collapse;font-size:.92rem}\n"
    "caption{text-align:left;font-weight:bold;padding:.2rem 0}thead th{background:var(--box)}\n"
    "th,td{border:1px solid var(--rule);padding:.2em .55em;text-align:left;vertical-align:top;min-width:3.4em}\n"
    "thead th,td.n{white-space:nowrap}td.n{text-align:right;font-variant-numeric:tabular-nums}\n"
    "th[scope=row]{font-weight:normal}\n"
    "pre{background:var(--box);padding:.6em;white-space:pre-wrap;overflow-wrap:anywhere;margin:.3rem 0}\n"
    ".charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,27rem),1fr));gap:1.2rem 2rem}\n"
    ".cols{columns:24rem;column-gap:2rem}.cols .wide{break-inside:avoid;margin:0 0 1rem}.cols td{min-width:8em}\n"
    "figure{margin:0;break-inside:avoid}figcaption p{margin:0;font-size:.85rem;color:var(--mute)}\n"
    "svg{display:block;width:100%;height:auto;font:13px sans-serif}svg.bars{max-width:42rem}text{fill:var(--fg)}\n"
    "@media(max-width:30rem){svg{font-size:15px}}text.y{text-anchor:end}text.x,text.in{text-anchor:middle}\n"
    ".grid{stroke:var(--rule)}.axis{stroke:var(--mute)}.mark{stroke:var(--mute);stroke-dasharray:2 3}\n"
    ".line{fill:none;stroke-width:1.6;stroke-linejoin:round}.band{fill-opacity:.25;stroke-opacity:.4;stroke-width:.6}\n"
    ".train{stroke:var(--train)}.test{stroke:var(--test)}.line.test{stroke-dasharray:6 3}\n"
    ".band.train,.dot.train{fill:var(--train)}.band.test,.dot.test{fill:var(--test)}\n"
    ".hatch{stroke:var(--hatch);stroke-width:1.2}rect{stroke:var(--bg);stroke-width:.5}\n"
    ".key{display:inline-block;width:1.5em;text-align:center;font-weight:bold;border:1px solid var(--mute)}\n"
    ".pF{fill:#0072b2;background:#0072b2;color:#fff}.pB{fill:#56b4e9;background:#56b4e9;color:#000}\n"
    ".pW{fill:#009e73;background:#009e73;color:#000}.pR{fill:#cc79a7;background:#cc79a7;color:#000}\n"
    ".pO{fill:#f0e442;background:#f0e442;color:#000}.pT{fill:#e69f00;background:#e69f00;color:#000}\n"
    ".pL{fill:#d55e00;background:#d55e00;color:#000}.po{fill:#aaa;background:#aaa;color:#000}\n"
    ".key.p_{color:transparent;background:repeating-linear-gradient(135deg,var(--bg) 0 3px,var(--hatch) 3px 4px)}\n"
    "text.in{fill:#000;font-size:11px}text.in.pF{fill:#fff}\n"
    "text.in.p_{fill:var(--fg);stroke:var(--bg);stroke-width:3px;paint-order:stroke}\n"
    ":focus-visible{outline:3px solid var(--link);outline-offset:2px}\n"
    "@media print{nav{display:none}.wide{overflow:visible}\n"
    "body{font-size:10pt;print-color-adjust:exact}a{color:inherit}h2,h3{break-after:avoid}table{font-size:8pt}\n"
    ".charts{grid-template-columns:1fr 1fr}.cols{columns:2}}\n";

/* ---- shared ------------------------------------------------------------------------------------------------------ */

const json_t *page_event(const struct html_page *p, const char *name)
{
    for (int i = p->h->events.n; i-- > 0;)
        if (!strcmp(ctl_text_of(p->h->events.v[i], "event"), name)) return p->h->events.v[i];
    return NULL;
}

const json_t *page_config(const struct html_page *p, const char *section, const char *key)
{
    return json_object_get(json_object_get(p->config, section), key);
}

json_t *page_json(const struct html_page *p, const char *name)
{
    enum { MAX_FILE = 32 << 20 };
    struct text path = {0}, t = {0};
    text_add(&path, "%s/%s", p->dir, name);
    json_t *o = text_read_bytes(&t, path.s, MAX_FILE, NULL) ? NULL : json_loadb(t.s ? t.s : "", t.n, 0, NULL);
    text_free(&path);
    text_free(&t);
    return o;
}

void page_none(struct html_page *p, const char *what) { html_element(p->out, "p class='none'", "%s", what); }

/* Appends a value for people: texts as they are, others as JSON; not more than `most` bytes. */
static void value_add(struct text *t, const json_t *value, size_t most)
{
    char *s = json_is_string(value) ? NULL : json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
    const char *shown = s ? s : json_is_string(value) ? json_string_value(value) : "";
    size_t n = strlen(shown), end = n;
    if (n > most) for (end = most; end && ((unsigned char)shown[end] & 0xc0) == 0x80;) end--;
    text_add(t, "%.*s%s", (int)end, shown, end < n ? " …" : "");
    free(s);
}

static void row_add(struct html_page *p, const char *name, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void row_add(struct html_page *p, const char *name, const char *fmt, ...)
{
    char *s = NULL;
    va_list ap;
    va_start(ap, fmt);
    if (vasprintf(&s, fmt, ap) < 0) s = NULL;
    va_end(ap);
    text_add(p->out, "<tr>");
    html_element(p->out, "th scope='row'", "%s", name);
    html_element(p->out, "td class='d'", "%s", s ? s : "");
    text_add(p->out, "</tr>\n");
    free(s);
}

/* ---- the summary ------------------------------------------------------------------------------------------------- */

/* done or failed, if that is how the last start ended. */
static const json_t *end_of(const struct html_page *p)
{
    const json_t *last = p->h->events.n && !p->h->runs ? p->h->events.v[p->h->events.n - 1] : NULL;
    const char *event = ctl_text_of(last, "event");
    return !strcmp(event, "done") || !strcmp(event, "failed") ? last : NULL;
}

static const char *state_of(const struct html_page *p)
{
    const json_t *end = end_of(p);
    const char *reason = ctl_text_of(end, "reason");
    if (p->running) return "is still running";
    if (!end) return "ended without a last word";
    if (!strcmp(ctl_text_of(end, "event"), "failed")) return "failed";
    return !strcmp(reason, "stopped") ? "was stopped" : !strcmp(reason, "patience") ? "stopped early" : "finished";
}

static char *duration(double seconds, char buf[32])
{
    if (seconds < 60) return text_seconds(seconds, buf);
    return text_duration((uint64_t)fmin(seconds, 1e12), buf);
}

static const char *activity(const struct html_page *p)
{
    if (page_config(p, "run", "predict")) return "predicted with";
    if (page_config(p, "run", "generate")) return "continued prompts with";
    return json_is_true(page_config(p, "run", "evaluate")) ? "evaluated" : "trained";
}

/* How many steps, and how it ended. */
static void outcome_add(const struct html_page *p, struct text *t)
{
    const json_t *end = end_of(p);
    const long long planned = ctl_integer_of(p->h->start, "planned_steps");
    char time[32];
    text_add(t, "%s after ", state_of(p));
    if (planned > 0 && p->h->at == planned) text_add(t, "%lld steps and ", planned);
    else if (planned > 0) text_add(t, "step %lld of %lld and ", p->h->at, planned);
    text_add(t, "%s", p->h->began > 0 && p->h->ended > p->h->began ? duration(p->h->ended - p->h->began, time)
                                                                   : "an unknown time");
    if (!end && !p->running) text_add(t, ", killed or by a failure of its machine");
    if (!strcmp(ctl_text_of(end, "event"), "failed"))
        text_add(t, " with status %lld: %s", ctl_integer_of(end, "code"), ctl_text_of(end, "text"));
    else if (!strcmp(ctl_text_of(end, "reason"), "patience")) text_add(t, ", as validation did not improve");
}

/* The score that the sentence names: the first of which more is better, else the loss. */
static int main_score(const struct history *h)
{
    for (int k = 0; k < h->n_scores; k++) if (history_rises(h->score[k]) && history_best(h, k) >= 0) return k;
    return 0;
}

static void sentence_add(const struct html_page *p, struct text *t)
{
    const json_t *network = page_config(p, "model", "network"), *start = p->h->start, *other;
    const char *device = strstr(ctl_text_of(start, "numerics"), "device ");
    const char *samples = json_string_value(json_object_get(json_object_get(start, "settings"),
                                                            "the number of training samples"));
    const double parameters = ctl_number_of(start, "parameters");
    const long long ranks = ctl_integer_of(start, "ranks");
    const int k = main_score(p->h), best = history_best(p->h, k);
    char count[32];
    if (!network) network = (other = page_config(p, "model", "graph")) ? other : page_config(p, "model", "folder");
    text_add(t, "mpstaged %s ", activity(p));
    if (network) value_add(t, network, 200);
    else text_add(t, "a network");
    if (parameters > 0) text_add(t, " (%s parameters)", text_count(parameters, count));
    if (samples && strcmp(samples, "0") != 0) text_add(t, " on %s samples", samples);
    if (ranks > 0) text_add(t, " with %lld rank%s", ranks, ranks == 1 ? "" : "s");
    if (device) text_add(t, " on %.*s", (int)strcspn(device + 7, ","), device + 7);
    text_add(t, "; the run ");
    outcome_add(p, t);
    if (best >= 0) text_add(t, "; best validation: %s %.4g after step %lld", p->h->score[k],
                            p->h->tests.v[best].score[k], p->h->tests.v[best].step);
    text_add(t, ".");
}

static void failure_rows(struct html_page *p)
{
    struct failure f;
    struct err none = {0};
    if (p->running || failure_read(p->dir, &f, &none)) return;
    row_add(p, "Failure", "status %d: %s", f.e.code, f.e.text);
    if (f.rank >= 0) row_add(p, "Where", "rank %d%s%s%s%s", (int)f.rank, *f.host ? " on " : "", f.host,
                             *f.action ? ": " : "", f.action);
    row_add(p, "A restart", "%s", failure_may_pass(f.e.code) ? "may help" : "ends in the same way");
}

static void summary(struct html_page *p)
{
    const struct history *h = p->h;
    const json_t *done = end_of(p);
    char time[32];
    double productive = 0;
    for (int i = 0; i < h->steps.n; i++) productive += (double)h->steps.v[i].n * h->steps.v[i].seconds;
    html_table_begin(p->out, "The run in figures", NULL);
    row_add(p, "Steps", "%lld", h->at);
    const double loss = h->steps.n ? h->steps.v[h->steps.n - 1].score[0] : 0;
    if (h->steps.n) row_add(p, "Last loss", isfinite(loss) ? "%.6g" : "not finite", loss);
    if (h->steps.n) row_add(p, "Productive time", "%s in steps that count", duration(productive, time));
    if (h->steps.n && h->began > 0 && h->ended > h->began)
        row_add(p, "Goodput", "%.1f %% of the time from the first start to the last line",
                100 * productive / (h->ended - h->began));
    row_add(p, "Starts", "%lld; failures: %lld; roll-backs: %lld", h->starts, h->failures, h->rollbacks);
    if (h->lost) row_add(p, "Steps lost", "%lld, which took %s", h->lost, duration(h->lost_seconds, time));
    if (json_object_get(done, "weights_hash")) row_add(p, "Weights", "hash %s", ctl_text_of(done, "weights_hash"));
    if (json_object_get(done, "energy_joules"))
        row_add(p, "Energy", "%.0f J of the first host's processors", ctl_number_of(done, "energy_joules"));
    if (json_object_get(done, "gpu_energy_joules"))
        row_add(p, "Energy of GPUs", "%.0f J on the first host", ctl_number_of(done, "gpu_energy_joules"));
    failure_rows(p);
    if (h->damaged) row_add(p, "Damaged lines", "%lld of %lld in metrics.jsonl, left out", h->damaged, h->lines);
    html_table_end(p->out);
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

static const struct { const char *name, *text; } happened[] = {
    {"start", "the run began"}, {"resume", "the run was resumed"}, {"skip", "skipped: a value was not finite"},
    {"rerun", "repeated: tensors were corrupted"}, {"rollback", "went back to a checkpoint: a value was not finite"},
    {"checkpoint", "a checkpoint was written"}, {"checkpoint_failed", "a checkpoint could not be written"},
    {"damaged", "samples could not be decoded"}, {"straggler", "a rank became slow, or normal again"},
    {"pause", "a pause ended"}, {"set", "a setting was changed"}, {"reload", "settings were read again"},
    {"weights", "weights were read"}, {"prediction", "predictions were written"}, {"failed", "the run failed"},
    {"done", "the run ended"},
};

/* Adds "key value, ..." of the values that are short; the manual names the keys. */
static void details_add(const json_t *event, struct text *t)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)event, key, value)
        if (strcmp(key, "event") && strcmp(key, "step") && strcmp(key, "settings") && strcmp(key, "config") &&
            strcmp(key, "numerics") && strcmp(key, "libraries") && strcmp(key, "weights_ranks")) {
            text_add(t, "%s%s ", t->n ? ", " : "", key);
            value_add(t, value, 1000);
        }
}

static void event_row(struct html_page *p, const json_t *step, const char *what, const char *details)
{
    text_add(p->out, "<tr>");
    if (json_is_integer(step)) html_element(p->out, "td class='n'", "%lld", (long long)json_integer_value(step));
    else text_add(p->out, "<td></td>");
    html_element(p->out, "td", "%s", what);
    html_element(p->out, "td class='d'", "%s", details);
    text_add(p->out, "</tr>\n");
}

/* The index in `happened`; -1: no row. */
static int happened_find(const json_t *event)
{
    for (size_t k = 0; k < sizeof happened / sizeof *happened; k++)
        if (!strcmp(ctl_text_of(event, "event"), happened[k].name)) return (int)k;
    return -1;
}

static void events(struct html_page *p)
{
    enum { EDGE = 100 };
    int n = 0, at = 0;
    bool alive = false;
    for (int i = 0; i < p->h->events.n; i++) n += happened_find(p->h->events.v[i]) >= 0;
    if (!n) { page_none(p, "No event is known."); return; }
    html_table_begin(p->out, "What happened, in order", "step|event|details");
    for (int i = 0; i < p->h->events.n; i++) {
        const json_t *o = p->h->events.v[i], *step = json_object_get(o, "step");
        int k = happened_find(o);
        if (k < 0) continue;
        bool starts = !strcmp(happened[k].name, "start") || !strcmp(happened[k].name, "resume");
        if (starts && alive) event_row(p, NULL, "the run had ended without a last word", "killed, or by its machine");
        alive = starts || (alive && strcmp(happened[k].name, "done") && strcmp(happened[k].name, "failed"));
        if (at++ == EDGE && n > 2 * EDGE) event_row(p, NULL, "…", "and more, see metrics.jsonl");
        if (at > EDGE && at <= n - EDGE) continue;
        struct text t = {0};
        details_add(o, &t);
        event_row(p, step, happened[k].text, t.n ? t.s : "");
        text_free(&t);
    }
    html_table_end(p->out);
    html_element(p->out, "p", "%d event%s, without steps and evaluations.", n, n == 1 ? "" : "s");
}

/* ---- texts of a language model ----------------------------------------------------------------------------------- */

static void lines_say(struct text *out, const char *s)
{
    for (size_t n; *s; s += n, s += *s == '\n') {
        n = strcspn(s, "\n");
        html_say(out, "%.*s", (int)n, s);
        text_add(out, "\n");
    }
}

static void generated(struct html_page *p)
{
    enum { MOST = 10 };
    const json_t *last = page_event(p, "generated"), *step = json_object_get(last, "step");
    int shown = 0;
    if (!last) return;
    html_element(p->out, "h2 id='texts'", "Texts");
    html_element(p->out, "p", "What the model wrote after step %lld, behind each prompt.",
                 ctl_integer_of(last, "step"));
    for (int i = 0; i < p->h->events.n && shown < MOST; i++) {
        const json_t *o = p->h->events.v[i], *text = json_object_get(o, "text");
        if (strcmp(ctl_text_of(o, "event"), "generated") || !json_equal(json_object_get(o, "step"), (json_t *)step))
            continue;
        struct text ids = {0};
        const json_t *prompt = json_array_get(page_config(p, "generate", "prompt"), (size_t)ctl_integer_of(o, "index"));
        shown++;
        html_element(p->out, "p", "Prompt %lld: %s", ctl_integer_of(o, "index"),
                     json_is_string(prompt) ? json_string_value(prompt) : "of a file");
        value_add(&ids, text ? text : json_object_get(o, "ids"), 4000);
        text_add(p->out, "<pre>");
        lines_say(p->out, ids.s);
        text_add(p->out, "</pre>\n");
        text_free(&ids);
    }
}

/* ---- messages of the log ----------------------------------------------------------------------------------------- */

struct log_message { char *text; long long times; };
struct log_view { VEC(struct log_message) all; bool slow; long long more; };

/* Takes warnings, notes and slow layers, whose second line is indented; each text once. */
static void message_take(void *to, const char *line, size_t n)
{
    enum { STAMP = 25, MOST = 60, LONGEST = 1000 };
    static const char *const begins[] = {"warning: ", "note: ", "error: ", "slow: ", "mpstaged: "};
    struct log_view *v = to;
    bool wanted = false, more = n > STAMP + 6 && v->slow && !memcmp(line + STAMP, "      ", 6);
    if (n <= STAMP || line[STAMP - 2] != 'Z') return;
    line += STAMP, n -= STAMP;
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        wanted |= n > strlen(begins[i]) && !memcmp(line, begins[i], strlen(begins[i]));
    v->slow = (n > 6 && !memcmp(line, "slow: ", 6) && v->all.n < MOST) || more;
    if (!wanted && !more) return;
    struct text t = {0};
    if (more) text_add(&t, "%s: ", v->all.v[v->all.n - 1].text);
    if (more) line += 6, n -= 6;
    text_add(&t, "%.*s", (int)(n < LONGEST ? n : LONGEST), line);
    if (more) free(v->all.v[--v->all.n].text);
    for (int i = 0; i < v->all.n; i++)
        if (!strcmp(v->all.v[i].text, t.s)) { v->all.v[i].times++; text_free(&t); return; }
    if (v->all.n < MOST) *vec_push(&v->all) = (struct log_message){t.s, 1};
    else { v->more++; text_free(&t); }
}

static void nothing_take(void *to, const char *line, size_t n) { (void)to, (void)line, (void)n; }

static void messages(struct html_page *p)
{
    struct text path = {0};
    struct log_view v = {0};
    text_add(&path, "%s/mpstaged.log", p->dir);
    if (lines_read(path.s, message_take, nothing_take, &v, NULL, NULL)) page_none(p, "There is no mpstaged.log.");
    else if (!v.all.n) page_none(p, "The log has no warnings, notes or slow layers.");
    else text_add(p->out, "<ul>\n");
    for (int i = 0; i < v.all.n; i++) {
        html_element(p->out, "li", v.all.v[i].times > 1 ? "%s (%lld times)" : "%s", v.all.v[i].text, v.all.v[i].times);
        text_add(p->out, "\n");
        free(v.all.v[i].text);
    }
    if (v.all.n) text_add(p->out, "</ul>\n");
    if (v.more) html_element(p->out, "p", "And %lld more messages.", v.more);
    vec_free(&v.all);
    text_free(&path);
}

/* ---- environment and configuration ------------------------------------------------------------------------------- */

static void environment(struct html_page *p)
{
    static const char *const keys[] = {"version", "time", "ranks", "stage_count", "numerics", "libraries", "plan",
                                       "parameters", "trained_parameters", "pid"};
    if (!p->h->start) { page_none(p, "The line of the start is missing."); return; }
    html_table_begin(p->out, "The last start", NULL);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        struct text t = {0};
        value_add(&t, json_object_get(p->h->start, keys[i]), 1000);
        if (t.n) row_add(p, keys[i], "%s", t.s);
        text_free(&t);
    }
    html_table_end(p->out);
}

static void configuration(struct html_page *p)
{
    const char *section, *key;
    json_t *keys, *value;
    if (!json_object_size(p->config)) { page_none(p, "The configuration is unknown."); return; }
    text_add(p->out, "<div class='cols'>\n");
    json_object_foreach((json_t *)p->config, section, keys) {
        html_table_begin(p->out, section, "setting|value");
        json_object_foreach(keys, key, value) {
            struct text t = {0};
            value_add(&t, value, 1000);
            row_add(p, key, "%s", t.n ? t.s : "");
            text_free(&t);
        }
        html_table_end(p->out);
    }
    text_add(p->out, "</div>\n");
}

/* ---- the page ---------------------------------------------------------------------------------------------------- */

static const struct { const char *id, *title; void (*write)(struct html_page *p); } sections[] = {
    {"summary", "Summary", summary}, {"curves", "Curves", page_curves}, {"time", "Where the time went", page_account},
    {"plan", "Plan and measurement", page_plan}, {"step", "A step in time", page_trace},
    {"layers", "Slow layers", page_layers}, {"events", "Events", events}, {"log", "Messages of the log", messages},
    {"environment", "Environment", environment}, {"config", "Configuration", configuration},
};
enum { SECTIONS = sizeof sections / sizeof *sections };

void page_write(struct html_page *p)
{
    struct text sentence = {0};
    p->config = json_object_get(p->h->start, "config");
    const char *name = json_string_value(page_config(p, "run", "name"));
    sentence_add(p, &sentence);
    text_add(p->out, "<!DOCTYPE html>\n<html lang='en'><head><meta charset='utf-8'/>\n"
             "<meta http-equiv='Content-Security-Policy' content=\"default-src 'none'; style-src 'unsafe-inline'\"/>\n"
             "<meta name='viewport' content='width=device-width, initial-scale=1'/>\n");
    html_element(p->out, "title", "%s %s", name ? name : p->dir, state_of(p));
    text_add(p->out, "\n<style>%s</style></head>\n<body><header>", style);
    html_element(p->out, "h1", "Run %s", name ? name : p->dir);
    bool bad = !p->running && (!end_of(p) || !strcmp(state_of(p), "failed"));
    html_element(p->out, bad ? "span class='state bad'" : "span class='state'", "%s", state_of(p));
    html_element(p->out, "p class='lead'", "%s", sentence.s);
    text_add(p->out, "</header>\n<nav aria-label='Sections'><ul>");
    for (int i = 0; i < SECTIONS; i++)
        text_add(p->out, "<li><a href='#%s'>%s</a></li>", sections[i].id, sections[i].title);
    text_add(p->out, "</ul></nav>\n<main>\n");
    for (int i = 0; i < SECTIONS; i++) {
        text_add(p->out, "<section aria-labelledby='%s'><h2 id='%s'>%s</h2>\n", sections[i].id, sections[i].id,
                 sections[i].title);
        sections[i].write(p);
        if (i == 1) generated(p);
        text_add(p->out, "</section>\n");
    }
    text_add(p->out, "</main><footer>");
    html_element(p->out, "p", "Made by mpstagectl report --html from %s.", p->dir);
    text_add(p->out, "</footer></body></html>\n");
    text_free(&sentence);
}
