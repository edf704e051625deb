/*
 * Finds the tag that was asked for, or the newest that is whole: see persist_find.h.
 *
 * A search for the newest puts damaged newer tags aside, so that no later search reads them; but at
 * most TAGS_BAD_MAX, as many as are kept there. If more are damaged, the storage or Pawl is at
 * fault, and a person must look: the others stay in place, and later saves do not read them.
 */
#include "agent/persist/persist_find.h"

#include "agent/persist/alerts.h"
#include "agent/persist/persist.h"
#include "base/err.h"
#include "ckpt/tags.h"

#include <string.h>

/* Finds the one tag that was asked for, by step or by name. */
static int find_one(const struct finding *finding, struct persist_job *job)
{
	struct persist_found *found = &job->result.resolve;
	struct pawl_err *err = &job->result.err;
	struct manifest manifest;
	int rv = 0;

	if (job->tag[0] == '\0') {
		rv = tag_find_step(finding->root, job->resolve.step, found->tag, err);
	}
	if (rv == 0) {
		rv = tag_open(finding->root, found->tag, &manifest, err);
	}
	found->found = rv == 0;
	if (rv == 0) {
		found->step = manifest.step;
		manifest_deinit(&manifest);
	}
	return rv == PAWL_ENOENT ? 0 : rv;
}

/* Tags that a search for the newest whole tag skipped. */
struct skipped {
	const struct finding *finding;
	uint64_t n; /* number of tags */
};

static void skip_unreadable(void *user, const char *tag, const struct pawl_err *why)
{
	struct skipped *skipped = user;
	const struct finding *finding = skipped->finding;
	struct pawl_err err;
	int rv;

	if (++skipped->n > TAGS_BAD_MAX) {
		return; /* persist_find counts the rest in one line */
	}
	if (why->code != PAWL_ECORRUPT) {
		alerts_put(finding->alerts, ALERT_ONCE, why,
			"%s cannot be read, searching for an older one", tag);
	} else if (finding->puts_aside) {
		rv = tag_quarantine(finding->root, tag, why->msg, &err);
		alerts_put_damaged(finding->alerts, tag, why->msg, rv == 0 ? NULL : &err);
	}
}

int persist_find(const struct finding *finding, struct persist_job *job)
{
	struct skipped skipped = {.finding = finding};
	const struct tags_search search = {finding->stop, skip_unreadable, &skipped};
	struct persist_found *found = &job->result.resolve;
	struct manifest manifest;
	int rv;

	*found = (struct persist_found){.step = job->resolve.step};
	memcpy(found->tag, job->tag, sizeof(found->tag));
	if (job->resolve.has_step || job->tag[0] != '\0') {
		return find_one(finding, job);
	}
	rv = tags_newest(finding->root, &search, &manifest, &job->result.err);
	if (skipped.n > TAGS_BAD_MAX) {
		alerts_put(finding->alerts, ALERT_ONCE, NULL,
			"%llu more of the newest checkpoints are damaged or cannot be read, and "
			"stay in place: pawl ckpt verify --all reports what is wrong with each",
			(unsigned long long)(skipped.n - TAGS_BAD_MAX));
	}
	if (rv == 0) {
		found->found = true;
		found->step = manifest.step;
		memcpy(found->tag, manifest.tag, sizeof(found->tag));
		manifest_deinit(&manifest);
	}
	/* A store with nothing but damage holds no checkpoint. */
	return rv == PAWL_ENOENT || rv == PAWL_ECORRUPT ? 0 : rv;
}
