/* Records a root's saves in the history and its workers in the events: see root.h. A row is opened
 * when a save is granted a slot, and queued once, when the save's fate is known. */
#include "agent/root.h"

#include "base/clock.h"

#include <stdio.h>
#include <string.h>

void root_row_begin(struct agent_root *root, int slot, const struct ledger_ask *ask)
{
	const struct ledger_slot *entry = &root->ledger.slots[slot];
	struct history_row *row = &root->history.rows[slot];

	root_row_end(root, slot, "superseded");
	*row = (struct history_row){.level = HISTORY_FAILED,
		.step = entry->step,
		.attempt = root->epoch.attempt,
		.ranks = root->ledger.world + root->remote_ranks,
		.begun_ns = clock_wall_ns()};
	memcpy(row->tag, entry->tag, sizeof(row->tag));
	root->history.is_open[slot] = true;
	advice_begin(&root->schedule.advice, ask->step, clock_mono_ns());
}

/* Adds a partition's name, or "…" when the space is used up. */
static void add_name(char *names, const char *name)
{
	size_t len = strlen(names);
	size_t need = strlen(name) + 1;
	size_t spare = strlen(" …") + 1;

	if (len + need + spare <= HISTORY_TEXT_MAX) {
		snprintf(names + len, HISTORY_TEXT_MAX - len, "%s%s", len > 0 ? " " : "", name);
	} else if (len < 3 || strcmp(names + len - strlen("…"), "…") != 0) {
		snprintf(names + len, HISTORY_TEXT_MAX - len, " …");
	}
}

void root_row_commit(struct agent_root *root, int slot)
{
	struct history_row *row = &root->history.rows[slot];

	row->level = HISTORY_COMMITTED;
	for (uint32_t r = 0; r < root->ledger.world; r++) {
		const struct agent_rank *rank = &root->ranks[r];
		const struct record *record = &rank->records[slot];

		row->stall_ns =
			rank->stall_ns[slot] > row->stall_ns ? rank->stall_ns[slot] : row->stall_ns;
		row->stage_ns =
			rank->stage_ns[slot] > row->stage_ns ? rank->stage_ns[slot] : row->stage_ns;
		for (uint32_t p = 0; p < record->parts_n; p++) {
			if (record->parts[p].shared && root->first_rank + r > 0) {
				continue; /* counted with rank 0 */
			}
			row->files++;
			row->size_bytes += record->parts[p].size_bytes;
			if (r == 0 || record->parts[p].exact) {
				add_name(row->partitions, record->parts[p].name);
			}
		}
	}
}

void root_row_end(struct agent_root *root, int slot, const char *why)
{
	struct history_row *row = &root->history.rows[slot];

	if (root->history.is_open[slot] && why) {
		if (row->why[0] == '\0') { /* An earlier storage error explains more. */
			snprintf(row->why, sizeof(row->why), "%.255s", why);
		}
		persist_queue_row(root->storage.thread, row);
	}
	root->history.is_open[slot] = false;
}

void root_row_refuse(struct agent_root *root, const struct ledger_ask *ask, const char *why)
{
	struct history_row row = {.level = HISTORY_FAILED,
		.step = ask->step,
		.attempt = root->epoch.attempt,
		.ranks = root->ledger.world + root->remote_ranks,
		.begun_ns = clock_wall_ns()};

	if (root->ledger.named ? strcmp(ask->tag, root->history.refused_tag) == 0
			       : ask->seq <= root->history.refused_seq) {
		return; /* The refusal was queued already, for another rank. */
	}
	root->history.refused_seq = ask->seq;
	memcpy(root->history.refused_tag, ask->tag, sizeof(root->history.refused_tag));
	memcpy(row.tag, ask->tag, sizeof(row.tag));
	snprintf(row.why, sizeof(row.why), "%.255s", why);
	persist_queue_row(root->storage.thread, &row);
}

void root_rows_sweep(struct agent_root *root, bool all)
{
	int newest = ledger_newest(&root->ledger);
	bool safe = newest >= 0 && root->ledger.slots[newest].durable;

	for (int s = 0; s < LEDGER_SLOTS; s++) {
		const struct ledger_slot *slot = &root->ledger.slots[s];

		/* The storage thread has the row of a slot being persisted. */
		if (all && !slot->persisting) {
			root_row_end(root, s,
				safe && s != newest ? "superseded"
						    : "the agent left before it was durable");
		} else if (slot->state == SLOT_EMPTY) {
			root_row_end(root, s, "superseded");
		}
	}
}

/* Finds the newest step that any rank began to save. Returns false if there is none. */
static bool newest_step(const struct agent_root *root, uint64_t *step)
{
	bool any = false;

	for (int s = 0; s < LEDGER_SLOTS; s++) {
		const struct history_row *row = &root->history.rows[s];

		if (row->begun_ns > 0 && (!any || row->step > *step)) {
			*step = row->step;
			any = true;
		}
	}
	return any;
}

void root_event(struct agent_root *root, enum event_kind kind, const char *why)
{
	struct event event = {.kind = kind,
		.at_ns = clock_wall_ns(),
		.attempt = root->epoch.attempt,
		.ranks = root->ledger.world + root->remote_ranks};

	root->workers.running = kind == EVENT_STARTED || kind == EVENT_RESTORED;
	if (kind == EVENT_FAILED) {
		advice_failed(&root->schedule.advice);
	}
	root_set_running(root, root->workers.running);
	if (kind == EVENT_RESTORED) {
		event.has_step = true;
		event.step = root->restore.step;
	} else if (kind != EVENT_STARTED) {
		event.has_step = newest_step(root, &event.step);
	}
	snprintf(event.why, sizeof(event.why), "%.255s", why ? why : "");
	persist_queue_event(root->storage.thread, &event);
}
