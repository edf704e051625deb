/* Calls: see group_call.h for the contract, docs/protocol.md for the bytes. Pure. */
#include "coll/group/group_call.h"

#include "base/assert.h"
#include "base/crc.h"
#include "base/err.h"
#include "coll/plan/fold.h"
#include "coll/plan/topo.h"

#include <endian.h>
#include <stdio.h>
#include <string.h>

/* Bytes that a call may name in all blocks together: more than a process can have, and so few that
 * sums of such sizes do not overflow. */
#define CALL_BYTES_MAX (1ull << 56)

#define SIGNATURE_MEAN    1u   /* flag in a signature: the call has mean set */
#define SIGNATURE_AT      8u   /* offset in a header of the call's signature */
#define DIGEST_AT         24u  /* offset of the digest of all calls before */
#define BEFORE_AT         28u  /* offset of the signature of the call before */
#define SIGNATURE_BYTES   16u  /* bytes of a signature, which identifies what is called */
#define SIGNATURE_UNKNOWN 255u /* first byte of a signature that is not known */

static const char *kind_name(enum pawl_coll kind)
{
	static const char *const names[PAWL_COLLS] = {
		[PAWL_ALL_REDUCE] = "all_reduce",
		[PAWL_REDUCE] = "reduce",
		[PAWL_BROADCAST] = "broadcast",
		[PAWL_ALL_GATHER] = "all_gather",
		[PAWL_REDUCE_SCATTER] = "reduce_scatter",
		[PAWL_GATHER] = "gather",
		[PAWL_SCATTER] = "scatter",
		[PAWL_ALL_TO_ALL] = "all_to_all",
		[PAWL_BARRIER] = "barrier",
		[PAWL_SEND] = "send",
		[PAWL_RECEIVE] = "recv",
	};

	return kind < PAWL_COLLS ? names[kind] : "?";
}

static const char *op_name(const struct pawl_coll_call *call)
{
	static const char *const names[PAWL_REDUCE_OPS] = {"sum", "product", "min", "max", "band",
		"bor", "bxor"};

	return call->mean ? "avg" : call->op < PAWL_REDUCE_OPS ? names[call->op] : "?";
}

static bool reduces(enum pawl_coll kind)
{
	return kind == PAWL_ALL_REDUCE || kind == PAWL_REDUCE || kind == PAWL_REDUCE_SCATTER;
}

static bool has_root(enum pawl_coll kind)
{
	return kind == PAWL_REDUCE || kind == PAWL_BROADCAST || kind == PAWL_GATHER ||
		kind == PAWL_SCATTER || kind == PAWL_SEND || kind == PAWL_RECEIVE;
}

/* ---- whether a call is valid ---- */

static int check_numbers(const struct pawl_coll_call *call, uint32_t ranks, struct pawl_err *err)
{
	if (call->kind >= PAWL_COLLS || call->dtype >= PAWL_DTYPES || call->op >= PAWL_REDUCE_OPS) {
		return pawl_err_set(err, PAWL_EINVAL,
			"no such kind (%d), operation (%d) or type (%d)", (int)call->kind,
			(int)call->op, (int)call->dtype);
	}
	if (!coll_fold_fits(call->op, call->dtype)) {
		return pawl_err_set(err, PAWL_EINVAL,
			"bits of floating-point numbers cannot be combined");
	}
	if (call->mean && (!coll_type_is_float(call->dtype) || call->op != PAWL_SUM)) {
		return pawl_err_set(err, PAWL_EINVAL, "only sums of floats have a mean");
	}
	if (call->len_bytes % coll_type_bytes(call->dtype) != 0) {
		return pawl_err_set(err, PAWL_EINVAL,
			"%llu bytes are not a whole number of elements of %zu bytes",
			(unsigned long long)call->len_bytes, coll_type_bytes(call->dtype));
	}
	if (call->len_bytes > CALL_BYTES_MAX / ranks) {
		return pawl_err_set(err, PAWL_EINVAL, "%llu bytes of each of %u ranks are too many",
			(unsigned long long)call->len_bytes, ranks);
	}
	return 0;
}

/* Checks the limits of the parts of an all-to-all. The executor copies and counts whole
 * elements. */
static int check_limits(const uint64_t *at, uint32_t ranks, size_t element_bytes,
	struct pawl_err *err)
{
	if (!at) {
		return pawl_err_set(err, PAWL_EINVAL, "no parts");
	}
	for (uint32_t r = 0; r <= ranks; r++) {
		if (r > 0 && at[r - 1] > at[r]) {
			return pawl_err_set(err, PAWL_EINVAL, "the limits of the parts decrease");
		}
		if (at[r] % element_bytes != 0) {
			return pawl_err_set(err, PAWL_EINVAL,
				"byte %llu, the limit of a part, is not that of an element of %zu "
				"bytes",
				(unsigned long long)at[r], element_bytes);
		}
	}
	return at[ranks] <= CALL_BYTES_MAX
		? 0
		: pawl_err_set(err, PAWL_EINVAL, "%llu bytes are too many",
			  (unsigned long long)at[ranks]);
}

