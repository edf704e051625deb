/*
 * Roots of directories: what has a tag's name, removal, quarantine, the lock, small files.
 * root_posix_build.c builds and publishes tags. See root_impl.h for the contracts.
 *
 * Whatever is removed gets a hidden name first, or one in .bad, by a rename: no reader ever finds
 * half a tag under its name.
 */
#include "ckpt/root_posix.h"

#include "base/assert.h"
#include "base/err.h"
#include "ckpt/rootlock.h"
#include "store/dirs.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CLEAR_TRIES_MAX 10 /* renames of a folder to an old one that others still write to */

/* ---- names and manifests ---- */

static int list(struct tags_root *root, struct tag_names *names, struct pawl_err *err)
{
	return tags_list_names(root->store, "", STORE_DIR, tags_want_tag, names, err);
}

static int has_name(struct tags_root *root, const char *tag, bool *has, struct pawl_err *err)
{
	return tags_has_path(root->store, tag, has, err);
}

int root_posix_is_ours(struct tags_root *root, const char *name, bool *ours, struct pawl_err *err)
{
	char inner[TAG_PATH_MAX];

	snprintf(inner, sizeof(inner), "%s/.pawl", name);
	return tags_has_path(root->store, inner, ours, err);
}

/* Checks that complete.txt contains OK and nothing else. */
static int check_complete(struct store *store, const char *tag, struct pawl_err *err)
{
	char path[TAG_PATH_MAX];
	void *bytes;
	size_t len_bytes;
	bool ok;
	int rv;

	snprintf(path, sizeof(path), "%s/complete.txt", tag);
	rv = store_read_small(store, path, &bytes, &len_bytes, ROOT_POSIX_OK_BYTES, err);
	if (rv == PAWL_ELIMIT) {
		return pawl_err_set(err, PAWL_ECORRUPT, "%s: complete.txt is not " ROOT_POSIX_OK,
			tag);
	}
	if (rv != 0) {
		return tags_as_broken(rv, tag, "complete.txt", err);
	}
	ok = len_bytes == ROOT_POSIX_OK_BYTES &&
		memcmp(bytes, ROOT_POSIX_OK, ROOT_POSIX_OK_BYTES) == 0;
	free(bytes);
	if (!ok) {
		return pawl_err_set(err, PAWL_ECORRUPT, "%s: complete.txt is not " ROOT_POSIX_OK,
			tag);
	}
	return 0;
}

static int check_place(struct tags_root *root, const char *tag, bool sealed, struct pawl_err *err)
{
	enum store_kind kind;
	int rv = store_stat(root->store, tag, &kind, NULL, err);

	if (rv == 0 && kind != STORE_DIR) {
		rv = pawl_err_set(err, PAWL_ENOENT, "%s is no directory", tag);
	}
	return rv == 0 && sealed ? check_complete(root->store, tag, err) : rv;
}

static int read_manifest(struct tags_root *root, const char *tag, void **bytes, size_t *len_bytes,
	struct pawl_err *err)
{
	char path[TAG_PATH_MAX];
	int rv;

	snprintf(path, sizeof(path), "%s/.pawl/manifest", tag);
	rv = store_read_small(root->store, path, bytes, len_bytes, MANIFEST_MAX_BYTES, err);
	return rv == 0 ? 0 : tags_as_broken(rv, tag, "manifest", err);
}

/* ---- quarantine ---- */

/* Removes all but the newest TAGS_BAD_MAX tags of .bad, best effort. */
static void prune_bad(struct store *store)
{
	struct tag_names names;

	if (tags_list_names(store, POSIX_BAD_DIR, STORE_DIR, tags_want_numbered, &names, NULL) !=
		0) {
		return;
	}
	for (size_t i = 0; i + TAGS_BAD_MAX < names.n; i++) {
		char path[TAG_PATH_MAX];

		snprintf(path, sizeof(path), POSIX_BAD_DIR "/%s", names.at[i].name);
		store_remove(store, path, NULL);
	}
	free(names.at);
}

/* Finds a number that no name in .bad has. */
static int next_bad(struct store *store, uint64_t *number, struct pawl_err *err)
{
	struct tag_names names;
	int rv;

	rv = tags_list_names(store, POSIX_BAD_DIR, STORE_DIR, tags_want_numbered, &names, err);
	if (rv != 0) {
		return rv;
	}
	*number = names.n > 0 ? names.at[names.n - 1].number + 1 : 1;
	free(names.at);
	return 0;
}

/* Moves a tag to .bad, durably. */
static int move_to_bad(struct store *store, const char *tag, uint64_t number, struct pawl_err *err)
{
	char quarantined[TAG_PATH_MAX];
	int rv;

	snprintf(quarantined, sizeof(quarantined), POSIX_BAD_DIR "/%s.%" PRIu64, tag, number);
	rv = store_rename(store, tag, quarantined, STORE_REPLACE, err);
	if (rv == 0) {
		rv = store_sync_dir(store, POSIX_BAD_DIR, err);
	}
	return rv == 0 ? store_sync_dir(store, "", err) : rv;
}

static int quarantine(struct tags_root *root, const char *tag, const char *why,
	struct pawl_err *err)
{
	struct store *store = root->store;
	char reason[TAG_PATH_MAX];
	uint64_t number;
	bool exists;
	int rv = tags_has_path(store, tag, &exists, err);

