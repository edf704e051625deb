/* What a call is: whether it can be, what it is called, and whether two ranks mean the same. Pure.
 */
#ifndef COLL_GROUP_CALL_H
#define COLL_GROUP_CALL_H

#include "coll/talk.h"

#include "pawl/coll.h"

#define GROUP_CALL_TEXT 96u /* bytes of what a call is called, terminator included */

static inline bool is_message(const struct pawl_coll_call *call)
{
	return call->kind == PAWL_SEND || call->kind == PAWL_RECEIVE;
}

/* PAWL_EINVAL. */
int group_call_check(const struct pawl_coll_call *call, uint32_t rank, uint32_t ranks,
	struct pawl_err *err);
/* "all_reduce(sum) of 1000 float32" */
void group_call_name(const struct pawl_coll_call *call, char *text);
/* What goes before the bytes of a collective to a peer: COLL_HEAD_BYTES. */
void group_head_encode(uint8_t *head, const struct pawl_work *work, uint32_t peer);
/* What a head says of an all-reduce, for a server: 0; PAWL_EPEER: it is nonsense, or another
 * collective. */
int group_head_decode(const uint8_t *head, uint32_t peer, struct pawl_coll_call *call,
	uint64_t *number, struct pawl_err *err);
/* What comes from a peer before them: 0; PAWL_EMISMATCH, PAWL_EPEER: it is nonsense. */
int group_head_check(const uint8_t *head, const struct pawl_work *work, uint32_t rank,
	uint32_t peer, struct pawl_err *err);

#endif
