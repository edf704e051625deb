/*
 * A store in a directory: names and small files; posix_io.c has the files for transfers.
 *
 * Everything is relative to a descriptor of the root, so the store works on after the root is
 * renamed. Once the root is removed, every call but remove fails with PAWL_EIO until the store is
 * opened again.
 */
#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/file.h"
#include "store/posix_impl.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Static_assert(offsetof(struct posix_store, store) == 0, "a store is converted to its kind");
_Static_assert(STORE_DEPTH <= AIO_DEPTH_MAX, "all transfers of a store can be in flight");

#define FILE_MODE 0666 /* reduced by the umask, as for files of torch.save */
#define DIR_MODE  0777 /* reduced by the umask */

/* Returns the name for *at calls, where "" is the root. */
static const char *dir_name(const char *path)
{
	return path[0] != '\0' ? path : ".";
}

/* Returns whether the root was removed. Its descriptor still works, but nothing can be found or
 * made in it. */
static bool is_root_gone(const struct posix_store *ps)
{
	struct stat st;

	return ps->counts_links && (fstat(ps->root_fd, &st) != 0 || st.st_nlink == 0);
}

int posix_fail(const struct posix_store *ps, struct pawl_err *err, const char *verb,
	const char *path)
{
	int sys = errno;

	if (sys == ENOENT && is_root_gone(ps)) {
		return pawl_err_set(err, PAWL_EIO, "%s %s: the store's own directory was removed",
			verb, dir_name(path));
	}
	errno = sys;
	return pawl_err_sys(err, "%s %s", verb, dir_name(path));
}

int posix_dir_fd(const struct posix_store *ps, const char *path)
{
	return path[0] == '.' && ps->hidden_fd >= 0 ? ps->hidden_fd : ps->root_fd;
}

/* Sets the error for a name of something other than a plain file. kind: what it is; "": unknown. */
static int refuse_other(bool create, const char *path, const char *kind, struct pawl_err *err)
{
	return pawl_err_set(err, create ? PAWL_EIO : PAWL_EINVAL, "%s %s: not a file%s%s",
		create ? "write" : "open", path, kind[0] != '\0' ? ", but " : "", kind);
}

int posix_open_regular(const struct posix_store *ps, const char *path, int flags, struct stat *st,
	struct pawl_err *err)
{
	bool create = (flags & O_CREAT) != 0;
	int at = posix_dir_fd(ps, path);
	int fd = FAULT_SYS(create ? "store.create" : "store.open",
		file_open_plain(at, path, flags, FILE_MODE, st));

	if (fd < 0 && file_is_special(errno)) {
		return refuse_other(create, path, file_kind(at, path), err);
	}
	if (fd < 0 && errno == ENOTDIR) {
		errno = ENOENT; /* nothing lies in something that is no directory */
	}
	if (fd < 0) {
		return posix_fail(ps, err, create ? "create" : "open", path);
	}
	if (FAULT_SYS("store.stat", 0) != 0) {
		int rv = posix_fail(ps, err, "stat", path);

		close(fd);
		return rv;
	}
	return fd;
}

/* ---- small files ---- */

static int write_all(int fd, const char *bytes, size_t len_bytes)
{
	while (len_bytes > 0) {
		ssize_t n = FAULT_SYS("store.write", write(fd, bytes, len_bytes));

		if (n < 0 && errno != EINTR) {
			return -1;
		}
		if (n > 0) {
			bytes += n;
			len_bytes -= (size_t)n;
		}
	}
	return 0;
}

static int posix_write_small(struct store *store, const char *path, const void *bytes,
	size_t len_bytes, struct pawl_err *err)
{
	struct posix_store *ps = (struct posix_store *)store;
	struct stat st;
	int fd = posix_open_regular(ps, path, O_WRONLY | O_CREAT | O_TRUNC, &st, err);
	int rv = 0;

	if (fd < 0) {
		return fd;
	}
	if (write_all(fd, bytes, len_bytes) != 0) {
		rv = posix_fail(ps, err, "write", path);
	} else if (FAULT_SYS("store.sync", fsync(fd)) != 0) {
		rv = posix_fail(ps, err, "sync", path);
	}
	close(fd);
	return rv;
}

