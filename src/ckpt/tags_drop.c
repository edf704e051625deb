/* Tags that leave a root: quarantined because they are bad, or deleted by retention. See tags.h for
 * the contract. */
#include "base/err.h"
#include "base/fault.h"
#include "ckpt/format/retain.h"
#include "ckpt/root_impl.h"
#include "store/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LATEST_FILE "latest"

/* ---- quarantine ---- */

int tag_quarantine(struct tags_root *root, const char *tag, const char *why, struct pawl_err *err)
{
	int rv = tags_check_name(tag, err);

	if (rv != 0) {
		return rv;
	}
	rv = root->ops->quarantine(root, tag, why, err);
	return rv == 0 ? 0 : pawl_err_prefix(err, rv, "quarantine %s", tag);
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

int tags_plan_retain(struct tags_root *root, const struct retain_rule *rule, struct tag_info *tags,
	size_t n, bool *keep, struct pawl_err *err)
{
	char latest[CKPT_TAG_MAX];
	struct retain_tag *list;
	uint32_t newer = 0;
	int rv = read_latest(root->store, latest, err);

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
			tags_inspect(root, &tags[i]);
		}
		list[i].complete = tags[i].state == TAG_COMPLETE;
		newer += list[i].complete;
	}
	retain_plan(rule, list, n, keep);
	free(list);
	return 0;
}

int tags_drop(struct tags_root *root, const struct tag_info *tags, size_t n, const bool *keep,
	struct pawl_err *err)
{
	return root->ops->drop(root, tags, n, keep, err);
}

int tag_remove(struct tags_root *root, const char *tag, struct pawl_err *err)
{
	const bool keep = false;
	struct tag_info info = {0};
	bool ours = false;
	int rv;

	rv = tags_check_name(tag, err);
	if (rv == 0) {
		rv = root->ops->is_ours(root, tag, &ours, err);
	}
	if (rv == 0 && ours) {
		snprintf(info.tag, sizeof(info.tag), "%s", tag);
		rv = tags_drop(root, &info, 1, &keep, err);
	}
	return rv == 0 ? 0 : pawl_err_prefix(err, rv, "remove %s", tag);
}

int tags_retain(struct tags_root *root, const struct retain_rule *rule, struct pawl_err *err)
{
	struct tag_info *tags;
	size_t n;
	bool *keep;
	int rv;

	if (rule->keep_last == 0) {
		return 0; /* all tags stay */
	}
	rv = tags_unopened(root, NULL, &tags, &n, err);
	if (rv != 0) {
		return pawl_err_prefix(err, rv, "retain");
	}
	keep = FAULT_MEM("tags.retain", calloc(n + 1, sizeof(*keep)));
	if (keep == NULL) {
		rv = pawl_err_set(err, PAWL_ENOMEM, "no memory for %zu tags", n);
	} else {
		rv = tags_plan_retain(root, rule, tags, n, keep, err);
	}
	if (rv == 0) {
		rv = tags_drop(root, tags, n, keep, err);
	}
	free(keep);
	free(tags);
	return rv == 0 ? 0 : pawl_err_prefix(err, rv, "retain");
}
