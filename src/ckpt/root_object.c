/*
 * Roots of objects, over a store without directories, where each object is put whole: what has a
 * tag's name, the owner, removal, quarantine, small files. root_object_build.c builds and publishes
 * tags. See root_impl.h for the contracts.
 *
 *   <tag>/save-<id>/<file>           data; never overwritten, since each save has an id of its own
 *   <tag>/save-<id>/.pawl/<file>.0   changed chunks of a file; the others lie in earlier folders
 *   .pawl/tags/<tag>                 the manifest: the tag exists exactly if this object does
 *   .pawl/bad/<tag>.<n>[.why]        quarantined manifests, and why
 *   .pawl/owner                      the last owner: "job X (pid P on H)", a random number, and
 *                                    "released" once it has closed the root
 *
 * Whatever is removed loses its manifest first: no reader ever finds half a tag. A crash then
 * leaves folders that no manifest names, and one in a quarantine may leave a copy in .pawl/bad of a
 * manifest whose tag is still there: tags_recover removes both.
 */
#include "ckpt/root_object.h"

#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OWNER_FILE      ".pawl/owner"
#define RELEASED        "released\n" /* last line of the owner object, once the root is free */
#define LOCK_TRIES_MAX  10           /* owners that take the root at the same moment */
#define OWNER_BYTES_MAX 4096u        /* bytes of the owner object, at most */

/* ---- names and manifests ---- */

void object_tag_path(char path[TAG_PATH_MAX], const char *tag)
{
	snprintf(path, TAG_PATH_MAX, OBJECT_TAGS_DIR "/%s", tag);
}

static int list(struct tags_root *root, struct tag_names *names, struct pawl_err *err)
{
	return folders_list_names(root, OBJECT_TAGS_DIR, STORE_FILE, tags_want_tag, names, err);
}

static int has_name(struct tags_root *root, const char *tag, bool *has, struct pawl_err *err)
{
	char path[TAG_PATH_MAX];

	object_tag_path(path, tag);
	return tags_has_path(root->store, path, has, err);
}

static int check_place(struct tags_root *root, const char *tag, bool sealed, struct pawl_err *err)
{
	return 0;
}

static int read_manifest(struct tags_root *root, const char *tag, void **bytes, size_t *len_bytes,
	struct pawl_err *err)
{
	char path[TAG_PATH_MAX];
	int rv;

	object_tag_path(path, tag);
	rv = store_read_small(root->store, path, bytes, len_bytes, MANIFEST_MAX_BYTES, err);
	return rv == 0 || rv == PAWL_ENOENT ? rv : tags_as_broken(rv, tag, "manifest", err);
}

static int seal(struct tags_root *root, const char *tag, struct pawl_err *err)
{
	return 0;
}

/* ---- the owner ---- */

static int lock(struct tags_root *root, const char *job, bool wait, struct pawl_err *err)
{
	char text[ROOT_HOLDER_MAX];
	char match[STORE_ETAG_MAX];
	char host[128] = "?";
	uint64_t number;
	int rv = object_get_random(&number, err);

	if (rv != 0) {
		return rv;
	}
	gethostname(host, sizeof(host) - 1);
	snprintf(text, sizeof(text), "job %.200s (pid %d on %s)\n%016" PRIx64 "\n", job,
		(int)getpid(), host, number);
	for (int i = 0; i < LOCK_TRIES_MAX; i++) {
		rv = object_read_etag(root->store, OWNER_FILE, OWNER_BYTES_MAX, match, err);
		if (rv == 0) {
			rv = object_put_own(root->store, OWNER_FILE, text, strlen(text), match,
				root->owner, err);
		}
		if (!object_is_lost_race(rv)) {
			break;
		}
	}
	if (rv != 0) {
		root->owner[0] = '\0';
	}
	return object_is_lost_race(rv)
		? pawl_err_set(err, PAWL_EBUSY,
			  "root: other jobs take it at the same moment; job %s "
			  "cannot use it too: give it a root of its own",
			  job)
		: rv;
}

