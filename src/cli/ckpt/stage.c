/* Puts files in place together: see stage.h. Both directories are opened once. From then on, every
 * name is found from these descriptors, whatever the paths lead to meanwhile. */
#include "cli/ckpt/stage.h"

#include "base/beneath.h"
#include "base/err.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define HIDDEN_NAME ".pawl-export"
#define FILES_FIRST 64u /* names allocated at first; doubled when full */
#define DEPTH_MAX   64u /* nesting of folders, at most: a name has at most 180 bytes */

/* ---- what is in the hidden directory ---- */

/* A file or folder in the hidden directory. */
struct name {
	char *path;  /* path in the hidden directory; owned */
	bool folder; /* a folder; the names in it come after it */
	bool made;   /* the folder was created in dest, for the files that come after it */
};

/* All names, in the order in which they are put in place. */
struct names {
	struct name *at; /* owned */
	size_t n, cap;   /* entries in use; entries allocated */
};

static void free_names(struct names *names)
{
	for (size_t i = 0; i < names->n; i++) {
		free(names->at[i].path);
	}
	free(names->at);
}

/* Adds prefix/path, or path where prefix is "". */
static int add_name(struct names *names, const char *prefix, const char *path, bool folder,
	struct pawl_err *err)
{
	size_t len = strlen(prefix) + strlen(path) + 2;
	char *copy = malloc(len);

	if (copy != NULL && names->n == names->cap) {
		size_t cap = names->cap == 0 ? FILES_FIRST : 2 * names->cap;
		void *at = realloc(names->at, cap * sizeof(*names->at));

		if (at == NULL) {
			free(copy);
			copy = NULL;
		} else {
			names->at = at;
			names->cap = cap;
		}
	}
	if (copy == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "list %s: out of memory", path);
	}
	snprintf(copy, len, "%s%s%s", prefix, prefix[0] != '\0' ? "/" : "", path);
	names->at[names->n++] = (struct name){.path = copy, .folder = folder};
	return 0;
}

/* Lists the folder of that path and all in it; "" lists the hidden directory. */
static int list_folder(const struct stage *stage, const char *path, unsigned depth,
	struct names *names, struct pawl_err *err)
{
	int fd = beneath_open(stage->fd, path[0] != '\0' ? path : ".", O_RDONLY | O_DIRECTORY, 0,
		BENEATH_ANY);
	DIR *dir = fd >= 0 && depth < DEPTH_MAX ? fdopendir(fd) : NULL;
	struct dirent *entry;
	struct stat st;
	int rv = 0;

	if (dir == NULL) {
		errno = depth < DEPTH_MAX ? errno : ENAMETOOLONG;
		rv = pawl_err_sys(err, "list %s/%s", stage->path, path);
		if (fd >= 0) {
			close(fd);
		}
		return rv;
	}
	while (rv == 0 && (errno = 0, entry = readdir(dir)) != NULL) {
		const char *name = entry->d_name;

		if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0) {
			continue;
		}
		if (fstatat(dirfd(dir), name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
			break;
		}
		rv = add_name(names, path, name, S_ISDIR(st.st_mode), err);
		if (rv == 0 && S_ISDIR(st.st_mode)) {
			const char *inner = names->at[names->n - 1].path;

			rv = list_folder(stage, inner, depth + 1, names, err);
		}
	}
	if (rv == 0 && errno != 0) {
		rv = pawl_err_sys(err, "list %s/%s", stage->path, path);
	}
	closedir(dir);
	return rv;
}

static int list_names(const struct stage *stage, const char *last, struct names *names,
	struct pawl_err *err)
{
	int rv = list_folder(stage, "", 0, names, err);

	for (size_t i = 0; rv == 0 && last != NULL && i + 1 < names->n; i++) {
		if (strcmp(names->at[i].path, last) == 0) {
			struct name name = names->at[i];

			memmove(&names->at[i], &names->at[i + 1],
				(names->n - i - 1) * sizeof(*names->at));
			names->at[names->n - 1] = name;
			break;
		}
	}
	return rv;
}

/* ---- the hidden directory ---- */

