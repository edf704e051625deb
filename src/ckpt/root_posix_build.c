/*
 * Building and publishing a tag in a root of directories, and recovering such a root after a crash.
 * See root.h and tags.h for the contracts.
 *
 * Publishing, in the order in which a crash finds it. Until the rename everything happens in
 * .pawl.<tag>.new, which no reader opens; each step is durable before the next begins:
 *   1. the partitions, written and synced by the caller
 *   2. their names
 *   3. .pawl/manifest
 *   4. complete.txt
 *   5. .pawl.<tag>.new is renamed to <tag>, or exchanged with it, and the root is synced
 * Where the system cannot exchange two names, step 5 is instead:
 *   <tag> to .pawl.<tag>.old, .pawl.<tag>.new to <tag>, remove .pawl.<tag>.old
 *
 * Hidden names and what they mean after a crash (recover_tag):
 *   .pawl.<tag>.new   half built, or the old content after an exchange: removed
 *   .pawl.<tag>.old   <tag> exists: removed
 *                     no <tag>, the replacement was interrupted: put back
 *   .pawl.<tag>.del   no longer kept by retention: removed
 *
 * Nothing is removed before the root is synced: a rename that a killed process left unsynced could
 * still be undone by a power cut, and the replaced content must be there then.
 */
#include "ckpt/root_posix.h"

#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/wire.h"
#include "store/dirs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HIDDEN_PREFIX ".pawl." /* begins the hidden names of a tag */

_Static_assert(CKPT_TAG_MAX - 1 + sizeof(HIDDEN_PREFIX ".new") <= TAG_NAME_MAX,
	"a tag can be hidden");
_Static_assert(ROOT_ID_MAX < CKPT_TAG_MAX, "and so can a shared draft");
_Static_assert(TAG_NAME_MAX + sizeof("/.pawl/manifest") <= TAG_PATH_MAX, "and its files found");
_Static_assert(TAG_NAME_MAX <= STORE_NAME_MAX, "a hidden tag is one name of a path");
_Static_assert(TAG_NAME_MAX <= MANIFEST_FOLDER_MAX, "a leftover has room for a hidden name");
_Static_assert(1 + 1 + CKPT_FOLDERS_MAX + 1 <= STORE_NEST_MAX,
	"<tag>/.pawl/<folders>/<file> is not too deep for a store");

/* ---- hidden names ---- */

void root_posix_hide_name(char name[TAG_NAME_MAX], const char *tag, const char *suffix)
{
	snprintf(name, TAG_NAME_MAX, HIDDEN_PREFIX "%s%s", tag, suffix);
}

/* Gets the tag from a hidden name; false if name is not one. */
static bool parse_hidden(const char *name, char tag[CKPT_TAG_MAX])
{
	size_t prefix = strlen(HIDDEN_PREFIX);
	const char *suffix = strrchr(name, '.');
	size_t len_bytes;

	if (strncmp(name, HIDDEN_PREFIX, prefix) != 0 || suffix < name + prefix ||
		(strcmp(suffix, ".new") != 0 && strcmp(suffix, ".old") != 0 &&
			strcmp(suffix, ".del") != 0)) {
		return false;
	}
	len_bytes = (size_t)(suffix - name) - prefix;
	if (len_bytes >= CKPT_TAG_MAX) {
		return false;
	}
	memcpy(tag, name + prefix, len_bytes);
	tag[len_bytes] = '\0';
	return tag_valid(tag);
}

static bool want_hidden(struct tag_name *name)
{
	char tag[CKPT_TAG_MAX];

	return parse_hidden(name->name, tag);
}

/* ---- recovery ---- */