/* Says in the owner object that the root is free, if it is still ours, best effort. */
static void release(struct tags_root *root)
{
	char etag[STORE_ETAG_MAX];
	void *text;
	char *freed;
	size_t len_bytes;

	if (root->owner[0] == '\0' ||
		store_read_etag(root->store, OWNER_FILE, &text, &len_bytes, OWNER_BYTES_MAX, etag,
			NULL) != 0) {
		return;
	}
	freed = FAULT_MEM("root.release", realloc(text, len_bytes + sizeof(RELEASED)));
	if (freed != NULL) {
		text = freed;
		memcpy(freed + len_bytes, RELEASED, sizeof(RELEASED) - 1);
	}
	if (freed != NULL && strcmp(etag, root->owner) == 0) {
		store_put_if(root->store, OWNER_FILE, freed, len_bytes + sizeof(RELEASED) - 1, etag,
			etag, NULL);
	}
	free(text);
}

static bool held(struct tags_root *root)
{
	void *text;
	size_t len_bytes;
	bool is_held;

	if (store_read_small(root->store, OWNER_FILE, &text, &len_bytes, OWNER_BYTES_MAX, NULL) !=
		0) {
		return false;
	}
	is_held = strstr(text, RELEASED) == NULL;
	free(text);
	return is_held;
}

static bool holds(struct tags_root *root)
{
	char etag[STORE_ETAG_MAX];

	ASSERT(root->owner[0] != '\0');
	return object_read_etag(root->store, OWNER_FILE, OWNER_BYTES_MAX, etag, NULL) != 0 ||
		strcmp(etag, root->owner) == 0;
}

int object_check_owner(struct tags_root *root, struct pawl_err *err)
{
	if (root->owner[0] == '\0' || holds(root)) {
		return 0;
	}
	return pawl_err_set(err, PAWL_EBUSY,
		"another job has taken the root: give each job a root of its own");
}

/* ---- removal ---- */

static int drop(struct tags_root *root, const struct tag_info *tags, size_t n, const bool *keep,
	struct pawl_err *err)
{
	struct folders folders = {.n = 0};
	char etag[STORE_ETAG_MAX];
	char path[TAG_PATH_MAX];
	int rv = object_check_owner(root, err);

	for (size_t i = 0; i < n && rv == 0; i++) {
		if (!keep[i]) {
			object_tag_path(path, tags[i].tag);
			rv = folders_add_manifest(&folders, root, path, tags[i].tag, etag, err);
			rv = rv == PAWL_ENOENT ? 0 : rv;
		}
	}
	for (size_t i = 0; i < n && rv == 0; i++) {
		if (!keep[i]) {
			object_tag_path(path, tags[i].tag);
			rv = store_remove(root->store, path, err);
		}
	}
	if (rv == 0) {
		rv = folders_remove_unused(&folders, root, err);
	}
	folders_deinit(&folders);
	return rv;
}

static int leftovers(struct tags_root *root, struct tag_leftover **left, size_t *n,
	struct pawl_err *err)
{
	struct folders folders = {.n = 0};
	struct tag_leftover *found;
	int rv = folders_add_unused(&folders, root, err);

	found = rv == 0 ? FAULT_MEM("root.leftovers", calloc(folders.n + 1, sizeof(*found))) : NULL;
	if (rv == 0 && found == NULL) {
		rv = pawl_err_set(err, PAWL_ENOMEM, "no memory to list %zu folders", folders.n);
	}
	for (size_t i = 0; rv == 0 && i < folders.n; i++) {
		const char *dir = folders.at[i].dir;

		memcpy(found[i].name, dir, sizeof(found[i].name));
		found[i].draft = true;
		snprintf(found[i].tag, sizeof(found[i].tag), "%.*s", (int)strcspn(dir, "/"), dir);
	}
	if (rv == 0) {
		*left = found;
		*n = folders.n;
	}
	folders_deinit(&folders);
	return rv;
}

/* ---- quarantine ---- */

static void bad_path(char path[TAG_PATH_MAX], const char *name)
{
	snprintf(path, TAG_PATH_MAX, OBJECT_BAD_DIR "/%s", name);
}

