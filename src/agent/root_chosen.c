/*
 * The saves that become durable where rank 0's host chooses them for all hosts
 * (agent/peer/chooser.h): see root.h.
 *
 * The leader's ledger decides as that of one host does, and root_advance announces each save that
 * it hands to the storage thread. The other hosts' ledgers follow: a save that the leader has
 * chosen is handed to the storage thread once it is committed here, too. A host that has dropped
 * that save, or will never commit it, fails its part at once, and the leader chooses the next.
 * While somebody waits for a save on another host, that host asks the leader for it, which makes
 * that save durable, or a newer one. If it has neither, it chooses the save and fails it.
 */
#include "agent/root.h"

#include "agent/peer/chooser.h"
#include "agent/peer/peers.h"
#include "base/clock.h"
#include "base/times.h"

static bool leads(const struct agent_root *root)
{
	return root->first_rank == 0;
}

int root_chosen_join(struct agent_root *root, struct pawl_err *err)
{
	struct root_peers *peers = &root->peers;
	char address[PEER_ADDRESS_MAX];

	/* Without the leader's address, some host of the job has no links. */
	peers->chooses = peers->has_links && !root->named &&
		peers_leader(root->agent->peers, address, NULL) == 0;
	root->ledger.role = !peers->chooses ? LEDGER_ALONE
		: leads(root)               ? LEDGER_LEADS
					    : LEDGER_FOLLOWS;
	return !peers->chooses || peers->chooser != NULL
		? 0
		: chooser_start(&peers->chooser, root->agent->peers, root->agent->loop, peers->root,
			  leads(root), err);
}

/* ---- slots ---- */

/* Returns the slot that has this save, committed; -1: none. */
static int find_save(const struct agent_root *root, const struct peer_save *save)
{
	for (int s = 0; s < LEDGER_SLOTS; s++) {
		if (root->ledger.slots[s].state == SLOT_COMMITTED &&
			peer_save_is(&root->peers.saves[s], save)) {
			return s;
		}
	}
	return -1;
}

static bool is_persisting(const struct agent_root *root)
{
	bool persisting = false;

	for (int s = 0; s < LEDGER_SLOTS; s++) {
		persisting = persisting || root->ledger.slots[s].persisting;
	}
	return persisting;
}

/* Whether there were ranks here that have all ended. */
static bool has_ended(const struct agent_root *root)
{
	bool seen = false;

	for (uint32_t r = 0; r < root->ledger.world; r++) {
		if (root->ranks[r].conn != NULL) {
			return false;
		}
		seen = seen || root->ranks[r].seen;
	}
	return seen;
}

/* Whether a save that is in no slot will never be committed here. */
static bool is_gone(const struct agent_root *root, uint64_t number)
{
	for (int s = 0; s < LEDGER_SLOTS; s++) {
		const struct ledger_slot *entry = &root->ledger.slots[s];

		if (entry->state == SLOT_STAGING && root_peers_number(root, entry->seq) == number) {
			return has_ended(root);
		}
	}
	return number <= root->peers.past || has_ended(root);
}

/* ---- the leader ---- */

/* Another host wants a save. */
static void serve_want(struct agent_root *root, const struct peer_save *wanted)
{
	int slot = find_save(root, wanted);
	int newest = ledger_newest(&root->ledger);

	if (slot >= 0) {
		ledger_want_durable(&root->ledger, root->ledger.slots[slot].seq);
	} else if (newest >= 0 && root->peers.saves[newest].run == wanted->run &&
		root->peers.saves[newest].number > wanted->number) {
		ledger_want_durable(&root->ledger, 0);
	} else if (is_gone(root, wanted->number) && !is_persisting(root)) {
		root_hosts_refuse(root, wanted->number, PAWL_ECANCELED,
			"rank 0's host does not have it");
		chooser_choose(root->peers.chooser, wanted);
	}
}

/* ---- the other hosts ---- */

/* Whether waiting for a chosen save, which is not committed here, holds up ranks here: somebody
 * waits for an older one, and may not commit the chosen one before that is durable. */
static bool holds_up(const struct agent_root *root)
{
	return ledger_wanted(&root->ledger) >= 0 &&
		clock_mono_ns() - root->peers.since_ns > times_ns(TIME_PEER_COMMIT);
}

