/* Generations of a root on their way to the store, and what becomes of those that never get there:
 * see root.h. */
#include "agent/root.h"

#include "base/clock.h"
#include "base/log.h"

#include <stdio.h>
#include <string.h>

/* Whether some of what a rank saved was not written by the rank itself. */
static bool lies_in_arena(const struct record *record)
{
	for (uint32_t p = 0; p < record->parts_n; p++) {
		if (record->parts[p].chunks_n == 0 && record->parts[p].lo < record->parts[p].hi) {
			return true;
		}
	}
	return false;
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
			.first = root->first,
			.elsewhere = root->elsewhere,
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
			log_line(LOG_WARNING, "%s: %s", root->path, err.msg);
			return;
		}
		root->save_ranks[r] =
			(struct persist_rank){&rank->records[slot], rank->arenas[slot].map};
	}
	advice_writing(&root->advice, clock_mono_ns());
	persist_submit(root->persist, &root->save_job);
}

static void give_back_empty(struct agent_root *root)
{
	for (int s = 0; s < LEDGER_SLOTS; s++) {
		for (uint32_t r = 0; r < root->ledger.world; r++) {
			if (root->ledger.slots[s].state == SLOT_EMPTY) {
				root_give_back(&root->ranks[r], s);
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
	root_tell_level(root, root->ledger.slots[slot].seq, LEVEL_FAILED, err->code, err->msg);
}

/* The ranks that have a part in what is staged in a slot are to know. */
static void fail_staging(struct agent_root *root, int slot, const struct pawl_err *err)
{
	const struct ledger_slot *entry = &root->ledger.slots[slot];

	for (uint32_t r = 0; r < root->ledger.world; r++) {
		if (entry->state == SLOT_STAGING && ledger_has_part(&root->ledger, slot, r)) {
			root_fail(root, r, entry->seq, "", err->code, err->msg);
		}
	}
}

/* What a slot holds will never be in the store: nor will what adds to it, which would be taken for
 * the whole. */
static void give_up(struct agent_root *root, int slot, const struct pawl_err *err)
{
	const struct ledger_slot *slots = root->ledger.slots;

	drop_slot(root, slot, err);
	for (int s = 0; s < LEDGER_SLOTS; s++) {
		bool adds =
			s != slot && slots[s].again && strcmp(slots[s].tag, slots[slot].tag) == 0;

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
	bool final = streamed || is_final(job->rv) || root->elsewhere > 0;
	const struct persist_job ended = *job; /* it is used anew when something is given up */

	advice_written(&root->advice, job->rv == 0, clock_mono_ns());
	ledger_persisted(&root->ledger, job->slot, job->rv == 0, clock_mono_ns());
	if (job->rv == 0) {
		root->has_durable = true;
		memcpy(root->durable_tag, job->tag, sizeof(job->tag));
		root->trouble[0] = '\0';
		root_row_end(root, job->slot, NULL);
		root_rows_sweep(root, false);
		root_advise(root);
		root_tell_level(root, entry->seq, LEVEL_DURABLE, 0, "");
		if (streamed) {
			give_back_empty(root);
		}
		return;
	}
	snprintf(root->trouble, sizeof(root->trouble), "%s", job->err.msg);
	log_line(LOG_WARNING, "%s: %s; the last good checkpoint is untouched%s", root->path,
		job->err.msg, final ? "" : ", tried again at the next interval");
	snprintf(root->rows[job->slot].why, HISTORY_TEXT_MAX, "%.255s", ended.err.msg);
	if (final) {
		if (ended.differs[0]) { /* first: the next save is to know */
			root_tell_diverged(root, ended.differs);
		}
		give_up(root, ended.slot, &ended.err);
		root_hosts_saved(root, &ended);
		return;
	}
	root_tell_level(root, entry->seq, LEVEL_TROUBLE, job->err.code, job->err.msg);
}
