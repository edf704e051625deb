/* Hands a root's generations to the storage thread, deals with those that will never be durable,
 * and takes whatever else the storage thread has finished: see root.h. */
#include "agent/root.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/times.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Whether some of what a rank saved lies in its arena, not yet written by the rank itself. */
static bool lies_in_arena(const struct record *record)
{
	for (uint32_t p = 0; p < record->parts_n; p++) {
		if (record->parts[p].chunks_n == 0 && record->parts[p].lo < record->parts[p].hi) {
			return true;
		}
	}
	return false;
}

/* Reports "global_step5 is not durable: …", and names the newest tag that is. */
static void report_failed(struct agent_root *root, const char *tag, const struct pawl_err *err)
{
	struct alert alert;
	struct pawl_err whole = *err;
	size_t len = strlen(whole.msg);

	if (root->has_durable) {
		snprintf(whole.msg + len, sizeof(whole.msg) - len, ". The last that is: %.128s",
			root->durable_tag);
	} else {
		snprintf(whole.msg + len, sizeof(whole.msg) - len,
			". Nothing saved since the start is durable");
	}
	alert_fill(&alert, ALERT_SAVE, &whole, "%s is not durable", tag);
	root_alert(root, &alert);
}

/* Reports that a committed slot could not be made durable. The slot stays, and is tried again. */
static void fail_save(struct agent_root *root, int slot, const struct pawl_err *err)
{
	const struct ledger_slot *entry = &root->ledger.slots[slot];

	root->failed_since_drain = true;
	report_failed(root, entry->tag, err);
	snprintf(root->rows[slot].why, HISTORY_TEXT_MAX, "%.255s", err->msg);
	root_send_level(root, entry->seq, LEVEL_TROUBLE, err->code, err->msg);
}

static void report_saved(struct agent_root *root, const char *tag)
{
	struct alert alert;

	alert_fill(&alert, ALERT_SLOW, NULL, "%s is written", tag);
	root_alert(root, &alert);
	alert_fill(&alert, ALERT_SAVE, NULL, "%s is durable: storage works again", tag);
	root_alert(root, &alert);
}

void root_slow_fired(struct loop_timer *timer)
{
	struct agent_root *root = timer->user;
	struct alert alert;
	struct pawl_err err;

	pawl_err_set(&err, PAWL_ETIMEDOUT,
		"%s has been in writing for %u s or more, and is not durable yet: %s",
		root->save_job.tag, times_s(TIME_ROOT_SLOW),
		root->remote_ranks > 0 ? "storage hangs, or is slow, or another host is late"
				       : "storage hangs, or is slow");
	alert_fill(&alert, ALERT_SLOW, &err, "%s", "");
	root_alert(root, &alert);
	for (int s = 0; s < LEDGER_SLOTS; s++) { /* including those that wait behind it */
		if (root->ledger.slots[s].state == SLOT_COMMITTED &&
			!root->ledger.slots[s].durable) {
			root_send_level(root, root->ledger.slots[s].seq, LEVEL_TROUBLE,
				PAWL_ETIMEDOUT, err.msg);
		}
	}
	loop_timer_start(root->agent->loop, timer, clock_mono_ns() + times_ns(TIME_ROOT_SLOW));
}

void root_check_space(struct agent_root *root, int slot)
{
	struct persist_job *job;

	if (root->space_checked || root->remote_ranks > 0 || root->ledger.interval_ns == 0 ||
		root->ledger.slots[slot].streamed) {
		return; /* Asked already; or the save is written at once, which tells more. */
	}
	job = root_job(root, PERSIST_CHECK_SPACE, root->ledger.slots[slot].tag);
	if (job) {
		root->space_checked = true;
		job->need_bytes = root->rows[slot].size_bytes;
		persist_submit(root->persist, job);
	}
}

static void report_space(struct agent_root *root, const struct persist_job *job)
{
	if (job->rv != 0) {
		report_failed(root, job->tag, &job->err);
	}
}

void root_persist(struct agent_root *root, int slot)
{
	const struct ledger_slot *entry = &root->ledger.slots[slot];
	struct pawl_err err;

	root->save_job =
		(struct persist_job){.kind = entry->streamed ? PERSIST_STREAM_END : PERSIST_SAVE,
			.step = entry->step,
			.since_ns = root->ledger.named ? root->since_ns[slot] : INT64_MAX,
			.world = root->ledger.world,
			.first_rank = root->first_rank,
			.remote_ranks = root->remote_ranks,
			.seq = entry->seq,
			.epoch = root->epoch,
			.attempt = root->attempt,
			.ranks = root->save_ranks,
			.row = &root->rows[slot],
			.slot = slot};
	memcpy(root->save_job.tag, entry->tag, sizeof(entry->tag));
	for (uint32_t r = 0; r < root->ledger.world; r++) {
		struct agent_rank *rank = &root->ranks[r];

		if (lies_in_arena(&rank->records[slot]) &&
			arena_map(&rank->arenas[slot], &err) != 0) {
			ledger_persisted(&root->ledger, slot, false, clock_mono_ns());
			fail_save(root, slot, &err);
			return;
		}
		root->save_ranks[r] =
			(struct persist_rank){&rank->records[slot], rank->arenas[slot].map};
	}
	advice_writing(&root->advice, clock_mono_ns());
	persist_submit(root->persist, &root->save_job);
	loop_timer_start(root->agent->loop, &root->slow,
		clock_mono_ns() + times_ns(TIME_ROOT_SLOW));
}

static void free_empty_slots(struct agent_root *root)
{
	for (int s = 0; s < LEDGER_SLOTS; s++) {
		for (uint32_t r = 0; r < root->ledger.world; r++) {
			if (root->ledger.slots[s].state == SLOT_EMPTY) {
				root_free_slot(&root->ranks[r], s);
			}
		}
	}
}

