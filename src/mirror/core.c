/* The state of a mirror: what is known, and how scans change it. See core.h; core_jobs.c decides
 * what to do. */
#include "mirror/core.h"

#include "base/err.h"
#include "base/fault.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void core_init(struct core *core, const struct core_options *options)
{
	*core = (struct core){.options = *options};
}

static void free_unit(struct core_unit *unit)
{
	if (unit != NULL) {
		free(unit->files.at);
		free(unit->whole.at);
		free(unit);
	}
}

static void free_loose(struct core_loose *loose)
{
	if (loose != NULL) {
		free(loose->path);
		free(loose);
	}
}

void core_deinit(struct core *core)
{
	for (uint32_t i = 0; i < core->units_n; i++) {
		free_unit(core->units[i]);
	}
	for (uint32_t i = 0; i < core->loose_n; i++) {
		free_loose(core->loose[i]);
	}
	free(core->units);
	free(core->loose);
	*core = (struct core){.units_n = 0};
}

static int no_memory(const char *path, struct pawl_err *err)
{
	return pawl_err_set(err, PAWL_ENOMEM, "no memory to mirror %s", path);
}

/* ---- sets of files ---- */

static bool set_files(struct core_files *files, const uint64_t *at, uint32_t n)
{
	uint64_t *copy = NULL;

	if (n > 0) {
		copy = FAULT_MEM("mirror.files", malloc((n + 1u) * sizeof(*copy)));
		if (copy == NULL) {
			return false;
		}
		memcpy(copy, at, n * sizeof(*copy));
	}
	free(files->at);
	*files = (struct core_files){copy, n};
	return true;
}

static bool same_files(const struct core_files *a, const uint64_t *at, uint32_t n)
{
	return a->n == n && (n == 0 || memcmp(a->at, at, n * sizeof(*at)) == 0);
}

/* Returns whether all of at, sorted, are in files, and files has more. */
static bool has_lost_files(const struct core_files *files, const uint64_t *at, uint32_t n)
{
	uint32_t j = 0;

	for (uint32_t i = 0; i < n; i++) {
		while (j < files->n && files->at[j] < at[i]) {
			j++;
		}
		if (j == files->n || files->at[j] != at[i]) {
			return false;
		}
		j++;
	}
	return n < files->n;
}

/* ---- finding and adding ---- */

/* Finds the place of path among n sorted items; item i's path is at(items, i). */
static uint32_t find_place(const char *(*at)(void *items, uint32_t i), void *items, uint32_t n,
	const char *path)
{
	uint32_t lo = 0;

	for (uint32_t hi = n; lo < hi;) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (strcmp(at(items, mid), path) < 0) {
			lo = mid + 1;
		} else {
			hi = mid;
		}
	}
	return lo;
}

static const char *unit_at(void *items, uint32_t i)
{
	return ((struct core_unit **)items)[i]->path;
}

static const char *loose_at(void *items, uint32_t i)
{
	return ((struct core_loose **)items)[i]->path;
}

struct core_unit *core_find_unit(const struct core *core, const char *path)
{
	uint32_t i = find_place(unit_at, core->units, core->units_n, path);

	return i < core->units_n && strcmp(core->units[i]->path, path) == 0 ? core->units[i] : NULL;
}

struct core_loose *core_find_loose(const struct core *core, const char *path)
{
	uint32_t i = find_place(loose_at, core->loose, core->loose_n, path);

	return i < core->loose_n && strcmp(core->loose[i]->path, path) == 0 ? core->loose[i] : NULL;
}

/* Makes room for one more pointer, at a place in the middle. Returns NULL without memory. */
static void **make_room(void **items, uint32_t n, uint32_t place)
{
	/* grows at powers of 2 alone */
	if ((n & (n - 1)) == 0) {
		void **more = FAULT_MEM("mirror.core",
			realloc(items, (n == 0 ? 1 : (size_t)n * 2) * sizeof(*items)));

		if (more == NULL) {
			return NULL;
		}
		items = more;
	}
	memmove(items + place + 1, items + place, (n - place) * sizeof(*items));
	return items;
}

/* Returns the unit of this path, which it adds if it is new. NULL: no memory, or too many. */
static struct core_unit *get_unit(struct core *core, const char *path)
{
	struct core_unit *unit = core_find_unit(core, path);
	uint32_t place;
	void **units;

