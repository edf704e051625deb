/*
 * The agent's side of a restore (session/session_restore.c is a rank's): all ranks take the same
 * step, from memory or from the store, and either all go on with it or none does.
 *
 * The first rank that asks starts a round; every rank gets the same offer, reads and verifies it
 * without touching its state, and votes. The verdict, once all have voted:
 *
 *   all are ready     all go on
 *   one found damage  that copy is dropped (memory) or put aside (store), and all ask again
 *   one refused       all get the reason
 *
 * A round ends with its verdict, or with the epoch.
 */
#include "agent/root.h"

#include "base/assert.h"
#include "base/err.h"
#include "base/log.h"

#include <stdio.h>
#include <string.h>

/* Whether the store has no higher step than slot, as far as is known. */
static bool is_highest(const struct agent_root *root, int slot)
{
	return slot >= 0 && root->ledger.slots[slot].step >= root->ledger.stored_step;
}

/* Finds the slot that a restore of that step takes; without has_step, the highest in memory, which
 * is taken if the store has no higher step. Returns -1 if there is none. */
static int find_slot(const struct agent_root *root, bool has_step, uint64_t step)
{
	const struct ledger *ledger = &root->ledger;

	if (root->remote_ranks > 0) {
		return -1; /* memory has only this host's ranks */
	}
	if (!has_step) {
		return ledger_highest(ledger, false);
	}
	for (int i = 0; i < LEDGER_SLOTS; i++) {
		const struct ledger_slot *slot = &ledger->slots[i];

		if (slot->state == SLOT_COMMITTED && !slot->streamed && slot->step == step) {
			return i;
		}
	}
	return -1;
}

/* Sends each rank's record and its arena's descriptor; neither for a rank without a part in the
 * save. */
static void send_memory(struct agent_root *root, struct agent_conn *conn, uint32_t id, int slot)
{
	const struct ledger_slot *entry = &root->ledger.slots[slot];
	struct frame_from_memory offer = {.step = entry->step, .shares_n = root->ledger.world};
	int fds[PROTO_RANKS_LOCAL];
	uint32_t fds_n = 0;

	snprintf(offer.tag, sizeof(offer.tag), "%s", entry->tag);
	for (uint32_t r = 0; r < root->ledger.world; r++) {
		const struct agent_rank *rank = &root->ranks[r];
		const struct wire_out *blob = &rank->blobs[slot];

		if (blob->len_bytes > 0) {
			fds[fds_n++] = rank->arenas[slot].fd;
			offer.shares[r] =
				(struct frame_share){.size_bytes = rank->arenas[slot].size_bytes,
					.record = {.bytes = blob->bytes,
						.len_bytes = (uint32_t)blob->len_bytes}};
		}
	}
	restore_done(root, conn); /* ends an earlier read of this rank, if any */
	conn->reading = slot;
	root->ledger.slots[slot].readers++;
	conn_send_fds(conn, PROTO_FROM_MEMORY, id, &offer, fds, fds_n);
}

static void send_nothing(struct agent_conn *conn, uint32_t id, uint32_t rounds)
{
	const struct frame_from_nothing nothing = {.rounds = rounds};

	conn_send(conn, PROTO_FROM_NOTHING, id, &nothing);
}

static void send_tag(struct agent_conn *conn, uint32_t id, const char *tag)
{
	struct frame_tag offer;

	snprintf(offer.tag, sizeof(offer.tag), "%s", tag);
	conn_send(conn, PROTO_FROM_STORE, id, &offer);
}

static void send_offer(struct agent_root *root, struct agent_conn *conn)
{
	struct agent_restore *restore = &root->restore;

	ASSERT(restore->state == RESTORE_OFFERED && conn->root == root);
	if (restore->nothing) { /* needs no vote: the round ends when all ranks have the answer */
		send_nothing(conn, conn->restore.id, root->epoch.rounds + 1);
	} else if (root->peers.plan != NULL) {
		restore_peers_offer(root, conn, conn->restore.id);
	} else if (restore->slot >= 0) {
		send_memory(root, conn, conn->restore.id, restore->slot);
	} else {
		send_tag(conn, conn->restore.id, restore->tag);
	}
	conn->restore.id = 0;
	conn->restore.offered = true;
	restore->offered++;
}

