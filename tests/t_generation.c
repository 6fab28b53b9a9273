/* Texts of generate.every_steps: their rounds, and logits that are not finite. */
#include <math.h>
#include <string.h>
#include "job/job.h"
#include "train/generation.h"
#include "sure.h"

static const char decoder[] =
    "run { device = reference }\n"
    "model { network = llama input = {8} vocab_size = 256 hidden_size = 8 intermediate_size = 8\n"
    "        num_hidden_layers = 2 num_attention_heads = 2 }\n"
    "data { source = text train_text = {t} samples = 8 }\ntrain { steps = 1 batch_size = 4 evaluate = no }\n"
    "pipeline { stages = 2 partition = uniform }\n"
    "generate { every_steps = 1 prompt = {a, b} max_tokens = 1 }\n";

static struct generation *opened(struct job *j)
{
    static atomic_int stop;
    struct generation *g = NULL;
    struct err e = {0};
    struct conf *c = conf_parse("c.conf", decoder, strlen(decoder), &e);
    *j = (struct job){.conf = c};
    ck_assert_msg(c && !conf_finish(c, &e) && !job_device(j, &e) && !job_model(j, &e), "%s", e.text);
    j->count[DS_TRAIN] = 8;
    ck_assert_msg(!job_plan(j, 2, &e) && !generation_open(j->interim, NULL, &stop, &g, &e), "%s", e.text);
    return g;
}

static void closed(struct job *j, struct generation *g)
{
    struct conf *c = (struct conf *)(uintptr_t)j->conf;
    generation_free(g);
    job_free(j);
    conf_free(c);
}

/* Two prompts in a batch each, whose next token is the one that is x. */
static void round_of(struct generation *g, int token, float x)
{
    int64_t id[256];
    float logits[256] = {0};
    struct err e = {0};
    logits[token] = x;
    ck_assert_int_eq(generation_next(g, id), GENERATION_DECODES);
    ck_assert_int_eq(generation_next(g, id), GENERATION_DECODES);
    ck_assert_int_eq(generation_next(g, id), GENERATION_WAITS);
    for (int i = 0; i < 2; i++) ck_assert_msg(!generation_rows(g, logits, &e), "%s", e.text);
}

/* The logits of the last batch come on the executor's thread. The scheduler may look for the next batch before it has
 * the result. The round is not over then, or the next one would drop the lines. */
START_TEST(round_ends_when_its_lines_are_taken)
{
    struct job j;
    struct generation *g = opened(&j);
    struct text lines = {0};
    int64_t id[256];
    for (int i = 0; i < 2; i++) {
        generation_again(g);
        round_of(g, 'c', 1);
        ck_assert(generation_complete(g));
        ck_assert_int_eq(generation_next(g, id), GENERATION_WAITS);
        lines.n = 0;
        generation_take(g, &lines);
        ck_assert_str_eq(lines.s,
                         "{\"index\":0,\"prompt_tokens\":1,\"ids\":[99],\"text\":\"c\",\"reason\":\"length\"}\n"
                         "{\"index\":1,\"prompt_tokens\":1,\"ids\":[99],\"text\":\"c\",\"reason\":\"length\"}\n");
        ck_assert_int_eq(generation_next(g, id), GENERATION_ENDS);
    }
    text_free(&lines);
    closed(&j, g);
}
END_TEST

START_TEST(logits_that_are_not_finite_end_a_text)
{
    struct job j;
    struct generation *g = opened(&j);
    struct text lines = {0};
    round_of(g, 'c', _i ? NAN : INFINITY);
    generation_take(g, &lines);
    ck_assert_str_eq(lines.s, "{\"index\":0,\"prompt_tokens\":1,\"ids\":[],\"text\":\"\",\"reason\":\"nonfinite\"}\n"
                     "{\"index\":1,\"prompt_tokens\":1,\"ids\":[],\"text\":\"\",\"reason\":\"nonfinite\"}\n");
    text_free(&lines);
    closed(&j, g);
}
END_TEST

int main(void)
{
    TCase *t = suite_case("rounds", 60);
    tcase_add_test(t, round_ends_when_its_lines_are_taken);
    tcase_add_loop_test(t, logits_that_are_not_finite_end_a_text, 0, 2);
    return suite_run("generation", CK_FORK, t);
}
