/* Messages between the agents of several hosts, as bytes: see agree_msg.h. Pure. */
#include "agent/persist/agree_msg.h"

#include "base/assert.h"
#include "base/crc.h"
#include "base/err.h"

#include <stdlib.h>
#include <string.h>

#define AGREE_MSG_VERSION      2u
#define AGREE_MSG_HEADER_BYTES 17u /* bytes before the body: magic, version, type, checksum */

enum agree_msg_type { AGREE_MSG_JOIN = 1, AGREE_MSG_RUN, AGREE_MSG_STATUS, AGREE_MSG_PART };

static const char magic[8] = "PAWLHOST";

_Static_assert(sizeof(magic) + 4 + 1 + 4 == AGREE_MSG_HEADER_BYTES, "version, type, checksum");

/* ---- header of every message ---- */

static void start(struct wire_out *out, enum agree_msg_type type)
{
	wire_out_reset(out);
	wire_put_raw(out, magic, sizeof(magic));
	wire_put_u32(out, AGREE_MSG_VERSION);
	wire_put_u8(out, (uint8_t)type);
	wire_put_u32(out, 0);
}

static void finish(struct wire_out *out)
{
	if (!out->failed) {
		ASSERT(out->len_bytes >= AGREE_MSG_HEADER_BYTES);
		wire_patch_u32(out, AGREE_MSG_HEADER_BYTES - 4,
			crc32c(0, out->bytes + AGREE_MSG_HEADER_BYTES,
				out->len_bytes - AGREE_MSG_HEADER_BYTES));
	}
}

/* Checks the header of a message of this type, and sets body to what follows. */
static int read_header(const void *bytes, size_t len_bytes, enum agree_msg_type type,
	struct wire_in *body, struct pawl_err *err)
{
	const uint8_t *signature;
	uint32_t version;
	uint8_t got;
	uint32_t crc;

	wire_in_init(body, bytes, len_bytes);
	signature = wire_get_raw(body, sizeof(magic));
	version = wire_get_u32(body);
	got = wire_get_u8(body);
	crc = wire_get_u32(body);
	if (body->failed || memcmp(signature, magic, sizeof(magic)) != 0) {
		return pawl_err_set(err, PAWL_ECORRUPT, "it is no message between hosts");
	}
	if (version != AGREE_MSG_VERSION) {
		return pawl_err_set(err, PAWL_ENOTSUP,
			"it has version %u, this pawl reads %u: install the same pawl on all hosts",
			version, AGREE_MSG_VERSION);
	}
	if (got != type || crc != crc32c(0, body->at, wire_in_left(body))) {
		return pawl_err_set(err, PAWL_ECORRUPT, "its checksum or type is wrong");
	}
	return 0;
}

static int check_end(const struct wire_in *body, struct pawl_err *err)
{
	return wire_in_done(body) ? 0 : pawl_err_set(err, PAWL_ECORRUPT, "it is malformed");
}

/* ---- each type ---- */

static void put_member(struct wire_out *out, const struct agree_member *member)
{
	wire_put_u32(out, member->first_rank);
	wire_put_u32(out, member->ranks);
	wire_put_u64(out, member->nonce);
	wire_put_str(out, member->address);
	wire_put_str(out, member->domain);
	wire_put_u32(out, member->replicas);
	wire_put_u8(out, member->parity);
}

static void get_member(struct wire_in *in, struct agree_member *member)
{
	uint8_t parity;

	member->first_rank = wire_get_u32(in);
	member->ranks = wire_get_u32(in);
	member->nonce = wire_get_u64(in);
	wire_get_str(in, member->address, sizeof(member->address));
	wire_get_str(in, member->domain, sizeof(member->domain));
	member->replicas = wire_get_u32(in);
	parity = wire_get_u8(in);
	in->failed = in->failed || member->replicas > PLACE_REPLICAS_MAX || parity > 1;
	member->parity = parity == 1;
}

void agree_msg_put_join(struct wire_out *out, const struct agree_msg_join *join)
{
	start(out, AGREE_MSG_JOIN);
	put_member(out, &join->member);
	wire_put_u32(out, join->world);
	wire_put_str(out, join->job);
	finish(out);
}

