/* Two hosts of one rank each that save into one root, taking turns in one thread. */
#ifndef TEST_AGREE_PAIR_H
#define TEST_AGREE_PAIR_H

#include "agent/persist/agree_save.h"
#include "base/crc.h"
#include "base/err.h"
#include "ckpt/tags.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static inline struct manifest_part part_of(const char *name, uint32_t rank)
{
	struct manifest_part part = {.rank = rank, .raw = true};

	snprintf(part.name, sizeof(part.name), "%s", name);
	snprintf(part.file, sizeof(part.file), "%s", name);
	return part;
}

static inline struct manifest manifest_of(const char *tag, uint32_t world,
	struct manifest_part *parts, uint32_t n)
{
	struct manifest manifest = {.step = 3, .world = world, .parts = parts, .parts_n = n};

	snprintf(manifest.tag, sizeof(manifest.tag), "%s", tag);
	return manifest;
}

/* Ends every wait at once: the hosts take turns, so that all is there, or never will be. */
static inline bool give_up(void *user, int64_t pause_ns)
{
	return false;
}

struct pair {
	struct agree zero, one;
};

/* links: of the host, or NULL. */
static inline void init_host(struct agree *agree, uint32_t rank, struct peers *links)
{
	const struct agree_options options = {.job = "job",
		.root_path = "/root",
		.first_rank = rank,
		.ranks = 1,
		.world = 2,
		.replicas = rank + 1,
		.parity = rank == 1,
		.peers = links,
		.pause = give_up};

	memset(agree, 0, sizeof(*agree));
	agree_init(agree, &options);
}

static inline void init_pair(struct pair *pair, struct peers *zero, struct peers *one)
{
	init_host(&pair->zero, 0, zero);
	init_host(&pair->one, 1, one);
}

static inline void deinit_pair(struct pair *pair)
{
	agree_deinit(&pair->zero);
	agree_deinit(&pair->one);
}

/* Opens both hosts, which join one run. */
static inline int begin_pair(struct pair *pair, struct tags_root *root)
{
	struct pawl_err err;

	return agree_open(&pair->zero, root, &err) || agree_open(&pair->one, root, &err) ||
		agree_begin(&pair->one, &err) || agree_begin(&pair->zero, &err) ||
		agree_enter(&pair->zero, &err) || agree_enter(&pair->one, &err);
}

/* Returns what the files of a save hold. */
static inline uint64_t content_of(uint64_t n, uint64_t step)
{
	return n * 100 + step;
}

/* Does one host's part of a save: a file of its rank's own. The host of rank 0 publishes. */
static inline int save_part(struct agree *agree, struct tags_root *root, uint64_t n, uint64_t step)
{
	const struct record record = {.step = step, .rank = agree->own.first_rank, .world = 2};
	uint64_t content = content_of(n, step);
	uint32_t crc = crc32c(0, &content, sizeof(content));
	struct manifest_part part =
		part_of(agree->own.first_rank ? "r1" : "r0", agree->own.first_rank);
	struct manifest manifest = manifest_of("", 2, &part, 0);
	char differs[CKPT_NAME_MAX];
	char path[STORE_PATH_MAX];
	struct pawl_err err;
	uint64_t size_bytes;
	uint32_t files;
	int rv;

	manifest.step = step;
	tag_of_step(manifest.tag, sizeof(manifest.tag), step);
	part.size_bytes = sizeof(content);
	part.chunks_n = 1;
	part.chunks = &crc;
	part.at[0].own_name = true;
	rv = agree_save_begin(agree, n, manifest.tag, &err);
	rv = rv == 0 ? tag_draft_manifest(root, &agree->draft, &manifest, &err) : rv;
	if (rv == 0) {
		manifest.parts_n = 1;
		manifest_file_path(path, sizeof(path), agree->draft.dir, &part, 0);
		rv = store_write_small(tags_root_store(root), path, &content, sizeof(content),
			&err);
	}
	if (rv == 0) {
		rv = agree_save_end(agree, n, &manifest, &record, &files, &size_bytes, differs,
			&err);
	}
	free(manifest.folders);
	return rv;
}

/* Does a save with both hosts. */
static inline int save_pair(struct pair *pair, struct tags_root *root, uint64_t n, uint64_t step)
{
	struct agree_msg_status status = {0};
	struct pawl_err err;
	int rv = save_part(&pair->one, root, n, step);

	rv = rv == PAWL_ECANCELED ? save_part(&pair->zero, root, n, step) : rv;
	return rv == 0 ? agree_await_result(&pair->one, AGREE_ROUND_SAVE, n, &status, &err) : rv;
}

/* Returns the content of a tag's files, equal in both; 0: there is no such tag. */
static inline uint64_t read_tag(struct tags_root *root, const char *tag)
{
	uint64_t contents[2];
	struct manifest manifest;

	if (tag_open(root, tag, &manifest, NULL) != 0) {
		return 0;
	}
	assert_int_equal(manifest.parts_n, 2);
	assert_int_equal(manifest.world, 2);
	for (int r = 0; r < 2; r++) {
		char path[STORE_PATH_MAX];
		size_t len_bytes;
		void *bytes;

		manifest_path(path, sizeof(path), &manifest, &manifest.parts[r], 0);
		assert_int_equal(
			store_read_small(tags_root_store(root), path, &bytes, &len_bytes, 64, NULL),
			0);
		assert_int_equal(len_bytes, sizeof(contents[r]));
		memcpy(&contents[r], bytes, len_bytes);
		assert_int_equal(crc32c(0, bytes, len_bytes), manifest.parts[r].chunks[0]);
		free(bytes);
	}
	assert_int_equal(contents[0], contents[1]);
	assert_int_equal(contents[0] % 100, manifest.step);
	manifest_deinit(&manifest);
	return contents[0];
}

#endif
