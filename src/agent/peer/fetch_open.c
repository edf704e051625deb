/*
 * Opens a fetch: gets the records of all ranks, from this host or from those that hold them, and
 * makes the memory for their arenas. See fetch.h.
 */
#include "agent/peer/fetch_impl.h"
#include "agent/peer/held.h"
#include "agent/peer/peer_link.h"
#include "agent/peer/peers.h"
#include "base/assert.h"
#include "base/crc.h"
#include "base/err.h"
#include "base/fault.h"
#include "ckpt/format/record.h"
#include "ipc/tier.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define FETCH_BYTES_MAX (1ull << 56) /* bytes of all arenas; a save beyond is refused */
#define LEFT_TO_OTHERS  8u           /* one of so many parts of the available memory is left */
#define MIB             ((uint64_t)1 << 20)

static void drop_part(struct peer_fetch *fetch, struct fetch_part *part)
{
	image_deinit(&part->image);
	part->image = (struct image){0};
	for (uint32_t i = 0; i < part->ranks; i++) {
		struct fetch_own *own = &fetch->ranks[part->first_rank + i];

		if (part->records) {
			record_deinit(&part->records[i]);
		}
		free(own->blob);
		*own = (struct fetch_own){0};
	}
	free(part->records);
	free(part->at);
	free(part->pieces_before);
	free(part->there);
	part->records = NULL;
	part->at = NULL;
	part->pieces_before = NULL;
	part->there = NULL;
}

void fetch_drop_records(struct peer_fetch *fetch)
{
	for (uint32_t i = 0; i < fetch->parts_n; i++) {
		drop_part(fetch, &fetch->parts[i]);
		held_release(fetch->parts[i].held);
		fetch->parts[i].held = NULL;
	}
	if (fetch->fd >= 0) {
		close(fetch->fd);
	}
	fetch->fd = -1;
}

/* ---- records ---- */

/* Decodes the record of a rank, and keeps it. An empty blob: the rank has no part in the save. */
static int take_record(struct peer_fetch *fetch, struct fetch_part *part, uint32_t i,
	const uint8_t *blob, uint32_t blob_bytes, uint64_t arena_bytes, struct pawl_err *err)
{
	struct fetch_own *own = &fetch->ranks[part->first_rank + i];
	struct record *record = &part->records[i];
	int rv;

	if (blob_bytes == 0) {
		return 0;
	}
	rv = record_decode(record, blob, blob_bytes, err);
	if (rv != 0) {
		return rv;
	}
	if (record->rank != part->first_rank + i || record->world != fetch->world ||
		record->step != fetch->plan->step) {
		return pawl_err_set(err, PAWL_ECORRUPT,
			"a record of rank %" PRIu32 " of %" PRIu32 ", step %" PRIu64
			", came for that of rank %" PRIu32 " of %" PRIu32 ", step %" PRIu64,
			record->rank, record->world, record->step, part->first_rank + i,
			fetch->world, fetch->plan->step);
	}
	if (arena_bytes > FETCH_BYTES_MAX) {
		return pawl_err_set(err, PAWL_ECORRUPT, "an arena of %" PRIu64 " bytes",
			arena_bytes);
	}
	own->blob = FAULT_MEM("fetch.blob", malloc(blob_bytes));
	if (!own->blob) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for a record of %" PRIu32 " bytes",
			blob_bytes);
	}
	memcpy(own->blob, blob, blob_bytes);
	own->given = (struct peer_fetch_rank){.blob = own->blob,
		.blob_bytes = blob_bytes,
		.arena_bytes = arena_bytes};
	return 0;
}

