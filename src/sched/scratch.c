/* See scratch.h. */
#include "sched/scratch.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define BLOCK_BYTES (1u << 20)
#define BYTES_MAX   (256ull << 20)
#define TIME_NS     (NS_PER_S / 2)
#define OPEN_MAX    16 /* descriptors of a walk */

static int measure(const char *dir, const void *block, bool alone, double *rate,
	struct pawl_err *err)
{
	int64_t start_ns = clock_mono_ns();
	int fd = open(dir, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
	uint64_t done = 0;
	bool full = false;
	int rv = 0;

	if (fd < 0) {
		return pawl_err_sys(err, "scratch %s", dir);
	}
	do {
		if (FAULT_SYS("scratch.write", write(fd, block, BLOCK_BYTES)) != BLOCK_BYTES ||
			fdatasync(fd) != 0) {
			full = done > 0 && (errno == ENOSPC || errno == EDQUOT);
			rv = full ? 0 : pawl_err_sys(err, "scratch %s", dir);
		}
		done += BLOCK_BYTES;
	} while (rv == 0 && !full && !alone && done < BYTES_MAX &&
		clock_mono_ns() - start_ns < TIME_NS);
	close(fd);
	*rate = full ? 0 : (double)done * NS_PER_S / (double)(clock_mono_ns() - start_ns + 1);
	return rv;
}

int scratch_choose(const char *const *dirs, uint32_t n, uint32_t *best, double *rate,
	struct pawl_err *err)
{
	void *block = calloc(1, BLOCK_BYTES);
	double fastest = 0;
	uint32_t found = 0;
	int rv = block ? 0 : pawl_err_set(err, PAWL_ENOMEM, "no memory to measure directories");

	for (uint32_t i = 0; i < n && rv == 0; i++) {
		double one = 0;

		rv = measure(dirs[i], block, n == 1, &one, err);
		if (one > fastest) {
			fastest = one;
			found = i;
		}
	}
	free(block);
	if (rv == 0) {
		*best = found;
		*rate = n > 1 ? fastest : 0;
	}
	return rv;
}

/* A user's own may be closed to the user. (Root needs none, and might be led elsewhere.) */
static int open_one(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
	if (kind == FTW_D || kind == FTW_DNR) {
		chmod(path, 0700);
	}
	return 0;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
	remove(path);
	return 0;
}

void scratch_remove(const char *path)
{
	if (geteuid() != 0) {
		nftw(path, open_one, OPEN_MAX, FTW_PHYS | FTW_MOUNT);
	}
	nftw(path, remove_one, OPEN_MAX, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

int scratch_make(const char *path, struct pawl_err *err)
{
	scratch_remove(path);
	return mkdir(path, 0700) == 0 ? 0 : pawl_err_sys(err, "scratch %s", path);
}
