/* Alerts of a root, for users: see alerts.h. */
#include "agent/persist/alerts.h"

#include "base/assert.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum alert_action alert_decide(struct alert_state *state, const struct alert *alert, int64_t now_ns,
	int64_t again_ns)
{
	bool was_active = state->active;
	bool changed = alert->key != state->key;

	ASSERT(!was_active || state->count > 0);
	if (alert->kind == ALERT_ONCE) {
		return ALERT_BEGINS;
	}
	if (alert->resolved) {
		state->active = false;
		return was_active ? ALERT_ENDS : ALERT_NONE;
	}
	state->active = true;
	state->key = alert->key;
	state->count = was_active ? state->count + 1 : 1;
	state->since_ns = was_active ? state->since_ns : now_ns;
	memcpy(state->text, alert->text, sizeof(state->text));
	if (was_active && !changed && now_ns - state->reported_ns < again_ns) {
		return ALERT_NONE;
	}
	state->reported_ns = now_ns;
	return was_active && !changed ? ALERT_REPEATS : ALERT_BEGINS;
}

static void fill(struct alert *alert, enum alert_kind kind, const struct pawl_err *err,
	const char *fmt, va_list args)
{
	size_t len;

	*alert = (struct alert){.kind = kind, .resolved = err == NULL};
	vsnprintf(alert->text, sizeof(alert->text), fmt, args);
	if (err != NULL) {
		len = strlen(alert->text);
		alert->key = err->sys != 0 ? err->sys : err->code;
		snprintf(alert->text + len, sizeof(alert->text) - len, "%s%s", len > 0 ? ": " : "",
			err->msg);
	}
}

void alert_fill(struct alert *alert, enum alert_kind kind, const struct pawl_err *err,
	const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	fill(alert, kind, err, fmt, args);
	va_end(args);
}

void alerts_init(struct alerts *alerts)
{
	*alerts = (struct alerts){.n = 0};
	pthread_mutex_init(&alerts->lock, NULL);
}

void alerts_deinit(struct alerts *alerts)
{
	pthread_mutex_destroy(&alerts->lock);
}

void alerts_put(struct alerts *alerts, enum alert_kind kind, const struct pawl_err *err,
	const char *fmt, ...)
{
	struct alert alert;
	va_list args;

	va_start(args, fmt);
	fill(&alert, kind, err, fmt, args);
	va_end(args);
	pthread_mutex_lock(&alerts->lock);
	ASSERT(alerts->n <= ALERTS_MAX);
	if (alerts->n == ALERTS_MAX) {
		alerts->n--;
		memmove(alerts->items, alerts->items + 1, alerts->n * sizeof(alerts->items[0]));
	}
	alerts->items[alerts->n++] = alert;
	pthread_mutex_unlock(&alerts->lock);
}

void alerts_put_damaged(struct alerts *alerts, const char *tag, const char *why,
	const struct pawl_err *err)
{
	if (err != NULL) {
		alerts_put(alerts, ALERT_ONCE, err,
			"%s is damaged (%.200s) and cannot be put aside", tag, why);
	} else {
		alerts_put(alerts, ALERT_ONCE, NULL, "%s is damaged and put aside: %.256s", tag,
			why);
	}
}

bool alerts_take(struct alerts *alerts, struct alert *alert)
{
	bool any;

	pthread_mutex_lock(&alerts->lock);
	any = alerts->n > 0;
	if (any) {
		*alert = alerts->items[0];
		alerts->n--;
		memmove(alerts->items, alerts->items + 1, alerts->n * sizeof(alerts->items[0]));
	}
	pthread_mutex_unlock(&alerts->lock);
	return any;
}
