/* What a mirror does before the program starts: see start.h. */
#include "mirror/start.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/log.h"
#include "ckpt/root.h"
#include "ckpt/tags.h"
#include "mirror/fetch.h"
#include "mirror/inspect_unit.h"
#include "mirror/loose.h"
#include "mirror/scan.h"
#include "mirror/sealed.h"
#include "mirror/walk.h"
#include "mirror/workdir.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Between the times of two units: programs that remove old checkpoints order them by time, and some
 * mistrust times that are close together. */
#define MTIME_STEP_NS (2 * NS_PER_S)
#define POINTER_MAX   4096u /* bytes of a file such as "latest" */

void start_deinit(struct start *start)
{
	free(start->items);
	start->items = NULL;
	start->items_n = 0;
}

/* ---- what there is ---- */

static struct start_item *find_item(const struct start *start, const char *path)
{
	for (uint32_t i = 0; i < start->items_n; i++) {
		if (strcmp(start->items[i].path, path) == 0) {
			return &start->items[i];
		}
	}
	return NULL;
}

/* Adds the tags of the bucket to the items, for which there is room. */
static int add_tags(struct start *start, const struct tag_info *tags, size_t n,
	struct pawl_err *err)
{
	int rv = 0;

	for (size_t i = 0; i < n && rv == 0; i++) {
		struct start_item *item = &start->items[start->items_n];

		*item = (struct start_item){.step = tags[i].step, .in_bucket = true};
		snprintf(item->tag, sizeof(item->tag), "%s", tags[i].tag);
		if (tags[i].state != TAG_COMPLETE) {
			log_line(LOG_WARNING, "%s in the bucket is damaged: %s", tags[i].tag,
				tags[i].why);
		} else if (unit_path(tags[i].tag, item->path)) {
			start->items_n++;
			rv = core_add_tag(start->core, item->path, item->step, err);
		}
	}
	return rv;
}

/* Adds the units of the directory. */
static void add_local(struct start *start, const struct core_seen *units, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		struct start_item *item = find_item(start, units[i].path);

		if (item == NULL) {
			item = &start->items[start->items_n];
			*item = (struct start_item){.step = 0};
			if (!unit_tag(units[i].path, item->tag)) {
				continue;
			}
			snprintf(item->path, sizeof(item->path), "%.127s", units[i].path);
			unit_step(item->path, &item->step);
			start->items_n++;
		}
		item->local = true;
	}
}

static int compare_items(const void *a, const void *b)
{
	const struct start_item *x = a;
	const struct start_item *y = b;

	if (x->step != y->step) {
		return x->step < y->step ? -1 : 1;
	}
	return strcmp(x->path, y->path);
}

static int list_items(struct start *start, struct pawl_err *err)
{
	const struct core_seen *units;
	struct tag_info *tags = NULL;
	uint32_t units_n;
	size_t n = 0;
	int rv = tags_list(start->root, NULL, &tags, &n, err);

	rv = rv == 0 ? scan_all(start->scan, err) : rv;
	units = scan_units(start->scan, &units_n);
	if (rv == 0) {
		start->items =
			FAULT_MEM("mirror.start", calloc(n + units_n + 1, sizeof(*start->items)));
		rv = start->items == NULL
			? pawl_err_set(err, PAWL_ENOMEM, "no memory for a list of units")
			: add_tags(start, tags, n, err);
	}
	if (rv == 0) {
		int64_t now_ns = clock_wall_ns();

		add_local(start, units, units_n);
		qsort(start->items, start->items_n, sizeof(*start->items), compare_items);
		for (uint32_t i = 0; i < start->items_n; i++) {
			start->items[i].mtime_ns = now_ns - (start->items_n - i) * MTIME_STEP_NS;
		}
	}
	free(tags);
	return rv;
}

/* ---- units ---- */