/* Removes or puts back the hidden names of one tag: see the table at the top. */
static int recover_tag(struct store *store, const char *tag, struct pawl_err *err)
{
	enum { NEW, OLD, DEL, HIDDEN };
	static const char *const suffixes[HIDDEN] = {".new", ".old", ".del"};
	char names[HIDDEN][TAG_NAME_MAX];
	enum store_kind kind = STORE_OTHER;
	bool has[HIDDEN];
	bool has_tag;
	int rv = tags_has_path(store, tag, &has_tag, err);

	for (int i = 0; i < HIDDEN && rv == 0; i++) {
		root_posix_hide_name(names[i], tag, suffixes[i]);
		rv = tags_has_path(store, names[i], &has[i], err);
	}
	if (rv == 0 && has[OLD]) { /* only a directory is put back, since a tag is one */
		rv = store_stat(store, names[OLD], &kind, NULL, err);
	}
	if (rv != 0 || (!has[NEW] && !has[OLD] && !has[DEL])) {
		return rv;
	}
	rv = store_sync_dir(store, "", err);
	if (rv == 0 && has[OLD] && !has_tag && kind == STORE_DIR) {
		rv = store_rename(store, names[OLD], tag, STORE_REPLACE, err);
		has[OLD] = false;
	}
	for (int i = 0; i < HIDDEN && rv == 0; i++) {
		rv = has[i] ? store_remove(store, names[i], err) : 0;
	}
	return rv;
}

int root_posix_leftovers(struct tags_root *root, struct tag_leftover **left, size_t *n,
	struct pawl_err *err)
{
	struct tag_leftover *list;
	struct tag_names names;
	int rv = tags_list_names(root->store, "", STORE_DIR, want_hidden, &names, err);

	if (rv != 0) {
		return rv;
	}
	list = FAULT_MEM("tags.leftovers", calloc(names.n + 1, sizeof(*list)));
	if (list == NULL) {
		free(names.at);
		return pawl_err_set(err, PAWL_ENOMEM, "no memory to list %zu names", names.n);
	}
	for (size_t i = 0; i < names.n && rv == 0; i++) {
		size_t len = strlen(names.at[i].name);
		bool hidden = parse_hidden(names.at[i].name, list[i].tag);
		bool has_tag;

		ASSERT(hidden); /* want_hidden has chosen it */
		memcpy(list[i].name, names.at[i].name, len + 1);
		rv = tags_has_path(root->store, list[i].tag, &has_tag, err);
		list[i].put_back = !has_tag && strcmp(list[i].name + len - 4, ".old") == 0;
		list[i].draft = strcmp(list[i].name + len - 4, ".new") == 0;
	}
	if (rv == 0) {
		*left = list;
		*n = names.n;
	} else {
		free(list);
	}
	free(names.at);
	return rv;
}

int root_posix_recover(struct tags_root *root, struct pawl_err *err)
{
	struct tag_names names;
	int rv;

	rv = tags_list_names(root->store, "", STORE_DIR, want_hidden, &names, err);
	if (rv != 0) {
		return rv;
	}
	for (size_t i = 0; i < names.n && rv == 0; i++) {
		char tag[CKPT_TAG_MAX];

		if (parse_hidden(names.at[i].name, tag)) {
			rv = recover_tag(root->store, tag, err);
		}
	}
	free(names.at);
	return rv;
}

/* ---- publishing ---- */

/* Makes the directory of a draft. */
static int make_draft(struct store *store, struct tag_draft *draft, struct pawl_err *err)
{
	char inner[STORE_NAME_MAX + sizeof("/.pawl")];
	int rv = store_mkdir(store, draft->dir, err);

	snprintf(inner, sizeof(inner), "%s/.pawl", draft->dir);
	return rv == 0 ? store_mkdir(store, inner, err) : rv;
}

int root_posix_begin(struct tags_root *root, struct tag_draft *draft, struct pawl_err *err)
{
	char fresh[TAG_NAME_MAX];
	int rv = recover_tag(root->store, draft->tag, err);

	root_posix_hide_name(fresh, draft->tag, ".new");
	memcpy(draft->dir, fresh, sizeof(fresh));
	return rv == 0 ? make_draft(root->store, draft, err) : rv;
}

/* tags_recover takes the directory of a shared draft for an unfinished tag. */
int root_posix_begin_shared(struct tags_root *root, const char *id, struct tag_draft *draft,
	struct pawl_err *err)
{
	char fresh[TAG_NAME_MAX];

