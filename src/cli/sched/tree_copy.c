/* See tree_copy.h. Each file is written under another name and renamed. Directories are closed to
 * other users until they are full, so that nobody can put a link where the next file goes. */
#include "cli/sched/tree_copy.h"

#include "base/beneath.h"
#include "base/err.h"
#include "base/file.h"
#include "cli/interrupt.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BLOCK_BYTES (1u << 20)
#define DEPTH_MAX   200u /* nesting of directories, at most: each has two descriptors open */
#define ASIDE_BYTES 40u  /* bytes of the name of a file that is being written */

/* The place that one file, link or directory is copied to. */
struct place {
	int dir_fd;
	char name[NAME_MAX + 1]; /* name in dir_fd; "": dir_fd itself is filled */
};

/* ---- reading ---- */

/* Opens a file or directory for reading, and everything else by O_PATH alone: opening a device or a
 * FIFO may have effects. *st describes what was opened. Returns -1 with errno set. */
static int open_as_owner(int dir_fd, const char *name, struct stat *st)
{
	int fd = openat(dir_fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);

	*st = (struct stat){0};
	if (fd < 0 || fstat(fd, st) != 0) {
		return fd;
	}
	if (S_ISREG(st->st_mode) || S_ISDIR(st->st_mode)) {
		close(fd);
		fd = openat(dir_fd, name,
			O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
		if (fd >= 0 && fstat(fd, st) != 0) {
			st->st_mode = 0;
		}
	}
	return fd;
}

static int open_source(struct tree_copy *copy, int dir_fd, const char *name, int *fd,
	struct stat *st, struct pawl_err *err)
{
	int rv = as_user_begin(copy->as, err);

	if (rv == 0) {
		*fd = open_as_owner(dir_fd, name, st);
		as_user_end(copy->as);
		rv = *fd < 0 ? pawl_err_sys(err, "%s", copy->path) : 0;
	}
	return rv;
}

/* Opens the source. A link of another user's may lead to a file of the caller's that this user
 * could not read. Root need not fear that, as it reads with that user's rights. */
static int open_named(const struct tree_copy *copy, const char *from, struct stat *st,
	struct pawl_err *err)
{
	const int flags = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
	bool foreign = geteuid() != 0 && geteuid() != copy->uid;
	int root = foreign ? open("/", O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
	int fd = root >= 0 && from[0] == '/'
		? beneath_open(root, from + strspn(from, "/"), flags, 0, BENEATH_ANY)
		: -1;
	bool linked = foreign && fd < 0;

	if (root >= 0) {
		close(root);
	}
	fd = fd < 0 ? open(from, flags) : fd;
	if (fd < 0 || fstat(fd, st) != 0) {
		return pawl_err_sys(err, "%s", from);
	}
	if (linked && st->st_uid == geteuid()) {
		close(fd);
		return pawl_err_set(err, PAWL_EINVAL,
			"%s leads through a link to a file of your own, not of the job: copy it "
			"with cp",
			from);
	}
	if (!S_ISREG(st->st_mode) && !S_ISDIR(st->st_mode)) {
		close(fd);
		return pawl_err_set(err, PAWL_EINVAL,
			"%s is %s: only files and directories can be copied", from,
			file_mode_kind(st->st_mode));
	}
	return fd;
}

/* ---- a file ---- */

static bool write_all(int fd, const char *bytes, size_t len_bytes)
{
	while (len_bytes > 0) {
		ssize_t n = write(fd, bytes, len_bytes);

		if (n < 0 && errno != EINTR) {
			return false;
		}
		bytes += n > 0 ? n : 0;
		len_bytes -= n > 0 ? (size_t)n : 0;
	}
	return true;
}

/* Copies a block with copy_file_range, which the file system may do without moving bytes, or else
 * with read and write. Returns 0 at the end of the file, -1 with errno set. */
static ssize_t copy_block(int to, int from, char *block, size_t len_bytes, bool *by_kernel)
{
	ssize_t n = *by_kernel ? copy_file_range(from, NULL, to, NULL, len_bytes, 0) : -1;

	if (n >= 0) {
		return n;
	}
	*by_kernel = false; /* use read and write for the rest */
	do {
		n = read(from, block, len_bytes);
	} while (n < 0 && errno == EINTR);
	return n > 0 && !write_all(to, block, (size_t)n) ? -1 : n;
}

/* Copies the bytes between two holes, from *at up to end. *at: where the copy ended, before end if
 * the file is shorter by now. */
static int copy_data(int to, int from, off_t *at, off_t end, char *block, struct pawl_err *err)
{
	bool by_kernel = true;
	ssize_t n = 1;
	int rv = interrupt_check(err);

	while (rv == 0 && *at < end && n > 0) {
		size_t len = end - *at < (off_t)BLOCK_BYTES ? (size_t)(end - *at) : BLOCK_BYTES;

		n = copy_block(to, from, block, len, &by_kernel);
		*at += n > 0 ? n : 0;
		rv = n < 0 ? pawl_err_sys(err, "copy") : interrupt_check(err);
	}
	return rv;
}

/* Copies as many bytes as the file had when it was opened, or fewer if it is shorter by now; holes
 * stay holes. */
static int copy_bytes(int to, int from, off_t size, struct pawl_err *err)
{
	char *block = malloc(BLOCK_BYTES);
	off_t at = 0;
	int rv = block ? 0 : pawl_err_set(err, PAWL_ENOMEM, "no memory to copy");

	while (rv == 0 && at < size) {
		off_t data = lseek(from, at, SEEK_DATA);
		off_t hole = data >= 0 ? lseek(from, data, SEEK_HOLE) : -1;

		if (data < 0 && errno == ENXIO) {
			break; /* a hole up to the file's end */
		}
		at = data >= 0 ? data : at; /* data < 0: the file system knows no holes */
		hole = hole > at && hole < size ? hole : size;
		if (lseek(from, at, SEEK_SET) < 0 || lseek(to, at, SEEK_SET) < 0) {
			rv = pawl_err_sys(err, "copy");
		}
		rv = rv == 0 ? copy_data(to, from, &at, hole, block, err) : rv;
		size = at < hole ? at : size;
	}
	free(block);
	return rv == 0 && ftruncate(to, size) != 0 ? pawl_err_sys(err, "copy") : rv;
}

/* Returns the permissions of the source, without those that the umask removes. */
static mode_t mode_of(const struct tree_copy *copy, const struct stat *st)
{
	return st->st_mode & 0777 & ~copy->mask;
}

static int finish(const struct tree_copy *copy, int fd, const struct stat *st, mode_t more,
	struct pawl_err *err)
{
	const struct timespec times[2] = {st->st_atim, st->st_mtim};

	return fchmod(fd, mode_of(copy, st) | more) == 0 && futimens(fd, times) == 0
		? 0
		: pawl_err_sys(err, "set the copy's mode and times");
}

static const char *name_aside(char name[ASIDE_BYTES])
{
	snprintf(name, ASIDE_BYTES, ".pawl-cp-%d", (int)getpid());
	return name;
}

/* Gives the finished copy its name or, after an error, removes it. */
static int put_in_place(const struct place *to, const char *aside, int rv, struct pawl_err *err)
{
	if (rv == 0 && renameat(to->dir_fd, aside, to->dir_fd, to->name) != 0) {
		rv = pawl_err_sys(err, "put %s in place", to->name);
	}
	if (rv != 0) {
		unlinkat(to->dir_fd, aside, 0);
	}
	return rv;
}

static int put_file(const struct tree_copy *copy, const struct place *to, int from,
	const struct stat *st, struct pawl_err *err)
{
	char aside[ASIDE_BYTES];
	int fd;
	int rv;

	unlinkat(to->dir_fd, name_aside(aside), 0); /* left by a command that was killed */
	fd = openat(to->dir_fd, aside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0) {
		return pawl_err_sys(err, "make the copy of %s", copy->path);
	}
	rv = copy_bytes(fd, from, st->st_size, err);
	rv = rv == 0 ? finish(copy, fd, st, S_IRUSR | S_IWUSR, err) : rv;
	if (close(fd) != 0 && rv == 0) { /* NFS reports a full disk here */
		rv = pawl_err_sys(err, "write");
	}
	rv = put_in_place(to, aside, rv, err);
	return rv == 0 ? 0 : pawl_err_prefix(err, rv, "%s", copy->path);
}

/* ---- a link ---- */

/* Returns whether a link, depth directories below the top of what is copied, leads to a place in
 * that: up first, and then only down. Names on its path may be links, but of this kind, too. */
static bool leads_inside(const char *link, unsigned depth)
{
	bool down = false;

	if (link[0] == '/') {
		return false;
	}
	while (*link != '\0') {
		size_t len = strcspn(link, "/");

		if (len == 2 && link[0] == '.' && link[1] == '.') {
			if (down || depth == 0) {
				return false;
			}
			depth--;
		} else if (len > 0 && !(len == 1 && link[0] == '.')) {
			down = true;
		}
		link += len + (link[len] == '/');
	}
	return true;
}

static int put_link(const struct tree_copy *copy, const struct place *to, int link_fd,
	const struct stat *st, unsigned depth, struct pawl_err *err)
{
	char aside[ASIDE_BYTES];
	char link[PATH_MAX];
	ssize_t len = readlinkat(link_fd, "", link, sizeof(link) - 1);
	int rv = 0;

	if (len < 0) {
		return pawl_err_sys(err, "%s", copy->path);
	}
	link[len] = '\0';
	if (st->st_uid != geteuid() && !leads_inside(link, depth)) {
		copy->left_out(copy->user, copy->path,
			"another user's symbolic link that leads out of what is copied", false);
		return 0;
	}
	unlinkat(to->dir_fd, name_aside(aside), 0);
	if (symlinkat(link, to->dir_fd, aside) != 0) {
		rv = pawl_err_sys(err, "make the copy");
	}
	rv = put_in_place(to, aside, rv, err);
	return rv == 0 ? 0 : pawl_err_prefix(err, rv, "%s", copy->path);
}

/* ---- a directory ---- */

static int put_dir(struct tree_copy *copy, const struct place *to, int from, const struct stat *st,
	unsigned depth, struct pawl_err *err);

/* Copies what fd is open on, depth directories below the top. Takes fd. */
static int put_found(struct tree_copy *copy, const struct place *to, int fd, const struct stat *st,
	unsigned depth, struct pawl_err *err)
{
	int rv = 0;

	if (S_ISREG(st->st_mode)) {
		rv = put_file(copy, to, fd, st, err);
	} else if (S_ISLNK(st->st_mode)) {
		rv = put_link(copy, to, fd, st, depth, err);
	} else if (!S_ISDIR(st->st_mode)) {
		copy->left_out(copy->user, copy->path, file_mode_kind(st->st_mode), false);
	} else if (st->st_dev == copy->top.st_dev && st->st_ino == copy->top.st_ino) {
		copy->left_out(copy->user, copy->path, "the destination of the copy", false);
	} else if (depth == DEPTH_MAX) {
		rv = pawl_err_set(err, PAWL_ELIMIT, "%s: more than %u directories deep", copy->path,
			DEPTH_MAX);
	} else {
		return put_dir(copy, to, fd, st, depth + 1, err); /* put_dir takes fd */
	}
	close(fd);
	return rv;
}

static int put_entry(struct tree_copy *copy, int dir_fd, const struct place *to, unsigned depth,
	struct pawl_err *err)
{
	size_t len = strlen(copy->path);
	struct pawl_err why;
	struct stat st;
	int fd;
	int rv = interrupt_check(err);

	if (rv != 0) {
		return rv;
	}
	if ((size_t)snprintf(copy->path + len, sizeof(copy->path) - len, "/%s", to->name) >=
		sizeof(copy->path) - len) {
		rv = pawl_err_set(err, PAWL_ELIMIT, "%.200s…: the path is too long", copy->path);
	} else if (open_source(copy, dir_fd, to->name, &fd, &st, &why) != 0) {
		copy->left_out(copy->user, copy->path, why.msg, true);
	} else {
		rv = put_found(copy, to, fd, &st, depth, err);
	}
	copy->path[len] = '\0';
	return rv;
}

/* Copies all that is in a directory. Takes from. */
static int fill(struct tree_copy *copy, int to, int from, unsigned depth, struct pawl_err *err)
{
	DIR *dir = fdopendir(from);
	struct dirent *entry;
	int rv = 0;

	if (!dir) {
		rv = pawl_err_sys(err, "%s", copy->path);
		close(from);
		return rv;
	}
	while (rv == 0 && (errno = 0, entry = readdir(dir)) != NULL) {
		struct place place = {.dir_fd = to};

		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
			snprintf(place.name, sizeof(place.name), "%s", entry->d_name);
			rv = put_entry(copy, dirfd(dir), &place, depth, err);
		}
	}
	if (rv == 0 && errno != 0) {
		rv = pawl_err_sys(err, "%s", copy->path);
	}
	closedir(dir);
	return rv;
}

/* Opens a directory, and makes it if it is missing. Returns -1 with errno set. */
static int open_made(const struct place *to, bool *made)
{
	*made = mkdirat(to->dir_fd, to->name, 0700) == 0;
	return *made || errno == EEXIST
		? beneath_open(to->dir_fd, to->name, O_RDONLY | O_DIRECTORY, 0, BENEATH_ANY)
		: -1;
}

/* Copies a directory. Takes from. */
static int put_dir(struct tree_copy *copy, const struct place *to, int from, const struct stat *st,
	unsigned depth, struct pawl_err *err)
{
	struct stat there;
	bool made = false;
	int fd = to->name[0] != '\0' ? open_made(to, &made) : fcntl(to->dir_fd, F_DUPFD_CLOEXEC, 0);
	int rv;

	if (fd < 0 || fstat(fd, &there) != 0) {
		rv = errno == ENOTDIR || errno == ELOOP
			? pawl_err_set(err, PAWL_EEXIST,
				  "%s: its copy cannot replace a file or link: a directory is "
				  "needed there",
				  copy->path)
			: pawl_err_sys(err, "make the copy of %s", copy->path);
		close(from);
		return rv;
	}
	copy->top = depth == 0 ? there : copy->top;
	rv = fill(copy, fd, from, depth, err);
	if (rv == 0 && made) {
		rv = finish(copy, fd, st, S_IRWXU | (there.st_mode & S_ISGID), err);
	}
	close(fd);
	return rv;
}

/* ---- the destination ---- */

/* Takes the last name of a path, without the slashes after it; "" for . and .. */
static void take_name(const char *path, char name[NAME_MAX + 1])
{
	size_t end = strlen(path);
	size_t start;

	while (end > 0 && path[end - 1] == '/') {
		end--;
	}
	start = end;
	while (start > 0 && path[start - 1] != '/') {
		start--;
	}
	snprintf(name, NAME_MAX + 1, "%.*s", (int)(end - start), path + start);
	if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0) {
		name[0] = '\0';
	}
}

