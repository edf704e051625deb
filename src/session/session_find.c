/*
 * Inside a worker: requests a checkpoint from the agent, for all ranks together (pawl_ckpt_restore)
 * or for this one alone (pawl_ckpt_find). session_restore.c reads what the agent offers.
 */
#include "session/session.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/times.h"

#include <stdio.h>
#include <time.h>

/* A request to the agent: of all ranks for a step, or of one rank for a tag. */
struct restore_request {
	enum proto_type type; /* PROTO_RESTORE, PROTO_FIND */
	bool has_step;
	uint64_t step;
	const char *tag;
	int timeout_ms;
};

/* Sends the request once; connects first, unless connected. Called with saving. PAWL_EBUSY with
 * *adding set: a save adds to the tag. */
static int request_once(struct pawl_restore *restore, struct pawl_ckpt *ckpt,
	const struct restore_request *wanted, bool *adding, struct pawl_err *err)
{
	const struct frame_restore restore_step = {.has_step = wanted->has_step,
		.step = wanted->step};
	struct frame_from_nothing nothing;
	struct frame_tag find;
	bool finds = wanted->type == PROTO_FIND;
	int rv = session_ensure_connected(ckpt, err);

	if (rv == 0) {
		snprintf(find.tag, sizeof(find.tag), "%s", finds ? wanted->tag : "");
		rv = link_call(ckpt->link, &ckpt->frame, wanted->type,
			finds ? (const void *)&find : &restore_step, wanted->timeout_ms,
			&ckpt->reply, err);
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

static int request(struct pawl_restore *restore, struct pawl_ckpt *ckpt,
	const struct restore_request *wanted, bool *adding, struct pawl_err *err)
{
	int rv;

	*adding = false;
	pthread_mutex_lock(&ckpt->saving);
	snap_wait(ckpt->snap); /* includes the save whose copy goes on */
	rv = request_once(restore, ckpt, wanted, adding, err);
	if (rv == PAWL_EPEER) { /* the agent ended meanwhile: the next one answers */
		rv = request_once(restore, ckpt, wanted, adding, err);
	}
	pthread_mutex_unlock(&ckpt->saving);
	return rv;
}

/* Sends the request. While a save adds to the tag, repeats it for at most wanted->timeout_ms. */
static int open_restore(struct pawl_ckpt *ckpt, const struct restore_request *wanted,
	struct pawl_restore **out, struct pawl_err *err)
{
	int64_t due_ns = wanted->timeout_ms < 0 ? INT64_MAX
						: clock_mono_ns() + wanted->timeout_ms * NS_PER_MS;
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
		rv = request(*out, ckpt, wanted, &adding, err);
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
	const struct restore_request wanted = {.type = PROTO_RESTORE,
		.has_step = has_step,
		.step = step,
		.timeout_ms = timeout_ms};

	return open_restore(ckpt, &wanted, out, err);
}

int pawl_ckpt_find(struct pawl_ckpt *ckpt, const char *tag, int timeout_ms,
	struct pawl_restore **out, struct pawl_err *err)
{
	const struct restore_request wanted = {.type = PROTO_FIND,
		.tag = tag ? tag : "",
		.timeout_ms = timeout_ms};

	return open_restore(ckpt, &wanted, out, err);
}