int agree_msg_get_join(const void *bytes, size_t len_bytes, struct agree_msg_join *join,
	struct pawl_err *err)
{
	struct wire_in in;
	int rv = read_header(bytes, len_bytes, AGREE_MSG_JOIN, &in, err);

	if (rv == 0) {
		get_member(&in, &join->member);
		join->world = wire_get_u32(&in);
		wire_get_str(&in, join->job, sizeof(join->job));
		rv = check_end(&in, err);
	}
	return rv;
}

void agree_msg_put_run(struct wire_out *out, const struct agree_msg_run *run)
{
	ASSERT(run->members_n <= AGREE_HOSTS_MAX);
	start(out, AGREE_MSG_RUN);
	wire_put_u64(out, run->run);
	put_member(out, &run->leader);
	wire_put_u32(out, run->members_n);
	for (uint32_t m = 0; m < run->members_n; m++) {
		put_member(out, &run->members[m]);
	}
	finish(out);
}

int agree_msg_get_run(const void *bytes, size_t len_bytes, struct agree_msg_run *run,
	struct pawl_err *err)
{
	struct wire_in in;
	uint32_t next;
	int rv = read_header(bytes, len_bytes, AGREE_MSG_RUN, &in, err);

	if (rv != 0) {
		return rv;
	}
	run->run = wire_get_u64(&in);
	get_member(&in, &run->leader);
	run->members_n = wire_get_u32(&in);
	if (run->members_n > AGREE_HOSTS_MAX) {
		return pawl_err_set(err, PAWL_ECORRUPT, "it lists more than %u hosts",
			AGREE_HOSTS_MAX);
	}
	next = run->leader.ranks;
	in.failed = in.failed || run->leader.first_rank != 0 || next == 0;
	for (uint32_t m = 0; m < run->members_n && !in.failed; m++) {
		const struct agree_member *member = &run->members[m];

		get_member(&in, &run->members[m]);
		in.failed = in.failed || member->first_rank != next || member->ranks == 0 ||
			member->ranks > UINT32_MAX - next;
		next += member->ranks;
	}
	return check_end(&in, err);
}

/* ---- what hosts have in memory ---- */

static void put_save(struct wire_out *out, const struct peer_save *save)
{
	wire_put_u64(out, save->run);
	wire_put_u64(out, save->number);
}

static void get_save(struct wire_in *in, struct peer_save *save)
{
	save->run = wire_get_u64(in);
	save->number = wire_get_u64(in);
}

static void put_parity(struct wire_out *out, const struct peer_parity *parity)
{
	wire_put_u32(out, parity->group);
	wire_put_u32(out, parity->k);
	wire_put_u32(out, parity->m);
	wire_put_u32(out, parity->row);
	wire_put_u32(out, parity->index);
}

static void get_parity(struct wire_in *in, struct peer_parity *parity, uint32_t first_rank)
{
	parity->group = wire_get_u32(in);
	parity->k = wire_get_u32(in);
	parity->m = wire_get_u32(in);
	parity->row = wire_get_u32(in);
	parity->index = wire_get_u32(in);
	in->failed = in->failed || !peer_parity_is_valid(parity, first_rank);
}

static void put_held(struct wire_out *out, const struct peer_part *held, uint32_t held_n)
{
	ASSERT(held_n <= AGREE_HELD_MAX);
	wire_put_u32(out, held_n);
	for (uint32_t h = 0; h < held_n; h++) {
		put_save(out, &held[h].save);
		wire_put_u64(out, held[h].step);
		wire_put_str(out, held[h].tag);
		wire_put_u32(out, held[h].world);
		wire_put_u32(out, held[h].first_rank);
		wire_put_u32(out, held[h].ranks);
		put_parity(out, &held[h].parity);
	}
}

