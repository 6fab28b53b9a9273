/* Device maps against those of Hugging Face's accelerate, from the config.json alone (tests/lm/device_maps.expected, by
 * tests/torch/device_maps.py); and trees of modules and ties that decoders do not have, against placements by hand. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include "model/decoder.h"
#include "plan/device_map.h"
#include "plan/part.h"
#include "files.h"
#include "sure.h"

enum { MAX_DEVICES = 4, LINE = 8192 };
struct map_case {
    char family[16], policy[20];
    struct conf_texts no_split;
    int n; uint64_t limit[MAX_DEVICES], host;
    bool has_host;
};

static void limits_read(struct map_case *k, char *list)
{
    for (char *save, *word = strtok_r(list, ",", &save); word; word = strtok_r(NULL, ",", &save)) {
        const uint64_t bytes = strtoull(strchr(word, ':') + 1, NULL, 10);
        k->has_host |= *word == 'c';
        if (*word == 'c') k->host = bytes;
        else k->limit[k->n++] = bytes;
    }
}

/* Takes a case apart; its keys become config.json. */
static void case_read(char *line, struct map_case *k)
{
    char *save, *word = strtok_r(line, " ", &save);
    json_t *o = json_pack("{s:s}", "model_type", word);
    *k = (struct map_case){0};
    while ((word = strtok_r(NULL, " ", &save))) {
        char *value = strchr(word, '=');
        *value++ = '\0';
        if (!strcmp(word, "policy")) snprintf(k->policy, sizeof k->policy, "%s", value);
        else if (!strcmp(word, "limits")) limits_read(k, value);
        else if (!strcmp(word, "no_split"))
            for (char *rest, *s = strtok_r(value, ",", &rest); s; s = strtok_r(NULL, ",", &rest))
                k->no_split.v[k->no_split.n++] = s;
        else {
            json_t *v = json_loads(value, JSON_DECODE_ANY, NULL);
            json_object_set_new(o, word, v ? v : json_string(value));
        }
    }
    char *text = json_dumps(o, 0);
    put_text("config.json", text);
    free(text);
    json_decref(o);
}

/* "model.layers.4": 4, and in *head the bytes before; -1: no number ends it. */
static int numbered(const char *name, size_t *head)
{
    const char *dot = strrchr(name, '.');
    *head = dot ? (size_t)(dot - name) : 0;
    return dot && dot[1] >= '0' && dot[1] <= '9' ? atoi(dot + 1) : -1;
}

/* Each device before the modules that follow on it, neighbouring layers as one word. */
static void map_print(const struct modules *m, const int *at, struct text *out)
{
    int before = AT_PARTS, first = -1, last = -1;
    char head[100] = "", device[16];
    for (int i = 0; i < m->n; i++) {
        size_t n;
        const char *name = m->module[i].name;
        if (at[i] == AT_PARTS) continue;
        const int number = numbered(name, &n);
        const bool joins = at[i] == before && number >= 0 && number == last + 1 && strlen(head) == n &&
                           !strncmp(head, name, n);
        if (!joins && last > first) text_add(out, "-%d", last);
        snprintf(device, sizeof device, "%d", at[i]);
        if (at[i] != before)
            text_add(out, "%s%s", out->n ? " " : "", at[i] == AT_CPU ? "cpu" : at[i] == AT_DISK ? "disk" : device);
        if (!joins) text_add(out, " %s", *name ? name : "\"\"");
        if (!joins) first = number;
        last = number;
        before = at[i];
        snprintf(head, sizeof head, "%.*s", (int)n, name);
    }
    if (last > first) text_add(out, "-%d", last);
}

static void map_expect(const struct device_map_request *q, const char *want)
{
    int *at = device_map_make(q);
    struct text got = {0};
    map_print(q->m, at, &got);
    sure(!strcmp(got.s, want), "%s, not\n%s", got.s, want);
    text_free(&got);
    free(at);
}

static void case_check(char *line)
{
    struct map_case k;
    struct err e = {0};
    char *want = strstr(line, " = ");
    *want = '\0';
    case_read(line, &k);
    static const char text[] = "model { config = config.json  input = {8} }";
    struct conf *c = conf_parse("c.conf", text, sizeof text - 1, &e);
    ck_assert_msg(c != NULL, "%s", e.text);
    struct modules *m = decoder_modules(c, &e);
    sure(m != NULL, "%s", e.text);
    const struct device_map_request q = {
        .m = m, .no_split = &k.no_split, .n_devices = k.n, .limit = k.limit, .has_host = k.has_host, .host = k.host,
        .balance = strcmp(k.policy, "sequential"), .low_zero = !strcmp(k.policy, "balanced_low_0")};
    map_expect(&q, want + 3);
    modules_free(m);
    conf_free(c);
}

