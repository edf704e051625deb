/*
 * Sends this host's part of a save to the hosts that hold its replicas, one after the other: see
 * replicate.h. The records go first, then the image, in blocks that are gathered from the arenas.
 * Links stay open between saves.
 */
#include "agent/peer/image.h"
#include "agent/peer/peer_link.h"
#include "agent/peer/replicate_impl.h"
#include "base/assert.h"
#include "base/crc.h"
#include "base/err.h"
#include "base/fault.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

/* A part on its way to one peer. */
struct sending {
	struct replicator *replicator;
	const struct offer *offer;
	const struct image *image;
	struct peer_link *link;
	uint32_t peer;         /* number of the peer, and of the sum if the part goes into one */
	uint64_t off;          /* offset in the image of the first byte of the block */
	uint32_t filled_bytes; /* bytes in the block */
};

static int fail_withdrawn(const struct offer *offer, struct pawl_err *err)
{
	return pawl_err_set(err, PAWL_ECANCELED,
		"step %" PRIu64 " made way for a newer save before it was replicated",
		offer->part.step);
}

/* Sends a request that is answered by PEER_OK. */
static int call(struct peer_link *link, const struct peer_msg *msg, struct pawl_err *err)
{
	struct peer_msg reply;

	return peer_link_call(link, msg, PEER_OK, &reply, err);
}

static int begin_put(struct sending *s, struct pawl_err *err)
{
	struct replicate_turn *turn = &s->replicator->turn;
	struct peer_msg msg = {.kind = PEER_PUT,
		.root = s->replicator->root,
		.part = s->offer->part,
		.global = turn->global,
		.len_bytes = s->image->size_bytes};

	msg.part.parity = turn->parity;
	msg.part.parity.row = turn->parity.k != 0 ? s->peer : 0;
	return call(s->link, &msg, err);
}

static int send_records(struct sending *s, struct pawl_err *err)
{
	const struct peer_part *part = &s->offer->part;
	int rv = 0;

	for (uint32_t i = 0; rv == 0 && i < part->ranks; i++) {
		const struct offer_rank *rank = &s->offer->ranks[i];
		struct peer_msg msg = {.kind = PEER_PUT_RECORD,
			.rank = part->first_rank + i,
			.size_bytes = rank->arena_bytes,
			.crc = crc32c(0, rank->blob, rank->blob_bytes),
			.blob = rank->blob,
			.blob_bytes = rank->blob_bytes};

		rv = peer_link_send(s->link, &msg, err);
	}
	return rv;
}

static int send_block(struct sending *s, struct pawl_err *err)
{
	struct peer_msg msg = {.kind = PEER_PUT_BYTES,
		.off = s->off,
		.blob = s->replicator->block,
		.blob_bytes = s->filled_bytes};

	if (!replicate_may_send(s->replicator, s->offer, s->filled_bytes)) {
		return fail_withdrawn(s->offer, err);
	}
	s->off += s->filled_bytes;
	s->filled_bytes = 0;
	return peer_link_send(s->link, &msg, err);
}

/* Reads from the arena of a rank of the part. */
static int read_arena(const struct offer_rank *rank, uint64_t off, uint8_t *bytes,
	uint32_t len_bytes, struct pawl_err *err)
{
	while (len_bytes > 0) {
		ssize_t n =
			FAULT_SYS("replicate.read", pread(rank->fd, bytes, len_bytes, (off_t)off));

		if (n < 0 && errno == EINTR) {
			continue;
		}
		if (n < 0) {
			return pawl_err_sys(err, "read an arena");
		}
		if (n == 0) {
			return pawl_err_set(err, PAWL_ECORRUPT,
				"an arena ends at byte %" PRIu64 ", before a piece in its record",
				off);
		}
		bytes += n;
		off += (uint64_t)n;
		len_bytes -= (uint32_t)n;
	}
	return 0;
}

/* Adds a piece to the block, and sends the block each time it is full. */
static int send_piece(struct sending *s, const struct image_piece *piece, struct pawl_err *err)
{
	uint32_t done_bytes = 0;
	int rv = 0;

	while (rv == 0 && done_bytes < piece->len_bytes) {
		uint32_t n = piece->len_bytes - done_bytes;

		if (n > PEER_BLOCK - s->filled_bytes) {
			n = PEER_BLOCK - s->filled_bytes;
		}
		rv = read_arena(&s->offer->ranks[piece->rank], piece->arena_off + done_bytes,
			s->replicator->block + s->filled_bytes, n, err);
		done_bytes += n;
		s->filled_bytes += n;
		if (rv == 0 && s->filled_bytes == PEER_BLOCK) {
			rv = send_block(s, err);
		}
	}
	return rv;
}