static int open_place(struct place *to, const char *dir, struct pawl_err *err)
{
	to->dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return to->dir_fd >= 0 ? 0 : pawl_err_sys(err, "%s", dir);
}

/* Places the copy under the last name of path, in the directory above it. */
static int place_as(struct place *to, const char *path, struct pawl_err *err)
{
	char parent[PATH_MAX];
	size_t len = strlen(path);

	while (len > 1 && path[len - 1] == '/') {
		len--;
	}
	while (len > 0 && path[len - 1] != '/') {
		len--;
	}
	take_name(path, to->name);
	if (to->name[0] == '\0' ||
		(size_t)snprintf(parent, sizeof(parent), "%.*s", len > 0 ? (int)len : 1,
			len > 0 ? path : ".") >= sizeof(parent)) {
		return pawl_err_set(err, PAWL_EINVAL, "%s does not end in a name for the copy",
			path);
	}
	return open_place(to, parent, err);
}

/* Finds the place of the copy. The caller's own links are followed. */
static int find_place(struct place *to, const char *from, const char *path, bool file,
	struct pawl_err *err)
{
	char real[PATH_MAX];
	struct stat st;

	if (stat(path, &st) == 0) {
		if (S_ISDIR(st.st_mode)) {
			take_name(from, to->name);
			return open_place(to, path, err);
		}
		if (!file || !S_ISREG(st.st_mode) || !realpath(path, real)) {
			return pawl_err_set(err, PAWL_EEXIST,
				"%s is %s already: it is not replaced", path,
				file_mode_kind(st.st_mode));
		}
		return place_as(to, real, err);
	}
	if (errno != ENOENT || lstat(path, &st) == 0) {
		return pawl_err_sys(err, "%s", path);
	}
	if (file && path[0] != '\0' && path[strlen(path) - 1] == '/') {
		return pawl_err_set(err, PAWL_ENOENT, "%s: there is no such directory", path);
	}
	return place_as(to, path, err);
}

int tree_copy(struct tree_copy *copy, const char *from, const char *to, struct pawl_err *err)
{
	struct place place = {.dir_fd = -1};
	struct stat st;
	int fd;
	int rv = as_user_begin(copy->as, err);

	if (rv != 0) {
		return rv;
	}
	fd = open_named(copy, from, &st, err);
	as_user_end(copy->as);
	if (fd < 0) {
		return fd;
	}
	copy->mask = umask(0);
	umask(copy->mask);
	snprintf(copy->path, sizeof(copy->path), "%s", from);
	rv = find_place(&place, from, to, S_ISREG(st.st_mode), err);
	if (rv != 0 || S_ISREG(st.st_mode)) {
		rv = rv == 0 ? put_file(copy, &place, fd, &st, err) : rv;
		close(fd);
	} else {
		rv = put_dir(copy, &place, fd, &st, 0, err);
	}
	if (place.dir_fd >= 0) {
		close(place.dir_fd);
	}
	return rv;
}
