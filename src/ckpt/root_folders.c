/* The folders that manifests use: see root_folders.h. All manifests of the root are read for each
 * removal, since any of them may use a folder. */
#include "ckpt/root_folders.h"

#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FOLDERS_FIRST   16u     /* folders allocated at first; doubled when full */
#define FOLDER_PREFIX   "save-" /* begins the name of such a folder below its tag */
#define RANDOM_ID_BYTES 16u     /* length of an id that tag_begin has made: hex digits */

_Static_assert(CKPT_TAG_MAX + sizeof("/" FOLDER_PREFIX) + ROOT_ID_MAX <= MANIFEST_FOLDER_MAX,
	"each folder of a save fits a manifest");

void folders_deinit(struct folders *folders)
{
	free(folders->at);
	*folders = (struct folders){.n = 0};
}

static int add_dir(struct folders *folders, const char *dir, struct pawl_err *err)
{
	if (folders->n == folders->cap) {
		size_t cap = folders->cap == 0 ? FOLDERS_FIRST : folders->cap * 2;
		struct manifest_folder *at =
			FAULT_MEM("root.folders", realloc(folders->at, cap * sizeof(*at)));

		if (at == NULL) {
			return pawl_err_set(err, PAWL_ENOMEM, "no memory for %zu folders", cap);
		}
		folders->at = at;
		folders->cap = cap;
	}
	snprintf(folders->at[folders->n].dir, sizeof(folders->at[folders->n].dir), "%s", dir);
	folders->n++;
	return 0;
}

static int compare_folders(const void *a, const void *b)
{
	const struct manifest_folder *x = a;
	const struct manifest_folder *y = b;

	return strcmp(x->dir, y->dir);
}

static void sort_folders(struct folders *folders)
{
	if (folders->n > 0) {
		qsort(folders->at, folders->n, sizeof(*folders->at), compare_folders);
	}
}

/* Returns whether a sorted list has the folder. */
static bool has_dir(const struct folders *folders, const char *dir)
{
	struct manifest_folder key;

	snprintf(key.dir, sizeof(key.dir), "%s", dir);
	return folders->n > 0 &&
		bsearch(&key, folders->at, folders->n, sizeof(*folders->at), compare_folders) !=
		NULL;
}

/* ---- folders that exist ---- */

/* Whether a folder below a tag is that of a save: "save-" and an id that tag_begin makes, or that
 * tag_begin_shared takes. */
static bool want_folder(struct tag_name *name)
{
	const char *id = name->name + strlen(FOLDER_PREFIX);

	if (strncmp(name->name, FOLDER_PREFIX, strlen(FOLDER_PREFIX)) != 0) {
		return false;
	}
	return root_is_shared_id(id) ||
		(strlen(id) == RANDOM_ID_BYTES &&
			strspn(id, "0123456789abcdef") == RANDOM_ID_BYTES);
}

int folders_list_names(struct tags_root *root, const char *folder, enum store_kind kind,
	bool (*wanted)(struct tag_name *name), struct tag_names *names, struct pawl_err *err)
{
	int rv = tags_list_names(root->store, folder, kind, wanted, names, err);

	if (rv == PAWL_ENOENT) {
		*names = (struct tag_names){.n = 0};
	}
	return rv == PAWL_ENOENT ? 0 : rv;
}

/* Adds all folders of saves below a tag. */
static int add_below(struct folders *folders, struct tags_root *root, const char *tag,
	struct pawl_err *err)
{
	struct tag_names names;
	int rv = folders_list_names(root, tag, STORE_DIR, want_folder, &names, err);

	for (size_t i = 0; rv == 0 && i < names.n; i++) {
		char dir[MANIFEST_FOLDER_MAX];

		snprintf(dir, sizeof(dir), "%.127s/%.95s", tag, names.at[i].name);
		rv = add_dir(folders, dir, err);
	}
	free(names.at);
	return rv;
}

/* ---- folders that are used ---- */

/* Reads a manifest and its etag, and adds its folders. *damaged: it cannot be decoded.
 * PAWL_ENOENT. */
static int add_used(struct folders *folders, struct tags_root *root, const char *path,
	char etag[STORE_ETAG_MAX], bool *damaged, struct pawl_err *err)
{
	struct manifest manifest;
	void *bytes;
	size_t len_bytes;
	int rv = store_read_etag(root->store, path, &bytes, &len_bytes, MANIFEST_MAX_BYTES, etag,
		err);

	*damaged = rv == PAWL_EINVAL || rv == PAWL_ELIMIT;
	if (rv != 0) {
		return *damaged ? 0 : rv;
	}
	rv = manifest_decode(&manifest, bytes, len_bytes, err);
	free(bytes);
	*damaged = rv != 0 && rv != PAWL_ENOMEM;
	if (rv != 0) {
		return *damaged ? 0 : rv;
	}
	for (uint32_t i = 0; i < manifest.folders_n && rv == 0; i++) {
		rv = add_dir(folders, manifest.folders[i].dir, err);
	}
	manifest_deinit(&manifest);
	return rv;
}

