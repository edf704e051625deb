/* Carries out what the ledger decides of a root's saves. See root.h for the parts. */
#include "agent/root.h"

#include "agent/persist/write_tag.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/proc.h"
#include "base/times.h"

#include <stdio.h>
#include <string.h>

static void drop_record(struct agent_rank *rank, int slot)
{
	record_deinit(&rank->records[slot]);
	memset(&rank->records[slot], 0, sizeof(rank->records[slot]));
	wire_out_reset(&rank->blobs[slot]);
}

void root_free_slot(struct agent_rank *rank, int slot)
{
	drop_record(rank, slot);
	arena_deinit(&rank->arenas[slot]);
}

/* Drops a save that has failed: removes its directory (if it streamed), and notifies all ranks. */
static void drop_save(struct agent_root *root, int slot, int code, const char *why)
{
	const struct ledger_slot *entry = &root->ledger.slots[slot];

	if (entry->streamed) {
		root_submit(root, PERSIST_STREAM_DROP, entry->tag);
	}
	log_line(LOG_WARNING, "%s: %s is not saved: %s", root->path, entry->tag, why);
	root_send_level(root, entry->seq, LEVEL_FAILED, code, why);
	root->history.refused_seq = entry->seq;
	root_row_end(root, slot, why);
}

/* Returns the tag being staged under this number, or "". */
static const char *staging_tag(const struct agent_root *root, uint64_t seq)
{
	for (int i = 0; seq != 0 && i < LEDGER_SLOTS; i++) {
		const struct ledger_slot *slot = &root->ledger.slots[i];

		if (slot->state == SLOT_STAGING && slot->seq == seq) {
			return slot->tag;
		}
	}
	return "";
}

static void fail_seq(struct agent_root *root, uint64_t seq, int code, const char *why)
{
	int slot = ledger_fail(&root->ledger, seq, code, why);

	root_hosts_fail_save(root, seq, code, why);
	if (slot >= 0) {
		drop_save(root, slot, code, why);
	}
}

void root_fail(struct agent_root *root, uint32_t rank, uint64_t seq, const char *tag, int code,
	const char *why)
{
	struct ledger *ledger = &root->ledger;
	char name[CKPT_TAG_MAX];
	int slot = -1;

	if (!ledger->named) {
		fail_seq(root, seq, code, why);
	} else {
		snprintf(name, sizeof(name), "%s", seq ? staging_tag(root, seq) : tag);
		slot = name[0] ? ledger_fail_tag(ledger, rank, name, code, why) : -1;
	}
	if (slot >= 0) {
		drop_save(root, slot, code, why);
	}
	root_advance(root);
}

/* ---- begin ---- */

static uint32_t count_fits(const struct agent_root *root, uint64_t need_bytes)
{
	struct tier_limits limits = {.asked = root->saves.memory_bytes};
	uint64_t used_bytes = 0;
	uint32_t times = 0;

	tier_limits_read(&limits);
	for (uint32_t r = 0; r < root->ledger.world; r++) {
		for (int s = 0; s < LEDGER_SLOTS; s++) {
			used_bytes += arena_used_bytes(&root->ranks[r].arenas[s]);
		}
	}
	limits.available += used_bytes; /* the tier may use its own memory again */
	if (limits.cgroup != UINT64_MAX) {
		limits.cgroup += used_bytes;
	}
	while (times < LEDGER_SLOTS &&
		arena_round(need_bytes) * (times + 1) * root->ledger.world <=
			tier_budget(&limits)) {
		times++;
	}
	return times;
}

uint32_t root_fits(const struct agent_root *root, uint64_t need_bytes)
{
	uint32_t times = count_fits(root, need_bytes);

	return times < LEDGER_SLOTS && root_peers_trim(root) ? count_fits(root, need_bytes) : times;
}

/* Empties the spare slot, which no longer fits memory. The workers' mappings of it stay. */
static void empty_spare(struct agent_root *root)
{
	root_peers_withdraw(root, LEDGER_SPARE);
	for (uint32_t r = 0; r < root->ledger.world; r++) {
		drop_record(&root->ranks[r], LEDGER_SPARE);
		arena_empty(&root->ranks[r].arenas[LEDGER_SPARE]);
	}
}

/* Grants a rank its slot. Sends the arenas that the rank does not have yet, also those that may be
 * next, so that it can prepare them in the background. */
