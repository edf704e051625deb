/* What a mirror does next, and what became of it: see core.h. */
#include "base/assert.h"
#include "mirror/core.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Lowers *due_ns to a later time, and returns whether that time has come. */
static bool has_come(int64_t at_ns, int64_t now_ns, int64_t *due_ns)
{
	if (at_ns <= now_ns) {
		return true;
	}
	*due_ns = at_ns < *due_ns ? at_ns : *due_ns;
	return false;
}

static int64_t retry_at(const struct core *core, uint32_t failures, int64_t now_ns)
{
	int64_t wait_ns = core->options.retry_ns;

	for (uint32_t i = 1; i < failures && wait_ns < core->options.retry_max_ns; i++) {
		wait_ns *= 2;
	}
	return now_ns +
		(wait_ns < core->options.retry_max_ns ? wait_ns : core->options.retry_max_ns);
}

/* ---- sealing ---- */

/* Returns whether a unit that has lost files may be whole all the same: it was never committed, and
 * perhaps the program has only removed a lock or the like. */
static bool may_seal_shrunk(const struct core *core, const struct core_unit *unit)
{
	return !unit->in_bucket && !core->ended;
}

/* Returns whether a unit waits for nothing but time, and that its files can be opened. */
static bool may_seal(const struct core *core, const struct core_unit *unit)
{
	return unit->present && unit->state == CORE_OPEN && unit->complete &&
		(!unit->shrunk || may_seal_shrunk(core, unit)) && !unit->never && !unit->pruned &&
		unit->tag[0] != '\0' &&
		!(unit->kind == UNIT_QUIET && core->ended && !core->ended_well);
}

static int64_t seal_at(const struct core *core, const struct core_unit *unit)
{
	int64_t wait_ns =
		unit->kind == UNIT_QUIET ? core->options.quiet_ns : core->options.settle_ns;
	int64_t at_ns = core->ended ? unit->changed_ns : unit->changed_ns + wait_ns;

	if (unit->shrunk && at_ns < unit->shrunk_ns + core->options.loose_max_ns) {
		at_ns = unit->shrunk_ns + core->options.loose_max_ns;
	}
	return at_ns > unit->again_ns ? at_ns : unit->again_ns;
}

/* Returns whether a is to be sealed before b. */
static bool is_before(const struct core_unit *a, const struct core_unit *b)
{
	if (a->changed_ns != b->changed_ns) {
		return a->changed_ns < b->changed_ns;
	}
	return a->step < b->step || (a->step == b->step && strcmp(a->path, b->path) < 0);
}

static struct core_unit *find_to_seal(struct core *core, int64_t now_ns, int64_t *due_ns)
{
	struct core_unit *first = NULL;

	for (uint32_t i = 0; i < core->units_n; i++) {
		struct core_unit *unit = core->units[i];

		if (may_seal(core, unit) && has_come(seal_at(core, unit), now_ns, due_ns) &&
			(first == NULL || is_before(unit, first))) {
			first = unit;
		}
	}
	return first;
}

/* Returns whether a unit may be pinned, so far as room is concerned. One may always be. */
static bool has_room(struct core *core, const struct core_unit *unit)
{
	uint64_t most = core->options.local_max_bytes;

	core->full = most > 0 && core->pinned_n > 0 &&
		(core->pinned_bytes > most || unit->size_bytes > most - core->pinned_bytes);
	return !core->full;
}

/* Notes the files that are about to be sealed. */
static bool keep_whole(struct core_unit *unit)
{
	uint64_t *at = malloc((unit->files.n + 1u) * sizeof(*at));

	if (at == NULL) {
		return false;
	}
	memcpy(at, unit->files.at, unit->files.n * sizeof(*at));
	unit->recorded = unit->recorded && unit->whole.n == unit->files.n &&
		memcmp(unit->whole.at, at, unit->files.n * sizeof(*at)) == 0;
	free(unit->whole.at);
	unit->whole = (struct core_files){at, unit->files.n};
	unit->shrunk = false;
	return true;
}

