/*
 * Brings bytes of a part's image into the memory of a fetch: see fetch.h.
 *
 * A request covers whole pieces. Those that are not there yet are asked for in runs, from one host
 * after the other until none is missing. A piece enters the memory when all its bytes have come and
 * their checksum is right: what one host has damaged, the next one is asked for.
 */
#include "agent/peer/fetch_impl.h"
#include "agent/peer/held.h"
#include "agent/peer/peer_link.h"
#include "agent/peer/peers.h"
#include "base/assert.h"
#include "base/crc.h"
#include "base/err.h"
#include "base/fault.h"
#include "ckpt/format/pieces.h"
#include "ckpt/format/record.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Bytes that are asked for at a time, at most, apart from the last piece: a host that is lost, or a
 * request that is forgotten, costs no more. */
#define RUN_BYTES_MAX (64ull << 20)

/* ---- links ---- */

int fetch_host_of(const struct peer_fetch *fetch, const struct recover_source *source,
	uint32_t *host, struct pawl_err *err)
{
	for (uint32_t i = 0; i < fetch->map->n; i++) {
		if (fetch->map->hosts[i].first_rank == source->host) {
			*host = i;
			return 0;
		}
	}
	return pawl_err_set(err, PAWL_EPEER, "rank %" PRIu32 "'s host is not in the run",
		source->host);
}

/* Makes a link, which peer_fetch_close can cancel from then on, also while it connects. */
static int make_link(struct peer_fetch *fetch, uint32_t host, struct pawl_err *err)
{
	struct peer_link *link;
	bool stop;
	int rv = peer_link_make(&link, fetch->peers, err);

	if (rv != 0) {
		return rv;
	}
	pthread_mutex_lock(&fetch->lock);
	stop = fetch->stop;
	fetch->hosts[host].link = stop ? NULL : link;
	pthread_mutex_unlock(&fetch->lock);
	if (stop) {
		peer_link_close(link);
		return pawl_err_set(err, PAWL_ECANCELED, "the fetch was closed");
	}
	return 0;
}

int fetch_link(struct peer_fetch *fetch, uint32_t host, struct peer_link **link,
	struct pawl_err *err)
{
	const char *address = fetch->map->hosts[host].address;
	int rv = 0;

	if (!fetch->hosts[host].link) {
		if (address[0] == '\0') {
			return pawl_err_set(err, PAWL_EPEER,
				"its agent has no links to other hosts");
		}
		rv = make_link(fetch, host, err);
		rv = rv == 0 ? peer_link_connect(fetch->hosts[host].link, address, err) : rv;
	}
	if (rv == 0) {
		fetch->hosts[host].lost = false;
		*link = fetch->hosts[host].link;
	}
	return rv;
}

void fetch_lose(struct peer_fetch *fetch, uint32_t host)
{
	struct peer_link *link;

	pthread_mutex_lock(&fetch->lock);
	link = fetch->hosts[host].link;
	fetch->hosts[host].link = NULL;
	pthread_mutex_unlock(&fetch->lock);
	peer_link_close(link);
	fetch->hosts[host].lost = true;
}

struct held_part *fetch_held(const struct peer_fetch *fetch, const struct recover_source *source)
{
	struct held *held = peers_held(fetch->peers);
	const struct peer_save *save = &fetch->plan->save;

	return source->parity.k == 0
		? held_find(held, fetch->root, save, source->first_rank)
		: held_find_sum(held, fetch->root, save, &source->parity, source->first_rank);
}

void fetch_request_msg(const struct peer_fetch *fetch, const struct recover_source *source,
	enum peer_kind kind, struct peer_msg *msg)
{
	*msg = (struct peer_msg){.kind = kind,
		.root = fetch->root,
		.part = {.save = fetch->plan->save,
			.first_rank = source->first_rank,
			.parity = source->parity}};
}

