/* The template of a chat: one that is taken renders messages, whose spans are the whole text. */
#include "kept_file.h"
#include "base/mem.h"
#include "data/chat.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct chat_message m[] = {
        {"user", " a ", 3}, {"assistant", "b", 1}, {"user", "", 0}, {"tool", "c", 1}};
    const char *path = kept_file(data, size);
    struct err e = {0};
    struct chat *c;
    struct tokenizer *t;
    if (chat_open(path, &c, &e)) {
        refused(&e, E_DATA, path);
        return 0;
    }
    must(!tokenizer_open("bytes", &t, &e));
    for (int n = 0; n <= 4; n++) {
        struct chat_text text = {.t = {0}};
        size_t all = 0;
        if (chat_render(c, t, m, n, n & 1, &text, &e)) must(e.code == E_DATA);
        for (int i = 0; i < text.span.n; i++) all += text.span.v[i].n;
        must(all == text.t.n);
        chat_text_free(&text);
    }
    tokenizer_close(t);
    chat_close(c);
    return 0;
}
