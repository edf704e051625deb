/*
 * What people are to hear of a root although no call of theirs fails with it: the disk is full, the
 * history cannot be written, a damaged checkpoint was passed by. There is one way: whoever meets it
 * puts it here, from the loop or from the storage thread; root_news.c decides whether it is said
 * again, writes it to the agent's log, and tells the first rank of this host, whose Python says it.
 *
 * What lasts is said once when it begins, when its cause changes, rarely again while it lasts, and
 * once when it is over.
 */
#ifndef AGENT_NEWS_H
#define AGENT_NEWS_H

#include "pawl/err.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NEWS_WAITING_MAX 16u /* items that wait for the loop; of more the oldest is lost */

enum news_kind {
	NEWS_ONCE,    /* something happened, and that was all */
	NEWS_SAVE,    /* a committed save cannot be made durable */
	NEWS_SLOW,    /* the store has not finished what it was given */
	NEWS_HISTORY, /* rows of the history cannot be written */
	NEWS_RETAIN,  /* old checkpoints cannot be deleted */
	NEWS_KINDS
};

/* One thing to say. */
struct news_item {
	enum news_kind kind;
	bool good;                   /* the trouble is over; unused for NEWS_ONCE */
	int key;                     /* the cause: errno, else the PAWL_E code. Another one is said
					at once */
	char text[PAWL_ERR_MSG_MAX]; /* for people, without the root's path */
};

/* What is known of one kind. Zero-initialise. */
struct news_state {
	bool lasts;                  /* it began, and is not over */
	int key;                     /* its cause, the last time */
	uint64_t times;              /* it was met since it began */
	int64_t since_ns;            /* when it began, monotonic */
	int64_t told_ns;             /* when it was last said, monotonic */
	char text[PAWL_ERR_MSG_MAX]; /* of the last time */
};

enum news_word {
	NEWS_NOTHING, /* it was said, not long ago */
	NEWS_BEGINS,  /* it is new, or has another cause */
	NEWS_LASTS,   /* it is to be said again: state->times says how often it was met */
	NEWS_ENDS,    /* it is over */
};

/* What is to be said of an item, by what is known; again_ns: between two times. Pure. */
enum news_word news_decide(struct news_state *state, const struct news_item *item, int64_t now_ns,
	int64_t again_ns);

/* Items on their way from a thread to the loop. */
struct news {
	pthread_mutex_t lock; /* guards all below; nothing is called while it is held */
	struct news_item items[NEWS_WAITING_MAX];
	uint32_t n; /* items that wait, oldest first */
};

void news_init(struct news *news);
void news_deinit(struct news *news);
/* Any thread. err NULL: it is good, and fmt says what to say then; else ": " and its text
 * follow. */
void news_put(struct news *news, enum news_kind kind, const struct pawl_err *err, const char *fmt,
	...) __attribute__((format(printf, 4, 5)));
/* A damaged checkpoint was put aside; err: or could not be. */
void news_put_aside(struct news *news, const char *tag, const char *why,
	const struct pawl_err *err);
/* The oldest one; false: there is none. */
bool news_take(struct news *news, struct news_item *item);

/* Fills an item, as news_put does. */
void news_fill(struct news_item *item, enum news_kind kind, const struct pawl_err *err,
	const char *fmt, ...) __attribute__((format(printf, 4, 5)));

#endif