	if (unit != NULL) {
		return unit;
	}
	unit = FAULT_MEM("mirror.core", calloc(1, sizeof(*unit)));
	place = find_place(unit_at, core->units, core->units_n, path);
	units = unit != NULL ? make_room((void **)core->units, core->units_n, place) : NULL;
	if (units == NULL) {
		free(unit);
		return NULL;
	}
	core->units = (struct core_unit **)units;
	core->units[place] = unit;
	core->units_n++;
	snprintf(unit->path, sizeof(unit->path), "%s", path);
	if (!unit_tag(path, unit->tag)) {
		unit->tag[0] = '\0';
	}
	unit->stepped = unit_step(path, &unit->step);
	return unit;
}

static struct core_loose *get_loose(struct core *core, const char *path)
{
	struct core_loose *loose = core_find_loose(core, path);
	uint32_t place;
	void **items;

	if (loose != NULL) {
		return loose;
	}
	loose = FAULT_MEM("mirror.core", calloc(1, sizeof(*loose)));
	if (loose != NULL) {
		loose->path = FAULT_MEM("mirror.core", strdup(path));
	}
	place = find_place(loose_at, core->loose, core->loose_n, path);
	items = loose != NULL && loose->path != NULL
		? make_room((void **)core->loose, core->loose_n, place)
		: NULL;
	if (items == NULL) {
		free_loose(loose);
		return NULL;
	}
	core->loose = (struct core_loose **)items;
	core->loose[place] = loose;
	core->loose_n++;
	return loose;
}

int core_add_tag(struct core *core, const char *path, uint64_t step, struct pawl_err *err)
{
	struct core_unit *unit = get_unit(core, path);

	if (unit == NULL) {
		return no_memory(path, err);
	}
	unit->in_bucket = true;
	unit->state = CORE_COMMITTED;
	unit->step = step;
	unit->stepped = true;
	return 0;
}

void core_lose_tag(struct core *core, const char *path)
{
	struct core_unit *unit = core_find_unit(core, path);

	if (unit != NULL) {
		unit->in_bucket = false;
		unit->state = CORE_OPEN;
	}
}

void core_doubt_unit(struct core *core, const char *path, int64_t now_ns)
{
	struct core_unit *unit = core_find_unit(core, path);

	if (unit != NULL && unit->state == CORE_COMMITTED) {
		unit->state = CORE_OPEN;
		unit->changed_ns = unit->dirty_ns = now_ns;
	}
}

int core_add_object(struct core *core, const char *path, struct pawl_err *err)
{
	struct core_loose *loose = get_loose(core, path);

	if (loose == NULL) {
		return no_memory(path, err);
	}
	loose->in_bucket = true;
	return 0;
}

int core_have_unit(struct core *core, const char *path, const uint64_t *files, uint32_t files_n,
	struct pawl_err *err)
{
	struct core_unit *unit = get_unit(core, path);

	if (unit == NULL || !set_files(&unit->files, files, files_n) ||
		!set_files(&unit->whole, files, files_n)) {
		return no_memory(path, err);
	}
	unit->present = unit->was_here = unit->in_bucket = unit->complete = true;
	unit->state = CORE_COMMITTED;
	return 0;
}

int core_have_loose(struct core *core, const char *path, uint64_t file, struct pawl_err *err)
{
	struct core_loose *loose = get_loose(core, path);

	if (loose == NULL) {
		return no_memory(path, err);
	}
	loose->present = loose->was_here = loose->in_bucket = true;
	loose->file = loose->shipped = file;
	return 0;
}

/* ---- a scan ---- */

/* Notes that a unit has other files than before, and not only fewer. */
static void note_change(struct core_unit *unit, int64_t now_ns)
{
	unit->shrunk = false;
	unit->pruned = false;
	unit->changed_ns = now_ns;
	unit->again_ns = 0;
	if (unit->state == CORE_COMMITTED) {
		unit->state = CORE_OPEN;
		unit->dirty_ns = now_ns;
	} else if (unit->state == CORE_OPEN) {
		unit->dirty_ns = unit->dirty_ns == 0 ? now_ns : unit->dirty_ns;
	} else {
		unit->stale = true;
	}
}

