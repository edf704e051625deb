/* Roots of both kinds: opening, checks of arguments, and what is the same in each: see root.h.
 * root_posix.c and root_object.c have what differs. */
#include "ckpt/root_impl.h"

#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- opening ---- */

/* Makes a root over a store, which it takes if this succeeds. */
static int make_root(struct store *store, struct tags_root **out, struct pawl_err *err)
{
	struct tags_root *root = FAULT_MEM("root.alloc", calloc(1, sizeof(*root)));

	if (root == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "no memory to open a root");
	}
	root->ops = store_is_flat(store) ? &root_object_ops : &root_posix_ops;
	root->store = store;
	root->lock_fd = -1;
	*out = root;
	return 0;
}

int tags_root_over(struct store *store, struct tags_root **root, struct pawl_err *err)
{
	return make_root(store, root, err);
}

int tags_root_open(const char *path, const char *hidden, bool create, struct tags_root **root,
	struct pawl_err *err)
{
	struct tags_root *opened;
	struct store *store;
	bool in_bucket = store_is_bucket(path);
	int rv = in_bucket ? store_bucket_open(path, &store, err)
			   : store_posix_open_split(path, hidden, create, &store, err);

	if (rv != 0) {
		return rv;
	}
	rv = make_root(store, &opened, err);
	if (rv == 0 && in_bucket) {
		*root = opened;
		return 0;
	}
	if (rv != 0) {
		store_close(store);
		return rv;
	}
	opened->path = FAULT_MEM("root.alloc", strdup(path));
	opened->lock_dir = FAULT_MEM("root.alloc", strdup(hidden != NULL ? hidden : path));
	if (opened->path == NULL || opened->lock_dir == NULL) {
		tags_root_close(opened);
		return pawl_err_set(err, PAWL_ENOMEM, "root %s: no memory to open it", path);
	}
	*root = opened;
	return 0;
}

int tags_root_open_unasked(const char *path, struct tags_root **root, struct pawl_err *err)
{
	struct store *store;
	int rv = store_bucket_open_unasked(path, &store, err);

	if (rv != 0) {
		return rv;
	}
	rv = make_root(store, root, err);
	if (rv != 0) {
		store_close(store);
	}
	return rv;
}

void tags_root_close(struct tags_root *root)
{
	if (root == NULL) {
		return;
	}
	if (root->ops->release != NULL) {
		root->ops->release(root);
	}
	store_close(root->store);
	if (root->ops->unlock != NULL) {
		root->ops->unlock(root);
	}
	free(root->path);
	free(root->lock_dir);
	free(root);
}

struct store *tags_root_store(struct tags_root *root)
{
	return root->store;
}

/* ---- owning ---- */

int tags_root_lock(struct tags_root *root, const char *job, bool wait, struct pawl_err *err)
{
	return root->ops->lock(root, job, wait, err);
}

bool tags_root_holds(struct tags_root *root)
{
	return root->ops->holds(root);
}

bool tags_root_held(struct tags_root *root)
{
	return root->ops->held != NULL && root->ops->held(root);
}

bool tags_root_holder(struct tags_root *root, char *holder)
{
	void *text;
	size_t len_bytes;

	if (store_read_small(root->store, root->ops->owner_file, &text, &len_bytes,
		    ROOT_HOLDER_MAX - 1, NULL) != 0) {
		return false;
	}
	snprintf(holder, ROOT_HOLDER_MAX, "%s", (const char *)text);
	holder[strcspn(holder, "\n")] = '\0';
	free(text);
	return holder[0] != '\0';
}

bool tags_root_used(struct tags_root *root)
{
	return store_stat(root->store, root->ops->owner_file, NULL, NULL, NULL) == 0;
}

/* ---- building a tag ---- */

int tag_begin(struct tags_root *root, const char *tag, struct tag_draft *draft,
	struct pawl_err *err)
{
	int rv;

	*draft = (struct tag_draft){.tag = ""};
	rv = tags_check_name(tag, err);
	if (rv != 0) {
		return rv;
	}
	snprintf(draft->tag, sizeof(draft->tag), "%s", tag);
	rv = root->ops->begin(root, draft, err);
	ASSERT(rv != 0 || draft->dir[0] != '\0');
	return rv == 0 ? 0 : pawl_err_prefix(err, rv, "begin %s", tag);
}

