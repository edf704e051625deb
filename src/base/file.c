/* Files put in place whole (a new file, sync, rename, sync); plain files opened without trust;
 * folders: see file.h. */
#include "base/file.h"

#include "base/assert.h"
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

int file_put(const char *path, const void *bytes, size_t len_bytes, mode_t mode, bool lasts,
	struct pawl_err *err)
{
	char aside[PATH_MAX];
	int rv = 0;
	int fd;

	if ((size_t)snprintf(aside, sizeof(aside), "%s.new", path) >= sizeof(aside)) {
		return pawl_err_set(err, PAWL_EINVAL, "write %s: path too long", path);
	}
	unlink(aside); /* left by an interrupted write, or another user's link */
	fd = open(aside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
	if (fd < 0) {
		return pawl_err_sys(err, "write %s", path);
	}
	if (!write_all(fd, bytes, len_bytes) || (lasts && FAULT_SYS("file.sync", fsync(fd)) != 0)) {
		rv = pawl_err_sys(err, "write %s", path);
	}
	if (close(fd) != 0 && rv == 0) { /* NFS reports a full disk only here */
		rv = pawl_err_sys(err, "write %s", path);
	}
	if (rv == 0 && FAULT_SYS("file.rename", rename(aside, path)) != 0) {
		rv = pawl_err_sys(err, "write %s", path);
	}
	if (rv != 0) {
		unlink(aside); /* frees the space if the disk is full */
		return rv;
	}
	return lasts ? sync_parent(path, err) : 0;
}

/* ---- plain files ---- */

/* Returns fd if a plain file is open there; else closes it. *st describes the opened file, or is
 * zeroed. */
static int keep_plain(int fd, struct stat *st)
{
	int sys;

	*st = (struct stat){0};
	if (fd < 0) {
		return -1;
	}
	if (fstat(fd, st) != 0) {
		sys = errno;
	} else if (S_ISREG(st->st_mode)) {
		return fd;
	} else {
		sys = S_ISDIR(st->st_mode) ? EISDIR : ENXIO; /* as open(2) refuses such files */
	}
	close(fd);
	errno = sys;
	return -1;
}

int file_open_plain(int dir_fd, const char *path, int flags, mode_t mode, struct stat *st)
{
	int follow = (flags & O_ACCMODE) == O_RDONLY ? 0 : O_NOFOLLOW;

	return keep_plain(
		openat(dir_fd, path, flags | follow | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, mode), st);
}

bool file_is_special(int sys)
{
	return sys == EISDIR || sys == ENXIO || sys == ELOOP || sys == ENODEV;
}

const char *file_mode_kind(mode_t mode)
{
	static const struct {
		mode_t type;
		const char *name;
	} others[] = {{S_IFLNK, "a symbolic link"}, {S_IFDIR, "a directory"}, {S_IFIFO, "a FIFO"},
		{S_IFSOCK, "a socket"}, {S_IFCHR, "a device"}, {S_IFBLK, "a device"}};

	for (int i = 0; i < (int)(sizeof(others) / sizeof(*others)); i++) {
		if ((mode & S_IFMT) == others[i].type) {
			return others[i].name;
		}
	}
	return "a plain file";
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
	return file_mode_kind(mode);
}

/* Describes a file that could not be opened as a plain file: by its mode, or by errno. */
static const char *name_special(int sys, mode_t mode)
{
	if (mode != 0) {
		return file_mode_kind(mode);
	}
	return sys == EISDIR                    ? "a directory"
		: sys == ENXIO || sys == ENODEV ? "a FIFO, a socket or a device"
						: "behind a symbolic link, or one itself";
}

int file_open_beneath(int dir_fd, const char *dir, const char *path, int flags, mode_t mode,
	enum beneath how, struct stat *st, struct pawl_err *err)
{
	int fd;

	ASSERT((flags & O_TRUNC) == 0);
	fd = keep_plain(beneath_open(dir_fd, path, flags, mode, how), st);
	if (fd < 0 && (file_is_special(errno) || errno == ENOTDIR)) {
		return pawl_err_set(err, PAWL_EINVAL, "%s/%s is %s: a plain file is needed", dir,
			path, name_special(errno, st->st_mode));
	}
	return fd >= 0 ? fd : pawl_err_sys(err, "%s/%s", dir, path);
}

/* ---- folders ---- */

size_t file_next_folder(const char *path, size_t last_bytes)
{
	const char *slash = path[last_bytes] != '\0' ? strchr(path + last_bytes + 1, '/') : NULL;

	ASSERT(last_bytes == 0 || path[last_bytes] == '/'); /* an earlier result for this path */
	return slash ? (size_t)(slash - path) : 0;
}

int file_make_folders(int dir_fd, const char *path, mode_t mode)
{
	char folder[PATH_MAX];

	for (size_t len = 0; (len = file_next_folder(path, len)) > 0;) {
		if (len >= sizeof(folder)) {
			errno = ENAMETOOLONG;
			return -1;
		}
		snprintf(folder, sizeof(folder), "%.*s", (int)len, path);
		if (mkdirat(dir_fd, folder, mode) != 0 && errno != EEXIST) {
			return -1;
		}
	}
	return 0;
}
