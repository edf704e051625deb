/* Notes between the agents of several hosts, as bytes: see hosts_note.h. Pure. */
#include "agent/persist/hosts_note.h"

#include "base/crc.h"
#include "base/err.h"

#include <stdlib.h>
#include <string.h>

#define NOTE_VERSION 1u
#define NOTE_HEAD    17u /* bytes before the body: magic, version, kind, checksum */

enum note_kind { NOTE_JOIN = 1, NOTE_RUN, NOTE_WORD, NOTE_PART };

static const char magic[8] = "PAWLHOST";

/* ---- frame of every note ---- */

static void start(struct wire_out *out, enum note_kind kind)
{
	wire_out_reset(out);
	wire_put_raw(out, magic, sizeof(magic));
	wire_put_u32(out, NOTE_VERSION);
	wire_put_u8(out, (uint8_t)kind);
	wire_put_u32(out, 0);
}

static void finish(struct wire_out *out)
{
	if (!out->failed) {
		wire_patch_u32(out, NOTE_HEAD - 4,
			crc32c(0, out->bytes + NOTE_HEAD, out->len_bytes - NOTE_HEAD));
	}
}

/* Opens a note of this kind: checks its frame and sets body to what follows. */
static int open_note(const void *bytes, size_t len_bytes, enum note_kind kind, struct wire_in *body,
	struct pawl_err *err)
{
	const uint8_t *head;
	uint32_t version;
	uint8_t is;
	uint32_t crc;

	wire_in_init(body, bytes, len_bytes);
	head = wire_get_raw(body, sizeof(magic));
	version = wire_get_u32(body);
	is = wire_get_u8(body);
	crc = wire_get_u32(body);
	if (body->failed || memcmp(head, magic, sizeof(magic)) != 0) {
		return pawl_err_set(err, PAWL_ECORRUPT, "it is no note of a host");
	}
	if (version != NOTE_VERSION) {
		return pawl_err_set(err, PAWL_ENOTSUP,
			"it has version %u, this pawl knows %u: all hosts need the same one",
			version, NOTE_VERSION);
	}
	if (is != kind || crc != crc32c(0, body->at, wire_in_left(body))) {
		return pawl_err_set(err, PAWL_ECORRUPT, "its checksum or kind is wrong");
	}
	return 0;
}

static int close_note(const struct wire_in *body, struct pawl_err *err)
{
	return wire_in_done(body) ? 0 : pawl_err_set(err, PAWL_ECORRUPT, "it is malformed");
}

/* ---- each kind ---- */

static void put_member(struct wire_out *out, const struct hosts_member *member)
{
	wire_put_u32(out, member->first);
	wire_put_u32(out, member->ranks);
	wire_put_u64(out, member->nonce);
}

static void get_member(struct wire_in *in, struct hosts_member *member)
{
	member->first = wire_get_u32(in);
	member->ranks = wire_get_u32(in);
	member->nonce = wire_get_u64(in);
}

void note_put_join(struct wire_out *out, const struct note_join *join)
{
	start(out, NOTE_JOIN);
	put_member(out, &join->member);
	wire_put_u32(out, join->world);
	wire_put_str(out, join->job);
	finish(out);
}

int note_get_join(const void *bytes, size_t len_bytes, struct note_join *join, struct pawl_err *err)
{
	struct wire_in in;
	int rv = open_note(bytes, len_bytes, NOTE_JOIN, &in, err);

	if (rv == 0) {
		get_member(&in, &join->member);
		join->world = wire_get_u32(&in);
		wire_get_str(&in, join->job, sizeof(join->job));
		rv = close_note(&in, err);
	}
	return rv;
}

void note_put_run(struct wire_out *out, const struct note_run *run)
{
	start(out, NOTE_RUN);
	wire_put_u64(out, run->run);
	wire_put_u32(out, run->members_n);
	for (uint32_t m = 0; m < run->members_n; m++) {
		put_member(out, &run->members[m]);
	}
	finish(out);
}

int note_get_run(const void *bytes, size_t len_bytes, struct note_run *run, struct pawl_err *err)
{
	struct wire_in in;
	int rv = open_note(bytes, len_bytes, NOTE_RUN, &in, err);

	if (rv != 0) {
		return rv;
	}
	run->run = wire_get_u64(&in);
	run->members_n = wire_get_u32(&in);
	if (run->members_n > HOSTS_MAX) {
		return pawl_err_set(err, PAWL_ECORRUPT, "it names more than %u hosts", HOSTS_MAX);
	}
	for (uint32_t m = 0; m < run->members_n; m++) {
		get_member(&in, &run->members[m]);
	}
	return close_note(&in, err);
}

