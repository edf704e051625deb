/*
 * Finds the newest complete tag among any number of others: see tags.h for the contract.
 *
 * Most tags are named after their step. So one listing of the root orders them, and only the tags
 * that are tried are opened, from the newest down. Manifests are read for the order only if a tag
 * has another name (for its step), or shares its step with another tag (for its age).
 */
#include "base/assert.h"
#include "base/err.h"
#include "base/fault.h"
#include "ckpt/root_impl.h"
#include "store/store.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int tags_check_stop(const struct tags_stop *stop, struct pawl_err *err)
{
	return stop == NULL || !stop->asked(stop->user)
		? 0
		: pawl_err_set(err, PAWL_ECANCELED, "the search through the tags was broken off");
}

bool tag_access_denied(const struct pawl_err *why)
{
	return why->code == PAWL_EIO && (why->sys == EACCES || why->sys == EPERM);
}

int tags_is_tag(struct tags_root *root, const char *name, bool *is_tag, struct pawl_err *err)
{
	struct pawl_err why;
	uint64_t step;
	int rv = root->ops->is_ours(root, name, is_tag, &why);

	if (rv != 0 && tag_access_denied(&why)) {
		/* only names of a step count, since a root may contain lost+found */
		*is_tag = tag_parse(name, &step);
		return 0;
	}
	if (rv != 0 && err != NULL) {
		*err = why;
	}
	return rv;
}

uint64_t tags_trailing_number(const char *tag)
{
	const char *end = tag + strlen(tag);
	const char *at = end;
	uint64_t number = 0;

	while (at > tag && at[-1] >= '0' && at[-1] <= '9') {
		at--;
	}
	while (end - at > 1 && *at == '0') {
		at++;
	}
	return tags_parse_number(at, end, &number) ? number : 0;
}

/* ---- in order, unopened ---- */

/* Reads the step of a tag that is not named after it; *is_tag is false if it is no tag. */
static int read_step(struct tags_root *root, struct tag_step *tag, bool *is_tag,
	struct pawl_err *err)
{
	struct manifest m;
	int rv = tags_is_tag(root, tag->tag, is_tag, err);

	if (rv != 0 || !*is_tag) {
		return rv;
	}
	if (tags_read_manifest(root, tag->tag, &m, NULL) != 0) {
		tag->step = tags_trailing_number(tag->tag);
		return 0;
	}
	tag->step = m.step;
	tag->created_ns = m.created_ns;
	manifest_deinit(&m);
	return 0;
}

int tags_compare(uint64_t step, int64_t created_ns, uint64_t other_step, int64_t other_created_ns)
{
	if (step != other_step) {
		return step < other_step ? -1 : 1;
	}
	return (created_ns > other_created_ns) - (created_ns < other_created_ns);
}

static int compare_steps(const void *a, const void *b)
{
	const struct tag_step *x = a;
	const struct tag_step *y = b;

	return tags_compare(x->step, x->created_ns, y->step, y->created_ns);
}

static int fill_steps(struct tags_root *root, const struct tags_stop *stop,
	const struct tag_names *names, struct tag_step *steps, size_t *found, struct pawl_err *err)
{
	int rv = 0;

	for (size_t i = 0; i < names->n && rv == 0; i++) {
		struct tag_step *tag = &steps[*found];
		bool is_tag = true;

		ASSERT(*found <= i);
		snprintf(tag->tag, sizeof(tag->tag), "%.*s", (int)sizeof(tag->tag) - 1,
			names->at[i].name);
		tag->named = tag_parse(tag->tag, &tag->step);
		if (!tag->named) {
			rv = tags_check_stop(stop, err);
			rv = rv == 0 ? read_step(root, tag, &is_tag, err) : rv;
		}
		*found += rv == 0 && is_tag;
	}
	return rv;
}

/* Returns whether another tag has the same step. */
static bool has_same_step(const struct tag_step *tags, size_t n, size_t i)
{
	return (i > 0 && tags[i - 1].step == tags[i].step) ||
		(i + 1 < n && tags[i + 1].step == tags[i].step);
}

/* Sorts tags by step, and those of one step by age, which is read from the manifest. */
static void sort_steps(struct tags_root *root, struct tag_step *tags, size_t n)
{
	struct manifest m;
	bool aged = false;

	qsort(tags, n, sizeof(*tags), compare_steps);
	for (size_t i = 0; i < n; i++) {
		if (tags[i].named && has_same_step(tags, n, i) &&
			tags_read_manifest(root, tags[i].tag, &m, NULL) == 0) {
			tags[i].created_ns = m.created_ns;
			manifest_deinit(&m);
			aged = true;
		}
	}
	if (aged) {
		qsort(tags, n, sizeof(*tags), compare_steps);
	}
}

