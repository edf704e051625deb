/* Calls: see group_call.h for the contract, docs/protocol.md for the bytes. Pure. */
#include "coll/group_call.h"

#include "base/err.h"
#include "coll/fold.h"

#include <endian.h>
#include <stdio.h>
#include <string.h>

#define HEAD_MEAN 1u /* of the flags */

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

/* ---- whether it can be ---- */

static int check_numbers(const struct pawl_coll_call *call, struct pawl_err *err)
{
	if (call->kind >= PAWL_COLLS || call->dtype >= PAWL_DTYPES || call->op >= PAWL_REDUCE_OPS) {
		return pawl_err_set(err, PAWL_EINVAL, "kind %d, operation %d or type %d is none",
			(int)call->kind, (int)call->op, (int)call->dtype);
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
			"%llu bytes are no whole number of elements of %zu",
			(unsigned long long)call->len_bytes, coll_type_bytes(call->dtype));
	}
	return 0;
}

static int check_parts(const uint64_t *at, uint32_t ranks, struct pawl_err *err)
{
	for (uint32_t r = 0; r < ranks && at; r++) {
		if (at[r] > at[r + 1]) {
			return pawl_err_set(err, PAWL_EINVAL, "parts that go backwards");
		}
	}
	return at ? 0 : pawl_err_set(err, PAWL_EINVAL, "no parts");
}

int group_call_check(const struct pawl_coll_call *call, uint32_t rank, uint32_t ranks,
	struct pawl_err *err)
{
	bool any = call->kind == PAWL_RECEIVE && call->root == PAWL_ANY_RANK;
	int rv = check_numbers(call, err);

	if (rv == 0 && has_root(call->kind) && call->root >= ranks && !any) {
		rv = pawl_err_set(err, PAWL_EINVAL, "rank %u of %u ranks", call->root, ranks);
	}
	if (rv == 0 && is_message(call) && call->root == rank) {
		rv = pawl_err_set(err, PAWL_EINVAL, "a message to oneself");
	}
	if (rv == 0 && call->kind == PAWL_ALL_TO_ALL) {
		rv = check_parts(call->in_at, ranks, err);
		rv = rv == 0 ? check_parts(call->out_at, ranks, err) : rv;
	}
	return rv == 0 ? 0 : pawl_err_prefix(err, rv, "collectives: %s", kind_name(call->kind));
}

/* ---- what it is called ---- */

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

/* ---- whether two ranks mean the same ---- */

/* Bytes that a head speaks of: of an all-to-all, those for the peer. */
static uint64_t head_bytes(const struct pawl_coll_call *call, const uint64_t *at, uint32_t peer)
{
	return call->kind == PAWL_ALL_TO_ALL ? at[peer + 1] - at[peer] : call->len_bytes;
}

void group_head_encode(uint8_t *head, const struct pawl_work *work, uint32_t peer)
{
	const struct pawl_coll_call *call = &work->call;
	uint64_t number = htole64(work->number);
	uint32_t root = htole32(call->root);
	uint64_t len = htole64(head_bytes(call, call->in_at, peer));
	uint8_t bytes[4] = {(uint8_t)call->kind, (uint8_t)call->op, (uint8_t)call->dtype,
		call->mean ? HEAD_MEAN : 0};

	memcpy(head, &number, 8);
	memcpy(head + 8, bytes, 4);
	memcpy(head + 12, &root, 4);
	memcpy(head + 16, &len, 8);
}

static int refuse_other(const struct pawl_work *work, const struct pawl_coll_call *theirs,
	uint32_t rank, uint32_t peer, struct pawl_err *err)
{
	char ours_text[GROUP_CALL_TEXT];
	char theirs_text[GROUP_CALL_TEXT];

	group_call_name(&work->call, ours_text);
	group_call_name(theirs, theirs_text);
	if (theirs->kind == PAWL_ALL_TO_ALL && work->call.kind == PAWL_ALL_TO_ALL) {
		return pawl_err_set(err, PAWL_EMISMATCH,
			"ranks disagree in collective %llu, all_to_all: rank %u sends %llu bytes "
			"to rank %u, which expects %llu",
			(unsigned long long)work->number, peer,
			(unsigned long long)theirs->len_bytes, rank,
			(unsigned long long)head_bytes(&work->call, work->call.out_at, peer));
	}
	return pawl_err_set(err, PAWL_EMISMATCH,
		"ranks disagree in collective %llu: rank %u calls %s, rank %u calls %s",
		(unsigned long long)work->number, rank, ours_text, peer, theirs_text);
}

/* 0; PAWL_EPEER. */
static int read_head(const uint8_t *head, uint32_t peer, struct pawl_coll_call *call,
	uint64_t *number, struct pawl_err *err)
{
	*call = (struct pawl_coll_call){.kind = (enum pawl_coll)head[8],
		.op = (enum pawl_reduce_op)head[9],
		.dtype = (enum pawl_dtype)head[10],
		.mean = head[11] & HEAD_MEAN};
	memcpy(number, head, 8);
	memcpy(&call->root, head + 12, 4);
	memcpy(&call->len_bytes, head + 16, 8);
	*number = le64toh(*number);
	call->root = le32toh(call->root);
	call->len_bytes = le64toh(call->len_bytes);
	if (call->kind >= PAWL_COLLS || call->dtype >= PAWL_DTYPES) {
		return pawl_err_set(err, PAWL_EPEER,
			"rank %u is lost: it sent nonsense: is it another version of Pawl?", peer);
	}
	return 0;
}

int group_head_decode(const uint8_t *head, uint32_t peer, struct pawl_coll_call *call,
	uint64_t *number, struct pawl_err *err)
{
	int rv = read_head(head, peer, call, number, err);

	if (rv == 0 &&
		(call->kind != PAWL_ALL_REDUCE || call->op >= PAWL_REDUCE_OPS ||
			!coll_fold_fits(call->op, call->dtype) ||
			call->len_bytes % coll_type_bytes(call->dtype) != 0)) {
		rv = pawl_err_set(err, PAWL_EPEER, "rank %u wants a server for %s", peer,
			kind_name(call->kind));
	}
	return rv;
}

int group_head_check(const uint8_t *head, const struct pawl_work *work, uint32_t rank,
	uint32_t peer, struct pawl_err *err)
{
	const struct pawl_coll_call *ours = &work->call;
	struct pawl_coll_call theirs;
	uint64_t number;
	int rv = read_head(head, peer, &theirs, &number, err);

	if (rv != 0) {
		return rv;
	}
	if (number != work->number) {
		char text[GROUP_CALL_TEXT];

		group_call_name(ours, text);
		return pawl_err_set(err, PAWL_EMISMATCH,
			"ranks disagree: rank %u is at collective %llu, %s, and rank %u at %llu",
			rank, (unsigned long long)work->number, text, peer,
			(unsigned long long)number);
	}
	if (theirs.kind != ours->kind || theirs.op != ours->op || theirs.dtype != ours->dtype ||
		theirs.mean != ours->mean || theirs.root != ours->root ||
		theirs.len_bytes != head_bytes(ours, ours->out_at, peer)) {
		return refuse_other(work, &theirs, rank, peer, err);
	}
	return 0;
}
