/*
 * Replicas of a root's committed saves in the memory of other hosts, if the ranks span hosts whose
 * agents have links (agent/peer): see root.h.
 *
 * A committed save is offered to the replicator, which sends this host's part of it to the peers
 * that place.h names. When the ranks begin anew, the parts of their saves stay in memory (held.h),
 * and restore.c offers the ranks the newest save of which the hosts together have all parts.
 */
#include "agent/root.h"

#include "agent/peer/chooser.h"
#include "agent/peer/held.h"
#include "agent/peer/peers.h"
#include "agent/peer/replicate.h"
#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct held *held_of(const struct agent_root *root)
{
	return peers_held(root->agent->peers);
}

void root_peers_open(struct agent_root *root)
{
	root->peers.has_links = root->agent->peers != NULL && root->remote_ranks > 0;
	root->peers.root = peer_root(root->path);
}

void root_peers_close(struct agent_root *root)
{
	chooser_stop(root->peers.chooser);
	root->peers.chooser = NULL;
	replicator_stop(root->peers.replicator);
	root->peers.replicator = NULL;
}

/* Raises an alert, or with err NULL ends it. */
static void report(struct agent_root *root, const struct pawl_err *err, const char *text)
{
	struct alert alert;

	alert_fill(&alert, ALERT_REPLICA, err, "%s", text);
	root_alert(root, &alert);
}

/* ---- sending ---- */

bool root_peers_is_whole(const struct agent_root *root, int slot)
{
	const struct ledger_slot *entry = &root->ledger.slots[slot];

	return entry->state == SLOT_COMMITTED && !entry->streamed && !entry->adds && !entry->alone;
}

/* Describes this host's part of the save in a slot. */
static struct peer_part part_of(const struct agent_root *root, int slot)
{
	const struct ledger_slot *entry = &root->ledger.slots[slot];
	struct peer_part part = {.save = root->peers.saves[slot],
		.step = entry->step,
		.world = root->ledger.world + root->remote_ranks,
		.first_rank = root->first_rank,
		.ranks = root->ledger.world};

	memcpy(part.tag, entry->tag, sizeof(part.tag));
	return part;
}

static void offer(struct agent_root *root, int slot)
{
	const struct peer_part part = part_of(root, slot);
	struct replicate_rank ranks[PROTO_RANKS_LOCAL] = {{0}};
	struct pawl_err err;

	for (uint32_t r = 0; r < root->ledger.world; r++) {
		const struct agent_rank *rank = &root->ranks[r];
		const struct wire_out *blob = &rank->blobs[slot];

		if (blob->len_bytes > 0) {
			ranks[r] = (struct replicate_rank){.blob = blob->bytes,
				.blob_bytes = (uint32_t)blob->len_bytes,
				.fd = rank->arenas[slot].fd,
				.arena_bytes = rank->arenas[slot].size_bytes};
		}
	}
	if (replicator_offer(root->peers.replicator, slot, &part, ranks, &err) != 0) {
		report(root, &err, "a checkpoint is not replicated to other hosts");
	}
}

/* persist_jobs.c counts saves in the same way. */
uint64_t root_peers_number(const struct agent_root *root, uint64_t seq)
{
	return (uint64_t)root->epoch.rounds << 32 | (uint32_t)seq;
}

/* Gives the save in a slot the number by which all hosts know it, in the run that is in force. */
static void number_save(struct agent_root *root, int slot)
{
	root->peers.saves[slot] = (struct peer_save){.run = root->peers.map.run,
		.number = root_peers_number(root, root->ledger.slots[slot].seq)};
}

void root_peers_enter(struct agent_root *root)
{
	/* A job in progress, or queued, that waits for other hosts enters the run by itself. */
	if (!root->peers.entering &&
		(root->peers.map.run == 0 || persist_idle(root->storage.thread))) {
		root->peers.entering = true;
		root_submit(root, PERSIST_ENTER, "");
	}
}

void root_peers_past(struct agent_root *root, uint64_t seq)
{
	uint64_t number = root_peers_number(root, seq);

	root->peers.past = number > root->peers.past ? number : root->peers.past;
}

void root_peers_reset(struct agent_root *root)
{
	root->peers.pending = (struct peer_save){0};
	root->peers.past = 0;
	memset(root->peers.seqs, 0, sizeof(root->peers.seqs));
}

void root_peers_supersede(struct agent_root *root, int slot)
{
	if (root->peers.chooses && root->peers.seqs[slot] != 0) {
		root_send_level(root, root->peers.seqs[slot], LEVEL_SUPERSEDED, 0, "");
	}
	root->peers.seqs[slot] = 0;
}

void root_peers_choose(struct agent_root *root, int slot)
{
	const struct peer_save *save = &root->peers.saves[slot];

	if (root->peers.chooses && root->first_rank == 0 && save->run != 0 &&
		save->run == root->peers.map.run && root->ledger.slots[slot].persisting) {
		chooser_choose(root->peers.chooser, save);
	}
}

