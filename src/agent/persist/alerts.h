/*
 * News of a root for people, although no call of theirs fails with it: the disk is full, the
 * history cannot be written, a damaged checkpoint was passed by. There is one way: the code that
 * meets the trouble puts it here, from the loop or from the storage thread; root_alert.c decides
 * whether it is said again, writes it to the agent's log, and tells the first rank of this host,
 * whose Python says it.
 *
 * A lasting trouble is said once when it begins, when its cause changes, rarely again while it
 * lasts, and once when it is over.
 */
#ifndef AGENT_PERSIST_ALERTS_H
#define AGENT_PERSIST_ALERTS_H

#include "pawl/err.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ALERTS_MAX 16u /* items that wait for the loop; one more drops the oldest */

enum alert_kind {
	ALERT_ONCE,    /* a single event */
	ALERT_SAVE,    /* a committed save cannot be made durable */
	ALERT_SLOW,    /* the store has not finished what it was given */
	ALERT_HISTORY, /* rows of the history cannot be written */
	ALERT_RETAIN,  /* old checkpoints cannot be deleted */
	ALERT_KINDS
};

/* One thing to say. */
struct alert {
	enum alert_kind kind;
	bool resolved;               /* the trouble is over; unused for ALERT_ONCE */
	int key;                     /* cause: errno, else the PAWL_E code. Another cause is said at
					once */
	char text[PAWL_ERR_MSG_MAX]; /* for people, without the root's path */
};

/* State of the trouble of one kind. Zero-initialise. */
struct alert_state {
	bool active;                 /* the trouble has begun and is not over */
	int key;                     /* cause when it was last met */
	uint64_t count;              /* how often it was met since it began */
	int64_t since_ns;            /* when the trouble began, monotonic ns */
	int64_t reported_ns;         /* when the trouble was last said, monotonic ns */
	char text[PAWL_ERR_MSG_MAX]; /* text of the item that met it last */
};

enum alert_action {
	ALERT_NONE,    /* nothing to say: said a short while ago */
	ALERT_BEGINS,  /* trouble is new, or has another cause */
	ALERT_REPEATS, /* trouble is said again: state->times says how often it was met */
	ALERT_ENDS,    /* trouble is over */
};

/* Decides how an item is said, and updates state; again_ns: pause before the same trouble is said
 * again. Pure. */
enum alert_action alert_decide(struct alert_state *state, const struct alert *alert, int64_t now_ns,
	int64_t again_ns);

/* Items that threads put and the loop takes. */
struct alerts {
	pthread_mutex_t lock; /* guards the fields below; nothing is called while it is held */
	struct alert items[ALERTS_MAX];
	uint32_t n; /* number of items that wait, oldest first */
};

void alerts_init(struct alerts *alerts);
void alerts_deinit(struct alerts *alerts);
/* Puts an item; any thread. err NULL: the trouble is over, and fmt says so; otherwise ": " and
 * err's text follow. */
void alerts_put(struct alerts *alerts, enum alert_kind kind, const struct pawl_err *err,
	const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/* Puts the news that a damaged checkpoint was put aside, or (err) could not be. */
void alerts_put_damaged(struct alerts *alerts, const char *tag, const char *why,
	const struct pawl_err *err);
/* Takes the oldest item; false: there is none. */
bool alerts_take(struct alerts *alerts, struct alert *alert);

/* Fills an item, as alerts_put does. */
void alert_fill(struct alert *alert, enum alert_kind kind, const struct pawl_err *err,
	const char *fmt, ...) __attribute__((format(printf, 4, 5)));

#endif
