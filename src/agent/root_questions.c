/* The questions that ranks ask once a step, with the same answer for all: whether to stop, and
 * whether a save is due. See root.h. */
#include "agent/root.h"

#include "base/clock.h"

bool root_asks_hosts(const struct agent_root *root)
{
	return root->remote_ranks > 0 && root->agent->polled != NULL;
}

bool root_has_come_to(const struct agent_root *root, uint64_t seq)
{
	for (uint32_t r = 0; r < root->ledger.world; r++) {
		const struct agent_rank *rank = &root->ranks[r];

		if (!rank->conn || !rank->conn->welcomed || rank->asked_seq < seq) {
			return false;
		}
	}
	return true;
}

static void hold(struct agent_root *root, enum proto_question question, uint64_t seq)
{
	const struct frame_hold hold = {.question = (uint8_t)question, .seq = seq};

	root->questions.hold_sent[question] = true;
	root->questions.settled[question] = false;
	for (uint32_t r = 0; r < root->ledger.world; r++) {
		struct agent_conn *conn = root->ranks[r].conn;

		if (conn) {
			conn->hold_answered[question] = false;
			conn_send(conn, PROTO_HOLD, 0, &hold);
		}
	}
}

void root_hold(struct agent_root *root, enum proto_question question)
{
	if (question == QUESTION_DUE) {
		root->questions.run = root->peers.map.run;
		root->questions.seq = root->schedule.asked_seq;
	}
	hold(root, question, root->schedule.asked_seq);
}

void root_request_stop(struct agent_root *root)
{
	if (!root->questions.hold_sent[QUESTION_STOP]) {
		root_hold(root, QUESTION_STOP);
	}
}

static void send_yes_at(struct agent_root *root, enum proto_question question, uint64_t polls)
{
	const struct frame_yes_at yes_at = {.question = (uint8_t)question, .polls = polls};

	for (uint32_t r = 0; r < root->ledger.world; r++) {
		if (root->ranks[r].conn) {
			conn_send(root->ranks[r].conn, PROTO_YES_AT, 0, &yes_at);
		}
	}
}

void root_settle(struct agent_root *root, enum proto_question question)
{
	uint64_t polls = 0;

	if (root->questions.settled[question]) {
		return; /* The answer stands: a rank that has left since may have been ahead. */
	}
	for (uint32_t r = 0; r < root->ledger.world; r++) {
		const struct agent_conn *conn = root->ranks[r].conn;

		if (conn && !conn->closing && !conn->hold_answered[question]) {
			return; /* This rank has not answered yet. */
		}
		polls = conn && conn->polls[question] > polls ? conn->polls[question] : polls;
	}
	root->questions.settled[question] = true;
	if (!root_asks_hosts(root)) {
		send_yes_at(root, question, polls + 1);
		return;
	}
	root->questions.polls[question] = polls;
	root->questions.unreported[question] = true;
	loop_timer_start(root->agent->loop, &root->agent->poll_timer, clock_mono_ns());
}

void root_settle_all(struct agent_root *root)
{
	for (int q = 0; q < QUESTIONS_N; q++) {
		if (root->questions.hold_sent[q]) {
			root_settle(root, (enum proto_question)q);
		}
	}
}

/* ---- ranks that span hosts ---- */

void root_hold_too(struct agent_root *root, const struct agent_poll *poll)
{
	struct root_questions *questions = &root->questions;

	if (!root_asks_hosts(root)) {
		return;
	}
	if (poll->question == QUESTION_STOP) {
		root_request_stop(root);
		root_settle(root, QUESTION_STOP); /* there may be no ranks that will answer */
		return;
	}
	questions->wanted = true;
	questions->wanted_run = poll->run;
	questions->wanted_seq = poll->seq;
}

bool root_hold_wanted(struct agent_root *root)
{
	struct root_questions *questions = &root->questions;
	bool runless = root->peers.has_links && root->peers.map.run == 0;

	if (!questions->wanted) {
		return questions->needs_run && runless;
	}
	if (questions->wanted_run != 0 && root->peers.has_links &&
		questions->wanted_run != root->peers.map.run) {
		return runless; /* an earlier run is over, or about to be */
	}
	if (root_has_come_to(root, questions->wanted_seq)) {
		questions->wanted = false;
		questions->run = questions->wanted_run;
		questions->seq = questions->wanted_seq;
		hold(root, QUESTION_DUE, questions->seq);
	}
	return false;
}

void root_yes_at(struct agent_root *root, const struct agent_poll *poll)
{
	const struct root_questions *questions = &root->questions;
	bool same = poll->run == questions->run && poll->seq == questions->seq;

	/* Some ranks may have begun the next save already; others still wait for the answer. */
	if (root_asks_hosts(root) && (poll->question == QUESTION_STOP || same)) {
		send_yes_at(root, (enum proto_question)poll->question, poll->polls);
	}
}

void root_report_polls(struct agent_root *root)
{
	struct root_questions *questions = &root->questions;

	for (uint32_t q = 0; q < QUESTIONS_N; q++) {
		const struct agent_poll poll = {.path = root->path,
			.question = q,
			.run = q == QUESTION_DUE ? questions->run : 0,
			.seq = q == QUESTION_DUE ? questions->seq : 0,
			.polls = questions->polls[q]};

		if (questions->unreported[q]) {
			questions->unreported[q] = false;
			root->agent->polled(root->agent->polled_user, &poll);
		}
	}
}
