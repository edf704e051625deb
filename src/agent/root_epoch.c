/* Begins a new epoch of a root: see root.h. */
#include "agent/root.h"

#include "base/clock.h"

#include <string.h>

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
			root_submit(root, PERSIST_STREAM_DROP, root->ledger.slots[s].tag);
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
	restore_peers_end(root);
	root->restore.state = RESTORE_IDLE;
	root->epoch.rounds = 0;
	root_reset_seqs(root);
	root->epoch.attempt = attempt;
}

void root_epoch_over(struct agent_root *root, uint64_t epoch, const char *why)
{
	struct alert alert;

	if (epoch != root->epoch.number) {
		return; /* The ranks have begun anew meanwhile. */
	}
	alert_fill(&alert, ALERT_ONCE, NULL, "the ranks here begin anew: %.256s", why);
	root_alert(root, &alert);
	root_new_epoch(root, root->ledger.world, root->epoch.attempt);
}