	root_posix_hide_name(fresh, id, ".new");
	memcpy(draft->dir, fresh, sizeof(fresh));
	return make_draft(root->store, draft, err);
}

int root_posix_draft_manifest(const struct tag_draft *draft, struct manifest *manifest,
	struct pawl_err *err)
{
	return 0; /* all files lie in the tag's directory */
}

int root_posix_sync_files(struct tags_root *root, const struct tag_draft *draft,
	struct pawl_err *err)
{
	return store_sync_dir(root->store, draft->dir, err);
}

/* Keeps a part by hard links. */
int root_posix_keep_part(struct tags_root *root, const struct tag_draft *draft,
	struct manifest *manifest, const struct manifest *from, const struct manifest_part *old,
	struct manifest_part *part, struct pawl_err *err)
{
	int rv = 0;

	for (uint32_t i = 0; i < manifest_files_n(old) && rv == 0; i++) {
		char path[STORE_PATH_MAX];
		char to[STORE_PATH_MAX];

		manifest_file_path(path, sizeof(path), from->tag, old, i);
		manifest_file_path(to, sizeof(to), draft->dir, old, i);
		rv = store_mkdirs(root->store, to, err);
		rv = rv == 0 ? store_link(root->store, path, to, err) : rv;
	}
	if (rv == 0) {
		*part = *old;
	}
	return rv;
}

/* Makes the names in folder, and in all folders between it and dir, durable. */
static int sync_folder(struct store *store, const char *dir, const char *folder,
	struct pawl_err *err)
{
	char path[STORE_PATH_MAX];
	size_t len_bytes = strlen(folder);
	int rv = 0;

	while (len_bytes > strlen(dir) && rv == 0) {
		snprintf(path, sizeof(path), "%.*s", (int)len_bytes, folder);
		rv = store_sync_dir(store, path, err);
		len_bytes = (size_t)(strrchr(path, '/') - path);
	}
	return rv;
}

/* Makes the names of all files that lie in folders of dir durable. */
static int sync_folders(struct store *store, const char *dir, const struct manifest *manifest,
	struct pawl_err *err)
{
	char folder[STORE_PATH_MAX];
	char done[STORE_PATH_MAX] = "";
	int rv = 0;

	for (uint32_t i = 0; i < manifest->parts_n && rv == 0; i++) {
		if (!strchr(manifest->parts[i].file, '/')) {
			continue; /* dir and its .pawl are synced in any case */
		}
		manifest_file_path(folder, sizeof(folder), dir, &manifest->parts[i], 0);
		*strrchr(folder, '/') = '\0';
		if (strcmp(folder, done) != 0) {
			rv = sync_folder(store, dir, folder, err);
			memcpy(done, folder, sizeof(done));
		}
	}
	return rv;
}

/* Says that all in dir is there and durable: the last step before it gets its name. */
static int write_complete(struct store *store, const char *dir, struct pawl_err *err)
{
	char complete[TAG_PATH_MAX];
	int rv;

	snprintf(complete, sizeof(complete), "%s/complete.txt", dir);
	rv = store_write_small(store, complete, ROOT_POSIX_OK, ROOT_POSIX_OK_BYTES, err);
	return rv == 0 ? store_sync_dir(store, dir, err) : rv;
}

/* Makes the content of dir complete and durable: names, then manifest, then complete.txt. */
static int finish_dir(struct store *store, const char *dir, const struct manifest *manifest,
	const struct wire_out *encoded, struct pawl_err *err)
{
	char inner[TAG_PATH_MAX], file[TAG_PATH_MAX];
	int rv;

	snprintf(inner, sizeof(inner), "%s/.pawl", dir);
	snprintf(file, sizeof(file), "%s/.pawl/manifest", dir);
	rv = sync_folders(store, dir, manifest, err);
	if (rv == 0) {
		rv = store_sync_dir(store, dir, err);
	}
	if (rv == 0) {
		rv = store_write_small(store, file, encoded->bytes, encoded->len_bytes, err);
	}
	if (rv == 0) {
		rv = store_sync_dir(store, inner, err);
	}
	return rv == 0 ? write_complete(store, dir, err) : rv;
}

