/* Lets one job at a time use a root: see rootlock.h. flock is used because it belongs to the open
 * file, not to the process (close-on-exec ends it). The root may be another user's, or one that
 * others write to: a file there with the lock's name could be a link that would have us write into
 * a file of our own. */
#include "ckpt/rootlock.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/text.h"
#include "base/times.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LOCK_NAME  ".pawl-lock"
#define HOLDER_MAX 512u /* bytes of the holder's line, terminator included */

/* Reads the holder's line in the lock file; "another job" if there is none yet. Any user who may
 * write to the root can have written the text. */
static void read_holder(int fd, char holder[HOLDER_MAX])
{
	char text[HOLDER_MAX];
	ssize_t n = pread(fd, text, sizeof(text) - 1, 0);

	text[n > 0 ? n : 0] = '\0';
	text[strcspn(text, "\n")] = '\0';
	text_escape(holder, HOLDER_MAX, text[0] != '\0' ? text : "another job");
}

/* Opens the lock file of the root, a plain file with no other name. Returns a descriptor. */
static int open_lock(const char *root, struct pawl_err *err)
{
	int dir = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct stat st;
	int fd;

	if (dir < 0) {
		return pawl_err_sys(err, "root %s", root);
	}
	fd = FAULT_SYS("rootlock.open", 0) != 0
		? pawl_err_sys(err, "root %s: open the lock file", root)
		: file_open_beneath(dir, root, LOCK_NAME, O_RDWR | O_CREAT, 0600, BENEATH_ANY, &st,
			  err);
	if (fd == PAWL_EINVAL) {
		fd = pawl_err_set(err, PAWL_EIO,
			"root %s: its lock file is %s: remove %s/" LOCK_NAME ", then try again",
			root, file_kind(dir, LOCK_NAME), root);
	} else if (fd < 0) {
		pawl_err_prefix(err, fd, "root %s: open the lock file", root);
	}
	close(dir);
	if (fd >= 0 && st.st_nlink > 1) {
		close(fd);
		return pawl_err_set(err, PAWL_EIO,
			"%s/" LOCK_NAME " is a file that has another name as well: remove it",
			root);
	}
	return fd;
}

int rootlock_take(const char *root, const char *job, struct pawl_err *err)
{
	char text[HOLDER_MAX];
	char host[128] = "?";
	int fd = open_lock(root, err);
	int rv;

	if (fd < 0) {
		return fd;
	}
	if (FAULT_SYS("rootlock.lock", flock(fd, LOCK_EX | LOCK_NB)) != 0) {
		if (errno == EWOULDBLOCK) {
			read_holder(fd, text);
			rv = pawl_err_set(err, PAWL_EBUSY,
				"root %s is in use by %s; job %s cannot use it too: give it a root "
				"of its own",
				root, text, job);
		} else {
			rv = pawl_err_sys(err, "root %s: lock", root);
		}
		goto close_file;
	}
	gethostname(host, sizeof(host) - 1);
	snprintf(text, sizeof(text), "job %s (pid %d on %s)\n", job, (int)getpid(), host);
	if (ftruncate(fd, 0) != 0 || pwrite(fd, text, strlen(text), 0) < 0) {
		rv = pawl_err_sys(err, "root %s: write the lock file", root);
		goto close_file;
	}
	return fd;
close_file:
	close(fd);
	return rv;
}

int rootlock_await(const char *root, const char *job, struct pawl_err *err)
{
	int64_t due_ns = clock_mono_ns() + times_ns(TIME_ROOTLOCK_WAIT);
	int rv;

	while ((rv = rootlock_take(root, job, err)) == PAWL_EBUSY && clock_mono_ns() < due_ns) {
		times_sleep(TIME_ROOTLOCK_LOOK);
	}
	return rv;
}

bool rootlock_holds(const char *root, int fd)
{
	char path[PATH_MAX];
	struct stat named;
	struct stat ours;

	snprintf(path, sizeof(path), "%s/" LOCK_NAME, root);
	return lstat(path, &named) == 0 && fstat(fd, &ours) == 0 && named.st_dev == ours.st_dev &&
		named.st_ino == ours.st_ino;
}