void root_peers_commit(struct agent_root *root, int slot)
{
	root->peers.saves[slot] = (struct peer_save){0};
	root->peers.seqs[slot] = root->ledger.slots[slot].seq;
	root_peers_past(root, root->ledger.slots[slot].seq);
	if (!root->peers.has_links || !(root->peers.chooses || root_peers_is_whole(root, slot))) {
		return;
	}
	if (root->peers.map.run == 0 || root->peers.chooses) {
		root_peers_enter(root);
	}
	if (root->peers.map.run == 0) {
		return; /* take_map goes on */
	}
	number_save(root, slot);
	if (root->peers.replicator != NULL && root_peers_is_whole(root, slot)) {
		offer(root, slot);
	}
}

void root_peers_withdraw(struct agent_root *root, int slot)
{
	if (!root->ledger.slots[slot].durable) {
		root_peers_supersede(root, slot);
	}
	root->peers.saves[slot] = (struct peer_save){0};
	if (root->peers.replicator != NULL) {
		replicator_withdraw(root->peers.replicator, slot);
	}
}

/* ---- what is kept of saves that will not be durable ---- */

/* Whether a part of a save is to be dropped. */
typedef bool unwanted_fn(const struct agent_root *root, const struct peer_part *part,
	uint64_t step);

static void drop_if(struct agent_root *root, unwanted_fn *unwanted, uint64_t step)
{
	struct peer_part parts[ROOT_PARTS_MAX];
	uint32_t n = root->peers.has_links
		? held_list(held_of(root), root->peers.root, parts, ROOT_PARTS_MAX)
		: 0;

	for (uint32_t i = 0; i < n; i++) {
		if (unwanted(root, &parts[i], step)) {
			held_drop(held_of(root), root->peers.root, &parts[i].save);
		}
	}
}

/* unwanted_fn: own parts of lower steps, except those of the save that was replicated last, and of
 * the one that the ranks went on from: all may go back to these until a newer one is. */
static bool is_outdated(const struct agent_root *root, const struct peer_part *part, uint64_t step)
{
	return part->first_rank == root->first_rank && part->step < step &&
		!peer_save_is(&part->save, &root->peers.global) &&
		!peer_save_is(&part->save, &root->peers.restored);
}

/* unwanted_fn */
static bool is_newer(const struct agent_root *root, const struct peer_part *part, uint64_t step)
{
	(void)root;
	return part->step > step;
}

/* A save of this step is kept. Only those of the two highest steps that are kept can be whole on
 * all hosts: drops the others. */
static void drop_outdated(struct agent_root *root, uint64_t step)
{
	uint64_t *kept = root->peers.kept_steps;

	if (step > kept[0]) {
		kept[1] = kept[0];
		kept[0] = step;
	} else if (step > kept[1] && step < kept[0]) {
		kept[1] = step;
	}
	drop_if(root, is_outdated, kept[1]);
}

void root_peers_restored(struct agent_root *root, uint64_t step, bool newest)
{
	const struct peer_save *global = &root->peers.global;
	struct peer_save *restored = &root->peers.restored;
	const struct peer_save none = {0};
	bool known;

	if (!root->peers.has_links) {
		return;
	}
	*restored = root->peers.plan != NULL ? root->peers.plan->save : none;
	/* A global save is at all peers still if the ranks went on from it, or from a newer one of
	 * its run. */
	known = global->run != 0 && restored->run == global->run &&
		restored->number >= global->number;
	if (root->peers.replicator != NULL) {
		replicator_set_before(root->peers.replicator, known ? global : &none);
	}
	if (newest) { /* a newer save is not whole, and never will be */
		drop_if(root, is_newer, step);
	}
}

void root_peers_keep(struct agent_root *root, int slot)
{
	struct peer_part part = part_of(root, slot);
	struct held_rank ranks[PROTO_RANKS_LOCAL] = {{{0}}};
	struct pawl_err err;

	if (!root->peers.has_links || !root_peers_is_whole(root, slot) || part.save.run == 0) {
		return;
	}
	root->peers.seqs[slot] = 0; /* the caller tells the ranks what becomes of it */
	/* The replicator goes on with the save: its bytes stay as they are. */
	root->peers.saves[slot] = (struct peer_save){0};
	for (uint32_t r = 0; r < root->ledger.world; r++) {
		struct agent_rank *rank = &root->ranks[r];

		if (rank->blobs[slot].len_bytes == 0) {
			continue;
		}
		ranks[r] = (struct held_rank){rank->arenas[slot], rank->blobs[slot]};
		rank->arenas[slot] = (struct arena){0};
		rank->blobs[slot] = (struct wire_out){0};
	}
	if (held_add(held_of(root), root->peers.root, &part, ranks, &err) != 0) {
		log_line(LOG_WARNING, "%s: %s of the last start is lost: %s", root->path, part.tag,
			err.msg);
	} else {
		drop_outdated(root, part.step);
	}
}

int root_peers_list(const struct agent_root *root, struct peer_part **parts, uint32_t *parts_n,
	struct pawl_err *err)
{
	struct peer_part *list;