/* Makes the tables of a part whose records are there. */
static int index_part(struct peer_fetch *fetch, struct fetch_part *part, struct pawl_err *err)
{
	struct image_at at = {0};
	struct image_piece piece;
	uint64_t pieces_n = 0;
	int rv = image_init(&part->image, part->at, part->ranks, err);

	if (rv != 0) {
		return rv;
	}
	while (image_next(&part->image, &at, &piece)) {
		const struct peer_fetch_rank *rank =
			&fetch->ranks[part->first_rank + piece.rank].given;

		if (piece.arena_off > rank->arena_bytes ||
			piece.len_bytes > rank->arena_bytes - piece.arena_off) {
			return pawl_err_set(err, PAWL_ECORRUPT,
				"record of rank %" PRIu32 ": a piece lies outside of its arena",
				part->first_rank + piece.rank);
		}
	}
	part->pieces_before = FAULT_MEM("fetch.index",
		calloc(part->image.parts_n + 1, sizeof(*part->pieces_before)));
	for (uint32_t i = 0; part->pieces_before && i < part->image.parts_n; i++) {
		const struct image_part *in = &part->image.parts[i];

		part->pieces_before[i] = (uint32_t)pieces_n;
		pieces_n += part->records[in->rank].parts[in->part].pieces_n;
		if (pieces_n > UINT32_MAX) {
			return pawl_err_set(err, PAWL_ECORRUPT, "too many pieces");
		}
	}
	part->pieces_n = (uint32_t)pieces_n;
	part->there = FAULT_MEM("fetch.there", calloc(pieces_n / 8 + 1, 1));
	if (!part->pieces_before || !part->there) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for a list of %" PRIu64 " pieces",
			pieces_n);
	}
	return 0;
}

static int get_held(struct peer_fetch *fetch, struct fetch_part *part,
	const struct recover_source *source, struct pawl_err *err)
{
	struct held_part *held = fetch_held(fetch, source);
	int rv = 0;

	if (!held || held_part_info(held)->first_rank != part->first_rank ||
		held_part_info(held)->ranks != part->ranks) {
		held_release(held);
		return pawl_err_set(err, PAWL_ENOENT, "this host holds the part no more");
	}
	for (uint32_t i = 0; rv == 0 && i < part->ranks; i++) {
		uint64_t arena_bytes;
		uint32_t blob_bytes;
		const uint8_t *blob;

		held_part_record(held, part->first_rank + i, &blob, &blob_bytes, &arena_bytes);
		rv = take_record(fetch, part, i, blob, blob_bytes, arena_bytes, err);
	}
	held_release(held);
	return rv;
}

static int get_remote(struct peer_fetch *fetch, struct fetch_part *part,
	const struct recover_source *source, uint32_t host, struct pawl_err *err)
{
	struct peer_msg msg;
	struct peer_link *link;
	int rv = fetch_link(fetch, host, &link, err);

	fetch_request_msg(fetch, source, PEER_GET_RECORDS, &msg);
	rv = rv == 0 ? peer_link_send(link, &msg, err) : rv;
	for (uint32_t i = 0; rv == 0 && i < part->ranks; i++) {
		struct peer_msg reply;

		rv = peer_link_receive(link, &reply, err);
		if (rv == 0 &&
			(reply.kind != PEER_RECORD || reply.rank != part->first_rank + i ||
				reply.crc != crc32c(0, reply.blob, reply.blob_bytes))) {
			rv = pawl_err_set(err, PAWL_ECORRUPT,
				"the record of rank %" PRIu32 " was damaged on its way",
				part->first_rank + i);
		}
		rv = rv == 0 ? take_record(fetch, part, i, reply.blob, reply.blob_bytes,
				       reply.size_bytes, err)
			     : rv;
	}
	if (rv != 0) {
		fetch_lose(fetch, host); /* other answers may still be on their way */
	}
	return rv;
}

/* Gets the records of a part from one of its sources. */
static int get_part(struct peer_fetch *fetch, struct fetch_part *part,
	const struct recover_source *source, struct pawl_err *err)
{
	uint32_t host;
	int rv = fetch_host_of(fetch, source, &host, err);

	if (rv != 0) {
		return rv;
	}
	part->records = FAULT_MEM("fetch.records", calloc(part->ranks, sizeof(*part->records)));
	part->at = FAULT_MEM("fetch.layout", calloc(part->ranks, sizeof(void *)));
	if (!part->records || !part->at) {
		rv = pawl_err_set(err, PAWL_ENOMEM, "no memory for %" PRIu32 " records",
			part->ranks);
	}
	for (uint32_t i = 0; rv == 0 && i < part->ranks; i++) {
		part->at[i] = &part->records[i];
	}
	if (rv == 0) {
		rv = host == fetch->map->own ? get_held(fetch, part, source, err)
					     : get_remote(fetch, part, source, host, err);
	}
	rv = rv == 0 ? index_part(fetch, part, err) : rv;
	if (rv != 0) {
		drop_part(fetch, part);
		return pawl_err_prefix(err, rv, "rank %" PRIu32 "'s host", source->host);
	}
	return 0;
}