/* held NULL: the parts are read past. Returns their number. */
static uint32_t get_held(struct wire_in *in, struct peer_part *held)
{
	uint32_t n = wire_get_u32(in);
	struct peer_part past;

	in->failed = in->failed || n > AGREE_HELD_MAX;
	for (uint32_t h = 0; h < n && !in->failed; h++) {
		struct peer_part *part = held != NULL ? &held[h] : &past;

		get_save(in, &part->save);
		part->step = wire_get_u64(in);
		wire_get_str(in, part->tag, sizeof(part->tag));
		part->world = wire_get_u32(in);
		part->first_rank = wire_get_u32(in);
		part->ranks = wire_get_u32(in);
		get_parity(in, &part->parity, part->first_rank);
		in->failed = in->failed || part->ranks == 0 || part->first_rank >= part->world ||
			part->ranks > part->world - part->first_rank;
	}
	return in->failed || held == NULL ? 0 : n;
}

static void put_plan(struct wire_out *out, const struct recover_plan *plan)
{
	ASSERT(plan->found && plan->sources_n <= PEER_PARTS_MAX);
	put_save(out, &plan->save);
	wire_put_u32(out, plan->sources_n);
	for (uint32_t s = 0; s < plan->sources_n; s++) {
		wire_put_u32(out, plan->sources[s].host);
		wire_put_u32(out, plan->sources[s].first_rank);
		wire_put_u32(out, plan->sources[s].ranks);
		put_parity(out, &plan->sources[s].parity);
	}
}

/* plan NULL: it is read past. */
static void get_plan(struct wire_in *in, const struct agree_msg_status *status,
	struct recover_plan *plan)
{
	struct recover_source past;
	struct peer_save save;
	uint32_t n;

	get_save(in, &save);
	n = wire_get_u32(in);
	in->failed = in->failed || n > PEER_PARTS_MAX;
	for (uint32_t s = 0; s < n && !in->failed; s++) {
		struct recover_source *source = plan != NULL ? &plan->sources[s] : &past;

		source->host = wire_get_u32(in);
		source->first_rank = wire_get_u32(in);
		source->ranks = wire_get_u32(in);
		get_parity(in, &source->parity, source->first_rank);
	}
	if (plan != NULL && !in->failed) {
		plan->found = true;
		plan->save = save;
		plan->step = status->step;
		memcpy(plan->tag, status->tag, sizeof(plan->tag));
		plan->sources_n = n;
	}
}

/* ---- statuses and parts ---- */

static void put_status(struct wire_out *out, const struct agree_msg_status *status)
{
	wire_put_u32(out, (uint32_t)-status->code);
	wire_put_str(out, status->why);
	wire_put_str(out, status->part);
	wire_put_u8(out, status->verdict);
	wire_put_u8(out, status->has_step);
	wire_put_u64(out, status->asked_step);
	wire_put_u8(out, status->found);
	wire_put_u64(out, status->step);
	wire_put_str(out, status->tag);
	put_held(out, status->held, status->held != NULL ? status->held_n : 0);
	wire_put_u8(out, status->memory);
	if (status->memory) {
		put_plan(out, status->plan);
	}
}

static void get_status(struct wire_in *in, struct agree_msg_status *status)
{
	status->code = -(int)(wire_get_u32(in) & 0xff);
	wire_get_str(in, status->why, sizeof(status->why));
	wire_get_str(in, status->part, sizeof(status->part));
	status->verdict = wire_get_u8(in);
	status->has_step = wire_get_u8(in);
	status->asked_step = wire_get_u64(in);
	status->found = wire_get_u8(in);
	status->step = wire_get_u64(in);
	wire_get_str(in, status->tag, sizeof(status->tag));
	status->held_n = get_held(in, status->held);
	status->memory = wire_get_u8(in);
	if (status->memory) {
		get_plan(in, status, status->plan);
	}
}

void agree_msg_put_status(struct wire_out *out, const struct agree_msg_status *status)
{
	start(out, AGREE_MSG_STATUS);
	put_status(out, status);
	finish(out);
}

int agree_msg_get_status(const void *bytes, size_t len_bytes, struct agree_msg_status *status,
	struct pawl_err *err)
{
	struct wire_in in;
	int rv = read_header(bytes, len_bytes, AGREE_MSG_STATUS, &in, err);

	if (rv == 0) {
		get_status(&in, status);
		rv = check_end(&in, err);
	}
	return rv;
}