static void unpin(struct core *core, struct core_unit *unit)
{
	ASSERT(core->pinned_n > 0 && core->pinned_bytes >= unit->pinned_bytes);
	core->pinned_n--;
	core->pinned_bytes -= unit->pinned_bytes;
	unit->pinned_bytes = 0;
	unit->loose_pin = false;
	unit->stale = false;
	unit->order = 0;
	core->full = false;
}

/* ---- removing ---- */

/* Returns whether a is newer than b: the newest of a group never has a newer one. */
static bool is_newer(const struct core_unit *a, const struct core_unit *b)
{
	return a->step > b->step || (a->step == b->step && strcmp(a->path, b->path) > 0);
}

/* Returns whether the bucket shall not keep a unit any longer. */
static bool may_remove(const struct core *core, const struct core_unit *unit)
{
	const struct core_unit *newest = unit;
	uint32_t newer = 0;

	if (core->gone || !unit->in_bucket || unit->state == CORE_PINNED ||
		unit->state == CORE_SHIPPING) {
		return false;
	}
	for (uint32_t i = 0; i < core->units_n; i++) {
		const struct core_unit *other = core->units[i];

		if (other->in_bucket && unit_same_group(other->path, unit->path) &&
			is_newer(other, unit)) {
			newer++;
			newest = is_newer(other, newest) ? other : newest;
		}
	}
	if (core->options.keep_remote > 0) {
		return newer >= core->options.keep_remote &&
			strcmp(newest->best, unit_base(unit->path)) != 0;
	}
	return newer > 0 && unit->was_here && !unit->present;
}

/* ---- loose files ---- */

static bool is_dirty(const struct core_loose *loose)
{
	return loose->present && loose->file != loose->shipped && !loose->skipped;
}

/* Returns from when on a loose file is shipped even if it changes meanwhile. */
static int64_t forced_at(const struct core *core, const struct core_loose *loose)
{
	if (core->ended || (core->flush_ns != 0 && loose->dirty_ns <= core->flush_ns)) {
		return 0;
	}
	return loose->dirty_ns + core->options.loose_max_ns;
}

static struct core_job next_loose(struct core *core, int64_t now_ns, int64_t *due_ns)
{
	for (uint32_t i = 0; i < core->loose_n; i++) {
		struct core_loose *loose = core->loose[i];
		int64_t quiet_ns = loose->changed_ns + core->options.quiet_ns;
		bool gone = !core->gone && !loose->present && loose->was_here && loose->in_bucket &&
			!(core->ended && !core->ended_well);

		if (loose->shipping || !(is_dirty(loose) || gone) ||
			!has_come(loose->again_ns, now_ns, due_ns)) {
			continue;
		}
		if (gone && (core->ended || has_come(quiet_ns, now_ns, due_ns))) {
			return (struct core_job){CORE_REMOVE_LOOSE, .loose = loose};
		}
		if (!gone &&
			(has_come(forced_at(core, loose), now_ns, due_ns) ||
				has_come(quiet_ns, now_ns, due_ns))) {
			return (struct core_job){CORE_SHIP_LOOSE, .loose = loose,
				.forced = forced_at(core, loose) <= now_ns};
		}
	}
	return (struct core_job){CORE_NOTHING};
}

/* ---- the next job ---- */

static struct core_job next_pin(struct core *core, int64_t now_ns, int64_t *due_ns)
{
	struct core_unit *unit = find_to_seal(core, now_ns, due_ns);

	if (unit != NULL && !keep_whole(unit)) {
		unit->again_ns = now_ns + core->options.retry_ns;
		unit = NULL;
	}
	if (unit != NULL && !unit->recorded) {
		unit->recorded = true;
		return (struct core_job){CORE_RECORD, .unit = unit};
	}
	if (unit == NULL || !has_room(core, unit)) {
		return (struct core_job){CORE_NOTHING};
	}
	unit->loose_pin = core->options.local_max_bytes > 0 &&
		unit->size_bytes > core->options.local_max_bytes;
	return (struct core_job){CORE_PIN, .unit = unit};
}

