/* Shared by the tests of saves by tag: files made from numbers, saved in pieces, and found
 * again. */
#ifndef TEST_SESSION_TAGS_H
#define TEST_SESSION_TAGS_H

#include "test_session_agent.h"

#include <dirent.h>
#include <sys/stat.h>

#define LARGE  (20u << 20) /* bytes of a file that MEMORY does not hold */
#define MEMORY (16u << 20)

/* ---- what is saved ---- */

/* Returns bytes by which each file is known again. */
static inline uint8_t *content(const char *tag, const char *name, size_t size_bytes)
{
	uint8_t *bytes = calloc(1, size_bytes + 1);
	uint32_t salt = 0;

	for (const char *at = tag; *at; at++) {
		salt = salt * 31 + (uint8_t)*at;
	}
	for (const char *at = name; *at; at++) {
		salt = salt * 31 + (uint8_t)*at;
	}
	for (size_t i = 0; i < size_bytes; i++) {
		bytes[i] = (uint8_t)(i * 7 + (i >> 11) + salt);
	}
	return bytes;
}

static inline struct pawl_ckpt *join_named(uint32_t rank, uint32_t world, uint64_t memory_bytes,
	const char *hidden)
{
	const struct pawl_ckpt_options options = {.root = root,
		.job = "test",
		.rank = rank,
		.world = world,
		.persist_every_ms = 3600 * 1000,
		.memory_bytes = memory_bytes,
		.socket = sock,
		.hidden = hidden,
		.named = true};

	return join_as(&options);
}

static inline uint64_t begin(struct pawl_ckpt *ckpt, const char *tag)
{
	struct pawl_err err;
	uint64_t id;

	if (pawl_ckpt_begin(ckpt, tag, PAWL_STEP_NONE, 0, &id, &err) != 0) {
		fail_msg("%s", err.msg);
	}
	return id;
}

/* Adds a raw file, of two spans of memory. */
static inline int add(struct pawl_ckpt *ckpt, const char *tag, const char *name, size_t size_bytes,
	struct pawl_err *err)
{
	uint8_t *bytes = content(tag, name, size_bytes);
	size_t half = size_bytes / 2;
	struct pawl_ckpt_span spans[] = {{(uintptr_t)bytes, half, 0, 0},
		{(uintptr_t)bytes + half, size_bytes - half, 0, 0}};
	const struct pawl_ckpt_part part = {.name = name,
		.raw = true,
		.spans = spans,
		.spans_n = 2};
	int rv = pawl_ckpt_add(ckpt, &part, err);

	memset(bytes, 0xee, size_bytes); /* was copied before add returned */
	free(bytes);
	return rv;
}

static inline void must_add(struct pawl_ckpt *ckpt, const char *tag, const char *name,
	size_t size_bytes)
{
	struct pawl_err err;

	if (add(ckpt, tag, name, size_bytes, &err) != 0) {
		fail_msg("%s", err.msg);
	}
}

static inline void must_commit(struct pawl_ckpt *ckpt)
{
	struct pawl_err err;

	if (pawl_ckpt_commit(ckpt, &err) != 0) {
		fail_msg("%s", err.msg);
	}
}

/* Saves a tag of one file. Returns its id. */
static inline uint64_t save(struct pawl_ckpt *ckpt, const char *tag, const char *name)
{
	uint64_t id = begin(ckpt, tag);

	must_add(ckpt, tag, name, 5000);
	must_commit(ckpt);
	return id;
}

static inline void must_wait(struct pawl_ckpt *ckpt, uint64_t id, enum pawl_ckpt_level level)
{
	struct pawl_err err;

	if (IN_TIME(pawl_ckpt_wait(ckpt, id, level, WAIT_MS, &err)) != 0) {
		fail_msg("%s", err.msg);
	}
}

static inline enum pawl_ckpt_level level_of(struct pawl_ckpt *ckpt, uint64_t id)
{
	struct pawl_ckpt_status status;

	assert_int_equal(pawl_ckpt_status(ckpt, id, &status, NULL), 0);
	return status.level;
}