START_TEST(maps_are_those_of_accelerate)
{
    char path[300], line[LINE];
    const char *top = getenv("srcdir");
    snprintf(path, sizeof path, "%s/tests/lm/device_maps.expected", top);
    FILE *f = fopen(path, "r");
    int n = 0;
    ck_assert_msg(f != NULL, "%s", path);
    for (; fgets(line, sizeof line, f); n += *line != '#') {
        line[strcspn(line, "\n")] = '\0';
        if (*line != '#') case_check(line);
    }
    fclose(f);
    ck_assert_int_eq(n, 207);
}
END_TEST

/* Module a.x has 10 bytes; b.y shares them, and has b.z beside it in b, of class B. accelerate 1.15 places them so. */
static const struct { uint64_t limit[2], host; bool whole; const char *want; } tied[] = {
    {{40, 0}, 0, false, "0 \"\""},
    {{34, 100}, 0, false, "0 a b.y 1 b.z c"},              /* b does not fit beside a, and is taken apart */
    {{34, 100}, 0, true, "1 \"\""},
    {{29, 100}, 0, false, "1 \"\""},
    {{34, 0}, 27, false, "0 a b.y cpu b.z c"},
    {{34, 0}, 27, true, "disk \"\""},
};

START_TEST(tied_weights_stay_together)
{
    const struct conf_texts whole = {.n = tied[_i].whole, .v = {"B"}};
    struct modules *m = modules_new(NULL);
    modules_add(m, "a.x", NULL, 10);
    modules_add(m, "b", "B", 0);
    modules_add(m, "c", NULL, 20);
    const int y = modules_add(m, "b.y", NULL, 0);
    modules_add(m, "b.z", NULL, 5);                       /* before c, behind b.y */
    m->module[y].shares = modules_find(m, "a.x");
    m->module[y].shared = 10;
    modules_finish(m);
    ck_assert(m->module[0].bytes == 35 && modules_find(m, "c") == m->n - 1);
    const struct device_map_request q = {
        .m = m, .no_split = &whole, .n_devices = tied[_i].limit[1] ? 2 : 1, .limit = tied[_i].limit,
        .has_host = tied[_i].host, .host = tied[_i].host};
    map_expect(&q, tied[_i].want);
    modules_free(m);
}
END_TEST

/* Four modules of 10 bytes; accelerate 1.15 places them so. */
static const struct { int n; uint64_t limit[3]; bool low_zero; const char *want; } by_hand[] = {
    {2, {1000, 1000}, false, "0 a b 1 c d"},               /* 40 / 2 + 1.25 * 10 = 32, of which 10 stay free */
    {3, {1000, 1000, 1000}, false, "0 a 1 b c 2 d"},
    {3, {0, 25, 1000}, false, "1 a b 2 c d"},              /* a device without memory is none */
    {3, {1000, 0, 25}, false, "0 a b 2 c d"},
    {2, {1000, 1000}, true, "1 \"\""},
    {3, {1000, 1000, 1000}, true, "1 a b c 2 d"},
    {3, {0, 25, 1000}, true, "1 a b 2 c d"},
    {3, {1000, 0, 25}, true, "0 \"\""},                    /* as many devices as have memory count from 1 on */
};

START_TEST(balanced_by_hand)
{
    static const char *const name[] = {"a", "b", "c", "d"};
    struct modules *m = modules_new(NULL);
    for (int i = 0; i < 4; i++) modules_add(m, name[i], NULL, 10);
    modules_finish(m);
    const struct device_map_request q = {.m = m, .n_devices = by_hand[_i].n, .limit = by_hand[_i].limit,
                                         .balance = true, .low_zero = by_hand[_i].low_zero};
    map_expect(&q, by_hand[_i].want);
    modules_free(m);
}
END_TEST

static void suites_add(TCase *t)
{
    tcase_add_test(t, maps_are_those_of_accelerate);
    tcase_add_loop_test(t, balanced_by_hand, 0, N_OF(by_hand));
    tcase_add_loop_test(t, tied_weights_stay_together, 0, N_OF(tied));
}

int main(void) { return scratch_suite("device_map", suites_add); }
