/* Inside a worker: the questions that ranks ask once a step, and that have one answer for all of
 * them. See session.h, session_due.c, and agent/root_questions.c. */
#include "session/session.h"

#include "base/clock.h"
#include "base/times.h"

#include <time.h>

bool session_has_missed(const struct pawl_ckpt *ckpt)
{
	return ckpt->questions.missed != 0 &&
		ckpt->questions.missed == session_last_number(ckpt) + 1;
}

void session_reset_rounds(struct pawl_ckpt *ckpt)
{
	struct session_question *due = &ckpt->questions.at[QUESTION_DUE];
	bool current = due->seq == session_last_number(ckpt);
	bool missed = session_has_missed(ckpt);

	ckpt->numbers.rounds = 0;
	due->seq = current ? session_last_number(ckpt) : due->seq;
	ckpt->questions.missed = missed ? session_last_number(ckpt) + 1 : 0;
}

void session_handle_hold(struct pawl_ckpt *ckpt, struct link *link, const struct frame_hold *frame)
{
	struct frame_poll_count poll_count = {.question = frame->question};
	struct session_question *question;
	struct wire_out out = {0};

	if (frame->question >= QUESTIONS_N) {
		return;
	}
	pthread_mutex_lock(&ckpt->state);
	question = &ckpt->questions.at[frame->question];
	if (frame->question != QUESTION_STOP ||
		!question->yes_pending) { /* the poll at which to stop stays */
		question->yes_at = UINT64_MAX;
	}
	question->yes_pending = true;
	question->seq = frame->seq;
	question->late = false;
	poll_count.polls = question->polls;
	pthread_mutex_unlock(&ckpt->state);
	link_send(link, &out, PROTO_POLL_COUNT, &poll_count, NULL);
	wire_out_deinit(&out);
}

/* Returns whether the answer is about to be yes, and no save was made since. Called with state. */
static bool is_yes_pending(const struct pawl_ckpt *ckpt, enum proto_question which)
{
	const struct session_question *question = &ckpt->questions.at[which];

	return question->yes_pending &&
		(which != QUESTION_DUE || question->seq == session_last_number(ckpt));
}

void session_handle_yes_at(struct pawl_ckpt *ckpt, const struct frame_yes_at *frame)
{
	enum proto_question which = (enum proto_question)frame->question;
	struct session_question *question;

	if (frame->question >= QUESTIONS_N) {
		return;
	}
	pthread_mutex_lock(&ckpt->state);
	question = &ckpt->questions.at[which];
	if (question->late && frame->polls <= question->polls && ckpt->options.world > 1) {
		if (is_yes_pending(ckpt, which)) { /* the others get yes where this one got no */
			ckpt->questions.missed = question->seq + 1;
		}
		question->yes_pending = false;
	} else if (question->yes_at == UINT64_MAX) {
		question->yes_at = frame->polls;
	}
	pthread_cond_broadcast(&ckpt->changed);
	pthread_mutex_unlock(&ckpt->state);
}

/* Returns whether the poll at which all ranks get yes is not known yet. Called with state. */
static bool must_wait(const struct pawl_ckpt *ckpt, enum proto_question which)
{
	const struct session_question *question = &ckpt->questions.at[which];

	return is_yes_pending(ckpt, which) && question->yes_at == UINT64_MAX && !question->late;
}

/* Waits until it is known at which poll all ranks get yes. If the agent or a rank hangs, this rank
 * stops by itself. It makes no save by itself: all ranks make one, or none. Called with state. */
static void await_ranks(struct pawl_ckpt *ckpt, enum proto_question which)
{
	struct session_question *question = &ckpt->questions.at[which];
	int64_t due_ns = clock_mono_ns() + times_ns(TIME_SESSION_AGREE);
	struct timespec due = {.tv_sec = due_ns / NS_PER_S, .tv_nsec = due_ns % NS_PER_S};
	int rv = 0;

	while (must_wait(ckpt, which) && rv == 0) {
		rv = pthread_cond_timedwait(&ckpt->changed, &ckpt->state, &due);
	}
	if (must_wait(ckpt, which) && which == QUESTION_STOP) {
		question->yes_at = question->polls;
	} else if (must_wait(ckpt, which)) {
		question->late = true;
	}
}

bool session_poll(struct pawl_ckpt *ckpt, enum proto_question which)
{
	struct session_question *question = &ckpt->questions.at[which];
	bool yes;

	if (session_is_forked(ckpt, NULL)) {
		return false;
	}
	pthread_mutex_lock(&ckpt->state);
	question->polls++;
	if (must_wait(ckpt, which)) {
		await_ranks(ckpt, which);
	}
	yes = is_yes_pending(ckpt, which) && question->polls >= question->yes_at;
	pthread_mutex_unlock(&ckpt->state);
	return yes;
}

bool pawl_ckpt_stopping(struct pawl_ckpt *ckpt)
{
	return session_poll(ckpt, QUESTION_STOP);
}

void pawl_ckpt_stop(struct pawl_ckpt *ckpt)
{
	struct session_question *question = &ckpt->questions.at[QUESTION_STOP];
	struct wire_out out = {0};

	if (session_is_forked(ckpt, NULL)) {
		return;
	}
	if (session_send(ckpt, &out, PROTO_NOTICE, NULL, NULL) != 0) {
		pthread_mutex_lock(&ckpt->state);
		question->yes_pending = true; /* nobody to agree with */
		question->yes_at = question->polls;
		pthread_mutex_unlock(&ckpt->state);
	}
	wire_out_deinit(&out);
}
