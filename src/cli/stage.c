/* Putting files in place together: see stage.h.
 */
#include "cli/stage.h"

#include "base/err.h"
#include "base/file.h"
#include "store/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define HIDDEN_NAME ".pawl-export"
#define FILES_FIRST 64u /* names allocated at first; doubled when full */

/* ---- the hidden directory ---- */

/* Removes it and all in it, best effort. */
static void remove_hidden(const struct stage *stage)
{
	struct store *store;

	if (store_posix_open(stage->parent, false, &store, NULL) == 0) {
		store_remove(store, stage->name, NULL);
		store_close(store);
	}
}

/* Splits dest, which is not there yet, into its directory and its name. */
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
		return pawl_err_set(err, PAWL_EINVAL, "%s is no path to write to", dest);
	}
	memcpy(stage->dest, dest, len);
	stage->dest[len] = '\0';
	stage->fresh = stat(stage->dest, &st) != 0;
	if (stage->fresh && errno != ENOENT) {
		return pawl_err_sys(err, "write to %s", stage->dest);
	}
	if (!stage->fresh && !S_ISDIR(st.st_mode)) {
		return pawl_err_set(err, PAWL_EEXIST, "%s exists already, and is no directory",
			stage->dest);
	}
	if (stage->fresh) {
		return name_beside(stage, err);
	}
	memcpy(stage->parent, stage->dest, len + 1);
	memcpy(stage->name, HIDDEN_NAME, sizeof(HIDDEN_NAME));
	return 0;
}

