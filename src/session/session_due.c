/* Inside a worker: asks whether a save is due (see session_questions.c). Connects to another agent
 * first, if ours is gone, and fails a save that this rank has missed. */
#include "session/session.h"

#include "base/clock.h"
#include "base/times.h"

/* Connects to another agent if ours is gone. A rank that saves only when a save is due would never
 * connect otherwise. Called with saving. */
static void reconnect_if_lost(struct pawl_ckpt *ckpt)
{
	int64_t pause_max_ns = times_ns(TIME_SESSION_AGAIN_MAX);
	int64_t now_ns = clock_mono_ns();

	if ((ckpt->link && link_alive(ckpt->link)) || ckpt->slot_request.pending ||
		ckpt->build.open) {
		ckpt->reconnect.at_ns = 0;
	} else if (ckpt->reconnect.at_ns == 0) {
		ckpt->reconnect.at_ns = now_ns + times_ns(TIME_SESSION_GONE);
		ckpt->reconnect.pause_ns = times_ns(TIME_SESSION_AGAIN);
	} else if (now_ns >= ckpt->reconnect.at_ns && session_connect(ckpt, NULL) != 0) {
		ckpt->reconnect.at_ns = clock_mono_ns() + ckpt->reconnect.pause_ns;
		ckpt->reconnect.pause_ns = 2 * ckpt->reconnect.pause_ns < pause_max_ns
			? 2 * ckpt->reconnect.pause_ns
			: pause_max_ns;
	}
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
	return session_poll(ckpt, QUESTION_DUE);
}
