/*
 * Alerts of a root: failures that users must know of, although none of their calls fails with them.
 * The disk is full, the history cannot be written, a damaged checkpoint was skipped. The code that
 * finds the failure puts an alert, from the loop or from the storage thread. root_alerts.c decides
 * whether to report it, writes it to the agent's log, and sends it to the first rank of this host,
 * whose Python prints it.
 *
 * A lasting failure is reported when it begins, when its cause changes, rarely again while it is
 * active, and when it is resolved.
 */
#ifndef AGENT_PERSIST_ALERTS_H
#define AGENT_PERSIST_ALERTS_H

#include "pawl/err.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ALERTS_MAX 16u /* alerts that wait for the loop; one more drops the oldest */

enum alert_kind {
	ALERT_ONCE,    /* a single event */
	ALERT_SAVE,    /* a committed save cannot be made durable */
	ALERT_SLOW,    /* the store has not finished what it was given */
	ALERT_HISTORY, /* rows of the history cannot be written */
	ALERT_RETAIN,  /* old checkpoints cannot be deleted */
	ALERT_REPLICA, /* committed saves are not replicated to other hosts */
	ALERT_KINDS
};

struct alert {
	enum alert_kind kind;
	bool resolved;               /* the failure is over; unused for ALERT_ONCE */
	int key;                     /* cause: errno, else the PAWL_E code. Another cause is
					reported at once */
	char text[PAWL_ERR_MSG_MAX]; /* for users, without the root's path */
};

/* State of the alert of one kind. Zero-initialise. */
struct alert_state {
	bool active;                 /* the failure has begun and is not resolved */
	int key;                     /* cause in the last alert */
	uint64_t count;              /* alerts since the failure began */
	int64_t since_ns;            /* when the failure began, monotonic ns */
	int64_t reported_ns;         /* when the failure was last reported, monotonic ns */
	char text[PAWL_ERR_MSG_MAX]; /* text of the last alert */
};

enum alert_action {
	ALERT_NONE,    /* report nothing: reported a short while ago */
	ALERT_BEGINS,  /* report: the failure is new, or has another cause */
	ALERT_REPEATS, /* report again, with state->count */
	ALERT_ENDS,    /* report: the failure is resolved */
};

/* Decides what to report of an alert, and updates state. again_ns: pause before the same failure is
 * reported again. Pure. */
enum alert_action alert_decide(struct alert_state *state, const struct alert *alert, int64_t now_ns,
	int64_t again_ns);

/* Alerts that threads put and the loop takes. */
struct alerts {
	pthread_mutex_t lock; /* guards the fields below; nothing is called while it is held */
	struct alert items[ALERTS_MAX];
	uint32_t n; /* number of items, oldest first */
};

void alerts_init(struct alerts *alerts);
void alerts_deinit(struct alerts *alerts);
/* Puts an alert; any thread. err NULL: the failure is over, and fmt says so; otherwise ": " and
 * err's text follow. */
void alerts_put(struct alerts *alerts, enum alert_kind kind, const struct pawl_err *err,
	const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/* Puts the alert that a damaged checkpoint was put aside or, with err, could not be. */
void alerts_put_damaged(struct alerts *alerts, const char *tag, const char *why,
	const struct pawl_err *err);
/* Takes the oldest alert; false: there is none. */
bool alerts_take(struct alerts *alerts, struct alert *alert);

/* Fills an alert, as alerts_put does. */
void alert_fill(struct alert *alert, enum alert_kind kind, const struct pawl_err *err,
	const char *fmt, ...) __attribute__((format(printf, 4, 5)));

#endif
