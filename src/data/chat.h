/* Chats as texts: what a template puts around the messages of each role. Pure, apart from reading a template's file;
 * any thread. */
#ifndef DATA_CHAT_H
#define DATA_CHAT_H
#include "data/tokenizer.h"

struct chat;
struct chat_message { const char *role, *content; size_t n; };
/* A chat as it is tokenised: spans whose content is plain, of which what the assistant says and its end count. end: how
 * many spans stand before each end token that is no text. */
struct chat_text { struct text t; VEC(struct text_span) span; VEC(int) end; };

/* of: a word of WORDS_CHAT, or a file with a rule in each line:
 *   start "<s>"                   in front of all messages
 *   generate assistant            the role whose messages count (the default)
 *   default system "Be brief."    a message in front of a chat that does not begin with this role
 *   trim                          contents lose white space at both ends
 *   ends                          what the assistant says ends with the end token (chat_end_set)
 *   user first "A" "B"            around a message of this role; conditions: first, last, after ROLE
 *   user "<|user|>\n" "</s>\n"    the first rule that fits is used
 * Texts are JSON strings; # begins a comment. The caller frees it. 66; 65 "FILE:LINE: ..". */
int chat_open(const char *of, struct chat **out, struct err *e);
/* The token that ends what the assistant says, if the template asks for one; -1: none. t: NULL: it changes nothing. */
void chat_end_set(struct chat *c, const struct tokenizer *t, int64_t id);
/* Appends the text of n messages. t: whose first added token ends what the assistant says. Spaces before that count:
 * with the word behind them they may be one token. asks: and what stands before the assistant's next message, without
 * these spaces. 65: there is no rule for a role. */
int chat_render(const struct chat *c, const struct tokenizer *t, const struct chat_message *m, int n, bool asks,
                struct chat_text *out, struct err *e);
/* What ends the assistant's messages, if no token of its own does. NULL: one does. ends: gets whether the template
 * takes an end token. */
const char *chat_ends_badly(const struct chat *c, const struct tokenizer *t, bool *ends);
/* The token that ends them, of a template that chat_open opens; -1: none. */
int chat_end_of(const char *of, const struct tokenizer *t, int64_t *id, struct err *e);
void chat_text_free(struct chat_text *t);
void chat_close(struct chat *c);                         /* c may be NULL */
#endif
