/*
 * Building and publishing a tag in a root of objects. See root.h for the contracts.
 *
 * Publishing, in the order in which a crash finds it:
 *   1. the files, each complete and durable, in a folder that no manifest names
 *   2. the manifest, by one conditional PUT: the tag changes in this instant
 *   3. folders that only the replaced manifest named are removed
 *
 * What a crash leaves, and tags_recover removes:
 *   in 1   a folder that no manifest names
 *   in 3   the same, with the replaced files
 *
 * The condition is that the manifest is still the one that tag_begin saw. So of two processes that
 * save one tag the first wins, and no file of it is touched by the other. If the answer of the PUT
 * is lost, reading the object again tells what happened.
 *
 * The newest owner has the root. An earlier one is refused when it publishes or removes anything;
 * it does not wait, and nothing waits for it. If it loses the root between that check and its PUT,
 * it can still publish a tag whose files the new owner has removed as leftovers: such a tag is
 * broken, and no restore takes it.
 */
#include "ckpt/root_object.h"

#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

_Static_assert(1 + 1 + 1 + CKPT_FOLDERS_MAX + 1 <= STORE_NEST_MAX,
	"<tag>/save-<id>/.pawl/<folders>/<file> is not too deep for a store");
_Static_assert(MANIFEST_FOLDER_MAX <= STORE_NAME_MAX, "a draft has room for its folder");

int object_get_random(uint64_t *number, struct pawl_err *err)
{
	if (FAULT_SYS("root.random", getrandom(number, sizeof(*number), 0)) !=
		(ssize_t)sizeof(*number)) {
		return pawl_err_sys(err, "get a random number");
	}
	return 0;
}

/* ---- conditional PUTs ---- */

int object_read_etag(struct store *store, const char *path, size_t max_bytes,
	char etag[STORE_ETAG_MAX], struct pawl_err *err)
{
	void *bytes;
	size_t len_bytes;
	int rv = store_read_etag(store, path, &bytes, &len_bytes, max_bytes, etag, err);

	if (rv == 0) {
		free(bytes);
	} else if (rv == PAWL_ENOENT) {
		etag[0] = '\0';
		rv = 0;
	}
	return rv;
}

/* Returns whether an object has exactly these bytes, and gets its etag. */
static bool reads_back(struct store *store, const char *path, const void *bytes, size_t len_bytes,
	char etag[STORE_ETAG_MAX])
{
	void *found;
	size_t found_bytes;
	bool same;

	if (store_read_etag(store, path, &found, &found_bytes, len_bytes, etag, NULL) != 0) {
		return false;
	}
	same = found_bytes == len_bytes && memcmp(found, bytes, len_bytes) == 0;
	free(found);
	return same;
}

int object_put_own(struct store *store, const char *path, const void *bytes, size_t len_bytes,
	const char *match, char etag[STORE_ETAG_MAX], struct pawl_err *err)
{
	int rv = store_put_if(store, path, bytes, len_bytes, match, etag, err);

	return rv != 0 && reads_back(store, path, bytes, len_bytes, etag) ? 0 : rv;
}

bool object_is_lost_race(int rv)
{
	return rv == PAWL_EEXIST || rv == PAWL_EMISMATCH;
}

/* ---- building a tag ---- */

/* Begins a draft whose files go into the folder with this id. */
static int begin_in(struct tags_root *root, const char *id, struct tag_draft *draft,
	struct pawl_err *err)
{
	char path[TAG_PATH_MAX];

	object_tag_path(path, draft->tag);
	snprintf(draft->dir, sizeof(draft->dir), "%s/save-%.64s", draft->tag, id);
	ASSERT(strlen(draft->dir) < MANIFEST_FOLDER_MAX);
	return object_read_etag(root->store, path, MANIFEST_MAX_BYTES, draft->etag, err);
}

int object_begin(struct tags_root *root, struct tag_draft *draft, struct pawl_err *err)
{
	char id[2 * sizeof(uint64_t) + 1];
	uint64_t number;
	int rv = object_get_random(&number, err);

	if (rv != 0) {
		return rv;
	}
	snprintf(id, sizeof(id), "%016" PRIx64, number);
	return begin_in(root, id, draft, err);
}

int object_begin_shared(struct tags_root *root, const char *id, struct tag_draft *draft,
	struct pawl_err *err)
{
	return begin_in(root, id, draft, err);
}

