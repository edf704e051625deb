/* Looks at a whole mirrored directory: see scan.h. */
#include "mirror/scan.h"

#include "base/beneath.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/text.h"
#include "mirror/walk.h"
#include "store/store.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOGGED_MAX 64u                    /* messages about names, at most */
#define FILES_MAX  (CORE_LOOSE_MAX * 10u) /* files of all units */

/* A file found. */
struct found {
	char *path;          /* path in the directory, owned */
	uint64_t number;     /* walk_file_number, of its path in the unit */
	uint64_t size_bytes; /* size */
	uint32_t unit;       /* index of its unit; UINT32_MAX: loose */
	uint32_t in_unit;    /* bytes of path before the path in the unit */
};

/* A unit found. */
struct found_unit {
	char *path;            /* path in the directory, owned */
	struct scan_unit unit; /* names, and what is wrong */
	const char **names;    /* memory of unit.names, owned */
	uint64_t *numbers;     /* numbers of the files, sorted, owned */
};

struct scan {
	int dir_fd;                     /* the mirrored directory; the opener's */
	const struct unit_globs *globs; /* the opener's */
	void (*entered)(void *user, const char *path, int fd); /* the opener's, or NULL */
	void *user;                                            /* for entered */
	struct found *files;                                   /* all files; owned */
	uint32_t files_n, files_cap;                           /* number of files, and room */
	struct found_unit *units;                              /* all units; owned */
	uint32_t units_n, units_cap;                           /* number of units, and room */
	char **empty;                 /* paths of units without files; owned, as the paths are */
	uint32_t empty_n, empty_cap;  /* number of them, and room */
	struct core_seen *seen_units; /* result, sorted by path; owned */
	struct core_seen *seen_loose; /* result, sorted by path; owned */
	uint32_t loose_n;             /* number of loose files */
	uint32_t unit;                /* while a unit is walked: its index; else UINT32_MAX */
	char prefix[WALK_PATH_MAX];   /* while a unit is walked: its path */
	uint64_t logged[LOGGED_MAX];  /* numbers of the names that were in the log */
	uint32_t logged_n;            /* number of them */
};

int scan_open(struct scan **scan, int dir_fd, const struct unit_globs *globs,
	void (*entered)(void *user, const char *path, int fd), void *user, struct pawl_err *err)
{
	*scan = FAULT_MEM("mirror.scan", calloc(1, sizeof(**scan)));
	if (*scan == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory to look at a directory");
	}
	(*scan)->dir_fd = dir_fd;
	(*scan)->globs = globs;
	(*scan)->entered = entered;
	(*scan)->user = user;
	(*scan)->unit = UINT32_MAX;
	return 0;
}

static void forget(struct scan *scan)
{
	for (uint32_t i = 0; i < scan->files_n; i++) {
		free(scan->files[i].path);
	}
	for (uint32_t i = 0; i < scan->units_n; i++) {
		free(scan->units[i].path);
		free(scan->units[i].names);
		free(scan->units[i].numbers);
	}
	for (uint32_t i = 0; i < scan->empty_n; i++) {
		free(scan->empty[i]);
	}
	scan->empty_n = 0;
	free(scan->seen_units);
	free(scan->seen_loose);
	scan->seen_units = NULL;
	scan->seen_loose = NULL;
	scan->files_n = 0;
	scan->units_n = 0;
	scan->loose_n = 0;
	scan->unit = UINT32_MAX;
}

void scan_close(struct scan *scan)
{
	if (scan != NULL) {
		forget(scan);
		free(scan->files);
		free(scan->units);
		free(scan->empty);
		free(scan);
	}
}

static int no_memory(struct pawl_err *err)
{
	return pawl_err_set(err, PAWL_ENOMEM, "no memory to look at a directory");
}

