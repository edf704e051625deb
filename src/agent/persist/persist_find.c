/*
 * The tag that was asked for, or the newest that is whole: see persist_find.h.
 *
 * A damaged newer tag is put aside, so that nobody meets it again; but one search puts aside only
 * as many as are kept there. If more are damaged, something is wrong with the storage, or with us,
 * and somebody had better look at it: the others stay where they are, and the next saves do not
 * read them.
 */
#include "agent/persist/persist_find.h"

#include "agent/persist/alerts.h"
#include "agent/persist/storage_thread.h"
#include "base/err.h"
#include "ckpt/tags.h"

#include <string.h>

/* Finds the one tag that was asked for, by step or by name. */
static int find_one(const struct finding *finding, struct persist_job *job)
{
	struct manifest manifest;
	int rv = 0;

	if (job->tag[0] == '\0') {
		rv = tag_find_step(finding->store, job->step, job->tag, &job->err);
	}
	if (rv == 0) {
		rv = tag_open(finding->store, job->tag, &manifest, &job->err);
	}
	job->found = rv == 0;
	if (rv == 0) {
		job->step = manifest.step;
		manifest_deinit(&manifest);
	}
	return rv == PAWL_ENOENT ? 0 : rv;
}

/* Tags that a search for the newest whole tag passed by. */
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
			"%s cannot be read, an older one is looked for", tag);
	} else if (finding->puts_aside) {
		rv = tag_quarantine(finding->store, tag, why->msg, &err);
		alerts_put_damaged(finding->alerts, tag, why->msg, rv == 0 ? NULL : &err);
	}
}

int persist_find(const struct finding *finding, struct persist_job *job)
{
	struct skipped skipped = {.finding = finding};
	const struct tags_search search = {finding->stop, skip_unreadable, &skipped};
	struct manifest manifest;
	int rv;

	if (job->has_step || job->tag[0] != '\0') {
		return find_one(finding, job);
	}
	rv = tags_newest(finding->store, &search, &manifest, &job->err);
	if (skipped.n > TAGS_BAD_MAX) {
		alerts_put(finding->alerts, ALERT_ONCE, NULL,
			"%llu more of the newest are damaged or cannot be read, and stay where "
			"they are: pawl ckpt verify --all says what is wrong with each",
			(unsigned long long)(skipped.n - TAGS_BAD_MAX));
	}
	if (rv == 0) {
		job->found = true;
		job->step = manifest.step;
		memcpy(job->tag, manifest.tag, sizeof(job->tag));
		manifest_deinit(&manifest);
	}
	/* A store with nothing but damage holds no checkpoint. */
	return rv == PAWL_ENOENT || rv == PAWL_ECORRUPT ? 0 : rv;
}
