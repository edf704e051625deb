/* A mirror's own directory: see workdir.h. */
#include "mirror/workdir.h"

#include "base/err.h"
#include "base/fault.h"
#include "base/file.h"
#include "mirror/units.h"
#include "mirror/walk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define INSIDE   ".pawl.mirror"
#define HALF_MAX 10000u /* numbers of one half unit */

static const struct workdir closed = {.dir_fd = -1,
	.fd = -1,
	.fetch_fd = -1,
	.half_fd = -1,
	.lock_fd = -1};

/* Fails as errno has it, and says what to do where the user may not make a directory. */
static int cannot_make(const char *dir, struct pawl_err *err)
{
	int why = errno;
	int rv = pawl_err_sys(err, "make the directory %s", dir);

	return why == EACCES || why == EPERM || why == EROFS
		? pawl_err_set(err, rv,
			  "make the directory %s: %s. Make it yourself, for the user who runs "
			  "this, or take another directory",
			  dir, strerror(why))
		: rv;
}

/* Opens the mirrored directory, and finds its path. */
static int open_dir(struct workdir *work, const char *dir, bool create, struct pawl_err *err)
{
	*work = closed;
	if (create &&
		(file_make_folders(AT_FDCWD, dir, 0777) != 0 ||
			(FAULT_SYS("workdir.make", mkdir(dir, 0777)) != 0 && errno != EEXIST))) {
		return cannot_make(dir, err);
	}
	work->dir_fd = FAULT_SYS("workdir.open", open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	if (work->dir_fd < 0 || realpath(dir, work->dir) == NULL) {
		return pawl_err_sys(err, "open the directory %s", dir);
	}
	if (strcmp(work->dir, "/") == 0) {
		return pawl_err_set(err, PAWL_EINVAL, "/ cannot be mirrored: give a directory");
	}
	return 0;
}

static int set_path(struct workdir *work, bool inside, struct pawl_err *err)
{
	const char *name = unit_base(work->dir);
	int len = inside ? snprintf(work->path, sizeof(work->path), "%s/" INSIDE, work->dir)
			 : snprintf(work->path, sizeof(work->path), "%.*s.%s.pawl",
				   (int)(name - work->dir), work->dir, name);

	return len < (int)sizeof(work->path) - 64
		? 0
		: pawl_err_set(err, PAWL_ELIMIT, "the path of %s is too long", work->dir);
}

/* Returns whether a rename from one directory to the other can work. */
static bool same_mount(int fd, int other_fd)
{
	struct statx a, b;

	return statx(fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &a) == 0 &&
		statx(other_fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &b) == 0 &&
		a.stx_dev_major == b.stx_dev_major && a.stx_dev_minor == b.stx_dev_minor &&
		a.stx_mnt_id == b.stx_mnt_id;
}

/* Checks that the own directory is fit for it. */
static int check_own(const struct workdir *work, struct pawl_err *err)
{
	struct stat st;

	if (fstat(work->fd, &st) != 0) {
		return pawl_err_sys(err, "look at %s", work->path);
	}
	if (st.st_uid != geteuid() || (st.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
		return pawl_err_set(err, PAWL_EIO, "%s belongs to, or can be changed by, others",
			work->path);
	}
	return same_mount(work->fd, work->dir_fd)
		? 0
		: pawl_err_set(err, PAWL_EIO, "%s is in another file system", work->path);
}

/* Opens the own directory at one of its two places. It must be ours alone: a socket in it takes
 * orders. */
static int open_own(struct workdir *work, bool inside, bool create, struct pawl_err *err)
{
	int rv = set_path(work, inside, err);
	bool made;

	if (rv != 0) {
		return rv;
	}
	made = create && mkdir(work->path, 0700) == 0;
	if (create && !made && errno != EEXIST) {
		return pawl_err_sys(err, "make %s", work->path);
	}
	work->fd = FAULT_SYS("workdir.own",
		open(work->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
	rv = work->fd < 0 ? pawl_err_sys(err, "open %s", work->path) : check_own(work, err);
	if (rv != 0 && work->fd >= 0) {
		close(work->fd);
		work->fd = -1;
	}
	if (rv != 0 && made) {
		rmdir(work->path);
	}
	return rv;
}

static int open_below(const struct workdir *work, const char *name, int *fd, struct pawl_err *err)
{
	if (mkdirat(work->fd, name, 0700) != 0 && errno != EEXIST) {
		return pawl_err_sys(err, "make %s/%s", work->path, name);
	}
	*fd = openat(work->fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	return *fd < 0 ? pawl_err_sys(err, "open %s/%s", work->path, name) : 0;
}

static int lock(struct workdir *work, struct pawl_err *err)
{
	struct stat st;

	work->lock_fd = file_open_plain(work->fd, "lock", O_RDWR | O_CREAT, 0600, &st);
	if (work->lock_fd < 0) {
		return pawl_err_sys(err, "open %s/lock", work->path);
	}
	if (flock(work->lock_fd, LOCK_EX | LOCK_NB) == 0) {
		return 0;
	}
	return errno == EWOULDBLOCK
		? pawl_err_set(err, PAWL_EBUSY,
			  "another pawl mirror runs for %s: see pawl mirror status", work->dir)
		: pawl_err_sys(err, "lock %s/lock", work->path);
}

int workdir_open(struct workdir *work, const char *dir, struct pawl_err *err)
{
	struct pawl_err why;
	int rv = open_dir(work, dir, true, err);

	if (rv == 0 && open_own(work, false, true, &why) != 0) {
		rv = open_own(work, true, true, err);
		rv = rv == 0 ? 0 : pawl_err_prefix(err, rv, "%s; and", why.msg);
	}
	rv = rv == 0 ? lock(work, err) : rv;
	if (rv == 0) {
		walk_remove(work->fd, "fetch");
	}
	rv = rv == 0 ? open_below(work, "fetch", &work->fetch_fd, err) : rv;
	rv = rv == 0 ? open_below(work, "half", &work->half_fd, err) : rv;
	if (rv == 0 && mkdirat(work->fd, "sealed", 0700) != 0 && errno != EEXIST) {
		rv = pawl_err_sys(err, "make %s/sealed", work->path);
	}
	if (rv != 0) {
		workdir_close(work);
		return rv;
	}
	work->crashed = faccessat(work->fd, "running", F_OK, AT_SYMLINK_NOFOLLOW) == 0;
	return 0;
}

int workdir_find(struct workdir *work, const char *dir, struct pawl_err *err)
{
	int rv = open_dir(work, dir, false, err);

	if (rv == 0 && open_own(work, false, false, NULL) != 0 &&
		open_own(work, true, false, NULL) != 0) {
		rv = pawl_err_set(err, PAWL_ENOENT, "no pawl mirror has run for %s", dir);
	}
	if (rv != 0) {
		workdir_close(work);
	}
	return rv;
}

int workdir_begin(struct workdir *work, struct pawl_err *err)
{
	struct stat st;
	int fd = FAULT_SYS("workdir.begin",
		file_open_plain(work->fd, "running", O_WRONLY | O_CREAT, 0600, &st));
	int rv = fd < 0 || fsync(fd) != 0 ? pawl_err_sys(err, "make %s/running", work->path) : 0;

	if (fd >= 0) {
		close(fd);
	}
	return rv;
}

void workdir_end(struct workdir *work)
{
	unlinkat(work->fd, "running", 0);
}

void workdir_close(struct workdir *work)
{
	const int fds[] = {work->half_fd, work->fetch_fd, work->lock_fd, work->fd, work->dir_fd};

	for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
		if (fds[i] >= 0) {
			close(fds[i]);
		}
	}
	*work = closed;
}

int workdir_put_half(struct workdir *work, const char *unit, char *where, struct pawl_err *err)
{
	for (uint32_t i = 1; i <= HALF_MAX; i++) {
		char tag[CKPT_TAG_MAX];
		char name[CKPT_TAG_MAX + 16];

		if (!unit_tag(unit, tag)) {
			break;
		}
		snprintf(name, sizeof(name), "%s.%u", tag, i);
		if (renameat2(work->dir_fd, unit, work->half_fd, name, RENAME_NOREPLACE) == 0) {
			snprintf(where, PATH_MAX, "%.*s/half/%s", PATH_MAX - 256, work->path, name);
			return 0;
		}
		if (errno != EEXIST) {
			return pawl_err_sys(err, "move %s aside", unit);
		}
	}
	return pawl_err_set(err, PAWL_ELIMIT, "move %s aside: %s/half is full", unit, work->path);
}

void workdir_socket(const struct workdir *work, struct sockaddr_un *address)
{
	*address = (struct sockaddr_un){.sun_family = AF_UNIX};
	snprintf(address->sun_path, sizeof(address->sun_path), "/proc/self/fd/%d/socket", work->fd);
}
