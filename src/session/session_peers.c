/*
 * Inside a worker: restores from the memory of other hosts. The agent offers one memory in which
 * the arenas of all ranks of the job lie, and fills in the bytes that its ranks ask for (FETCH).
 *
 * source_take_peers maps the memory, which is empty at first. Before a range is read and its
 * checksums are compared, source_fetch asks for the pieces of the range that this rank has not
 * asked for yet. From then on they are read as those of any arena are.
 *
 * After a FETCH that fails, its pieces still count as not here: the next attempt asks again.
 */
#include "session/session_source.h"

#include "base/err.h"
#include "base/fault.h"
#include "base/times.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FETCH_MAX (256u << 20) /* bytes of a file in one request, at most */

/* Decodes one rank's row of the offer. */
static int take_share(struct pawl_restore *restore, const struct frame_peer_share *share,
	struct source_rank *rank, struct pawl_err *err)
{
	int rv;

	if (share->record.len_bytes == 0) {
		return 0; /* the rank has no part in this save */
	}
	if (share->off > restore->map_bytes ||
		share->size_bytes > restore->map_bytes - share->off) {
		return pawl_err_set(err, PAWL_ECORRUPT, "an arena passes the end of the memory");
	}
	rv = record_decode(&rank->record, share->record.bytes, share->record.len_bytes, err);
	if (rv != 0) {
		return rv;
	}
	rank->arena = restore->map + share->off;
	rank->size_bytes = share->size_bytes;
	rank->here =
		FAULT_MEM("restore.peers", calloc(rank->record.parts_n + 1u, sizeof(*rank->here)));
	return rank->here ? 0 : pawl_err_set(err, PAWL_ENOMEM, "no memory to restore");
}

static int take_shares(struct pawl_restore *restore, const struct frame_rows *rows,
	struct pawl_err *err)
{
	struct frame_peer_share *shares =
		FAULT_MEM("restore.peers", calloc(rows->n, sizeof(*shares)));
	int rv = 0;

	restore->ranks = FAULT_MEM("restore.peers", calloc(rows->n, sizeof(*restore->ranks)));
	restore->info.world = rows->n;
	if (!shares || !restore->ranks) {
		free(shares);
		return pawl_err_set(err, PAWL_ENOMEM, "no memory to restore %u ranks", rows->n);
	}
	frame_rows_read(rows, &frame_peer_share_layout, shares);
	for (uint32_t r = 0; r < rows->n && rv == 0; r++) {
		rv = take_share(restore, &shares[r], &restore->ranks[r], err);
		if (rv != 0) {
			rv = pawl_err_prefix(err, rv, "%s in other hosts' memory: rank %u",
				restore->tag, r);
		}
	}
	free(shares);
	return rv;
}

int source_take_peers(struct pawl_restore *restore, const struct link_reply *reply,
	struct pawl_err *err)
{
	struct frame_from_peers offer;
	int rv = link_reply_get(reply, PROTO_FROM_PEERS, &offer, sizeof(offer), err);

	if (rv != 0) {
		return rv;
	}
	if (reply->fds_n != 1 || offer.memory_bytes == 0 || offer.shares.n == 0 ||
		offer.shares.n > PROTO_RANKS_JOB) {
		return pawl_err_set(err, PAWL_ECORRUPT,
			"malformed offer to restore from other hosts' memory");
	}
	snprintf(restore->tag, sizeof(restore->tag), "%s", offer.tag);
	restore->info.tag = restore->tag;
	restore->info.step = offer.step;
	restore->info.memory = true;
	restore->peers = true;
	restore->map = arena_map_fd(reply->fds[0], offer.memory_bytes);
	if (!restore->map) {
		return pawl_err_sys(err, "map the memory for %s, of %llu bytes", restore->tag,
			(unsigned long long)offer.memory_bytes);
	}
	restore->map_bytes = offer.memory_bytes;
	return take_shares(restore, &offer.shares, err);
}

void source_drop_peers(struct pawl_restore *restore)
{
	for (uint32_t r = 0; restore->ranks && r < restore->info.world; r++) {
		struct source_rank *rank = &restore->ranks[r];

		for (uint32_t p = 0; rank->here && p < rank->record.parts_n; p++) {
			free(rank->here[p]);
		}
		free(rank->here);
		rank->arena = NULL; /* a part of the map, which is unmapped whole */
	}
	arena_unmap(restore->map, restore->map_bytes);
}

/* Asks for bytes once, and waits until they are in the memory. */
static int call_fetch(struct pawl_ckpt *ckpt, const struct frame_fetch *fetch, struct pawl_err *err)
{
	uint8_t nothing; /* OK has no body */
	int rv;

	pthread_mutex_lock(&ckpt->saving);
	rv = ckpt->link ? link_call(ckpt->link, &ckpt->frame, PROTO_FETCH, fetch,
				  times_ms(TIME_SESSION_FETCH), &ckpt->reply, err)
			: pawl_err_set(err, PAWL_EPEER, "the agent is gone");
	if (rv == 0) {
		rv = link_reply_get(&ckpt->reply, PROTO_OK, &nothing, 0, err);
		link_reply_close(&ckpt->reply);
	}
	pthread_mutex_unlock(&ckpt->saving);
	return rv;
}

/* Fetches pieces from first to before end, none of which is here, in requests of FETCH_MAX. */
static int fetch_run(struct pawl_restore *restore, uint32_t rank, const struct record_part *share,
	uint32_t first, uint32_t end, struct pawl_err *err)
{
	uint32_t part = (uint32_t)(share - restore->ranks[rank].record.parts);
	bool *here = restore->ranks[rank].here[part];
	const struct record_piece *pieces = share->pieces;
	int rv = 0;

	while (first < end && rv == 0) {
		struct frame_fetch fetch = {.rank = rank, .part = part};
		uint32_t to = first;

		fetch.lo = pieces[first].file_off;
		while (to < end &&
			pieces[to].file_off + pieces[to].len_bytes - fetch.lo <= FETCH_MAX) {
			fetch.hi = pieces[to].file_off + pieces[to].len_bytes;
			to++;
		}
		rv = call_fetch(restore->ckpt, &fetch, err);
		if (rv == 0) {
			memset(here + first, true, to - first);
		}
		first = to;
	}
	return rv;
}

int source_fetch(struct pawl_restore *restore, uint32_t rank, const struct record_part *share,
	uint64_t lo, uint64_t hi, struct pawl_err *err)
{
	const struct record_piece *pieces = share->pieces;
	bool **here = &restore->ranks[rank].here[share - restore->ranks[rank].record.parts];
	uint32_t at = 0;
	int rv = 0;

	if (!*here) {
		*here = FAULT_MEM("restore.peers", calloc(share->pieces_n + 1u, sizeof(**here)));
	}
	if (!*here) {
		return pawl_err_set(err, PAWL_ENOMEM, "%s: no memory", share->name);
	}
	while (at < share->pieces_n && pieces[at].file_off + pieces[at].len_bytes <= lo) {
		at++;
	}
	while (at < share->pieces_n && pieces[at].file_off < hi && rv == 0) {
		uint32_t first = at;

		while (at < share->pieces_n && pieces[at].file_off < hi && !(*here)[at]) {
			at++;
		}
		if (first < at) {
			rv = fetch_run(restore, rank, share, first, at, err);
		} else {
			at++; /* this piece is here */
		}
	}
	return rv == 0
		? 0
		: pawl_err_prefix(err, rv, "%s/%s of rank %u", restore->tag, share->name, rank);
}
