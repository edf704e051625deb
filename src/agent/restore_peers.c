/*
 * Restores a save that the hosts of a job hold in memory: each host fetches what its ranks read
 * (agent/peer/fetch.h). restore.c has the round around it: the offer, the votes, the verdict.
 */
#include "agent/root.h"

#include "agent/peer/fetch.h"
#include "agent/persist/write_tag.h"
#include "base/assert.h"
#include "base/err.h"
#include "base/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint32_t job_ranks(const struct agent_root *root)
{
	return root->ledger.world + root->remote_ranks;
}

void restore_peers_end(struct agent_root *root)
{
	peer_fetch_close(root->peers.fetch);
	root->peers.fetch = NULL;
	free(root->peers.plan);
	root->peers.plan = NULL;
	for (uint32_t r = 0; r < root->ledger.world; r++) {
		struct agent_conn *conn = root->ranks[r].conn;

		if (conn != NULL) {
			conn->fetches = false;
			conn->fetch_id = 0;
		}
	}
}

int restore_peers_begin(struct agent_root *root, struct recover_plan *plan, struct pawl_err *err)
{
	ASSERT(root->peers.has_links && root->peers.fetch == NULL && root->peers.plan == NULL);
	root->peers.plan = plan;
	root_peers_reap(root); /* the run may have been entered just now */
	return peer_fetch_open(&root->peers.fetch, root->agent->peers, root->agent->loop,
		root->peers.root, plan, job_ranks(root), &root->peers.map, err);
}

/* ---- the offer ---- */

/* Checks that the records of all ranks of the job fit together. Those of one host's ranks were
 * compared when they committed; those of different hosts are compared when a tag is written, which
 * this save may never have been. */
static int check_records(const struct agent_root *root, struct pawl_err *err)
{
	uint32_t world = job_ranks(root);
	struct record *records = calloc(world, sizeof(*records));
	const struct record **list = calloc(world, sizeof(void *));
	char part[CKPT_NAME_MAX] = "";
	int rv = records != NULL && list != NULL
		? 0
		: pawl_err_set(err, PAWL_ENOMEM, "no memory for the records of %" PRIu32 " ranks",
			  world);

	for (uint32_t r = 0; rv == 0 && r < world; r++) {
		struct peer_fetch_rank rank;

		peer_fetch_rank(root->peers.fetch, r, &rank);
		list[r] = &records[r];
		if (rank.blob != NULL) {
			rv = record_decode(&records[r], rank.blob, rank.blob_bytes, err);
		}
	}
	if (rv == 0) {
		rv = write_tag_check(list, world, 0, part, err);
	}
	for (uint32_t r = 0; records != NULL && r < world; r++) {
		record_deinit(&records[r]);
	}
	free(list);
	free(records);
	return rv;
}

enum peer_fetch_state restore_peers_state(struct agent_root *root, struct pawl_err *err)
{
	enum peer_fetch_state state = peer_fetch_state(root->peers.fetch, err);

	return state == FETCH_READY && check_records(root, err) != 0 ? FETCH_FAILED : state;
}

void restore_peers_offer(struct agent_root *root, struct agent_conn *conn, uint32_t id)
{
	const struct recover_plan *plan = root->peers.plan;
	struct frame_from_peers offer = {.step = plan->step};
	struct wire_out rows = {0};
	struct pawl_err err;
	int fd;

	snprintf(offer.tag, sizeof(offer.tag), "%s", plan->tag);
	peer_fetch_memory(root->peers.fetch, &fd, &offer.memory_bytes);
	for (uint32_t r = 0; r < job_ranks(root); r++) {
		struct frame_peer_share share = {0};
		struct peer_fetch_rank rank;

		peer_fetch_rank(root->peers.fetch, r, &rank);
		share.off = rank.off;
		share.size_bytes = rank.arena_bytes;
		share.record = (struct frame_blob){rank.blob, rank.blob_bytes};
		frame_layout_encode(&rows, &frame_peer_share_layout, &share);
	}
	offer.shares = (struct frame_rows){rows.bytes, (uint32_t)rows.len_bytes, job_ranks(root)};
	if (rows.failed) {
		wire_out_error(&rows, "an offer to restore", &err);
		conn_reply_error(conn, id, &err);
	} else {
		conn->fetches = true;
		conn_send_fds(conn, PROTO_FROM_PEERS, id, &offer, &fd, 1);
	}
	wire_out_deinit(&rows);
}

/* ---- what ranks read ---- */

void restore_fetch(struct agent_root *root, struct agent_conn *conn, uint32_t id,
	const struct frame_fetch *fetch)
{
	struct pawl_err err;
	int rv = 0;

	if (root->peers.fetch == NULL || !conn->fetches) {
		rv = pawl_err_set(&err, PAWL_EINVAL, "no save is being fetched");
	} else if (id == 0 || conn->fetch_id != 0) {
		conn->closing = true; /* one request at a time, and each has a number */
		return;
	} else {
		rv = peer_fetch_ask(root->peers.fetch, fetch->rank, fetch->part, fetch->lo,
			fetch->hi, conn, &err);
	}
	if (rv != 0) {
		conn_reply_error(conn, id, &err);
	} else {
		conn->fetch_id = id;
	}
}

void restore_peers_reap(struct agent_root *root)
{
	struct peer_fetch_done done;

	while (root->peers.fetch != NULL && peer_fetch_reap(root->peers.fetch, &done)) {
		struct agent_conn *conn = done.user;
		uint32_t id = conn->fetch_id;

		ASSERT(id != 0);
		conn->fetch_id = 0;
		if (done.rv == 0) {
			conn_send(conn, PROTO_OK, id, NULL);
		} else {
			/* For this rank the bytes are damaged: all ask again, and get another
			 * save. */
			done.err.code = PAWL_ECORRUPT;
			conn_reply_error(conn, id, &done.err);
		}
	}
}

void restore_peers_done(struct agent_root *root, struct agent_conn *conn)
{
	if (root->peers.fetch == NULL || !conn->fetches) {
		return;
	}
	conn->fetches = false;
	conn->fetch_id = 0;
	peer_fetch_forget(root->peers.fetch, conn);
	for (uint32_t r = 0; r < root->ledger.world; r++) {
		if (root->ranks[r].conn != NULL && root->ranks[r].conn->fetches) {
			return;
		}
	}
	if (root->restore.state == RESTORE_IDLE) {
		restore_peers_end(root);
	}
}
