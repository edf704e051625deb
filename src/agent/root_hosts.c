/* The loop's part of a root whose ranks span hosts. Only the storage thread exchanges messages with
 * the other hosts. See root.h and agree.h. */
#include "agent/root.h"

#include "base/err.h"

#include <stdio.h>
#include <string.h>

/* Makes a job for the storage thread. Without memory for it, raises an alert and returns NULL. */
static struct persist_job *make_job(struct agent_root *root, enum persist_kind kind)
{
	struct persist_job *job = root_job(root, kind, "");
	struct alert alert;
	struct pawl_err err;

	if (!job) {
		pawl_err_set(&err, PAWL_ENOMEM, "no memory for a message to the other hosts");
		alert_fill(&alert, ALERT_ONCE, &err, "%s", "");
		root_alert(root, &alert);
	}
	return job;
}

void root_hosts_fail_save(struct agent_root *root, uint64_t seq, int code, const char *why)
{
	if (root->remote_ranks == 0 || seq == 0) {
		return;
	}
	if (root->peers.chooses) {
		root_peers_past(root, seq);
		root_peers_enter(root); /* only a host that is in the run learns of the choice */
	} else {
		root_hosts_refuse(root, seq, code, why);
	}
}

void root_hosts_refuse(struct agent_root *root, uint64_t number, int code, const char *why)
{
	struct persist_job *job;

	if (number == root->saves.failed_seq) {
		return;
	}
	root->saves.failed_seq = number;
	job = make_job(root, PERSIST_FAIL_SAVE);
	if (job) {
		job->fail_save.seq = number;
		job->fail_save.chosen = root->peers.chooses;
		pawl_err_set(&job->fail_save.reason, code, "%s", why);
		persist_submit(root->storage.thread, job);
	}
}

void root_hosts_begin(struct agent_root *root)
{
	struct persist_job *job;

	if (root->remote_ranks == 0) {
		root->epoch.number++;
		return;
	}
	for (int s = 0; s < LEDGER_SLOTS; s++) {
		const struct ledger_slot *slot = &root->ledger.slots[s];

		if (slot->state == SLOT_STAGING) {
			root_hosts_fail_save(root, slot->seq, PAWL_EPEER, "its ranks have ended");
		}
		if (slot->state == SLOT_COMMITTED && !slot->durable && !slot->persisting) {
			root_hosts_fail_save(root, slot->seq, PAWL_EPEER, "its ranks began anew");
			root_peers_keep(root, s);
			ledger_drop(&root->ledger, s);
			root_row_end(root, s, "the ranks began anew before it was written");
		}
	}
	/* What becomes of the jobs above no longer matters to the ranks that begin. */
	root->epoch.number++;
	root->saves.failed_seq = 0;
	root_peers_reset(root);
	job = make_job(root, PERSIST_BEGIN);
	if (job) {
		root_peers_begin(root);
		persist_submit(root->storage.thread, job);
	}
}

void root_hosts_expect_nonce(struct agent_root *root)
{
	const struct agent *agent = root->agent;

	for (uint32_t i = 0; i < AGENT_NONCES_MAX; i++) {
		if (root->remote_ranks > 0 && root->first_rank > 0 &&
			agent->nonces[i].path != NULL &&
			strcmp(agent->nonces[i].path, root->path) == 0) {
			persist_expect_nonce(root->storage.thread, agent->nonces[i].nonce);
		}
	}
}

void root_hosts_begun(struct agent_root *root, const struct persist_job *job)
{
	struct agent *agent = root->agent;

	struct alert alert;

	root_peers_begun(root);
	if (job->result.rv != 0) {
		alert_fill(&alert, ALERT_ONCE, &job->result.err, "%s", "");
		root_alert(root, &alert);
	} else if (root->first_rank == 0 && agent->begun != NULL) {
		agent->begun(agent->begun_user, root->path, job->result.begin.nonce);
	} else {
		root_hosts_expect_nonce(root);
	}
}

bool root_hosts_vote(struct agent_root *root)
{
	struct agent_restore *restore = &root->restore;
	struct persist_job *job = make_job(root, PERSIST_VOTE);

	if (!job) {
		restore->verdict = VERDICT_REFUSED;
		snprintf(restore->why, sizeof(restore->why), "out of memory");
		return false;
	}
	memcpy(job->tag, restore->tag, sizeof(job->tag));
	job->vote.verdict = restore->verdict;
	job->vote.memory = root->peers.plan != NULL;
	snprintf(job->vote.why, sizeof(job->vote.why), "%.255s", restore->why);
	restore->state = RESTORE_VOTED;
	persist_submit(root->storage.thread, job);
	return true;
}
