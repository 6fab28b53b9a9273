/* Options by name: current and former names, options that were removed, sections. */
#include <string.h>
#include "conf/table.h"

int opt_count(void)
{
    int n = 0;
    while (opt_table[n].key) n++;
    return n;
}

/* Former names of keys and words, or names elsewhere. They continue to work. */
static const struct { const char *other, *key; bool former; } other_key[] = {
    {"run.rerun_every", "run.verify_every", true}, {"data.train_images", "data.train", true},
    {"data.test_images", "data.test", true}, {"train.micro_batch_size", "train.split_size", false},
};
static const struct { const char *key, *other, *word; } other_word[] = {{"run.resume", "anyway", "force"}};
enum { OTHER_KEYS = sizeof other_key / sizeof *other_key, OTHER_WORDS = sizeof other_word / sizeof *other_word };

const char *opt_former(int i)
{
    for (int k = 0; k < OTHER_KEYS; k++)
        if (other_key[k].former && !strcmp(other_key[k].key, opt_table[i].key)) return other_key[k].other;
    return NULL;
}

int opt_find(const char *key, size_t n)
{
    for (int i = 0; opt_table[i].key; i++)
        if (strlen(opt_table[i].key) == n && !memcmp(opt_table[i].key, key, n)) return i;
    for (int i = 0; i < OTHER_KEYS; i++)
        if (strlen(other_key[i].other) == n && !memcmp(other_key[i].other, key, n))
            return opt_find(other_key[i].key, strlen(other_key[i].key));
    return -1;
}

const char *opt_word_now(const char *key, const char *word)
{
    for (int i = 0; i < OTHER_WORDS; i++)
        if (!strcmp(other_word[i].key, key) && !strcmp(other_word[i].other, word)) return other_word[i].word;
    return word;
}

/* Options that are no more, and the value by which they changed nothing: files may still have that. */
static const struct { const char *key, *value; } removed_key[] = {
    {"run.overlap_wgrad", "no"}, {"pipeline.bundle", "1"}};

const char *opt_removed(const char *key, size_t n)
{
    for (size_t i = 0; i < sizeof removed_key / sizeof *removed_key; i++)
        if (strlen(removed_key[i].key) == n && !memcmp(removed_key[i].key, key, n)) return removed_key[i].value;
    return NULL;
}

bool opt_section(const char *name)
{
    size_t n = strlen(name);
    for (const char *s = OPT_SECTIONS; *s; s += strcspn(s, " "), s += strspn(s, " "))
        if (strcspn(s, ", ") == n && !memcmp(s, name, n)) return true;
    return false;
}
