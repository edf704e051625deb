/* What the two sides of asking a server share: the bytes. */
#ifndef COLL_SERVE_IMPL_H
#define COLL_SERVE_IMPL_H

#include "coll/serve.h"

#define ASK_MAGIC   0x3170767377617073ULL /* "spawsvp1" */
#define ASK_BYTES   40u                   /* of an ask, without where */
#define ANSWER_TEXT 200u /* bytes of the answer after its first: a name, or why not */

/* ASK_BYTES, then 4 a rank. Pure. */
size_t serve_encode_ask(uint8_t *bytes, uint64_t key, const struct coll_ask *ask);
/* All but where, of ASK_BYTES; -1: it is nonsense, or has another key. Pure. */
int serve_decode_ask(const uint8_t *bytes, uint64_t key, struct coll_ask *ask);

#endif