/* Removes a quarantined manifest; the reason first, so that none is left alone. */
static int remove_bad(struct tags_root *root, const char *name, struct pawl_err *err)
{
	char path[TAG_PATH_MAX];
	char why[TAG_PATH_MAX + sizeof(OBJECT_WHY)];
	int rv;

	bad_path(path, name);
	snprintf(why, sizeof(why), "%s" OBJECT_WHY, path);
	rv = store_remove(root->store, why, err);
	return rv == 0 ? store_remove(root->store, path, err) : rv;
}

/* Removes all but the newest TAGS_BAD_MAX quarantined tags, best effort. */
static void prune_bad(struct tags_root *root)
{
	struct folders folders = {.n = 0};
	struct tag_names names;
	int rv = folders_list_names(root, OBJECT_BAD_DIR, STORE_FILE, tags_want_numbered, &names,
		NULL);

	for (size_t i = 0; rv == 0 && i + TAGS_BAD_MAX < names.n; i++) {
		char path[TAG_PATH_MAX];
		char tag[CKPT_TAG_MAX];
		char etag[STORE_ETAG_MAX];

		folders_tag_of_bad(names.at[i].name, tag);
		bad_path(path, names.at[i].name);
		rv = folders_add_manifest(&folders, root, path, tag, etag, NULL);
		rv = rv == 0 ? remove_bad(root, names.at[i].name, NULL) : rv;
	}
	free(names.at);
	folders_remove_unused(&folders, root, NULL);
	folders_deinit(&folders);
}

/* Writes a copy of a manifest, and the reason if there is room, under a number that no other
 * has. */
static int copy_to_bad(struct tags_root *root, const char *tag, const void *bytes, size_t len_bytes,
	const char *why, struct pawl_err *err)
{
	struct tag_names names;
	char path[TAG_PATH_MAX];
	char reason[TAG_PATH_MAX + sizeof(OBJECT_WHY)];
	uint64_t number;
	int rv = folders_list_names(root, OBJECT_BAD_DIR, STORE_FILE, tags_want_numbered, &names,
		err);

	if (rv != 0) {
		return rv;
	}
	number = names.n > 0 ? names.at[names.n - 1].number + 1 : 1;
	free(names.at);
	snprintf(path, sizeof(path), OBJECT_BAD_DIR "/%s.%" PRIu64, tag, number);
	snprintf(reason, sizeof(reason), "%s" OBJECT_WHY, path);
	rv = store_write_small(root->store, path, bytes, len_bytes, err);
	if (rv == 0) {
		store_write_small(root->store, reason, why, strlen(why), NULL);
	}
	return rv;
}

static int quarantine(struct tags_root *root, const char *tag, const char *why,
	struct pawl_err *err)
{
	char path[TAG_PATH_MAX];
	void *bytes;
	size_t len_bytes;
	int rv;

	object_tag_path(path, tag);
	rv = object_check_owner(root, err);
	if (rv == 0) {
		rv = store_read_small(root->store, path, &bytes, &len_bytes, MANIFEST_MAX_BYTES,
			err);
	}
	if (rv != 0) {
		return rv == PAWL_ENOENT ? 0 : rv;
	}
	rv = copy_to_bad(root, tag, bytes, len_bytes, why, err);
	free(bytes);
	if (rv == 0) {
		rv = store_remove(root->store, path, err);
	}
	if (rv == 0) {
		prune_bad(root);
	}
	return rv;
}

/* ---- recovery ---- */

/* Sets *same: whether two objects exist and have the same bytes. */
static int compare_objects(struct store *store, const char *one, const char *other, bool *same,
	struct pawl_err *err)
{
	void *bytes, *others;
	size_t len_bytes, others_bytes;
	int rv = store_read_small(store, one, &bytes, &len_bytes, MANIFEST_MAX_BYTES, err);

	*same = false;
	if (rv != 0) {
		return rv == PAWL_ENOENT ? 0 : rv;
	}
	rv = store_read_small(store, other, &others, &others_bytes, MANIFEST_MAX_BYTES, err);
	if (rv == 0) {
		*same = len_bytes == others_bytes && memcmp(bytes, others, len_bytes) == 0;
		free(others);
	}
	free(bytes);
	return rv == PAWL_ENOENT ? 0 : rv;
}