/* The leader has chosen a save. Returns whether that is handled. */
static bool follow_choice(struct agent_root *root, const struct peer_save *chosen)
{
	int slot = find_save(root, chosen);

	if (slot >= 0) {
		if (!root->ledger.slots[slot].persisting) {
			ledger_choose(&root->ledger, root->ledger.slots[slot].seq);
		}
		return true;
	}
	if (!is_gone(root, chosen->number) && !holds_up(root)) {
		return false;
	}
	root_hosts_refuse(root, chosen->number, PAWL_ECANCELED,
		"it was not committed there, or a newer one has taken its place");
	return true;
}

/* Asks the leader for the save that somebody waits for here. Returns whether somebody does. */
static bool send_want(struct agent_root *root)
{
	const struct peer_save none = {0};
	int slot = ledger_wanted(&root->ledger);
	int64_t now_ns = clock_mono_ns();

	chooser_want(root->peers.chooser, slot >= 0 ? &root->peers.saves[slot] : &none);
	if (slot >= 0 && now_ns >= root->peers.look_ns) { /* the run may be over */
		root->peers.look_ns = now_ns + times_ns(TIME_PEER_RETRY);
		root_peers_enter(root);
	}
	return slot >= 0;
}

/* ---- both ---- */

bool root_chosen_advance(struct agent_root *root)
{
	struct peer_save *pending = &root->peers.pending;
	struct peer_save news;
	bool handled;

	if (!root->peers.chooses) {
		return false;
	}
	if (chooser_take(root->peers.chooser, &news)) {
		*pending = news;
		root->peers.since_ns = clock_mono_ns();
	}
	if (pending->run == 0 || pending->run != root->peers.map.run) {
		handled = true;
	} else if (leads(root)) {
		serve_want(root, pending);
		handled = true; /* the other host asks again for what could not be done */
	} else {
		handled = follow_choice(root, pending);
	}
	if (handled) {
		*pending = (struct peer_save){0};
	}
	return !leads(root) && send_want(root);
}

void root_chosen_durable(struct agent_root *root, int slot)
{
	root->peers.seqs[slot] = 0;
	for (int s = 0; s < LEDGER_SLOTS; s++) {
		if (root->ledger.slots[s].state == SLOT_COMMITTED &&
			!root->ledger.slots[s].durable && ledger_is_passed(&root->ledger, s)) {
			root_peers_supersede(root, s);
		}
	}
}

bool root_chosen_superseded(struct agent_root *root, int slot, const struct pawl_err *err)
{
	const struct ledger_slot *entry = &root->ledger.slots[slot];
	bool newest = slot == ledger_newest(&root->ledger);

	if (!root->peers.chooses || err->code != PAWL_ECANCELED || entry->streamed ||
		(newest && (entry->urgent || has_ended(root)))) {
		return false;
	}
	root_peers_supersede(root, slot);
	if (newest) { /* until the ranks here come to the next save, too */
		root_peers_keep(root, slot);
	}
	ledger_drop(&root->ledger, slot);
	root_row_end(root, slot, "superseded");
	return true;
}

/* ---- restores ---- */

bool root_chosen_may_restore(const struct agent_root *root)
{
	for (int s = 0; s < LEDGER_SLOTS; s++) {
		const struct ledger_slot *entry = &root->ledger.slots[s];
		bool pending = entry->state == SLOT_COMMITTED && !entry->durable &&
			!ledger_is_passed(&root->ledger, s);

		if (entry->persisting || entry->chosen ||
			(pending &&
				(!root_peers_is_whole(root, s) ||
					(root->peers.saves[s].run == 0 && root->peers.entering)))) {
			return false;
		}
	}
	return true;
}

void root_chosen_keep(struct agent_root *root)
{
	for (int s = 0; root->peers.chooses && s < LEDGER_SLOTS; s++) {
		const struct ledger_slot *entry = &root->ledger.slots[s];

		if (entry->state != SLOT_COMMITTED || entry->durable ||
			ledger_is_passed(&root->ledger, s)) {
			continue;
		}
		root_peers_supersede(root, s);
		root_peers_keep(root, s);
		ledger_drop(&root->ledger, s);
		root_row_end(root, s, "the ranks restored before it was written");
	}
}