/* Logs that a name is not mirrored, once. */
static void log_skipped(struct scan *scan, const char *path, const char *why)
{
	static const struct stat none;
	uint64_t number = walk_file_number(path, &none);

	for (uint32_t i = 0; i < scan->logged_n; i++) {
		if (scan->logged[i] == number) {
			return;
		}
	}
	if (scan->logged_n == LOGGED_MAX) {
		return;
	}
	scan->logged[scan->logged_n++] = number;
	log_line(LOG_WARNING, "%s is not mirrored: %s%s", path, why,
		scan->logged_n == LOGGED_MAX ? " (more such names are not logged)" : "");
}

/* Doubles an array if it is full. */
static bool grow(void **items, uint32_t n, uint32_t *cap, size_t item_bytes)
{
	uint32_t more = *cap == 0 ? 64 : *cap * 2;
	void *at;

	if (n < *cap) {
		return true;
	}
	at = FAULT_MEM("mirror.scan", realloc(*items, more * item_bytes));
	if (at == NULL) {
		return false;
	}
	*items = at;
	*cap = more;
	return true;
}

/* ---- the walk ---- */

/* Returns whether a directory holds a file that only a unit has. */
static bool holds_mark(int dir_fd, const char *name)
{
	int fd = beneath_open(dir_fd, name, O_RDONLY | O_DIRECTORY, 0, BENEATH_ANY);
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	const struct dirent *at;
	bool found = false;

	if (dir == NULL) {
		if (fd >= 0) {
			close(fd);
		}
		return false;
	}
	while (!found && (at = readdir(dir)) != NULL) {
		found = unit_has_mark(at->d_name);
	}
	closedir(dir);
	return found;
}

static int add_file(struct scan *scan, const struct walk_entry *entry, struct pawl_err *err)
{
	bool in_unit = scan->unit != UINT32_MAX;
	uint32_t prefix = in_unit ? (uint32_t)strlen(scan->prefix) + 1 : 0;
	struct found *file;
	size_t bytes = prefix + strlen(entry->path) + 1;

	if (scan->files_n >= FILES_MAX) {
		log_skipped(scan, entry->path, "there are too many files");
		return 0;
	}
	if (!grow((void **)&scan->files, scan->files_n, &scan->files_cap, sizeof(*file))) {
		return no_memory(err);
	}
	file = &scan->files[scan->files_n];
	*file = (struct found){.path = FAULT_MEM("mirror.scan", malloc(bytes)),
		.number = walk_file_number(entry->path, entry->st),
		.size_bytes = (uint64_t)entry->st->st_size,
		.unit = scan->unit,
		.in_unit = prefix};
	if (file->path == NULL) {
		return no_memory(err);
	}
	snprintf(file->path, bytes, "%s%s%s", in_unit ? scan->prefix : "", in_unit ? "/" : "",
		entry->path);
	scan->files_n++;
	scan->loose_n += !in_unit;
	return 0;
}

static void enter_unit(void *user, const char *path, int fd)
{
	struct scan *scan = user;
	char whole[2 * WALK_PATH_MAX];

	if (scan->entered != NULL) {
		snprintf(whole, sizeof(whole), "%s%s%s", scan->prefix, path[0] != '\0' ? "/" : "",
			path);
		scan->entered(scan->user, whole, fd);
	}
}

static int take_in_unit(void *user, const struct walk_entry *entry, bool *enter,
	struct pawl_err *err)
{
	struct scan *scan = user;

	if (entry->skipped != NULL) {
		char path[2 * WALK_PATH_MAX];

		snprintf(path, sizeof(path), "%s/%s", scan->prefix, entry->path);
		log_skipped(scan, path, entry->skipped);
		if (entry->unreadable) {
			scan->units[scan->unit].unit.bad = "a folder in it may not be read";
			scan->units[scan->unit].unit.bad_name = "";
		}
		return 0;
	}
	*enter = S_ISDIR(entry->st->st_mode);
	return *enter ? 0 : add_file(scan, entry, err);
}

/* Notes a unit without files, and takes its path. */
static int add_empty(struct scan *scan, char *path, struct pawl_err *err)
{
	if (!grow((void **)&scan->empty, scan->empty_n, &scan->empty_cap, sizeof(*scan->empty))) {
		free(path);
		return no_memory(err);
	}
	scan->empty[scan->empty_n++] = path;
	return 0;
}

