/* What a call is: whether it can be, what it is called, and whether two ranks mean the same.
 * Pure. */
#ifndef COLL_GROUP_CALL_H
#define COLL_GROUP_CALL_H

#include "coll/talk.h"

#include "pawl/coll.h"

#define GROUP_CALL_TEXT  96u /* bytes of what a call is called, terminator included */
#define GROUP_HEAD_BYTES 44u /* of what goes before the bytes of a collective */
#define GROUP_SAID_BYTES 28u /* of the beginning of a head: the same to each peer */

static inline bool is_message(const struct pawl_coll_call *call)
{
	return call->kind == PAWL_SEND || call->kind == PAWL_RECEIVE;
}

/* PAWL_EINVAL. */
int group_call_check(const struct pawl_coll_call *call, uint32_t rank, uint32_t ranks,
	struct pawl_err *err);
/* What a call reads and writes in this rank's memory, in bytes. Nothing: a length of 0. */
struct group_memory {
	const uint8_t *in, *out;
	uint64_t in_bytes, out_bytes;
};

struct group_memory group_call_memory(const struct pawl_coll_call *call, uint32_t rank,
	uint32_t ranks);
/* Whether one writes what the other one reads or writes. */
bool group_memory_conflicts(const struct group_memory *a, const struct group_memory *b);
/* "all_reduce(sum) of 1000 float32" */
void group_call_name(const struct pawl_coll_call *call, char *text);
/* The digest of a group's collectives up to this one, from that of those before it; 0: none. */
uint32_t group_call_digest(uint32_t digest, const struct pawl_coll_call *call);
/* What goes before the bytes of a collective: GROUP_HEAD_BYTES. digest: of those before it. before:
 * what was said of the one before it, or NULL. */
void group_head_encode(uint8_t *head, const struct pawl_work *work, uint32_t digest,
	const uint8_t *before);
/* The same to a peer: of an all-to-all, with the bytes for it. */
void group_head_address(uint8_t *head, const struct pawl_coll_call *call, uint32_t peer);
/* The number of the collective. */
uint64_t group_head_number(const uint8_t *head);
/* What a head says of an all-reduce, for a server: 0; PAWL_EPEER: it is nonsense, or another
 * collective. */
int group_head_decode(const uint8_t *head, uint32_t peer, struct pawl_coll_call *call,
	uint64_t *number, struct pawl_err *err);
/* What comes from a peer before them, by what is said here, as of group_head_encode: 0;
 * PAWL_EMISMATCH, PAWL_EPEER: it is nonsense. */
int group_head_check(const uint8_t *head, const uint8_t *ours, const struct pawl_coll_call *call,
	uint32_t rank, uint32_t peer, struct pawl_err *err);
/* The same of what both say of one collective, GROUP_SAID_BYTES each. */
int group_said_check(const uint8_t *theirs, const uint8_t *ours, uint32_t rank, uint32_t peer,
	struct pawl_err *err);

#endif
