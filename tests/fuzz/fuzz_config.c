/* config.json of Hugging Face: a network that is taken has sizes that fit each other. */
#include "kept_file.h"
#include "model/decoder.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { POINTS = 8 };
    const char *path = kept_file(data, size);
    struct err e = {0}, other = {0};
    struct decoder d;
    int64_t *id = NULL;
    int n = 0;
    if (decoder_read(path, POINTS, &d, &e)) {
        refused(&e, E_CONF, path);
    } else {
        must(d.family && d.vocab_size > 0 && d.hidden_size > 0 && d.layers > 0 && d.intermediate_size > 0);
        must(d.heads > 0 && d.kv_heads > 0 && d.heads % d.kv_heads == 0 && d.head_dim > 0 && d.context >= POINTS);
        must(d.family->gpt2 || d.head_dim % 2 == 0);
        must(!d.family->gpt2 || d.head_dim * d.heads == d.hidden_size);
    }
    if (decoder_ends(path, &id, &n, &other)) refused(&other, E_CONF, path);
    free(id);
    return 0;
}