int root_posix_seal(struct tags_root *root, const char *tag, struct pawl_err *err)
{
	return write_complete(root->store, tag, err);
}

/* Replaces the tag by dir where the system cannot exchange two names. */
static int replace_in_steps(struct store *store, const char *tag, const char *dir,
	struct pawl_err *err)
{
	char old[TAG_NAME_MAX];
	int rv;

	root_posix_hide_name(old, tag, ".old");
	rv = store_rename(store, tag, old, STORE_REPLACE, err);
	if (rv != 0) {
		return rv;
	}
	rv = store_rename(store, dir, tag, STORE_REPLACE, err);
	if (rv != 0) {
		store_rename(store, old, tag, STORE_REPLACE, NULL);
		return rv;
	}
	rv = store_sync_dir(store, "", err);
	if (rv == 0) {
		store_remove(store, old, NULL); /* the next tag_begin removes what is left */
	}
	return rv;
}

/* Files that other programs put into a directory that a tag replaces, or into a folder of it. */
struct foreign {
	struct store *store;         /* the caller's */
	const char *tag;             /* the directory that is replaced */
	const char *dir;             /* where the tag is being built */
	const char *folder;          /* folder in both directories, with a '/' behind it; or "" */
	const struct manifest *ours; /* manifest of the replaced tag: its files are not adopted */
	struct pawl_err *err;        /* filled if rv is not 0 */
	int rv;                      /* why the listing stopped, or 0 */
};

static bool is_ours(const struct manifest *manifest, const char *name)
{
	return strcmp(name, ".pawl") == 0 || strcmp(name, "complete.txt") == 0 ||
		strcmp(name, "why.txt") == 0 || manifest_find_file(manifest, name) != NULL;
}

/* A store_list_fn. It may link files, since it changes another directory than the one listed. */
static int adopt_name(void *user, const char *base, enum store_kind kind);

/* Adopts the files in the folder at from, and makes their names in to durable. */
static int adopt_folder(const struct foreign *above, const char *name, const char *from,
	const char *to)
{
	char folder[STORE_PATH_MAX + STORE_NAME_MAX + 1];
	struct foreign foreign = *above;
	int rv = store_mkdir(above->store, to, above->err);

	if (rv == 0) {
		snprintf(folder, sizeof(folder), "%s/", name);
		foreign.folder = folder;
		rv = store_list(above->store, from, adopt_name, &foreign, above->err);
		rv = rv == 0 ? foreign.rv : rv;
	}
	return rv == 0 ? store_sync_dir(above->store, to, above->err) : rv;
}

static int adopt_name(void *user, const char *base, enum store_kind kind)
{
	struct foreign *foreign = user;
	char name[STORE_PATH_MAX + STORE_NAME_MAX];
	char from[2 * STORE_PATH_MAX];
	char to[2 * STORE_PATH_MAX];
	enum store_kind saved = kind;

	snprintf(name, sizeof(name), "%s%.255s", foreign->folder, base);
	if (is_ours(foreign->ours, name)) {
		return 0;
	}
	snprintf(from, sizeof(from), "%s/%s", foreign->tag, name);
	snprintf(to, sizeof(to), "%s/%s", foreign->dir, name);
	if (store_stat(foreign->store, to, &saved, NULL, NULL) == 0 && saved != kind) {
		foreign->rv = pawl_err_set(foreign->err, PAWL_EEXIST,
			"%s is a %s that Pawl did not write, but the save has a %s of that name: "
			"move it away",
			from, kind == STORE_DIR ? "folder" : "file",
			saved == STORE_DIR ? "folder" : "file");
	} else if (kind == STORE_DIR) {
		foreign->rv = adopt_folder(foreign, name, from, to);
	} else {
		foreign->rv = store_link(foreign->store, from, to, foreign->err);
	}
	if (foreign->rv == PAWL_EEXIST && kind == STORE_FILE && saved == kind) {
		foreign->rv =
			0; /* the save has a file of this name, which replaces the foreign one */
	}
	return foreign->rv != 0;
}