/* Removes the hidden directory and all in it, best effort. */
static void remove_hidden(const struct stage *stage)
{
	struct names names = {NULL};

	list_names(stage, NULL, &names, NULL);
	while (names.n > 0) {
		struct name *name = &names.at[--names.n];

		unlinkat(stage->fd, name->path, name->folder ? AT_REMOVEDIR : 0);
		free(name->path);
	}
	free_names(&names);
	unlinkat(stage->parent_fd, stage->name, AT_REMOVEDIR);
}

/* Sets parent and the hidden name beside dest, which does not exist yet. */
static int name_beside(struct stage *stage, struct pawl_err *err)
{
	const char *slash = strrchr(stage->dest, '/');
	const char *base = slash != NULL ? slash + 1 : stage->dest;
	int dir = slash == NULL ? 0 : slash == stage->dest ? 1 : (int)(slash - stage->dest);

	if ((size_t)snprintf(stage->name, sizeof(stage->name), ".%s" HIDDEN_NAME, base) >=
		sizeof(stage->name)) {
		return pawl_err_set(err, PAWL_EINVAL, "%s: name too long", stage->dest);
	}
	snprintf(stage->parent, sizeof(stage->parent), "%.*s", dir > 0 ? dir : 1,
		dir > 0 ? stage->dest : ".");
	return 0;
}

static int choose_place(struct stage *stage, const char *dest, struct pawl_err *err)
{
	size_t len = strlen(dest);
	struct stat st;

	while (len > 1 && dest[len - 1] == '/') {
		len--;
	}
	if (len == 0 || len + sizeof(HIDDEN_NAME) + NAME_MAX >= sizeof(stage->dest)) {
		return pawl_err_set(err, PAWL_EINVAL, "%s is no valid path to write to", dest);
	}
	memcpy(stage->dest, dest, len);
	stage->dest[len] = '\0';
	stage->fresh = stat(stage->dest, &st) != 0;
	if (stage->fresh && errno != ENOENT) {
		return pawl_err_sys(err, "write to %s", stage->dest);
	}
	if (!stage->fresh && !S_ISDIR(st.st_mode)) {
		return pawl_err_set(err, PAWL_EEXIST, "%s exists, and is no directory",
			stage->dest);
	}
	if (stage->fresh) {
		return name_beside(stage, err);
	}
	memcpy(stage->parent, stage->dest, len + 1);
	memcpy(stage->name, HIDDEN_NAME, sizeof(HIDDEN_NAME));
	return 0;
}