int fetch_receive_bytes(struct peer_link *link, uint64_t off, uint64_t end, struct peer_msg *reply,
	struct pawl_err *err)
{
	int rv = peer_link_receive(link, reply, err);

	if (rv == 0 &&
		(reply->kind != PEER_BYTES || reply->off != off || reply->blob_bytes == 0 ||
			reply->blob_bytes > end - off)) {
		return pawl_err_set(err, PAWL_ECORRUPT, "other bytes came than were asked for");
	}
	return rv;
}

/* ---- pieces ---- */

static bool is_there(const struct fetch_part *part, uint32_t index)
{
	return (part->there[index / 8] >> index % 8 & 1) != 0;
}

/* Writes a piece to the arena of its rank. */
static int write_piece(struct fetch_run *run, const uint8_t *bytes, struct pawl_err *err)
{
	uint32_t rank = run->part->first_rank + run->piece.rank;
	uint64_t off = run->fetch->ranks[rank].given.off + run->piece.arena_off;
	uint32_t left_bytes = run->piece.len_bytes;

	while (left_bytes > 0) {
		ssize_t n = FAULT_SYS("fetch.write",
			pwrite(run->fetch->fd, bytes, left_bytes, (off_t)off));

		if (n < 0 && errno == EINTR) {
			continue;
		}
		if (n < 0) {
			run->broken = true;
			return pawl_err_sys(err, "write to the memory for step %" PRIu64,
				run->fetch->plan->step);
		}
		bytes += n;
		off += (uint64_t)n;
		left_bytes -= (uint32_t)n;
	}
	return 0;
}

/* Returns the partition of the piece that is being fetched. */
static const struct record_part *part_of_piece(const struct fetch_run *run)
{
	return &run->part->records[run->piece.rank].parts[run->piece.part];
}

static void keep_damage(struct fetch_run *run)
{
	uint64_t from = part_of_piece(run)->pieces[run->piece.piece].file_off;
	char where[PEER_ADDRESS_MAX + 64] = "rebuilt from other hosts";
	char bytes[64];

	if (run->damage.code != 0) {
		return;
	}
	if (run->source != NULL) {
		snprintf(where, sizeof(where), "on rank %" PRIu32 "'s host (%s)", run->source->host,
			run->fetch->map->hosts[run->host].address);
	}
	snprintf(bytes, sizeof(bytes), "%" PRIu64 " to %" PRIu64, from,
		from + run->piece.len_bytes - 1);
	pawl_err_set(&run->damage, PAWL_ECORRUPT,
		"rank %" PRIu32 "'s part of step %" PRIu64
		", %s: bytes %s of %s are not what was staged",
		run->part->first_rank + run->piece.rank, run->fetch->plan->step, where, bytes,
		part_of_piece(run)->name);
}

/* Takes the piece that is next, all of which has come, and goes on to the one after it. A damaged
 * piece is passed over. */
static int end_piece(struct fetch_run *run, const uint8_t *bytes, struct pawl_err *err)
{
	int rv = 0;

	if (crc32c(0, bytes, run->piece.len_bytes) != run->piece.crc) {
		keep_damage(run);
	} else {
		rv = write_piece(run, bytes, err);
		if (rv == 0) {
			run->fetch->brought_bytes += run->piece.len_bytes;
			run->part->there[run->index / 8] |= (uint8_t)(1u << run->index % 8);
		}
	}
	run->filled_bytes = 0;
	run->index++;
	if (run->at.off < run->end) {
		bool more = image_next(&run->part->image, &run->at, &run->piece);

		ASSERT(more);
	}
	return rv;
}

int fetch_take_bytes(struct fetch_run *run, const uint8_t *bytes, uint32_t len_bytes,
	struct pawl_err *err)
{
	uint8_t *piece = run->fetch->piece;
	int rv = 0;