static int check_parts(const struct pawl_coll_call *call, uint32_t rank, uint32_t ranks,
	struct pawl_err *err)
{
	size_t element_bytes = coll_type_bytes(call->dtype);
	int rv = check_limits(call->in_at, ranks, element_bytes, err);

	rv = rv == 0 ? check_limits(call->out_at, ranks, element_bytes, err) : rv;
	if (rv == 0 &&
		call->in_at[rank + 1] - call->in_at[rank] !=
			call->out_at[rank + 1] - call->out_at[rank]) {
		rv = pawl_err_set(err, PAWL_EINVAL,
			"the rank sends %llu bytes to itself, and expects %llu",
			(unsigned long long)(call->in_at[rank + 1] - call->in_at[rank]),
			(unsigned long long)(call->out_at[rank + 1] - call->out_at[rank]));
	}
	return rv;
}

int group_call_check(const struct pawl_coll_call *call, uint32_t rank, uint32_t ranks,
	struct pawl_err *err)
{
	bool any = call->kind == PAWL_RECEIVE && call->root == PAWL_ANY_RANK;
	int rv;

	ASSERT(rank < ranks);
	rv = check_numbers(call, ranks, err);
	if (rv == 0 && has_root(call->kind) && call->root >= ranks && !any) {
		rv = pawl_err_set(err, PAWL_EINVAL, "rank %u of %u ranks", call->root, ranks);
	}
	if (rv == 0 && is_message(call) && call->root == rank) {
		rv = pawl_err_set(err, PAWL_EINVAL, "a rank cannot exchange messages with itself");
	}
	if (rv == 0 && call->kind == PAWL_ALL_TO_ALL) {
		rv = check_parts(call, rank, ranks, err);
	}
	return rv == 0 ? 0 : pawl_err_prefix(err, rv, "collectives: %s", kind_name(call->kind));
}

/* ---- memory of a call ---- */

struct group_memory group_call_memory(const struct pawl_coll_call *call, uint32_t rank,
	uint32_t ranks)
{
	bool root = rank == call->root;
	uint64_t len = call->len_bytes;
	uint64_t in = len;
	uint64_t out = len;

	switch (call->kind) {
	case PAWL_REDUCE:
		out = root ? len : 0;
		break;
	case PAWL_BROADCAST:
		in = root ? len : 0;
		out = root ? 0 : len;
		break;
	case PAWL_ALL_GATHER:
		out = len * ranks;
		break;
	case PAWL_REDUCE_SCATTER:
		in = len * ranks;
		break;
	case PAWL_GATHER:
		out = root ? len * ranks : 0;
		break;
	case PAWL_SCATTER:
		in = root ? len * ranks : 0;
		break;
	case PAWL_ALL_TO_ALL:
		in = call->in_at[ranks];
		out = call->out_at[ranks];
		break;
	case PAWL_BARRIER:
		in = out = 0;
		break;
	case PAWL_SEND:
		out = 0;
		break;
	case PAWL_RECEIVE:
		in = 0;
		break;
	case PAWL_ALL_REDUCE:
	case PAWL_COLLS:
		break;
	}
	return (struct group_memory){call->in, call->out, call->in ? in : 0, call->out ? out : 0};
}

static bool overlap(const uint8_t *a, uint64_t a_bytes, const uint8_t *b, uint64_t b_bytes)
{
	return a_bytes > 0 && b_bytes > 0 && a < b + b_bytes && b < a + a_bytes;
}

bool group_memory_conflicts(const struct group_memory *a, const struct group_memory *b)
{
	return overlap(a->out, a->out_bytes, b->in, b->in_bytes) ||
		overlap(a->out, a->out_bytes, b->out, b->out_bytes) ||
		overlap(a->in, a->in_bytes, b->out, b->out_bytes);
}

/* ---- names of calls ---- */

