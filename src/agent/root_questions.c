/* The questions that ranks ask once a step, with the same answer for all: whether to stop, and
 * whether a save is due. See root.h. */
#include "agent/root.h"

void root_hold(struct agent_root *root, enum proto_question question)
{
	const struct frame_hold hold = {.question = (uint8_t)question,
		.seq = root->schedule.asked_seq};

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

void root_request_stop(struct agent_root *root)
{
	if (!root->questions.hold_sent[QUESTION_STOP]) {
		root_hold(root, QUESTION_STOP);
	}
}

void root_settle(struct agent_root *root, enum proto_question question)
{
	struct frame_yes_at yes_at;
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
	yes_at = (struct frame_yes_at){.question = (uint8_t)question, .polls = polls + 1};
	for (uint32_t r = 0; r < root->ledger.world; r++) {
		if (root->ranks[r].conn) {
			conn_send(root->ranks[r].conn, PROTO_YES_AT, 0, &yes_at);
		}
	}
}

void root_settle_all(struct agent_root *root)
{
	for (int q = 0; q < QUESTIONS_N; q++) {
		if (root->questions.hold_sent[q]) {
			root_settle(root, (enum proto_question)q);
		}
	}
}
