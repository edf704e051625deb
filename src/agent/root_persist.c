/* Hands a root's work to the storage thread, and reports what that cannot make durable: see
 * root.h. */
#include "agent/root.h"

#include "base/clock.h"
#include "base/err.h"
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

void root_submit(struct agent_root *root, enum persist_kind kind, const char *tag)
{
	struct persist_job *job = root_job(root, kind, tag);

	if (job) {
		persist_submit(root->storage.thread, job);
	}
}

/* Whether a rank's arena has bytes of the save that the rank has not written itself. */
static bool lies_in_arena(const struct record *record)
{
	for (uint32_t p = 0; p < record->parts_n; p++) {
		if (record->parts[p].chunks_n == 0 && record->parts[p].lo < record->parts[p].hi) {
			return true;
		}
	}
	return false;
}

void root_report_failed(struct agent_root *root, const char *tag, const struct pawl_err *err)
{
	struct alert alert;
	struct pawl_err text = *err;
	size_t len = strlen(text.msg);

	if (root->storage.has_durable) {
		snprintf(text.msg + len, sizeof(text.msg) - len,
			". The newest durable checkpoint is %.128s", root->storage.durable_tag);
	} else {
		snprintf(text.msg + len, sizeof(text.msg) - len,
			". Nothing saved since the start is durable");
	}
	alert_fill(&alert, ALERT_SAVE, &text, "%s is not durable", tag);
	root_alert(root, &alert);
}

void root_persist_failed(struct agent_root *root, int slot, const struct pawl_err *err)
{
	const struct ledger_slot *entry = &root->ledger.slots[slot];

	root->storage.failed_since_drain = true;
	root_report_failed(root, entry->tag, err);
	snprintf(root->history.rows[slot].why, HISTORY_TEXT_MAX, "%.255s", err->msg);
	root_send_level(root, entry->seq, LEVEL_TROUBLE, err->code, err->msg);
}

void root_slow_fired(struct loop_timer *timer)
{
	struct agent_root *root = timer->user;
	struct alert alert;
	struct pawl_err err;

	pawl_err_set(&err, PAWL_ETIMEDOUT,
		"writing checkpoint %s has taken %u s or more, and it is not durable yet: %s",
		root->storage.save.tag, times_s(TIME_ROOT_SLOW),
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

	if (root->storage.space_checked || root->remote_ranks > 0 ||
		root->ledger.interval_ns == 0 || root->ledger.slots[slot].streamed) {
		return; /* checked already, or the write that follows at once is the check */
	}
	job = root_job(root, PERSIST_CHECK_SPACE, root->ledger.slots[slot].tag);
	if (job) {
		root->storage.space_checked = true;
		job->check_space.need_bytes = root->history.rows[slot].size_bytes;
		persist_submit(root->storage.thread, job);
	}
}

void root_persist(struct agent_root *root, int slot)
{
	const struct ledger_slot *entry = &root->ledger.slots[slot];
	struct pawl_err err;

	root->storage.save = (struct persist_job){.kind = entry->streamed ? PERSIST_STREAM_END
									  : PERSIST_SAVE,
		.epoch = root->epoch.number,
		.save = {.seq = entry->seq,
			.step = entry->step,
			.since_ns = root->ledger.named ? root->saves.since_ns[slot] : INT64_MAX,
			.attempt = root->epoch.attempt,
			.world = root->ledger.world,
			.first_rank = root->first_rank,
			.remote_ranks = root->remote_ranks,
			.ranks = root->storage.save_ranks,
			.row = &root->history.rows[slot],
			.slot = slot,
			.chosen = root->peers.chooses}};
	memcpy(root->storage.save.tag, entry->tag, sizeof(entry->tag));
	for (uint32_t r = 0; r < root->ledger.world; r++) {
		struct agent_rank *rank = &root->ranks[r];

		if (lies_in_arena(&rank->records[slot]) &&
			arena_map(&rank->arenas[slot], &err) != 0) {
			ledger_persisted(&root->ledger, slot, false, clock_mono_ns());
			root_persist_failed(root, slot, &err);
			return;
		}
		root->storage.save_ranks[r] =
			(struct persist_rank){&rank->records[slot], rank->arenas[slot].map};
	}
	advice_writing(&root->schedule.advice, clock_mono_ns());
	persist_submit(root->storage.thread, &root->storage.save);
	loop_timer_start(root->agent->loop, &root->storage.slow,
		clock_mono_ns() + times_ns(TIME_ROOT_SLOW));
}
