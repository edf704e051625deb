/*
 * Inside a worker: asking the agent for a checkpoint, all ranks together (pawl_ckpt_restore) or
 * this one alone (pawl_ckpt_find). session_restore.c reads what is offered.
 */
#include "agent/session.h"

#include "base/clock.h"
#include "base/err.h"

#include <time.h>

#define FIND_PAUSE_NS 10000000 /* before asking again for a tag that is being added to */

int pawl_ckpt_restore(struct pawl_ckpt *ckpt, bool has_step, uint64_t step, int timeout_ms,
	struct pawl_restore **out, struct pawl_err *err)
{
	struct pawl_restore *restore;
	struct wire_in in;
	size_t start;
	int rv;

	if (session_dead(ckpt, err)) {
		return PAWL_EPEER;
	}
	rv = session_restore_new(&restore, ckpt, err);
	if (rv != 0) {
		return rv;
	}
	pthread_mutex_lock(&ckpt->saving);
	if (!ckpt->link || !link_alive(ckpt->link)) {
		rv = session_connect(ckpt, err);
	}
	if (rv == 0) {
		start = link_start(ckpt->link, &ckpt->frame, PROTO_RESTORE);
		wire_put_u8(&ckpt->frame, has_step);
		wire_put_u64(&ckpt->frame, step);
		rv = link_call(ckpt->link, &ckpt->frame, start, timeout_ms, &ckpt->reply, &in, err);
	}
	rv = rv == 0 ? session_restore_take(restore, ckpt, &in, err) : rv;
	link_reply_close(&ckpt->reply);
	pthread_mutex_unlock(&ckpt->saving);
	if (rv != 0) {
		pawl_restore_close(restore);
		return rv;
	}
	*out = restore;
	return 0;
}

/* One question; PAWL_EBUSY: the tag is being added to. */
static int find_once(struct pawl_restore *restore, struct pawl_ckpt *ckpt, const char *tag,
	int timeout_ms, struct pawl_err *err)
{
	struct wire_in in;
	size_t start;
	int rv = 0;

	pthread_mutex_lock(&ckpt->saving);
	if (!ckpt->link || !link_alive(ckpt->link)) {
		rv = session_connect(ckpt, err);
	}
	if (rv == 0) {
		start = link_start(ckpt->link, &ckpt->frame, PROTO_FIND);
		wire_put_str(&ckpt->frame, tag ? tag : "");
		rv = link_call(ckpt->link, &ckpt->frame, start, timeout_ms, &ckpt->reply, &in, err);
	}
	rv = rv == 0 ? session_restore_take(restore, ckpt, &in, err) : rv;
	link_reply_close(&ckpt->reply);
	pthread_mutex_unlock(&ckpt->saving);
	return rv;
}

int pawl_ckpt_find(struct pawl_ckpt *ckpt, const char *tag, int timeout_ms,
	struct pawl_restore **out, struct pawl_err *err)
{
	const struct timespec pause = {.tv_nsec = FIND_PAUSE_NS};
	int64_t due_ns = timeout_ms < 0 ? INT64_MAX : clock_mono_ns() + timeout_ms * NS_PER_MS;
	struct pawl_restore *restore;
	int rv;

	if (session_dead(ckpt, err)) {
		return PAWL_EPEER;
	}
	rv = session_restore_new(&restore, ckpt, err);
	if (rv != 0) {
		return rv;
	}
	for (;;) {
		rv = find_once(restore, ckpt, tag, timeout_ms, err);
		if (rv != PAWL_EBUSY || clock_mono_ns() >= due_ns) {
			break;
		}
		nanosleep(&pause, NULL);
	}
	if (rv != 0) {
		pawl_restore_close(restore);
		return rv;
	}
	*out = restore;
	return 0;
}
