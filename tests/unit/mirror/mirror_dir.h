/* A mirrored directory that is made up, and a core that looks at it: for the tests of the core.
 * Time stands still but for what a test adds to it. */
#ifndef TEST_MIRROR_DIR_H
#define TEST_MIRROR_DIR_H

#include "mirror/core.h"

#include "base/clock.h"
#include "pawl/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define UNITS 6u
#define FILES 4u

static const struct core_options usual = {.quiet_ns = 10 * NS_PER_S,
	.settle_ns = 2 * NS_PER_S,
	.loose_max_ns = 60 * NS_PER_S,
	.retry_ns = NS_PER_S,
	.retry_max_ns = 8 * NS_PER_S};

/* The directory as the tests have it. */
static struct {
	uint64_t files[UNITS][FILES]; /* numbers of the files of unit i */
	uint32_t files_n[UNITS];      /* 0: there is no such unit */
	bool whole[UNITS];            /* the last file is there */
	enum unit_kind kind;          /* kind of all units */
	uint64_t size_bytes;          /* size of each unit */
	uint64_t loose[2];            /* numbers of loose files; 0: not there */
} dir;

static struct core core;
static int64_t now;

static inline bool look(void *user, const struct core_seen *seen, enum unit_kind *kind,
	char best[CKPT_TAG_MAX], bool *never, char why[UNIT_WHY_MAX])
{
	const bool *whole = seen->user;

	*kind = dir.kind;
	*never = false;
	best[0] = '\0';
	snprintf(why, UNIT_WHY_MAX, "%s", *whole ? "" : "half");
	return *whole;
}

static inline void scan(void)
{
	static const struct core_inspect inspect = {look, NULL};
	static const char *const names[] = {"log", "other"};
	struct core_seen units[UNITS], loose[2];
	char paths[UNITS][32];
	uint32_t n = 0, loose_n = 0;

	for (uint32_t i = 0; i < UNITS; i++) {
		if (dir.files_n[i] > 0) {
			snprintf(paths[i], sizeof(paths[i]), "checkpoint-%u", i);
			units[n++] = (struct core_seen){paths[i], dir.files[i], dir.files_n[i],
				dir.size_bytes, &dir.whole[i]};
		}
	}
	for (uint32_t i = 0; i < 2; i++) {
		if (dir.loose[i] != 0) {
			loose[loose_n++] = (struct core_seen){names[i], &dir.loose[i], 1, 10, NULL};
		}
	}
	assert_int_equal(core_scan(&core, units, n, loose, loose_n, &inspect, now, NULL), 0);
}

static inline void make_unit(uint32_t i, uint32_t files_n, bool whole)
{
	static uint64_t number;

	for (uint32_t j = 0; j < files_n; j++) {
		dir.files[i][j] = ++number;
	}
	dir.files_n[i] = files_n;
	dir.whole[i] = whole;
}

static inline struct core_unit *unit(uint32_t i)
{
	char path[32];

	snprintf(path, sizeof(path), "checkpoint-%u", i);
	return core_find_unit(&core, path);
}

static inline void begin(const struct core_options *options)
{
	core_deinit(&core);
	memset(&dir, 0, sizeof(dir));
	dir.kind = UNIT_TRAINER;
	dir.size_bytes = 100;
	now = 1000 * NS_PER_S;
	core_init(&core, options);
}

static inline struct core_job next_due(int64_t *due_ns)
{
	struct core_job job;

	do {
		job = core_next(&core, now, due_ns);
	} while (job.kind == CORE_RECORD);
	return job;
}

static inline struct core_job next(void)
{
	int64_t due_ns;

	return next_due(&due_ns);
}

/* Expects that the core waits until a time from now on. */
static inline void expect_wait(int64_t span_ns)
{
	int64_t due_ns;
	struct core_job job = next_due(&due_ns);

	assert_int_equal(job.kind, CORE_NOTHING);
	assert_int_equal(due_ns, span_ns == INT64_MAX ? INT64_MAX : now + span_ns);
}

static inline struct core_unit *expect(enum core_job_kind kind, uint32_t i)
{
	struct core_job job = next();

	assert_int_equal(job.kind, kind);
	assert_ptr_equal(job.unit, unit(i));
	return job.unit;
}

static inline void pin(uint32_t i)
{
	core_pinned(&core, expect(CORE_PIN, i), true, "", now);
}

static inline void ship(uint32_t i, bool well)
{
	core_shipped(&core, expect(CORE_SHIP, i), well, false, well ? "" : "no network", now);
}

#endif