/* Has a rank that waits for an offer start a round, or join the one in progress. The rank still
 * waits if neither may be done yet. */
static void enter_round(struct agent_root *root, struct agent_conn *conn);

/* Starts the next round with the ranks that wait for one. */
static void ask_again(struct agent_root *root)
{
	root->restore.state = RESTORE_IDLE;
	for (uint32_t r = 0; r < root->ledger.world; r++) {
		struct agent_conn *conn = root->ranks[r].conn;

		if (conn && conn->restore.id && root->restore.state != RESTORE_RESOLVING) {
			enter_round(root, conn);
		}
	}
}

/* Ends the round. The next one begins with the ranks that have asked for it already. */
static void end_round(struct agent_root *root)
{
	for (uint32_t r = 0; r < root->ledger.world; r++) {
		if (root->ranks[r].conn) {
			root->ranks[r].conn->restore.offered = false;
		}
	}
	ask_again(root);
}

/* Ends the round when every rank has the answer that there is no checkpoint. */
static void finish_if_nothing(struct agent_root *root)
{
	if (root->restore.state == RESTORE_OFFERED && root->restore.nothing &&
		root->restore.offered == root->ledger.world) {
		root_restart_count(root);
		root_set_running(root, root->workers.running);
		end_round(root);
	}
}

static void offer_all(struct agent_root *root)
{
	for (uint32_t r = 0; r < root->ledger.world; r++) {
		struct agent_conn *conn = root->ranks[r].conn;

		if (conn && conn->restore.id) {
			send_offer(root, conn);
		}
	}
}

static void refuse_ask(struct agent_conn *conn, const struct pawl_err *err)
{
	conn_reply_error(conn, conn->restore.id, err);
	conn->restore.id = 0;
}

static void offer_slot(struct agent_root *root, int slot)
{
	ASSERT(root->ledger.slots[slot].state == SLOT_COMMITTED);
	root->restore.slot = slot;
	root->restore.step = root->ledger.slots[slot].step;
	root->restore.state = RESTORE_OFFERED;
}

/* Opens a round for the request of conn. The store is asked only where memory may not have the
 * answer. */
static void start_round(struct agent_root *root, struct agent_conn *conn)
{
	struct agent_restore *restore = &root->restore;
	struct persist_job *job;
	struct pawl_err err;
	int slot;

	restore_peers_end(root);
	*restore = (struct agent_restore){.has_step = conn->restore.has_step,
		.slot = -1,
		.step = conn->restore.step,
		.asked_step = conn->restore.step};
	slot = find_slot(root, restore->has_step, restore->step);
	if (slot >= 0 && (restore->has_step || is_highest(root, slot))) {
		offer_slot(root, slot);
		return;
	}
	job = root_job(root, PERSIST_RESOLVE, "");
	if (!job) {
		pawl_err_set(&err, PAWL_ENOMEM, "restore: out of memory");
		refuse_ask(conn, &err);
		return;
	}
	job->resolve.has_step = restore->has_step;
	job->resolve.step = restore->step;
	root_chosen_keep(root);
	if (root_peers_list(root, &job->resolve.held, &job->resolve.held_n, &err) != 0) {
		persist_job_free(job);
		refuse_ask(conn, &err);
		return;
	}
	restore->state = RESTORE_RESOLVING;
	persist_submit(root->storage.thread, job);
}

/* Whether a round may start. With ranks on other hosts: all ranks here ask, and nothing is still to
 * become durable, or what is can be restored from memory. All hosts come to the round in the same
 * order. */