static void put_word(struct wire_out *out, const struct note_word *word)
{
	wire_put_u32(out, (uint32_t)-word->code);
	wire_put_str(out, word->why);
	wire_put_str(out, word->part);
	wire_put_u8(out, word->verdict);
	wire_put_u8(out, word->has_step);
	wire_put_u64(out, word->asked);
	wire_put_u8(out, word->found);
	wire_put_u64(out, word->step);
	wire_put_str(out, word->tag);
}

static void get_word(struct wire_in *in, struct note_word *word)
{
	word->code = -(int)(wire_get_u32(in) & 0xff);
	wire_get_str(in, word->why, sizeof(word->why));
	wire_get_str(in, word->part, sizeof(word->part));
	word->verdict = wire_get_u8(in);
	word->has_step = wire_get_u8(in);
	word->asked = wire_get_u64(in);
	word->found = wire_get_u8(in);
	word->step = wire_get_u64(in);
	wire_get_str(in, word->tag, sizeof(word->tag));
}

void note_put_word(struct wire_out *out, const struct note_word *word)
{
	start(out, NOTE_WORD);
	put_word(out, word);
	finish(out);
}

int note_get_word(const void *bytes, size_t len_bytes, struct note_word *word, struct pawl_err *err)
{
	struct wire_in in;
	int rv = open_note(bytes, len_bytes, NOTE_WORD, &in, err);

	if (rv == 0) {
		get_word(&in, word);
		rv = close_note(&in, err);
	}
	return rv;
}

void note_put_part(struct wire_out *out, const struct note_part *part)
{
	size_t at;

	start(out, NOTE_PART);
	put_word(out, &part->word);
	wire_put_u32(out, part->shared_n);
	for (uint32_t p = 0; p < part->shared_n; p++) {
		const struct note_shared *shared = &part->shared[p];

		wire_put_str(out, shared->name);
		wire_put_u64(out, shared->size_bytes);
		wire_put_u32(out, shared->sums_n);
		for (uint32_t s = 0; s < shared->sums_n; s++) {
			wire_put_u32(out, shared->sums[s]);
		}
	}
	at = out->len_bytes;
	wire_put_u32(out, 0);
	if (part->word.code == 0) {
		manifest_encode(&part->manifest, out);
	}
	if (!out->failed) {
		wire_patch_u32(out, at, (uint32_t)(out->len_bytes - at - 4));
	}
	finish(out);
}

/* Reads the checksums of one shared partition. */
static void get_shared(struct wire_in *in, struct note_shared *shared)
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

int note_get_part(const void *bytes, size_t len_bytes, struct note_part *part, struct pawl_err *err)
{
	const uint8_t *manifest;
	uint32_t manifest_len;
	struct wire_in in;
	uint32_t n;
	int rv;

	memset(part, 0, sizeof(*part));
	rv = open_note(bytes, len_bytes, NOTE_PART, &in, err);
	if (rv != 0) {
		return rv;
	}
	get_word(&in, &part->word);
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
	rv = close_note(&in, err);
	if (rv == 0 && part->word.code == 0) {
		rv = manifest_decode(&part->manifest, manifest, manifest_len, err);
	}
	return rv;
}

void note_part_deinit(struct note_part *part)
{
	for (uint32_t p = 0; p < part->shared_n; p++) {
		free(part->shared[p].sums);
	}
	free(part->shared);
	manifest_deinit(&part->manifest);
	memset(part, 0, sizeof(*part));
}

/* ---- members of a run ---- */

static bool was_in(const struct note_run *old, uint64_t nonce)
{
	for (uint32_t m = 0; m < old->members_n; m++) {
		if (old->members[m].nonce == nonce) {
			return true;
		}
	}
	return false;
}

uint32_t hosts_plan(const struct hosts_member *own, uint32_t world, const struct note_join *joins,
	uint32_t joins_n, const struct note_run *old, struct hosts_member *members,
	uint32_t *missing)
{
	uint32_t next = own->first + own->ranks;
	uint32_t n = 0;
	bool found = true;

	while (next < world && found && n < HOSTS_MAX) {
		found = false;
		for (uint32_t j = 0; j < joins_n && !found; j++) {
			const struct hosts_member *member = &joins[j].member;

			found = member->first == next && joins[j].world == world &&
				member->ranks >= 1 && member->ranks <= world - next &&
				!was_in(old, member->nonce);
			if (found) {
				members[n++] = *member;
				next += member->ranks;
			}
		}
	}
	*missing = next;
	return next == world ? n : 0;
}