static int add_unit(struct scan *scan, const struct walk_entry *entry, struct pawl_err *err)
{
	const struct walk_ops ops = {enter_unit, take_in_unit, scan};
	uint32_t before = scan->files_n;
	struct found_unit *unit;
	int rv;

	if (!grow((void **)&scan->units, scan->units_n, &scan->units_cap, sizeof(*unit))) {
		return no_memory(err);
	}
	unit = &scan->units[scan->units_n];
	*unit = (struct found_unit){.path = FAULT_MEM("mirror.scan", strdup(entry->path))};
	if (unit->path == NULL) {
		return no_memory(err);
	}
	snprintf(scan->prefix, sizeof(scan->prefix), "%s", entry->path);
	scan->unit = scan->units_n++;
	rv = walk(entry->dir_fd, entry->name, &ops, err);
	scan->unit = UINT32_MAX;
	if (rv == PAWL_ENOENT || (rv == 0 && scan->files_n == before)) {
		scan->units_n--; /* not a unit yet */
		rv = add_empty(scan, unit->path, err);
	}
	return rv;
}

/* Returns whether a loose file would lie among the files of a tag. */
static bool is_in_save(const char *path)
{
	const char *slash = strchr(path, '/');

	return slash != NULL && strncmp(slash + 1, "save-", strlen("save-")) == 0;
}

static int take(void *user, const struct walk_entry *entry, bool *enter, struct pawl_err *err)
{
	struct scan *scan = user;
	const char *bad;

	if (entry->path[0] == '.') {
		return 0; /* hidden: the program's own affair, or ours */
	}
	if (entry->skipped != NULL) {
		log_skipped(scan, entry->path, entry->skipped);
		return 0;
	}
	bad = unit_bad_file(entry->name);
	if (S_ISDIR(entry->st->st_mode)) {
		if (bad != NULL) {
			log_skipped(scan, entry->path, bad);
			return 0;
		}
		if (unit_named(entry->path, scan->globs) ||
			holds_mark(entry->dir_fd, entry->name)) {
			return add_unit(scan, entry, err);
		}
		*enter = true;
		return 0;
	}
	if (bad == NULL && strlen(entry->path) >= CORE_PATH_MAX - 1) {
		bad = "its path is too long";
	}
	if (bad == NULL && is_in_save(entry->path)) {
		bad = "in a bucket, folders whose names begin with save- belong to checkpoints";
	}
	if (bad != NULL) {
		log_skipped(scan, entry->path, bad);
		return 0;
	}
	return add_file(scan, entry, err);
}

static void enter(void *user, const char *path, int fd)
{
	struct scan *scan = user;

	if (scan->entered != NULL) {
		scan->entered(scan->user, path, fd);
	}
}

/* ---- results ---- */

static int compare_files(const void *a, const void *b)
{
	const struct found *x = a;
	const struct found *y = b;

	if (x->unit != y->unit) {
		return x->unit < y->unit ? -1 : 1;
	}
	return strcmp(x->path, y->path);
}