int folders_add_manifest(struct folders *folders, struct tags_root *root, const char *path,
	const char *tag, char etag[STORE_ETAG_MAX], struct pawl_err *err)
{
	bool damaged;
	int rv = add_used(folders, root, path, etag, &damaged, err);

	return rv == 0 && damaged ? add_below(folders, root, tag, err) : rv;
}

void folders_tag_of_bad(const char *name, char tag[CKPT_TAG_MAX])
{
	const char *dot = strrchr(name, '.');

	ASSERT(dot != NULL); /* tags_want_numbered has selected it */
	snprintf(tag, CKPT_TAG_MAX, "%.*s", (int)(dot - name), name);
}

/* The folders that may not be removed. */
struct used {
	struct folders dirs; /* folders that manifests use, sorted */
	struct folders tags; /* tags whose folders stay all, sorted */
	bool all;            /* a tag's manifest is damaged: every folder stays */
};

static void used_deinit(struct used *used)
{
	folders_deinit(&used->dirs);
	folders_deinit(&used->tags);
}

/* Adds what the manifests in a folder of the root use: the tags' or, if bad, the quarantined
 * ones. */
static int read_manifests(struct used *used, struct tags_root *root, const char *folder, bool bad,
	struct pawl_err *err)
{
	struct tag_names names;
	int rv = folders_list_names(root, folder, STORE_FILE,
		bad ? tags_want_numbered : tags_want_tag, &names, err);

	for (size_t i = 0; rv == 0 && i < names.n; i++) {
		char path[TAG_PATH_MAX];
		char tag[CKPT_TAG_MAX];
		char etag[STORE_ETAG_MAX];
		bool damaged;

		snprintf(path, sizeof(path), "%s/%s", folder, names.at[i].name);
		rv = add_used(&used->dirs, root, path, etag, &damaged, err);
		if (rv == 0 && damaged && bad) {
			folders_tag_of_bad(names.at[i].name, tag);
			rv = add_dir(&used->tags, tag, err);
		}
		used->all = used->all || (rv == 0 && damaged && !bad);
		rv = rv == PAWL_ENOENT ? 0 : rv; /* removed meanwhile */
	}
	free(names.at);
	return rv;
}

static int read_used(struct used *used, struct tags_root *root, struct pawl_err *err)
{
	int rv;

	*used = (struct used){.all = false};
	rv = read_manifests(used, root, OBJECT_TAGS_DIR, false, err);
	if (rv == 0) {
		rv = read_manifests(used, root, OBJECT_BAD_DIR, true, err);
	}
	if (rv != 0) {
		used_deinit(used);
		return rv;
	}
	sort_folders(&used->dirs);
	sort_folders(&used->tags);
	return 0;
}

static bool is_used(const struct used *used, const char *dir)
{
	char tag[CKPT_TAG_MAX];

	snprintf(tag, sizeof(tag), "%.*s", (int)strcspn(dir, "/"), dir);
	return used->all || has_dir(&used->dirs, dir) || has_dir(&used->tags, tag);
}

/* ---- removal ---- */

int folders_remove_unused(const struct folders *folders, struct tags_root *root,
	struct pawl_err *err)
{
	struct used used;
	int rv;

	if (folders->n == 0) {
		return 0;
	}
	rv = read_used(&used, root, err);
	if (rv != 0) {
		return rv;
	}
	for (size_t i = 0; i < folders->n && rv == 0; i++) {
		rv = is_used(&used, folders->at[i].dir)
			? 0
			: store_remove(root->store, folders->at[i].dir, err);
	}
	used_deinit(&used);
	return rv;
}

/* Adds a folder, if anything is in it. Servers that have directories underneath (SeaweedFS) go on
 * listing folders that have become empty. */
static int add_filled(struct folders *folders, struct tags_root *root, const char *dir,
	struct pawl_err *err)
{
	int rv = store_stat(root->store, dir, NULL, NULL, err);

	if (rv != 0) {
		return rv == PAWL_ENOENT ? 0 : rv;
	}
	return add_dir(folders, dir, err);
}

int folders_add_unused(struct folders *folders, struct tags_root *root, struct pawl_err *err)
{
	struct folders found = {.n = 0};
	struct tag_names tags;
	struct used used;
	int rv = folders_list_names(root, "", STORE_DIR, tags_want_tag, &tags, err);

	for (size_t i = 0; rv == 0 && i < tags.n; i++) {
		rv = add_below(&found, root, tags.at[i].name, err);
	}
	free(tags.at);
	rv = rv == 0 ? read_used(&used, root, err) : rv;
	if (rv != 0) {
		folders_deinit(&found);
		return rv;
	}
	for (size_t i = 0; i < found.n && rv == 0; i++) {
		const char *dir = found.at[i].dir;

		rv = is_used(&used, dir) ? 0 : add_filled(folders, root, dir, err);
	}
	used_deinit(&used);
	folders_deinit(&found);
	return rv;
}