static bool may_start(const struct agent_root *root)
{
	for (uint32_t r = 0; root->remote_ranks > 0 && r < root->ledger.world; r++) {
		if (!root->ranks[r].conn || !root->ranks[r].conn->restore.id) {
			return false;
		}
	}
	return root->peers.chooses ? root_chosen_may_restore(root)
				   : root->remote_ranks == 0 || ledger_all_durable(&root->ledger);
}

static void enter_round(struct agent_root *root, struct agent_conn *conn)
{
	struct agent_restore *restore = &root->restore;
	struct pawl_err err;

	if (conn->restore.offered) {
		/* The other ranks are a round behind: the answer waits for them. */
		return;
	}
	if (restore->state == RESTORE_IDLE && !may_start(root)) {
		return; /* restore_advance calls again */
	}
	if (restore->state == RESTORE_IDLE) {
		start_round(root, conn);
	} else if (restore->has_step != conn->restore.has_step ||
		(restore->has_step && restore->asked_step != conn->restore.step)) {
		pawl_err_set(&err, PAWL_EMISMATCH,
			"rank %u restores another step than the other ranks", conn->job_rank);
		refuse_ask(conn, &err);
		return;
	}
	if (restore->state == RESTORE_OFFERED) {
		send_offer(root, conn);
		finish_if_nothing(root);
	}
}

void restore_ask(struct agent_root *root, struct agent_conn *conn, uint32_t id,
	const struct frame_restore *asked)
{
	conn->restore.id = id;
	conn->restore.has_step = asked->has_step;
	conn->restore.step = asked->step;
	enter_round(root, conn);
}

void restore_advance(struct agent_root *root)
{
	if (root->remote_ranks == 0 || root->restore.state != RESTORE_IDLE || !may_start(root)) {
		return;
	}
	for (uint32_t r = 0; r < root->ledger.world; r++) {
		enter_round(root, root->ranks[r].conn);
	}
}

/* ---- one rank alone ---- */

/* Where all of a tag ("": the newest) can be read from. */
enum tag_source {
	TAG_SOURCE_NONE,    /* memory has nothing of the tag */
	TAG_SOURCE_SLOT,    /* one slot has all of the tag */
	TAG_SOURCE_STORE,   /* a slot has a part of the tag, and the store has all */
	TAG_SOURCE_PENDING, /* a slot has a part of the tag, and the store will have all */
};

static enum tag_source find_source(const struct agent_root *root, const char *name, int *slot)
{
	const struct ledger *ledger = &root->ledger;
	int highest = name[0] ? -1 : ledger_highest(ledger, true);
	const char *tag = highest >= 0 ? ledger->slots[highest].tag : name;
	enum tag_source source = TAG_SOURCE_NONE;
	uint32_t slots_n = 0;
	bool durable = true;

	for (int i = 0; i < LEDGER_SLOTS; i++) {
		const struct ledger_slot *at = &ledger->slots[i];

		if (at->state != SLOT_COMMITTED || strcmp(at->tag, tag) != 0) {
			continue;
		}
		source = TAG_SOURCE_SLOT;
		if (slots_n++ > 0 || at->adds || at->streamed || root->remote_ranks > 0) {
			source = TAG_SOURCE_STORE;
		}
		durable = durable && at->durable;
		*slot = i;
	}
	return source == TAG_SOURCE_STORE && !durable ? TAG_SOURCE_PENDING : source;
}

/* Asks the store for tag ("": its newest), for one rank. */
static void find_stored(struct agent_root *root, struct agent_conn *conn, uint32_t id,
	const char *tag)
{
	struct persist_job *job = root_job(root, PERSIST_RESOLVE, tag);
	struct pawl_err err;

	if (!job) {
		pawl_err_set(&err, PAWL_ENOMEM, "find a checkpoint: out of memory");
		conn_reply_error(conn, id, &err);
		return;
	}
	job->resolve.find_id = id;
	job->resolve.find_newest = tag[0] == '\0';
	job->resolve.find_rank = conn->rank;
	conn->find_id = id;
	persist_submit(root->storage.thread, job);
}