	if (rv != 0 || !exists) {
		return rv;
	}
	rv = store_mkdir(store, POSIX_BAD_DIR, err);
	if (rv == 0) {
		rv = next_bad(store, &number, err);
	}
	if (rv != 0) {
		return rv;
	}
	/* written before the move, so that every tag in .bad has its reason; missing if the disk is
	 * full */
	snprintf(reason, sizeof(reason), "%s/why.txt", tag);
	if (store_write_small(store, reason, why, strlen(why), NULL) == 0) {
		store_sync_dir(store, tag, NULL);
	}
	rv = move_to_bad(store, tag, number, err);
	if (rv == 0) {
		prune_bad(store);
	}
	return rv;
}

/* ---- removal ---- */

static int drop(struct tags_root *root, const struct tag_info *tags, size_t n, const bool *keep,
	struct pawl_err *err)
{
	struct store *store = root->store;
	char gone[TAG_NAME_MAX];
	size_t dropped = 0;
	int rv = 0;

	for (size_t i = 0; i < n && rv == 0; i++) {
		if (keep[i]) {
			continue;
		}
		root_posix_hide_name(gone, tags[i].tag, ".del");
		rv = store_remove(store, gone, err); /* left by a removal that failed */
		if (rv == 0) {
			rv = store_rename(store, tags[i].tag, gone, STORE_REPLACE, err);
		}
		dropped++;
	}
	if (rv == 0 && dropped > 0) {
		rv = store_sync_dir(store, "", err);
	}
	for (size_t i = 0; i < n && rv == 0; i++) {
		if (!keep[i]) {
			root_posix_hide_name(gone, tags[i].tag, ".del");
			rv = store_remove(store, gone, err);
		}
	}
	return rv;
}

/* ---- the lock ---- */

static int lock(struct tags_root *root, const char *job, bool wait, struct pawl_err *err)
{
	struct stat st;
	int fd;

	ASSERT(root->lock_fd < 0);
	if (root->path == NULL) {
		return pawl_err_set(err, PAWL_ENOTSUP, "a root of a %s store has no lock",
			root->store->ops->name);
	}
	fd = wait ? rootlock_await(root->lock_dir, job, err)
		  : rootlock_take(root->lock_dir, job, err);
	if (fd < 0) {
		return fd;
	}
	if (stat(root->path, &st) != 0) {
		int rv = pawl_err_sys(err, "root %s", root->path);

		close(fd);
		return rv;
	}
	root->lock_fd = fd;
	root->dev = st.st_dev;
	root->ino = st.st_ino;
	return 0;
}

static void unlock(struct tags_root *root)
{
	if (root->lock_fd >= 0) {
		close(root->lock_fd);
	}
}

/* Whether the paths of root and lock still lead to the directory and file that are open. Nothing
 * else can have their inode numbers meanwhile. An error counts only if it says that the root does
 * not exist: storage that fails may work again. */
static bool holds(struct tags_root *root)
{
	struct stat st;

	ASSERT(root->lock_fd >= 0);
	if (stat(root->path, &st) != 0) {
		return errno != ENOENT && errno != ENOTDIR;
	}
	return st.st_dev == root->dev && st.st_ino == root->ino &&
		rootlock_holds(root->lock_dir, root->lock_fd);
}

/* ---- small files ---- */

static int append(struct tags_root *root, const char *file, const void *bytes, size_t len_bytes,
	bool sync, struct pawl_err *err)
{
	return store_append_small(root->store, file, bytes, len_bytes, sync, err);
}

static int put_aside(struct tags_root *root, const char *file, const char *aside,
	struct pawl_err *err)
{
	int rv = store_rename(root->store, file, aside, STORE_REPLACE, err);

	return rv == 0 ? store_sync_dir(root->store, "", err) : rv;
}

static int make_folder(struct tags_root *root, const char *folder, struct pawl_err *err)
{
	return store_mkdir(root->store, folder, err);
}

/* Removes a folder after a rename: others that still write into it could keep it from getting
 * empty. */
static int clear(struct tags_root *root, const char *folder, const char *old, struct pawl_err *err)
{
	int rv = PAWL_EEXIST;

	for (int i = 0; i < CLEAR_TRIES_MAX && rv == PAWL_EEXIST; i++) {
		store_remove(root->store, old, NULL);
		rv = store_rename(root->store, folder, old, STORE_REPLACE, err);
	}
	if (rv == 0) {
		store_remove(root->store, old, NULL); /* removed the next time, if this fails */
	}
	return rv == PAWL_ENOENT ? 0 : rv;
}

const struct tags_root_ops root_posix_ops = {
	.owner_file = ".pawl-lock",
	.bad_dir = POSIX_BAD_DIR,
	.list = list,
	.has_name = has_name,
	.is_ours = root_posix_is_ours,
	.check_place = check_place,
	.read_manifest = read_manifest,
	.begin = root_posix_begin,
	.begin_shared = root_posix_begin_shared,
	.draft_manifest = root_posix_draft_manifest,
	.sync_files = root_posix_sync_files,
	.keep_part = root_posix_keep_part,
	.adopt = root_posix_adopt,
	.publish = root_posix_publish,
	.abandon = root_posix_abandon,
	.seal = root_posix_seal,
	.quarantine = quarantine,
	.drop = drop,
	.leftovers = root_posix_leftovers,
	.recover = root_posix_recover,
	.lock = lock,
	.unlock = unlock,
	.holds = holds,
	.append = append,
	.put_aside = put_aside,
	.make_folder = make_folder,
	.clear = clear,
};