	while (rv == 0 && len_bytes > 0) {
		uint32_t n = run->piece.len_bytes - run->filled_bytes;

		if (n > len_bytes) {
			n = len_bytes;
		}
		if (n == run->piece.len_bytes) {
			rv = end_piece(run, bytes, err);
		} else {
			memcpy(piece + run->filled_bytes, bytes, n);
			run->filled_bytes += n;
			rv = run->filled_bytes == run->piece.len_bytes ? end_piece(run, piece, err)
								       : 0;
		}
		bytes += n;
		len_bytes -= n;
	}
	return rv;
}

/* ---- runs ---- */

static int read_held(struct fetch_run *run, struct pawl_err *err)
{
	struct fetch_part *part = run->part;
	uint64_t off = run->piece.off;
	int rv = 0;

	if (!part->held) {
		part->held = fetch_held(run->fetch, run->source);
	}
	if (!part->held || held_part_image(part->held)->size_bytes != part->image.size_bytes) {
		return pawl_err_set(err, PAWL_ENOENT, "this host holds the part no more");
	}
	while (rv == 0 && off < run->end) {
		uint32_t len_bytes = run->piece.len_bytes;

		rv = held_part_read(part->held, off, run->fetch->piece, len_bytes, err);
		rv = rv == 0 ? end_piece(run, run->fetch->piece, err) : rv;
		off += len_bytes;
	}
	return rv;
}

static int read_remote(struct fetch_run *run, struct pawl_err *err)
{
	struct peer_fetch *fetch = run->fetch;
	uint64_t off = run->piece.off;
	struct peer_link *link = NULL;
	struct peer_msg msg;
	int rv;

	fetch_request_msg(fetch, run->source, PEER_GET, &msg);
	msg.off = off;
	msg.len_bytes = run->end - off;
	rv = fetch_link(fetch, run->host, &link, err);
	rv = rv == 0 ? peer_link_send(link, &msg, err) : rv;
	while (rv == 0 && off < run->end) {
		struct peer_msg reply;

		rv = fetch_receive_bytes(link, off, run->end, &reply, err);
		if (rv == 0) {
			off += reply.blob_bytes;
			rv = fetch_take_bytes(run, reply.blob, reply.blob_bytes, err);
		}
	}
	if (rv != 0) {
		fetch_lose(fetch, run->host); /* other answers may still be on their way */
	}
	return rv;
}

/* Brings the run from where it is. */
static int read_run(struct fetch_run *run, struct pawl_err *err)
{
	if (run->rows != NULL) {
		return fetch_read_rebuilt(run, err);
	}
	return run->host == run->fetch->map->own ? read_held(run, err) : read_remote(run, err);
}

/* Goes to the next piece before end that is not there. Returns false if there is none. */
static bool find_missing(struct fetch_run *run, uint64_t end)
{
	const struct image *image = &run->part->image;

	while (run->at.off < end && image_next(image, &run->at, &run->piece)) {
		if (!is_there(run->part, run->index)) {
			return true;
		}
		run->index++;
	}
	return false;
}

/* Sets the end of a run that begins with the next piece: before a piece that is there, and before
 * end. */
static void set_end(struct fetch_run *run, uint64_t end)
{
	/* Apart from the last piece. */
	uint64_t most_bytes = run->rows != NULL ? FETCH_ROW_BYTES - CKPT_CHUNK : RUN_BYTES_MAX;
	struct image_at at = run->at;
	struct image_piece piece;
	uint32_t index = run->index + 1;

	run->end = run->at.off;
	while (run->end < end && run->end - run->piece.off < most_bytes &&
		!is_there(run->part, index)) {
		bool more = image_next(&run->part->image, &at, &piece);

		ASSERT(more);
		run->end = at.off;
		index++;
	}
}

/* Places a run in front of the piece that has the byte at off of the image. */
static void begin_run(struct fetch_run *run, uint64_t off)
{
	image_find(&run->part->image, off, &run->at);
	run->index = run->part->pieces_before[run->at.part] + run->at.piece;
}