/* Answers one rank that asks for tag, from memory if it is there. */
static void find_for_rank(struct agent_root *root, struct agent_conn *conn, uint32_t id,
	const char *tag)
{
	int slot = -1;
	enum tag_source source = find_source(root, tag, &slot);
	struct pawl_err err;

	if (source == TAG_SOURCE_SLOT) {
		send_memory(root, conn, id, slot);
		return;
	}
	if (source == TAG_SOURCE_PENDING) {
		ledger_want_durable(&root->ledger, root->ledger.slots[slot].seq);
		pawl_err_set(&err, PAWL_EBUSY, "%s is being added to",
			root->ledger.slots[slot].tag);
		conn_reply_error(conn, id, &err);
		return;
	}
	find_stored(root, conn, id,
		source == TAG_SOURCE_STORE ? root->ledger.slots[slot].tag : tag);
}

void restore_find(struct agent_root *root, struct agent_conn *conn, uint32_t id, const char *tag)
{
	if (tag[0] != '\0' || is_highest(root, ledger_highest(&root->ledger, true))) {
		find_for_rank(root, conn, id, tag);
	} else {
		find_stored(root, conn, id, "");
	}
}

/* Whether memory has the tag that a restore takes, given the store's answer on its newest. */
static bool is_in_memory(const struct agent_root *root, const struct persist_job *job, int slot)
{
	const struct persist_found *found = &job->result.resolve;

	return job->result.rv == 0 && slot >= 0 &&
		(!found->found || root->ledger.slots[slot].step >= found->step);
}

/* Whether memory has a newer tag than the store, though an older one than the store should have
 * had. */
static bool is_store_behind(struct agent_root *root, const struct persist_job *job)
{
	const struct persist_found *found = &job->result.resolve;

	return root->remote_ranks == 0 && job->result.rv == 0 &&
		ledger_revive_slots(&root->ledger, found->found ? found->tag : "", found->step);
}

/* Sends the store's answer to the rank that asked, unless that rank has left. */
static void send_found(struct agent_root *root, const struct persist_job *job)
{
	const struct persist_resolve *asked = &job->resolve;
	const struct persist_result *result = &job->result;
	struct agent_conn *conn =
		asked->find_rank < root->ledger.world ? root->ranks[asked->find_rank].conn : NULL;

	if (!conn || conn->find_id != asked->find_id) {
		return;
	}
	conn->find_id = 0;
	if (asked->find_newest &&
		(is_store_behind(root, job) ||
			is_in_memory(root, job, ledger_highest(&root->ledger, true)))) {
		find_for_rank(root, conn, asked->find_id, "");
	} else if (result->rv != 0) {
		conn_reply_error(conn, asked->find_id, &result->err);
	} else if (result->resolve.found) {
		send_tag(conn, asked->find_id, result->resolve.tag);
	} else {
		send_nothing(conn, asked->find_id, 0);
	}
}

/* ---- from the memory of several hosts ---- */

static void finish(struct agent_root *root);

/* This host cannot restore what is in the memory of the hosts: votes that all ask again. */
static void refuse_fetched(struct agent_root *root, const struct pawl_err *err)
{
	struct agent_restore *restore = &root->restore;

	log_line(LOG_WARNING, "%s: step %llu is not restored from memory: %s", root->path,
		(unsigned long long)restore->step, err->msg);
	restore->verdict = VERDICT_RETRY;
	snprintf(restore->why, sizeof(restore->why), "ranks %u to %u: %.256s", root->first_rank,
		root->first_rank + root->ledger.world - 1, err->msg);
	if (!root_hosts_vote(root)) {
		finish(root);
	}
}