/* Moves a unit of the directory aside. */
static int put_aside(struct start *start, struct start_item *item, const char *why,
	struct pawl_err *err)
{
	char where[PATH_MAX];
	int rv = workdir_put_half(start->work, item->path, where, err);

	if (rv == 0) {
		item->local = false;
		sealed_remove(start->work, item->tag);
		log_line(LOG_WARNING, "%s is not whole (%s): moved to %s", item->path, why, where);
	}
	return rv;
}

/* Notes that the directory has a unit as it is in the bucket. */
static int note_same(struct start *start, struct start_item *item, struct pawl_err *err)
{
	uint64_t *numbers = NULL;
	uint32_t n = 0;
	int rv = scan_numbers(start->work->dir_fd, item->path, &numbers, &n, err);

	rv = rv == 0 ? core_have_unit(start->core, item->path, numbers, n, err) : rv;
	free(numbers);
	item->same = item->settled = rv == 0;
	return rv;
}

/* Finds whether a local unit that the bucket does not have, with the files that were seen, is
 * whole, as far as one can know. */
static bool is_seen_whole(const struct start *start, const struct start_item *item,
	const struct core_seen *seen, char why[UNIT_WHY_MAX])
{
	enum sealed sealed = sealed_look(start->work, item->tag, seen->files, seen->files_n);
	char best[CKPT_TAG_MAX];
	enum unit_kind kind;
	bool never;

	if (sealed == SEALED_SHRUNK) {
		snprintf(why, UNIT_WHY_MAX, "it was being removed");
		return false;
	}
	if (!inspect_unit(&start->work->dir_fd, seen, &kind, best, &never, why)) {
		return never; /* the program may use what cannot be mirrored */
	}
	if (kind == UNIT_QUIET && start->work->crashed && sealed != SEALED_WHOLE) {
		snprintf(why, UNIT_WHY_MAX, "the last run crashed before it was committed");
		return false;
	}
	return true;
}

static bool is_whole(const struct start *start, const struct start_item *item,
	char why[UNIT_WHY_MAX])
{
	const struct core_seen *units;
	uint32_t n;

	units = scan_units(start->scan, &n);
	for (uint32_t i = 0; i < n; i++) {
		if (strcmp(units[i].path, item->path) == 0) {
			return is_seen_whole(start, item, &units[i], why);
		}
	}
	return true;
}

static int fetch_item(struct start *start, struct start_item *item, struct pawl_err *err)
{
	int rv = fetch_unit(start->fetch, item->tag, item->mtime_ns, err);

	rv = rv == 0 ? fetch_place(start->work, item->tag, item->path, err) : rv;
	if (rv == 0) {
		item->local = true;
		start->fetched++;
		rv = note_same(start, item, err);
	}
	return rv;
}

/* Has the directory hold a unit, whole. *have: whether it does. */
static int ensure(struct start *start, struct start_item *item, bool bytes, bool *have,
	struct pawl_err *err)
{
	enum fetch_local local;
	char why[UNIT_WHY_MAX];
	int rv = 0;

	*have = true;
	if (item->local && !item->in_bucket) {
		if (!is_whole(start, item, why)) {
			*have = false;
			return put_aside(start, item, why, err);
		}
		return 0;
	}
	if (item->local) {
		rv = fetch_compare(start->fetch, item->path, item->tag, bytes, &local, err);
		if (rv == 0 && local == FETCH_SAME) {
			start->kept++;
			return note_same(start, item, err);
		}
		if (rv == 0 && local == FETCH_NEWER && is_whole(start, item, why)) {
			item->settled = true;
			return 0; /* the local one is shipped again */
		}
		rv = rv == 0 ? put_aside(start, item, "it differs from what was committed", err)
			     : rv;
	}
	rv = rv == 0 ? fetch_item(start, item, err) : rv;
	if (rv != 0 && fetch_is_damage(rv)) {
		log_line(LOG_WARNING, "%s in the bucket is damaged, an older one is tried: %s",
			item->tag, err->msg);
		item->in_bucket = false;
		core_lose_tag(start->core, item->path);
		*have = false;
		rv = 0;
	}
	return rv;
}