static int posix_append_small(struct store *store, const char *path, const void *bytes,
	size_t len_bytes, bool sync, struct pawl_err *err)
{
	struct posix_store *ps = (struct posix_store *)store;
	struct stat st;
	int fd = posix_open_regular(ps, path, O_WRONLY | O_CREAT | O_APPEND, &st, err);
	ssize_t n;
	int rv = 0;

	if (fd < 0) {
		return fd;
	}
	do {
		n = FAULT_SYS("store.write", write(fd, bytes, len_bytes));
	} while (n < 0 && errno == EINTR);
	if (n < 0) {
		rv = posix_fail(ps, err, "append to", path);
	} else if ((size_t)n < len_bytes) {
		rv = pawl_err_set(err, PAWL_ENOSPC, "append to %s: %zd of %zu bytes written", path,
			n, len_bytes);
	} else if (sync && FAULT_SYS("store.sync", fsync(fd)) != 0) {
		rv = posix_fail(ps, err, "sync", path);
	}
	close(fd);
	return rv;
}

/* Reads len_bytes, or fewer where the file ends. Returns how many, or -1. */
static ssize_t read_all(int fd, char *bytes, size_t len_bytes)
{
	size_t done = 0;

	while (done < len_bytes) {
		ssize_t n = FAULT_SYS("store.read", read(fd, bytes + done, len_bytes - done));

		if (n < 0 && errno != EINTR) {
			return -1;
		}
		if (n == 0) {
			break;
		}
		done += n > 0 ? (size_t)n : 0;
	}
	return (ssize_t)done;
}

static int posix_read_small(struct store *store, const char *path, void **bytes, size_t *len_bytes,
	size_t max_bytes, struct pawl_err *err)
{
	struct posix_store *ps = (struct posix_store *)store;
	struct stat st = {0};
	int fd = posix_open_regular(ps, path, O_RDONLY, &st, err);
	char *copy = NULL;
	ssize_t n;
	int rv;

	if (fd < 0) {
		return fd;
	}
	if ((uint64_t)st.st_size > max_bytes) {
		rv = pawl_err_set(err, PAWL_ELIMIT, "read %s: %lld bytes, at most %zu", path,
			(long long)st.st_size, max_bytes);
		goto close_fd;
	}
	copy = FAULT_MEM("store.alloc", malloc((size_t)st.st_size + 1));
	if (copy == NULL) {
		rv = pawl_err_set(err, PAWL_ENOMEM, "read %s: out of memory", path);
		goto close_fd;
	}
	n = read_all(fd, copy, (size_t)st.st_size);
	if (n < 0) {
		rv = posix_fail(ps, err, "read", path);
		goto close_fd;
	}
	copy[n] = '\0';
	*bytes = copy;
	*len_bytes = (size_t)n;
	copy = NULL;
	rv = 0;
close_fd:
	free(copy);
	close(fd);
	return rv;
}

/* ---- names ---- */

static int posix_mkdir(struct store *store, const char *path, struct pawl_err *err)
{
	struct posix_store *ps = (struct posix_store *)store;
	struct stat st;

	if (FAULT_SYS("store.mkdir", mkdirat(posix_dir_fd(ps, path), path, DIR_MODE)) == 0) {
		return 0;
	}
	if (errno == EEXIST && fstatat(posix_dir_fd(ps, path), path, &st, 0) == 0 &&
		S_ISDIR(st.st_mode)) {
		return 0;
	}
	return posix_fail(ps, err, "make directory", path);
}

/* Opens a directory. Returns a descriptor, or -1 and errno. A root that is gone would still open,
 * and is an error here. */