static inline void must_fail(struct pawl_ckpt *ckpt, uint64_t id, int code, const char *why)
{
	struct pawl_ckpt_status status;

	assert_int_equal(IN_TIME(pawl_ckpt_wait(ckpt, id, PAWL_CKPT_DURABLE, WAIT_MS, NULL)),
		PAWL_ECANCELED);
	assert_int_equal(pawl_ckpt_status(ckpt, id, &status, NULL), 0);
	assert_int_equal(status.level, PAWL_CKPT_FAILED);
	assert_int_equal(status.code, code);
	if (!strstr(status.why, why)) {
		fail_msg("'%s' is not in '%s'", why, status.why);
	}
}

/* ---- what is found ---- */

static inline struct pawl_restore *must_find(struct pawl_ckpt *ckpt, const char *tag)
{
	struct pawl_restore *restore;
	struct pawl_err err;

	if (IN_TIME(pawl_ckpt_find(ckpt, tag, WAIT_MS, &restore, &err)) != 0) {
		fail_msg("%s", err.msg);
	}
	return restore;
}

static inline void expect_file(struct pawl_restore *restore, const char *name, size_t size_bytes)
{
	struct pawl_restore_info info;
	struct pawl_restore_part part = {0};
	uint32_t p = 0;
	uint8_t *want;
	uint8_t *got = calloc(1, size_bytes + 1);
	struct pawl_err err;

	pawl_restore_info(restore, &info);
	for (; p < info.parts_n; p++) {
		pawl_restore_part(restore, p, &part);
		if (strcmp(part.file, name) == 0) {
			break;
		}
	}
	if (p == info.parts_n) {
		fail_msg("%s has no file %s", info.tag, name);
	}
	want = content(info.tag, name, size_bytes);
	assert_true(part.raw);
	assert_int_equal(part.size_bytes, size_bytes);
	if (pawl_restore_read(restore, p, &err) != 0) {
		fail_msg("%s", err.msg);
	}
	assert_int_equal(pawl_restore_storages(restore, p), 1);
	assert_int_equal(pawl_restore_copy(restore,
				 &(struct pawl_restore_copy){p, 0, 0, (uintptr_t)got, size_bytes},
				 1, &err),
		0);
	assert_memory_equal(got, want, size_bytes);
	free(want);
	free(got);
}

/* Expects the tag to hold these files (NULL ends them), and no others, of 5000 bytes each. */
static inline void expect(struct pawl_ckpt *ckpt, const char *tag, bool memory,
	const char *const *names)
{
	struct pawl_restore *restore = must_find(ckpt, tag);
	struct pawl_restore_info info;
	uint32_t n = 0;

	pawl_restore_info(restore, &info);
	assert_int_equal(info.memory, memory);
	for (; names[n]; n++) {
		expect_file(restore, names[n], 5000);
	}
	assert_int_equal(info.parts_n, n);
	pawl_restore_close(restore);
}

#define FILES(...) ((const char *const[]){__VA_ARGS__, NULL})

static inline void expect_newest(struct pawl_ckpt *ckpt, const char *tag)
{
	struct pawl_restore *restore = must_find(ckpt, NULL);
	struct pawl_restore_info info;

	pawl_restore_info(restore, &info);
	assert_string_equal(info.tag, tag);
	pawl_restore_close(restore);
}

static inline void expect_none(struct pawl_ckpt *ckpt, const char *tag)
{
	struct pawl_restore *restore;

	assert_int_equal(IN_TIME(pawl_ckpt_find(ckpt, tag, WAIT_MS, &restore, NULL)), PAWL_ENOENT);
}

static inline bool is_there(const char *name)
{
	char path[PATH_MAX];
	struct stat st;

	snprintf(path, sizeof(path), "%s/%s", root, name);
	return stat(path, &st) == 0;
}

/* Returns how many names a directory has, hidden ones too. */
static inline int count_names(const char *path)
{
	DIR *at = opendir(path);
	int n = -2; /* . and .. */

	assert_non_null(at);
	while (readdir(at)) {
		n++;
	}
	closedir(at);
	return n;
}

static inline void leave(struct pawl_ckpt *ckpt)
{
	struct pawl_err err;

	if (IN_TIME(pawl_ckpt_close(ckpt, WAIT_MS, &err)) != 0) {
		fail_msg("%s", err.msg);
	}
}

/* Leaves as a process does that dies of an error. */
static inline void die(struct pawl_ckpt *ckpt)
{
	pawl_ckpt_abandon(ckpt, "an error");
	assert_int_equal(IN_TIME(pawl_ckpt_close(ckpt, WAIT_MS, NULL)), 0);
}

#endif