static int compare_numbers(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a;
	uint64_t y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static int compare_seen(const void *a, const void *b)
{
	return strcmp(((const struct core_seen *)a)->path, ((const struct core_seen *)b)->path);
}

/* Fills in a unit from its n files, and what is seen of it. */
static bool list_unit(struct found_unit *unit, const struct found *files, uint32_t n,
	struct core_seen *seen)
{
	unit->names = FAULT_MEM("mirror.scan", malloc((n + 1u) * sizeof(*unit->names)));
	unit->numbers = FAULT_MEM("mirror.scan", malloc((n + 1u) * sizeof(*unit->numbers)));
	if (unit->names == NULL || unit->numbers == NULL) {
		return false;
	}
	*seen = (struct core_seen){unit->path, unit->numbers, n, 0, &unit->unit};
	for (uint32_t i = 0; i < n; i++) {
		unit->names[i] = files[i].path + files[i].in_unit;
		unit->numbers[i] = files[i].number;
		seen->size_bytes += files[i].size_bytes;
		if (unit->unit.bad == NULL) {
			unit->unit.bad = unit_bad_file(unit->names[i]);
			unit->unit.bad_name = unit->names[i];
		}
	}
	qsort(unit->numbers, n, sizeof(*unit->numbers), compare_numbers);
	unit->unit.names = unit->names;
	unit->unit.names_n = n;
	return true;
}

static int list_results(struct scan *scan, struct pawl_err *err)
{
	uint32_t at = 0;

	scan->seen_units =
		FAULT_MEM("mirror.scan", calloc(scan->units_n + 1u, sizeof(*scan->seen_units)));
	scan->seen_loose =
		FAULT_MEM("mirror.scan", calloc(scan->loose_n + 1u, sizeof(*scan->seen_loose)));
	if (scan->seen_units == NULL || scan->seen_loose == NULL) {
		return no_memory(err);
	}
	if (scan->files_n > 0) {
		qsort(scan->files, scan->files_n, sizeof(*scan->files), compare_files);
	}
	for (uint32_t i = 0; i < scan->units_n; i++) {
		uint32_t first = at;

		while (at < scan->files_n && scan->files[at].unit == i) {
			at++;
		}
		if (!list_unit(&scan->units[i], scan->files + first, at - first,
			    &scan->seen_units[i])) {
			return no_memory(err);
		}
	}
	for (uint32_t i = 0; i < scan->loose_n; i++) {
		const struct found *file = &scan->files[at + i];

		scan->seen_loose[i] =
			(struct core_seen){file->path, &file->number, 1, file->size_bytes, NULL};
	}
	qsort(scan->seen_units, scan->units_n, sizeof(*scan->seen_units), compare_seen);
	qsort(scan->seen_loose, scan->loose_n, sizeof(*scan->seen_loose), compare_seen);
	return 0;
}

int scan_all(struct scan *scan, struct pawl_err *err)
{
	const struct walk_ops ops = {enter, take, scan};
	struct stat st;
	int rv;

	forget(scan);
	if (fstat(scan->dir_fd, &st) != 0 || st.st_nlink == 0) {
		return pawl_err_set(err, PAWL_ENOENT, "the directory was removed");
	}
	rv = walk(scan->dir_fd, "", &ops, err);
	return rv == 0 ? list_results(scan, err) : rv;
}

const struct core_seen *scan_units(const struct scan *scan, uint32_t *n)
{
	*n = scan->units_n;
	return scan->seen_units;
}

const struct core_seen *scan_loose(const struct scan *scan, uint32_t *n)
{
	*n = scan->loose_n;
	return scan->seen_loose;
}

char *const *scan_empty(const struct scan *scan, uint32_t *n)
{
	*n = scan->empty_n;
	return scan->empty;
}

/* ---- one unit ---- */

/* Numbers being gathered. */
struct numbers {
	uint64_t *at;    /* owned */
	uint32_t n, cap; /* number, and room */
};

static int take_number(void *user, const struct walk_entry *entry, bool *enter,
	struct pawl_err *err)
{
	struct numbers *numbers = user;

	if (entry->skipped != NULL) {
		return 0;
	}
	*enter = S_ISDIR(entry->st->st_mode);
	if (*enter) {
		return 0;
	}
	if (!grow((void **)&numbers->at, numbers->n, &numbers->cap, sizeof(*numbers->at))) {
		return no_memory(err);
	}
	numbers->at[numbers->n++] = walk_file_number(entry->path, entry->st);
	return 0;
}

int scan_numbers(int dir_fd, const char *path, uint64_t **files, uint32_t *n, struct pawl_err *err)
{
	struct numbers numbers = {NULL};
	const struct walk_ops ops = {NULL, take_number, &numbers};
	int rv = walk(dir_fd, path, &ops, err);

	if (rv != 0) {
		free(numbers.at);
		return rv;
	}
	if (numbers.n > 0) {
		qsort(numbers.at, numbers.n, sizeof(*numbers.at), compare_numbers);
	}
	*files = numbers.at;
	*n = numbers.n;
	return 0;
}
