/* Directories for temporary files: see scratch.h. */
#include "engine/scratch.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/times.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BLOCK_BYTES (1u << 20)
#define BYTES_MAX   (256ull << 20)
#define DEPTH_MAX   512 /* levels of nested directories: each level holds a descriptor open */
#define RANDOM      "-XXXXXX"

/* ---- the fastest directory ----
 *
 * All directories are measured at once, one block in each by turns, so that other load on the node
 * slows them alike. Time spent waiting for a processor is subtracted. A write to memory needs only
 * the processor, and on a busy node mostly waits for it; a write to a disk hardly does. By the
 * clock alone, the disk would look faster. */

/* The measurement of one directory. */
struct trial {
	int fd;            /* unnamed file (O_TMPFILE); -1: none is open */
	uint64_t done;     /* bytes written */
	int64_t passed_ns; /* elapsed time of the writes */
	int64_t spent_ns;  /* passed_ns less the waits for a processor */
	bool full;         /* the directory has no space left */
};

/* Returns how long this thread has waited for a processor so far; 0 if Linux does not report it. */
static int64_t waited_ns(int schedstat)
{
	char text[96];
	ssize_t n = pread(schedstat, text, sizeof(text) - 1, 0);
	char *behind;

	if (n <= 0) {
		return 0;
	}
	text[n] = '\0';
	strtoull(text, &behind, 10); /* skip the time that the thread ran */
	return (int64_t)strtoull(behind, NULL, 10);
}

static int write_block(struct trial *trial, const char *dir, const void *block, int schedstat,
	struct pawl_err *err)
{
	int64_t waited = waited_ns(schedstat);
	int64_t start_ns = clock_mono_ns();
	ssize_t n = FAULT_SYS("scratch.write", write(trial->fd, block, BLOCK_BYTES));
	int64_t passed_ns;

	if (n >= 0 && n < (ssize_t)BLOCK_BYTES) {
		n = -1;
		errno = ENOSPC; /* only a part of the block was written */
	}
	if (n < 0 || fdatasync(trial->fd) != 0) {
		trial->full = trial->done > 0 && (errno == ENOSPC || errno == EDQUOT);
		return trial->full ? 0 : pawl_err_sys(err, "scratch %s", dir);
	}
	passed_ns = clock_mono_ns() - start_ns;
	waited = waited_ns(schedstat) - waited;
	trial->done += BLOCK_BYTES;
	trial->passed_ns += passed_ns;
	trial->spent_ns += passed_ns > waited ? passed_ns - waited : 0;
	return 0;
}

static bool can_continue(const struct trial *trial)
{
	return !trial->full && trial->done < BYTES_MAX &&
		trial->passed_ns < times_ns(TIME_SCRATCH_TRY);
}

