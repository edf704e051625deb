/* Carries out what a mirror's core decides: pins, uploads, removals. See mirror_impl.h. */
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "mirror/fetch.h"
#include "mirror/inspect_unit.h"
#include "mirror/mirror_impl.h"
#include "mirror/pin.h"
#include "mirror/scan.h"
#include "mirror/sealed.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POINTER_BYTES_MAX 256u /* bytes of a file that may name a unit */

/* ---- pins ---- */

static struct mirror_pin *find_pin(struct mirror *mirror, const struct core_unit *unit)
{
	for (uint32_t i = 0; i < mirror->pins_n; i++) {
		if (mirror->pins[i].unit == unit) {
			return &mirror->pins[i];
		}
	}
	return NULL;
}

static void drop_pin(struct mirror *mirror, struct mirror_pin *held)
{
	pin_give(held->pin, mirror->leases);
	*held = mirror->pins[--mirror->pins_n];
}

void mirror_drop_pins(struct mirror *mirror)
{
	while (mirror->pins_n > 0) {
		drop_pin(mirror, &mirror->pins[mirror->pins_n - 1]);
	}
	free(mirror->pins);
	mirror->pins = NULL;
}

/* Gives up the pins of units that have changed. */
static void check_pins(struct mirror *mirror, int64_t now_ns)
{
	for (uint32_t i = mirror->pins_n; i > 0; i--) {
		struct mirror_pin *held = &mirror->pins[i - 1];
		bool broken = atomic_load(&held->pin->broken);

		if (!core_must_unpin(&mirror->core, held->unit, broken, now_ns)) {
			continue;
		}
		if (held->unit->state == CORE_SHIPPING) {
			atomic_store(&held->pin->canceled,
				true); /* the result of the job gives the pin up */
		} else {
			drop_pin(mirror, held);
		}
	}
}

static void log_unleased(struct mirror *mirror, const struct core_unit *unit)
{
	if (!mirror->unleased_logged) {
		mirror->unleased_logged = true;
		log_line(LOG_WARNING,
			"files of %s cannot be leased (another user's, or the file system has no "
			"leases): their times alone tell whether they change while they are "
			"shipped",
			unit->path);
	}
}

static void take_pin(struct mirror *mirror, struct core_unit *unit, int64_t now_ns)
{
	struct mirror_pin *pins = FAULT_MEM("mirror.pins",
		realloc(mirror->pins, (mirror->pins_n + 1) * sizeof(*pins)));
	struct pawl_err err = {.msg = "no memory"};
	struct pin *pin = NULL;
	int rv = PAWL_ENOMEM;

	if (pins != NULL) {
		mirror->pins = pins;
		rv = pin_take(&pin, mirror->leases, mirror->work.dir_fd, unit->path, unit->whole.at,
			unit->whole.n, &err);
	}
	if (rv == 0) {
		mirror->pins[mirror->pins_n++] = (struct mirror_pin){unit, pin};
		if (!pin->leased) {
			log_unleased(mirror, unit);
		}
	}
	core_pinned(&mirror->core, unit, rv == 0, err.msg, now_ns);
	if (rv == PAWL_ENOTSUP || (rv == PAWL_ELIMIT && mirror->pins_n == 0)) {
		core_refuse_unit(unit, err.msg);
	}
}

/* ---- jobs ---- */

/* Returns whether a loose file names a unit that is yet to be committed: then it has to wait. */
static bool names_coming_unit(struct mirror *mirror, const struct core_loose *loose)
{
	size_t len_bytes;
	char *text;
	bool names = false;

	if (loose->size_bytes > POINTER_BYTES_MAX) {
		return false;
	}
	text = inspect_read(mirror->work.dir_fd, loose->path, POINTER_BYTES_MAX, &len_bytes);
	for (uint32_t i = 0; text != NULL && i < mirror->core.units_n && !names; i++) {
		const struct core_unit *unit = mirror->core.units[i];

		names = unit_same_group(unit->path, loose->path) &&
			core_is_coming(&mirror->core, unit) &&
			unit_is_named_by(loose->path, text, unit->path);
	}
	free(text);
	return names;
}