void group_call_name(const struct pawl_coll_call *call, char *text)
{
	char op[16] = "";
	char root[32] = "";
	uint64_t n = call->len_bytes / coll_type_bytes(call->dtype);

	if (reduces(call->kind)) {
		snprintf(op, sizeof(op), "(%s)", op_name(call));
	}
	if (has_root(call->kind) && call->root != PAWL_ANY_RANK) {
		bool to = call->kind == PAWL_REDUCE || call->kind == PAWL_GATHER ||
			call->kind == PAWL_SEND;

		snprintf(root, sizeof(root), " %s rank %u", to ? "to" : "from", call->root);
	}
	if (call->kind == PAWL_BARRIER || call->kind == PAWL_ALL_TO_ALL) {
		snprintf(text, GROUP_CALL_TEXT, "%s", kind_name(call->kind));
	} else {
		snprintf(text, GROUP_CALL_TEXT, "%s%s of %llu %s%s", kind_name(call->kind), op,
			(unsigned long long)n, coll_type_name(call->dtype), root);
	}
}

/* ---- whether two ranks make the same call ---- */

/* Writes the signature of a call, SIGNATURE_BYTES: the part that all ranks must agree on. */
static void encode_signature(uint8_t *signature, const struct pawl_coll_call *call)
{
	uint32_t root = htole32(call->root);
	uint64_t len = htole64(call->kind == PAWL_ALL_TO_ALL ? 0 : call->len_bytes);
	uint8_t bytes[4] = {(uint8_t)call->kind, (uint8_t)call->op, (uint8_t)call->dtype,
		call->mean ? SIGNATURE_MEAN : 0};

	memcpy(signature, bytes, 4);
	memcpy(signature + 4, &root, 4);
	memcpy(signature + 8, &len, 8);
}

/* Reads a signature. 0; PAWL_EPEER. */
static int decode_signature(const uint8_t *signature, uint32_t peer, struct pawl_coll_call *call,
	struct pawl_err *err)
{
	*call = (struct pawl_coll_call){.kind = (enum pawl_coll)signature[0],
		.op = (enum pawl_reduce_op)signature[1],
		.dtype = (enum pawl_dtype)signature[2],
		.mean = signature[3] & SIGNATURE_MEAN};
	memcpy(&call->root, signature + 4, 4);
	memcpy(&call->len_bytes, signature + 8, 8);
	call->root = le32toh(call->root);
	call->len_bytes = le64toh(call->len_bytes);
	if (call->kind >= PAWL_COLLS || call->dtype >= PAWL_DTYPES) {
		return pawl_err_set(err, PAWL_EPEER,
			"rank %u is lost: it sent a malformed header: is it another version of "
			"Pawl?",
			peer);
	}
	return 0;
}

uint32_t group_call_digest(uint32_t digest, const struct pawl_coll_call *call)
{
	uint8_t signature[SIGNATURE_BYTES];

	encode_signature(signature, call);
	return crc32c(digest, signature, sizeof(signature));
}

void group_header_encode(uint8_t *header, const struct pawl_work *work, uint32_t digest,
	const uint8_t *before)
{
	uint64_t number = htole64(work->number);

	digest = htole32(digest);
	memcpy(header, &number, 8);
	encode_signature(header + SIGNATURE_AT, &work->call);
	memcpy(header + DIGEST_AT, &digest, 4);
	if (before) {
		memcpy(header + BEFORE_AT, before + SIGNATURE_AT, SIGNATURE_BYTES);
	} else {
		memset(header + BEFORE_AT, SIGNATURE_UNKNOWN, SIGNATURE_BYTES);
	}
}

void group_header_address(uint8_t *header, const struct pawl_coll_call *call, uint32_t peer)
{
	if (call->kind == PAWL_ALL_TO_ALL) {
		uint64_t len = htole64(call->in_at[peer + 1] - call->in_at[peer]);

		memcpy(header + SIGNATURE_AT + 8, &len, 8);
	}
}

uint64_t group_header_number(const uint8_t *header)
{
	uint64_t number;

	memcpy(&number, header, 8);
	return le64toh(number);
}

int group_header_decode(const uint8_t *header, uint32_t peer, struct pawl_coll_call *call,
	uint64_t *number, struct pawl_err *err)
{
	int rv = decode_signature(header + SIGNATURE_AT, peer, call, err);

	*number = group_header_number(header);
	if (rv == 0 &&
		(call->kind != PAWL_ALL_REDUCE || call->op >= PAWL_REDUCE_OPS ||
			!coll_fold_fits(call->op, call->dtype) ||
			call->len_bytes % coll_type_bytes(call->dtype) != 0 ||
			call->len_bytes > CALL_BYTES_MAX / COLL_RANKS_MAX)) {
		rv = pawl_err_set(err, PAWL_EPEER, "rank %u asks a server to do %s", peer,
			kind_name(call->kind));
	}
	return rv;
}

