/* Handles the jobs that the storage thread has finished: see root.h. */
#include "agent/root.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* If the job failed because the run is over (PAWL_EPEER), begins anew. */
static void begin_anew_if_over(struct agent_root *root, const struct persist_job *job)
{
	if (root->remote_ranks > 0 && job->result.rv == PAWL_EPEER) {
		root_epoch_over(root, job->epoch, job->result.err.msg);
	}
}

static void report_saved(struct agent_root *root, const char *tag)
{
	struct alert alert;

	alert_fill(&alert, ALERT_SLOW, NULL, "%s is written", tag);
	root_alert(root, &alert);
	alert_fill(&alert, ALERT_SAVE, NULL, "%s is durable: storage works again", tag);
	root_alert(root, &alert);
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

/* Whether another attempt to persist the tag would fail, too. PAWL_EPEER: another process has the
 * root for good. */
static bool is_final(int rv)
{
	return rv == PAWL_ECORRUPT || rv == PAWL_EMISMATCH || rv == PAWL_EEXIST ||
		rv == PAWL_ENOTSUP || rv == PAWL_EPEER;
}

static void drop_slot(struct agent_root *root, int slot, const struct pawl_err *err)
{
	ledger_drop(&root->ledger, slot);
	root->history.rows[slot].level = HISTORY_FAILED;
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

/* Drops a slot that will never be in the store, and every save that adds to the slot's tag: without
 * the slot, such a save would be taken for the whole tag. */
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

static void handle_saved(struct agent_root *root, struct persist_job *job)
{
	int rv = job->result.rv;
	int slot = job->save.slot;
	struct ledger_slot *entry = &root->ledger.slots[slot];
	bool streamed = entry->streamed;
	bool final = streamed || is_final(rv) || root->remote_ranks > 0;
	const struct persist_job ended = *job; /* give_up may reuse *job */
	const char *diverged = ended.result.save.diverged_part;

	loop_timer_cancel(root->agent->loop, &root->storage.slow);
	advice_written(&root->schedule.advice, rv == 0, clock_mono_ns());
	ledger_persisted(&root->ledger, slot, rv == 0, clock_mono_ns());
	if (rv == 0) {
		root->storage.has_durable = true;
		memcpy(root->storage.durable_tag, job->tag, sizeof(job->tag));
		report_saved(root, job->tag);
		root_row_end(root, slot, NULL);
		root_rows_sweep(root, false);
		root_advise(root);
		root_send_level(root, entry->seq, LEVEL_DURABLE, 0, "");
		root_chosen_durable(root, slot);
		root_peers_durable(root, entry->step);
		if (streamed) {
			free_empty_slots(root);
		}
		return;
	}
	if (root_chosen_superseded(root, slot, &ended.result.err)) {
		return;
	}
	if (final) {
		/* After a save that another host does not have, a drain goes on with an older
		 * one. */
		root->storage.failed_since_drain = root->storage.failed_since_drain ||
			!root->peers.chooses || rv != PAWL_ECANCELED;
		root_report_failed(root, ended.tag, &ended.result.err);
		snprintf(root->history.rows[slot].why, HISTORY_TEXT_MAX, "%.255s",
			ended.result.err.msg);
		if (diverged[0]) { /* sent first, so that the next save knows */
			root_send_diverged(root, diverged);
		}
		/* With PAWL_EMISMATCH another host may be restoring, and keep its part, too. */
		if (rv != PAWL_ECORRUPT &&
			(rv != PAWL_EMISMATCH || (root->peers.chooses && !diverged[0]))) {
			root_peers_keep(root, slot);
		}
		give_up(root, slot, &ended.result.err);
		begin_anew_if_over(root, &ended);
		return;
	}
	root_persist_failed(root, slot, &ended.result.err);
}

/* Handles the answer to root_peers_enter. */
static void handle_entered(struct agent_root *root, const struct persist_job *job)
{
	struct alert alert;

	root->peers.entering = false;
	/* Canceled: the ranks begin anew, and the next answer counts. */
	if (job->result.rv != 0 && job->result.rv != PAWL_EPEER &&
		job->result.rv != PAWL_ECANCELED) {
		alert_fill(&alert, ALERT_ONCE, &job->result.err, "%s", "");
		root_alert(root, &alert);
	}
	begin_anew_if_over(root, job);
}

static void report_space(struct agent_root *root, const struct persist_job *job)
{
	if (job->result.rv != 0) {
		root_report_failed(root, job->tag, &job->result.err);
	}
}

static void finish_open(struct agent_root *root, const struct persist_job *job)
{
	const struct persist_opened *opened = &job->result.open;
	int rv = job->result.rv;

	root->state = rv == 0 ? ROOT_OPEN : ROOT_FAILED;
	root->failed = job->result.err;
	root_add_past(root, &opened->past);
	if (opened->found) {
		ledger_record_stored(&root->ledger, opened->step);
	}
	for (uint32_t r = 0; r < root->ledger.world; r++) {
		struct agent_conn *conn = root->ranks[r].conn;

		if (!conn || conn->welcomed) {
			continue;
		}
		if (rv != 0) {
			conn_reply_error(conn, conn->hello_id, &job->result.err);
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

	while ((job = persist_reap(root->storage.thread))) {
		switch (job->kind) {
		case PERSIST_OPEN:
			finish_open(root, job);
			break;
		case PERSIST_SAVE:
		case PERSIST_STREAM_END:
			handle_saved(root, job);
			break;
		case PERSIST_STREAM_BEGIN:
			root_streams_ready(root, job);
			begin_anew_if_over(root, job);
			break;
		case PERSIST_RESOLVE:
			restore_resolved(root, job);
			break;
		case PERSIST_VOTE:
			restore_voted(root, job);
			break;
		case PERSIST_FAIL_SAVE:
			begin_anew_if_over(root, job);
			break;
		case PERSIST_BEGIN:
			root_hosts_begun(root, job);
			break;
		case PERSIST_ENTER:
			handle_entered(root, job);
			break;
		case PERSIST_CHECK_SPACE:
			report_space(root, job);
			break;
		default:
			root->storage.pending_changes -=
				job->kind == PERSIST_PIN || job->kind == PERSIST_REMOVE;
			if (job->result.rv != 0) {
				alert_fill(&alert, ALERT_ONCE, &job->result.err, "%s", "");
				root_alert(root, &alert);
			}
			break;
		}
		persist_job_free(job);
	}
	while (alerts_take(persist_alerts(root->storage.thread), &alert)) {
		root_alert(root, &alert);
	}
	root_peers_reap(root);
	restore_reap(root);
	root_advance(root);
}
