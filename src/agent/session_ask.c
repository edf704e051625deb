/* Inside a worker: what ranks ask once a step and are told alike. See session.h and root_ask.c. */
#include "agent/session.h"

#include "base/clock.h"

#include <time.h>

/* With state: which save was the last one. */
static uint64_t last_number(const struct pawl_ckpt *ckpt)
{
	return session_number(ckpt, ckpt->last_id);
}

void session_hear_hold(struct pawl_ckpt *ckpt, struct wire_in *in)
{
	struct session_question *question;
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
	question = &ckpt->questions[which];
	if (which != QUESTION_STOP || !question->held || question->yes_at > question->polls) {
		question->yes_at = UINT64_MAX;
	} /* else it was told to stop, and that is not taken back */
	question->held = true;
	question->seq = seq;
	question->late = false;
	wire_put_u64(&out, question->polls);
	pthread_mutex_unlock(&ckpt->state);
	link_send(ckpt->link, &out, start, NULL);
	wire_out_deinit(&out);
}

void session_hear_yes_at(struct pawl_ckpt *ckpt, struct wire_in *in)
{
	struct session_question *question;
	uint8_t which = wire_get_u8(in);
	uint64_t polls = wire_get_u64(in);

	if (in->failed || which >= QUESTIONS_N) {
		return;
	}
	pthread_mutex_lock(&ckpt->state);
	question = &ckpt->questions[which];
	if (question->late && polls <= question->polls && ckpt->options.world > 1) {
		question->held = false; /* the others are told yes where this rank was told no */
		ckpt->missed = question->seq + 1;
	} else if (question->yes_at > question->polls) { /* else it was told yes already */
		question->yes_at = polls;
	}
	pthread_cond_broadcast(&ckpt->changed);
	pthread_mutex_unlock(&ckpt->state);
}

/* With state: the question is held, and not over by a save that has been asked for since. */
static bool is_held(const struct pawl_ckpt *ckpt, enum proto_question which)
{
	const struct session_question *question = &ckpt->questions[which];

	return question->held && (which != QUESTION_DUE || question->seq == last_number(ckpt));
}

/* With state: it is not known yet where all ranks are told yes. */
static bool must_wait(const struct pawl_ckpt *ckpt, enum proto_question which)
{
	const struct session_question *question = &ckpt->questions[which];

	return is_held(ckpt, which) && question->yes_at == UINT64_MAX && !question->late;
}

/* With state: waits until it is. Where the agent or a rank stands still, it stops by itself; a save
 * it makes with all or not at all. */
static void await_ranks(struct pawl_ckpt *ckpt, enum proto_question which)
{
	struct session_question *question = &ckpt->questions[which];
	int64_t due_ns = clock_mono_ns() + SESSION_STOP_MS * NS_PER_MS;
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

	if (session_dead(ckpt, NULL)) {
		return false;
	}
	pthread_mutex_lock(&ckpt->state);
	question->polls++;
	if (must_wait(ckpt, which)) {
		await_ranks(ckpt, which);
	}
	yes = is_held(ckpt, which) && question->polls >= question->yes_at;
	pthread_mutex_unlock(&ckpt->state);
	return yes;
}

static bool has_missed(struct pawl_ckpt *ckpt)
{
	bool missed;

	pthread_mutex_lock(&ckpt->state);
	missed = ckpt->missed != 0 && ckpt->missed == last_number(ckpt) + 1;
	pthread_mutex_unlock(&ckpt->state);
	return missed;
}

/* The save that was due comes without this rank, and so fails: it has its number here as well, and
 * when the next one is due is decided anew. */
static void skip_missed(struct pawl_ckpt *ckpt)
{
	if (!has_missed(ckpt)) {
		return;
	}
	pthread_mutex_lock(&ckpt->saving); /* which may have been another thread's until now */
	if (has_missed(ckpt)) {
		session_skip(ckpt, "a save was due, and this rank was not told so in time");
	}
	pthread_mutex_unlock(&ckpt->saving);
}

/* Who saves only when it is due would not come to another agent else. */
static void reach_again(struct pawl_ckpt *ckpt)
{
	if (pthread_mutex_trylock(&ckpt->saving) != 0) {
		return; /* another thread saves, and reaches it */
	}
	if (!(ckpt->link && link_alive(ckpt->link)) && !ckpt->asked.open && !ckpt->build.open &&
		clock_mono_ns() >= ckpt->reach_ns) {
		session_connect(ckpt, NULL);
		ckpt->reach_ns = clock_mono_ns() + SESSION_AGAIN_NS;
	}
	pthread_mutex_unlock(&ckpt->saving);
}

bool pawl_ckpt_stopping(struct pawl_ckpt *ckpt)
{
	return poll_question(ckpt, QUESTION_STOP);
}

bool pawl_ckpt_due(struct pawl_ckpt *ckpt)
{
	if (session_dead(ckpt, NULL)) {
		return false;
	}
	reach_again(ckpt);
	skip_missed(ckpt);
	return poll_question(ckpt, QUESTION_DUE);
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
