/* Looks at roots for commands of users: a root in a directory by its path, without opening it, and
 * what was put aside. See root.h and tags.h. */
#include "ckpt/root_impl.h"

#include "base/err.h"
#include "base/fault.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BAD_LIST_MAX 4096u /* paths that tags_list_bad lists, at most */

/* ---- roots in directories ---- */

bool tags_root_in_use(const char *path, const char *hidden)
{
	char lock[PATH_MAX + STORE_NAME_MAX];
	char line[256];
	unsigned long inode;
	struct stat st;
	bool locked = false;
	FILE *locks;

	snprintf(lock, sizeof(lock), "%s/%s", hidden != NULL ? hidden : path,
		root_posix_ops.owner_file);
	locks = lstat(lock, &st) == 0 ? fopen("/proc/locks", "re") : NULL;
	if (locks == NULL) {
		return false;
	}
	while (!locked && fgets(line, sizeof(line), locks) != NULL) {
		locked = sscanf(line, "%*s FLOCK %*s WRITE %*d %*x:%*x:%lu", &inode) == 1 &&
			inode == st.st_ino;
	}
	fclose(locks);
	return locked;
}

uint64_t tags_root_stamp(const char *path, const char *hidden, const char *file)
{
	const char *const names[] = {".", file, ".", root_posix_ops.owner_file};
	uint64_t stamp = tags_root_in_use(path, hidden);
	char at[PATH_MAX + STORE_NAME_MAX];
	struct stat st;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(at, sizeof(at), "%s/%s", i < 2 || hidden == NULL ? path : hidden,
			names[i]);
		if (stat(at, &st) == 0) {
			stamp = stamp * 1000003 + (uint64_t)st.st_mtim.tv_sec * 1000000007 +
				(uint64_t)st.st_mtim.tv_nsec + (uint64_t)st.st_size + st.st_ino;
		}
	}
	return stamp;
}

void tags_root_unmake(const char *path)
{
	char lock[PATH_MAX + STORE_NAME_MAX];

	snprintf(lock, sizeof(lock), "%s/%s", path, root_posix_ops.owner_file);
	unlink(lock);
	rmdir(path);
}

/* ---- what was put aside ---- */

/* A list of paths being made. */
struct bad_list {
	const char *folder; /* folder that is listed */
	char **paths;       /* owned, as are its entries */
	size_t n;           /* number of entries in paths */
	bool failed;        /* no memory */
};

/* store_list_fn */
static int add_bad(void *user, const char *name, enum store_kind kind)
{
	struct bad_list *list = user;
	char path[STORE_PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s", list->folder, name);
	list->paths[list->n] = FAULT_MEM("root.bad", strdup(path));
	list->failed = list->paths[list->n] == NULL;
	list->n += !list->failed;
	return list->failed || list->n == BAD_LIST_MAX;
}

int tags_list_bad(struct tags_root *root, char ***paths, size_t *n, struct pawl_err *err)
{
	struct bad_list list = {.folder = root->ops->bad_dir};
	int rv;

	list.paths = FAULT_MEM("root.bad", calloc(BAD_LIST_MAX, sizeof(*list.paths)));
	if (list.paths == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory to list %s", list.folder);
	}
	rv = store_list(root->store, list.folder, add_bad, &list, err);
	if (rv == PAWL_ENOENT) {
		rv = 0;
	} else if (rv == 0 && list.failed) {
		rv = pawl_err_set(err, PAWL_ENOMEM, "no memory to list %s", list.folder);
	}
	if (rv != 0) {
		tags_free_paths(list.paths, list.n);
		return rv;
	}
	*paths = list.paths;
	*n = list.n;
	return 0;
}

void tags_free_paths(char **paths, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		free(paths[i]);
	}
	free(paths);
}
