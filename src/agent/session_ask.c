/* Inside a worker: what ranks ask once a step and are told alike. See session.h and root_ask.c. */
#include "agent/session.h"

#include "base/clock.h"

#include <time.h>

void session_hear_hold(struct pawl_ckpt *ckpt, struct wire_in *in)
{
	struct wire_out out = {0};
	uint8_t which = wire_get_u8(in);
	uint64_t seq = wire_get_u64(in);
	size_t start;

	if (in->failed || which >= QUESTIONS_N) {
		return;
	}
	start = link_start(ckpt->link, &out, PROTO_HELD);
	wire_put_u8(&out, which);
	pthread_mutex_lock(&ckpt->state);
	ckpt->questions[which].held = true;
	ckpt->questions[which].seq = seq;
	ckpt->questions[which].yes_at = UINT64_MAX;
	ckpt->questions[which].no_at = 0;
	wire_put_u64(&out, ckpt->questions[which].polls);
	pthread_mutex_unlock(&ckpt->state);
	link_send(ckpt->link, &out, start, NULL);
	wire_out_deinit(&out);
}

void session_hear_yes_at(struct pawl_ckpt *ckpt, struct wire_in *in)
{
	uint8_t which = wire_get_u8(in);
	uint64_t polls = wire_get_u64(in);
	struct session_question *question;

	if (in->failed || which >= QUESTIONS_N) {
		return;
	}
	pthread_mutex_lock(&ckpt->state);
	question = &ckpt->questions[which];
	if (question->yes_at > question->polls) { /* else it was told yes already */
		question->yes_at = polls;
	}
	pthread_cond_broadcast(&ckpt->changed);
	pthread_mutex_unlock(&ckpt->state);
}

/* With state: the question is held, and not over by a save that has been asked for since. */
static bool is_held(const struct pawl_ckpt *ckpt, enum proto_question which)
{
	const struct session_question *question = &ckpt->questions[which];

	return question->held &&
		(which != QUESTION_DUE || question->seq == session_number(ckpt, ckpt->last_id));
}

/* With state: waits until it is known where all ranks are told yes. Where the agent or a rank
 * stands still, it stops by itself; a save it makes with all or not at all. */
static void await_ranks(struct pawl_ckpt *ckpt, enum proto_question which)
{
	struct session_question *question = &ckpt->questions[which];
	int64_t due_ns = clock_mono_ns() + SESSION_STOP_MS * NS_PER_MS;
	struct timespec due = {.tv_sec = due_ns / NS_PER_S, .tv_nsec = due_ns % NS_PER_S};

	while (is_held(ckpt, which) && question->yes_at == UINT64_MAX && question->no_at == 0) {
		if (pthread_cond_timedwait(&ckpt->changed, &ckpt->state, &due) == 0) {
			continue;
		}
		if (which == QUESTION_STOP) {
			question->yes_at = question->polls;
		} else {
			question->no_at = question->polls;
		}
	}
}

static bool poll_question(struct pawl_ckpt *ckpt, enum proto_question which)
{
	struct session_question *question = &ckpt->questions[which];
	bool yes;

	if (session_dead(ckpt, NULL)) {
		return false;
	}
	pthread_mutex_lock(&ckpt->state);
	question->polls++;
	await_ranks(ckpt, which);
	yes = is_held(ckpt, which) && question->polls >= question->yes_at;
	if (!yes && question->no_at != 0) {
		question->no_at = question->polls;
	}
	pthread_mutex_unlock(&ckpt->state);
	return yes;
}

/* With state: a save was due at a question that this rank was answered no. */
static bool has_missed(const struct pawl_ckpt *ckpt)
{
	const struct session_question *question = &ckpt->questions[QUESTION_DUE];

	return is_held(ckpt, QUESTION_DUE) && question->no_at >= question->yes_at;
}

/* The save that was due comes without this rank, and fails: it has a number here as well, and when
 * the next one is due is decided anew. False: it was not missed. */
static bool skip_missed(struct pawl_ckpt *ckpt)
{
	bool missed;

	pthread_mutex_lock(&ckpt->saving); /* which may have been another thread's until now */
	pthread_mutex_lock(&ckpt->state);
	missed = has_missed(ckpt);
	pthread_mutex_unlock(&ckpt->state);
	if (missed) {
		session_skip(ckpt, "a save was due, and this rank was not told so in time");
	}
	pthread_mutex_unlock(&ckpt->saving);
	return missed;
}

bool pawl_ckpt_stopping(struct pawl_ckpt *ckpt)
{
	return poll_question(ckpt, QUESTION_STOP);
}

bool pawl_ckpt_due(struct pawl_ckpt *ckpt)
{
	return poll_question(ckpt, QUESTION_DUE) && !skip_missed(ckpt);
}

void pawl_ckpt_stop(struct pawl_ckpt *ckpt)
{
	struct session_question *question = &ckpt->questions[QUESTION_STOP];
	struct wire_out out = {0};

	if (session_dead(ckpt, NULL) || !ckpt->link) {
		return;
	}
	if (link_send(ckpt->link, &out, link_start(ckpt->link, &out, PROTO_NOTICE), NULL) != 0) {
		pthread_mutex_lock(&ckpt->state);
		question->held = true; /* nobody to agree with */
		question->yes_at = question->polls;
		pthread_mutex_unlock(&ckpt->state);
	}
	wire_out_deinit(&out);
}
