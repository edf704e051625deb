/* The coordinator's questions to the ranks of all nodes: see nodes_polls.h. */
#include "launch/nodes/nodes_polls.h"

#include "base/assert.h"

#include <stdio.h>
#include <string.h>

static bool is_question(const struct nodes_poll *poll, const struct node_frame *frame)
{
	return poll->used && poll->question == frame->question && poll->run == frame->instance_id &&
		poll->seq == frame->seq && strcmp(poll->path, frame->text) == 0;
}

/* Returns the entry of a question, or one that is free, or the oldest one. */
static struct nodes_poll *find(struct nodes_polls *polls, const struct node_frame *frame)
{
	struct nodes_poll *place = &polls->at[0];

	for (uint32_t i = 0; i < NODES_POLLS_MAX; i++) {
		struct nodes_poll *poll = &polls->at[i];

		if (is_question(poll, frame)) {
			return poll;
		}
		if (place->used && (!poll->used || poll->order < place->order)) {
			place = poll;
		}
	}
	return place;
}

enum nodes_polls_next nodes_polls_take(struct nodes_polls *polls, const struct node_frame *frame,
	uint32_t node, uint32_t nodes, uint64_t *yes_at)
{
	struct nodes_poll *poll = find(polls, frame);
	bool known = is_question(poll, frame);

	ASSERT(node < nodes && nodes <= NODES_MAX);
	if (!known) {
		*poll = (struct nodes_poll){.used = true,
			.order = polls->order++,
			.question = frame->question,
			.run = frame->instance_id,
			.seq = frame->seq};
		snprintf(poll->path, sizeof(poll->path), "%s", frame->text);
	}
	if (!poll->settled) {
		poll->polls = frame->polls > poll->polls ? frame->polls : poll->polls;
		poll->answered_n += !poll->answered[node];
		poll->answered[node] = true;
		if (poll->answered_n < nodes) {
			return known ? POLLS_WAIT : POLLS_HOLD;
		}
	}
	*yes_at = poll->polls + 1;
	if (poll->settled) {
		return POLLS_AGAIN;
	}
	poll->settled = true;
	return POLLS_YES;
}