/* Has the directory hold the unit that another one calls the best. */
static int ensure_best(struct start *start, const struct start_item *newest, struct pawl_err *err)
{
	char path[WALK_PATH_MAX];
	char best[CKPT_TAG_MAX];
	struct start_item *item;
	size_t len_bytes;
	char *text;
	bool have;
	int rv = 0;

	snprintf(path, sizeof(path), "%s/trainer_state.json", newest->path);
	text = inspect_read(start->work->dir_fd, path, 64u << 20, &len_bytes);
	if (text != NULL && unit_best(text, len_bytes, best)) {
		snprintf(path, sizeof(path), "%.*s%s",
			(int)(unit_base(newest->path) - newest->path), newest->path, best);
		item = find_item(start, path);
		if (item != NULL && !item->settled && item != newest) {
			rv = ensure(start, item, true, &have, err);
		} else if (item == NULL) {
			log_line(LOG_WARNING, "%s calls %s the best, which is not in the bucket",
				newest->path, best);
		}
	}
	free(text);
	return rv;
}

/* Has each group hold its newest whole unit, and the one that this calls the best. */
static int ensure_newest(struct start *start, struct pawl_err *err)
{
	int rv = 0;

	for (uint32_t i = start->items_n; i > 0 && rv == 0; i--) {
		struct start_item *item = &start->items[i - 1];
		bool have = false;

		for (uint32_t j = i; j < start->items_n && !have; j++) {
			have = unit_same_group(start->items[j].path, item->path) &&
				start->items[j].local;
		}
		if (have) {
			continue; /* the group has a newer one */
		}
		rv = ensure(start, item, true, &have, err);
		rv = rv == 0 && have ? ensure_best(start, item, err) : rv;
	}
	return rv;
}

/* Looks at the other units of the directory: what is not whole must not be found by the program.
 * Their bytes are compared behind it. */
static int check_others(struct start *start, struct pawl_err *err)
{
	int rv = 0;

	for (uint32_t i = 0; i < start->items_n && rv == 0; i++) {
		struct start_item *item = &start->items[i];
		enum fetch_local local;
		char why[UNIT_WHY_MAX];

		if (!item->local || item->settled) {
			continue;
		}
		if (!item->in_bucket) {
			rv = is_whole(start, item, why) ? 0 : put_aside(start, item, why, err);
			continue;
		}
		rv = fetch_compare(start->fetch, item->path, item->tag, false, &local, err);
		if (rv == 0 && local == FETCH_SAME) {
			start->kept++;
			rv = note_same(start, item, err);
			item->settled = false; /* but for its bytes */
		} else if (rv == 0 && !(local == FETCH_NEWER && is_whole(start, item, why))) {
			rv = put_aside(start, item, "it differs from what was committed", err);
		} else if (rv == 0) {
			item->settled = true;
		}
	}
	return rv;
}

/* Sets the times of units that are there, if others are to be fetched beside them. */
static void set_times(const struct start *start)
{
	bool missing = start->fetched > 0;

	for (uint32_t i = 0; i < start->items_n; i++) {
		missing = missing || !start->items[i].local;
	}
	for (uint32_t i = 0; i < start->items_n && missing; i++) {
		const struct start_item *item = &start->items[i];
		const struct timespec times[] = {{0, UTIME_OMIT},
			{(time_t)(item->mtime_ns / NS_PER_S), (long)(item->mtime_ns % NS_PER_S)}};

		if (item->local) { /* best effort: another user's cannot be set */
			utimensat(start->work->dir_fd, item->path, times, AT_SYMLINK_NOFOLLOW);
		}
	}
}

/* ---- loose files ---- */