static struct core_job next_ship(struct core *core, int64_t now_ns, int64_t *due_ns)
{
	struct core_unit *first = NULL;

	for (uint32_t i = 0; i < core->units_n; i++) {
		struct core_unit *unit = core->units[i];

		if (unit->state == CORE_PINNED && (first == NULL || unit->order < first->order)) {
			first = unit;
		}
	}
	if (first == NULL || !has_come(first->again_ns, now_ns, due_ns)) {
		return (struct core_job){CORE_NOTHING};
	}
	if (!first->stepped) {
		first->step = 0;
		for (uint32_t i = 0; i < core->units_n; i++) {
			uint64_t step = core->units[i]->step;

			first->step = step >= first->step ? step + 1 : first->step;
		}
		first->stepped = true;
	}
	return (struct core_job){CORE_SHIP, .unit = first};
}

static struct core_job next_removal(struct core *core, int64_t now_ns, int64_t *due_ns)
{
	for (uint32_t i = 0; i < core->units_n; i++) {
		struct core_unit *unit = core->units[i];

		if (may_remove(core, unit) && has_come(unit->again_ns, now_ns, due_ns)) {
			return (struct core_job){CORE_REMOVE, .unit = unit};
		}
	}
	return (struct core_job){CORE_NOTHING};
}

struct core_job core_next(struct core *core, int64_t now_ns, int64_t *due_ns)
{
	struct core_job job;

	*due_ns = INT64_MAX;
	if (core->stopped) {
		return (struct core_job){CORE_NOTHING};
	}
	job = next_pin(core, now_ns, due_ns);
	if (job.kind != CORE_NOTHING || core->busy) {
		return job;
	}
	if (core->last_was_unit) { /* loose files take turns with units */
		job = next_loose(core, now_ns, due_ns);
	}
	if (job.kind == CORE_NOTHING) {
		job = next_removal(core, now_ns, due_ns);
	}
	if (job.kind == CORE_NOTHING) {
		job = next_ship(core, now_ns, due_ns);
	}
	if (job.kind == CORE_NOTHING) {
		job = next_loose(core, now_ns, due_ns);
	}
	core->busy = job.kind != CORE_NOTHING;
	core->last_was_unit = job.kind == CORE_SHIP;
	if (job.kind == CORE_SHIP) {
		job.unit->state = CORE_SHIPPING;
		job.unit->sent_bytes = 0;
	} else if (job.loose != NULL) {
		job.loose->shipping = true;
	}
	return job;
}

/* ---- results ---- */

void core_pinned(struct core *core, struct core_unit *unit, bool pinned, const char *why,
	int64_t now_ns)
{
	ASSERT(unit->state == CORE_OPEN);
	if (!pinned) {
		unit->loose_pin = false;
		unit->again_ns = now_ns + core->options.retry_ns;
		snprintf(unit->why, sizeof(unit->why), "%s", why);
		return;
	}
	unit->state = CORE_PINNED;
	unit->order = ++core->orders;
	unit->pinned_bytes = unit->size_bytes;
	unit->why[0] = '\0';
	core->pinned_n++;
	core->pinned_bytes += unit->pinned_bytes;
}

bool core_must_unpin(struct core *core, struct core_unit *unit, bool broken, int64_t now_ns)
{
	if (!broken && !unit->stale && !core->stopped && !(unit->loose_pin && unit->shrunk)) {
		return false;
	}
	if (broken) {
		unit->changed_ns = now_ns;
	}
	if (unit->state == CORE_PINNED) {
		unpin(core, unit);
		unit->state = CORE_OPEN;
	}
	return true;
}

void core_shipped(struct core *core, struct core_unit *unit, bool committed, bool canceled,
	const char *why, int64_t now_ns)
{
	bool stale = unit->stale;

	ASSERT(unit->state == CORE_SHIPPING);
	core->busy = false;
	snprintf(unit->why, sizeof(unit->why), "%s", committed ? "" : why);
	unit->failures = committed || canceled ? 0 : unit->failures + 1;
	unit->again_ns = committed || canceled ? 0 : retry_at(core, unit->failures, now_ns);
	unit->in_bucket = unit->in_bucket || committed;
	if (!committed && !canceled && !stale && !core->stopped) {
		unit->state = CORE_PINNED;
		return;
	}
	unpin(core, unit);
	unit->state = committed && !stale ? CORE_COMMITTED : CORE_OPEN;
	unit->dirty_ns = unit->state == CORE_COMMITTED ? 0 : unit->dirty_ns;
}

