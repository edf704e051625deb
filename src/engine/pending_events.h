/*
 * Events of an engine that wait for the next turn of the loop. An engine may notice within a call
 * what it must report, and reports it after the call has returned (sched/core/engine.h). Events
 * keep their order. For the thread of the loop.
 *
 * The engine slurm has a queue of its own (struct slurm_event), for two differences. It lists its
 * runs when it posts CORE_LISTED, so that the list has the changes since the event was queued. And
 * it notes which pilots it has posted, so it must know whether there was memory for an event.
 */
#ifndef ENGINE_PENDING_EVENTS_H
#define ENGINE_PENDING_EVENTS_H

#include "io/loop.h"
#include "sched/core/core.h"

struct pending_item;

struct pending_events {
	struct loop *loop;
	void (*post)(void *user, const struct core_event *event); /* gets the events */
	void *user;                                               /* the caller's, for post */
	struct loop_timer turn;
	struct pending_item *first; /* owned; the oldest; NULL: none */
	struct pending_item *last;
};

void pending_events_init(struct pending_events *pending, struct loop *loop,
	void (*post)(void *user, const struct core_event *event), void *user);
/* Drops the events that still wait. */
void pending_events_deinit(struct pending_events *pending);
/* Adds a copy of an event, with its offer, names and runs. Without memory the event is lost, and
 * the log says so: the core asks for a list again and again. */
void pending_events_add(struct pending_events *pending, const struct core_event *event);

#endif