/* Files such as "latest" name a unit. Has the file at path name one that is there. */
static int correct_pointer(const struct start *start, const char *path, struct pawl_err *err)
{
	const struct start_item *newest = NULL;
	char where[PATH_MAX + WALK_PATH_MAX];
	size_t len_bytes;
	char *text;
	bool known = false;

	if (strcmp(unit_base(path), "latest") != 0) {
		return 0;
	}
	text = inspect_read(start->work->dir_fd, path, POINTER_MAX, &len_bytes);
	for (uint32_t i = 0; i < start->items_n && text != NULL; i++) {
		const struct start_item *item = &start->items[i];

		if (unit_same_group(item->path, path) && (item->local || item->in_bucket)) {
			known = known || (item->local && unit_is_named_by(path, text, item->path));
			newest = item->local ? item : newest;
		}
	}
	free(text);
	if (text == NULL || known || newest == NULL) {
		return 0;
	}
	log_line(LOG_WARNING, "%s named no unit that is whole: it names %s now", path,
		newest->path);
	snprintf(where, sizeof(where), "%s/%s", start->work->dir, path);
	return file_put(where, unit_base(newest->path), strlen(unit_base(newest->path)), 0666, true,
		err);
}

/* State of fetching loose files. */
struct fetching {
	struct start *start;
	struct pawl_err *err;
};

/* Returns whether a path lies in a directory that would be taken for a unit: others have put the
 * object there. */
static bool is_in_unit(const struct start *start, const char *path)
{
	char folder[WALK_PATH_MAX];

	for (size_t len = 0; (len = file_next_folder(path, len)) > 0;) {
		snprintf(folder, sizeof(folder), "%.*s", (int)len, path);
		if (unit_named(folder, start->globs)) {
			return true;
		}
	}
	return false;
}

static int fetch_loose(void *user, const char *path)
{
	const struct fetching *fetching = user;
	struct start *start = fetching->start;
	struct pawl_err *err = fetching->err;
	struct stat st;
	int rv;

	if (!start->whole && is_in_unit(start, path)) {
		return 0;
	}
	rv = core_add_object(start->core, path, err);
	rv = rv == 0 ? loose_fetch(tags_root_store(start->root), path, start->work->dir_fd,
			       start->work->fetch_fd, err)
		     : rv;
	if (rv == PAWL_EEXIST || rv == PAWL_ENOENT) {
		return 0; /* the directory's own is taken for newer; or it was removed meanwhile */
	}
	if (rv == 0 && fstatat(start->work->dir_fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0) {
		start->loose++;
		rv = core_have_loose(start->core, path, walk_file_number(path, &st), err);
	}
	return rv == 0 ? correct_pointer(start, path, err) : rv;
}

/* Moves units without files aside. A crash leaves them when the program has just made one, or was
 * about to remove one; the program would take them for checkpoints. */
static int put_empty_aside(const struct start *start, struct pawl_err *err)
{
	uint32_t n;
	char *const *paths = scan_empty(start->scan, &n);
	char where[PATH_MAX];
	int rv = 0;

	for (uint32_t i = 0; i < n && rv == 0; i++) {
		rv = workdir_put_half(start->work, paths[i], where, err);
		if (rv == 0) {
			log_line(LOG_WARNING, "%s has no files: moved to %s", paths[i], where);
		}
		rv = rv == PAWL_ENOENT ? 0 : rv;
	}
	return rv;
}

int start_run(struct start *start, struct pawl_err *err)
{
	struct fetching fetching = {start, err};
	int rv = list_items(start, err);

	rv = rv == 0 ? put_empty_aside(start, err) : rv;
	rv = rv == 0 ? ensure_newest(start, err) : rv;
	rv = rv == 0 ? check_others(start, err) : rv;
	if (rv == 0) {
		sealed_clear(start->work); /* the records have served */
		set_times(start);
		rv = loose_list(tags_root_store(start->root), fetch_loose, &fetching, err);
	}
	return rv;
}
