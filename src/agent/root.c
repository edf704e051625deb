/* One root as the agent sees it: carries out what the ledger decides. See root.h for the parts. */
#include "agent/root.h"

#include "agent/persist/write_tag.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/proc.h"
#include "base/times.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct persist_job *root_job(struct agent_root *root, enum persist_kind kind, const char *tag)
{
	struct persist_job *job = calloc(1, sizeof(*job));

	if (job) {
		job->kind = kind;
		job->allocated = true;
		snprintf(job->tag, sizeof(job->tag), "%s", tag);
		job->epoch = root->epoch.number;
	}
	return job;
}

/* Submits a job whose result is not needed. Without memory the job is skipped: all such jobs only
 * clean up. */
static void submit_job(struct agent_root *root, enum persist_kind kind, const char *tag)
{
	struct persist_job *job = root_job(root, kind, tag);

	if (job) {
		persist_submit(root->storage.thread, job);
	}
}

void root_send_level(struct agent_root *root, uint64_t seq, enum proto_level level, int code,
	const char *why)
{
	struct frame_level frame = {.seq = seq, .level = (uint8_t)level, .code = code};

	snprintf(frame.why, sizeof(frame.why), "%s", why);
	for (uint32_t r = 0; seq != 0 && r < root->ledger.world; r++) {
		struct agent_conn *conn = root->ranks[r].conn;

		if (conn && !conn->closing) {
			conn_send(conn, PROTO_LEVEL, 0, &frame);
		}
	}
}

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
		submit_job(root, PERSIST_STREAM_DROP, entry->tag);
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