/* ---- memory ---- */

static void set_most(struct peer_fetch *fetch)
{
	struct tier_limits limits = {.asked = 0};
	uint64_t available;

	tier_limits_read(&limits);
	available = limits.available < limits.cgroup ? limits.available : limits.cgroup;
	fetch->most_bytes = available - available / LEFT_TO_OTHERS;
}

int fetch_check_room(const struct peer_fetch *fetch, uint64_t more_bytes, struct pawl_err *err)
{
	uint64_t left_bytes = fetch->most_bytes - fetch->brought_bytes;

	return more_bytes <= left_bytes
		? 0
		: pawl_err_set(err, PAWL_ENOMEM,
			  "step %" PRIu64 " does not fit the memory of this host: %" PRIu64
			  " MiB are to be brought here, and %" PRIu64
			  " MiB of what is available may be used",
			  fetch->plan->step, (more_bytes + MIB - 1) / MIB, left_bytes / MIB);
}

/* Returns the bytes that the ranks of this host have staged, which they are going to read. */
static uint64_t count_own(struct peer_fetch *fetch)
{
	const struct peer_host *own = &fetch->map->hosts[fetch->map->own];
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < own->ranks && own->first_rank + i < fetch->world; i++) {
		const struct fetch_part *part = fetch_find(fetch, own->first_rank + i);
		const struct record *record =
			part ? &part->records[own->first_rank + i - part->first_rank] : NULL;

		for (uint32_t p = 0; record && p < record->parts_n; p++) {
			for (uint32_t k = 0; k < record->parts[p].pieces_n; k++) {
				bytes += record->parts[p].pieces[k].len_bytes;
			}
		}
	}
	return bytes;
}

static int make_memory(struct peer_fetch *fetch, struct pawl_err *err)
{
	int rv;

	for (uint32_t i = 0; i < fetch->world; i++) {
		struct peer_fetch_rank *rank = &fetch->ranks[i].given;

		rank->off = fetch->size_bytes;
		fetch->size_bytes += arena_round(rank->arena_bytes);
		if (fetch->size_bytes > FETCH_BYTES_MAX) {
			return pawl_err_set(err, PAWL_ECORRUPT,
				"the arenas of %" PRIu32 " ranks have more than %llu bytes",
				fetch->world, FETCH_BYTES_MAX);
		}
	}
	set_most(fetch);
	rv = fetch_check_room(fetch, count_own(fetch), err);
	if (rv != 0) {
		return rv;
	}
	fetch->fd = FAULT_SYS("fetch.create", memfd_create("pawl-fetch", MFD_CLOEXEC));
	if (fetch->fd < 0) {
		return pawl_err_sys(err, "create memory for a save");
	}
	if (FAULT_SYS("fetch.size", ftruncate(fetch->fd, (off_t)fetch->size_bytes)) != 0) {
		return pawl_err_sys(err, "size the memory for a save to %" PRIu64 " bytes",
			fetch->size_bytes);
	}
	return 0;
}

/* Gets the records of a part from the first of its sources that has them. */
static int try_sources(struct peer_fetch *fetch, struct fetch_part *part, struct pawl_err *err)
{
	int rv = PAWL_ENOENT;

	for (uint32_t s = 0; rv != 0 && s < part->sources_n + part->sums_n; s++) {
		rv = get_part(fetch, part, &part->sources[s], err);
		if (rv != 0 && fetch_interrupted(fetch)) {
			break;
		}
	}
	return rv;
}

int fetch_get_records(struct peer_fetch *fetch, struct pawl_err *err)
{
	int rv = 0;

	for (uint32_t i = 0; rv == 0 && i < fetch->parts_n; i++) {
		struct fetch_part *part = &fetch->parts[i];

		rv = try_sources(fetch, part, err);
		if (rv != 0 && fetch_await_lost(fetch)) {
			rv = try_sources(fetch, part, err);
		}
		if (rv != 0 && fetch_interrupted(fetch)) {
			return pawl_err_set(err, PAWL_ECANCELED, "the fetch was closed");
		}
		if (rv != 0) {
			pawl_err_prefix(err, rv,
				"records of ranks %" PRIu32 " to %" PRIu32 " of step %" PRIu64,
				part->first_rank, part->first_rank + part->ranks - 1,
				fetch->plan->step);
		}
	}
	return rv == 0 ? make_memory(fetch, err) : rv;
}