/* Removes the copies of manifests whose tags are still there: their quarantine was cut off. */
static int recover_bad(struct tags_root *root, struct pawl_err *err)
{
	struct tag_names names;
	int rv = folders_list_names(root, OBJECT_BAD_DIR, STORE_FILE, tags_want_numbered, &names,
		err);

	for (size_t i = 0; rv == 0 && i < names.n; i++) {
		char path[TAG_PATH_MAX];
		char bad[TAG_PATH_MAX];
		char tag[CKPT_TAG_MAX];
		bool same;

		folders_tag_of_bad(names.at[i].name, tag);
		object_tag_path(path, tag);
		bad_path(bad, names.at[i].name);
		rv = compare_objects(root->store, path, bad, &same, err);
		if (rv == 0 && same) {
			rv = remove_bad(root, names.at[i].name, err);
		}
	}
	free(names.at);
	return rv;
}

static int recover(struct tags_root *root, struct pawl_err *err)
{
	struct folders folders = {.n = 0};
	int rv = object_check_owner(root, err);

	rv = rv == 0 ? recover_bad(root, err) : rv;
	rv = rv == 0 ? store_sweep(root->store, err) : rv;
	if (rv == 0) {
		rv = folders_add_unused(&folders, root, err);
	}
	for (size_t i = 0; i < folders.n && rv == 0; i++) {
		rv = store_remove(root->store, folders.at[i].dir, err);
	}
	folders_deinit(&folders);
	return rv;
}

/* ---- small files ---- */

/* Reads a small file, if it exists, and puts it again with more bytes at its end. */
static int append(struct tags_root *root, const char *file, const void *bytes, size_t len_bytes,
	bool sync, struct pawl_err *err)
{
	void *old = NULL;
	size_t old_bytes = 0;
	char *whole;
	int rv = store_read_small(root->store, file, &old, &old_bytes, ROOT_FILE_MAX, err);

	if (rv != 0 && rv != PAWL_ENOENT) {
		return rv;
	}
	if (len_bytes > ROOT_FILE_MAX - old_bytes) {
		free(old);
		return pawl_err_set(err, PAWL_ELIMIT,
			"append to %s: at most %u bytes: move it away", file, ROOT_FILE_MAX);
	}
	whole = FAULT_MEM("root.append", realloc(old, old_bytes + len_bytes + 1));
	if (whole == NULL) {
		free(old);
		return pawl_err_set(err, PAWL_ENOMEM, "append to %s: no memory for %zu bytes", file,
			old_bytes + len_bytes);
	}
	memcpy(whole + old_bytes, bytes, len_bytes);
	rv = store_write_small(root->store, file, whole, old_bytes + len_bytes, err);
	free(whole);
	return rv;
}

static int put_aside(struct tags_root *root, const char *file, const char *aside,
	struct pawl_err *err)
{
	void *bytes;
	size_t len_bytes;
	int rv = store_read_small(root->store, file, &bytes, &len_bytes, ROOT_FILE_MAX, err);

	if (rv != 0) {
		return rv;
	}
	rv = store_write_small(root->store, aside, bytes, len_bytes, err);
	free(bytes);
	return rv == 0 ? store_remove(root->store, file, err) : rv;
}

static int clear(struct tags_root *root, const char *folder, const char *old, struct pawl_err *err)
{
	return store_remove(root->store, folder, err);
}

const struct tags_root_ops root_object_ops = {
	.owner_file = OWNER_FILE,
	.bad_dir = OBJECT_BAD_DIR,
	.list = list,
	.has_name = has_name,
	.is_ours = has_name,
	.check_place = check_place,
	.read_manifest = read_manifest,
	.begin = object_begin,
	.begin_shared = object_begin_shared,
	.draft_manifest = object_draft_manifest,
	.sync_files = object_sync_files,
	.keep_part = object_keep_part,
	.adopt = object_adopt,
	.publish = object_publish,
	.abandon = object_abandon,
	.seal = seal,
	.quarantine = quarantine,
	.drop = drop,
	.leftovers = leftovers,
	.recover = recover,
	.lock = lock,
	.release = release,
	.held = held,
	.holds = holds,
	.append = append,
	.put_aside = put_aside,
	.clear = clear,
};
