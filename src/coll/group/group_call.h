/* Calls of operations: whether a call is valid, its name, and whether two ranks make the same one.
 * Pure. */
#ifndef COLL_GROUP_GROUP_CALL_H
#define COLL_GROUP_GROUP_CALL_H

#include "coll/group/control.h"

#include "pawl/coll.h"

#define GROUP_CALL_TEXT    96u /* bytes of a call's name, terminator included */
#define GROUP_HEADER_BYTES 44u /* bytes of a header, which precedes the bytes of a collective */
#define GROUP_PREFIX_BYTES 28u /* bytes of a header's prefix, which is equal for all peers */

static inline bool is_message(const struct pawl_coll_call *call)
{
	return call->kind == PAWL_SEND || call->kind == PAWL_RECEIVE;
}

/* Checks a call. PAWL_EINVAL. */
int group_call_check(const struct pawl_coll_call *call, uint32_t rank, uint32_t ranks,
	struct pawl_err *err);
/* The memory of this rank that a call reads (in) and writes (out). A length of 0: none. */
struct group_memory {
	const uint8_t *in, *out;
	uint64_t in_bytes, out_bytes;
};

struct group_memory group_call_memory(const struct pawl_coll_call *call, uint32_t rank,
	uint32_t ranks);
/* Returns whether one of them writes what the other reads or writes. */
bool group_memory_conflicts(const struct group_memory *a, const struct group_memory *b);
/* Writes a name such as "all_reduce(sum) of 1000 float32". */
void group_call_name(const struct pawl_coll_call *call, char *text);
/* Returns the digest of a group's collectives including this one. digest: that of those before; 0:
 * there are none. */
uint32_t group_call_digest(uint32_t digest, const struct pawl_coll_call *call);
/* Writes the header of a collective, GROUP_HEADER_BYTES. digest: that of the collectives before.
 * before: the prefix of the header of the collective before, or NULL. */
void group_header_encode(uint8_t *header, const struct pawl_work *work, uint32_t digest,
	const uint8_t *before);
/* Adapts a header to a peer: in an all-to-all, it holds the number of bytes for that peer. */
void group_header_address(uint8_t *header, const struct pawl_coll_call *call, uint32_t peer);
/* Returns the number of the collective. */
uint64_t group_header_number(const uint8_t *header);
/* Reads a header of an all-reduce, for a server. 0; PAWL_EPEER: it is malformed, or not of an
 * all-reduce. */
int group_header_decode(const uint8_t *header, uint32_t peer, struct pawl_coll_call *call,
	uint64_t *number, struct pawl_err *err);
/* Checks the header of a peer against ours, as group_header_encode wrote it. 0; PAWL_EMISMATCH;
 * PAWL_EPEER: it is malformed. */
int group_header_check(const uint8_t *header, const uint8_t *ours,
	const struct pawl_coll_call *call, uint32_t rank, uint32_t peer, struct pawl_err *err);
/* Checks the prefixes of two headers of one collective, GROUP_PREFIX_BYTES each. Returns as
 * group_header_check does. */
int group_prefix_check(const uint8_t *theirs, const uint8_t *ours, uint32_t rank, uint32_t peer,
	struct pawl_err *err);

#endif
