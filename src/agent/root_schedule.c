/* When the next save is due, and how often what is committed is made durable, by what the advice
 * says. See root.h. */
#include "agent/root.h"

#include "base/clock.h"
#include "base/times.h"

/* Whether this host, of several that the ranks span, asks them whether a save is due. */
static bool asks_when_due(const struct agent_root *root)
{
	return root_asks_hosts(root) && root->first_rank == 0 && !root->named;
}

static void wait_due(struct agent_root *root, double after_s)
{
	double again_s = (double)times_ns(TIME_DUE_AGAIN) / NS_PER_S;

	if (root->ledger.named || (root->remote_ranks > 0 && !asks_when_due(root))) {
		return;
	}
	after_s = root->schedule.save_soon && after_s > again_s ? again_s : after_s;
	root->questions.hold_sent[QUESTION_DUE] = false;
	loop_timer_start(root->agent->loop, &root->schedule.due,
		root->schedule.asked_ns + (int64_t)(after_s * (double)NS_PER_S));
}

void root_set_last_seq(struct agent_root *root, uint32_t rank, uint64_t seq)
{
	uint64_t *last = &root->ranks[rank].asked_seq;

	*last = seq > *last ? seq : *last;
	root->schedule.asked_seq = seq > root->schedule.asked_seq ? seq : root->schedule.asked_seq;
}

void root_asked(struct agent_root *root, uint32_t rank, uint64_t seq)
{
	bool first = seq > root->schedule.asked_seq;

	root_set_last_seq(root, rank, seq);
	if (first) {
		root->schedule.asked_ns = clock_mono_ns();
		root->schedule.save_soon = false;
		wait_due(root, advice_save_s(&root->schedule.advice));
	}
}

void root_reset_seqs(struct agent_root *root)
{
	root->schedule.asked_seq = 0;
	for (uint32_t r = 0; r < root->ledger.world; r++) {
		root->ranks[r].asked_seq = 0;
	}
}

void root_restart_count(struct agent_root *root)
{
	root->epoch.rounds++;
	for (uint32_t r = 0; r < root->ledger.world; r++) {
		root_set_last_seq(root, r, (uint64_t)root->epoch.rounds << 32);
	}
}

void root_saved(struct agent_root *root, uint64_t stall_ns)
{
	advice_saved(&root->schedule.advice, (double)stall_ns / NS_PER_S);
	if (!root->questions.hold_sent[QUESTION_DUE]) {
		wait_due(root, advice_save_s(&root->schedule.advice));
	}
}

void root_set_running(struct agent_root *root, bool running)
{
	root->schedule.asked_ns = clock_mono_ns();
	advice_run(&root->schedule.advice, running, root->schedule.asked_ns);
	root_advise(root);
	if (running) {
		wait_due(root, advice_save_s(&root->schedule.advice));
	} else {
		loop_timer_cancel(root->agent->loop, &root->schedule.due);
	}
}

void root_add_past(struct agent_root *root, const struct events_past *past)
{
	root->schedule.advice.failures += past->failures;
	root->schedule.advice.losses += past->losses;
	root->schedule.advice.run_s += past->run_s;
	root_set_running(root, root->workers.running);
}

void root_init_advice(struct agent_root *root)
{
	const struct advice_bounds bounds = {.save_min_s = (double)times_ns(TIME_ADVICE_SAVE_MIN) /
			NS_PER_S,
		.save_max_s = (double)times_ns(TIME_ADVICE_SAVE_MAX) / NS_PER_S,
		.persist_min_s = (double)times_ns(TIME_ADVICE_PERSIST_MIN) / NS_PER_S,
		.persist_max_s = (double)times_ns(TIME_ADVICE_PERSIST_MAX) / NS_PER_S};

	advice_init(&root->schedule.advice, &bounds, 0, 0, 0);
}

void root_save_soon(struct agent_root *root)
{
	ledger_want_durable(&root->ledger, 0);
	root->schedule.durable_next = true;
	root->schedule.save_soon = true;
	if (root->workers.running && !root->questions.hold_sent[QUESTION_DUE]) {
		wait_due(root, 0);
	}
}

void root_advise(struct agent_root *root)
{
	if (root->schedule.auto_interval) {
		ledger_set_interval(&root->ledger,
			(int64_t)(advice_persist_s(&root->schedule.advice) * (double)NS_PER_S));
	}
}

void root_due(struct agent_root *root)
{
	bool asks_hosts = root_asks_hosts(root);

	/* Once a run is known, the ranks of all hosts are there. */
	root->questions.needs_run = asks_hosts && root->peers.has_links && root->peers.map.run == 0;
	if (root->questions.needs_run || !root_has_come_to(root, root->schedule.asked_seq)) {
		root->schedule.asked_ns = clock_mono_ns();
		wait_due(root, (double)times_ns(TIME_DUE_AGAIN) / NS_PER_S);
		return;
	}
	root_hold(root, QUESTION_DUE);
}