	*parts = NULL;
	*parts_n = 0;
	if (!root->peers.has_links) {
		return 0;
	}
	list = FAULT_MEM("root.list", calloc(ROOT_PARTS_MAX, sizeof(*list)));
	if (list == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM,
			"no memory to list the checkpoints in memory");
	}
	*parts = list;
	*parts_n = held_list(held_of(root), root->peers.root, list, ROOT_PARTS_MAX);
	return 0;
}

void root_peers_drop(struct agent_root *root, const struct peer_save *save)
{
	held_drop(held_of(root), root->peers.root, save);
}

void root_peers_durable(struct agent_root *root, uint64_t step)
{
	if (root->peers.has_links) {
		held_drop_below(held_of(root), root->peers.root, step + 1);
	}
}

bool root_peers_trim(const struct agent_root *root)
{
	return root->peers.has_links && held_trim(held_of(root), 0);
}

/* ---- news ---- */

/* Starts the replicator once a host of the run wants replicas. If not all do, it says so. */
static int start_replicator(struct agent_root *root, struct pawl_err *err)
{
	const struct peer_map *map = &root->peers.map;
	bool wanted = false;

	for (uint32_t i = 0; i < map->n; i++) {
		wanted = wanted || map->hosts[i].replicas > 0;
	}
	return root->peers.replicator != NULL || !wanted
		? 0
		: replicator_start(&root->peers.replicator, root->agent->peers, root->agent->loop,
			  root->peers.root, err);
}

/* Numbers the saves that were committed before the run was known, and offers the newest. */
static void number_saves(struct agent_root *root)
{
	int newest = ledger_newest(&root->ledger);

	for (int s = 0; s < LEDGER_SLOTS; s++) {
		const struct ledger_slot *entry = &root->ledger.slots[s];
		bool known = root->peers.saves[s].run != 0;

		if (entry->state != SLOT_COMMITTED || entry->seq == 0 || known) {
			continue;
		}
		number_save(root, s);
		if (entry->persisting) {
			root_peers_choose(root, s);
		}
		if (s == newest && root_peers_is_whole(root, s) && root->peers.replicator != NULL) {
			offer(root, s);
		}
	}
}

/* The hosts of another run are known, or the run is over. */
static void take_map(struct agent_root *root)
{
	struct peer_map *map = &root->peers.map;
	struct pawl_err err;
	int rv = 0;

	memset(root->peers.kept_steps, 0, sizeof(root->peers.kept_steps));
	if (map->run != 0) {
		rv = start_replicator(root, &err);
	}
	if (rv == 0 && root->peers.replicator != NULL) {
		rv = replicator_set_map(root->peers.replicator, map->run != 0 ? map : NULL, &err);
	}
	root->peers.pending = (struct peer_save){0};
	if (root->peers.chooser != NULL) {
		chooser_set_run(root->peers.chooser, map->run);
	}
	if (rv != 0) {
		report(root, &err, "checkpoints are not replicated to other hosts");
	}
	if (map->run != 0) {
		number_saves(root);
	}
}

void root_peers_begin(struct agent_root *root)
{
	struct pawl_err err;

	root->peers.begins++;
	root_peers_trim(root); /* the restore needs memory, and the hosts may change */
	/* Saves of the new start must not get numbers of the run before. */
	root->peers.map.run = 0;
	root->peers.entering = false;
	if (root->peers.replicator != NULL) {
		(void)replicator_set_map(root->peers.replicator, NULL, &err);
	}
}

void root_peers_begun(struct agent_root *root)
{
	ASSERT(root->peers.begins > 0);
	root->peers.begins--;
}

/* Every host's part of a save is at its peers: what is older is of no more use. */
static void take_global(struct agent_root *root, const struct peer_save *global)
{
	root->peers.global = *global;
	held_drop_others(held_of(root), root->peers.root, global);
	report(root, NULL, "checkpoints are replicated to other hosts again");
	for (int s = 0; s < LEDGER_SLOTS; s++) {
		const struct ledger_slot *entry = &root->ledger.slots[s];

		if (entry->state == SLOT_COMMITTED && !entry->durable &&
			peer_save_is(&root->peers.saves[s], global)) {
			root_send_level(root, entry->seq, LEVEL_REPLICATED, 0, "");
		}
	}
}

void root_peers_reap(struct agent_root *root)
{
	struct replicate_status status;
	struct pawl_err err;

	if (!root->peers.has_links) {
		return;
	}
	/* Until the storage thread has begun anew, it reports runs of the start before. */
	if (root->peers.begins == 0 && persist_take_map(root->storage.thread, &root->peers.map)) {
		take_map(root);
	}
	if (root->peers.replicator == NULL) {
		return;
	}
	replicator_status(root->peers.replicator, &status);
	if (status.global.run != 0 && !peer_save_is(&status.global, &root->peers.global)) {
		take_global(root, &status.global);
	}
	if (status.failures != root->peers.failures) {
		root->peers.failures = status.failures;
		if (status.why[0] != '\0') {
			pawl_err_set(&err, PAWL_EPEER, "%s", status.why);
			report(root, &err,
				"the newest checkpoint is not replicated to other hosts");
		}
	}
}