void core_refuse_unit(struct core_unit *unit, const char *why)
{
	ASSERT(unit->state == CORE_OPEN);
	unit->never = true;
	snprintf(unit->why, sizeof(unit->why), "%s", why);
}

void core_skip_loose(struct core *core, struct core_loose *loose)
{
	core->busy = false;
	loose->shipping = false;
	loose->skipped = true;
}

void core_removed(struct core *core, struct core_unit *unit, bool removed, const char *why,
	int64_t now_ns)
{
	core->busy = false;
	unit->failures = removed ? 0 : unit->failures + 1;
	unit->again_ns = removed ? 0 : retry_at(core, unit->failures, now_ns);
	if (removed) {
		unit->in_bucket = false;
		unit->pruned = unit->present;
	} else {
		snprintf(unit->why, sizeof(unit->why), "%s", why);
	}
}

void core_loose_done(struct core *core, struct core_loose *loose, bool done, bool later,
	uint64_t file, int64_t now_ns)
{
	core->busy = false;
	loose->shipping = false;
	loose->failures = done || later ? 0 : loose->failures + 1;
	loose->again_ns = done ? 0 : retry_at(core, loose->failures, now_ns);
	if (!done) {
		return;
	}
	loose->shipped = file;
	loose->in_bucket = file != 0;
	loose->dirty_ns = is_dirty(loose) ? now_ns : 0;
}

/* ---- what is left ---- */

static bool is_unit_dirty(const struct core_unit *unit)
{
	return unit->state == CORE_PINNED || unit->state == CORE_SHIPPING ||
		(unit->state == CORE_OPEN && unit->present && !unit->pruned && !unit->shrunk);
}

void core_count_left(const struct core *core, struct core_left *left)
{
	*left = (struct core_left){.oldest_ns = INT64_MAX};
	for (uint32_t i = 0; i < core->units_n; i++) {
		const struct core_unit *unit = core->units[i];

		if (is_unit_dirty(unit)) {
			left->units++;
			left->dirty_bytes += unit->size_bytes;
			left->oldest_ns =
				unit->dirty_ns < left->oldest_ns ? unit->dirty_ns : left->oldest_ns;
			left->hopeless += unit->state == CORE_OPEN && !may_seal(core, unit);
		}
	}
	for (uint32_t i = 0; i < core->loose_n; i++) {
		const struct core_loose *loose = core->loose[i];

		if (is_dirty(loose) || (loose->present && loose->skipped)) {
			left->loose++;
			left->dirty_bytes += loose->size_bytes;
			left->oldest_ns = loose->dirty_ns < left->oldest_ns ? loose->dirty_ns
									    : left->oldest_ns;
		}
	}
}

bool core_is_flushed(const struct core *core)
{
	for (uint32_t i = 0; i < core->units_n; i++) {
		const struct core_unit *unit = core->units[i];
		bool waits = unit->state == CORE_OPEN && !may_seal(core, unit);

		if (is_unit_dirty(unit) && !(waits && (core->ended || unit->never))) {
			return false;
		}
		if (core->ended && may_remove(core, unit)) {
			return false;
		}
	}
	for (uint32_t i = 0; i < core->loose_n; i++) {
		const struct core_loose *loose = core->loose[i];

		if (loose->shipping ||
			(is_dirty(loose) && (core->ended || loose->dirty_ns <= core->flush_ns))) {
			return false;
		}
	}
	return true;
}

bool core_is_coming(const struct core *core, const struct core_unit *unit)
{
	return is_unit_dirty(unit) &&
		(unit->state != CORE_OPEN || may_seal(core, unit) || !core->ended);
}