/* All hosts restore what the offer says from their memory. Takes the plan out of the job. */
static void begin_fetch(struct agent_root *root, struct persist_job *job)
{
	struct agent_restore *restore = &root->restore;
	struct recover_plan *plan = job->result.resolve.plan;
	struct pawl_err err;

	job->result.resolve.plan = NULL;
	restore->state = RESTORE_FETCHING;
	restore->step = plan->step;
	memcpy(restore->tag, plan->tag, sizeof(restore->tag));
	if (restore_peers_begin(root, plan, &err) != 0) {
		refuse_fetched(root, &err);
	}
}

void restore_reap(struct agent_root *root)
{
	struct pawl_err err;

	if (root->restore.state == RESTORE_FETCHING) {
		switch (restore_peers_state(root, &err)) {
		case FETCH_READY:
			root->restore.state = RESTORE_OFFERED;
			offer_all(root);
			break;
		case FETCH_FAILED:
			refuse_fetched(root, &err);
			break;
		default:
			break;
		}
	}
	restore_peers_reap(root);
}

/* ---- answers of the store ---- */

void restore_resolved(struct agent_root *root, struct persist_job *job)
{
	const struct persist_result *result = &job->result;
	struct agent_restore *restore = &root->restore;
	int slot;

	if (job->resolve.find_id) {
		send_found(root, job);
		return;
	}
	if (restore->state != RESTORE_RESOLVING || job->epoch != root->epoch.number) {
		return; /* the ranks that asked have ended */
	}
	/* After PAWL_EPEER the run of the hosts is over, and the ranks will ask again. */
	if (result->rv == PAWL_EPEER && root->remote_ranks > 0) {
		root_epoch_over(root, root->epoch.number, result->err.msg);
		return;
	}
	if (result->rv != 0) {
		restore->state = RESTORE_IDLE;
		for (uint32_t r = 0; r < root->ledger.world; r++) {
			if (root->ranks[r].conn && root->ranks[r].conn->restore.id) {
				refuse_ask(root->ranks[r].conn, &result->err);
			}
		}
		if (result->rv == PAWL_ETIMEDOUT && root->remote_ranks > 0) {
			root_epoch_over(root, root->epoch.number, result->err.msg);
		}
		return;
	}
	if (!restore->has_step && is_store_behind(root, job)) {
		ask_again(root);
		return;
	}
	if (result->resolve.memory) {
		begin_fetch(root, job);
		return;
	}
	slot = restore->has_step ? -1 : find_slot(root, false, 0);
	if (is_in_memory(root, job, slot)) {
		offer_slot(root, slot);
	} else {
		restore->state = RESTORE_OFFERED;
		restore->step = result->resolve.step;
		memcpy(restore->tag, result->resolve.tag, sizeof(restore->tag));
		restore->nothing = !result->resolve.found;
	}
	offer_all(root);
	finish_if_nothing(root);
}

static void put_aside(struct agent_root *root, const char *tag, const char *why)
{
	struct persist_job *job = root_job(root, PERSIST_ASIDE, tag);

	if (job) {
		snprintf(job->aside.why, sizeof(job->aside.why), "%.255s", why);
		persist_submit(root->storage.thread, job); /* before any later RESOLVE: one queue */
	}
}

void restore_condemn(struct agent_root *root, bool memory, const char *tag, const char *why)
{
	if (!memory) {
		put_aside(root, tag, why);
		return;
	}
	for (int i = 0; i < LEDGER_SLOTS; i++) {
		if (root->ledger.slots[i].state == SLOT_COMMITTED &&
			strcmp(root->ledger.slots[i].tag, tag) == 0) {
			ledger_drop(&root->ledger, i);
		}
	}
}

/* What all ranks have restored from the store is durable: until a save is, it is what a later start
 * finds. */
static void note_durable(struct agent_root *root)
{
	const struct agent_restore *restore = &root->restore;

	if (!root->storage.has_durable && !restore->nothing && !restore->has_step &&
		restore->slot < 0 && root->peers.plan == NULL) {
		root->storage.has_durable = true;
		memcpy(root->storage.durable_tag, restore->tag, sizeof(restore->tag));
	}
}