int tag_begin_shared(struct tags_root *root, const char *tag, const char *id,
	struct tag_draft *draft, struct pawl_err *err)
{
	int rv;

	ASSERT(root_is_shared_id(id));
	*draft = (struct tag_draft){.tag = ""};
	rv = tags_check_name(tag, err);
	if (rv != 0) {
		return rv;
	}
	snprintf(draft->tag, sizeof(draft->tag), "%s", tag);
	rv = root->ops->begin_shared(root, id, draft, err);
	ASSERT(rv != 0 || draft->dir[0] != '\0');
	return rv == 0 ? 0 : pawl_err_prefix(err, rv, "begin %s", tag);
}

bool root_is_shared_id(const char *id)
{
	size_t len_bytes = strlen(id);

	if ((strncmp(id, ROOT_SHARED_ID, strlen(ROOT_SHARED_ID)) != 0 &&
		    strncmp(id, ROOT_UNIT_ID, strlen(ROOT_UNIT_ID)) != 0) ||
		len_bytes > ROOT_ID_MAX) {
		return false;
	}
	for (size_t i = 0; i < len_bytes; i++) {
		if (!((id[i] >= 'a' && id[i] <= 'z') || (id[i] >= 'A' && id[i] <= 'Z') ||
			    (id[i] >= '0' && id[i] <= '9') || id[i] == '-')) {
			return false;
		}
	}
	return true;
}

int tag_draft_manifest(struct tags_root *root, const struct tag_draft *draft,
	struct manifest *manifest, struct pawl_err *err)
{
	ASSERT(manifest->parts_n == 0 && manifest->folders_n == 0 && manifest->folders == NULL);
	return root->ops->draft_manifest(draft, manifest, err);
}

int tag_sync_files(struct tags_root *root, const struct tag_draft *draft, struct pawl_err *err)
{
	return root->ops->sync_files(root, draft, err);
}

int tag_keep_part(struct tags_root *root, const struct tag_draft *draft, struct manifest *manifest,
	const struct manifest *from, const struct manifest_part *old, struct manifest_part *part,
	struct pawl_err *err)
{
	return root->ops->keep_part(root, draft, manifest, from, old, part, err);
}

int tag_adopt(struct tags_root *root, const struct tag_draft *draft, const struct manifest *ours,
	struct pawl_err *err)
{
	return root->ops->adopt(root, draft, ours, err);
}

/* Makes a copy of a manifest with only the folders that its parts use. The caller frees parts and
 * folders of the copy; all else stays the manifest's. */
static int copy_pruned(const struct manifest *manifest, struct manifest *copy, struct pawl_err *err)
{
	size_t parts_bytes = manifest->parts_n * sizeof(*copy->parts);
	size_t folders_bytes = manifest->folders_n * sizeof(*copy->folders);

	ASSERT(folders_bytes > 0);
	*copy = *manifest;
	copy->parts = FAULT_MEM("root.publish", malloc(parts_bytes + 1));
	copy->folders = FAULT_MEM("root.publish", malloc(folders_bytes));
	if (copy->parts == NULL || copy->folders == NULL) {
		free(copy->parts);
		free(copy->folders);
		return pawl_err_set(err, PAWL_ENOMEM, "no memory for the manifest");
	}
	if (parts_bytes > 0) {
		memcpy(copy->parts, manifest->parts, parts_bytes);
	}
	memcpy(copy->folders, manifest->folders, folders_bytes);
	manifest_prune_folders(copy);
	return 0;
}

static int publish(struct tags_root *root, const struct tag_draft *draft,
	const struct manifest *manifest, struct pawl_err *err)
{
	struct wire_out encoded = {0};
	int rv;

	manifest_encode(manifest, &encoded);
	rv = encoded.failed ? wire_out_error(&encoded, "the manifest", err)
			    : root->ops->publish(root, draft, manifest, &encoded, err);
	wire_out_deinit(&encoded);
	return rv;
}