static void begin(struct mirror *mirror, const struct core_job *job, int64_t now_ns)
{
	struct uplink_job up = {.forced = job->forced};
	struct mirror_pin *held;

	if (job->kind == CORE_SHIP_LOOSE && names_coming_unit(mirror, job->loose)) {
		core_loose_done(&mirror->core, job->loose, false, true, 0, now_ns);
		return;
	}
	mirror->job = *job;
	if (job->unit != NULL) {
		held = find_pin(mirror, job->unit);
		up.kind = job->kind == CORE_SHIP ? UPLINK_SHIP : UPLINK_REMOVE;
		up.step = job->unit->step;
		up.pin = held != NULL ? held->pin : NULL;
		snprintf(up.tag, sizeof(up.tag), "%s", job->unit->tag);
	} else {
		up.kind = job->kind == CORE_SHIP_LOOSE ? UPLINK_SHIP_LOOSE : UPLINK_REMOVE_LOOSE;
		snprintf(up.path, sizeof(up.path), "%s", job->loose->path);
	}
	uplink_submit(mirror->uplink, &up);
}

void mirror_do_jobs(struct mirror *mirror, int64_t *due_ns)
{
	struct core *core = &mirror->core;
	struct core_job job;

	do {
		int64_t now_ns = clock_mono_ns();

		check_pins(mirror, now_ns);
		job = core_next(core, now_ns, due_ns);
		if (job.kind == CORE_RECORD) {
			sealed_put(&mirror->work, job.unit->tag, job.unit->whole.at,
				job.unit->whole.n);
		} else if (job.kind == CORE_PIN) {
			take_pin(mirror, job.unit, now_ns);
		} else if (job.kind != CORE_NOTHING) {
			begin(mirror, &job, now_ns);
		}
	} while (job.kind != CORE_NOTHING);
	if (core->full && !mirror->full_logged) {
		log_line(LOG_WARNING,
			"checkpoints that wait for the bucket have reached --max-local: the next "
			"one "
			"is safe from removal by the program only after one of them is shipped");
	}
	mirror->full_logged = core->full;
}

/* ---- results ---- */

static void note_failure(struct mirror *mirror, const char *what, const struct pawl_err *err)
{
	char text[sizeof(mirror->last_error)];

	snprintf(text, sizeof(text), "%.100s: %.150s", what, err->msg);
	if (strcmp(text, mirror->last_error) != 0) {
		log_line(LOG_WARNING, "%s; it is tried again", text);
	}
	memcpy(mirror->last_error, text, sizeof(text));
}

static void note_lost(struct mirror *mirror, const struct pawl_err *err)
{
	mirror->core.stopped = true;
	log_line(LOG_ERROR,
		"another process has taken %s: nothing is shipped any more, the program goes on "
		"(%s)",
		mirror->options->bucket, err->msg);
	snprintf(mirror->last_error, sizeof(mirror->last_error), "%.250s", err->msg);
}

static void end_unit(struct mirror *mirror, struct core_unit *unit,
	const struct uplink_result *result, int64_t now_ns)
{
	bool canceled = result->rv == PAWL_ECANCELED;
	struct mirror_pin *held = find_pin(mirror, unit);

	if (mirror->job.kind == CORE_REMOVE) {
		core_removed(&mirror->core, unit, result->rv == 0, result->err.msg, now_ns);
		if (result->rv == 0) {
			log_line(LOG_INFO, "removed %s from the bucket", unit->path);
		}
		return;
	}
	core_shipped(&mirror->core, unit, result->rv == 0, canceled, result->err.msg, now_ns);
	if (held != NULL && unit->state != CORE_PINNED) {
		drop_pin(mirror, held);
	}
	if (result->rv == 0) {
		sealed_remove(&mirror->work, unit->tag);
		log_line(LOG_INFO, "committed %s (step %llu)", unit->path,
			(unsigned long long)unit->step);
	} else if (canceled) {
		log_line(LOG_INFO,
			"%s changed while it was shipped: it waits until it is whole again",
			unit->path);
	}
}

