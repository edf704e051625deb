/* Inside a worker: notifications for the user, from the agent or from the session itself. See
 * session.h and pawl/ckpt.h. */
#include "session/session.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void session_notify(struct pawl_ckpt *ckpt, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	pthread_mutex_lock(&ckpt->state);
	if (ckpt->notifications.n < SESSION_NOTIFICATIONS_MAX) {
		vsnprintf(ckpt->notifications.texts[ckpt->notifications.n++],
			PAWL_CKPT_NOTIFICATION_MAX, fmt, args);
	}
	pthread_cond_broadcast(&ckpt->changed);
	pthread_mutex_unlock(&ckpt->state);
	va_end(args);
}

/* Takes the oldest notification. Returns false if there is none. Called with state. */
static bool take_notification(struct pawl_ckpt *ckpt, char *buf, size_t cap_bytes)
{
	if (ckpt->notifications.n == 0) {
		return false;
	}
	snprintf(buf, cap_bytes, "%s", ckpt->notifications.texts[0]);
	ckpt->notifications.n--;
	memmove(ckpt->notifications.texts[0], ckpt->notifications.texts[1],
		ckpt->notifications.n * sizeof(ckpt->notifications.texts[0]));
	return true;
}

bool pawl_ckpt_next_notification(struct pawl_ckpt *ckpt, char *buf, size_t cap_bytes)
{
	bool any;

	pthread_mutex_lock(&ckpt->state);
	any = take_notification(ckpt, buf, cap_bytes);
	pthread_mutex_unlock(&ckpt->state);
	return any;
}

bool pawl_ckpt_await_notification(struct pawl_ckpt *ckpt, char *buf, size_t cap_bytes)
{
	bool any;

	pthread_mutex_lock(&ckpt->state);
	while (!(any = take_notification(ckpt, buf, cap_bytes)) && !ckpt->notifications.ended) {
		pthread_cond_wait(&ckpt->changed, &ckpt->state);
	}
	pthread_mutex_unlock(&ckpt->state);
	return any;
}

void pawl_ckpt_end_notifications(struct pawl_ckpt *ckpt)
{
	pthread_mutex_lock(&ckpt->state);
	ckpt->notifications.ended = true;
	pthread_cond_broadcast(&ckpt->changed);
	pthread_mutex_unlock(&ckpt->state);
}