int fetch_bring_from(struct fetch_run *run, uint64_t off, uint64_t end, struct pawl_err *err)
{
	int rv = 0;

	begin_run(run, off);
	while (rv == 0 && find_missing(run, end)) {
		if (fetch_interrupted(run->fetch)) {
			return pawl_err_set(err, PAWL_ECANCELED, "the fetch was closed");
		}
		set_end(run, end);
		rv = read_run(run, err);
	}
	if (rv == 0 && run->damage.code != 0) {
		*err = run->damage;
		return run->damage.code;
	}
	return rv == 0 || run->source == NULL
		? rv
		: pawl_err_prefix(err, rv, "step %" PRIu64 ", rank %" PRIu32 "'s host",
			  run->fetch->plan->step, run->source->host);
}

/* Keeps the error of one try. Damage is kept rather than any other error. */
static void keep_error(struct pawl_err *last, const struct pawl_err *err)
{
	if (last->code != PAWL_ECORRUPT) {
		*last = *err;
	}
}

/* Tries the hosts that hold a part, either those that are lost or the others. Returns whether there
 * is no use in trying anything else; *last has the result. */
static bool try_sources(struct peer_fetch *fetch, struct fetch_part *part, bool lost, uint64_t off,
	uint64_t end, struct pawl_err *last)
{
	for (uint32_t i = 0; i < part->sources_n; i++) {
		struct fetch_run run = {.fetch = fetch, .part = part, .source = &part->sources[i]};
		struct pawl_err err = {0};
		int rv = fetch_host_of(fetch, run.source, &run.host, &err);

		if (rv == 0 && fetch->hosts[run.host].lost != lost) {
			continue;
		}
		rv = rv == 0 ? fetch_bring_from(&run, off, end, &err) : rv;
		if (rv == 0 || run.broken || fetch_interrupted(fetch)) {
			*last = err;
			last->code = rv;
			return true;
		}
		keep_error(last, &err);
	}
	return false;
}

static bool try_rebuild(struct peer_fetch *fetch, struct fetch_part *part, uint64_t off,
	uint64_t end, struct pawl_err *last)
{
	struct pawl_err err = {0};
	int rv;

	if (part->sums_n == 0) {
		return false;
	}
	rv = fetch_rebuild(fetch, part, off, end, &err);
	if (rv == 0 || fetch_interrupted(fetch)) {
		*last = err;
		last->code = rv;
		return true;
	}
	keep_error(last, &err);
	return false;
}

/* Returns the bytes that are missing of [off, end) of the image of a part. */
static uint64_t count_missing(struct fetch_part *part, uint64_t off, uint64_t end)
{
	struct fetch_run run = {.part = part};
	uint64_t bytes = 0;

	begin_run(&run, off);
	while (find_missing(&run, end)) {
		bytes += run.piece.len_bytes;
		run.index++;
	}
	return bytes;
}

int fetch_bring(struct peer_fetch *fetch, const struct fetch_request *request, struct pawl_err *err)
{
	struct fetch_part *part = fetch_find(fetch, request->rank);
	struct pawl_err last = {0};
	uint64_t off;
	uint64_t end;
	int rv;

	image_range(&part->image, request->rank - part->first_rank, request->part, request->lo,
		request->hi, &off, &end);
	if (off >= end) {
		return 0;
	}
	rv = fetch_check_room(fetch, count_missing(part, off, end), err);
	if (rv != 0) {
		return rv;
	}
	/* Hosts that were lost come last: they may have come back. */
	if (!try_sources(fetch, part, false, off, end, &last) &&
		!try_rebuild(fetch, part, off, end, &last) && fetch_await_lost(fetch) &&
		!try_sources(fetch, part, true, off, end, &last)) {
		try_rebuild(fetch, part, off, end, &last);
	}
	if (last.code != 0 && fetch_interrupted(fetch)) {
		return pawl_err_set(err, PAWL_ECANCELED, "the fetch was closed");
	}
	if (last.code != 0) {
		*err = last;
	}
	return last.code;
}