/* Whether a failure is the tag's own: another attempt would be of no use. */
static bool is_final(int rv)
{
	return rv == PAWL_ECORRUPT || rv == PAWL_EMISMATCH || rv == PAWL_EEXIST ||
		rv == PAWL_ENOTSUP;
}

static void drop_slot(struct agent_root *root, int slot, const struct pawl_err *err)
{
	ledger_drop(&root->ledger, slot);
	root->rows[slot].level = HISTORY_FAILED;
	root_row_end(root, slot, err->msg);
	root_send_level(root, root->ledger.slots[slot].seq, LEVEL_FAILED, err->code, err->msg);
}

/* Fails the save that is being staged in a slot, for every rank that has a part in it. */
static void fail_staging(struct agent_root *root, int slot, const struct pawl_err *err)
{
	const struct ledger_slot *entry = &root->ledger.slots[slot];

	for (uint32_t r = 0; r < root->ledger.world; r++) {
		if (entry->state == SLOT_STAGING && ledger_has_part(&root->ledger, slot, r)) {
			root_fail(root, r, entry->seq, "", err->code, err->msg);
		}
	}
}

/* Drops a slot that will never be in the store, and every save that adds to its tag, since that
 * would be taken for the whole. */
static void give_up(struct agent_root *root, int slot, const struct pawl_err *err)
{
	const struct ledger_slot *slots = root->ledger.slots;

	drop_slot(root, slot, err);
	for (int s = 0; s < LEDGER_SLOTS; s++) {
		bool adds =
			s != slot && slots[s].adds && strcmp(slots[s].tag, slots[slot].tag) == 0;

		if (adds && slots[s].state == SLOT_COMMITTED) {
			drop_slot(root, s, err);
		} else if (adds && slots[s].state == SLOT_STAGING) {
			fail_staging(root, s, err);
		}
	}
}

void root_persisted(struct agent_root *root, struct persist_job *job)
{
	struct ledger_slot *entry = &root->ledger.slots[job->slot];
	bool streamed = entry->streamed;
	bool final = streamed || is_final(job->rv) || root->remote_ranks > 0;
	const struct persist_job ended = *job; /* give_up may let *job be used again */

	loop_timer_cancel(root->agent->loop, &root->slow);
	advice_written(&root->advice, job->rv == 0, clock_mono_ns());
	ledger_persisted(&root->ledger, job->slot, job->rv == 0, clock_mono_ns());
	if (job->rv == 0) {
		root->has_durable = true;
		memcpy(root->durable_tag, job->tag, sizeof(job->tag));
		report_saved(root, job->tag);
		root_row_end(root, job->slot, NULL);
		root_rows_sweep(root, false);
		root_advise(root);
		root_send_level(root, entry->seq, LEVEL_DURABLE, 0, "");
		if (streamed) {
			free_empty_slots(root);
		}
		return;
	}
	if (final) {
		root->failed_since_drain = true;
		report_failed(root, ended.tag, &ended.err);
		snprintf(root->rows[ended.slot].why, HISTORY_TEXT_MAX, "%.255s", ended.err.msg);
		if (ended.diverged_part[0]) { /* sent first, so that the next save knows */
			root_send_diverged(root, ended.diverged_part);
		}
		give_up(root, ended.slot, &ended.err);
		root_hosts_saved(root, &ended);
		return;
	}
	fail_save(root, ended.slot, &ended.err);
}

/* ---- what the storage thread has done ---- */

static void finish_open(struct agent_root *root, const struct persist_job *job)
{
	root->state = job->rv == 0 ? ROOT_OPEN : ROOT_FAILED;
	root->failed = job->err;
	root_add_past(root, &job->past);
	if (job->found) {
		ledger_record_stored(&root->ledger, job->step);
	}
	for (uint32_t r = 0; r < root->ledger.world; r++) {
		struct agent_conn *conn = root->ranks[r].conn;

		if (!conn || conn->welcomed) {
			continue;
		}
		if (job->rv != 0) {
			conn_reply_error(conn, conn->hello_id, &job->err);
			conn->root = NULL; /* the root is about to be closed */
			root->ranks[r].conn = NULL;
			continue;
		}
		conn_send_welcome(conn);
	}
}

void root_reap(struct agent_root *root)
{
	struct persist_job *job;
	struct alert alert;

	while ((job = persist_reap(root->persist))) {
		switch (job->kind) {
		case PERSIST_OPEN:
			finish_open(root, job);
			break;
		case PERSIST_SAVE:
		case PERSIST_STREAM_END:
			root_persisted(root, job);
			break;
		case PERSIST_STREAM_BEGIN:
			root_streams_ready(root, job);
			root_hosts_saved(root, job);
			break;
		case PERSIST_RESOLVE:
			restore_resolved(root, job);
			break;
		case PERSIST_VOTE:
			root_hosts_voted(root, job);
			break;
		case PERSIST_FAIL_SAVE:
			root_hosts_saved(root, job);
			break;
		case PERSIST_BEGIN:
			root_hosts_begun(root, job);
			break;
		case PERSIST_CHECK_SPACE:
			report_space(root, job);
			break;
		default:
			root->pending_changes -=
				job->kind == PERSIST_PIN || job->kind == PERSIST_REMOVE;
			if (job->rv != 0) {
				alert_fill(&alert, ALERT_ONCE, &job->err, "%s", "");
				root_alert(root, &alert);
			}
			break;
		}
		if (job->allocated) {
			free(job);
		}
	}
	while (alerts_take(persist_alerts(root->persist), &alert)) {
		root_alert(root, &alert);
	}
	root_advance(root);
}
