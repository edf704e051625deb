/* Tags that leave a root: quarantined because they are bad, or deleted by retention. See tags.h for
 * the contract. */
#include "base/err.h"
#include "base/fault.h"
#include "ckpt/format/retain.h"
#include "ckpt/tags_names.h"
#include "store/dirs.h"
#include "store/store.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LATEST_FILE "latest"

/* ---- quarantine ---- */

/* Removes all but the newest TAGS_BAD_MAX tags of .bad, best effort. */
static void prune_bad(struct store *store)
{
	struct tag_names names;

	if (tags_list_names(store, TAG_BAD_DIR, tags_want_numbered, &names, NULL) != 0) {
		return;
	}
	for (size_t i = 0; i + TAGS_BAD_MAX < names.n; i++) {
		char path[TAG_PATH_MAX];

		snprintf(path, sizeof(path), TAG_BAD_DIR "/%s", names.at[i].name);
		store_remove(store, path, NULL);
	}
	free(names.at);
}

/* Finds a number that no name in .bad has. */
static int next_bad(struct store *store, uint64_t *number, struct pawl_err *err)
{
	struct tag_names names;
	int rv;

	rv = tags_list_names(store, TAG_BAD_DIR, tags_want_numbered, &names, err);
	if (rv != 0) {
		return rv;
	}
	*number = names.n > 0 ? names.at[names.n - 1].number + 1 : 1;
	free(names.at);
	return 0;
}

int tag_quarantine(struct store *store, const char *tag, const char *why, struct pawl_err *err)
{
	char quarantined[TAG_PATH_MAX], reason[TAG_PATH_MAX];
	uint64_t number;
	bool exists;
	int rv;

	rv = tags_check_name(tag, err);
	if (rv == 0) {
		rv = tags_has_path(store, tag, &exists, err);
	}
	if (rv != 0 || !exists) {
		return rv;
	}
	rv = store_mkdir(store, TAG_BAD_DIR, err);
	if (rv == 0) {
		rv = next_bad(store, &number, err);
	}
	if (rv != 0) {
		return pawl_err_prefix(err, rv, "quarantine %s", tag);
	}
	/* written before the move, so that every tag in .bad has its reason; missing if the disk is
	 * full */
	snprintf(reason, sizeof(reason), "%s/why.txt", tag);
	if (store_write_small(store, reason, why, strlen(why), NULL) == 0) {
		store_sync_dir(store, tag, NULL);
	}
	snprintf(quarantined, sizeof(quarantined), TAG_BAD_DIR "/%s.%" PRIu64, tag, number);
	rv = store_rename(store, tag, quarantined, STORE_REPLACE, err);
	if (rv == 0) {
		rv = store_sync_dir(store, TAG_BAD_DIR, err);
	}
	if (rv == 0) {
		rv = store_sync_dir(store, "", err);
	}
	if (rv != 0) {
		return pawl_err_prefix(err, rv, "quarantine %s", tag);
	}
	prune_bad(store);
	return 0;
}

/* ---- retention ---- */

/* Reads the name of a tag from the file "latest" in the root; "" if there is no such file.
 * DeepSpeed's readers follow it, and a worker that was killed cannot update it to a tag that became
 * durable afterwards. */
static int read_latest(struct store *store, char tag[CKPT_TAG_MAX], struct pawl_err *err)
{
	void *text = NULL;
	size_t len_bytes = 0;
	int rv = store_read_small(store, LATEST_FILE, &text, &len_bytes, CKPT_TAG_MAX, err);

	tag[0] = '\0';
	if (rv == PAWL_ENOENT || rv == PAWL_ELIMIT || rv == PAWL_EINVAL) {
		return 0; /* a file that is too long, or no plain file, names no tag */
	}
	if (rv == 0) {
		snprintf(tag, CKPT_TAG_MAX, "%s", (const char *)text);
		tag[strcspn(tag, "\r\n")] = '\0';
	}
	free(text);
	return rv;
}

int tags_plan_retain(struct store *store, const struct retain_rule *rule, struct tag_info *tags,
	size_t n, bool *keep, struct pawl_err *err)
{
	char latest[CKPT_TAG_MAX];
	struct retain_tag *list;
	uint32_t newer = 0;
	int rv = read_latest(store, latest, err);

	if (rv != 0) {
		return pawl_err_prefix(err, rv, "retain");
	}
	list = FAULT_MEM("tags.retain", calloc(n + 1, sizeof(*list)));
	if (list == NULL) {
		return pawl_err_set(err, PAWL_ENOMEM, "retain: no memory for %zu tags", n);
	}
	for (size_t i = n; i-- > 0;) {
		list[i].step = tags[i].step;
		list[i].pinned = tags[i].pinned || strcmp(tags[i].tag, latest) == 0;
		if (tags[i].state == TAG_UNOPENED && retain_needs_complete(rule, &list[i], newer)) {
			tags_inspect(store, &tags[i]);
		}
		list[i].complete = tags[i].state == TAG_COMPLETE;
		newer += list[i].complete;
	}
	retain_plan(rule, list, n, keep);
	free(list);
	return 0;
}

int tags_drop(struct store *store, const struct tag_info *tags, size_t n, const bool *keep,
	struct pawl_err *err)
{
	char gone[TAG_NAME_MAX];
	size_t dropped = 0;
	int rv = 0;

	for (size_t i = 0; i < n && rv == 0; i++) {
		if (keep[i]) {
			continue;
		}
		tags_hide_name(gone, tags[i].tag, ".del");
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
			tags_hide_name(gone, tags[i].tag, ".del");
			rv = store_remove(store, gone, err);
		}
	}
	return rv;
}

int tag_remove(struct store *store, const char *tag, struct pawl_err *err)
{
	const bool keep = false;
	struct tag_info info = {0};
	bool ours = false;
	int rv;

	rv = tags_check_name(tag, err);
	if (rv == 0) {
		rv = tags_is_ours(store, tag, &ours, err);
	}
	if (rv == 0 && ours) {
		snprintf(info.tag, sizeof(info.tag), "%s", tag);
		rv = tags_drop(store, &info, 1, &keep, err);
	}
	return rv == 0 ? 0 : pawl_err_prefix(err, rv, "remove %s", tag);
}

int tags_retain(struct store *store, const struct retain_rule *rule, struct pawl_err *err)
{
	struct tag_info *tags;
	size_t n;
	bool *keep;
	int rv;

	if (rule->keep_last == 0) {
		return 0; /* all tags stay */
	}
	rv = tags_unopened(store, NULL, &tags, &n, err);
	if (rv != 0) {
		return pawl_err_prefix(err, rv, "retain");
	}
	keep = FAULT_MEM("tags.retain", calloc(n + 1, sizeof(*keep)));
	if (keep == NULL) {
		rv = pawl_err_set(err, PAWL_ENOMEM, "no memory for %zu tags", n);
	} else {
		rv = tags_plan_retain(store, rule, tags, n, keep, err);
	}
	if (rv == 0) {
		rv = tags_drop(store, tags, n, keep, err);
	}
	free(keep);
	free(tags);
	return rv == 0 ? 0 : pawl_err_prefix(err, rv, "retain");
}
