/* Chooses, makes and locks the directory, and removes those of dead pilots: see slurm_scratch.h.
 *
 * A directory without a lock belongs to a dead pilot, or to one that has just made it. So a pilot
 * that makes one checks, once it has the lock, whether the directory still exists; if not, it makes
 * another. On file systems without locks, as some network file systems, no pilot counts as dead. */
#include "engine/slurm/pilot/slurm_scratch.h"

#include "base/err.h"
#include "base/log.h"
#include "engine/scratch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define NAME       "pawl-scratch-%s-"
#define RANDOM     "XXXXXX" /* end of the name, for mkdtemp */
#define NAME_BYTES 128u
#define TRIES      8

/* ---- choice ---- */

/* Returns the fastest usable directory; NULL: there is none. */
static const char *choose(const char *const *dirs, uint32_t n)
{
	const char *good[SCRATCH_DIRS_MAX];
	uint32_t good_n = 0;
	uint32_t best = 0;
	struct pawl_err err;
	double rate = 0;

	for (uint32_t i = 0; i < n && good_n < SCRATCH_DIRS_MAX; i++) {
		if (scratch_choose(&dirs[i], 1, &best, &rate, &err) == 0) {
			good[good_n++] = dirs[i];
		} else {
			log_line(LOG_WARNING, "%s; the directory is not used", err.msg);
		}
	}
	if (good_n == 0) {
		return NULL;
	}
	if (scratch_choose(good, good_n, &best, &rate, &err) != 0) {
		log_line(LOG_WARNING, "%s", err.msg);
		return NULL;
	}
	if (rate > 0) {
		log_line(LOG_INFO, "scratch in %s: %.0f MB/s, the fastest of %u", good[best],
			rate / 1e6, good_n);
	}
	return good[best];
}

/* ---- ownership ---- */

/* Returns whether the directory of fd is this user's, and still the one at path. */
static bool is_there(int fd, const char *path)
{
	struct stat opened;
	struct stat there;

	return fstat(fd, &opened) == 0 && lstat(path, &there) == 0 && opened.st_uid == geteuid() &&
		opened.st_dev == there.st_dev && opened.st_ino == there.st_ino;
}

/* Locks a directory of this user's and returns its descriptor. Returns -1 and sets errno:
 * EWOULDBLOCK if the lock is taken, ENOENT if the directory is gone or replaced, others if it
 * cannot be locked. */
static int lock_directory(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	int sys;

	if (fd < 0) {
		return -1;
	}
	if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
		sys = errno;
	} else if (is_there(fd, path)) {
		return fd;
	} else {
		sys = ENOENT;
	}
	close(fd);
	errno = sys;
	return -1;
}

static bool make(struct slurm_scratch *scratch, const char *dir, const char *host)
{
	for (int i = 0; i < TRIES; i++) {
		snprintf(scratch->path, sizeof(scratch->path), "%.2000s/" NAME RANDOM, dir, host);
		if (!mkdtemp(scratch->path)) {
			return false;
		}
		scratch->lock = lock_directory(scratch->path);
		if (scratch->lock >= 0 || (errno != EWOULDBLOCK && errno != ENOENT)) {
			return true;
		}
	}
	return false;
}

static void remove_dead(const char *dir, const char *host)
{
	char name[NAME_BYTES];
	char path[PATH_MAX];
	DIR *all = opendir(dir);
	struct dirent *entry;

	snprintf(name, sizeof(name), NAME, host);
	while (all && (entry = readdir(all)) != NULL) {
		int fd;

		if (strncmp(entry->d_name, name, strlen(name)) != 0 ||
			strlen(entry->d_name) != strlen(name) + strlen(RANDOM)) {
			continue; /* gpu-1's directory is not one of gpu's */
		}
		snprintf(path, sizeof(path), "%.2000s/%s", dir, entry->d_name);
		fd = lock_directory(path);
		if (fd >= 0) {
			log_line(LOG_INFO, "removing %s, left by a dead pilot", path);
			scratch_remove(path);
			close(fd);
		}
	}
	if (all) {
		closedir(all);
	}
}

/* Removes the directories of dead pilots in a child process, because that may take long and must
 * not delay the pilot's heartbeats. */
static void clean(const char *host, const char *const *dirs, uint32_t n)
{
	pid_t self = getpid();
	pid_t child = fork();

	if (child != 0) {
		return; /* if the fork failed, the next pilot does it */
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (uint32_t i = 0; i < n && getppid() == self; i++) {
		remove_dead(dirs[i], host);
	}
	_exit(0);
}

void slurm_scratch_open(struct slurm_scratch *scratch, const char *host, const char *const *dirs,
	uint32_t n)
{
	const char *dir = choose(dirs, n);

	scratch->lock = -1;
	if (!dir || !make(scratch, dir, host)) {
		log_line(LOG_WARNING, "no directory for jobs with disk_tier: best on %s", host);
		scratch->path[0] = '\0';
	}
	clean(host, dirs, n);
}

void slurm_scratch_drop(struct slurm_scratch *scratch, const char *path)
{
	char old[PATH_MAX];

	snprintf(old, sizeof(old), "%.2400s/.old.%" PRIu32, scratch->path, ++scratch->dropped);
	if (rename(path, old) != 0) {
		if (errno != ENOENT) {
			log_line(LOG_WARNING, "scratch %s: %s", path, strerrordesc_np(errno));
		}
		return;
	}
	if (fork() == 0) { /* if the fork failed, the pilot's end removes it */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		scratch_remove(old);
		_exit(0);
	}
}

uint64_t slurm_scratch_free(const struct slurm_scratch *scratch)
{
	struct statvfs disk;

	return scratch->path[0] != '\0' && statvfs(scratch->path, &disk) == 0
		? (uint64_t)disk.f_bavail * disk.f_frsize
		: 0;
}

void slurm_scratch_close(struct slurm_scratch *scratch)
{
	if (scratch->path[0] != '\0') {
		scratch_remove(scratch->path);
		if (scratch->lock >= 0) {
			close(scratch->lock);
		}
		scratch->path[0] = '\0';
	}
}