static int open_all(struct trial *trials, const char *const *dirs, uint32_t n, struct pawl_err *err)
{
	for (uint32_t i = 0; i < n; i++) {
		trials[i] = (struct trial){.fd = -1};
	}
	for (uint32_t i = 0; i < n; i++) {
		trials[i].fd = open(dirs[i], O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
		if (trials[i].fd < 0) {
			return pawl_err_sys(err, "scratch %s", dirs[i]);
		}
	}
	return 0;
}

static int measure(struct trial *trials, const char *const *dirs, uint32_t n, const void *block,
	struct pawl_err *err)
{
	int schedstat = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
	bool more = true;
	int rv = open_all(trials, dirs, n, err);

	while (rv == 0 && more) {
		more = false;
		for (uint32_t i = 0; i < n && rv == 0; i++) {
			if (can_continue(&trials[i])) {
				rv = write_block(&trials[i], dirs[i], block, schedstat, err);
				more = more || n > 1;
			}
		}
	}
	for (uint32_t i = 0; i < n; i++) {
		if (trials[i].fd >= 0) {
			close(trials[i].fd);
		}
	}
	if (schedstat >= 0) {
		close(schedstat);
	}
	return rv;
}

int scratch_choose(const char *const *dirs, uint32_t n, uint32_t *best, double *rate,
	struct pawl_err *err)
{
	void *block = calloc(1, BLOCK_BYTES);
	struct trial *trials = calloc(n, sizeof(*trials));
	double fastest = 0;
	uint32_t found = 0;
	int rv = block && trials
		? measure(trials, dirs, n, block, err)
		: pawl_err_set(err, PAWL_ENOMEM, "no memory to measure directories");

	for (uint32_t i = 0; i < n && rv == 0; i++) {
		const struct trial *trial = &trials[i];
		double one = (double)trial->done * NS_PER_S / (double)(trial->spent_ns + 1);

		if (!trial->full && one > fastest) {
			fastest = one;
			found = i;
		}
	}
	free(trials);
	free(block);
	if (rv == 0) {
		*best = found;
		*rate = n > 1 ? fastest : 0;
	}
	return rv;
}

/* ---- removing ----
 *
 * Any process with access may change the tree during the removal. So each name is looked up below
 * an open directory, and no link is followed. */

/* Opens a directory. Returns -1 if it is no directory, or may not be opened. The mode of a
 * directory may deny its owner access; then the mode is changed first. Root has access anyway. */
static int open_dir(int at, const char *name)
{
	const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
	int fd = openat(at, name, flags);

	if (fd < 0 && errno == EACCES && fchmodat(at, name, 0700, AT_SYMLINK_NOFOLLOW) == 0) {
		fd = openat(at, name, flags);
	}
	if (fd >= 0 && geteuid() != 0) {
		fchmod(fd, 0700);
	}
	return fd;
}

/* Removes the contents of the directory fd that are on the same device. Closes fd. */
static void empty(int fd, dev_t device, unsigned depth)
{
	DIR *dir = fdopendir(fd);
	struct dirent *entry;

	if (!dir) {
		close(fd);
		return;
	}
	while ((entry = readdir(dir)) != NULL) {
		const char *name = entry->d_name;
		struct stat st;
		int inner;

		if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ||
			unlinkat(fd, name, 0) == 0 || depth == DEPTH_MAX) {
			continue;
		}
		inner = open_dir(fd, name);
		if (inner >= 0 && fstat(inner, &st) == 0 && st.st_dev == device) {
			empty(inner, device, depth + 1);
			unlinkat(fd, name, AT_REMOVEDIR);
		} else if (inner >= 0) {
			close(inner);
		}
	}
	closedir(dir);
}

void scratch_remove(const char *path)
{
	int fd = open_dir(AT_FDCWD, path);
	struct stat st;

	FAULT_CRASH("scratch.remove");
	if (fd >= 0 && fstat(fd, &st) == 0 && st.st_uid == geteuid()) {
		empty(fd, st.st_dev, 0);
		rmdir(path);
	} else if (fd >= 0) {
		close(fd);
	}
}

/* ---- making ---- */

int scratch_make(const char *path, struct pawl_err *err)
{
	scratch_remove(path);
	return mkdir(path, 0700) == 0 ? 0 : pawl_err_sys(err, "scratch %s", path);
}

/* Removes earlier directories of that base: base plus a random end, or base itself, as an earlier
 * version of Pawl named it. */
static void remove_earlier(const char *base)
{
	const char *name = strrchr(base, '/') + 1;
	size_t len = strlen(name);
	char path[PATH_MAX];
	struct dirent *entry;
	DIR *dir;

	snprintf(path, sizeof(path), "%.*s", (int)(name - base), base);
	dir = opendir(path);
	while (dir && (entry = readdir(dir)) != NULL) {
		const char *rest = entry->d_name + len;

		if (strncmp(entry->d_name, name, len) == 0 &&
			(*rest == '\0' || (*rest == '-' && strlen(rest) == strlen(RANDOM))) &&
			(size_t)snprintf(path, sizeof(path), "%.*s%s", (int)(name - base), base,
				entry->d_name) < sizeof(path)) {
			scratch_remove(path);
		}
	}
	if (dir) {
		closedir(dir);
	}
}

int scratch_make_new(const char *base, char path[PATH_MAX], struct pawl_err *err)
{
	char made[PATH_MAX];

	ASSERT(base[0] == '/');
	remove_earlier(base);
	if ((size_t)snprintf(made, sizeof(made), "%s" RANDOM, base) >= sizeof(made)) {
		return pawl_err_set(err, PAWL_EINVAL, "scratch %s: the path is too long", base);
	}
	if (!mkdtemp(made)) {
		return pawl_err_sys(err, "scratch %s", base);
	}
	memcpy(path, made, sizeof(made));
	return 0;
}