int tag_publish(struct tags_root *root, const struct tag_draft *draft,
	const struct manifest *manifest, struct pawl_err *err)
{
	struct manifest pruned = {.parts_n = 0};
	int rv = tags_check_name(draft->tag, err);

	if (rv == 0) {
		rv = manifest_check(manifest, err);
	}
	if (rv == 0) {
		ASSERT(strcmp(manifest->tag, draft->tag) == 0);
		rv = manifest->folders_n > 0 ? copy_pruned(manifest, &pruned, err) : 0;
	}
	if (rv == 0) {
		rv = publish(root, draft, manifest->folders_n > 0 ? &pruned : manifest, err);
		free(pruned.parts);
		free(pruned.folders);
	}
	return rv == 0 ? 0 : pawl_err_prefix(err, rv, "publish %s", draft->tag);
}

void tag_abandon(struct tags_root *root, const struct tag_draft *draft)
{
	if (draft->tag[0] != '\0') {
		root->ops->abandon(root, draft);
	}
}

int tag_seal(struct tags_root *root, const char *tag, struct pawl_err *err)
{
	return root->ops->seal(root, tag, err);
}

/* ---- what a crash left ---- */

int tags_leftovers(struct tags_root *root, struct tag_leftover **left, size_t *n,
	struct pawl_err *err)
{
	return root->ops->leftovers(root, left, n, err);
}

int tags_recover(struct tags_root *root, struct pawl_err *err)
{
	int rv = root->ops->recover(root, err);

	return rv == 0 ? 0 : pawl_err_prefix(err, rv, "recover");
}

/* ---- small files ---- */

int tags_root_append(struct tags_root *root, const char *file, const void *bytes, size_t len_bytes,
	bool sync, struct pawl_err *err)
{
	return root->ops->append(root, file, bytes, len_bytes, sync, err);
}

int tags_root_put_aside(struct tags_root *root, const char *file, const char *aside,
	struct pawl_err *err)
{
	ASSERT(strchr(file, '/') == NULL && strchr(aside, '/') == NULL);
	return root->ops->put_aside(root, file, aside, err);
}

int tags_root_make_folder(struct tags_root *root, const char *folder, struct pawl_err *err)
{
	return root->ops->make_folder != NULL ? root->ops->make_folder(root, folder, err) : 0;
}

int tags_root_clear(struct tags_root *root, const char *folder, const char *old,
	struct pawl_err *err)
{
	return root->ops->clear(root, folder, old, err);
}

int tags_root_refresh(struct tags_root *root, struct pawl_err *err)
{
	return store_refresh_dir(root->store, "", err);
}

/* A folder whose files are being added up. */
struct measure {
	struct store *store; /* the root's */
	const char *path;    /* path of the folder */
	unsigned nest;       /* number of folders above it */
	uint64_t size_bytes; /* bytes counted so far */
};

static int measure_name(void *user, const char *name, enum store_kind kind)
{
	struct measure *measure = user;
	char path[STORE_PATH_MAX];
	uint64_t size_bytes = 0;

	if ((size_t)snprintf(path, sizeof(path), "%s/%s", measure->path, name) >= sizeof(path)) {
		return 0;
	}
	if (kind == STORE_DIR && measure->nest < STORE_NEST_MAX) {
		struct measure inner = {measure->store, path, measure->nest + 1, 0};

		store_list(measure->store, path, measure_name, &inner, NULL);
		size_bytes = inner.size_bytes;
	} else if (kind == STORE_FILE) {
		store_stat(measure->store, path, NULL, &size_bytes, NULL);
	}
	measure->size_bytes += size_bytes;
	return 0;
}

uint64_t tags_root_measure(struct tags_root *root, const char *path)
{
	struct measure measure = {.store = root->store, .path = path};
	enum store_kind kind;
	uint64_t size_bytes = 0;

	if (store_stat(root->store, path, &kind, &size_bytes, NULL) != 0 || kind != STORE_DIR) {
		return size_bytes;
	}
	store_list(root->store, path, measure_name, &measure, NULL);
	return measure.size_bytes;
}