/* All have voted, here and on other hosts: carries the verdict out and sends it to all ranks. */
static void finish(struct agent_root *root)
{
	struct agent_restore *restore = &root->restore;
	bool in_memory = restore->slot >= 0 || root->peers.plan != NULL;
	struct frame_verdict frame;

	if (restore->verdict == VERDICT_GO) {
		note_durable(root);
		root_event(root, EVENT_RESTORED, in_memory ? "memory" : "store");
		root_restart_count(root);
		root_peers_restored(root, restore->step, !restore->has_step);
		if (root->peers.plan != NULL) { /* soon safe in the store, too */
			root_save_soon(root);
		}
	} else if (restore->verdict == VERDICT_RETRY && root->peers.plan != NULL) {
		root_peers_drop(root, &root->peers.plan->save);
	} else if (restore->verdict == VERDICT_RETRY && restore->slot >= 0) {
		ledger_drop(&root->ledger, restore->slot);
		root->history.rows[restore->slot].level = HISTORY_FAILED;
		root_row_end(root, restore->slot, restore->why);
	} else if (restore->verdict == VERDICT_RETRY && root->remote_ranks == 0) {
		put_aside(root, restore->tag, restore->why);
	}
	frame = (struct frame_verdict){.verdict = restore->verdict, .rounds = root->epoch.rounds};
	snprintf(frame.why, sizeof(frame.why), "%s", restore->why);
	for (uint32_t r = 0; r < root->ledger.world; r++) {
		struct agent_conn *conn = root->ranks[r].conn;
		uint32_t id = conn ? conn->restore.vote_id : 0;

		if (id != 0) {
			conn->restore.vote_id = 0;
			conn_send(conn, PROTO_VERDICT, id, &frame);
		}
	}
	end_round(root);
}

void restore_vote(struct agent_root *root, struct agent_conn *conn, uint32_t id, uint8_t verdict,
	const char *why)
{
	struct agent_restore *restore = &root->restore;

	if (restore->state != RESTORE_OFFERED) {
		struct pawl_err err;

		pawl_err_set(&err, PAWL_EPEER, "the restore was cancelled: a rank left");
		if (id != 0) {
			conn_reply_error(conn, id, &err);
		}
		conn->restore.vote_id = 0;
		return;
	}
	conn->restore.vote_id = id;
	if (verdict > restore->verdict) {
		restore->verdict = verdict;
		snprintf(restore->why, sizeof(restore->why), "rank %u: %.480s", conn->job_rank,
			why);
	}
	restore->voted++;
	if (restore->voted < root->ledger.world) {
		return;
	}
	if (root->remote_ranks == 0 || !root_hosts_vote(root)) {
		finish(root);
	}
}

void restore_voted(struct agent_root *root, const struct persist_job *job)
{
	struct agent_restore *restore = &root->restore;
	const struct persist_result *result = &job->result;
	bool failed = result->rv != 0;

	if (restore->state != RESTORE_VOTED || job->epoch != root->epoch.number) {
		return; /* The ranks that voted have ended. */
	}
	restore->verdict = result->vote.verdict;
	if (failed) {
		restore->verdict = result->rv == PAWL_EPEER ? VERDICT_RETRY : VERDICT_REFUSED;
		restore_peers_end(root); /* nobody found damage: what memory holds stays */
	}
	snprintf(restore->why, sizeof(restore->why), "%.255s",
		failed ? result->err.msg : result->vote.why);
	finish(root);
	if (result->rv == PAWL_ETIMEDOUT) { /* The rounds of the other hosts are unknown. */
		root_epoch_over(root, job->epoch, result->err.msg);
	}
}

void restore_done(struct agent_root *root, struct agent_conn *conn)
{
	if (conn->reading >= 0 && root->ledger.slots[conn->reading].readers > 0) {
		root->ledger.slots[conn->reading].readers--;
	}
	conn->reading = -1;
	restore_peers_done(root, conn);
}
