/* Records for training, a JSON object in each line of a file, as tokens with labels:
 *   {"input_ids": [..], "labels": [..]}    labels are optional: -100 does not count
 *   {"messages": [{"role": "..", "content": ".."}, ..]}    what the assistant says counts (chat.h)
 *   {"prompt": "..", "completion": ".."}   the completion counts
 *   {"text": ".."}                         all of it counts
 * Of a line with several forms the first of these is read. Pure; any thread. */
#ifndef DATA_RECORDS_H
#define DATA_RECORDS_H
#include "data/chat.h"
#include "data/documents.h"

enum { LABEL_IGNORED = -100 };
/* end: the token behind completions and texts; -1: none. chat: NULL: messages are refused. tokenizer: NULL: only
 * input_ids are read. Tokens are below vocabulary. */
struct record_form { struct tokenizer *tokenizer; struct chat *chat; int64_t end, vocabulary; };
/* Tokens of a record, and for each its label or LABEL_IGNORED. Each counts at the position before its own. astray: the
 * record does not begin with the tokens that its prompt has alone. */
struct record { VEC(int32_t) id, label; bool astray; };

/* Tokenizer, template and end token of a configuration: data.end_token, otherwise the first of eos_token_id. 66,
 * 65, 78. record_form_close, after errors, too. */
int record_form_open(const struct conf *c, int64_t vocabulary, struct record_form *f, struct err *e);
void record_form_close(struct record_form *f);

/* The record of a line. 65: "FILE:LINE: ..". The caller frees it, after errors, too. */
int record_parse(const struct record_form *f, const struct document *line, struct record *out, struct err *e);
/* A prompt instead: {"input_ids": [..]}, {"messages": [..]} with what stands before the assistant's next message, or
 * {"text": ".."}. No label counts. At least one token. */
int record_prompt(const struct record_form *f, const struct document *line, struct record *out, struct err *e);
void record_free(struct record *r);
#endif