static void end_loose(struct mirror *mirror, struct core_loose *loose,
	const struct uplink_result *result, int64_t now_ns)
{
	bool gone = result->rv == PAWL_ENOENT;
	bool later;

	if (result->rv == PAWL_ENOTSUP) {
		log_line(LOG_WARNING, "%s is not mirrored: %s", loose->path, result->err.msg);
		core_skip_loose(&mirror->core, loose);
		return;
	}
	later = gone || result->rv == PAWL_ECANCELED;
	core_loose_done(&mirror->core, loose, result->rv == 0, later, result->file, now_ns);
	if (later) {
		mirror_look_soon(mirror);
	}
}

static void take_uplink(struct mirror *mirror)
{
	struct uplink_result result;
	struct core_job job = mirror->job;
	int64_t now_ns = clock_mono_ns();

	if (!uplink_take(mirror->uplink, &result)) {
		return;
	}
	if (result.lost && !mirror->core.stopped) {
		note_lost(mirror, &result.err);
	} else if (result.rv == 0) {
		mirror->last_error[0] = '\0';
	} else if (result.rv != PAWL_ECANCELED && result.rv != PAWL_ENOENT &&
		result.rv != PAWL_ENOTSUP) {
		note_failure(mirror, job.unit != NULL ? job.unit->path : job.loose->path,
			&result.err);
	}
	if (job.unit != NULL) {
		end_unit(mirror, job.unit, &result, now_ns);
	} else {
		end_loose(mirror, job.loose, &result, now_ns);
	}
	mirror->job.kind = CORE_NOTHING;
}

/* ---- what was fetched behind the program ---- */

static void place(struct mirror *mirror, const struct behind_result *result)
{
	uint64_t *numbers = NULL;
	uint32_t n = 0;
	struct pawl_err err;
	int rv = fetch_place(&mirror->work, result->tag, result->path, &err);

	rv = rv == 0 ? scan_numbers(mirror->work.dir_fd, result->path, &numbers, &n, &err) : rv;
	rv = rv == 0 ? core_have_unit(&mirror->core, result->path, numbers, n, &err) : rv;
	free(numbers);
	if (rv == 0) {
		log_line(LOG_INFO, "fetched %s", result->path);
	} else {
		fetch_drop(&mirror->work, result->tag);
		log_line(LOG_WARNING, "fetch %s: %s", result->path, err.msg);
	}
}

/* Puts a unit in place, unless the program has made one of that name meanwhile. */
static void place_new(struct mirror *mirror, const struct behind_result *result)
{
	const struct core_unit *unit = core_find_unit(&mirror->core, result->path);

	if (unit != NULL && unit->was_here) {
		fetch_drop(&mirror->work, result->tag);
	} else {
		place(mirror, result);
	}
}

/* Puts a whole unit in place of a damaged one, unless the program has changed it meanwhile. */
static void replace(struct mirror *mirror, const struct behind_result *result)
{
	const struct core_unit *unit = core_find_unit(&mirror->core, result->path);
	char where[PATH_MAX];

	if (unit == NULL || unit->state != CORE_COMMITTED || !unit->present || unit->shrunk ||
		workdir_put_half(&mirror->work, result->path, where, NULL) != 0) {
		fetch_drop(&mirror->work, result->tag);
		return;
	}
	log_line(LOG_WARNING, "%s differed from what was committed: moved to %s", result->path,
		where);
	place(mirror, result);
}

static void take_behind(struct mirror *mirror)
{
	struct behind_result result;

	while (mirror->behind != NULL && behind_take(mirror->behind, &result)) {
		switch (result.what) {
		case BEHIND_FETCHED:
			place_new(mirror, &result);
			break;
		case BEHIND_REPLACED:
			replace(mirror, &result);
			break;
		case BEHIND_NEWER:
			core_doubt_unit(&mirror->core, result.path, clock_mono_ns());
			break;
		case BEHIND_FAILED:
			log_line(LOG_WARNING, "fetch %s: %s", result.path, result.why);
			break;
		case BEHIND_DONE:
			behind_stop(mirror->behind);
			mirror->behind = NULL;
			break;
		}
	}
}

void mirror_take_results(struct mirror *mirror)
{
	take_uplink(mirror);
	take_behind(mirror);
}
