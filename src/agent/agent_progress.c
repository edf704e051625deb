/* Ends a drain once all is durable, and the loop when the agent is idle. */
#include "agent/root.h"

#include "base/clock.h"
#include "base/times.h"

static bool all_durable(const struct agent *agent)
{
	for (const struct agent_root *root = agent->roots; root; root = root->next) {
		if (root->state == ROOT_OPEN && !ledger_all_durable(&root->ledger)) {
			return false;
		}
	}
	return true;
}

/* Whether all is durable and every pin and removal is carried out. */
static bool all_done(const struct agent *agent)
{
	for (const struct agent_root *root = agent->roots; root; root = root->next) {
		if (root->state == ROOT_OPEN && root->storage.pending_changes > 0) {
			return false;
		}
	}
	return all_durable(agent);
}

/* Whether storage has failed since agent_drain was called: the drain then gives up. */
static bool has_failed(const struct agent *agent)
{
	for (const struct agent_root *root = agent->roots; root; root = root->next) {
		if (root->storage.failed_since_drain && !ledger_all_durable(&root->ledger)) {
			return true;
		}
	}
	return false;
}

void agent_progress(struct agent *agent)
{
	void (*drained)(void *user, bool ok) = agent->drained;

	if (drained && (all_done(agent) || has_failed(agent))) {
		agent->drained = NULL;
		drained(agent->drained_user, all_durable(agent));
	}
	if (agent->idle_exit_ns > 0 && !agent->conns && !agent->idle.active) {
		loop_timer_start(agent->loop, &agent->idle, clock_mono_ns() + agent->idle_exit_ns);
	}
}

/* Whether waiting is of no use: for all that is not durable, storage has failed for long, and the
 * ranks have ended. */
static bool is_stuck(const struct agent *agent)
{
	int64_t past_ns = clock_mono_ns() - times_ns(TIME_AGENT_UNUSED);

	for (const struct agent_root *root = agent->roots; root; root = root->next) {
		const struct alert_state *failing = &root->alerts[ALERT_SAVE];

		if (root->state == ROOT_OPEN && !ledger_all_durable(&root->ledger) &&
			(!failing->active || failing->since_ns > past_ns ||
				root->workers.left_ns > past_ns)) {
			return false;
		}
	}
	return true;
}

void agent_idle_fired(struct loop_timer *timer)
{
	struct agent *agent = timer->user;

	if (agent->conns) {
		return;
	}
	if (all_done(agent) || is_stuck(agent)) {
		loop_stop(agent->loop);
		return;
	}
	loop_timer_start(agent->loop, timer, clock_mono_ns() + agent->idle_exit_ns);
}
