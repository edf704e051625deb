/*
 * Inside a worker: asking the agent for a checkpoint, all ranks together (pawl_ckpt_restore) or
 * this one alone (pawl_ckpt_find). session_restore.c reads what is offered.
 */
#include "session/session.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/times.h"

#include <stdio.h>
#include <time.h>

/* A question to the agent: all ranks ask for a step, one of them for a tag. */
struct question {
	enum proto_type type; /* PROTO_RESTORE, PROTO_FIND */
	bool has_step;
	uint64_t step;
	const char *tag;
	int timeout_ms;
};

/* Asks the agent once; connects if need be. Called with saving. PAWL_EBUSY with *adding set: the
 * tag is being added to. */
static int ask_once(struct pawl_restore *restore, struct pawl_ckpt *ckpt,
	const struct question *question, bool *adding, struct pawl_err *err)
{
	const struct frame_restore restores = {.has_step = question->has_step,
		.step = question->step};
	struct frame_from_nothing nothing;
	struct frame_tag find;
	bool finds = question->type == PROTO_FIND;
	int rv = 0;

	if (!ckpt->link || !link_alive(ckpt->link)) {
		rv = session_connect(ckpt, err);
	}
	if (rv == 0) {
		snprintf(find.tag, sizeof(find.tag), "%s", finds ? question->tag : "");
		rv = link_call(ckpt->link, &ckpt->frame, question->type,
			finds ? (const void *)&find : &restores, question->timeout_ms, &ckpt->reply,
			err);
		*adding = rv == PAWL_EBUSY && finds;
	}
	if (rv == 0 && ckpt->reply.type == PROTO_FROM_NOTHING) {
		rv = link_reply_get(&ckpt->reply, PROTO_FROM_NOTHING, &nothing, sizeof(nothing),
			err);
		if (rv == 0 && !finds) {
			session_reset_numbers(ckpt, nothing.rounds);
		}
	}
	rv = rv == 0 ? session_restore_accept(restore, ckpt, !finds, err) : rv;
	link_reply_close(&ckpt->reply);
	return rv;
}

static int ask(struct pawl_restore *restore, struct pawl_ckpt *ckpt,
	const struct question *question, bool *adding, struct pawl_err *err)
{
	int rv;

	*adding = false;
	pthread_mutex_lock(&ckpt->saving);
	snap_wait(ckpt->snap); /* what was saved so far counts */
	rv = ask_once(restore, ckpt, question, adding, err);
	if (rv == PAWL_EPEER) { /* The agent ended meanwhile: the next one answers. */
		rv = ask_once(restore, ckpt, question, adding, err);
	}
	pthread_mutex_unlock(&ckpt->saving);
	return rv;
}

/* Asks; and asks again, for question->timeout_ms, while the tag is being added to. */
static int open_restore(struct pawl_ckpt *ckpt, const struct question *question,
	struct pawl_restore **out, struct pawl_err *err)
{
	int64_t due_ns = question->timeout_ms < 0
		? INT64_MAX
		: clock_mono_ns() + question->timeout_ms * NS_PER_MS;
	bool adding;
	int rv;

	if (session_is_forked(ckpt, err)) {
		return PAWL_EPEER;
	}
	rv = session_restore_new(out, ckpt, err);
	if (rv != 0) {
		return rv;
	}
	for (;;) {
		rv = ask(*out, ckpt, question, &adding, err);
		if (!adding || clock_mono_ns() >= due_ns) {
			break;
		}
		times_sleep(TIME_SESSION_FIND);
	}
	if (rv != 0) {
		session_restore_refuse(*out, err ? err->msg : pawl_err_name(rv));
		pawl_restore_close(*out);
		*out = NULL;
	}
	return rv;
}

int pawl_ckpt_restore(struct pawl_ckpt *ckpt, bool has_step, uint64_t step, int timeout_ms,
	struct pawl_restore **out, struct pawl_err *err)
{
	const struct question question = {.type = PROTO_RESTORE,
		.has_step = has_step,
		.step = step,
		.timeout_ms = timeout_ms};

	return open_restore(ckpt, &question, out, err);
}

int pawl_ckpt_find(struct pawl_ckpt *ckpt, const char *tag, int timeout_ms,
	struct pawl_restore **out, struct pawl_err *err)
{
	const struct question question = {.type = PROTO_FIND,
		.tag = tag ? tag : "",
		.timeout_ms = timeout_ms};

	return open_restore(ckpt, &question, out, err);
}
