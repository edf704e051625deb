/* Inside a worker: the questions that ranks ask once a step and that are answered alike on all of
 * them. See session.h and root_ask.c. */
#include "session/session.h"

#include "base/clock.h"
#include "base/times.h"

#include <time.h>

uint64_t session_last_number(const struct pawl_ckpt *ckpt)
{
	return (uint64_t)ckpt->rounds << 32 | (ckpt->last_id - ckpt->seq_base);
}

/* Whether the next save is the one that was due without this rank. Called with state. */
static bool has_missed(const struct pawl_ckpt *ckpt)
{
	return ckpt->missed != 0 && ckpt->missed == session_last_number(ckpt) + 1;
}

void session_reset_rounds(struct pawl_ckpt *ckpt)
{
	struct session_question *due = &ckpt->questions[QUESTION_DUE];
	bool current = due->seq == session_last_number(ckpt);
	bool missed = has_missed(ckpt);

	ckpt->rounds = 0;
	due->seq = current ? session_last_number(ckpt) : due->seq;
	ckpt->missed = missed ? session_last_number(ckpt) + 1 : 0;
}

void session_handle_hold(struct pawl_ckpt *ckpt, const struct frame_hold *frame)
{
	struct frame_poll_count poll_count = {.question = frame->question};
	struct session_question *question;
	struct wire_out out = {0};

	if (frame->question >= QUESTIONS_N) {
		return;
	}
	pthread_mutex_lock(&ckpt->state);
	question = &ckpt->questions[frame->question];
	if (frame->question != QUESTION_STOP ||
		!question->yes_pending) { /* where to stop is not taken back */
		question->yes_at = UINT64_MAX;
	}
	question->yes_pending = true;
	question->seq = frame->seq;
	question->late = false;
	poll_count.polls = question->polls;
	pthread_mutex_unlock(&ckpt->state);
	link_send(ckpt->link, &out, PROTO_POLL_COUNT, &poll_count, NULL);
	wire_out_deinit(&out);
}

/* Whether the question is held, and no save has been asked for since. Called with state. */
static bool is_yes_pending(const struct pawl_ckpt *ckpt, enum proto_question which)
{
	const struct session_question *question = &ckpt->questions[which];

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
	question = &ckpt->questions[which];
	if (question->late && frame->polls <= question->polls && ckpt->options.world > 1) {
		if (is_yes_pending(ckpt,
			    which)) { /* the others are told yes where this one was told no */
			ckpt->missed = question->seq + 1;
		}
		question->yes_pending = false;
	} else if (question->yes_at == UINT64_MAX) {
		question->yes_at = frame->polls;
	}
	pthread_cond_broadcast(&ckpt->changed);
	pthread_mutex_unlock(&ckpt->state);
}

/* Whether it is not known yet where all ranks are told yes. Called with state. */
static bool must_wait(const struct pawl_ckpt *ckpt, enum proto_question which)
{
	const struct session_question *question = &ckpt->questions[which];

	return is_yes_pending(ckpt, which) && question->yes_at == UINT64_MAX && !question->late;
}

/* Waits, with state, until it is known where all ranks are told yes. If the agent or a rank stands
 * still, this rank stops by itself; but a save it makes with all others or not at all. */
static void await_ranks(struct pawl_ckpt *ckpt, enum proto_question which)
{
	struct session_question *question = &ckpt->questions[which];
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

static bool poll_question(struct pawl_ckpt *ckpt, enum proto_question which)
{
	struct session_question *question = &ckpt->questions[which];
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

void session_skip_missed(struct pawl_ckpt *ckpt)
{
	bool missed;

	pthread_mutex_lock(&ckpt->state);
	missed = has_missed(ckpt);
	pthread_mutex_unlock(&ckpt->state);
	if (missed) {
		session_skip(ckpt, "a save was due, and this rank was not told so in time");
	}
}

/* Looks for another agent if ours is gone: a rank that saves only when a save is due would not come
 * to one otherwise. Called with saving. */
static void reconnect_if_lost(struct pawl_ckpt *ckpt)
{
	int64_t pause_max_ns = times_ns(TIME_SESSION_AGAIN_MAX);
	int64_t now_ns = clock_mono_ns();

	if ((ckpt->link && link_alive(ckpt->link)) || ckpt->slot_request.pending ||
		ckpt->build.open) {
		ckpt->reconnect_ns = 0;
	} else if (ckpt->reconnect_ns == 0) {
		ckpt->reconnect_ns = now_ns + times_ns(TIME_SESSION_GONE);
		ckpt->reconnect_pause_ns = times_ns(TIME_SESSION_AGAIN);
	} else if (now_ns >= ckpt->reconnect_ns && session_connect(ckpt, NULL) != 0) {
		ckpt->reconnect_ns = clock_mono_ns() + ckpt->reconnect_pause_ns;
		ckpt->reconnect_pause_ns = 2 * ckpt->reconnect_pause_ns < pause_max_ns
			? 2 * ckpt->reconnect_pause_ns
			: pause_max_ns;
	}
}

bool pawl_ckpt_stopping(struct pawl_ckpt *ckpt)
{
	return poll_question(ckpt, QUESTION_STOP);
}

bool pawl_ckpt_due(struct pawl_ckpt *ckpt)
{
	if (session_is_forked(ckpt, NULL)) {
		return false;
	}
	if (pthread_mutex_trylock(&ckpt->saving) == 0) { /* otherwise another thread saves */
		reconnect_if_lost(ckpt);
		session_skip_missed(ckpt);
		pthread_mutex_unlock(&ckpt->saving);
	}
	return poll_question(ckpt, QUESTION_DUE);
}

void pawl_ckpt_stop(struct pawl_ckpt *ckpt)
{
	struct session_question *question = &ckpt->questions[QUESTION_STOP];
	struct wire_out out = {0};

	if (session_is_forked(ckpt, NULL)) {
		return;
	}
	if (!ckpt->link || link_send(ckpt->link, &out, PROTO_NOTICE, NULL, NULL) != 0) {
		pthread_mutex_lock(&ckpt->state);
		question->yes_pending = true; /* nobody to agree with */
		question->yes_at = question->polls;
		pthread_mutex_unlock(&ckpt->state);
	}
	wire_out_deinit(&out);
}