static int open_parent(struct stage *stage, struct pawl_err *err)
{
	struct stat st;

	stage->parent_fd = open(stage->parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (stage->parent_fd < 0 || fstat(stage->parent_fd, &st) != 0) {
		return pawl_err_sys(err, "write to %s", stage->dest);
	}
	stage->foreign = st.st_uid != geteuid();
	return 0;
}

/* Checks that the open hidden directory is this command's alone. *gone: it has lost its name. */
static int check_hidden(const struct stage *stage, bool *gone, struct pawl_err *err)
{
	struct stat ours;
	struct stat there;

	if (fstat(stage->fd, &ours) != 0) {
		return pawl_err_sys(err, "open %s", stage->path);
	}
	if (ours.st_uid != geteuid()) {
		return pawl_err_set(err, PAWL_EBUSY,
			"%s is another user's: have it removed, or choose another DEST",
			stage->path);
	}
	*gone = fstatat(stage->parent_fd, stage->name, &there, AT_SYMLINK_NOFOLLOW) != 0 ||
		ours.st_ino != there.st_ino || ours.st_dev != there.st_dev;
	if (!*gone && stage->foreign && (ours.st_mode & 0077) != 0) {
		return pawl_err_set(err, PAWL_EBUSY,
			"%s is yours, but no export made it: the owner of %s may have renamed a "
			"directory of yours, to have it removed. Check it, and move it away",
			stage->path, stage->parent);
	}
	return *gone || fchmod(stage->fd, 0700) == 0 ? 0 : pawl_err_sys(err, "%s", stage->path);
}

/* Opens the hidden directory and locks it. *gone: it was removed meanwhile, try again. */
static int open_hidden(struct stage *stage, bool *gone, struct pawl_err *err)
{
	int rv = 0;

	*gone = false;
	stage->fd = openat(stage->parent_fd, stage->name,
		O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (stage->fd < 0) {
		return pawl_err_sys(err, "open %s", stage->path);
	}
	if (flock(stage->fd, LOCK_EX | LOCK_NB) != 0) {
		rv = errno == EWOULDBLOCK ? pawl_err_set(err, PAWL_EBUSY,
						    "another command is writing to %s", stage->dest)
					  : pawl_err_sys(err, "lock %s", stage->path);
	}
	rv = rv == 0 ? check_hidden(stage, gone, err) : rv;
	if (rv != 0 || *gone) {
		close(stage->fd);
	}
	return rv;
}

/* Returns whether the hidden directory is empty. */
static bool is_empty(const struct stage *stage)
{
	struct names names = {NULL};
	bool empty = list_names(stage, NULL, &names, NULL) == 0 && names.n == 0;

	free_names(&names);
	return empty;
}

/* Sets the path by which another process reaches the hidden directory, whatever the owner of the
 * parent puts in its place. */
static void set_access_path(struct stage *stage)
{
	snprintf(stage->access_path, sizeof(stage->access_path), "/proc/%d/fd/%d", (int)getpid(),
		stage->fd);
	if (!stage->foreign || access(stage->access_path, W_OK) != 0) {
		snprintf(stage->access_path, sizeof(stage->access_path), "%s", stage->path);
	}
}

int stage_open(struct stage *stage, const char *dest, bool force, struct pawl_err *err)
{
	bool gone = true;
	int rv;

	stage->parent_fd = -1;
	rv = choose_place(stage, dest, err);
	rv = rv == 0 ? open_parent(stage, err) : rv;
	stage->force = force;
	if (rv != 0) {
		goto fail;
	}
	snprintf(stage->path, sizeof(stage->path), "%s/%s", stage->parent, stage->name);
	/* Twice: the first turn may find, and remove, what a killed command left. */
	for (int i = 0; i < 2 && rv == 0; i++) {
		if (mkdirat(stage->parent_fd, stage->name, 0700) != 0 && errno != EEXIST) {
			rv = pawl_err_sys(err, "write to %s: make %s", dest, stage->path);
			goto fail;
		}
		rv = open_hidden(stage, &gone, err);
		if (rv == 0 && !gone && is_empty(stage)) {
			stage->open = true;
			set_access_path(stage);
			return 0;
		}
		if (rv == 0 && !gone) {
			remove_hidden(stage);
			close(stage->fd);
		}
	}
	rv = rv != 0 ? rv : pawl_err_set(err, PAWL_EBUSY, "another command is writing to %s", dest);
fail:
	if (stage->parent_fd >= 0) {
		close(stage->parent_fd);
	}
	return rv;
}

void stage_close(struct stage *stage)
{
	if (stage->open) {
		remove_hidden(stage);
		close(stage->fd);
		close(stage->parent_fd);
	}
	*stage = (struct stage){.open = false};
}

/* ---- putting in place ---- */

int stage_check(const struct stage *stage, const char *name, struct pawl_err *err)
{
	struct stat st;

	if (stage->fresh || stage->force ||
		fstatat(stage->parent_fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
		return 0;
	}
	return pawl_err_set(err, PAWL_EEXIST,
		"%s/%s exists already: nothing was exported (--force "
		"replaces it)",
		stage->dest, name);
}

/* Syncs a file, or the names in a folder. */
static int sync_at(int dir_fd, const char *dir, const char *path, struct pawl_err *err)
{
	int fd = beneath_open(dir_fd, path, O_RDONLY, 0, BENEATH_ANY);
	int rv = fd < 0 || fsync(fd) != 0 ? pawl_err_sys(err, "sync %s/%s", dir, path) : 0;

	if (fd >= 0) {
		close(fd);
	}
	return rv;
}

static int sync_files(const struct stage *stage, const struct names *names, struct pawl_err *err)
{
	int rv = 0;

	for (size_t i = 0; i < names->n && rv == 0; i++) {
		rv = sync_at(stage->fd, stage->path, names->at[i].path, err);
	}
	return rv == 0 ? sync_at(stage->fd, stage->path, ".", err) : rv;
}

/* Puts the whole directory in place by one rename, with the permissions that the umask leaves. */
static int place_dir(struct stage *stage, struct pawl_err *err)
{
	const char *slash = strrchr(stage->dest, '/');
	const char *name = slash != NULL ? slash + 1 : stage->dest;
	mode_t mask = umask(0);
	int rv;

	umask(mask);
	if (fchmod(stage->fd, 0777 & ~mask) != 0) {
		return pawl_err_sys(err, "put %s in place", stage->dest);
	}
	rv = renameat2(stage->parent_fd, stage->name, stage->parent_fd, name, RENAME_NOREPLACE);
	if (rv != 0 && (errno == EINVAL || errno == ENOSYS)) {
		/* this rename fails if dest has files by now */
		rv = renameat(stage->parent_fd, stage->name, stage->parent_fd, name);
	}
	if (rv != 0) {
		return pawl_err_sys(err, "put %s in place", stage->dest);
	}
	rv = fsync(stage->parent_fd) == 0 ? 0
					  : pawl_err_sys(err, "sync directory %s", stage->parent);
	stage->open = false;
	close(stage->fd);
	close(stage->parent_fd);
	return rv;
}

/* Opens the folder of dest that path is in; the caller closes it. *last: path's name in that
 * folder. Links are not followed. Returns -1 with errno set. */
static int open_folder(const struct stage *stage, const char *path, const char **last)
{
	const char *slash = strrchr(path, '/');
	char folder[PATH_MAX] = ".";

	*last = slash != NULL ? slash + 1 : path;
	if (slash != NULL) {
		snprintf(folder, sizeof(folder), "%.*s", (int)(slash - path), path);
	}
	return beneath_open(stage->parent_fd, folder, O_PATH | O_DIRECTORY, 0, BENEATH_ANY);
}

/* Puts one name in place. Returns false with errno set on failure. */
static bool place_name(const struct stage *stage, struct name *name)
{
	const char *last;
	int fd = open_folder(stage, name->path, &last);
	bool good;
	int sys;

	if (fd < 0) {
		return false;
	}
	if (name->folder) {
		name->made = mkdirat(fd, last, 0777) == 0;
		good = name->made || errno == EEXIST;
	} else if (stage->force) {
		good = renameat(stage->fd, name->path, fd, last) == 0;
	} else {
		good = linkat(stage->fd, name->path, fd, last, 0) == 0;
	}
	sys = errno;
	close(fd);
	errno = sys;
	return good;
}

static void take_back(const struct stage *stage, const struct name *name)
{
	const char *last;
	int fd = name->folder && !name->made ? -1 : open_folder(stage, name->path, &last);

	if (fd >= 0) {
		unlinkat(fd, last, name->folder ? AT_REMOVEDIR : 0);
		close(fd);
	}
}

/* Puts file by file into an existing directory. Without force, a name that is taken is an error,
 * which undoes the names before it. */
static int place_files(const struct stage *stage, const struct names *names, const char *last,
	struct pawl_err *err)
{
	size_t done = 0;
	int rv = 0;

	if (stage->force && last != NULL && unlinkat(stage->parent_fd, last, 0) != 0 &&
		errno != ENOENT) {
		rv = pawl_err_sys(err, "replace %s/%s", stage->dest, last);
	}
	for (; done < names->n && rv == 0; done++) {
		if (!place_name(stage, &names->at[done])) {
			rv = errno == ELOOP || errno == ENOTDIR
				? pawl_err_set(err, PAWL_EEXIST,
					  "put %s/%s in place: it is behind a symbolic link or a "
					  "file: a directory is needed there",
					  stage->dest, names->at[done].path)
				: pawl_err_sys(err, "put %s/%s in place", stage->dest,
					  names->at[done].path);
			break;
		}
	}
	while (rv != 0 && !stage->force && done > 0) {
		take_back(stage, &names->at[--done]);
	}
	for (size_t i = 0; i < names->n && rv == 0; i++) {
		if (names->at[i].folder) {
			rv = sync_at(stage->parent_fd, stage->dest, names->at[i].path, err);
		}
	}
	return rv == 0 ? sync_at(stage->parent_fd, stage->dest, ".", err) : rv;
}

int stage_place(struct stage *stage, const char *last, struct pawl_err *err)
{
	struct names names = {NULL};
	int rv = list_names(stage, last, &names, err);

	if (rv == 0) {
		rv = sync_files(stage, &names, err);
	}
	if (rv == 0) {
		rv = stage->fresh ? place_dir(stage, err) : place_files(stage, &names, last, err);
	}
	free_names(&names);
	return rv;
}
