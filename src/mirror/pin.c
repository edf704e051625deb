/* Pins: see pin.h. */
#include "mirror/pin.h"

#include "base/err.h"
#include "base/fault.h"
#include "base/file.h"
#include "mirror/lease.h"
#include "mirror/walk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A pin being taken. */
struct taking {
	struct pin *pin;       /* files so far */
	uint32_t cap;          /* room for files */
	struct leases *leases; /* the caller's */
	const char *path;      /* path of the unit */
	uint64_t *numbers;     /* numbers of the files; owned */
};

static bool make_room(struct taking *taking)
{
	struct pin *pin = taking->pin;
	uint32_t cap = taking->cap == 0 ? 16 : taking->cap * 2;
	void *files, *seen, *numbers;

	if (pin->files_n < taking->cap) {
		return true;
	}
	files = FAULT_MEM("mirror.pin", realloc(pin->files, cap * sizeof(*pin->files)));
	pin->files = files != NULL ? files : pin->files;
	seen = FAULT_MEM("mirror.pin", realloc(pin->seen, cap * sizeof(*pin->seen)));
	pin->seen = seen != NULL ? seen : pin->seen;
	numbers = FAULT_MEM("mirror.pin", realloc(taking->numbers, cap * sizeof(*taking->numbers)));
	taking->numbers = numbers != NULL ? numbers : taking->numbers;
	if (files == NULL || seen == NULL || numbers == NULL) {
		return false;
	}
	taking->cap = cap;
	return true;
}

/* Leases an open file. A file that cannot be leased is watched by its times alone. */
static int lease(struct taking *taking, int fd, const char *name, struct pawl_err *err)
{
	int rv = lease_take(taking->leases, fd, &taking->pin->broken, err);

	if (rv == PAWL_ENOTSUP) {
		taking->pin->leased = false;
		return 0;
	}
	return rv == 0 ? 0 : pawl_err_prefix(err, rv, "%s", name);
}

/* Says why a file could not be opened, by errno. */
static int refuse(const char *path, struct pawl_err *err)
{
	int code = PAWL_EBUSY; /* gone, or something else by now: the next scan tells */

	if (errno == EMFILE || errno == ENFILE) {
		code = PAWL_ELIMIT;
	} else if (errno == EACCES || errno == EPERM) {
		code = PAWL_ENOTSUP;
	}
	return pawl_err_set(err, code, "%s cannot be opened: %s", path, strerror(errno));
}

static int take_file(void *user, const struct walk_entry *entry, bool *enter, struct pawl_err *err)
{
	struct taking *taking = user;
	struct pin *pin = taking->pin;
	struct ship_file *file;
	struct stat st;
	int rv;

	if (entry->skipped != NULL) {
		return 0;
	}
	*enter = S_ISDIR(entry->st->st_mode);
	if (*enter) {
		return 0;
	}
	if (!make_room(taking)) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory to pin %s", taking->path);
	}
	file = &pin->files[pin->files_n];
	*file = (struct ship_file){.fd = FAULT_SYS("mirror.pin",
					   file_open_plain(entry->dir_fd, entry->name,
						   O_RDONLY | O_NOFOLLOW, 0, &st))};
	if (file->fd < 0) {
		return refuse(entry->path, err);
	}
	pin->files_n++;
	rv = lease(taking, file->fd, entry->path, err);
	if (rv == 0 && fstat(file->fd, &st) != 0) { /* again: now that nobody writes */
		rv = pawl_err_sys(err, "look at %s", entry->path);
	}
	if (rv != 0) {
		return rv;
	}
	snprintf(file->name, sizeof(file->name), "%s", entry->path);
	file->size_bytes = (uint64_t)st.st_size;
	pin->seen[pin->files_n - 1] = st;
	taking->numbers[pin->files_n - 1] = walk_file_number(entry->path, &st);
	return 0;
}

static int compare_numbers(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a;
	uint64_t y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* A file, and what was seen of it. */
struct both {
	struct ship_file file;
	struct stat seen;
};

static int compare_names(const void *a, const void *b)
{
	return strcmp(((const struct both *)a)->file.name, ((const struct both *)b)->file.name);
}

/* Sorts the files by name, and what was seen of them with them. */
static int sort(struct pin *pin, struct pawl_err *err)
{
	struct both *both = FAULT_MEM("mirror.pin", malloc((pin->files_n + 1u) * sizeof(*both)));

	if (both == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory to pin a unit");
	}
	for (uint32_t i = 0; i < pin->files_n; i++) {
		both[i].file = pin->files[i];
		both[i].seen = pin->seen[i];
	}
	qsort(both, pin->files_n, sizeof(*both), compare_names);
	for (uint32_t i = 0; i < pin->files_n; i++) {
		pin->files[i] = both[i].file;
		pin->seen[i] = both[i].seen;
	}
	free(both);
	return 0;
}

int pin_take(struct pin **out, struct leases *leases, int dir_fd, const char *path,
	const uint64_t *numbers, uint32_t numbers_n, struct pawl_err *err)
{
	struct taking taking = {.leases = leases, .path = path};
	const struct walk_ops ops = {NULL, take_file, &taking};
	struct pin *pin = FAULT_MEM("mirror.pin", calloc(1, sizeof(*pin)));
	int rv;

	if (pin == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory to pin %s", path);
	}
	taking.pin = pin;
	pin->leased = true;
	rv = walk(dir_fd, path, &ops, err);
	if (rv == 0 && pin->files_n > 0) {
		qsort(taking.numbers, pin->files_n, sizeof(*taking.numbers), compare_numbers);
		rv = sort(pin, err);
	}
	if (rv == 0 &&
		(pin->files_n != numbers_n ||
			memcmp(taking.numbers, numbers, numbers_n * sizeof(*numbers)) != 0)) {
		rv = pawl_err_set(err, PAWL_EBUSY, "its files are changing");
	}
	free(taking.numbers);
	if (rv != 0) {
		pin_give(pin, leases);
		return rv;
	}
	*out = pin;
	return 0;
}

void pin_give(struct pin *pin, struct leases *leases)
{
	if (pin == NULL) {
		return;
	}
	for (uint32_t i = 0; i < pin->files_n; i++) {
		lease_give(leases, pin->files[i].fd);
		close(pin->files[i].fd);
	}
	free(pin->files);
	free(pin->seen);
	free(pin);
}

static bool same_times(const struct stat *a, const struct stat *b)
{
	return a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
		a->st_mtim.tv_nsec == b->st_mtim.tv_nsec && a->st_ino == b->st_ino;
}

int pin_check(struct pin *pin, struct pawl_err *err)
{
	bool same = !atomic_load(&pin->broken) && !atomic_load(&pin->canceled);

	for (uint32_t i = 0; i < pin->files_n && same && !pin->leased; i++) {
		struct stat st;

		same = fstat(pin->files[i].fd, &st) == 0 && same_times(&st, &pin->seen[i]);
	}
	return same
		? 0
		: pawl_err_set(err, PAWL_ECANCELED, "its files changed while they were shipped");
}
