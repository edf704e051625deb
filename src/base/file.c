/* Aside, sync, rename, sync; and what is opened without trust: see file.h. */
#include "base/file.h"

#include "base/beneath.h"
#include "base/err.h"
#include "base/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool write_all(int fd, const uint8_t *bytes, size_t len_bytes)
{
	while (len_bytes > 0) {
		ssize_t n = FAULT_SYS("file.write", write(fd, bytes, len_bytes));

		if (n < 0 && errno != EINTR) {
			return false;
		}
		bytes += n > 0 ? n : 0;
		len_bytes -= n > 0 ? (size_t)n : 0;
	}
	return true;
}

int file_sync_dir(const char *directory, struct pawl_err *err)
{
	int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int rv = fd >= 0 && FAULT_SYS("file.sync_dir", fsync(fd)) == 0
		? 0
		: pawl_err_sys(err, "sync directory %s", directory);

	if (fd >= 0) {
		close(fd);
	}
	return rv;
}

static int sync_parent(const char *path, struct pawl_err *err)
{
	const char *name = strrchr(path, '/');
	char parent[PATH_MAX];

	if (name == NULL) {
		return file_sync_dir(".", err);
	}
	snprintf(parent, sizeof(parent), "%.*s", name == path ? 1 : (int)(name - path), path);
	return file_sync_dir(parent, err);
}

int file_open_plain(int dir_fd, const char *path, int flags, mode_t mode, struct stat *st)
{
	int follow = (flags & O_ACCMODE) == O_RDONLY ? 0 : O_NOFOLLOW;
	int fd = openat(dir_fd, path, flags | follow | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, mode);
	int sys;

	if (fd < 0) {
		return -1;
	}
	if (fstat(fd, st) != 0) {
		sys = errno;
	} else if (S_ISREG(st->st_mode)) {
		return fd;
	} else {
		sys = S_ISDIR(st->st_mode) ? EISDIR : ENXIO; /* open(2)'s, where it refuses them */
	}
	close(fd);
	errno = sys;
	return -1;
}

bool file_is_odd(int sys)
{
	return sys == EISDIR || sys == ENXIO || sys == ELOOP || sys == ENODEV;
}

const char *file_kind(int dir_fd, const char *path)
{
	struct stat st;
	mode_t mode;

	if (fstatat(dir_fd, path, &st, AT_SYMLINK_NOFOLLOW) != 0) {
		return "";
	}
	mode = st.st_mode;
	if (S_ISLNK(st.st_mode) && fstatat(dir_fd, path, &st, 0) != 0) {
		return "a symbolic link that leads nowhere";
	}
	return beneath_kind(mode);
}

int file_put(const char *path, const void *bytes, size_t len_bytes, mode_t mode, bool lasts,
	struct pawl_err *err)
{
	char aside[PATH_MAX];
	int rv = 0;
	int fd;

	if ((size_t)snprintf(aside, sizeof(aside), "%s.new", path) >= sizeof(aside)) {
		return pawl_err_set(err, PAWL_EINVAL, "write %s: path too long", path);
	}
	unlink(aside); /* of a write that was cut off, or somebody's link */
	fd = open(aside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
	if (fd < 0) {
		return pawl_err_sys(err, "write %s", path);
	}
	if (!write_all(fd, bytes, len_bytes) || (lasts && FAULT_SYS("file.sync", fsync(fd)) != 0)) {
		rv = pawl_err_sys(err, "write %s", path);
	}
	if (close(fd) != 0 && rv == 0) { /* as NFS says that a disk is full */
		rv = pawl_err_sys(err, "write %s", path);
	}
	if (rv == 0 && FAULT_SYS("file.rename", rename(aside, path)) != 0) {
		rv = pawl_err_sys(err, "write %s", path);
	}
	if (rv != 0) {
		unlink(aside); /* on a full disk others can use the room */
		return rv;
	}
	return lasts ? sync_parent(path, err) : 0;
}
