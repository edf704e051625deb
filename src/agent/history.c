/* Rows of checkpointHistories.csv: see history.h. A line without its end is one that was torn by a
 * crash or a full disk: it does not count as a row, and the next begins on a line of its own. */
#include "agent/history.h"

#include "base/clock.h"
#include "base/err.h"
#include "ckpt/tags.h"
#include "store/store.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define HISTORY_FILE "checkpointHistories.csv"
#define HISTORY_HEADER                                                                             \
	"time,job,attempt,step,tag,level,files,bytes,stall_ms,stage_ms,persist_ms,mib_per_s\n"

int history_append(struct store *store, const struct history_save *save,
	const struct history_times *times, struct pawl_err *err)
{
	char row[1024];
	char when[32];
	char took[128] = ",,,";
	time_t at = (time_t)save->at_s;
	struct tm tm;
	int head = 0;

	gmtime_r(&at, &tm);
	strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ", &tm);
	if (times) {
		snprintf(took, sizeof(took), "%.3f,%.3f,%.3f,%.1f",
			(double)times->stall_ns / NS_PER_MS, (double)times->stage_ns / NS_PER_MS,
			(double)times->persist_ns / NS_PER_MS,
			(double)save->size_bytes / (1 << 20) /
				((double)times->persist_ns / NS_PER_S));
	}
	if (store_stat(store, HISTORY_FILE, NULL, NULL, NULL) == PAWL_ENOENT) {
		head = snprintf(row, sizeof(row), "%s", HISTORY_HEADER);
	}
	snprintf(row + head, sizeof(row) - (size_t)head,
		"%s,%s,%u,%" PRIu64 "," TAG_PREFIX "%" PRIu64 ",durable,%u,%" PRIu64 ",%s\n", when,
		save->job, save->attempt, save->step, save->step, save->files, save->size_bytes,
		took);
	return store_append_small(store, HISTORY_FILE, row, strlen(row), err);
}

/* Clears the state of the tag that a row is of to TAG_BROKEN: it needs none. */
static void strike_tag(struct tag_info *tags, size_t n, const char *row)
{
	const char *tag = strstr(row, "," TAG_PREFIX); /* not by count: a job may have commas */
	uint64_t step;
	size_t lo = 0;

	if (!tag) {
		return;
	}
	step = strtoull(tag + strlen("," TAG_PREFIX), NULL, 10);
	while (n > 0) { /* ascending: halve what is left */
		size_t half = n / 2;

		if (tags[lo + half].step < step) {
			lo += half + 1;
			n -= half + 1;
		} else if (tags[lo + half].step > step) {
			n = half;
		} else {
			tags[lo + half].state = TAG_BROKEN;
			return;
		}
	}
}

/* Strikes out all tags that have a row. Ends a torn line. */
static int strike_known(struct store *store, struct tag_info *tags, size_t n, struct pawl_err *err)
{
	void *bytes;
	size_t len;
	char *line;
	char *end;
	int rv = store_read_small(store, HISTORY_FILE, &bytes, &len, HISTORY_MAX_BYTES, err);

	if (rv != 0) {
		return rv == PAWL_ENOENT ? 0 : rv;
	}
	for (line = bytes; (end = strchr(line, '\n')) != NULL; line = end + 1) {
		*end = '\0';
		strike_tag(tags, n, line);
	}
	if (*line != '\0') {
		rv = store_append_small(store, HISTORY_FILE, "\n", 1, err);
	}
	free(bytes);
	return rv;
}

static int append_from_manifest(struct store *store, const char *tag, struct pawl_err *err)
{
	struct manifest manifest;
	struct history_save save;
	int rv = tag_open(store, tag, &manifest, err);

	if (rv != 0) {
		return rv == PAWL_ENOENT || rv == PAWL_ECORRUPT ? 0 : rv; /* not complete */
	}
	save = (struct history_save){.at_s = manifest.created_ns / NS_PER_S,
		.job = manifest.job,
		.attempt = manifest.attempt,
		.step = manifest.step,
		.files = manifest.parts_n,
		.size_bytes = manifest_bytes(&manifest)};
	rv = history_append(store, &save, NULL, err);
	manifest_deinit(&manifest);
	return rv;
}

int history_recover(struct store *store, struct pawl_err *err)
{
	struct tag_info *tags = NULL;
	size_t n = 0;
	int rv = tags_list(store, false, &tags, &n, err);

	if (rv == 0) {
		rv = strike_known(store, tags, n, err);
	}
	for (size_t i = 0; i < n && rv == 0; i++) {
		if (tags[i].state == TAG_COMPLETE) {
			rv = append_from_manifest(store, tags[i].tag, err);
		}
	}
	free(tags);
	return rv;
}