static void grant(struct agent_root *root, struct agent_conn *conn, uint32_t id, int slot)
{
	struct agent_rank *rank = &root->ranks[conn->rank];
	struct frame_grant granted = {.slot = (uint8_t)slot, .seq = root->ledger.slots[slot].seq};
	int fds[LEDGER_SLOTS];
	struct pawl_err err;

	ASSERT(root->ledger.slots[slot].state == SLOT_STAGING);
	for (int s = 0; s < LEDGER_SLOTS; s++) {
		if ((s == slot || ledger_is_next(&root->ledger, s)) &&
			arena_ensure(&rank->arenas[s], conn->begin.need_bytes, &err) != 0) {
			conn_reply_error(conn, id, &err);
			root_fail(root, conn->rank, root->ledger.slots[slot].seq, "", err.code,
				err.msg);
			return;
		}
	}
	drop_record(rank, slot);
	for (int s = 0; s < LEDGER_SLOTS; s++) {
		if (rank->arenas[s].id == conn->arena_ids[s] || rank->arenas[s].size_bytes == 0) {
			continue;
		}
		conn->arena_ids[s] = rank->arenas[s].id;
		fds[granted.arenas_n] = rank->arenas[s].fd;
		granted.arenas[granted.arenas_n++] = (struct frame_arena){.slot = (uint8_t)s,
			.size_bytes = rank->arenas[s].size_bytes};
	}
	conn_send_fds(conn, PROTO_GRANT, id, &granted, fds, granted.arenas_n);
}

static void grant_stream(struct agent_conn *conn)
{
	struct frame_grant granted = {.streamed = true, .seq = conn->stream.seq};
	uint32_t id = conn->stream.id;

	ASSERT(id != 0 && conn->root->saves.stream_dir[0] != '\0');
	snprintf(granted.dir, sizeof(granted.dir), "%s", conn->root->saves.stream_dir);
	conn->stream.id = 0;
	conn_send(conn, PROTO_GRANT, id, &granted);
}

/* Begins to stream, since the save does not fit the budget, or the rank asked for it. Frees memory:
 * that of this slot now, that of the others once a newer save is durable. The worker unmaps all. */
static void begin_stream(struct agent_root *root, struct agent_conn *conn, uint32_t id,
	const struct ledger_verdict *verdict)
{
	struct persist_job *job;

	conn->stream.id = id;
	conn->stream.seq = verdict->seq;
	memset(conn->arena_ids, 0, sizeof(conn->arena_ids));
	if (!verdict->granted_before) {
		root_free_slot(&root->ranks[conn->rank], verdict->slot);
	}
	if (!verdict->fresh && !verdict->now_streamed) {
		if (root->saves.stream_ready) {
			grant_stream(conn);
		}
		return; /* answered with the first rank's directory */
	}
	job = root_job(root, PERSIST_STREAM_BEGIN, conn->begin.ask.tag);
	if (!job) {
		root_fail(root, conn->rank, verdict->seq, "", PAWL_ENOMEM, "out of memory");
		return;
	}
	job->stream_begin.seq = verdict->seq;
	root->saves.stream_ready = false;
	persist_submit(root->storage.thread, job);
}

void root_streams_ready(struct agent_root *root, const struct persist_job *job)
{
	const struct persist_result *result = &job->result;
	struct pawl_err err = result->err;

	for (uint32_t r = 0; r < root->ledger.world; r++) {
		struct agent_conn *conn = root->ranks[r].conn;

		if (!conn || !conn->stream.id || strcmp(conn->begin.ask.tag, job->tag) != 0) {
			continue; /* the rank waits for another save: this one failed meanwhile */
		}
		root->saves.stream_ready = result->rv == 0;
		if (result->rv == 0) {
			memcpy(root->saves.stream_dir, result->stream_begin.dir,
				sizeof(root->saves.stream_dir));
			grant_stream(conn);
			continue;
		}
		conn_reply_error(conn, conn->stream.id, &err);
		conn->stream.id = 0;
		root_fail(root, r, conn->stream.seq, "", err.code, err.msg);
	}
}

/* Returns why the first rank that has not staged will not do so; NULL: it may. The rank may have
 * ended while the others go on, or be stopped, by a debugger or a SIGSTOP. Ranks on other hosts are
 * left to their agents. */
