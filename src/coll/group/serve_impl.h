/* The bytes of a request to a server, and of its answer: shared by both sides. */
#ifndef COLL_GROUP_SERVE_IMPL_H
#define COLL_GROUP_SERVE_IMPL_H

#include "coll/group/serve.h"
#include "coll/plan/survey.h"

#define ASK_MAGIC   0x3170767377617073ULL /* "spawsvp1" */
#define ASK_PROBE   0x3174656e6c776170ULL /* "pawlnet1": in a probe */
#define ASK_BYTES   40u                   /* bytes of a request, without where and names */
#define ANSWER_TEXT 200u /* rest of the answer, after one byte: a name, or the refusal */

/* Returns how many bytes follow the first ASK_BYTES: 4 per rank; in a probe, COLL_TCP_NAME for each
 * later rank. Pure. */
size_t serve_more_bytes(const struct coll_ask *ask);
/* Writes a whole request; returns its size in bytes. Pure. */
size_t serve_encode_ask(uint8_t *bytes, uint64_t key, const struct coll_ask *ask);
/* Reads the first ASK_BYTES of a request, that is, all but where and names. -1: it is malformed, or
 * has another key. Pure. */
int serve_decode_ask(const uint8_t *bytes, uint64_t key, struct coll_ask *ask);

#endif