int object_draft_manifest(const struct tag_draft *draft, struct manifest *manifest,
	struct pawl_err *err)
{
	manifest->folders = FAULT_MEM("root.draft", calloc(1, sizeof(*manifest->folders)));
	if (manifest->folders == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for a manifest");
	}
	manifest->folders_n = 1;
	snprintf(manifest->folders[0].dir, sizeof(manifest->folders[0].dir), "%.*s",
		(int)sizeof(manifest->folders[0].dir) - 1, draft->dir);
	return 0;
}

int object_sync_files(struct tags_root *root, const struct tag_draft *draft, struct pawl_err *err)
{
	return 0; /* an object that was completed is durable with its name */
}

/* Keeps a part by naming its files, which stay where they are. */
int object_keep_part(struct tags_root *root, const struct tag_draft *draft,
	struct manifest *manifest, const struct manifest *from, const struct manifest_part *old,
	struct manifest_part *part, struct pawl_err *err)
{
	struct manifest_part kept = *old;

	for (uint32_t i = 0; i < manifest_files_n(old); i++) {
		const char *dir = from->folders[old->at[i].folder].dir;
		uint32_t folder = manifest_find_folder(manifest, dir);

		if (folder == UINT32_MAX) {
			int rv = manifest_add_folders(manifest, from, err);

			if (rv != 0) {
				return rv;
			}
			folder = manifest_find_folder(manifest, dir);
		}
		kept.at[i].folder = folder;
	}
	*part = kept;
	return 0;
}

int object_adopt(struct tags_root *root, const struct tag_draft *draft, const struct manifest *ours,
	struct pawl_err *err)
{
	return 0; /* files of others in the tag's folder stay there */
}

static int lost(struct pawl_err *err)
{
	return pawl_err_set(err, PAWL_EBUSY,
		"another process has published this tag since the save began, and that tag stays: "
		"give each job a root of its own, or save under another tag");
}

/* Gets the folders that the manifest which the draft replaces uses. PAWL_EBUSY: it is no longer the
 * one that tag_begin saw. */
static int read_replaced(struct tags_root *root, const struct tag_draft *draft,
	struct folders *folders, struct pawl_err *err)
{
	char etag[STORE_ETAG_MAX];
	char path[TAG_PATH_MAX];
	int rv;

	object_tag_path(path, draft->tag);
	rv = folders_add_manifest(folders, root, path, draft->tag, etag, err);
	if (rv == PAWL_ENOENT || (rv == 0 && strcmp(etag, draft->etag) != 0)) {
		rv = lost(err);
	}
	return rv;
}

int object_publish(struct tags_root *root, const struct tag_draft *draft,
	const struct manifest *manifest, const struct wire_out *encoded, struct pawl_err *err)
{
	struct folders replaced = {.n = 0};
	char etag[STORE_ETAG_MAX];
	char path[TAG_PATH_MAX];
	int rv = object_check_owner(root, err);

	ASSERT(manifest->folders_n > 0 && strcmp(manifest->folders[0].dir, draft->dir) == 0);
	object_tag_path(path, draft->tag);
	if (rv == 0 && draft->etag[0] != '\0') {
		rv = read_replaced(root, draft, &replaced, err);
	}
	if (rv == 0) {
		rv = object_put_own(root->store, path, encoded->bytes, encoded->len_bytes,
			draft->etag, etag, err);
		rv = object_is_lost_race(rv) ? lost(err) : rv;
	}
	if (rv == 0) {
		folders_remove_unused(&replaced, root,
			NULL); /* tags_recover removes what is left */
	}
	folders_deinit(&replaced);
	return rv;
}

/* Removes the draft's files, unless the tag's manifest uses them, or may: an error of tag_publish
 * does not say that the manifest was not put. */
void object_abandon(struct tags_root *root, const struct tag_draft *draft)
{
	struct manifest manifest;
	int rv;

	if (draft->dir[0] == '\0') {
		return;
	}
	rv = tags_read_manifest(root, draft->tag, &manifest, NULL);
	if (rv == 0) {
		rv = manifest_find_folder(&manifest, draft->dir) == UINT32_MAX ? PAWL_ENOENT : 0;
		manifest_deinit(&manifest);
	}
	if (rv == PAWL_ENOENT) {
		store_remove(root->store, draft->dir, NULL);
	}
}
