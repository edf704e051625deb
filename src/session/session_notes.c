/* Inside a worker: messages for people, from the agent or from the session itself. See session.h
 * and pawl/ckpt.h. */
#include "session/session.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void session_note(struct pawl_ckpt *ckpt, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	pthread_mutex_lock(&ckpt->state);
	if (ckpt->notes_n < SESSION_NOTES_MAX) {
		vsnprintf(ckpt->notes[ckpt->notes_n++], PAWL_CKPT_NOTE_MAX, fmt, args);
	}
	pthread_cond_broadcast(&ckpt->changed);
	pthread_mutex_unlock(&ckpt->state);
	va_end(args);
}

/* Takes the oldest note. Returns false if there is none. Called with state. */
static bool take_note(struct pawl_ckpt *ckpt, char *buf, size_t cap_bytes)
{
	if (ckpt->notes_n == 0) {
		return false;
	}
	snprintf(buf, cap_bytes, "%s", ckpt->notes[0]);
	ckpt->notes_n--;
	memmove(ckpt->notes[0], ckpt->notes[1], ckpt->notes_n * sizeof(ckpt->notes[0]));
	return true;
}

bool pawl_ckpt_note(struct pawl_ckpt *ckpt, char *buf, size_t cap_bytes)
{
	bool any;

	pthread_mutex_lock(&ckpt->state);
	any = take_note(ckpt, buf, cap_bytes);
	pthread_mutex_unlock(&ckpt->state);
	return any;
}

bool pawl_ckpt_await_note(struct pawl_ckpt *ckpt, char *buf, size_t cap_bytes)
{
	bool any;

	pthread_mutex_lock(&ckpt->state);
	while (!(any = take_note(ckpt, buf, cap_bytes)) && !ckpt->hushed) {
		pthread_cond_wait(&ckpt->changed, &ckpt->state);
	}
	pthread_mutex_unlock(&ckpt->state);
	return any;
}

void pawl_ckpt_hush(struct pawl_ckpt *ckpt)
{
	pthread_mutex_lock(&ckpt->state);
	ckpt->hushed = true;
	pthread_cond_broadcast(&ckpt->changed);
	pthread_mutex_unlock(&ckpt->state);
}