void root_send_diverged(struct agent_root *root, const char *part)
{
	struct frame_diverged frame;

	snprintf(frame.part, sizeof(frame.part), "%s", part);
	for (uint32_t r = 0; r < root->ledger.world; r++) {
		if (root->ranks[r].conn) {
			conn_send(root->ranks[r].conn, PROTO_DIVERGED, 0, &frame);
		}
	}
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

uint32_t root_fits(const struct agent_root *root, uint64_t need_bytes)
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
	limits.available += used_bytes; /* what the tier has is available to it */
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

/* Empties the spare slot, which no longer fits memory. The workers' mappings of it stay. */
static void empty_spare(struct agent_root *root)
{
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

	for (int s = 0; s < LEDGER_SLOTS; s++) {
		if ((s == slot || ledger_is_next(&root->ledger, s)) &&
			arena_ensure(&rank->arenas[s], conn->begin_bytes, &err) != 0) {
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
	struct frame_grant granted = {.streamed = true, .seq = conn->begin_seq};
	uint32_t id = conn->stream_id;

	snprintf(granted.dir, sizeof(granted.dir), "%s", conn->root->saves.stream_dir);
	conn->stream_id = 0;
	conn_send(conn, PROTO_GRANT, id, &granted);
}

/* Begins to stream, since the save does not fit the budget, or the rank asked for it. Frees memory:
 * that of this slot now, that of the others once a newer save is durable. The worker unmaps all. */
static void begin_stream(struct agent_root *root, struct agent_conn *conn, uint32_t id,
	const struct ledger_verdict *verdict)
{
	struct persist_job *job;

	conn->stream_id = id;
	conn->begin_seq = verdict->seq;
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
	job = root_job(root, PERSIST_STREAM_BEGIN, conn->ask.tag);
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

		if (!conn || !conn->stream_id || strcmp(conn->ask.tag, job->tag) != 0) {
			continue; /* the rank waits for another save: this one failed meanwhile */
		}
		root->saves.stream_ready = result->rv == 0;
		if (result->rv == 0) {
			memcpy(root->saves.stream_dir, result->stream_begin.dir,
				sizeof(root->saves.stream_dir));
			grant_stream(conn);
			continue;
		}
		conn_reply_error(conn, conn->stream_id, &err);
		conn->stream_id = 0;
		root_fail(root, r, conn->begin_seq, "", err.code, err.msg);
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

void root_begin(struct agent_root *root, struct agent_conn *conn)
{
	struct ledger_verdict verdict;
	struct alert alert;
	struct pawl_err err;
	enum ledger_answer answer;
	uint32_t id = conn->begin_id;
	char why[LEDGER_WHY_MAX];
	uint64_t skipped;

	/* A request with a number asks for more space for a save that the rank has begun. */
	if (conn->ask.seq == 0) {
		root_move_on(root, conn->rank, MOVE_BEGINS, conn->ask.tag);
	}
	skipped = ledger_skipped_seq(&root->ledger, conn->rank, conn->ask.seq);
	if (skipped) {
		snprintf(why, sizeof(why),
			"rank %u has no part in this save, and is at %.64s already", conn->job_rank,
			conn->ask.tag);
		fail_seq(root, skipped, PAWL_ECANCELED, why);
	}
	conn->ask.waited_ns = clock_mono_ns() - conn->begin_ns;
	conn->ask.stuck_why =
		conn->ask.waited_ns > times_ns(TIME_ROOT_STUCK) ? find_stuck_why(root) : NULL;
	answer = ledger_begin(&root->ledger, &conn->ask, &verdict);
	if (answer == LEDGER_WAIT) {
		return; /* root_advance asks again */
	}
	conn->begin_id = 0;
	if (ledger_is_spare_unused(&root->ledger)) {
		empty_spare(root);
	}
	if (verdict.overwrites_newest && !root->saves.logged_no_spare) {
		root->saves.logged_no_spare = true;
		alert_fill(&alert, ALERT_ONCE, NULL,
			"memory has room for two checkpoints of these ranks, not three: until %s "
			"is committed, the newest complete one is being written or read",
			conn->ask.tag);
		root_alert(root, &alert);
	}
	if (answer == LEDGER_GRANT && verdict.fresh) {
		root->saves.since_ns[verdict.slot] = root->epoch.begun_ns;
		root_row_begin(root, verdict.slot, &conn->ask);
	}
	if (answer == LEDGER_GRANT && conn->ask.adds &&
		conn->begin_since_ns < root->saves.since_ns[verdict.slot]) {
		root->saves.since_ns[verdict.slot] = conn->begin_since_ns;
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
	root_hosts_fail_save(root, conn->ask.seq, verdict.code, verdict.why);
	if (verdict.failed_slot >= 0) {
		drop_save(root, verdict.failed_slot, verdict.code, verdict.why);
	} else {
		root_row_refuse(root, &conn->ask, verdict.why);
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
		root_send_level(root, root->ledger.slots[slot].seq, LEVEL_COMMITTED, 0, "");
		root_check_space(root, slot);
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

static void ticked(struct loop_timer *timer)
{
	root_advance(timer->user);
}

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

		if (conn && !conn->closing && conn->begin_id) {
			root_begin(root, conn);
			waiting = waiting || conn->begin_id;
		}
	}
	root_hosts_advance(root);
	slot = ledger_persist_next(&root->ledger, now_ns, &again_ns);
	if (slot >= 0) {
		root_persist(root, slot);
	}
	if (waiting && again_ns > now_ns + times_ns(TIME_ROOT_ASK)) {
		again_ns = now_ns + times_ns(TIME_ROOT_ASK);
	}
	if (again_ns != INT64_MAX) {
		loop_timer_start(root->agent->loop, &root->tick, again_ns);
	}
	agent_progress(root->agent);
}

/* ---- workers come and go ---- */

static void orphaned(struct loop_timer *timer)
{
	struct agent_root *root = timer->user;

	ledger_want_durable(&root->ledger, 0); /* no worker is left to ask for it */
	root_advance(root);
}

static void free_ranks(struct agent_root *root)
{
	for (uint32_t r = 0; root->ranks && r < root->ledger.world; r++) {
		for (int s = 0; s < LEDGER_SLOTS; s++) {
			arena_deinit(&root->ranks[r].arenas[s]);
			record_deinit(&root->ranks[r].records[s]);
			wire_out_deinit(&root->ranks[r].blobs[s]);
		}
	}
	free(root->ranks);
	free(root->storage.save_ranks);
	root->ranks = NULL;
	root->storage.save_ranks = NULL;
}

static int make_ranks(struct agent_root *root, uint32_t world, struct pawl_err *err)
{
	root->ranks = calloc(world, sizeof(*root->ranks));
	root->storage.save_ranks = calloc(world, sizeof(*root->storage.save_ranks));
	if (!root->ranks || !root->storage.save_ranks) {
		free_ranks(root);
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for %u ranks", world);
	}
	return 0;
}

void root_new_epoch(struct agent_root *root, uint32_t world, uint32_t attempt)
{
	if (root->workers.running) {
		root_event(root, EVENT_FAILED, "the ranks began anew");
	}
	for (uint32_t r = 0; r < root->ledger.world; r++) {
		struct agent_rank *rank = &root->ranks[r];

		if (rank->conn) {
			rank->conn->root = NULL;
			rank->conn->closing = true;
			rank->conn = NULL;
		}
		rank->seen = false;
	}
	for (int s = 0; s < LEDGER_SLOTS; s++) {
		if (root->ledger.slots[s].state != SLOT_STAGING) {
			continue;
		}
		root_row_end(root, s, "the ranks ended before all had staged it");
		if (root->ledger.slots[s].streamed) {
			submit_job(root, PERSIST_STREAM_DROP, root->ledger.slots[s].tag);
		}
	}
	root->history.refused_seq = 0;
	root->history.refused_tag[0] = '\0';
	root_hosts_begin(root);
	ledger_new_epoch(&root->ledger, world);
	root->epoch.begun_ns = clock_wall_ns();
	memset(root->questions.hold_sent, 0, sizeof(root->questions.hold_sent));
	root->workers.crashed = false;
	root->workers.left_not_durable = false;
	root->storage.space_checked = false;
	root->restore.state = RESTORE_IDLE;
	root->epoch.rounds = 0;
	root_reset_seqs(root);
	root->epoch.attempt = attempt;
}

/* Changes the number of ranks. What memory holds belongs to the old ranks, and must be durable
 * before it is freed. */
static int change_world(struct agent_root *root, uint32_t world, struct pawl_err *err)
{
	uint64_t stored_step;
	bool named;

	if (!ledger_all_durable(&root->ledger)) {
		ledger_want_durable(&root->ledger, 0);
		root_advance(root);
		return pawl_err_set(err, PAWL_ETIMEDOUT,
			"the last checkpoint of the run with %u ranks is being made durable",
			root->ledger.world);
	}
	root_new_epoch(root, root->ledger.world, root->epoch.attempt);
	free_ranks(root);
	named = root->ledger.named;
	stored_step = root->ledger.stored_step;
	root_init_ledger(root, world, root->ledger.interval_ns);
	root->ledger.named = named;
	ledger_record_stored(&root->ledger, stored_step);
	return make_ranks(root, world, err);
}

int root_join(struct agent_root *root, struct agent_conn *conn, uint32_t world, uint32_t attempt,
	struct pawl_err *err)
{
	struct agent_conn *old =
		conn->rank < root->ledger.world ? root->ranks[conn->rank].conn : NULL;
	int rv;

	if (root->state == ROOT_FAILED) {
		*err = root->failed;
		return err->code;
	}
	if (attempt == root->epoch.attempt && old) {
		return pawl_err_set(err, PAWL_EBUSY,
			"rank %u of job %s is running already, as pid %u, and saves to %s: stop "
			"it, or give this run another root or PAWL_JOB_ID",
			conn->job_rank, root->agent->job, old->pid, root->path);
	}
	if (world != root->ledger.world) {
		rv = change_world(root, world, err);
		if (rv != 0) {
			return rv;
		}
	}
	if (attempt != root->epoch.attempt || root->ranks[conn->rank].seen) {
		root_new_epoch(root, world, attempt);
	}
	if (!root->workers.running) {
		root_event(root, EVENT_STARTED, NULL);
	}
	conn->root = root;
	root->workers.left = false;
	root->ranks[conn->rank].conn = conn;
	root->ranks[conn->rank].seen = true;
	loop_timer_cancel(root->agent->loop, &root->workers.orphan);
	return 0;
}

void root_leave(struct agent_root *root, struct agent_conn *conn)
{
	bool left = conn->leaving;
	char why[64];

	restore_done(root, conn);
	if (!left) {
		ledger_rank_died(&root->ledger, conn->rank);
		root->workers.crashed = true;
	}
	root->ranks[conn->rank].conn = NULL;
	conn->root = NULL;
	if (!left && root->workers.running) {
		snprintf(why, sizeof(why), "rank %u (pid %u) is gone", conn->job_rank, conn->pid);
		root_event(root, EVENT_FAILED, why);
	}
	root_settle_all(root);
	for (uint32_t r = 0; r < root->ledger.world; r++) {
		left = left && !root->ranks[r].conn;
		if (root->ranks[r].conn) {
			return;
		}
	}
	if (root->workers.running) {
		root_event(root, EVENT_ENDED, NULL);
	}
	root->workers.left = left && !root->workers.crashed;
	root->workers.left_ns = clock_mono_ns();
	loop_timer_start(root->agent->loop, &root->workers.orphan,
		clock_mono_ns() +
			(left || root->agent->close_idle_roots ? 0 : times_ns(TIME_ROOT_ORPHAN)));
}

int root_open(struct agent *agent, const char *path, const struct persist_options *options,
	int64_t interval_ns, struct agent_root **out, struct pawl_err *err)
{
	struct agent_root *root = calloc(1, sizeof(*root));
	int rv;

	if (!root || !(root->path = strdup(path))) {
		free(root);
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for root %s", path);
	}
	root->agent = agent;
	root->first_rank = options->first_rank;
	root->remote_ranks = options->remote_ranks;
	root->epoch.begun_ns = clock_wall_ns();
	root->tick = (struct loop_timer){.fired = ticked, .user = root};
	root->workers.orphan = (struct loop_timer){.fired = orphaned, .user = root};
	root_init_advice(root);
	root->storage.slow = (struct loop_timer){.fired = root_slow_fired, .user = root};
	root->schedule.due = (struct loop_timer){.fired = root_due_fired, .user = root};
	root_init_ledger(root, options->ranks, interval_ns);
	root->ledger.first_rank = options->first_rank;
	rv = make_ranks(root, options->ranks, err);
	if (rv != 0) {
		goto free_root;
	}
	rv = persist_start(&root->storage.thread, agent->loop, options, err);
	if (rv != 0) {
		goto free_ranks;
	}
	submit_job(root, PERSIST_OPEN, "");
	root_hosts_begin(root);
	*out = root;
	return 0;
free_ranks:
	free_ranks(root);
free_root:
	free(root->path);
	free(root);
	return rv;
}

void root_close(struct agent_root *root)
{
	loop_timer_cancel(root->agent->loop, &root->tick);
	loop_timer_cancel(root->agent->loop, &root->workers.orphan);
	loop_timer_cancel(root->agent->loop, &root->schedule.due);
	loop_timer_cancel(root->agent->loop, &root->storage.slow);
	root_rows_sweep(root, true);
	if (!persist_stop(root->storage.thread, times_ms(TIME_ROOT_STOP))) {
		/* The thread hangs in a disk and still points here; the process is leaving. */
		return;
	}
	free_ranks(root);
	free(root->path);
	free(root);
}
