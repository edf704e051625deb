/*
 * Publishing a tag, and recovering a root after a crash. See tags.h for the contract.
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
#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/wire.h"
#include "ckpt/tags_names.h"
#include "store/dirs.h"
#include "store/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
		tags_hide_name(names[i], tag, suffixes[i]);
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

int tags_leftovers(struct store *store, struct tag_leftover **left, size_t *n, struct pawl_err *err)
{
	struct tag_leftover *list;
	struct tag_names names;
	int rv = tags_list_names(store, "", tags_want_hidden, &names, err);

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
		bool hidden = tags_parse_hidden(names.at[i].name, list[i].tag);
		bool has_tag;

		ASSERT(hidden); /* tags_want_hidden has chosen it */
		memcpy(list[i].name, names.at[i].name, len + 1);
		rv = tags_has_path(store, list[i].tag, &has_tag, err);
		list[i].put_back = !has_tag && strcmp(list[i].name + len - 4, ".old") == 0;
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

int tags_recover(struct store *store, struct pawl_err *err)
{
	struct tag_names names;
	int rv;

	rv = tags_list_names(store, "", tags_want_hidden, &names, err);
	if (rv != 0) {
		return pawl_err_prefix(err, rv, "recover");
	}
	for (size_t i = 0; i < names.n && rv == 0; i++) {
		char tag[CKPT_TAG_MAX];

		if (tags_parse_hidden(names.at[i].name, tag)) {
			rv = recover_tag(store, tag, err);
		}
	}
	free(names.at);
	return rv == 0 ? 0 : pawl_err_prefix(err, rv, "recover");
}

/* ---- publishing ---- */

int tag_begin(struct store *store, const char *tag, char *dir, size_t dir_cap_bytes,
	struct pawl_err *err)
{
	char fresh[TAG_NAME_MAX];
	char inner[TAG_PATH_MAX];
	int rv;

	rv = tags_check_name(tag, err);
	if (rv != 0) {
		return rv;
	}
	tags_hide_name(fresh, tag, ".new");
	snprintf(inner, sizeof(inner), "%s/.pawl", fresh);
	ASSERT(strlen(fresh) < dir_cap_bytes);
	rv = recover_tag(store, tag, err);
	if (rv == 0) {
		rv = store_mkdir(store, fresh, err);
	}
	if (rv == 0) {
		rv = store_mkdir(store, inner, err);
	}
	if (rv != 0) {
		return pawl_err_prefix(err, rv, "begin %s", tag);
	}
	memcpy(dir, fresh, strlen(fresh) + 1);
	return 0;
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

/* Makes the content of dir complete and durable: names, then manifest, then complete.txt. */
static int seal_dir(struct store *store, const char *dir, const struct manifest *manifest,
	const struct wire_out *encoded, struct pawl_err *err)
{
	char inner[TAG_PATH_MAX], file[TAG_PATH_MAX], complete[TAG_PATH_MAX];
	int rv;

	snprintf(inner, sizeof(inner), "%s/.pawl", dir);
	snprintf(file, sizeof(file), "%s/.pawl/manifest", dir);
	snprintf(complete, sizeof(complete), "%s/complete.txt", dir);
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
	if (rv == 0) {
		rv = store_write_small(store, complete, TAG_OK, TAG_OK_BYTES, err);
	}
	return rv == 0 ? store_sync_dir(store, dir, err) : rv;
}

int tag_seal(struct store *store, const char *tag, struct pawl_err *err)
{
	char complete[TAG_PATH_MAX];
	int rv;

	snprintf(complete, sizeof(complete), "%s/complete.txt", tag);
	rv = store_write_small(store, complete, TAG_OK, TAG_OK_BYTES, err);
	return rv == 0 ? store_sync_dir(store, tag, err) : rv;
}

/* Replaces the tag by dir where the system cannot exchange two names. */
static int replace_in_steps(struct store *store, const char *tag, const char *dir,
	struct pawl_err *err)
{
	char old[TAG_NAME_MAX];
	int rv;

	tags_hide_name(old, tag, ".old");
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

int tag_adopt(struct store *store, const char *tag, const struct manifest *ours,
	struct pawl_err *err)
{
	char dir[TAG_NAME_MAX];
	struct foreign foreign =
		{.store = store, .tag = tag, .dir = dir, .folder = "", .ours = ours, .err = err};
	int rv;

	tags_hide_name(dir, tag, ".new");
	rv = store_list(store, tag, adopt_name, &foreign, err);
	return rv == 0 ? foreign.rv : rv;
}

/* Keeps files that other programs put into a directory of the tag's name. */
static int adopt_foreign(struct store *store, const char *tag, const char *dir,
	struct pawl_err *err)
{
	const struct manifest none = {.parts_n = 0};
	enum store_kind kind;
	bool ours;
	int rv;

	rv = tags_is_ours(store, tag, &ours, err);
	if (rv != 0 || ours) {
		return rv;
	}
	rv = store_stat(store, tag, &kind, NULL, err);
	if (rv == 0 && kind != STORE_DIR) {
		rv = pawl_err_set(err, PAWL_EEXIST,
			"something other than a directory has this name, and Pawl did not write "
			"it: "
			"move it away");
	}
	if (rv != 0) {
		return rv;
	}
	rv = tag_adopt(store, tag, &none, err);
	return rv == 0 ? store_sync_dir(store, dir, err) : rv;
}

/* Gives dir its final name. */
static int name_dir(struct store *store, const char *tag, const char *dir, struct pawl_err *err)
{
	bool exists;
	int rv;

	rv = tags_has_path(store, tag, &exists, err);
	if (rv == 0 && exists) {
		rv = adopt_foreign(store, tag, dir, err);
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

int tag_publish(struct store *store, const char *tag, const struct manifest *manifest,
	struct pawl_err *err)
{
	char dir[TAG_NAME_MAX];
	struct wire_out out = {0};
	int rv;

	rv = tags_check_name(tag, err);
	if (rv == 0) {
		rv = manifest_check(manifest, err);
	}
	if (rv != 0) {
		return pawl_err_prefix(err, rv, "publish %s", tag);
	}
	ASSERT(strcmp(manifest->tag, tag) == 0);
	tags_hide_name(dir, tag, ".new");
	manifest_encode(manifest, &out);
	if (out.failed) {
		rv = pawl_err_set(err, PAWL_ENOMEM, "no memory to encode the manifest");
	} else {
		rv = seal_dir(store, dir, manifest, &out, err);
	}
	wire_out_deinit(&out);
	if (rv == 0) {
		rv = name_dir(store, tag, dir, err);
	}
	return rv == 0 ? 0 : pawl_err_prefix(err, rv, "publish %s", tag);
}

void tag_abandon(struct store *store, const char *tag)
{
	recover_tag(store, tag, NULL);
}