/* Adopts the files that are in the directory of the tag's name and are not ours into dir. */
static int adopt(struct store *store, const char *tag, const char *dir, const struct manifest *ours,
	struct pawl_err *err)
{
	struct foreign foreign =
		{.store = store, .tag = tag, .dir = dir, .folder = "", .ours = ours, .err = err};
	int rv = store_list(store, tag, adopt_name, &foreign, err);

	return rv == 0 ? foreign.rv : rv;
}

int root_posix_adopt(struct tags_root *root, const struct tag_draft *draft,
	const struct manifest *ours, struct pawl_err *err)
{
	return adopt(root->store, draft->tag, draft->dir, ours, err);
}

/* Keeps files that other programs put into a directory of the tag's name. */
static int adopt_foreign(struct tags_root *root, const char *tag, const char *dir,
	struct pawl_err *err)
{
	const struct manifest none = {.parts_n = 0};
	enum store_kind kind;
	bool ours;
	int rv;

	rv = root_posix_is_ours(root, tag, &ours, err);
	if (rv != 0 || ours) {
		return rv;
	}
	rv = store_stat(root->store, tag, &kind, NULL, err);
	if (rv == 0 && kind != STORE_DIR) {
		rv = pawl_err_set(err, PAWL_EEXIST,
			"something other than a directory has this name, and Pawl did not write "
			"it: "
			"move it away");
	}
	if (rv != 0) {
		return rv;
	}
	rv = adopt(root->store, tag, dir, &none, err);
	return rv == 0 ? store_sync_dir(root->store, dir, err) : rv;
}

/* Gives dir its final name. */
static int name_dir(struct tags_root *root, const char *tag, const char *dir, struct pawl_err *err)
{
	struct store *store = root->store;
	bool exists;
	int rv;

	rv = tags_has_path(store, tag, &exists, err);
	if (rv == 0 && exists) {
		rv = adopt_foreign(root, tag, dir, err);
	}
	if (rv != 0) {
		return rv;
	}
	rv = store_rename(store, dir, tag, exists ? STORE_EXCHANGE : STORE_REPLACE, err);
	if (rv == PAWL_ENOTSUP && exists) {
		return replace_in_steps(store, tag, dir, err);
	}
	if (rv == 0) {
		rv = store_sync_dir(store, "", err);
	}
	if (rv == 0 && exists) {
		store_remove(store, dir, NULL); /* the next tag_begin removes what is left */
	}
	return rv;
}

int root_posix_publish(struct tags_root *root, const struct tag_draft *draft,
	const struct manifest *manifest, const struct wire_out *encoded, struct pawl_err *err)
{
	char dir[TAG_NAME_MAX];
	int rv = 0;

	ASSERT(manifest->folders_n == 0);
	root_posix_hide_name(dir, draft->tag, ".new");
	if (strcmp(draft->dir, dir) != 0) {
		/* The draft is shared. An earlier attempt may have left a directory of that
		 * name. */
		recover_tag(root->store, draft->tag, NULL);
		rv = store_rename(root->store, draft->dir, dir, STORE_REPLACE, err);
	}
	if (rv == 0) {
		rv = finish_dir(root->store, dir, manifest, encoded, err);
	}
	return rv == 0 ? name_dir(root, draft->tag, dir, err) : rv;
}

void root_posix_abandon(struct tags_root *root, const struct tag_draft *draft)
{
	char dir[TAG_NAME_MAX];

	recover_tag(root->store, draft->tag, NULL);
	root_posix_hide_name(dir, draft->tag, ".new");
	if (draft->dir[0] != '\0' && strcmp(draft->dir, dir) != 0) {
		store_remove(root->store, draft->dir, NULL); /* the draft is shared */
	}
}