static const char *find_stuck_why(const struct agent_root *root)
{
	uint32_t r = ledger_missing_rank(&root->ledger);
	const struct agent_rank *rank = r < root->ledger.world ? &root->ranks[r] : NULL;

	if (rank && rank->seen && !rank->conn) {
		return "it is gone";
	}
	return rank && rank->conn && proc_is_stopped(rank->conn->pid) ? "its process is stopped"
								      : NULL;
}

static void begin(struct agent_root *root, struct agent_conn *conn)
{
	struct ledger_ask *ask = &conn->begin.ask;
	struct ledger_verdict verdict;
	struct alert alert;
	struct pawl_err err;
	enum ledger_answer answer;
	uint32_t id = conn->begin.id;
	char why[LEDGER_WHY_MAX];
	uint64_t skipped;

	/* A request with a number asks for more space for a save that the rank has begun. */
	if (ask->seq == 0) {
		root_move_on(root, conn->rank, MOVE_BEGINS, ask->tag);
	}
	skipped = ledger_skipped_seq(&root->ledger, conn->rank, ask->seq);
	if (skipped) {
		snprintf(why, sizeof(why),
			"rank %u has no part in this save, and is at %.64s already", conn->job_rank,
			ask->tag);
		fail_seq(root, skipped, PAWL_ECANCELED, why);
	}
	ask->waited_ns = clock_mono_ns() - conn->begin.received_ns;
	ask->stuck_why = ask->waited_ns > times_ns(TIME_ROOT_STUCK) ? find_stuck_why(root) : NULL;
	answer = ledger_begin(&root->ledger, ask, &verdict);
	if (answer == LEDGER_WAIT) {
		return; /* root_advance asks again */
	}
	conn->begin.id = 0;
	if (ledger_is_spare_unused(&root->ledger)) {
		empty_spare(root);
	}
	if (verdict.overwrites_newest && !root->saves.logged_no_spare) {
		root->saves.logged_no_spare = true;
		alert_fill(&alert, ALERT_ONCE, NULL,
			"memory has room for two checkpoints of these ranks, not three: until %s "
			"is committed, the newest complete one is being written or read",
			ask->tag);
		root_alert(root, &alert);
	}
	if (answer == LEDGER_GRANT && verdict.fresh) {
		root_peers_withdraw(root, verdict.slot);
		root->saves.since_ns[verdict.slot] = root->epoch.begun_ns;
		root_row_begin(root, verdict.slot, ask);
	}
	if (answer == LEDGER_GRANT && ask->adds &&
		conn->begin.since_ns < root->saves.since_ns[verdict.slot]) {
		root->saves.since_ns[verdict.slot] = conn->begin.since_ns;
	}
	if (answer == LEDGER_GRANT && verdict.streamed) {
		begin_stream(root, conn, id, &verdict);
		return;
	}
	if (answer == LEDGER_GRANT) {
		grant(root, conn, id, verdict.slot);
		return;
	}
	pawl_err_set(&err, verdict.code, "%s", verdict.why);
	conn_reply_error(conn, id, &err);
	root_hosts_fail_save(root, ask->seq, verdict.code, verdict.why);
	if (verdict.failed_slot >= 0) {
		drop_save(root, verdict.failed_slot, verdict.code, verdict.why);
	} else {
		root_row_refuse(root, ask, verdict.why);
	}
}

/* ---- staged, committed, durable ---- */

/* Whether the records of all ranks fit together. If not, drops the save, and from now on each rank
 * saves its own copy of the partition. */
static bool check_commit(struct agent_root *root, int slot)
{
	const struct record *records[PROTO_RANKS_LOCAL];
	char part[CKPT_NAME_MAX] = "";
	struct pawl_err err;
	uint64_t seq = root->ledger.slots[slot].seq;

	for (uint32_t r = 0; r < root->ledger.world; r++) {
		records[r] = &root->ranks[r].records[slot];
	}
	if (write_tag_check(records, root->ledger.world, root->first_rank, part, &err) == 0) {
		return true;
	}
	if (part[0]) {
		root_send_diverged(root, part);
	}
	root_hosts_fail_save(root, seq, err.code, err.msg);
	ledger_drop(&root->ledger, slot);
	log_line(LOG_ERROR, "%s: %s is not saved: %s", root->path, root->ledger.slots[slot].tag,
		err.msg);
	root_send_level(root, seq, LEVEL_FAILED, err.code, err.msg);
	root_row_end(root, slot, err.msg);
	return false;
}

