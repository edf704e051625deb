/* Handles events: the core decides, the result is stored, and then carried out: see daemon.h. An
 * engine's events wait for their turn, in the order in which they came. */
#include "daemon/daemon_impl.h"

#include "base/err.h"
#include "base/fault.h"
#include "base/log.h"

/* ---- one event ---- */

void daemon_set_wake(struct daemon *d)
{
	int64_t wake_ns = core_wake_ns(d->core);

	if (wake_ns > 0) {
		loop_timer_start(d->loop, &d->wake, wake_ns - d->base_ns + d->mono_ns);
	} else {
		loop_timer_cancel(d->loop, &d->wake);
	}
}

static void give_up(struct daemon *d, const struct pawl_err *err)
{
	d->failed = *err;
	loop_stop(d->loop);
}

int daemon_handle_event(struct daemon *d, struct core_event *event, struct database_spec *spec,
	uint64_t *job, struct pawl_err *err)
{
	struct database_clock clock;
	const struct core_update *updates;
	struct metrics_step step;
	uint64_t id = 0;
	uint32_t n;
	int rv;

	if (d->failed.code != 0) {
		return pawl_err_set(err, d->failed.code, "the scheduler ends: %s", d->failed.msg);
	}
	event->now_ns = daemon_now_ns(d);
	metrics_begin(&step, d->core, event);
	rv = core_step(d->core, event, &id, err);
	if (rv != 0) {
		return rv;
	}
	metrics_end(&d->metrics, &step, d->core, event);
	clock = daemon_read_clocks(d, event->now_ns);
	if (spec) {
		spec->job = id;
	}
	daemon_record_history(d, &clock);
	rv = sched_database_save(d->database, d->core, &clock, spec, err);
	if (rv != 0) {
		give_up(d, err);
		return rv;
	}
	FAULT_CRASH("daemon.stored");
	daemon_write_history(d);
	updates = core_updates(d->core, &n);
	for (uint32_t i = 0; i < n; i++) {
		sched_engine_do(d->engine, d->engine_self, d->core, d->options->core.pools,
			&updates[i]);
	}
	daemon_set_wake(d);
	if (d->http) {
		http_notify(d->http);
	}
	if (job) {
		*job = id;
	}
	return 0;
}

/* ---- events of the engine ---- */

void daemon_post(void *user, const struct core_event *event)
{
	struct daemon *d = user;

	pending_events_add(&d->pending, event);
}

void daemon_handle_posted(void *user, const struct core_event *posted)
{
	struct daemon *d = user;
	struct core_event event = *posted;
	struct pawl_err err;
	bool known;
	int rv = 0;

	if (d->failed.code != 0) {
		return; /* the daemon ends */
	}
	if (core_event_is_new(d->core, &event)) { /* others were stored long ago */
		rv = daemon_handle_event(d, &event, NULL, NULL, &err);
	}
	/* A node that is gone may be reported again. */
	known = rv == PAWL_ENOENT && event.kind == CORE_NODE_GONE;
	if (rv != 0 && !known && d->failed.code == 0) {
		log_line(LOG_WARNING, "%s", err.msg);
	}
	if (event.kind == CORE_ENDED && d->failed.code == 0 && d->engine->forget) {
		d->engine->forget(d->engine_self, event.job, event.generation);
	}
}