/* Opens the hidden directory and locks it; false: try again, it was removed meanwhile. */
static int open_hidden(struct stage *stage, bool *gone, struct pawl_err *err)
{
	struct stat ours;
	struct stat there;
	int rv = 0;

	*gone = false;
	stage->fd = open(stage->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (stage->fd < 0) {
		return pawl_err_sys(err, "open %s", stage->path);
	}
	if (flock(stage->fd, LOCK_EX | LOCK_NB) != 0) {
		rv = errno == EWOULDBLOCK ? pawl_err_set(err, PAWL_EBUSY,
						    "another command is writing to %s", stage->dest)
					  : pawl_err_sys(err, "lock %s", stage->path);
	} else if (fstat(stage->fd, &ours) != 0 || stat(stage->path, &there) != 0 ||
		ours.st_ino != there.st_ino) {
		*gone = true;
	}
	if (rv != 0 || *gone) {
		close(stage->fd);
	}
	return rv;
}

/* Whether the directory is empty. */
static bool is_empty(const struct stage *stage)
{
	DIR *dir = opendir(stage->path);
	int n = 0;

	while (dir != NULL && readdir(dir) != NULL) {
		n++; /* "." and ".." are two */
	}
	if (dir != NULL) {
		closedir(dir);
	}
	return n == 2;
}

int stage_open(struct stage *stage, const char *dest, bool force, struct pawl_err *err)
{
	bool gone = true;
	int rv = choose_place(stage, dest, err);

	stage->force = force;
	if (rv != 0) {
		return rv;
	}
	snprintf(stage->path, sizeof(stage->path), "%s/%s", stage->parent, stage->name);
	/* twice: what a killed command left is removed once it is known that nobody is at work */
	for (int i = 0; i < 2 && rv == 0; i++) {
		if (mkdir(stage->path, 0777) != 0 && errno != EEXIST) {
			return pawl_err_sys(err, "write to %s: make %s", dest, stage->path);
		}
		rv = open_hidden(stage, &gone, err);
		if (rv == 0 && !gone && is_empty(stage)) {
			stage->open = true;
			return 0;
		}
		if (rv == 0 && !gone) {
			remove_hidden(stage);
			close(stage->fd);
		}
	}
	return rv != 0 ? rv
		       : pawl_err_set(err, PAWL_EBUSY, "another command is writing to %s", dest);
}

void stage_close(struct stage *stage)
{
	if (stage->open) {
		remove_hidden(stage);
		close(stage->fd);
	}
	*stage = (struct stage){.open = false};
}

/* ---- putting in place ---- */

int stage_check(const struct stage *stage, const char *name, struct pawl_err *err)
{
	char path[PATH_MAX + NAME_MAX];
	struct stat st;

	if (stage->fresh || stage->force) {
		return 0;
	}
	snprintf(path, sizeof(path), "%s/%s", stage->dest, name);
	if (lstat(path, &st) != 0) {
		return 0;
	}
	return pawl_err_set(err, PAWL_EEXIST,
		"%s exists already: nothing was exported (--force "
		"replaces it)",
		path);
}

/* A file or folder in the hidden directory. */
struct name {
	char *path;  /* in it, owned */
	bool folder; /* those in it come after it */
	bool made;   /* where it is put in place, for the files that come after it */
};

/* All of them, in the order in which they are put in place. */
struct names {
	struct name *at; /* owned */
	size_t n, cap;   /* in use; allocated */
};

static void free_names(struct names *names)
{
	for (size_t i = 0; i < names->n; i++) {
		free(names->at[i].path);
	}
	free(names->at);
}

static int add_name(struct names *names, const char *path, bool folder, struct pawl_err *err)
{
	char *copy = strdup(path);

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
	names->at[names->n++] = (struct name){.path = copy, .folder = folder};
	return 0;
}

static int list_names(const struct stage *stage, const char *last, struct names *names,
	struct pawl_err *err)
{
	char *const paths[] = {(char *)stage->path, NULL};
	FTS *tree = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
	int rv = tree != NULL ? 0 : pawl_err_sys(err, "list %s", stage->path);
	FTSENT *entry;

	while (rv == 0 && (entry = fts_read(tree)) != NULL) {
		if (entry->fts_errno != 0) {
			errno = entry->fts_errno;
			rv = pawl_err_sys(err, "list %s", entry->fts_path);
		} else if (entry->fts_level > 0 && entry->fts_info != FTS_DP) {
			rv = add_name(names, entry->fts_path + strlen(stage->path) + 1,
				entry->fts_info == FTS_D, err);
		}
	}
	if (tree != NULL) {
		fts_close(tree);
	}
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

/* A file, or the names in a folder. */
static int sync_at(int dir_fd, const char *dir, const char *path, struct pawl_err *err)
{
	int fd = openat(dir_fd, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
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

/* The whole directory by one rename. */
static int place_dir(struct stage *stage, struct pawl_err *err)
{
	int rv = renameat2(AT_FDCWD, stage->path, AT_FDCWD, stage->dest, RENAME_NOREPLACE);

	if (rv != 0 && (errno == EINVAL || errno == ENOSYS)) {
		rv = rename(stage->path, stage->dest); /* fails if there are files in dest now */
	}
	if (rv != 0) {
		return pawl_err_sys(err, "put %s in place", stage->dest);
	}
	stage->open = false;
	close(stage->fd);
	return file_sync_dir(stage->parent, err);
}

/* false: errno says why not. */
static bool place_name(const struct stage *stage, int fd, struct name *name)
{
	if (name->folder) {
		name->made = mkdirat(fd, name->path, 0777) == 0;
		return name->made || errno == EEXIST;
	}
	return stage->force ? renameat(stage->fd, name->path, fd, name->path) == 0
			    : linkat(stage->fd, name->path, fd, name->path, 0) == 0;
}

/* File by file into a directory that was there. Without force a name that is taken fails, and takes
 * back those before it. */
static int place_files(const struct stage *stage, const struct names *names, const char *last,
	struct pawl_err *err)
{
	int fd = open(stage->dest, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	size_t done = 0;
	int rv = fd >= 0 ? 0 : pawl_err_sys(err, "open %s", stage->dest);

	if (rv == 0 && stage->force && last != NULL && unlinkat(fd, last, 0) != 0 &&
		errno != ENOENT) {
		rv = pawl_err_sys(err, "replace %s/%s", stage->dest, last);
	}
	for (; done < names->n && rv == 0; done++) {
		if (!place_name(stage, fd, &names->at[done])) {
			rv = pawl_err_sys(err, "put %s/%s in place", stage->dest,
				names->at[done].path);
			break;
		}
	}
	while (rv != 0 && !stage->force && done > 0) {
		const struct name *name = &names->at[--done];

		if (!name->folder || name->made) {
			unlinkat(fd, name->path, name->folder ? AT_REMOVEDIR : 0);
		}
	}
	for (size_t i = 0; i < names->n && rv == 0; i++) {
		if (names->at[i].folder) {
			rv = sync_at(fd, stage->dest, names->at[i].path, err);
		}
	}
	if (rv == 0) {
		rv = sync_at(fd, stage->dest, ".", err);
	}
	if (fd >= 0) {
		close(fd);
	}
	return rv;
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