static int open_dir_fd(const struct posix_store *ps, const char *path)
{
	if (is_root_gone(ps)) {
		errno = ENOENT;
		return -1;
	}
	return FAULT_SYS("store.open",
		openat(posix_dir_fd(ps, path), dir_name(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

static int posix_sync_dir(struct store *store, const char *path, struct pawl_err *err)
{
	struct posix_store *ps = (struct posix_store *)store;
	int fd = open_dir_fd(ps, path);
	int rv = 0;

	if (fd >= 0 && path[0] == '\0' && ps->hidden_fd >= 0 &&
		FAULT_SYS("store.sync_dir", fsync(ps->hidden_fd)) != 0) {
		rv = posix_fail(ps, err, "sync directory", path);
		close(fd);
		return rv;
	}

	if (fd < 0) {
		return posix_fail(ps, err, "open directory", path);
	}
	if (FAULT_SYS("store.sync_dir", fsync(fd)) != 0) {
		rv = posix_fail(ps, err, "sync directory", path);
	}
	close(fd);
	return rv;
}

static int posix_stat(struct store *store, const char *path, enum store_kind *kind,
	uint64_t *size_bytes, struct pawl_err *err)
{
	struct posix_store *ps = (struct posix_store *)store;
	struct stat st;
	int at = posix_dir_fd(ps, path);
	int rc = FAULT_SYS("store.stat", fstatat(at, dir_name(path), &st, 0));

	if (rc != 0 && (errno == ENOENT || errno == ELOOP)) {
		/* For a link that leads nowhere, describes the link. */
		rc = fstatat(at, path, &st, AT_SYMLINK_NOFOLLOW);
	}
	if (rc != 0 && (errno == ENOTDIR || errno == ELOOP)) {
		errno = ENOENT; /* nothing lies in something that is no directory */
	}
	if (rc == 0 && path[0] == '\0' && is_root_gone(ps)) {
		errno = ENOENT;
		rc = -1;
	}
	if (rc != 0) {
		return posix_fail(ps, err, "stat", path);
	}
	*kind = S_ISREG(st.st_mode) ? STORE_FILE : S_ISDIR(st.st_mode) ? STORE_DIR : STORE_OTHER;
	*size_bytes = S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
	return 0;
}

/* Returns the next name in dir except "." and "..": NULL with errno 0 at the end, or with errno set
 * on failure. */
static const struct dirent *read_name(DIR *dir)
{
	const struct dirent *entry;

	do {
		errno = 0;
		entry = FAULT_MEM("store.list", readdir(dir));
	} while (entry != NULL &&
		(strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0));
	return entry;
}

/* Opens a stream for fd, which it owns from now on, and which may be -1 with errno set. Returns
 * NULL and errno on failure. */
static DIR *read_dir(int fd)
{
	DIR *dir = fd >= 0 ? FAULT_MEM("store.alloc", fdopendir(fd)) : NULL;
	int sys = errno;

	if (fd >= 0 && dir == NULL) {
		close(fd);
		errno = sys;
	}
	return dir;
}

static enum store_kind kind_of(DIR *dir, const struct dirent *entry)
{
	struct stat st;

	if (entry->d_type != DT_UNKNOWN && entry->d_type != DT_LNK) {
		return entry->d_type == DT_DIR ? STORE_DIR : STORE_FILE;
	}
	if (fstatat(dirfd(dir), entry->d_name, &st, 0) == 0 && S_ISDIR(st.st_mode)) {
		return STORE_DIR;
	}
	return STORE_FILE;
}

/* Selects the names of a directory to list. */
enum names { NAMES_ALL, NAMES_SHOWN, NAMES_HIDDEN };

/* Lists a directory by fd, which it owns from now on, and which may be -1 with errno set. Returns 1
 * if each() has stopped the listing. */
static int list_fd(const struct posix_store *ps, int fd, const char *path, enum names which,
	store_list_fn *each, void *user, struct pawl_err *err)
{
	DIR *dir = read_dir(fd);
	const struct dirent *entry;
	int rv = 0;

	if (dir == NULL) {
		return posix_fail(ps, err, "list", path);
	}
	while (rv == 0 && (entry = read_name(dir)) != NULL) {
		bool hidden = entry->d_name[0] == '.';

		if (which == NAMES_ALL || hidden == (which == NAMES_HIDDEN)) {
			rv = each(user, entry->d_name, kind_of(dir, entry)) != 0;
		}
	}
	if (rv == 0 && errno != 0) {
		rv = posix_fail(ps, err, "list", path);
	}
	closedir(dir);
	return rv;
}

static int posix_list(struct store *store, const char *path, store_list_fn *each, void *user,
	struct pawl_err *err)
{
	struct posix_store *ps = (struct posix_store *)store;
	bool split = path[0] == '\0' && ps->hidden_fd >= 0;
	int rv = list_fd(ps, open_dir_fd(ps, path), path, split ? NAMES_SHOWN : NAMES_ALL, each,
		user, err);

	if (rv == 0 && split) {
		rv = list_fd(ps,
			FAULT_SYS("store.open",
				openat(ps->hidden_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)),
			path, NAMES_HIDDEN, each, user, err);
	}
	return rv < 0 ? rv : 0;
}

static int posix_rename(struct store *store, const char *from, const char *to,
	enum store_rename how, struct pawl_err *err)
{
	struct posix_store *ps = (struct posix_store *)store;
	unsigned flags = how == STORE_EXCHANGE ? RENAME_EXCHANGE : 0;
	char verb[STORE_PATH_MAX + sizeof("rename  to")];

	snprintf(verb, sizeof(verb), "rename %s to", from);
	if (FAULT_SYS("store.rename",
		    renameat2(posix_dir_fd(ps, from), from, posix_dir_fd(ps, to), to, flags)) ==
		0) {
		return 0;
	}
	if (how == STORE_EXCHANGE && (errno == EINVAL || errno == ENOSYS || errno == ENOTSUP)) {
		return pawl_err_set(err, PAWL_ENOTSUP,
			"exchange %s and %s: not supported by this file system", from, to);
	}
	return posix_fail(ps, err, verb, to);
}

static int posix_link(struct store *store, const char *from, const char *to, struct pawl_err *err)
{
	struct posix_store *ps = (struct posix_store *)store;
	char verb[STORE_PATH_MAX + sizeof("link  to")];

	snprintf(verb, sizeof(verb), "link %s to", from);
	if (FAULT_SYS("store.link",
		    linkat(posix_dir_fd(ps, from), from, posix_dir_fd(ps, to), to, 0)) == 0) {
		return 0;
	}
	if (errno == EPERM || errno == ENOSYS || errno == EOPNOTSUPP || errno == EMLINK) {
		return pawl_err_set(err, PAWL_ENOTSUP, "%s %s: not supported by this file system",
			verb, to);
	}
	return posix_fail(ps, err, verb, to);
}

static int remove_dir(const struct posix_store *ps, int at_fd, const char *name, unsigned depth,
	struct pawl_err *err);

/* Removes a file, a link or a directory. A missing name is success. */
static int remove_name(const struct posix_store *ps, int at_fd, const char *name, unsigned depth,
	struct pawl_err *err)
{
	if (FAULT_SYS("store.remove", unlinkat(at_fd, name, 0)) == 0 || errno == ENOENT ||
		errno == ENOTDIR) {
		return 0;
	}
	if (errno == EISDIR) {
		return remove_dir(ps, at_fd, name, depth, err);
	}
	return posix_fail(ps, err, "remove", name);
}

static int remove_dir(const struct posix_store *ps, int at_fd, const char *name, unsigned depth,
	struct pawl_err *err)
{
	DIR *dir;
	const struct dirent *entry;
	int fd;
	int rv = 0;

	if (depth > STORE_NEST_MAX) {
		return pawl_err_set(err, PAWL_ELIMIT, "remove %s: more than %u deep", name,
			STORE_NEST_MAX);
	}
	fd = FAULT_SYS("store.open",
		openat(at_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
	dir = read_dir(fd);
	if (dir == NULL) {
		return posix_fail(ps, err, "list", name);
	}
	while (rv == 0 && (entry = read_name(dir)) != NULL) {
		rv = remove_name(ps, dirfd(dir), entry->d_name, depth + 1, err);
	}
	if (rv == 0 && errno != 0) {
		rv = posix_fail(ps, err, "list", name);
	}
	closedir(dir);
	if (rv == 0 && FAULT_SYS("store.remove", unlinkat(at_fd, name, AT_REMOVEDIR)) != 0) {
		rv = posix_fail(ps, err, "remove", name);
	}
	return rv;
}

static int posix_remove(struct store *store, const char *path, struct pawl_err *err)
{
	struct posix_store *ps = (struct posix_store *)store;

	return remove_name(ps, posix_dir_fd(ps, path), path, 0, err);
}

/* ---- the store ---- */

static void posix_close(struct store *store)
{
	struct posix_store *ps = (struct posix_store *)store;

	aio_close(ps->aio);
	close(ps->root_fd);
	if (ps->hidden_fd >= 0) {
		close(ps->hidden_fd);
	}
	free(ps);
}

static const struct store_ops posix_ops = {
	.name = "posix",
	.close = posix_close,
	.create = posix_create,
	.open = posix_open,
	.submit = posix_submit,
	.reap = posix_reap,
	.resize = posix_resize,
	.sync = posix_sync,
	.close_file = posix_close_file,
	.write_small = posix_write_small,
	.read_small = posix_read_small,
	.stat = posix_stat,
	.list = posix_list,
	.remove = posix_remove,
};

static const struct store_dir_ops posix_dir_ops = {
	.mkdir = posix_mkdir,
	.map = posix_map,
	.prefetch = posix_prefetch,
	.fill = posix_fill,
	.sync_dir = posix_sync_dir,
	.append_small = posix_append_small,
	.rename = posix_rename,
	.clone = posix_clone,
	.link = posix_link,
};

/* Makes a directory and, if it is new, makes its name durable. */
static int make_dir(const char *path)
{
	const char *slash = strrchr(path, '/');
	char parent[PATH_MAX] = ".";
	int fd;
	int rc;

	if (FAULT_SYS("store.mkdir", mkdir(path, DIR_MODE)) != 0) {
		return errno == EEXIST ? 0 : -1;
	}
	if (slash != NULL) {
		snprintf(parent, sizeof(parent), "%.*s", (int)(slash - path) + 1, path);
	}
	fd = FAULT_SYS("store.open", open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	if (fd < 0) {
		return -1;
	}
	rc = FAULT_SYS("store.sync_dir", fsync(fd));
	close(fd);
	return rc;
}

/* Makes root and all directories above it. */
static int make_root(const char *root, struct pawl_err *err)
{
	char path[PATH_MAX];
	size_t at = 0;

	if (strlen(root) >= sizeof(path)) {
		return pawl_err_set(err, PAWL_ELIMIT, "store: path of %zu bytes", strlen(root));
	}
	while (root[at] != '\0') {
		at += strspn(root + at, "/");
		at += strcspn(root + at, "/");
		snprintf(path, sizeof(path), "%.*s", (int)at, root);
		if (make_dir(path) != 0) {
			return pawl_err_sys(err, "store %s: make directory %s", root, path);
		}
	}
	return 0;
}

/* Opens a directory of the store, and makes it first if asked. */
static int open_base(const char *path, bool create, int *fd, struct pawl_err *err)
{
	int rv = create ? make_root(path, err) : 0;

	if (rv != 0) {
		return rv;
	}
	*fd = FAULT_SYS("store.open", open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	return *fd < 0 ? pawl_err_sys(err, "store %s: open", path) : 0;
}

int store_posix_open_split(const char *root, const char *hidden, bool create, struct store **store,
	struct pawl_err *err)
{
	struct posix_store *ps = FAULT_MEM("store.alloc", calloc(1, sizeof(*ps)));
	struct stat st;
	int rv;

	if (ps == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "store %s: out of memory", root);
	}
	ps->store = (struct store){&posix_ops, &posix_dir_ops};
	ps->done_end = &ps->done;
	ps->hidden_fd = -1;
	rv = open_base(root, create, &ps->root_fd, err);
	if (rv != 0) {
		goto free_store;
	}
	if (hidden != NULL) {
		rv = open_base(hidden, create, &ps->hidden_fd, err);
	}
	if (rv != 0) {
		goto close_root;
	}
	ps->counts_links = fstat(ps->root_fd, &st) == 0 && st.st_nlink > 0;
	rv = aio_open(&ps->aio, AIO_AUTO, STORE_DEPTH, err);
	if (rv != 0) {
		pawl_err_prefix(err, rv, "store %s", root);
		goto close_hidden;
	}
	*store = &ps->store;
	return 0;
close_hidden:
	if (ps->hidden_fd >= 0) {
		close(ps->hidden_fd);
	}
close_root:
	close(ps->root_fd);
free_store:
	free(ps);
	return rv;
}

int store_posix_open(const char *root, bool create, struct store **store, struct pawl_err *err)
{
	return store_posix_open_split(root, NULL, create, store, err);
}
