/* Opens names in directories that others may write to: see beneath.h. */
#include "base/beneath.h"

#include "base/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FOLDER (O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
#define TRIES  16 /* openat2 calls at most; a rename elsewhere can cause EAGAIN */

/* Adds the flags that are always set. With O_PATH, which opens nothing, openat2 accepts only the
 * first two. */
static int add_fixed_flags(int flags)
{
	flags |= O_CLOEXEC | O_NOFOLLOW;
	return (flags & O_PATH) != 0 ? flags : flags | O_NONBLOCK | O_NOCTTY;
}

/* ---- openat2 ---- */

static int open_by_openat2(int dir_fd, const char *path, int flags, mode_t mode, enum beneath how)
{
	struct open_how wanted = {.flags = (uint64_t)add_fixed_flags(flags),
		.mode = (flags & O_CREAT) != 0 ? mode : 0,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
	int fd = -1;

	if (how == BENEATH_ONE_MOUNT) {
		wanted.resolve |= RESOLVE_NO_XDEV;
	}
	errno = EAGAIN;
	for (int i = 0; i < TRIES && fd < 0 && errno == EAGAIN; i++) {
		fd = FAULT_SYS("beneath.openat2",
			(int)syscall(SYS_openat2, dir_fd, path, &wanted, sizeof(wanted)));
	}
	return fd;
}

/* Whether openat2 is not available. A sandbox that does not know the call returns EPERM. */
static bool is_unavailable(int sys)
{
	return sys == ENOSYS || sys == EPERM || sys == EAGAIN;
}

/* ---- name after name ---- */

static bool is_on(int fd, dev_t device)
{
	struct stat st;

	return fstat(fd, &st) == 0 && st.st_dev == device;
}

/* Whether fd is within the limits of how; closes fd if not. Does not detect a bind mount of the
 * same device. */
static bool may_cross(int fd, const struct stat *from, enum beneath how)
{
	if (how == BENEATH_ANY || is_on(fd, from->st_dev)) {
		return true;
	}
	close(fd);
	errno = EXDEV;
	return false;
}

/* Opens the directory whose name is the first len bytes of path. Closes at. */
static int step(int at, const char *path, size_t len, const struct stat *from, enum beneath how)
{
	char name[NAME_MAX + 1];
	int next = -1;
	int sys;

	errno = ENAMETOOLONG;
	if (len < sizeof(name)) {
		snprintf(name, sizeof(name), "%.*s", len > 0 ? (int)len : 1, len > 0 ? path : ".");
		errno = EXDEV;
		next = strcmp(name, "..") == 0 ? -1 : openat(at, name, FOLDER);
	}
	sys = errno;
	close(at);
	errno = sys;
	return next >= 0 && may_cross(next, from, how) ? next : -1;
}

static int open_by_steps(int dir_fd, const char *path, int flags, mode_t mode, enum beneath how)
{
	struct stat from;
	size_t len;
	int fd = -1;
	int sys;
	int at;

	if (fstat(dir_fd, &from) != 0) {
		return -1;
	}
	at = fcntl(dir_fd, F_DUPFD_CLOEXEC, 0);
	while (at >= 0 && path[len = strcspn(path, "/")] == '/') {
		at = step(at, path, len, &from, how);
		path += len + 1;
	}
	if (at < 0) {
		return -1;
	}
	errno = EXDEV;
	if (strcmp(path, "..") != 0) {
		fd = openat(at, path[0] != '\0' ? path : ".", add_fixed_flags(flags), mode);
	}
	sys = errno;
	close(at);
	errno = sys;
	return fd >= 0 && may_cross(fd, &from, how) ? fd : -1;
}

int beneath_open(int dir_fd, const char *path, int flags, mode_t mode, enum beneath how)
{
	int fd;

	if (path[0] == '/') {
		errno = EXDEV;
		return -1;
	}
	fd = open_by_openat2(dir_fd, path, flags, mode, how);
	return fd < 0 && is_unavailable(errno) ? open_by_steps(dir_fd, path, flags, mode, how) : fd;
}
