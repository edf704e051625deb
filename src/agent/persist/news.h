/*
 * News of a root for people, although no call of theirs fails with it: the disk is full, the
 * history cannot be written, a damaged checkpoint was passed by. There is one way: the code that
 * meets the trouble puts it here, from the loop or from the storage thread; root_news.c decides
 * whether it is said again, writes it to the agent's log, and tells the first rank of this host,
 * whose Python says it.
 *
 * A lasting trouble is said once when it begins, when its cause changes, rarely again while it
 * lasts, and once when it is over.
 */
#ifndef AGENT_PERSIST_NEWS_H
#define AGENT_PERSIST_NEWS_H

#include "pawl/err.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NEWS_WAITING_MAX 16u /* items that wait for the loop; one more drops the oldest */

enum news_kind {
	NEWS_ONCE,    /* a single event */
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
	int key;                     /* cause: errno, else the PAWL_E code. Another cause is said at
					once */
	char text[PAWL_ERR_MSG_MAX]; /* for people, without the root's path */
};

/* State of the trouble of one kind. Zero-initialise. */
struct news_state {
	bool lasts;                  /* the trouble has begun and is not over */
	int key;                     /* cause when it was last met */
	uint64_t times;              /* how often it was met since it began */
	int64_t since_ns;            /* when the trouble began, monotonic ns */
	int64_t told_ns;             /* when the trouble was last said, monotonic ns */
	char text[PAWL_ERR_MSG_MAX]; /* text of the item that met it last */
};

enum news_word {
	NEWS_NOTHING, /* nothing to say: said a short while ago */
	NEWS_BEGINS,  /* trouble is new, or has another cause */
	NEWS_LASTS,   /* trouble is said again: state->times says how often it was met */
	NEWS_ENDS,    /* trouble is over */
};

/* Decides how an item is said, and updates state; again_ns: pause before the same trouble is said
 * again. Pure. */
enum news_word news_decide(struct news_state *state, const struct news_item *item, int64_t now_ns,
	int64_t again_ns);

/* Items that threads put and the loop takes. */
struct news {
	pthread_mutex_t lock; /* guards the fields below; nothing is called while it is held */
	struct news_item items[NEWS_WAITING_MAX];
	uint32_t n; /* number of items that wait, oldest first */
};

void news_init(struct news *news);
void news_deinit(struct news *news);
/* Puts an item; any thread. err NULL: the trouble is over, and fmt says so; otherwise ": " and
 * err's text follow. */
void news_put(struct news *news, enum news_kind kind, const struct pawl_err *err, const char *fmt,
	...) __attribute__((format(printf, 4, 5)));
/* Puts the news that a damaged checkpoint was put aside, or (err) could not be. */
void news_put_aside(struct news *news, const char *tag, const char *why,
	const struct pawl_err *err);
/* Takes the oldest item; false: there is none. */
bool news_take(struct news *news, struct news_item *item);

/* Fills an item, as news_put does. */
void news_fill(struct news_item *item, enum news_kind kind, const struct pawl_err *err,
	const char *fmt, ...) __attribute__((format(printf, 4, 5)));

#endif