void agree_msg_put_part(struct wire_out *out, const struct agree_msg_part *part)
{
	size_t at;

	start(out, AGREE_MSG_PART);
	put_status(out, &part->status);
	wire_put_u32(out, part->shared_n);
	for (uint32_t p = 0; p < part->shared_n; p++) {
		const struct agree_msg_shared *shared = &part->shared[p];

		wire_put_str(out, shared->name);
		wire_put_u64(out, shared->size_bytes);
		wire_put_u32(out, shared->sums_n);
		for (uint32_t s = 0; s < shared->sums_n; s++) {
			wire_put_u32(out, shared->sums[s]);
		}
	}
	at = out->len_bytes;
	wire_put_u32(out, 0);
	if (part->status.code == 0) {
		manifest_encode(&part->manifest, out);
	}
	if (!out->failed) {
		wire_patch_u32(out, at, (uint32_t)(out->len_bytes - at - 4));
	}
	finish(out);
}

/* Reads the checksums of one shared partition. */
static void get_shared(struct wire_in *in, struct agree_msg_shared *shared)
{
	wire_get_str(in, shared->name, sizeof(shared->name));
	shared->size_bytes = wire_get_u64(in);
	shared->sums_n = wire_get_u32(in);
	if (shared->sums_n > wire_in_left(in) / 4) {
		in->failed = true;
	}
	shared->sums = in->failed ? NULL : calloc(shared->sums_n + 1, sizeof(*shared->sums));
	if (!shared->sums) {
		shared->sums_n = 0;
		in->failed = true;
	}
	for (uint32_t s = 0; s < shared->sums_n; s++) {
		shared->sums[s] = wire_get_u32(in);
	}
}

int agree_msg_get_part(const void *bytes, size_t len_bytes, struct agree_msg_part *part,
	struct pawl_err *err)
{
	const uint8_t *manifest;
	uint32_t manifest_len;
	struct wire_in in;
	uint32_t n;
	int rv;

	memset(part, 0, sizeof(*part));
	rv = read_header(bytes, len_bytes, AGREE_MSG_PART, &in, err);
	if (rv != 0) {
		return rv;
	}
	get_status(&in, &part->status);
	n = wire_get_u32(&in);
	if (in.failed || n > CKPT_PARTS_MAX) {
		return pawl_err_set(err, PAWL_ECORRUPT, "it is malformed");
	}
	part->shared = calloc(n + 1, sizeof(*part->shared));
	if (!part->shared) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for %u partitions", n);
	}
	for (; part->shared_n < n && !in.failed; part->shared_n++) {
		get_shared(&in, &part->shared[part->shared_n]);
	}
	manifest = wire_get_blob(&in, &manifest_len);
	rv = check_end(&in, err);
	if (rv == 0 && part->status.code == 0) {
		rv = manifest_decode(&part->manifest, manifest, manifest_len, err);
	}
	return rv;
}

void agree_msg_part_deinit(struct agree_msg_part *part)
{
	for (uint32_t p = 0; p < part->shared_n; p++) {
		free(part->shared[p].sums);
	}
	free(part->shared);
	manifest_deinit(&part->manifest);
	memset(part, 0, sizeof(*part));
}

/* ---- members of a run ---- */

static bool was_member(const struct agree_msg_run *old, uint64_t nonce)
{
	for (uint32_t m = 0; m < old->members_n; m++) {
		if (old->members[m].nonce == nonce) {
			return true;
		}
	}
	return false;
}

uint32_t agree_choose_members(const struct agree_member *own, uint32_t world,
	const struct agree_msg_join *joins, uint32_t joins_n, const struct agree_msg_run *old,
	struct agree_member *members, uint32_t *missing)
{
	uint32_t next = own->first_rank + own->ranks;
	uint32_t n = 0;
	bool found = true;

	ASSERT(own->first_rank == 0 && next <= world);
	while (next < world && found && n < AGREE_HOSTS_MAX) {
		found = false;
		for (uint32_t j = 0; j < joins_n && !found; j++) {
			const struct agree_member *member = &joins[j].member;

			found = member->first_rank == next && joins[j].world == world &&
				member->ranks >= 1 && member->ranks <= world - next &&
				!was_member(old, member->nonce);
			if (found) {
				members[n++] = *member;
				next += member->ranks;
			}
		}
	}
	ASSERT(next <= world);
	*missing = next;
	return next == world ? n : 0;
}