int tags_steps(struct tags_root *root, const struct tags_stop *stop, struct tag_step **tags,
	size_t *n, struct pawl_err *err)
{
	struct tag_names names;
	struct tag_step *steps;
	size_t found = 0;
	int rv = root->ops->list(root, &names, err);

	if (rv != 0) {
		return rv;
	}
	steps = FAULT_MEM("tags.steps", calloc(names.n + 1, sizeof(*steps)));
	if (steps == NULL) {
		rv = pawl_err_set(err, PAWL_ENOMEM, "no memory to list %zu tags", names.n);
	} else {
		rv = fill_steps(root, stop, &names, steps, &found, err);
	}
	free(names.at);
	if (rv != 0) {
		free(steps);
		return rv;
	}
	sort_steps(root, steps, found);
	*tags = steps;
	*n = found;
	return 0;
}

/* ---- from the newest down ---- */

int tags_highest(struct tags_root *root, const struct tags_stop *stop, struct tag_step *tag,
	struct pawl_err *err)
{
	struct tag_step *tags = NULL;
	size_t n = 0;
	bool is_tag = false;
	int rv = tags_steps(root, stop, &tags, &n, err);

	while (rv == 0 && !is_tag && n-- > 0) {
		*tag = tags[n];
		is_tag = !tag->named;
		rv = is_tag ? 0 : tags_is_tag(root, tag->tag, &is_tag, err);
	}
	free(tags);
	if (rv == 0 && !is_tag) {
		rv = pawl_err_set(err, PAWL_ENOENT, "no checkpoint");
	}
	return rv;
}

/* Opens a tag. PAWL_ENOENT also if the directory is not a tag of ours. */
static int try_tag(struct tags_root *root, const struct tag_step *tag, struct manifest *manifest,
	struct pawl_err *err)
{
	bool is_tag = true;
	int rv = tag->named ? tags_is_tag(root, tag->tag, &is_tag, err) : 0;

	if (rv == 0 && !is_tag) {
		rv = PAWL_ENOENT;
	}
	return rv == 0 ? tag_open(root, tag->tag, manifest, err) : rv;
}

/* Tries tags from the newest down. If none is complete, err says why: a tag that may not be read
 * takes precedence over damaged ones, since it may be complete. */
static int search_down(struct tags_root *root, const struct tags_search *search,
	const struct tag_step *tags, size_t n, struct manifest *manifest, struct pawl_err *err)
{
	int none = pawl_err_set(err, PAWL_ENOENT, "no complete checkpoint");

	while (n-- > 0) {
		struct pawl_err why = {0};
		int rv = tags_check_stop(search->stop, &why);

		rv = rv == 0 ? try_tag(root, &tags[n], manifest, &why) : rv;
		if (rv == 0) {
			return 0;
		}
		if (rv == PAWL_ENOENT) {
			continue;
		}
		if (rv != PAWL_ECORRUPT && !tag_access_denied(&why)) {
			*err = why; /* the storage fails: the tag itself may be intact */
			return rv;
		}
		if (search->on_skipped != NULL) {
			search->on_skipped(search->user, tags[n].tag, &why);
		}
		if (none == PAWL_ENOENT || (none == PAWL_ECORRUPT && rv != PAWL_ECORRUPT)) {
			*err = why;
			none = rv;
		}
	}
	return none;
}

int tags_newest(struct tags_root *root, const struct tags_search *search, struct manifest *manifest,
	struct pawl_err *err)
{
	struct tag_step *tags = NULL;
	struct pawl_err why = {0};
	size_t n = 0;
	int rv = tags_steps(root, search->stop, &tags, &n, &why);

	if (rv == 0) {
		rv = search_down(root, search, tags, n, manifest, &why);
	}
	free(tags);
	if (rv != 0 && err != NULL) {
		*err = why;
	}
	return rv;
}

int tag_find_step(struct tags_root *root, uint64_t step, char tag[CKPT_TAG_MAX],
	struct pawl_err *err)
{
	struct tag_step *tags = NULL;
	size_t n = 0;
	bool found = false;
	int rv;

	tag_of_step(tag, CKPT_TAG_MAX, step);
	rv = tags_is_tag(root, tag, &found, err);
	if (rv != 0 || found) {
		return rv;
	}
	rv = tags_steps(root, NULL, &tags, &n, err);
	while (rv == 0 && n-- > 0 && !found) {
		found = !tags[n].named && tags[n].step == step;
		if (found) {
			memcpy(tag, tags[n].tag, CKPT_TAG_MAX);
		}
	}
	free(tags);
	if (rv == 0 && !found) {
		rv = pawl_err_set(err, PAWL_ENOENT, "no tag of step %" PRIu64, step);
	}
	return rv;
}