static int see_unit(struct core *core, const struct core_seen *seen,
	const struct core_inspect *inspect, int64_t now_ns, struct pawl_err *err)
{
	struct core_unit *unit = get_unit(core, seen->path);
	bool changed;

	if (unit == NULL) {
		return no_memory(seen->path, err);
	}
	changed = !same_files(&unit->files, seen->files, seen->files_n) || !unit->was_here;
	if (changed && !set_files(&unit->files, seen->files, seen->files_n)) {
		return no_memory(seen->path, err);
	}
	unit->present = unit->was_here = true;
	unit->size_bytes = seen->size_bytes;
	if (changed && same_files(&unit->whole, seen->files, seen->files_n)) {
		unit->shrunk = false;
	} else if (changed && has_lost_files(&unit->whole, seen->files, seen->files_n)) {
		unit->shrunk = true;
		unit->shrunk_ns = now_ns;
	} else if (changed) {
		note_change(unit, now_ns);
	}
	if (changed || !unit->complete || unit->kind == UNIT_NONE) {
		unit->complete = inspect->look(inspect->user, seen, &unit->kind, unit->best,
			&unit->never, unit->why);
	}
	return 0;
}

static void miss_unit(struct core_unit *unit)
{
	if (unit->present) {
		unit->present = false;
		unit->shrunk = unit->whole.n > 0;
		free(unit->files.at);
		unit->files = (struct core_files){.n = 0};
	}
}

static int see_loose(struct core *core, const struct core_seen *seen, int64_t now_ns,
	struct pawl_err *err)
{
	struct core_loose *loose = get_loose(core, seen->path);
	bool changed;

	if (loose == NULL) {
		return no_memory(seen->path, err);
	}
	changed = !loose->present || loose->file != seen->files[0];
	loose->present = loose->was_here = true;
	loose->file = seen->files[0];
	loose->size_bytes = seen->size_bytes;
	if (changed) {
		loose->skipped = false;
		loose->changed_ns = now_ns;
		loose->again_ns = loose->failures > 0 ? loose->again_ns : 0;
		loose->dirty_ns = loose->dirty_ns == 0 ? now_ns : loose->dirty_ns;
	}
	return 0;
}

/* Marks what a scan did not see. Both lists are sorted by path. */
static void miss_others(struct core *core, const struct core_seen *units, uint32_t units_n,
	const struct core_seen *loose, uint32_t loose_n, int64_t now_ns)
{
	uint32_t j = 0;

	for (uint32_t i = 0; i < core->units_n; i++) {
		while (j < units_n && strcmp(units[j].path, core->units[i]->path) < 0) {
			j++;
		}
		if (j == units_n || strcmp(units[j].path, core->units[i]->path) != 0) {
			miss_unit(core->units[i]);
		}
	}
	j = 0;
	for (uint32_t i = 0; i < core->loose_n; i++) {
		struct core_loose *file = core->loose[i];

		while (j < loose_n && strcmp(loose[j].path, file->path) < 0) {
			j++;
		}
		if (file->present && (j == loose_n || strcmp(loose[j].path, file->path) != 0)) {
			file->present = false;
			file->changed_ns = now_ns;
			file->dirty_ns = 0;
		}
	}
}

int core_scan(struct core *core, const struct core_seen *units, uint32_t units_n,
	const struct core_seen *loose, uint32_t loose_n, const struct core_inspect *inspect,
	int64_t now_ns, struct pawl_err *err)
{
	int rv = 0;

	for (uint32_t i = 0; i < units_n && rv == 0; i++) {
		if (strlen(units[i].path) >= CKPT_TAG_MAX ||
			(core->units_n >= CORE_UNITS_MAX &&
				core_find_unit(core, units[i].path) == NULL)) {
			core->overflow = true;
		} else {
			rv = see_unit(core, &units[i], inspect, now_ns, err);
		}
	}
	for (uint32_t i = 0; i < loose_n && rv == 0; i++) {
		if (core->loose_n >= CORE_LOOSE_MAX &&
			core_find_loose(core, loose[i].path) == NULL) {
			core->overflow = true;
		} else {
			rv = see_loose(core, &loose[i], now_ns, err);
		}
	}
	if (rv == 0) {
		miss_others(core, units, units_n, loose, loose_n, now_ns);
	}
	return rv;
}

void core_end(struct core *core, bool well, int64_t now_ns)
{
	core->ended = true;
	core->ended_well = well;
	core->flush_ns = now_ns;
}