static int send_image(struct sending *s, struct pawl_err *err)
{
	struct image_at at = {0};
	struct image_piece piece;
	int rv = 0;

	while (rv == 0 && image_next(s->image, &at, &piece)) {
		rv = send_piece(s, &piece, err);
	}
	if (rv == 0 && s->filled_bytes > 0) {
		rv = send_block(s, err);
	}
	ASSERT(rv != 0 || s->off == s->image->size_bytes);
	return rv;
}

/* Opens a link to a peer, or uses the one that is open, and announces the part there. An open link
 * may be of no more use, since nothing was sent over it for a while: then a new one is tried. */
static int begin(struct sending *s, uint32_t index, const char *address, struct pawl_err *err)
{
	bool fresh;
	int rv;

	rv = replicate_link(s->replicator, index, address, &s->link, &fresh, err);
	rv = rv == 0 ? begin_put(s, err) : rv;
	if (rv == 0 || fresh || replicate_interrupted(s->replicator)) {
		return rv;
	}
	replicate_unlink(s->replicator, index);
	rv = replicate_link(s->replicator, index, address, &s->link, &fresh, err);
	return rv == 0 ? begin_put(s, err) : rv;
}

/* Sends the part to peer i of the run. */
static int send_to(struct replicator *replicator, const struct offer *offer,
	const struct image *image, uint32_t i, struct pawl_err *err)
{
	const struct peer_host *host = &replicator->turn.map.hosts[replicator->turn.peers[i]];
	struct sending s = {.replicator = replicator, .offer = offer, .image = image, .peer = i};
	struct peer_msg end = {.kind = PEER_PUT_END};
	int rv;

	rv = begin(&s, REPLICATE_PEER + i, host->address, err);
	rv = rv == 0 ? send_records(&s, err) : rv;
	rv = rv == 0 ? send_image(&s, err) : rv;
	rv = rv == 0 ? call(s.link, &end, err) : rv;
	if (rv == 0) {
		return 0;
	}
	replicate_unlink(replicator, REPLICATE_PEER + i);
	if (replicate_may_send(replicator, offer, 0)) {
		return pawl_err_prefix(err, rv, "step %" PRIu64 " to rank %" PRIu32 "'s host",
			offer->part.step, host->first_rank);
	}
	return fail_withdrawn(offer, err);
}

/* ---- the part ---- */

/* What the records of a part say. */
struct part_layout {
	struct record *records;   /* part.ranks entries; zeroed: no part */
	const struct record **at; /* part.ranks entries, into records */
	struct image image;
	uint32_t ranks; /* number of records */
};

static void deinit_layout(struct part_layout *layout)
{
	image_deinit(&layout->image);
	for (uint32_t i = 0; layout->records && i < layout->ranks; i++) {
		record_deinit(&layout->records[i]);
	}
	free(layout->records);
	free(layout->at);
}

static int init_layout(struct part_layout *layout, const struct offer *offer, struct pawl_err *err)
{
	uint32_t ranks = offer->part.ranks;
	int rv = 0;

	*layout = (struct part_layout){.ranks = ranks};
	layout->records = FAULT_MEM("replicate.records", calloc(ranks, sizeof(struct record)));
	layout->at = FAULT_MEM("replicate.layout", calloc(ranks, sizeof(void *)));
	if (!layout->records || !layout->at) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for %" PRIu32 " records", ranks);
	}
	for (uint32_t i = 0; rv == 0 && i < ranks; i++) {
		layout->at[i] = &layout->records[i];
		if (offer->ranks[i].blob) {
			rv = record_decode(&layout->records[i], offer->ranks[i].blob,
				offer->ranks[i].blob_bytes, err);
		}
	}
	return rv == 0 ? image_init(&layout->image, layout->at, ranks, err) : rv;
}

int replicate_send(struct replicator *replicator, const struct offer *offer, struct pawl_err *err)
{
	struct part_layout layout;
	int rv = init_layout(&layout, offer, err);

	for (uint32_t i = 0; rv == 0 && i < replicator->turn.peers_n; i++) {
		rv = send_to(replicator, offer, &layout.image, i, err);
	}
	deinit_layout(&layout);
	return rv;
}