/* Compares two signatures. 0; PAWL_EMISMATCH; PAWL_EPEER: one is malformed. */
static int compare_signatures(uint64_t number, const uint8_t *ours, const uint8_t *theirs,
	uint32_t rank, uint32_t peer, struct pawl_err *err)
{
	char texts[2][GROUP_CALL_TEXT];
	struct pawl_coll_call a;
	struct pawl_coll_call b;
	int rv = decode_signature(ours, rank, &a, err);

	rv = rv == 0 ? decode_signature(theirs, peer, &b, err) : rv;
	if (rv != 0 ||
		(a.kind == b.kind && a.op == b.op && a.dtype == b.dtype && a.mean == b.mean &&
			a.root == b.root &&
			(a.kind == PAWL_ALL_TO_ALL || a.len_bytes == b.len_bytes))) {
		return rv;
	}
	group_call_name(&a, texts[0]);
	group_call_name(&b, texts[1]);
	return pawl_err_set(err, PAWL_EMISMATCH,
		"ranks disagree in collective %llu: rank %u calls %s, rank %u calls %s",
		(unsigned long long)number, rank, texts[0], peer, texts[1]);
}

/* Compares the digests of all calls before a call whose signature is the same at both ranks. */
static int compare_digests(const uint8_t *ours, const uint8_t *theirs, uint32_t rank, uint32_t peer,
	struct pawl_err *err)
{
	char text[GROUP_CALL_TEXT];
	struct pawl_coll_call call;

	if (memcmp(ours + DIGEST_AT, theirs + DIGEST_AT, 4) == 0 ||
		decode_signature(ours + SIGNATURE_AT, rank, &call, err) != 0) {
		return 0;
	}
	group_call_name(&call, text);
	return pawl_err_set(err, PAWL_EMISMATCH,
		"ranks disagree before collective %llu: rank %u and rank %u both call %s now, but "
		"their earlier calls differ",
		(unsigned long long)group_header_number(ours), rank, peer, text);
}

int group_prefix_check(const uint8_t *theirs, const uint8_t *ours, uint32_t rank, uint32_t peer,
	struct pawl_err *err)
{
	uint64_t number = group_header_number(ours);
	int rv = compare_signatures(number, ours + SIGNATURE_AT, theirs + SIGNATURE_AT, rank, peer,
		err);

	return rv == 0 ? compare_digests(ours, theirs, rank, peer, err) : rv;
}

/* Compares the number of bytes that the peer sends us in an all-to-all with the number we
 * expect. */
static int compare_parts(const uint8_t *theirs, const uint8_t *ours,
	const struct pawl_coll_call *call, uint32_t rank, uint32_t peer, struct pawl_err *err)
{
	uint64_t expected = call->out_at[peer + 1] - call->out_at[peer];
	uint64_t len;

	memcpy(&len, theirs + SIGNATURE_AT + 8, 8);
	len = le64toh(len);
	return len == expected
		? 0
		: pawl_err_set(err, PAWL_EMISMATCH,
			  "ranks disagree in collective %llu, all_to_all: rank %u sends %llu bytes "
			  "to rank %u, which expects %llu",
			  (unsigned long long)group_header_number(ours), peer,
			  (unsigned long long)len, rank, (unsigned long long)expected);
}

int group_header_check(const uint8_t *header, const uint8_t *ours,
	const struct pawl_coll_call *call, uint32_t rank, uint32_t peer, struct pawl_err *err)
{
	uint64_t number = group_header_number(ours);
	char text[GROUP_CALL_TEXT];
	struct pawl_coll_call theirs;
	int rv = decode_signature(header + SIGNATURE_AT, peer, &theirs, err);

	if (rv != 0) {
		return rv;
	}
	if (group_header_number(header) != number) {
		group_call_name(call, text);
		return pawl_err_set(err, PAWL_EMISMATCH,
			"ranks disagree: rank %u is at collective %llu, %s, and rank %u at %llu",
			rank, (unsigned long long)number, text, peer,
			(unsigned long long)group_header_number(header));
	}
	rv = compare_signatures(number, ours + SIGNATURE_AT, header + SIGNATURE_AT, rank, peer,
		err);
	if (rv == 0 && memcmp(ours + DIGEST_AT, header + DIGEST_AT, 4) != 0 &&
		ours[BEFORE_AT] != SIGNATURE_UNKNOWN && header[BEFORE_AT] != SIGNATURE_UNKNOWN) {
		rv = compare_signatures(number - 1, ours + BEFORE_AT, header + BEFORE_AT, rank,
			peer, err);
	}
	if (rv == 0 && call->kind == PAWL_ALL_TO_ALL) {
		rv = compare_parts(header, ours, call, rank, peer, err);
	}
	return rv == 0 ? compare_digests(ours, header, rank, peer, err) : rv;
}
