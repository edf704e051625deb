/* Queues an engine's events until the loop's next turn: see pending_events.h. */
#include "engine/pending_events.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct pending_item {
	struct core_event event; /* pointers in it lead to the fields below */
	struct core_offer offer;
	char node[CORE_NAME_MAX];
	char pool[CORE_NAME_MAX];
	struct pending_item *next;
	struct core_run runs[];
};

static struct pending_item *take_first(struct pending_events *pending)
{
	struct pending_item *item = pending->first;

	if (item) {
		pending->first = item->next;
		pending->last = pending->first ? pending->last : NULL;
	}
	return item;
}

static void on_turn(struct loop_timer *timer)
{
	struct pending_events *pending = timer->user;
	struct pending_item *item;

	while ((item = take_first(pending)) != NULL) {
		pending->post(pending->user, &item->event);
		free(item);
	}
}

void pending_events_init(struct pending_events *pending, struct loop *loop,
	void (*post)(void *user, const struct core_event *event), void *user)
{
	*pending = (struct pending_events){.loop = loop, .post = post, .user = user};
	pending->turn = (struct loop_timer){.fired = on_turn, .user = pending};
}

void pending_events_deinit(struct pending_events *pending)
{
	struct pending_item *item;

	if (pending->loop) {
		loop_timer_cancel(pending->loop, &pending->turn);
	}
	while ((item = take_first(pending)) != NULL) {
		free(item);
	}
}

void pending_events_add(struct pending_events *pending, const struct core_event *event)
{
	size_t runs_n = event->kind == CORE_LISTED ? event->runs_n : 0;
	struct pending_item *item = calloc(1, sizeof(*item) + runs_n * sizeof(*item->runs));

	if (!item) {
		log_line(LOG_ERROR, "no memory for an event of the engine");
		return;
	}
	item->event = *event;
	if (event->offer) {
		item->offer = *event->offer;
		item->event.offer = &item->offer;
	}
	if (event->node) {
		snprintf(item->node, sizeof(item->node), "%s", event->node);
		item->event.node = item->node;
	}
	if (event->pool) {
		snprintf(item->pool, sizeof(item->pool), "%s", event->pool);
		item->event.pool = item->pool;
	}
	if (runs_n > 0) {
		memcpy(item->runs, event->runs, runs_n * sizeof(*item->runs));
	}
	item->event.runs = item->runs;
	*(pending->last ? &pending->last->next : &pending->first) = item;
	pending->last = item;
	ASSERT(pending->first && !item->next);
	loop_timer_start(pending->loop, &pending->turn, clock_mono_ns());
}