static void commit(struct agent_root *root, int slot)
{
	uint64_t seq = root->ledger.slots[slot].seq;
	uint32_t parts_n = 0;

	ASSERT(root->ledger.slots[slot].state == SLOT_COMMITTED);
	for (uint32_t r = 0; r < root->ledger.world; r++) {
		if (!ledger_has_part(&root->ledger, slot, r)) {
			drop_record(&root->ranks[r], slot);
		}
		parts_n += root->ranks[r].records[slot].parts_n;
	}
	if (parts_n == 0 && root->ledger.named) { /* no rank had anything (more) to save */
		ledger_discard_empty(&root->ledger, slot);
		root->history.is_open[slot] = false;
		root_send_level(root, seq, LEVEL_DURABLE, 0, "");
	} else if (check_commit(root, slot)) {
		root_row_commit(root, slot);
		root_saved(root, root->history.rows[slot].stall_ns);
		if (root->schedule.durable_next) {
			root->schedule.durable_next = false;
			ledger_want_durable(&root->ledger, 0);
		}
		root_send_level(root, root->ledger.slots[slot].seq, LEVEL_COMMITTED, 0, "");
		root_check_space(root, slot);
		root_peers_commit(root, slot);
	}
}

void root_move_on(struct agent_root *root, uint32_t rank, enum ledger_move move, const char *tag)
{
	int slot = root->ledger.named ? ledger_move_on(&root->ledger, rank, move, tag) : -1;

	if (slot >= 0) {
		commit(root, slot);
	}
}

/* Answers a rank that staged a save which has failed, and has no reason yet. */
static void send_ended(struct agent_conn *conn, uint64_t seq)
{
	const struct frame_level ended = {.seq = seq,
		.level = LEVEL_FAILED,
		.code = PAWL_ECANCELED,
		.why = "another rank's part of it failed"};

	conn_send(conn, PROTO_LEVEL, 0, &ended);
}

void root_staged(struct agent_root *root, struct agent_conn *conn,
	const struct frame_staged *staged)
{
	const struct frame_blob *record = &staged->record;
	struct agent_rank *rank = &root->ranks[conn->rank];
	uint64_t seq = staged->seq;
	struct pawl_err err;
	int slot = -1;

	for (int s = 0; s < LEDGER_SLOTS; s++) {
		slot = root->ledger.slots[s].state == SLOT_STAGING &&
				root->ledger.slots[s].seq == seq
			? s
			: slot;
	}
	if (slot < 0) {
		send_ended(conn, seq);
		return;
	}
	drop_record(rank, slot);
	if (record_decode(&rank->records[slot], record->bytes, record->len_bytes, &err) != 0 ||
		rank->records[slot].rank != conn->job_rank ||
		rank->records[slot].world != root->ledger.world + root->remote_ranks) {
		root_fail(root, conn->rank, seq, "", PAWL_ECORRUPT,
			"a rank's record of what it staged is malformed");
		return;
	}
	wire_put_raw(&rank->blobs[slot], record->bytes, record->len_bytes);
	rank->stall_ns[slot] = staged->stall_ns;
	rank->stage_ns[slot] = staged->stage_ns;
	slot = ledger_staged(&root->ledger, conn->rank, seq);
	if (slot >= 0) {
		commit(root, slot);
	}
	root_advance(root);
}

/* ---- advancing ---- */

void root_advance(struct agent_root *root)
{
	int64_t now_ns = clock_mono_ns();
	int64_t again_ns = INT64_MAX;
	bool waiting = false;
	int slot;

	if (root->state != ROOT_OPEN) {
		return;
	}
	for (uint32_t r = 0; r < root->ledger.world; r++) {
		struct agent_conn *conn = root->ranks[r].conn;

		if (conn && !conn->closing && conn->begin.id) {
			begin(root, conn);
			waiting = waiting || conn->begin.id;
		}
	}
	waiting = root_chosen_advance(root) || waiting;
	if (root_hold_wanted(root)) {
		root_peers_enter(root);
		waiting = true;
	}
	restore_advance(root);
	slot = ledger_persist_next(&root->ledger, now_ns, &again_ns);
	if (slot >= 0) {
		root_persist(root, slot);
		root_peers_choose(root, slot);
	}
	if (waiting && again_ns > now_ns + times_ns(TIME_ROOT_ASK)) {
		again_ns = now_ns + times_ns(TIME_ROOT_ASK);
	}
	if (again_ns != INT64_MAX) {
		loop_timer_start(root->agent->loop, &root->tick, again_ns);
	}
	agent_progress(root->agent);
}
